"""Where elements are.

In:    arrays
Out:   Arrays; indices are int64
"""

from __future__ import annotations

from picograd.array_api.array import ANY, BOOL, NUMERIC, Array, array, axes_given, pair
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
    places: tuple[Array, ...] = source.nonzero(as_tuple=True)
    return places


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
