"""Order: sorts, ranks, searches, sets.

Selecting a rank or a few first elements costs less than a sort, since other elements are not ordered. A search halves its
range at each step: log2(n) reads per value. Sets are found by sorting, which makes equal values neighbours; only their
number is read on the host.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

import numpy as np

from picograd import dtype as dtypes
from picograd.engine.host_memory import is_small, value_on_host
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import argsort as argsort_op
from picograd.ir.build import (
    both,
    cast,
    differs,
    either,
    equal,
    floordiv,
    gather,
    iota,
    joined,
    less,
    less_equal,
    maximum,
    minimum,
    pad,
    pad_axis,
    positions,
    reduce,
    reshape,
    scan,
    scatter,
    shrink,
    shrink_axis,
    where,
)
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import add
from picograd.tensor import pointwise
from picograd.tensor.arguments import check_one_of
from picograd.tensor.build import axis_of, broadcast_to, detached, guarded, need_float, one_name, whole
from picograd.tensor.cell import trace
from picograd.tensor.compute import compute_together, settle_choice
from picograd.tensor.core import T, TensorCore
from picograd.tensor.formulas import formula, of_tensors
from picograd.tensor.indexing import along, needs_dtype
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = [
    "argsort", "kthvalue", "median", "mode", "msort", "nanmedian", "nanquantile", "quantile",
    "searchsorted", "sort", "topk", "unique", "unique_consecutive",
]  # fmt: skip


# ---- places in rows that are in order ----
@formula
def lower_bound(ordered: Op, values: Op, length: int, right: bool) -> Op:
    """Returns the number of elements of a sorted row (..., N) that come before each value (..., M).

    The lower bound advances by halves of the remaining range: 2^k, ... 2, 1.
    """
    batch = len(ordered.shape) - 1
    count = filled(0, dtypes.int64, values.shape)  # at least this number of elements comes before
    for bit in reversed(range(length.bit_length())):
        further = count + (1 << bit)
        place = minimum(further, length) - 1
        element = gather(ordered, place, batch, batch)
        comes_before = not_above(element, values) if right else below(element, values)
        inside = less_equal(further, length)
        count = where(both(inside, comes_before), further, count)
    return count


def below(a: Op, b: Op) -> Op:
    """Returns a < b; NaN counts as larger than every number."""
    is_less = less(a, b)
    if not a.dtype.is_float:
        return is_less
    return either(is_less, both(differs(b, b), equal(a, a)))


def not_above(a: Op, b: Op) -> Op:
    """Returns a <= b; NaN counts as larger than every number and equal to itself."""
    is_less = less_equal(a, b)
    return either(is_less, differs(b, b)) if a.dtype.is_float else is_less


# ---- sorts ----
class SortResult(NamedTuple):
    """The result of sort and topk.

    values:   the elements in order
    indices:  original position of each element, int64
    """

    values: Any
    indices: Any


def argsort(self: T, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None) -> T:
    """Returns the positions that sort the elements along `dim`, int64; largest first if `descending`.

    Equal elements keep their order, with or without `stable`.

    >>> Tensor([3, 1, 2]).argsort()
    Tensor([1, 2, 0])
    """
    op, dim = self.read(), one_name("argsort", dim, axis, -1)
    if not op.shape:
        axis_of("argsort", op.shape, dim)
        return self.from_op(Op(OpCode.CONST, dtypes.int64, (), 0), self.cell.device)
    order = argsort_op(op, axis_of("argsort", op.shape, dim), descending)
    return self.from_op(order, self.cell.device)


def sort(self: T, dim: int = -1, descending: bool = False, stable: bool = True, *, axis: int | None = None) -> SortResult:
    """Returns the sorted elements along `dim`, and their original positions; largest first if `descending`.

    Equal elements keep their order, with or without `stable`.

    >>> Tensor([3, 1, 2]).sort(descending=True).values
    Tensor([3, 2, 1])
    """
    dim = one_name("sort", dim, axis, -1)
    return _taken(self, argsort(self, dim, descending), dim)


def msort(self: T) -> T:
    """Returns the elements sorted along axis 0.

    >>> Tensor([3, 1, 2]).msort()
    Tensor([1, 2, 3])
    """
    return sort(self, 0).values


def topk(
    self: T,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,  # noqa: A002
    *,
    axis: int | None = None,
) -> SortResult:
    """Returns the k largest elements along `dim`, or the smallest unless `largest`, and their positions.

    They are sorted, with or without `sorted`.

    Raises:
      ArgumentError: k is not an integer, or outside [0, length of the axis].

    >>> Tensor([3, 1, 2]).topk(2)
    SortResult(values=Tensor([3, 2]), indices=Tensor([0, 2]))
    """
    dim = one_name("topk", dim, axis, -1)
    length = known("topk", self.shape, axis_of("topk", self.op.shape, dim)) if self.ndim else 1
    if not isinstance(k, SupportsIndex) or not 0 <= (k := k.__index__()) <= length:
        raise ArgumentError(f"topk: k must be from 0 to {length}, the length of axis {dim} of {self.shape}; got {k}.")
    if not self.ndim:
        return _taken(self, argsort(self, dim, largest), dim)
    places = _first_places(self.movedim(dim, -1), k, largest)
    settle_choice(places.cell)
    return _taken(self, places.movedim(-1, dim), dim)


def _first_places(self: T, k: int, descending: bool) -> T:
    """Returns the first k positions of argsort along the last axis."""
    op = self.read()
    return self.from_op(Op(OpCode.SORT, dtypes.int64, (op,), (len(op.shape) - 1, descending, k)), self.cell.device)


def _taken(self: T, order: T, dim: int) -> SortResult:
    return SortResult(self.take_along_dim(order, dim) if self.ndim else self, order)


# ---- ranks ----
RANKED_ROW_PARTS_MIN = 64  # an element in the first 1 / 64 of its row is found by its position, others by rank
INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@partial(of_tensors, container=SortResult)
def kthvalue(self: T, k: int, dim: int = -1, keepdim: bool = False, *, axis: int | None = None) -> SortResult:
    """Returns the k-th smallest element along `dim`, and its position; `k` counts from 1.

    The first of equal elements counts as smaller and gets the gradient of its rank; PyTorch may choose another.

    Raises:
      ArgumentError: k is outside [1, length of the axis].

    >>> Tensor([3, 1, 2]).kthvalue(2)
    SortResult(values=Tensor(2), indices=Tensor(2))
    """
    dim = one_name("kthvalue", dim, axis, -1)
    length = known("kthvalue", self.shape, axis_of("kthvalue", self.op.shape, dim)) if self.ndim else 1
    if not 1 <= whole("kthvalue", "k", k) <= length:
        raise ArgumentError(f"kthvalue: k must be from 1 to {length}, the length of axis {dim} of {self.shape}; got {k}.")
    line = _row(self, "kthvalue", dim)
    if RANKED_ROW_PARTS_MIN * k <= length:
        return _at_rank(line, _first_places(line, k, False).narrow(-1, k - 1, 1), dim, keepdim, self.ndim)
    rank = filled(k - 1, dtypes.int64, (*line.op.shape[:-1], 1))
    return _at_rank(line, self.from_op(_places_of_ranks(line.read(), rank), self.cell.device), dim, keepdim, self.ndim)


def median(self: T, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None) -> Any:
    """Returns the median of all elements, or along one axis with its position; for an even count the lower of two.

    NaN if there is a NaN. All elements equal to the median of a whole tensor share its gradient.

    Raises:
      ShapeError: the axis is empty.

    >>> Tensor([3.0, 1.0, 2.0, 4.0]).median()
    Tensor(2.)
    >>> Tensor([[3, 1, 2]]).median(1)
    SortResult(values=Tensor([2]), indices=Tensor([2]))
    """
    return _median(self, "median", one_name("median", dim, axis), keepdim, skips_nan=False)


def nanmedian(self: T, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None) -> Any:
    """Returns the median of all elements except NaN, or along one axis with its position.

    Raises:
      ShapeError: the axis is empty.

    >>> Tensor([3.0, float("nan"), 2.0, 1.0]).nanmedian()
    Tensor(2.)
    """
    return _median(self, "nanmedian", one_name("nanmedian", dim, axis), keepdim, skips_nan=True)


def _median(self: T, function: str, dim: int | None, keepdim: bool, skips_nan: bool) -> Any:
    """Returns the median of all elements, or along an axis with its position; for an even count the lower of two."""
    if dim is None:
        flat = self.flatten()
        if not flat.shape[0]:
            if not self.dtype.is_float:
                raise ShapeError(f"{function}: shape {self.shape} has no element.")
            return self.from_op(filled(float("nan"), self.dtype, ()), self.cell.device)
        return _median_of_all(flat, function, skips_nan)
    return _median_along(self, function, dim, keepdim, skips_nan)


@of_tensors
def _median_of_all(self: T, function: str, skips_nan: bool) -> T:
    found = _median_along(self.detach(), function, 0, False, skips_nan).values
    return self.from_op(_shared_by_equals(self.read(), found.op), self.cell.device)


@partial(of_tensors, container=SortResult)
def _median_along(self: T, function: str, dim: int, keepdim: bool, skips_nan: bool) -> SortResult:
    line = _row(self, function, dim)
    length, op = line.shape[-1], detached(line.read())
    if not length:
        raise ShapeError(f"{function}: shape {self.shape} has no element along axis {dim}.")
    rank = filled((length - 1) // 2, dtypes.int64, (*op.shape[:-1], 1))
    if op.dtype.is_float:
        axis = len(op.shape) - 1
        count = reduce(cast(pointwise.is_nan(op), dtypes.int64), OpCode.ADD, (axis,), keepdim=True)
        if skips_nan:
            rank = maximum(rank.filled(length - 1) - count, 0)
            rank = floordiv(rank, 2)
        else:  # the first NaN comes after all numbers
            rank = where(less(0, count), rank.filled(length) - count, rank)
    places = self.from_op(_places_of_ranks(op, rank), self.cell.device)
    return _at_rank(line, places, dim, keepdim, self.ndim)


@partial(of_tensors, container=SortResult)
def mode(self: T, dim: int = -1, keepdim: bool = False, *, axis: int | None = None) -> SortResult:
    """Returns the most frequent element along `dim`, the smallest of several, and its last position.

    No NaN equals another; PyTorch's result depends on their positions.

    Raises:
      ShapeError: the axis is empty.

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
    """Returns the tensor with one axis moved to the end; a number becomes a vector."""
    axis = axis_of(function, self.op.shape, dim)
    if not self.ndim:
        return self.reshape(1)
    known(function, self.shape, axis)
    return self.movedim(axis, -1)


