"""Exercise 3: strides. A view is a shape, a stride for each axis, and an offset into a line of numbers.

Test it:  python -m pytest docs/course/exercises/test_03_views_and_strides.py
"""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """Element (i, j, ...) is at address offset + strides[0] * i + strides[1] * j + ..."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def contiguous(shape: tuple[int, ...]) -> View:
    """The view of an array that is stored row after row, without gaps.

    contiguous((2, 3, 4)) has strides (12, 4, 1).
    """
    raise NotImplementedError("gap 1: begin with the last axis, whose stride is 1")


def every(view: View, axis: int, n: int) -> View:
    """Each n-th element along an axis, from the first on: x[::n]."""
    raise NotImplementedError("gap 2: shape and stride change; how many elements are left of 5 if n is 2?")


def reshape(view: View, shape: tuple[int, ...]) -> View | None:
    """The same elements in the same order with another shape; None if no strides do that.

    A hint: merge neighbouring axes where stride[outer] == stride[inner] * length[inner], from the last axis to the first;
    then cut the merged axes into the new lengths, again from the last. A new length that crosses the end of a merged axis:
    None. Axes of length 1 can be left out at first, and have any stride at the end.
    """
    raise NotImplementedError("gap 3")
