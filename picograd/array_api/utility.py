"""Truth of all or any, differences.

In:    arrays
Out:   Arrays
Next:  picograd/array_api/sorting.py
"""

from __future__ import annotations

import builtins

from picograd.array_api.array import NUMERIC, Array, array, axes_given, promote
from picograd.array_api.manipulation import Axes
from picograd.tensor.tensor import Tensor


def all(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Array:
    """Returns True where no element is zero.

    >>> all(Array([0, 2]))
    Array(False)
    """
    return array("all", x).bool().all(axes_given(axis), keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: builtins.bool = False) -> Array:
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
      prepend, append:  what stands before and behind x along the axis

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