def _at_rank(self: T, places: T, dim: int, keepdim: bool, ndim: int) -> SortResult:
    """Returns the elements of rows at positions `places` (..., 1), with the last axis moved back or dropped."""
    values = self.take_along_dim(places, -1)
    if not ndim:
        return SortResult(values.reshape(()), places.reshape(()))
    values, places = values.movedim(-1, dim), places.movedim(-1, dim)
    return SortResult(values, places) if keepdim else SortResult(values.squeeze(dim), places.squeeze(dim))


# ---- quantiles ----
@of_tensors
def quantile(
    self: T,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    axis: int | None = None,
) -> T:
    """Returns the quantile at a fraction `q`, between neighbours by `interpolation`.

    With x sorted, rank = q * (n - 1) and i = floor(rank): out = x[i] + (rank - i) * (x[i + 1] - x[i]).

    Args:
      q:              a number in [0, 1], or a vector of such in self's dtype, which becomes the first axis of the result
      interpolation:  "linear", "lower", "higher", "midpoint" or "nearest"

    Raises:
      ArgumentError: an unknown interpolation, or q outside [0, 1] (a tensor: when it is computed).
      DTypeError:    self is not a float, or the dtype of q differs.
      ShapeError:    there are no elements, or q has several axes.

    >>> Tensor([3.0, 1.0, 2.0, 4.0]).quantile(0.5)
    Tensor(2.5)
    """
    return _quantile(self, "quantile", q, one_name("quantile", dim, axis), keepdim, interpolation, False)


