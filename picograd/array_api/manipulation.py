"""Shapes and order: views where nothing has to move, joins, repetition.

In:    arrays
Out:   Arrays
Next:  picograd/array_api/linear_algebra.py
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from picograd.array_api.array import INTEGER, Array, array, axes_given, promote
from picograd.errors import ArgumentError
from picograd.tensor.build import axes_of, axis_of
from picograd.tensor.tensor import Tensor

Axes = int | tuple[int, ...] | None


def broadcast_arrays(*arrays: Tensor) -> tuple[Array, ...]:
    """Returns views of all arrays repeated to one shape.

    Raises:
      ShapeError: the shapes do not broadcast.

    >>> [x.tolist() for x in broadcast_arrays(Array([1, 2]), Array([3]))]
    [[1, 2], [3, 3]]
    """
    return Array.broadcast_tensors(*(array("broadcast_arrays", x) for x in arrays))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape that arrays of these shapes broadcast to.

    Raises:
      ShapeError: two lengths of one axis differ and neither is 1.

    >>> broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return Array.broadcast_shapes(*shapes)


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Array:
    """Returns a view repeated to `shape`.

    Raises:
      ShapeError: an axis to be repeated is not of length 1.

    >>> broadcast_to(Array([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]])
    """
    return array("broadcast_to", x).broadcast_to(tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Array:
    """Returns arrays joined along one axis, in the dtype they promote to; axis=None flattens them first.

    Raises:
      ShapeError:    an axis other than `axis` differs.
      DTypeError:    they have no common dtype.
      ArgumentError: there is no array.

    >>> concat([Array([1]), Array([2, 3])])
    Array([1, 2, 3])
    """
    alike = _promoted("concat", arrays)
    return Array.cat([x.flatten() for x in alike], 0) if axis is None else Array.cat(alike, axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Array:
    """Returns a view with axes of length 1 at the places `axis` of the result.

    Raises:
      IndexingError: the result has no such axis.
      ArgumentError: an axis is named twice.

    >>> expand_dims(Array([1, 2]), (0, 2)).shape
    (1, 2, 1)
    """
    view = array("expand_dims", x)
    given = (axis,) if isinstance(axis, int) else tuple(axis)
    places = [axis_of("expand_dims", view.op.shape, a, extra=len(given)) for a in given]
    if len(set(places)) != len(places):
        raise ArgumentError(f"expand_dims: axes {given} name one axis twice.")
    for place in sorted(places):
        view = view.unsqueeze(place)
    return view


def flip(x: Tensor, /, *, axis: Axes = None) -> Array:
    """Returns the elements in reverse order along `axis`, or along all axes.

    >>> flip(Array([1, 2, 3]))
    Array([3, 2, 1])
    """
    source = array("flip", x)
    return source.flip(*axes_of("flip", source.op.shape, axes_given(axis)))


def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Array:
    """Returns a view with the axes `source` at the places `destination`, the others in order.

    Raises:
      ArgumentError: there are not as many of one as of the other, or an axis is named twice.

    >>> moveaxis(Array.zeros(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    return array("moveaxis", x).movedim(source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Array:
    """Returns a view with the axes in the order given.

    Raises:
      ShapeError: `axes` does not name each axis once.

    >>> permute_dims(Array.zeros(2, 3, 4), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return array("permute_dims", x).permute(tuple(axes))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Array:
    """Returns each element repeated, along one axis or along the flattened array.

    Args:
      repeats:  how often: a number for all, or an integer array with one for each, whose values are computed now

    >>> repeat(Array([1, 2]), 2)
    Array([1, 1, 2, 2])
    """
    times = array("repeat", repeats, INTEGER) if isinstance(repeats, Tensor) else repeats
    return array("repeat", x).repeat_interleave(times, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """Returns the elements in another shape, one of whose lengths may be -1; a view unless copy=True.

    Raises:
      ShapeError: the shapes do not have as many elements.

    >>> reshape(Array([1, 2, 3, 4]), (2, -1))
    Array([[1, 2],
           [3, 4]])
    """
    view = array("reshape", x).reshape(tuple(shape))
    return view.clone() if copy else view


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Array:
    """Returns the elements moved by `shift`, those pushed out coming in at the other end.

    Args:
      axis:  one for each shift, or one for all; None: the flattened array is rolled

    Raises:
      ArgumentError: there are not as many shifts as axes.

    >>> roll(Array([1, 2, 3]), 1)
    Array([3, 1, 2])
    """
    source = array("roll", x)
    shifts = shift if isinstance(shift, int) else tuple(shift)
    if axis is not None and not isinstance(axis, int) and isinstance(shifts, int):
        shifts = (shifts,) * len(axis)
    return source.roll(shifts, axes_given(axis))


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Array:
    """Returns a view without the axes `axis`.

    Raises:
      ArgumentError: one of them is not of length 1.

    >>> squeeze(Array([[1, 2]]), 0)
    Array([1, 2])
    """
    view = array("squeeze", x)
    for chosen in axes_of("squeeze", view.op.shape, axes_given(axis)):
        if view.shape[chosen] != 1:
            raise ArgumentError(f"squeeze: axis {chosen} of shape {view.shape} is not of length 1.")
    return view.squeeze(axes_given(axis))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Array:
    """Returns arrays of one shape joined along a new axis, in the dtype they promote to.

    Raises:
      ShapeError:    the shapes differ.
      DTypeError:    they have no common dtype.
      ArgumentError: there is no array.

    >>> stack([Array([1, 2]), Array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]])
    """
    return Array.stack(_promoted("stack", arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Array:
    """Returns x repeated as a whole along each axis; axes or repetitions that are missing in front count as 1.

    >>> tile(Array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]])
    """
    source = array("tile", x)
    times = (1,) * (source.ndim - len(repetitions)) + tuple(repetitions)
    return source.repeat(*times) if times else source


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Returns the views along one axis, which disappears.

    >>> [row.tolist() for row in unstack(Array([[1, 2], [3, 4]]))]
    [[1, 2], [3, 4]]
    """
    return array("unstack", x).unbind(axis)


def _promoted(function: str, arrays: Sequence[Tensor]) -> list[Array]:
    """Returns arrays in the dtype they promote to."""
    if not arrays:
        raise ArgumentError(f"{function}: needs at least one array.")
    given = [array(function, x) for x in arrays]
    dtype = reduce(lambda found, x: promote(function, found, x.dtype), given, given[0].dtype)
    return [x.cast(dtype) for x in given]
