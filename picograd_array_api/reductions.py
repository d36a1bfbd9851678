"""Sums, products, extremes, moments and truth along axes, and what runs along an axis.

Sums and products of integers are int64, of unsigned ones uint64.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.tensor.build import axis_of
from picograd.tensor.tensor import Tensor
from picograd_array_api.array import FLOAT, NUMERIC, Array, Axes, array, axes_given, promote


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
    """Returns the products of all elements up to each along one axis.

    Args:
      axis:             may be left out of an array with one axis
      include_initial:  a 1 is put in front

    Raises:
      ArgumentError: axis is left out of an array with several.

    >>> cumulative_prod(Array([2, 3]), include_initial=True)
    Array([1, 2, 6])
    """
    source, place = _line("cumulative_prod", x, axis)
    result = source.cumprod(place, dtype=accumulated(source.dtype, dtype))
    return _after(result, place, 1) if include_initial else result


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Array:
    """Returns the sums of all elements up to each along one axis.

    Args:
      axis:             may be left out of an array with one axis
      include_initial:  a 0 is put in front

    Raises:
      ArgumentError: axis is left out of an array with several.

    >>> cumulative_sum(Array([2, 3]))
    Array([2, 5])
    """
    source, place = _line("cumulative_sum", x, axis)
    result = source.cumsum(place, dtype=accumulated(source.dtype, dtype))
    return _after(result, place, 0) if include_initial else result


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns the largest element; NaN if there is one.

    Raises:
      ShapeError: there are no elements.

    >>> max(Array([[1, 5], [7, 2]]), axis=1)
    Array([5, 7])
    """
    return array("max", x, NUMERIC).amax(axes_given(axis), keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns the sum divided by the number of elements.

    >>> mean(Array([1.0, 2.0]))
    Array(1.5)
    """
    return array("mean", x, FLOAT).mean(axes_given(axis), keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns the smallest element; NaN if there is one.

    Raises:
      ShapeError: there are no elements.

    >>> min(Array([[1, 5], [7, 2]]), axis=1)
    Array([1, 2])
    """
    return array("min", x, NUMERIC).amin(axes_given(axis), keepdims)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """Returns the product.

    >>> prod(Array([2, 3]))
    Array(6)
    """
    source = array("prod", x, NUMERIC)
    return source.prod(axes_given(axis), keepdims, dtype=accumulated(source.dtype, dtype))


def std(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: bool = False) -> Array:
    """Returns the square root of the variance, which is divided by count - correction.

    >>> std(Array([1.0, 3.0]))
    Array(1.)
    """
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Array:
    """Returns the sum.

    >>> sum(Array([2, 3], dtype=dtypes.uint8)).dtype
    uint64
    """
    source = array("sum", x, NUMERIC)
    return source.sum(axes_given(axis), keepdims, dtype=accumulated(source.dtype, dtype))


def var(x: Tensor, /, *, axis: Axes = None, correction: int | float = 0.0, keepdims: bool = False) -> Array:
    """Returns the mean of the squared deviations, divided by count - correction.

    >>> var(Array([1.0, 3.0]))
    Array(1.)
    """
    return array("var", x, FLOAT).var(axes_given(axis), correction, keepdims)


def accumulated(dtype: DType, wanted: DType | None) -> DType:
    """Returns the dtype of a sum or product of elements of `dtype`: the one that is wanted, or wide enough for many."""
    if wanted is not None:
        return wanted
    return {"i": dtypes.int64, "u": dtypes.uint64}.get(dtype.kind, dtype)


def _line(function: str, x: Tensor, axis: int | None) -> tuple[Array, int]:
    """Returns an array, and the axis to run along."""
    source = array(function, x, NUMERIC)
    if axis is None and source.ndim != 1:
        raise ArgumentError(f"{function}: an array of shape {source.shape} needs an axis, e.g. axis=-1.")
    return source, axis_of(function, source.op.shape, axis or 0)


def _after(result: Array, axis: int, start: int) -> Array:
    """Returns a result with a number in front along one axis."""
    shape = [1 if place == axis else length for place, length in enumerate(result.shape)]
    return Array.cat([Array.full(shape, start, dtype=result.dtype, device=result.cell.device), result], axis)


# ---- truth, differences ----
def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns True where no element is zero.

    >>> all(Array([0, 2]))
    Array(False)
    """
    return array("all", x).bool().all(axes_given(axis), keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Array:
    """Returns True where one element is not zero.

    >>> any(Array([0, 2]))
    Array(True)
    """
    return array("any", x).bool().any(axes_given(axis), keepdims)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Array:
    """Returns the differences of neighbours along one axis, taken n times.

    Args:
      prepend, append:  elements put before and after x along the axis

    Raises:
      ArgumentError: n is negative.
      DTypeError:    prepend or append has no common dtype with x.

    >>> diff(Array([1, 4, 9]))
    Array([3, 5])
    """
    line = array("diff", x, NUMERIC)
    for end in (prepend, append):
        if end is not None:
            promote("diff", line.dtype, array("diff", end).dtype)
    return line.diff(n, axis, prepend, append)