@of_tensors
def nanquantile(
    self: T,
    q: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    axis: int | None = None,
) -> T:
    """Returns the quantile at a fraction `q` of the elements that are not NaN.

    Args:
      q:              a number in [0, 1], or a vector of such in self's dtype, which becomes the first axis of the result
      interpolation:  "linear", "lower", "higher", "midpoint" or "nearest"

    Raises:
      ArgumentError: an unknown interpolation, or q outside [0, 1] (a tensor: when it is computed).
      DTypeError:    self is not a float, or the dtype of q differs.
      ShapeError:    there are no elements, or q has several axes.

    >>> Tensor([3.0, float("nan"), 2.0]).nanquantile(0.5)
    Tensor(2.5)
    """
    return _quantile(self, "nanquantile", q, one_name("nanquantile", dim, axis), keepdim, interpolation, True)


def _quantile(self: T, function: str, q: Any, dim: int | None, keepdim: bool, interpolation: str, skips_nan: bool) -> T:
    """Returns the quantiles at `q`; a vector q is a new first axis."""
    check_one_of(function, "interpolation", interpolation, INTERPOLATIONS)
    need_float(function, self.op)
    if 0 in [known(function, self.shape, a) for a in range(self.ndim)]:
        raise ShapeError(f"{function}: shape {self.shape} has no element.")
    fractions, device = _fractions(self, function, q), self.cell.device
    line = self.flatten() if dim is None else _row(self, function, dim)
    op = line.read()
    rank = _ranks(detached(op), fractions, skips_nan)
    found = self.from_op(_between(op, rank, interpolation), device)  # (..., Q)
    rest = found.shape[:-1]
    if keepdim:
        axis = axis_of(function, self.shape, dim) if dim is not None else 0
        rest = (1,) * self.ndim if dim is None else (*rest[:axis], 1, *rest[axis:]) if self.ndim else ()
    found = found.movedim(-1, 0)
    is_vector = isinstance(q, TensorCore) and q.ndim
    return found.reshape(*found.shape[:1], *rest) if is_vector else found.reshape(rest)


