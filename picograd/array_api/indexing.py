"""Selection by arrays of indices.

In:    arrays and integer arrays
Out:   Arrays
Next:  picograd/array_api/manipulation.py
"""

from __future__ import annotations

from picograd.array_api.array import INTEGER, Array, array
from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Array:
    """Returns the slices of x along one axis that `indices`, a 1-d integer array, names.

    Args:
      axis:  may be left out of an array with one axis

    Raises:
      ArgumentError: axis is left out of an array with several.
      ShapeError:    indices has several axes.
      IndexingError: when it is computed: an index is outside the axis.

    >>> take(Array([[1, 2], [3, 4]]), Array([1, 0]), axis=0)
    Array([[3, 4],
           [1, 2]])
    """
    source = array("take", x)
    if axis is None:
        if source.ndim != 1:
            raise ArgumentError(f"take: an array of shape {source.shape} needs an axis, e.g. axis=-1.")
        axis = 0
    index = array("take", indices, INTEGER)
    if index.ndim != 1:
        raise ArgumentError(f"take: indices must have one axis, got shape {index.shape}.")
    return source[(*[slice(None)] * (axis % source.ndim), index)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Array:
    """Returns the elements at `indices` along one axis, the other axes broadcast.

    Raises:
      ShapeError:    indices has another number of axes, or does not broadcast.
      IndexingError: when it is computed: an index is outside the axis.

    >>> take_along_axis(Array([[1, 2], [3, 4]]), Array([[1], [0]]), axis=1)
    Array([[2],
           [3]])
    """
    return array("take_along_axis", x).take_along_dim(array("take_along_axis", indices, INTEGER), axis)
