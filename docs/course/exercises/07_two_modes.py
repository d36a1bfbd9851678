"""Exercise 7: forward mode by numbers that carry their movement.

Test it:  python -m pytest docs/course/exercises/test_07_two_modes.py
"""

from __future__ import annotations

from collections.abc import Callable


class Dual:
    """A number, and how fast it moves when the input moves."""

    def __init__(self, value: float, move: float = 0.0) -> None:
        self.value, self.move = value, move

    @staticmethod
    def of(other: Dual | float) -> Dual:
        """Returns a Dual; a plain number does not move."""
        return other if isinstance(other, Dual) else Dual(other)

    def __add__(self, other: Dual | float) -> Dual:
        other = Dual.of(other)
        return Dual(self.value + other.value, self.move + other.move)

    __radd__ = __add__

    def __mul__(self, other: Dual | float) -> Dual:
        """The product. Gap 1: both factors may move."""
        raise NotImplementedError("gap 1")

    __rmul__ = __mul__

    def __truediv__(self, other: Dual | float) -> Dual:
        """The quotient. Gap 2: if y = a / b, then a = y * b: what does the rule of gap 1 say about the movement of y?"""
        raise NotImplementedError("gap 2")

    def sin(self) -> Dual:
        """The sine. Gap 3."""
        raise NotImplementedError("gap 3")


def derivative(f: Callable[[Dual], Dual], x: float) -> float:
    """The derivative of a function at x. Gap 4: which Dual goes in, and what of the result is the answer?"""
    raise NotImplementedError("gap 4")