def _fractions(self: T, function: str, q: Any) -> Op:
    """Returns q as a vector; computing it raises an error if an element is outside [0, 1]."""
    if not isinstance(q, TensorCore):
        if not isinstance(q, (int, float)) or not 0 <= q <= 1:
            raise ArgumentError(f"{function}: q must be a number from 0 to 1, got {q!r}.")
        return filled(q, self.dtype, (1,))
    needs_dtype(self, function, "q", q)
    if q.ndim > 1:
        raise ShapeError(f"{function}: q must be a number or a vector, got shape {q.shape}.")
    self.other_device(function, q)
    op = reshape(q.read(), q.op.shape or (1,))
    inside = both(less_equal(0, op), less_equal(op, 1))
    return guarded(op, inside, f"{function}: an element of q is not from 0 to 1.")


# ---- on Ops ----
def _shared_by_equals(op: Op, value: Op) -> Op:
    """Returns `value`, an element of the vector `op`, as the maximum of all its equals, which then share its gradient."""
    wanted = broadcast_to(value, op.shape)
    chosen = equal(op, wanted)
    if op.dtype.is_float:
        chosen = either(chosen, both(pointwise.is_nan(op), pointwise.is_nan(wanted)))
    return reduce(where(chosen, op, op.dtype.min), OpCode.MAX, (0,))


def starts_run(ordered: Op) -> Op:
    """Returns, along the last axis, whether an element differs from the previous one."""
    last, length = len(ordered.shape) - 1, ordered.shape[-1]
    is_new = differs(shrink_axis(ordered, last, 1, length), shrink_axis(ordered, last, 0, length - 1))
    first = equal(positions(ordered.shape, last), 0)
    return either(first, pad_axis(is_new, last, 1, 0))


def _place_in_run(ordered: Op) -> Op:
    """Returns, along the last axis, the number of equal elements directly before each."""
    axis = len(ordered.shape) - 1
    place = positions(ordered.shape, axis)
    return place - scan(where(starts_run(ordered), place, 0), OpCode.MAX, axis)


def _places_of_ranks(rows: Op, ranks: Op) -> Op:
    """Returns the positions of the elements with these ranks (..., R) in rows (..., N)."""
    return Op(OpCode.SORT, dtypes.int64, (rows, ranks), (len(rows.shape) - 1, False))


