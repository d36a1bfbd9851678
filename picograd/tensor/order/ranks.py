"""Elements by their rank along an axis: k-th value, median, mode, quantiles.

In:    tensors
Out:   `kthvalue`, `median`, `mode`, `quantile` ...: methods of Tensor
Next:  picograd/tensor/order/searching.py

All of them sort: n log n; for the k-th of few, n log k.
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import (
    both,
    compare,
    either,
    pad_axis,
    positions,
    reduce,
    reshape,
    scan,
    shrink_axis,
    where,
)
from picograd.ir.checks import Site, checked
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import axis_of, broadcast_to, cast, detached, need_float, one_name, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.elements import pointwise
from picograd.tensor.indexing.brackets import along, needs_dtype
from picograd.tensor.order.sorting import SortResult, argsort, first_in_order, sort
from picograd.tensor.variable import known

__all__ = ["kthvalue", "median", "mode", "nanmedian", "nanquantile", "quantile"]


INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def kthvalue(self: T, k: int, dim: int = -1, keepdim: bool = False, *, axis: int | None = None) -> SortResult:
    """Returns the k-th smallest element along `dim`, and where it stands; `k` counts from 1.

    Raises:
      ArgumentError: k is not from 1 to the length of the axis.

    >>> Tensor([3, 1, 2]).kthvalue(2)
    SortResult(values=Tensor(2), indices=Tensor(2))
    """
    dim = one_name("kthvalue", dim, axis, -1)
    length = known("kthvalue", self.shape, axis_of("kthvalue", self.op.shape, dim)) if self.ndim else 1
    if not 1 <= whole("kthvalue", "k", k) <= length:
        raise ArgumentError(f"kthvalue: k must be from 1 to {length}, the axis {dim} of {self.shape}, got {k}.")
    line = _row(self, "kthvalue", dim)
    return _at_rank(line, first_in_order(line, k, False).narrow(-1, k - 1, 1), dim, keepdim, self.ndim)


def median(self: T, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None) -> Any:
    """Returns the median of all elements; along one axis also where it stands. Of an even number the lower one.

    NaN where there is a NaN. Of all elements, those equal to the median share its gradient.

    Raises:
      ShapeError: the axis has no element.

    >>> Tensor([3.0, 1.0, 2.0, 4.0]).median()
    Tensor(2.)
    >>> Tensor([[3, 1, 2]]).median(1)
    SortResult(values=Tensor([2]), indices=Tensor([2]))
    """
    return _median(self, "median", one_name("median", dim, axis), keepdim, skips_nan=False)


def nanmedian(self: T, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None) -> Any:
    """Returns the median of all elements that are no NaN; along one axis also where it stands.

    Raises:
      ShapeError: the axis has no element.

    >>> Tensor([3.0, float("nan"), 2.0, 1.0]).nanmedian()
    Tensor(2.)
    """
    return _median(self, "nanmedian", one_name("nanmedian", dim, axis), keepdim, skips_nan=True)


def _median(self: T, function: str, dim: int | None, keepdim: bool, skips_nan: bool) -> Any:
    """Returns the median of all elements, or along an axis with its place: of an even count the lower of both."""
    if dim is None:
        flat = self.flatten()
        if not flat.shape[0]:
            if not self.dtype.is_float:
                raise ShapeError(f"{function}: shape {self.shape} has no element.")
            return self.from_op(filled(float("nan"), self.dtype, ()), self.cell.device)
        found = _median(flat.detach(), function, 0, False, skips_nan).values
        return self.from_op(_shared_by_equals(flat.read(), found.op), self.cell.device)
    line = _row(self, function, dim)
    length, order, op = line.shape[-1], argsort(line, -1), detached(line.read())
    if not length:
        raise ShapeError(f"{function}: shape {self.shape} has no element along axis {dim}.")
    rank = filled((length - 1) // 2, dtypes.int64, (*op.shape[:-1], 1))
    if op.dtype.is_float:
        axis = len(op.shape) - 1
        count = reduce(cast(pointwise.is_nan(op), dtypes.int64), OpCode.ADD, (axis,), keepdim=True)
        if skips_nan:
            rank = Op(OpCode.MAX, dtypes.int64, (rank.filled(length - 1) - count, rank.filled(0)))
            rank = Op(OpCode.IDIV, dtypes.int64, (rank, rank.filled(2)))
        else:  # the first NaN stands behind all numbers
            rank = where(compare(OpCode.CMPLT, 0, count), rank.filled(length) - count, rank)
    places = order.take_along_dim(self.from_op(rank, self.cell.device), -1)
    return _at_rank(line, places, dim, keepdim, self.ndim)


def mode(self: T, dim: int = -1, keepdim: bool = False, *, axis: int | None = None) -> SortResult:
    """Returns the element found most often along `dim`, the smallest of several, and where it stands last.

    Raises:
      ShapeError: the axis has no element.

    >>> Tensor([3, 1, 1, 3, 2]).mode()
    SortResult(values=Tensor(1), indices=Tensor(2))
    """
    dim = one_name("mode", dim, axis, -1)
    line = _row(self, "mode", dim)
    if not line.shape[-1]:
        raise ShapeError(f"mode: shape {self.shape} has no element along axis {dim}.")
    order = argsort(line, -1)
    ordered = line.detach().take_along_dim(order, -1)
    runs = self.from_op(_place_in_run(ordered.read()), self.cell.device)
    places = order.take_along_dim(runs.argmax(-1, keepdim=True), -1)
    return _at_rank(line, places, dim, keepdim, self.ndim)


def _row(self: T, function: str, dim: int) -> T:
    """Returns the tensor with one axis moved behind the others; a number as a vector."""
    axis = axis_of(function, self.op.shape, dim)
    if not self.ndim:
        return self.reshape(1)
    known(function, self.shape, axis)
    return self.movedim(axis, -1)


def _at_rank(self: T, places: T, dim: int, keepdim: bool, ndim: int) -> SortResult:
    """Returns the elements of rows at `places` (..., 1), with the last axis moved back or dropped."""
    values = self.take_along_dim(places, -1)
    if not ndim:
        return SortResult(values.reshape(()), places.reshape(()))
    values, places = values.movedim(-1, dim), places.movedim(-1, dim)
    return SortResult(values, places) if keepdim else SortResult(values.squeeze(dim), places.squeeze(dim))


# ---- quantiles ----
def quantile(
    self: T,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    axis: int | None = None,
) -> T:
    """Returns the value below which a fraction `q` of the elements lies, between neighbours by `interpolation`.

    The rank q * (n - 1) is rounded down for i; out = x[i] + (rank - i) * (x[i + 1] - x[i]), x in order.

    Args:
      q:              from 0 to 1: a number, or a vector of this dtype, whose axis comes first in the result
      interpolation:  "linear", "lower", "higher", "midpoint" or "nearest"

    Raises:
      ArgumentError: another word, or a number outside 0 to 1.
      DTypeError:    self is no float, or q of another dtype.
      ShapeError:    there is no element, or q has several axes.
      IndexingError: when it is computed: an element of q is outside 0 to 1.

    >>> Tensor([3.0, 1.0, 2.0, 4.0]).quantile(0.5)
    Tensor(2.5)
    """
    return _quantile(self, "quantile", q, one_name("quantile", dim, axis), keepdim, interpolation, False)


def nanquantile(
    self: T,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    axis: int | None = None,
) -> T:
    """Returns the value below which a fraction `q` of the elements lies that are no NaN.

    Args:
      q:              from 0 to 1: a number, or a vector of this dtype, whose axis comes first in the result
      interpolation:  "linear", "lower", "higher", "midpoint" or "nearest"

    Raises:
      ArgumentError: another word, or a number outside 0 to 1.
      DTypeError:    self is no float, or q of another dtype.
      ShapeError:    there is no element, or q has several axes.
      IndexingError: when it is computed: an element of q is outside 0 to 1.

    >>> Tensor([3.0, float("nan"), 2.0]).nanquantile(0.5)
    Tensor(2.5)
    """
    return _quantile(self, "nanquantile", q, one_name("nanquantile", dim, axis), keepdim, interpolation, True)


def _quantile(self: T, function: str, q: Any, dim: int | None, keepdim: bool, interpolation: str, skips_nan: bool) -> T:
    """Returns the quantiles `q`: a vector of them is a new first axis."""
    if interpolation not in INTERPOLATIONS:
        words = ", ".join(INTERPOLATIONS)
        raise ArgumentError(f"{function}: interpolation must be one of {words}, got {interpolation!r}.")
    need_float(function, self.op)
    if 0 in [known(function, self.shape, a) for a in range(self.ndim)]:
        raise ShapeError(f"{function}: shape {self.shape} has no element.")
    fractions, device = _fractions(self, function, q), self.cell.device
    line = self.flatten() if dim is None else _row(self, function, dim)
    ordered = sort(line, -1).values.read()
    rank = _ranks(ordered, fractions, skips_nan)
    found = self.from_op(_between(ordered, rank, interpolation), device)  # (..., Q)
    rest = found.shape[:-1]
    if keepdim:
        axis = axis_of(function, self.shape, dim) if dim is not None else 0
        rest = (1,) * self.ndim if dim is None else (*rest[:axis], 1, *rest[axis:]) if self.ndim else ()
    found = found.movedim(-1, 0)
    is_vector = isinstance(q, TensorCore) and q.ndim
    return found.reshape(*found.shape[:1], *rest) if is_vector else found.reshape(rest)


def _fractions(self: T, function: str, q: Any) -> Op:
    """Returns q as a vector; an IndexingError ends the run where it is outside 0 to 1."""
    if not isinstance(q, TensorCore):
        if not isinstance(q, (int, float)) or not 0 <= q <= 1:
            raise ArgumentError(f"{function}: q must be a number from 0 to 1, got {q!r}.")
        return filled(q, self.dtype, (1,))
    needs_dtype(self, function, "q", q)
    if q.ndim > 1:
        raise ShapeError(f"{function}: q must be a number or a vector, got shape {q.shape}.")
    self.other_device(function, q)
    op = reshape(q.read(), q.op.shape or (1,))
    inside = both(compare(OpCode.CMPLE, 0, op), compare(OpCode.CMPLE, op, 1))
    wrong = where(inside, filled(0, dtypes.int64, op.shape), 1)
    passed = checked(wrong, 1, Site(f"{function}: an element of q is not from 0 to 1."))
    return where(compare(OpCode.CMPEQ, passed, 0), op, 0)


# ---- on Ops ----
def _shared_by_equals(op: Op, value: Op) -> Op:
    """Returns `value`, an element of the vector `op`, as the maximum of all that equal it: they share its gradient."""
    wanted = broadcast_to(value, op.shape)
    chosen = compare(OpCode.CMPEQ, op, wanted)
    if op.dtype.is_float:
        chosen = either(chosen, both(pointwise.is_nan(op), pointwise.is_nan(wanted)))
    return reduce(where(chosen, op, op.dtype.min), OpCode.MAX, (0,))


def starts_run(ordered: Op) -> Op:
    """Returns, along the last axis, whether an element differs from the one before it."""
    last, length = len(ordered.shape) - 1, ordered.shape[-1]
    differs = compare(OpCode.CMPNE, shrink_axis(ordered, last, 1, length), shrink_axis(ordered, last, 0, length - 1))
    first = compare(OpCode.CMPEQ, positions(ordered.shape, last), 0)
    return either(first, pad_axis(differs, last, 1, 0))


def _place_in_run(ordered: Op) -> Op:
    """Returns, along the last axis, how many equal elements come directly before each."""
    axis = len(ordered.shape) - 1
    place = positions(ordered.shape, axis)
    return place - scan(where(starts_run(ordered), place, 0), OpCode.MAX, axis)


def _ranks(ordered: Op, fractions: Op, skips_nan: bool) -> Op:
    """Returns the rank (..., Q), a float, of each fraction in rows (..., N) in order; of a row with NaN the last."""
    axis, length, wide = len(ordered.shape) - 1, ordered.shape[-1], ordered.dtype.compute_dtype
    assert isinstance(length, int)
    shape = (*ordered.shape[:-1], *fractions.shape)
    nans = reduce(cast(pointwise.is_nan(ordered), dtypes.int64), OpCode.ADD, (axis,), keepdim=True)
    part = broadcast_to(cast(fractions, wide), shape)
    last = nans.filled(length - 1)
    if skips_nan:
        count = Op(OpCode.MAX, dtypes.int64, (last - nans, last.filled(0)))
        return part * broadcast_to(cast(count, wide), shape)
    rank = part * float(length - 1)
    has_nan = broadcast_to(compare(OpCode.CMPLT, 0, nans), shape)
    return where(has_nan, rank.filled(length - 1), rank)


def _between(ordered: Op, rank: Op, interpolation: str) -> Op:
    """Returns the values at ranks that lie between those of elements."""
    axis = len(ordered.shape) - 1
    if interpolation == "nearest":
        rank = pointwise.round_even(rank)
    below = pointwise.ceil(rank) if interpolation == "higher" else pointwise.floor(rank)
    low = _taken(ordered, below, axis)
    if interpolation in ("lower", "higher", "nearest"):
        return low
    weight = rank - below
    if interpolation == "midpoint":
        weight = where(compare(OpCode.CMPLT, 0, weight), weight.filled(0.5), weight)
    high = _taken(ordered, pointwise.ceil(rank), axis)
    return low + cast(weight, low.dtype) * (high - low)


def _taken(ordered: Op, rank: Op, axis: int) -> Op:
    return along(ordered, cast(rank, dtypes.int64), axis)
