"""Exercise 1: a number that remembers how it was computed. Fill in the three gaps.

Test it:  python -m pytest docs/course/exercises/test_01_scalar_autodiff.py
"""

from __future__ import annotations


class Value:
    """A number with the values it was computed from, the slope to each of them, and the gradient of the result by it."""

    def __init__(self, data: float, sources: tuple[Value, ...] = (), slopes: tuple[float, ...] = ()) -> None:
        self.data, self.sources, self.slopes, self.grad = data, sources, slopes, 0.0

    def __add__(self, other: Value) -> Value:
        return Value(self.data + other.data, (self, other), (1.0, 1.0))

    def __mul__(self, other: Value) -> Value:
        """The product. Gap 1: how fast does it grow with each factor?"""
        raise NotImplementedError("gap 1: the slopes of a product")

    def tanh(self) -> Value:
        """The hyperbolic tangent, math.tanh. Gap 2: its slope is 1 - tanh(x) ** 2."""
        raise NotImplementedError("gap 2: tanh")

    def backward(self) -> None:
        """Fills in the grad of all values that this one was computed from.

        Gap 3: list all values so that each is after its sources; set the grad of the last to 1; walk the list backwards.
        """
        raise NotImplementedError("gap 3: backward")