def _ranks(rows: Op, fractions: Op, skips_nan: bool) -> Op:
    """Returns the rank (..., Q), a float, of each fraction in rows (..., N); for a row with NaN the last rank."""
    axis, length, wide = len(rows.shape) - 1, rows.shape[-1], rows.dtype.compute_dtype
    assert isinstance(length, int)
    shape = (*rows.shape[:-1], *fractions.shape)
    nans = reduce(cast(pointwise.is_nan(rows), dtypes.int64), OpCode.ADD, (axis,), keepdim=True)
    part = broadcast_to(cast(fractions, wide), shape)
    last = nans.filled(length - 1)
    if skips_nan:
        count = maximum(last - nans, 0)
        return part * broadcast_to(cast(count, wide), shape)
    rank = part * float(length - 1)
    has_nan = broadcast_to(less(0, nans), shape)
    return where(has_nan, rank.filled(length - 1), rank)


def _between(rows: Op, rank: Op, interpolation: str) -> Op:
    """Returns the values at fractional ranks."""
    if interpolation == "nearest":
        rank = pointwise.round_even(rank)
    below, above = pointwise.floor(rank), pointwise.ceil(rank)
    if interpolation in ("lower", "higher", "nearest"):
        return _values_at(rows, above if interpolation == "higher" else below)
    weight = rank - below
    if interpolation == "midpoint":
        weight = where(less(0, weight), weight.filled(0.5), weight)
    axis, count = len(rank.shape) - 1, rank.shape[-1]
    ends = _values_at(rows, joined([below, above], axis))
    low, high = (shrink_axis(ends, axis, start, add(start, count)) for start in (0, count))
    return low + cast(weight, low.dtype) * (high - low)


def _values_at(rows: Op, ranks: Op) -> Op:
    return along(rows, _places_of_ranks(detached(rows), cast(ranks, dtypes.int64)), len(rows.shape) - 1)


