"""Writing by an index for every element: scatter and its reductions, put, masked_scatter.

In:    tensors
Out:   `scatter`, `scatter_add`, `scatter_reduce`, `put`, `masked_scatter`, and with a last _ in place: methods of Tensor
Next:  picograd/tensor/indexing/slices.py

Each has a form that returns a new tensor and one that writes in place, with a _ at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from picograd.dtype import Scalar
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import reshape, shrink
from picograd.ir.build import scatter as scatter_op
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.tensor.build import axis_of
from picograd.tensor.core import T, TensorCore
from picograd.tensor.exchange.host import fitting
from picograd.tensor.indexing.brackets import along_axis, index_op, integer_index, needs_dtype
from picograd.tensor.indexing.combining import CODES, combined, mask_scattered, scattered_along
from picograd.tensor.inplace import in_place

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["masked_scatter", "put", "scatter", "scatter_add", "scatter_reduce"]


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
    """Returns a copy in which each element of `src` stands at the place along `dim` that `index` says.

    out[index[i][j]][j] = src[i][j] for dim=0. Of equal places the last wins.

    Args:
      index:   integers, not longer than src, nor than self along the other axes
      src:     a tensor of this dtype, or a number
      value:   the number, by its name
      reduce:  "add" or "multiply": combines what is there with src, instead of storing it

    Raises:
      ShapeError:    the shapes do not fit.
      DTypeError:    index is no integer tensor, or src is of another dtype.
      ArgumentError: another word, or neither src nor value is given.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

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


scatter_ = in_place(scatter)


def scatter_add(self: T, dim: int, index: Tensor, src: Tensor) -> T:
    """Returns a copy to which each element of `src` is added at the place along `dim` that `index` says.

    out[index[i][j]][j] += src[i][j] for dim=0.

    Raises:
      ShapeError:    the shapes do not fit.
      DTypeError:    index is no integer tensor, or src is of another dtype.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

    >>> Tensor.zeros(3).scatter_add(0, Tensor([2, 2]), Tensor([1.0, 5.0]))
    Tensor([0., 0., 6.])
    """
    needs_dtype(self, "scatter_add", "src", src)
    return _scattered(self, "scatter_add", dim, index, src, OpCode.ADD)


scatter_add_ = in_place(scatter_add)


def _scattered(self: T, function: str, dim: int, index: TensorCore, given: Any, code: OpCode | None) -> T:
    """Returns self with a tensor or a number, `given`, combined in by `code` where `index` says; None stores it."""
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


def scatter_reduce(self: T, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> T:
    """Returns a copy in which all elements of `src` that `index` sends to one place are combined there.

    Args:
      index:         integers, not longer than src, nor than self along the other axes
      src:           a tensor of this dtype
      reduce:        "sum", "prod", "mean" (of integers rounded down), "amax" or "amin"
      include_self:  what is there is combined, too; else it goes where anything comes

    Raises:
      ShapeError:    the shapes do not fit.
      DTypeError:    index is no integer tensor, or src is of another dtype.
      ArgumentError: another word.
      IndexingError: when it is computed: an index is negative or not below the length of the axis.

    >>> Tensor([1.0, 1.0]).scatter_reduce(0, Tensor([0, 0]), Tensor([2.0, 6.0]), "mean", include_self=False)
    Tensor([4., 1.])
    """
    check_reduction("scatter_reduce", reduce)
    needs_dtype(self, "scatter_reduce", "src", src)
    op, places, axis = _along_index(self, "scatter_reduce", dim, index)
    updates = _cut_to(self, "scatter_reduce", src, index)
    result = combined(op, places, updates, reduce, include_self, axis, scattered_along)
    return self.from_op(reshape(result, self.op.shape), self.other_device("scatter_reduce", index, src))


scatter_reduce_ = in_place(scatter_reduce)


def _along_index(self: T, function: str, dim: int, index: TensorCore) -> tuple[Op, Op, int]:
    """Returns (value, places, axis), numbers as vectors of one element."""
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
    """Returns the part of `src` that has an index."""
    op, shape = src.read(), index.op.shape or (1,)
    op = reshape(op, op.shape or (1,))
    if len(op.shape) != len(shape) or any(n != m and not n < m for n, m in zip(shape, op.shape)):
        raise ShapeError(f"{function}: index of shape {index.shape} is larger than src of shape {src.shape}.")
    return shrink(op, tuple((0, n) for n in shape))


def of_slices(self: T, function: str, op: Op, *others: Tensor) -> T:
    return self.from_op(reshape(op, self.op.shape), self.other_device(function, *others))


# ---- of the flattened tensor ----
def put(self: T, index: Tensor, source: Tensor, accumulate: bool = False) -> T:
    """Returns a copy with `source` at the places `index` of the flattened tensor.

    Args:
      index:       integers; negative ones count from the end
      source:      a tensor of this dtype with as many elements
      accumulate:  add to what is there

    Raises:
      ShapeError: source has not as many elements as index.
      DTypeError: index is no integer tensor, or source of another dtype.

    >>> Tensor([[1, 2], [3, 4]]).put(Tensor([1, -1]), Tensor([8, 9])).tolist()
    [[1, 8], [3, 9]]
    """
    needs_dtype(self, "put", "source", source)
    places, flat = integer_index("put", index), (numel(self.op.shape),)
    if numel(places.shape) != numel(source.op.shape):
        raise ShapeError(f"put: source of shape {source.shape} has not as many elements as index {index.shape}.")
    line = (numel(places.shape),)
    chosen = reshape(index_op(self, "put", index, flat, 0), line)
    code = OpCode.ADD if accumulate else None
    result = scatter_op(reshape(self.read(), flat), chosen, reshape(source.read(), line), code, 0, 0)
    return of_slices(self, "put", result, index, source)


put_ = in_place(put)


def masked_scatter(self: T, mask: Tensor, source: Tensor) -> T:
    """Returns a copy with the elements of `source`, in order, where the mask holds; self and mask are broadcast.

    Raises:
      DTypeError:    the mask is not bool, or source of another dtype.
      IndexingError: when it is computed: the source has fewer elements than the mask places.

    >>> Tensor([1, 2, 3]).masked_scatter(Tensor([True, False, True]), Tensor([8, 9]))
    Tensor([8, 2, 9])
    """
    needs_dtype(self, "masked_scatter", "source", source)
    op = mask_scattered(self.read(), mask.read(), source.read())
    return self.from_op(op, self.other_device("masked_scatter", mask, source))


masked_scatter_ = in_place(masked_scatter)


def check_reduction(function: str, reduce: str, known: Sequence[str] = REDUCTIONS) -> None:
    """Raises unless `reduce` is one of the words known."""
    if reduce not in known:
        raise ArgumentError(f"{function}: reduce must be one of {', '.join(known)}, got {reduce!r}.")
