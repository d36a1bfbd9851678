"""Elements and slices written by index tensors, and selected by masks and values.

Each writing function has two forms: one returns a new tensor, one, with a _ at its end, writes in place. Where values
decide the length of a result, as for masked_select, the tensor is computed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.autodiff.reductions import no_candidate
from picograd.dtype import Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import (
    both,
    cast,
    equal,
    expand,
    floordiv,
    gather,
    iota,
    less_equal,
    maximum,
    move_back,
    move_last,
    pad,
    reshape,
    scan,
    shrink,
    where,
)
from picograd.ir.build import reduce as reduce_op
from picograd.ir.build import scatter as scatter_op
from picograd.ir.checks import Site, checked
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import subtract
from picograd.tensor.arguments import at_least, check_one_of, value_at
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, guarded, same_as_iota, whole
from picograd.tensor.cell import trace
from picograd.tensor.core import Operand, T, TensorCore
from picograd.tensor.formulas import of_tensors
from picograd.tensor.indexing import along_axis, index_op, integer_index, needs_dtype
from picograd.tensor.inplace import in_place, stored
from picograd.tensor.intake import fitting
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "argwhere", "index_add", "index_copy", "index_fill", "index_reduce", "masked_scatter", "masked_select",
    "nonzero", "nonzero_static", "put", "repeat_interleave", "scatter", "scatter_add", "scatter_reduce",
]  # fmt: skip

# ---- scatters on Ops ----
Scatter = Callable[[Op, Op, Op, OpCode | None, int], Op]
CODES = {"sum": OpCode.ADD, "prod": OpCode.MUL, "mean": OpCode.ADD, "amax": OpCode.MAX, "amin": OpCode.MIN}


def scattered_along(base: Op, places: Op, updates: Op, code: OpCode | None, axis: int) -> Op:
    """Returns base[..., places, ...] = updates along one axis; along the others `places` may be shorter."""
    if not places.numel:  # so that the updates have gradients, empty ones
        nothing = expand(reduce_op(updates, OpCode.ADD, tuple(range(len(updates.shape)))), base.shape)
        return where(filled(False, dtypes.bool_, base.shape), nothing, base) if updates.needs_grad else base
    block = tuple((0, dim if a == axis else n) for a, (dim, n) in enumerate(zip(base.shape, places.shape)))
    part, batch = shrink(base, block), len(base.shape) - 1
    target, index, values = (move_last(op, axis) for op in (part, places, updates))
    moved = scatter_op(target, index, values, code, batch, batch)
    result = move_back(moved, axis)
    if part is base:
        return result
    margins = tuple((0, subtract(dim, stop)) for dim, (_, stop) in zip(base.shape, block))
    return where(pad(filled(True, dtypes.bool_, result.shape), margins), pad(result, margins), base)


def combined(base: Op, places: Op, updates: Op, reduce: str, include_self: bool, axis: int, store: Scatter) -> Op:
    """Returns `base` with all updates of each position combined: "sum", "mean", "prod", "amax" or "amin".

    Args:
      include_self:  combine the elements of `base`, too
      store:         function that stores updates: `scattered_along`, or one for slices
    """
    code = CODES[reduce]
    if include_self:
        result = store(base, places, updates, code, axis)
    else:
        covered = filled(False, dtypes.bool_, base.shape)
        covered = store(covered, places, filled(True, dtypes.bool_, updates.shape), None, axis)
        result = where(covered, store(no_candidate(base, code), places, updates, code, axis), base)
    if reduce != "mean":
        return result
    ones = filled(int(include_self), dtypes.int64, base.shape)
    count = store(ones, places, filled(1, dtypes.int64, updates.shape), OpCode.ADD, axis)
    count = maximum(count, 1)
    if base.dtype.is_float:
        return result / cast(count, base.dtype)
    return floordiv(result, cast(count, base.dtype))


def mask_scattered(base: Op, mask: Op, source: Op) -> Op:
    """Returns the elements of `source`, in order, where the mask is true, else `base`; base and mask are broadcast.

    Raises:
      DTypeError: the mask is not bool.
      ShapeError: base and mask do not broadcast.
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_scatter: the mask must be bool, got {mask.dtype} of shape {mask.shape}.")
    shape = broadcast_shapes("masked_scatter", base.shape, mask.shape)
    base = broadcast_to(base, shape)
    if not base.numel:
        return base
    flat, length = (numel(shape),), numel(source.shape)
    chosen = reshape(broadcast_to(mask, shape), flat)
    place = scan(cast(chosen, dtypes.int64), OpCode.ADD, 0) - 1
    place = where(chosen, place, 0)
    site = Site(f"masked_scatter: the mask needs element {{}} of a source of {length} elements.")
    line = reshape(source, (length,))
    if length == 0:  # an element to read if none is selected
        line = pad(line, ((0, 1),))
        site = Site("masked_scatter: the mask asks for elements of an empty source.")
        place = checked(where(chosen, filled(1, dtypes.int64, flat), 0), 1, site)
    else:
        place = checked(place, length, site)
    taken = gather(line, place, 0)
    return where(reshape(chosen, shape), reshape(taken, shape), base)