# ---- searches ----
def searchsorted(
    self: T,
    input: Any,  # noqa: A002
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> T:
    """Returns the position in the rows of this tensor at which each value of `input` keeps them sorted.

    The first i with self[i - 1] < v <= self[i]; with `right`, self[i - 1] <= v < self[i]. NaN is largest.

    Args:
      input:      values: for a vector self a number or a tensor of any shape, else self's shape except the last axis
      out_int32:  return int32, else int64
      right:      after equal elements, not before them
      side:       "left" or "right", instead of `right`
      sorter:     self.argsort(), if the rows are not sorted

    Raises:
      ShapeError:    the rows of input are not those of self.
      ArgumentError: side contradicts right, or is an unknown word.

    >>> Tensor([1, 3, 3, 5]).searchsorted(Tensor([0, 3, 9]))
    Tensor([0, 1, 4])
    >>> Tensor([1, 3, 3, 5]).searchsorted(3, right=True)
    Tensor(3)
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError(f'searchsorted: side must be "left" or "right", as right={right} says; got {side!r}.')
    ordered = self
    if sorter is not None:
        if sorter.shape != self.shape:
            raise ShapeError(f"searchsorted: sorter of shape {sorter.shape} must have the shape {self.shape} of x.")
        ordered = self.take_along_dim(sorter, -1)
    return places_of(ordered, "searchsorted", input, right or side == "right", out_int32)


def bucketize(self: T, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> T:
    """Returns the bucket index of each element; `boundaries`, a sorted vector, separate buckets.

    boundaries[i - 1] < x <= boundaries[i]; with `right`, boundaries[i - 1] <= x < boundaries[i].

    Args:
      boundaries: bounds between consecutive buckets
      out_int32:  return int32, else int64
      right:      an element equal to a boundary comes after it

    Raises:
      ShapeError: boundaries is not a vector.

    >>> Tensor([0, 3, 9]).bucketize(Tensor([1, 3, 5]))
    Tensor([0, 1, 3])
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries must be a vector, got shape {boundaries.shape}.")
    rows = type(self).from_op(boundaries.read(), boundaries.cell.device)
    return places_of(rows, "bucketize", self, right, out_int32)


@of_tensors
def isin(self: T, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> T:
    """Returns True for each element that is in `test_elements`; with `invert`, False.

    Args:
      test_elements:  a tensor of any shape, or a number; they are sorted, then searched
      assume_unique:  promises that elements are distinct; without effect
      invert:         return the opposite

    >>> Tensor([1, 2, 3]).isin(Tensor([3, 1]))
    Tensor([ True, False,  True])
    """
    if not isinstance(test_elements, TensorCore):
        return self.ne(test_elements) if invert else self.eq(test_elements)
    tests: T = type(self).from_op(test_elements.read(), test_elements.cell.device).flatten()
    if not known("isin", tests.shape, 0):
        return self.from_op(filled(invert, dtypes.bool_, self.op.shape), self.other_device("isin", test_elements))
    ordered: T = sort(tests).values
    place = places_of(ordered, "isin", self, False, False).clamp(max=tests.shape[0] - 1)
    found = ordered.take(place)
    return self.ne(found) if invert else self.eq(found)


def places_of(self: T, function: str, values: Any, right: bool, out_int32: bool) -> T:
    """Returns the positions of values in sorted rows."""
    if not self.ndim:
        raise ShapeError(f"{function}: a sequence in order needs an axis, got shape ().")
    if not isinstance(values, TensorCore):
        dtype = dtypes.promote_scalar(self.dtype, values) if isinstance(values, (bool, int, float)) else None
        values = type(self)(values, dtype, self.device)
    rows, length = self.op.shape[:-1], known(function, self.shape, self.ndim - 1)
    if rows and values.op.shape[:-1] != rows:
        raise ShapeError(f"{function}: values of shape {values.shape} do not fit the rows of {self.shape}.")
    ordered, wanted = detached(self.read()), detached(values.read())
    dtype = dtypes.promote(ordered.dtype, wanted.dtype)
    found = lower_bound(cast(ordered, dtype), cast(wanted, dtype), length, right)
    device = self.other_device(function, values)
    return self.from_op(cast(found, dtypes.int32) if out_int32 else found, device)


# ---- sets ----
def unique(
    self: T,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Returns the distinct elements, sorted; computes the tensor. No NaN equals another.

    Args:
      sorted:          without effect: the result is always sorted
      return_inverse:  also return the position in the result of each element: out[inverse] = self
      return_counts:   also return how often each element occurs
      dim:             compare slices along this axis, lexicographically; None: elements

    Raises:
      ShapeError: an axis other than `dim` is empty.

    >>> Tensor([3, 1, 3]).unique()
    Tensor([1, 3])
    >>> Tensor([3, 1, 3]).unique(return_inverse=True, return_counts=True)
    (Tensor([1, 3]), Tensor([1, 0, 1]), Tensor([1, 2]))
    """
    return _once(self, "unique", return_inverse, return_counts, dim, sorts=True)


def unique_consecutive(self: T, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """Returns the first element of each run of equal elements; computes the tensor.

    Args:
      return_inverse:  also return the index of each element's run
      return_counts:   also return the length of each run
      dim:             compare slices along this axis; None: elements

    Raises:
      ShapeError: an axis other than `dim` is empty.

    >>> Tensor([3, 3, 1, 3]).unique_consecutive()
    Tensor([3, 1, 3])
    """
    return _once(self, "unique_consecutive", return_inverse, return_counts, dim, sorts=False)


def _once_on_host(self: T, function: str, inverse: bool, counts: bool, sorts: bool) -> list[T]:
    """Returns the results of `_once` if the host computes them sooner than a plan; else an empty list."""
    op = self.read()
    if op.needs_grad or op.dtype.numpy.kind not in "biuf":
        return []
    value: np.ndarray[Any, Any] | None = None
    if is_small(op):
        value = self._host(function)
    elif not sorts and trace.get() is None:  # a plan sorts a long value sooner
        value = value_on_host(op)
    if value is None:
        return []
    return [type(self)(array, device=self.device) for array in _runs(value, inverse, counts, sorts)]


def _runs(value: np.ndarray[Any, Any], inverse: bool, counts: bool, sorts: bool) -> list[np.ndarray[Any, Any]]:
    """Returns the first of each run of equal elements; if requested the run of each element, and the runs' lengths."""
    shape, value = value.shape, value.reshape(-1)
    order = value.argsort(kind="stable") if sorts else np.arange(len(value))
    ordered = value[order]
    starts = np.ones(len(value), np.bool_)
    starts[1:] = ordered[1:] != ordered[:-1]
    begins = starts.nonzero()[0]
    found = [ordered[begins]]
    if inverse:
        places = np.empty(len(value), np.int64)
        places[order] = starts.cumsum() - 1
        found.append(places.reshape(shape))
    if counts:
        found.append(np.diff(begins, append=len(value)))
    return found


def _once(self: T, function: str, inverse: bool, counts: bool, dim: int | None, sorts: bool) -> Any:
    """Returns the first of each run of equal elements or slices, which are sorted first if `sorts`."""
    axis, shape, device = axis_of(function, self.op.shape, dim or 0), self.op.shape, self.cell.device
    for a in range(len(shape)):
        known(function, self.shape, a)
    if (dim is None or len(shape) == 1) and (found := _once_on_host(self, function, inverse, counts, sorts)):
        return found[0] if len(found) == 1 else tuple(found)
    line = reshape(self.read(), (numel(shape),)) if dim is None or not shape else self.movedim(axis, 0).read()
    length = line.shape[0]
    assert isinstance(length, int)
    if length and not line.numel:
        raise ShapeError(f"{function}: the slices along axis {dim} of {self.shape} have no elements.")
    keys = detached(line) if len(line.shape) == 1 else _dense_ranks(detached(line))
    order = argsort_op(keys, 0) if sorts else iota(length)
    ordered = self.from_op(gather(keys, order, 0, 0) if sorts else keys, device)
    starts = starts_run(ordered.op) if length else filled(False, dtypes.bool_, (0,))
    count = scan(where(starts, filled(1, dtypes.int64, (length,)), 0), OpCode.ADD, 0) - 1  # index of the element's run
    held = [self.from_op(op, device) for op in (order, count, shrink_axis(count, 0, max(0, length - 1), length))]
    compute_together(each.cell for each in (ordered, *held))  # the results' operands are computed with their number
    total = int(held[-1]._host(function)[0]) + 1 if length else 0
    (order, number, _), starts = (each.read() for each in held), starts_run(ordered.read()) if length else starts
    begins = scatter(iota(total), where(starts, number, -1), iota(length), None, 0, 0)
    if keys is detached(line) and not line.needs_grad:
        taken = gather(ordered.read(), begins, 0, 0)  # contiguous, unlike the elements themselves
    else:
        taken = gather(line, gather(order, begins, 0, 0), 0, 0)
    result = self.from_op(taken, device)
    results = [result if dim is None or not shape else result.movedim(0, axis)]
    if inverse:
        places = scatter(iota(length), order, number, None, 0, 0)
        results.append(self.from_op(reshape(places, shape) if dim is None or not shape else places, device))
    if counts:
        ends = pad(shrink(begins, ((min(1, total), total),)), ((0, min(1, total)),))
        last = equal(iota(total), total - 1)
        results.append(self.from_op(where(last, length, ends) - begins, device))
    return tuple(results) if len(results) > 1 else results[0]


# ---- on Ops ----
def _dense_ranks(rows: Op) -> Op:
    """Returns one integer per row, in the lexicographic order of rows.

    Columns are ranked; then pairs of columns are joined to pairs of ranks, and ranked again: log2(columns) rounds.
    """
    length = rows.shape[0]
    if length == 0:
        return iota(0)
    columns = reshape(rows, (length, numel(rows.shape[1:])))
    ranks = _ranked(columns)
    while (count := ranks.shape[1]) != 1:
        assert isinstance(count, int) and isinstance(length, int)
        paired = pad(ranks, ((0, 0), (0, count % 2)))
        half = (count + 1) // 2
        pairs = reshape(paired, (length, half, 2))
        high, low = (reshape(shrink(pairs, ((0, length), (0, half), (i, i + 1))), (length, half)) for i in (0, 1))
        ranks = _ranked(high * length + low)
    return reshape(ranks, (length,))


def _ranked(columns: Op) -> Op:
    """Returns, for each element of a column, the number of smaller distinct values."""
    order = argsort_op(columns, 0)
    ordered = Op(OpCode.PERMUTE, columns.dtype, (along(columns, order, 0),), (1, 0))
    number = scan(where(starts_run(ordered), filled(1, dtypes.int64, ordered.shape), 0), OpCode.ADD, 1) - 1
    back = Op(OpCode.PERMUTE, dtypes.int64, (order,), (1, 0))
    placed = scatter(filled(0, dtypes.int64, ordered.shape), back, number, None, 1, 1)
    return Op(OpCode.PERMUTE, dtypes.int64, (placed,), (1, 0))
