"""Selection by arrays of indices.

In:    arrays and integer arrays
Out:   Arrays
Next:  picograd/array_api/manipulation.py
"""

from __future__ import annotations

from picograd.array_api.array import INTEGER, Array, array
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.build import axis_of
from picograd.tensor.tensor import Tensor


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Array:
    """Returns the slices of x along one axis that `indices`, a 1-d integer array, names.

    Args:
      axis:  may be left out of an array with one axis

    Raises:
      ArgumentError: axis is left out of an array with several.
      ShapeError:    indices has not one axis.
      IndexingError: there is no such axis; or, when it is computed, an index is outside of it.

    >>> take(Array([[1, 2], [3, 4]]), Array([1, 0]), axis=0)
    Array([[3, 4],
           [1, 2]])
    """
    source, index = array("take", x), array("take", indices, INTEGER)
    if axis is None and source.ndim != 1:
        raise ArgumentError(f"take: an array of shape {source.shape} needs an axis, e.g. axis=-1.")
    if index.ndim != 1:
        raise ShapeError(f"take: indices must have one axis, got shape {index.shape}.")
    return source[(*[slice(None)] * axis_of("take", source.op.shape, axis or 0), index)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Array:
    """Returns the elements at `indices` along one axis, the other axes broadcast.

    Raises:
      ShapeError:    indices has another number of axes, or does not broadcast.
      IndexingError: there is no such axis; or, when it is computed, an index is outside of it.

    >>> take_along_axis(Array([[1, 2], [3, 4]]), Array([[1], [0]]), axis=1)
    Array([[2],
           [3]])
    """
    return array("take_along_axis", x).take_along_dim(array("take_along_axis", indices, INTEGER), axis)
