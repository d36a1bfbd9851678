"""Where elements are.

In:    arrays
Out:   Arrays; indices are int64
Next:  picograd/array_api/sets.py
"""

from __future__ import annotations

from picograd.array_api.array import ANY, BOOL, INTEGER, NUMERIC, Array, array, axes_given, checked_choice, pair
from picograd.array_api.elementwise import Operand
from picograd.array_api.manipulation import Axes
from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Returns where the first greatest element stands, along one axis or in the flattened array.

    Raises:
      ShapeError: there is no element.

    >>> argmax(Array([1, 5, 5]))
    Array(1)
    """
    return array("argmax", x, NUMERIC).argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Returns where the first smallest element stands, along one axis or in the flattened array.

    Raises:
      ShapeError: there is no element.

    >>> argmin(Array([[1, 5], [7, 2]]), axis=1)
    Array([0, 1])
    """
    return array("argmin", x, NUMERIC).argmin(axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns how many elements are not zero.

    >>> count_nonzero(Array([0, 5, 7]))
    Array(2)
    """
    return array("count_nonzero", x, ANY).ne(0).sum(axes_given(axis), keepdims)


def nonzero(x: Tensor, /) -> tuple[Array, ...]:
    """Returns for each axis the places of the elements that are not zero; computes x.

    Raises:
      ArgumentError: x has no axis.

    >>> nonzero(Array([0, 5, 7]))
    (Array([1, 2]),)
    """
    source = array("nonzero", x)
    if not source.ndim:
        raise ArgumentError("nonzero: a 0-d array has no axis.", hint="reshape(x, (1,))")
    places: Array = source.nonzero()
    return places.unbind(1)


def searchsorted(
    x1: Tensor, x2: Operand, /, *, side: str = "left", sorter: Tensor | None = None
) -> Array:
    """Returns where elements of x2 would have to stand in x1 for it to stay in order.

    Args:
      x1:      one axis, in rising order, or brought into it by `sorter`
      side:    "left": before equal elements; "right": behind them
      sorter:  integer array of places that bring x1 into order, as argsort gives it

    Raises:
      ArgumentError: x1 has not one axis, or another side.

    >>> searchsorted(Array([1, 3, 5]), Array([3, 4]))
    Array([1, 2])
    """
    checked_choice("searchsorted", "side", side, ("left", "right"))
    line, values = pair("searchsorted", x1, x2, NUMERIC)
    if line.ndim != 1:
        raise ArgumentError(f"searchsorted: x1 must have one axis, got shape {line.shape}.")
    if sorter is not None:
        line = line[array("searchsorted", sorter, INTEGER)]
    return line.searchsorted(values, right=side == "right")


def where(condition: Tensor, x1: Operand, x2: Operand, /) -> Array:
    """Returns x1 where the condition holds, else x2, all broadcast.

    Raises:
      DTypeError: the condition is no bool array.

    >>> where(Array([True, False]), Array([1, 2]), 0)
    Array([1, 0])
    """
    chosen = array("where", condition, BOOL)
    a, b = pair("where", x1, x2)
    return a.where(chosen, b)
