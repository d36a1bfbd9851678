"""Several tensors put together, or brought to one shape: stacks, grids, blocks.

In:    tensors
Out:   `Stacking`
Next:  picograd/tensor/elements/operators.py
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd.dtype import int64
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import gather, pad, reshape
from picograd.ir.holders import out_of_memory
from picograd.ir.shape import numel
from picograd.tensor.build import broadcast_shapes as common_shape
from picograd.tensor.build import cast, common_dtype, whole
from picograd.tensor.core import T
from picograd.tensor.movement.pieces import cut
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


CHOSEN_AT_ONCE = 1 << 16


# ---- at least so many axes ----
def atleast_1d(cls: Any, *tensors: Any) -> Any:
    """Returns views with one axis or more: of one tensor, or a tuple for several `tensors`.

    >>> Tensor.atleast_1d(Tensor(3))
    Tensor([3])
    """
    return _each(cls, "atleast_1d", tensors, lambda x: x if x.ndim else x.reshape(1))


def atleast_2d(cls: Any, *tensors: Any) -> Any:
    """Returns views with two axes or more, new ones in front: of one tensor, or a tuple for several `tensors`.

    >>> Tensor.atleast_2d(Tensor([1, 2])).tolist()
    [[1, 2]]
    """
    return _each(cls, "atleast_2d", tensors, lambda x: x if x.ndim > 1 else x.reshape(1, -1))


def atleast_3d(cls: Any, *tensors: Any) -> Any:
    """Returns views with three axes or more: a vector in the middle one, a matrix in the first two.

    Of one tensor, or a tuple for several `tensors`.

    >>> Tensor.atleast_3d(Tensor([1, 2])).shape
    (1, 2, 1)
    """
    return _each(cls, "atleast_3d", tensors, _in_three_axes)


def _each(cls: type[T], function: str, tensors: tuple[Any, ...], convert: Any) -> Any:
    listed = len(tensors) != 1 or isinstance(tensors[0], (list, tuple))
    results = tuple(convert(x) for x in _listed(cls, function, tensors))
    return results if listed else results[0]


def _listed(cls: type[T], function: str, tensors: Sequence[Any]) -> list[T]:
    """Returns tensors given as f(a, b) or as f([a, b])."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tensors[0]
    for x in tensors:
        if not isinstance(x, cls):
            raise DTypeError(f"{function}: needs tensors, got {x!r}.", hint="Tensor(x)")
    return list(tensors)


# ---- joined along an axis of their own ----
def hstack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 1; vectors and numbers along axis 0.

    >>> Tensor.hstack([Tensor([1, 2]), Tensor([3])])
    Tensor([1, 2, 3])
    """
    parts = [cls.atleast_1d(x) for x in _listed(cls, "hstack", [tensors])]
    return cls.cat(parts, 0 if parts and parts[0].ndim == 1 else 1)


def vstack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 0; vectors and numbers become rows.

    >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return cls.cat([cls.atleast_2d(x) for x in _listed(cls, "vstack", [tensors])], 0)


def row_stack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 0, as vstack does.

    >>> Tensor.row_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return cls.vstack(tensors)


def dstack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 2, as `atleast_3d` shows them.

    >>> Tensor.dstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return cls.cat([cls.atleast_3d(x) for x in _listed(cls, "dstack", [tensors])], 2)


def column_stack(cls: type[T], tensors: Sequence[Tensor]) -> T:
    """Returns `tensors` joined along axis 1; vectors and numbers become columns.

    >>> Tensor.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    parts = _listed(cls, "column_stack", [tensors])
    return cls.cat([x if x.ndim > 1 else x.reshape(-1, 1) for x in parts], 1)


# ---- one shape ----
def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """Returns the shape that tensors of all `shapes` repeat to; a number is the shape of a vector.

    Raises:
      ShapeError: two lengths of one axis differ and neither is 1.

    >>> Tensor.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    given = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
    return common_shape("broadcast_shapes", *given) if given else ()  # type: ignore[return-value]


def broadcast_tensors(cls: type[T], *tensors: Any) -> tuple[T, ...]:
    """Returns views of `tensors` that repeat to their common shape.

    Raises:
      ShapeError: two lengths of one axis differ and neither is 1.

    >>> [x.tolist() for x in Tensor.broadcast_tensors(Tensor([[1], [2]]), Tensor([3, 4]))]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    listed = _listed(cls, "broadcast_tensors", tensors)
    if not listed:
        return ()
    shape = common_shape("broadcast_tensors", *(x.op.shape for x in listed))
    return tuple(x.expand(shape) for x in listed)


