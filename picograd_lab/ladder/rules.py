"""Shared launches, rules of lengths and roundings of GPU ladders.

In:    names of lengths, numbers
Out:   functions of lengths for a `Rung`: `per`, `tiles`, `together`; `whole`, `at_most`, `all_of`;  `roundings`
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from picograd.ir.stages import Launch
from picograd_lab.ladder.gpu import Lengths, ceil_div

Launches = Callable[[Lengths], tuple[Launch, ...]]
Rule = Callable[[Lengths], str]


# ---- launches ----
def per(symbol: str, names: str, each: int, threads: int) -> Launches:
    """Returns the launch of a kernel whose blocks each do `each` units of a length, or of a product of several.

    >>> per("rows", "ROWS", 8, 256)({"ROWS": 20})[0].grid
    3
    """

    def launches(lengths: Lengths) -> tuple[Launch, ...]:
        return (Launch(symbol, ceil_div(prod(lengths[name] for name in names.split()), each), threads, 1),)

    return launches


def tiles(symbol: str, threads: int, *edges: tuple[str, int]) -> Launches:
    """Returns the launch of a kernel with one block per tile: the given number of each of these lengths.

    >>> tiles("multiply", 256, ("M", 16), ("N", 16))({"M": 17, "N": 40})[0].grid
    6
    """

    def launches(lengths: Lengths) -> tuple[Launch, ...]:
        return (Launch(symbol, prod(ceil_div(lengths[name], each) for name, each in edges), threads, 1),)

    return launches


def together(*parts: Launches) -> Launches:
    """Returns the launches of several kernels in sequence."""
    return lambda lengths: tuple(launch for part in parts for launch in part(lengths))


# ---- rules ----
def whole(name: str, each: int) -> Rule:
    """Returns the rule that a length is a multiple of a number.

    >>> whole("COLS", 4)({"COLS": 6})
    'COLS must be a multiple of 4'
    """
    return lambda lengths: f"{name} must be a multiple of {each}" if lengths[name] % each else ""


def at_most(name: str, most: int) -> Rule:
    """Returns the rule that a length has an upper limit."""
    return lambda lengths: f"{name} must be at most {most}" if lengths[name] > most else ""


def all_of(*rules: Rule) -> Rule:
    """Returns a rule that reports the first violated one of these rules."""
    return lambda lengths: next(filter(None, (rule(lengths) for rule in rules)), "")


# ---- bounds ----
def roundings(count: Any, roundoff: float) -> Any:
    """Returns g(count) = count u / (1 - count u), the relative error of `count` roundings.

    Source: Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1.
    """
    return count * roundoff / (1 - count * roundoff)
