"""Order along an axis. Sorts are stable; NaN counts as greater than every number.

In:    arrays
Out:   Arrays
Next:  picograd/array_api/searching.py
"""

from __future__ import annotations

from picograd.array_api.array import Array, array
from picograd.tensor.tensor import Tensor


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Returns where the elements stand that make the order along one axis, greatest first if `descending`.

    Args:
      stable:  equal elements keep their order; they do so in any case

    >>> argsort(Array([3, 1, 2]))
    Array([1, 2, 0])
    """
    return array("argsort", x).argsort(axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Returns the elements in order along one axis, greatest first if `descending`.

    Args:
      stable:  equal elements keep their order; they do so in any case

    >>> sort(Array([3, 1, 2]))
    Array([1, 2, 3])
    """
    values: Array = array("sort", x).sort(axis, descending).values
    return values
