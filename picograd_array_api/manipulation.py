"""Shapes, selection and order: views where nothing has to move, joins, indices, sorts, sets.

Indices are int64. Sorts are stable, and NaN counts as larger than every number. The values decide what a set contains:
it is computed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.build import axes_of, axis_of
from picograd.tensor.tensor import Tensor
from picograd_array_api.array import (
    ANY,
    BOOL,
    INTEGER,
    NUMERIC,
    Array,
    Axes,
    array,
    axes_given,
    checked_choice,
    pair,
    promote,
)
from picograd_array_api.elementwise import Operand


# ---- shapes ----
def broadcast_arrays(*arrays: Tensor) -> tuple[Array, ...]:
    """Returns views of all arrays broadcast to one shape.

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
    """Returns a view broadcast to `shape`.

    Raises:
      ShapeError: an axis to be repeated does not have length 1.

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
      ArgumentError: one of them does not have length 1.

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
    """Returns the views along one axis, which is removed.

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


# ---- selection by arrays of indices ----
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Array:
    """Returns the slices of x along one axis that `indices`, a 1-d integer array, names.

    Args:
      axis:  may be left out of an array with one axis

    Raises:
      ArgumentError: axis is left out of an array with several.
      ShapeError:    indices is not a vector.
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


# ---- order along an axis ----
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Returns the positions that sort the elements along one axis, largest first if `descending`.

    Args:
      stable:  equal elements keep their order; they do so in any case

    >>> argsort(Array([3, 1, 2]))
    Array([1, 2, 0])
    """
    return array("argsort", x).argsort(axis, descending)


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Returns the elements in order along one axis, largest first if `descending`.

    Args:
      stable:  equal elements keep their order; they do so in any case

    >>> sort(Array([3, 1, 2]))
    Array([1, 2, 3])
    """
    return array("sort", x).sort(axis, descending).values


# ---- where elements are ----
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Returns the position of the first largest element, along one axis or in the flattened array.

    Raises:
      ShapeError: there are no elements.

    >>> argmax(Array([1, 5, 5]))
    Array(1)
    """
    return array("argmax", x, NUMERIC).argmax(axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Returns the position of the first smallest element, along one axis or in the flattened array.

    Raises:
      ShapeError: there are no elements.

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
    """Returns the positions in x1 at which elements of x2 keep it sorted.

    Args:
      x1:      one axis, in rising order, or brought into it by `sorter`
      side:    "left": before equal elements; "right": behind them
      sorter:  integer array of places that bring x1 into order, as argsort gives it

    Raises:
      ArgumentError: x1 is not a vector, or another side.

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
      DTypeError: the condition is not a bool array.

    >>> where(Array([True, False]), Array([1, 2]), 0)
    Array([1, 0])
    """
    chosen = array("where", condition, BOOL)
    a, b = pair("where", x1, x2)
    return a.where(chosen, b)


# ---- sets of distinct elements ----
class UniqueAll(NamedTuple):
    """The result of unique_all.

    values:           the distinct elements, in rising order
    indices:          position of the first of each in the flattened array
    inverse_indices:  which of the values each element is, in the shape of the array
    counts:           how often each occurs
    """

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """The result of unique_counts.

    values:  the distinct elements, in rising order
    counts:  how often each occurs
    """

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """The result of unique_inverse.

    values:           the distinct elements, in rising order
    inverse_indices:  which of the values each element is, in the shape of the array
    """

    values: Array
    inverse_indices: Array


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Array:
    """Returns True where an element of x1 is one of x2; where it is not, if `invert`.

    >>> isin(Array([1, 2, 3]), Array([3, 1]))
    Array([ True, False,  True])
    """
    elements, tested = pair("isin", x1, x2)
    return elements.isin(tested, invert=invert)


def unique_all(x: Tensor, /) -> UniqueAll:
    """Returns the distinct elements, the position of the first of each, the number of each element's value, and counts.

    >>> unique_all(Array([3, 1, 3])).indices
    Array([1, 0])
    """
    source = array("unique_all", x)
    values, inverse, counts = source.unique(return_inverse=True, return_counts=True)
    order = inverse.flatten().argsort(stable=True)
    return UniqueAll(values, order[counts.cumsum(0) - counts], inverse.reshape(source.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Returns the distinct elements, and how often each occurs.

    >>> unique_counts(Array([3, 1, 3])).counts
    Array([1, 2])
    """
    return UniqueCounts(*array("unique_counts", x).unique(return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Returns the distinct elements, and which of them each element is.

    >>> unique_inverse(Array([3, 1, 3])).inverse_indices
    Array([1, 0, 1])
    """
    source = array("unique_inverse", x)
    values, inverse = source.unique(return_inverse=True)
    return UniqueInverse(values, inverse.reshape(source.shape))


def unique_values(x: Tensor, /) -> Array:
    """Returns the distinct elements in rising order; each NaN is distinct.

    >>> unique_values(Array([3, 1, 3]))
    Array([1, 3])
    """
    return array("unique_values", x).unique()