REDUCTIONS = tuple(CODES)


# ---- an index for every element ----
def scatter(
    self: T,
    dim: int,
    index: Tensor,
    src: Tensor | Scalar | None = None,
    *,
    value: Scalar | None = None,
    reduce: str | None = None,
) -> T:
    """Returns a copy with the elements of `src` stored at positions `index` along `dim`.

    out[index[i][j]][j] = src[i][j] for dim=0. For equal positions the last element is kept.

    Args:
      index:   integers, not longer than src along any axis, nor than self along the others
      src:     a tensor of this dtype, or a number
      value:   the same as a number for src
      reduce:  "add" or "multiply": combine src with self instead of storing it

    Raises:
      ShapeError:    the shapes do not match.
      DTypeError:    index is not an integer tensor, or the dtypes of src and self differ.
      ArgumentError: an unknown reduce, or neither src nor value is given.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor.zeros(3).scatter(0, Tensor([2, 0]), Tensor([1.0, 5.0]))
    Tensor([5., 0., 1.])
    """
    if reduce not in (None, "add", "multiply"):
        raise ArgumentError(f'scatter: reduce must be "add" or "multiply", got {reduce!r}.')
    code = {None: None, "add": OpCode.ADD, "multiply": OpCode.MUL}[reduce]
    given = value if src is None else src
    if given is None:
        raise ArgumentError("scatter: give src, a tensor, or value, a number.")
    return _scattered(self, "scatter", dim, index, given, code)


def scatter_add(self: T, dim: int, index: Tensor, src: Tensor) -> T:
    """Returns a copy with the elements of `src` added at positions `index` along `dim`.

    out[index[i][j]][j] += src[i][j] for dim=0.

    Raises:
      ShapeError:    the shapes do not match.
      DTypeError:    index is not an integer tensor, or the dtypes of src and self differ.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor.zeros(3).scatter_add(0, Tensor([2, 2]), Tensor([1.0, 5.0]))
    Tensor([0., 0., 6.])
    """
    needs_dtype(self, "scatter_add", "src", src)
    return _scattered(self, "scatter_add", dim, index, src, OpCode.ADD)


def _scattered(self: T, function: str, dim: int, index: TensorCore, given: Any, code: OpCode | None) -> T:
    """Combines a tensor or a number, `given`, with self at positions `index` by `code`; None stores it."""
    op, places, axis = _along_index(self, function, dim, index)
    if isinstance(given, TensorCore):
        needs_dtype(self, function, "src", given)
        updates = _cut_to(self, function, given, index)
        device = self.other_device(function, index, given)
    else:
        updates = filled(fitting(function, given, self.dtype), self.dtype, places.shape)
        device = self.other_device(function, index)
    result = scattered_along(op, places, updates, code, axis)
    return self.from_op(reshape(result, self.op.shape), device)