def meshgrid(cls: type[T], *tensors: Any, indexing: str = "ij") -> tuple[T, ...]:
    """Returns views that repeat each vector along the axes of all the others.

    out[k][i, j, ...] is element i, j, ... of vector k, whichever of these is its own.

    Args:
      tensors:   vectors, or numbers as vectors of one element
      indexing:  "ij": axis k belongs to vector k; "xy": the first two are exchanged

    Raises:
      ArgumentError: another word.
      ShapeError:    a tensor has several axes.

    >>> [x.tolist() for x in Tensor.meshgrid(Tensor([1, 2]), Tensor([3, 4]))]
    [[[1, 1], [2, 2]], [[3, 4], [3, 4]]]
    """
    listed = _listed(cls, "meshgrid", tensors)
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f'meshgrid: indexing must be "ij" or "xy", got {indexing!r}.')
    for x in listed:
        if x.ndim > 1:
            raise ShapeError(f"meshgrid: needs vectors, got shape {x.shape}.")
    swapped = indexing == "xy" and len(listed) > 1
    vectors = [x.reshape(-1) if x.ndim == 0 else x for x in listed]
    if swapped:
        vectors[:2] = vectors[1::-1]
    shape = tuple(x.shape[0] for x in vectors)
    grids = [
        x.reshape((1,) * axis + (shape[axis],) + (1,) * (len(shape) - axis - 1)).expand(shape)
        for axis, x in enumerate(vectors)
    ]
    if swapped:
        grids[:2] = grids[1::-1]
    return tuple(grids)


# ---- blocks and choices ----
def block_diag(cls: type[T], *tensors: Any) -> T:
    """Returns a matrix with `tensors` along its diagonal, and zeros elsewhere.

    Args:
      tensors: matrices; a vector is a row, a number one element

    Raises:
      ShapeError: a tensor has more than two axes.

    >>> Tensor.block_diag(Tensor([[1, 2]]), Tensor(3)).tolist()
    [[1, 2, 0], [0, 0, 3]]
    """
    blocks = [cls.atleast_2d(x) for x in _listed(cls, "block_diag", tensors)] or [cls([[]])]
    for x in blocks:
        if x.ndim > 2:
            raise ShapeError(f"block_diag: needs at most two axes, got shape {x.shape}.")
    dtype, left = common_dtype([x.read() for x in blocks]), 0
    total = sum(known("block_diag", x.shape, 1) for x in blocks)
    rows = []
    for x in blocks:
        op, after = cast(x.read(), dtype), left + x.shape[1]
        rows.append(cls.from_op(pad(op, ((0, 0), (left, total - after))), x.cell.device))
        left = after
    return cls.cat(rows, 0)


def cartesian_prod(cls: type[T], *tensors: Any) -> T:
    """Returns all choices of one element of each vector, a row each, the last changing fastest.

    Args:
      tensors: vectors; of a single one it is that vector

    >>> Tensor.cartesian_prod(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    listed = _listed(cls, "cartesian_prod", tensors)
    grids = cls.meshgrid(*listed)
    return grids[0] if len(grids) == 1 else cls.stack([x.reshape(-1) for x in grids], 1)


def combinations(self: T, r: int = 2, with_replacement: bool = False) -> T:
    """Returns all choices of `r` elements of a vector, a row each, in its order.

    Args:
      r:                 how many are chosen
      with_replacement:  an element may be chosen again

    Raises:
      ShapeError:       it is no vector.
      ArgumentError:    r is negative.
      OutOfMemoryError: there are too many choices.

    >>> Tensor([1, 2, 3]).combinations().tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    if self.ndim != 1:
        raise ShapeError(f"combinations: needs a vector, got shape {self.shape}.")
    r = whole("combinations", "r", r)
    if r < 0:
        raise ArgumentError(f"combinations: r must not be negative, got {r}.")
    length = known("combinations", self.shape, 0)
    if not r:
        return cut(self.clone(), 0, 0, 0)
    places = type(self)(_choices(length, r, with_replacement), dtype=int64, device=self.device).read()
    rows = reshape(gather(self.read(), reshape(places, (numel(places.shape),)), 0, 0), places.shape)
    return self.from_op(rows, self.cell.device)


def _choices(length: int, r: int, with_replacement: bool) -> np.ndarray[Any, Any]:
    """Returns (choices, r): which of `length` elements each choice takes; an interrupt comes between two pieces of it.

    Raises:
      OutOfMemoryError: they are too many.
    """
    count = math.comb(length + r - 1, r) if with_replacement and length else math.comb(length, r)
    try:
        chosen = np.empty((count, r), np.int64)
    except (MemoryError, ValueError):
        raise out_of_memory("combinations", 8 * count * r) from None
    rows = (itertools.combinations_with_replacement if with_replacement else itertools.combinations)(range(length), r)
    for start in range(0, count, CHOSEN_AT_ONCE):
        piece = chosen[start : start + CHOSEN_AT_ONCE]
        piece[:] = [*itertools.islice(rows, len(piece))]
    return chosen


def _in_three_axes(x: Any) -> Any:
    if x.ndim > 2:
        return x
    return x.reshape(*x.shape, 1) if x.ndim == 2 else x.reshape(1, -1, 1)