@of_tensors
def scatter_reduce(self: T, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> T:
    """Returns a copy in which all elements of `src` with the same position in `index` are combined there.

    Args:
      index:         integers, not longer than src along any axis, nor than self along the others
      src:           a tensor of this dtype
      reduce:        "sum", "prod", "mean" (rounded down for integers), "amax" or "amin"
      include_self:  combine the element of self, too; else it is replaced if anything is stored there

    Raises:
      ShapeError:    the shapes do not match.
      DTypeError:    index is not an integer tensor, or the dtypes of src and self differ.
      ArgumentError: an unknown reduce.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor([1.0, 1.0]).scatter_reduce(0, Tensor([0, 0]), Tensor([2.0, 6.0]), "mean", include_self=False)
    Tensor([4., 1.])
    """
    check_reduction("scatter_reduce", reduce)
    needs_dtype(self, "scatter_reduce", "src", src)
    op, places, axis = _along_index(self, "scatter_reduce", dim, index)
    updates = _cut_to(self, "scatter_reduce", src, index)
    result = combined(op, places, updates, reduce, include_self, axis, scattered_along)
    return self.from_op(reshape(result, self.op.shape), self.other_device("scatter_reduce", index, src))


def _along_index(self: T, function: str, dim: int, index: TensorCore) -> tuple[Op, Op, int]:
    """Returns (value, positions, axis); numbers become vectors of one element."""
    positions, op = integer_index(function, index), self.read()
    axis = axis_of(function, op.shape, dim)
    if not positions.shape:
        positions = reshape(positions, (1,))
    op = reshape(op, op.shape or (1,))
    fits = len(positions.shape) == len(op.shape) and all(
        a == axis or n == m or (isinstance(n, int) and isinstance(m, int) and n <= m)
        for a, (n, m) in enumerate(zip(positions.shape, op.shape))
    )
    if not fits and positions.numel:
        raise ShapeError(f"{function}: index of shape {index.shape} does not fit {self.shape} along dim {dim}.")
    if not positions.numel:
        return op, positions, axis
    return op, along_axis(function, positions, op.shape, axis), axis


def _cut_to(self: T, function: str, src: TensorCore, index: TensorCore) -> Op:
    """Returns the part of `src` whose elements have an index."""
    op, shape = src.read(), index.op.shape or (1,)
    op = reshape(op, op.shape or (1,))
    if 0 in shape:
        return reshape(shrink(reshape(op, (numel(op.shape),)), ((0, 0),)), shape)
    if len(op.shape) != len(shape) or any(n != m and not n < m for n, m in zip(shape, op.shape)):
        raise ShapeError(f"{function}: index of shape {index.shape} is larger than src of shape {src.shape}.")
    return shrink(op, tuple((0, n) for n in shape))


def of_slices(self: T, function: str, op: Op, *others: Tensor) -> T:
    return self.from_op(reshape(op, self.op.shape), self.other_device(function, *others))


# ---- of the flattened tensor ----
def put(self: T, index: Tensor, source: Tensor, accumulate: bool = False) -> T:
    """Returns a copy with `source` stored at positions `index` of the flattened tensor.

    Args:
      index:       integers; negative ones count from the end
      source:      a tensor of this dtype with one element per index
      accumulate:  add to the present elements

    Raises:
      ShapeError: source and index differ in their number of elements.
      DTypeError: index is not an integer tensor, or the dtypes of source and self differ.

    >>> Tensor([[1, 2], [3, 4]]).put(Tensor([1, -1]), Tensor([8, 9])).tolist()
    [[1, 8], [3, 9]]
    """
    needs_dtype(self, "put", "source", source)
    places, flat = integer_index("put", index), (numel(self.op.shape),)
    if numel(places.shape) != numel(source.op.shape):
        raise ShapeError(f"put: source {source.shape} and index {index.shape} must have the same number of elements.")
    line = (numel(places.shape),)
    chosen = reshape(index_op(self, "put", index, flat, 0), line)
    code = OpCode.ADD if accumulate else None
    result = scatter_op(reshape(self.read(), flat), chosen, reshape(source.read(), line), code, 0, 0)
    return of_slices(self, "put", result, index, source)


def masked_scatter(self: T, mask: Tensor, source: Tensor) -> T:
    """Returns a copy with the elements of `source`, in order, where the mask is true; self and mask are broadcast.

    Raises:
      DTypeError:    the mask is not bool, or the dtypes of source and self differ.
      IndexingError: when the result is computed: the source has fewer elements than the mask selects.

    >>> Tensor([1, 2, 3]).masked_scatter(Tensor([True, False, True]), Tensor([8, 9]))
    Tensor([8, 2, 9])
    """
    needs_dtype(self, "masked_scatter", "source", source)
    op = mask_scattered(self.read(), mask.read(), source.read())
    return self.from_op(op, self.other_device("masked_scatter", mask, source))


def check_reduction(function: str, reduce: str, known: Sequence[str] = REDUCTIONS) -> None:
    """Raises ArgumentError unless `reduce` is one of the allowed words."""
    check_one_of(function, "reduce", reduce, known)


# ---- an index for every slice ----
WITHOUT_SUMS = tuple(name for name in CODES if name != "sum")  # index_add does the sum


def index_add(self: T, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1) -> T:
    """Returns a copy with alpha * source[i] added to slice index[i] along one axis, for each i.

    Args:
      index:   a vector of integers
      source:  a tensor of this dtype and of self's shape, except that `dim` is as long as index
      alpha:   a number

    Raises:
      ShapeError:    the shape of source does not match.
      DTypeError:    index is not an integer tensor, or the dtypes of source and self differ.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor([1, 1, 1]).index_add(0, Tensor([0, 0]), Tensor([5, 6]))
    Tensor([12,  1,  1])
    """
    op, places, updates, axis = _slices(self, "index_add", dim, index, source)
    if alpha != 1:
        updates = updates * fitting("index_add", alpha, self.dtype)
    return of_slices(self, "index_add", scatter_op(op, places, updates, OpCode.ADD, axis, 0), index, source)


def index_copy(self: T, dim: int, index: Tensor, source: Tensor) -> T:
    """Returns a copy with source[i] stored as slice index[i] along one axis, for each i; the last of equal indices is kept.

    Raises:
      ShapeError:    source does not have self's shape, except that `dim` is as long as index.
      DTypeError:    index is not an integer tensor, or the dtypes of source and self differ.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor([1, 1, 1]).index_copy(0, Tensor([0, 2]), Tensor([5, 6]))
    Tensor([5, 1, 6])
    """
    op, places, updates, axis = _slices(self, "index_copy", dim, index, source)
    return of_slices(self, "index_copy", scatter_op(op, places, updates, None, axis, 0), index, source)


def index_reduce(self: T, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> T:
    """Returns a copy in which all slices source[i] with the same index[i] are combined at that position along one axis.

    Args:
      index:         a vector of integers
      source:        a tensor of this dtype and of self's shape, except that `dim` is as long as index
      reduce:        "prod", "mean" (rounded down for integers), "amax" or "amin"
      include_self:  combine the slice of self, too; else it is replaced if anything is stored there

    Raises:
      ShapeError:    the shape of source does not match.
      DTypeError:    index is not an integer tensor, or the dtypes of source and self differ.
      ArgumentError: an unknown reduce.
      IndexingError: when the result is computed: an index is outside [0, length of the axis).

    >>> Tensor([4.0, 1.0]).index_reduce(0, Tensor([0, 0]), Tensor([5.0, 6.0]), "mean")
    Tensor([5., 1.])
    """
    check_reduction("index_reduce", reduce, WITHOUT_SUMS)
    op, places, updates, axis = _slices(self, "index_reduce", dim, index, source)
    result = combined(op, places, updates, reduce, include_self, axis, _scattered_slices)
    return of_slices(self, "index_reduce", result, index, source)


def index_fill(self: T, dim: int, index: Tensor, value: Tensor | Scalar) -> T:
    """Returns a copy with the number `value` in all slices along one axis with the indices in `index`.

    Args:
      index:  a vector of integers; negative ones count from the end
      value:  a number, or a 0-d tensor, on any device

    Raises:
      ShapeError:    index has several axes, or value is not 0-d.
      DTypeError:    index is not an integer tensor.
      IndexingError: when the result is computed: an index is outside the axis.

    >>> Tensor([1, 1, 1]).index_fill(0, Tensor([0, -1]), 7)
    Tensor([7, 1, 7])
    """
    line = _vector("index_fill", index)
    op = self.read()
    axis = axis_of("index_fill", op.shape, dim)
    op = reshape(op, op.shape or (1,))
    device = self.other_device("index_fill", index)
    places = index_op(self, "index_fill", type(self).from_op(line, index.cell.device), op.shape, axis)
    shape = (*op.shape[:axis], *line.shape, *op.shape[axis + 1 :])
    if isinstance(value, TensorCore):
        if value.ndim:
            raise ShapeError(f"index_fill: value must be one number, got shape {value.shape}.")
        device = device or value.cell.device
        updates = broadcast_to(cast(value_at(value, device), self.dtype), shape)
    else:
        updates = filled(fitting("index_fill", value, self.dtype), self.dtype, shape)
    return self.from_op(reshape(scatter_op(op, places, updates, None, axis, 0), self.op.shape), device)


def _slices(self: T, function: str, dim: int, index: TensorCore, source: TensorCore) -> tuple[Op, Op, Op, int]:
    """Returns (value, positions, updates, axis); numbers become vectors of one element."""
    needs_dtype(self, function, "source", source)
    line = _vector(function, index)
    op = self.read()
    axis = axis_of(function, op.shape, dim)
    op, updates = reshape(op, op.shape or (1,)), source.read()
    wanted = (*op.shape[:axis], *line.shape, *op.shape[axis + 1 :])
    if updates.shape != wanted and (updates.shape or (1,)) != wanted:
        raise ShapeError(f"{function}: source of shape {source.shape} must be {wanted}: {self.shape} at {index.shape}.")
    return op, along_axis(function, line, op.shape, axis), reshape(updates, wanted), axis


def _vector(function: str, index: TensorCore) -> Op:
    """Returns an index of at most one axis as a vector."""
    op = integer_index(function, index)
    if len(op.shape) > 1:
        raise ShapeError(f"{function}: index must have one axis, got {index.shape}.")
    return reshape(op, op.shape or (1,))


def _scattered_slices(base: Op, places: Op, updates: Op, code: OpCode | None, axis: int) -> Op:
    return scatter_op(base, places, updates, code, axis, 0)


# ---- masks ----
def masked_select(self: T, mask: Tensor) -> T:
    """Returns the elements for which the mask is true, in one axis; computes the mask.

    >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True]))
    Tensor([1, 3])
    """
    for tensor in (self, mask):
        for axis in range(tensor.ndim):
            known("masked_select", tensor.shape, axis)
    shape = broadcast_shapes("masked_select", self.op.shape, mask.op.shape)
    if shape and self.op.shape == mask.op.shape and trace.get() is None:
        return self[mask]
    whole_mask = type(self).from_op(broadcast_to(mask.read(), shape), mask.cell.device)
    if trace.get() is not None:
        whole_mask._host("masked_select")  # raises an error: the number of elements depends on values
    return self.expand(shape).reshape(-1)[whole_mask.reshape(-1)]


def masked_fill_(self: T, mask: Tensor, value: Operand) -> T:
    """Stores `value` where the mask is true; the mask broadcasts to self.

    Raises:
      ShapeError: the mask does not broadcast to this shape.

    >>> Tensor([1, 2]).masked_fill_(Tensor([True, False]), 0)
    Tensor([0, 2])
    """
    result = self.masked_fill(mask, value)
    if result.op.shape != self.op.shape:
        raise ShapeError(f"masked_fill_: a mask of shape {mask.shape} does not broadcast to {self.shape}.")
    return stored("masked_fill_", self, result)


def nonzero(self: T, *, as_tuple: bool = False) -> Any:
    """Returns the positions (n, ndim) of the nonzero elements, int64; computes the tensor.

    Args:
      as_tuple: return one vector of positions per axis, as x[...] takes them

    >>> Tensor([0, 5, 7]).nonzero()
    Tensor([[1],
            [2]])
    >>> Tensor([0, 5, 7]).nonzero(as_tuple=True)
    (Tensor([1, 2]),)
    """
    found = self._host("nonzero")
    if as_tuple:
        return tuple(type(self)(axis.astype(np.int64), device=self.device) for axis in np.atleast_1d(found).nonzero())
    return type(self)(np.argwhere(found).astype(np.int64), dtypes.int64, self.device)


@of_tensors
def nonzero_static(self: T, *, size: int, fill_value: int = -1) -> T:
    """Returns the positions (size, ndim) of the first `size` nonzero elements, int64, then rows of `fill_value`.

    The shape does not depend on values, so the tensor is computed only when it is read, and jitted functions may call it.

    Raises:
      ArgumentError: size is negative.

    >>> Tensor([0, 5, 7]).nonzero_static(size=3).tolist()
    [[1], [2], [-1]]
    """
    size, shape = at_least("nonzero_static", "size", size, 0), self.shape
    counts = self.flatten().ne(0).cumsum(0)
    place = counts.searchsorted(type(self).arange(1, size + 1, device=self.device))  # first position with that count
    axes = [place // max(1, prod(shape[axis + 1 :])) % max(1, dim) for axis, dim in enumerate(shape)]
    rows = type(self).stack(axes, 1) if axes else place.new_empty((size, 0))
    return rows.masked_fill(place.eq(self.numel()).unsqueeze(1), fill_value)


def argwhere(self: T) -> T:
    """Returns the positions (n, ndim) of the nonzero elements, int64; computes the tensor.

    >>> Tensor([[0, 5], [7, 0]]).argwhere().tolist()
    [[0, 1], [1, 0]]
    """
    return nonzero(self)


# ---- classes ----
def one_hot(self: T, num_classes: int = -1) -> T:
    """Returns int64 rows with a 1 at the class: shape (..., num_classes).

    Without num_classes the tensor is computed, to find the largest class.

    Raises:
      DTypeError:    the classes are not integers.
      ArgumentError: the tensor is empty and num_classes is not given.
      IndexingError: when the result is computed: a class is outside [0, num_classes).

    >>> Tensor([0, 2]).one_hot(3)
    Tensor([[1, 0, 0],
            [0, 0, 1]])
    """
    op = integer_index("one_hot", self)
    num_classes = whole("one_hot", "num_classes", num_classes)
    if num_classes < 0:
        found = self._host("one_hot")
        if not found.size:
            raise ArgumentError(f"one_hot: an empty tensor of shape {self.shape} has no classes; give num_classes.")
        num_classes = max(int(found.max()) + 1, 1)
    hint = f"classes are 0 .. {num_classes - 1}."
    op = checked(op, num_classes, Site(f"one_hot: class {{}} is not one of the {num_classes} classes.", hint))
    return self.from_op(cast(same_as_iota(op, (*op.shape, num_classes)), dtypes.int64), self.cell.device)


# ---- repetition ----
def repeat_interleave(
    self: T, repeats: int | Tensor | None = None, dim: int | None = None, *, output_size: int | None = None
) -> T:
    """Returns each element repeated `repeats` times, along one axis or along the flattened tensor.

    Args:
      repeats:      a number, or a vector with a number per position of the axis, which is computed. None: self is that
                    vector, and its positions are repeated
      output_size:  the sum of `repeats`, so that it need not be computed

    Raises:
      ShapeError:    repeats has several axes, or not one element per position.
      ArgumentError: a number of repeats is negative; when the result is computed: their sum is not output_size.

    >>> Tensor([1, 2]).repeat_interleave(2)
    Tensor([1, 1, 2, 2])
    >>> Tensor([1, 2]).repeat_interleave(Tensor([3, 1]))
    Tensor([1, 1, 1, 2])
    >>> Tensor([3, 1]).repeat_interleave()
    Tensor([0, 0, 0, 1])
    """
    if repeats is None:
        if self.ndim != 1:
            raise ShapeError(f"repeat_interleave: counts must be a vector, got shape {self.shape}.")
        places = self.from_op(iota(known("repeat_interleave", self.shape, 0)), self.cell.device)
        return _repeated(places, self, 0, output_size)
    if dim is None:
        return repeat_interleave(self.flatten(), repeats, 0, output_size=output_size)
    shape = self.shape
    axis = axis_of("repeat_interleave", shape, dim)
    if isinstance(repeats, TensorCore):
        return _repeated(self, repeats, axis, output_size)
    repeats = at_least("repeat_interleave", "repeats", repeats, 0)
    view = self.unsqueeze(axis + 1).expand(*shape[: axis + 1], repeats, *shape[axis + 1 :])
    return view.reshape(*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]).clone()


def _repeated(self: T, repeats: TensorCore, axis: int, total: int | None) -> T:
    """Returns each slice of an axis as often as its element of `repeats` says.

    Each slice except the first marks its start; the running sum of the marks is the index of a position's slice.
    """
    length = known("repeat_interleave", self.shape, axis)
    times = cast(integer_index("repeat_interleave", repeats), dtypes.int64)
    if times.shape not in ((), (1,), (length,)):
        raise ShapeError(f"repeat_interleave: repeats of shape {repeats.shape} must be ({length},), the axis {axis}.")
    if total is None:
        counts = repeats._host("repeat_interleave")
        if (counts < 0).any():
            raise ArgumentError(f"repeat_interleave: repeats must not be negative, got {counts.min()}.")
        total = int(counts.sum()) * (1 if times.shape == (length,) else length)
    total = at_least("repeat_interleave", "output_size", total, 0)
    times = broadcast_to(reshape(times, times.shape or (1,)), (length,))
    device = self.other_device("repeat_interleave", repeats)
    if not total or not length:
        empty = tuple((0, 0 if a == axis else dim) for a, dim in enumerate(self.op.shape))
        return self.from_op(shrink(self.read(), empty), device)
    fact = f"repeat_interleave: repeats must not be negative, and add up to {total}, the output_size."
    least, count = (reduce_op(times, code, (0,)) for code in (OpCode.MIN, OpCode.ADD))
    holds = both(less_equal(0, least), equal(count, total))
    begins = shrink(scan(times, OpCode.ADD, 0), ((0, length - 1),))
    marks = scatter_op(filled(0, dtypes.int64, (total,)), begins, filled(1, dtypes.int64, (length - 1,)), OpCode.ADD, 0, 0)
    return self.from_op(gather(self.read(), scan(guarded(marks, holds, fact), OpCode.ADD, 0), axis, 0), device)


# ---- twins in place, and other names ----
scatter_, scatter_add_ = in_place(scatter), in_place(scatter_add)
scatter_reduce_, put_ = in_place(scatter_reduce), in_place(put)
masked_scatter_, index_add_ = in_place(masked_scatter), in_place(index_add)
index_copy_, index_reduce_ = in_place(index_copy), in_place(index_reduce)
index_fill_ = in_place(index_fill)
