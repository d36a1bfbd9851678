"""How often values come: counts of integers, histograms.

In:    tensors
Out:   `bincount`, `histc`, `histogram`: methods of Tensor
Next:  picograd/tensor/order/sets.py

Each element adds to the bin it lies in: linear in the elements and the bins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.build import both, compare, iota, reduce, reshape, scatter, shrink, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.tensor.build import broadcast_to, cast, detached, need_float, static, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.elements import pointwise
from picograd.tensor.indexing.brackets import integer_index, needs_dtype
from picograd.tensor.order.searching import places_of
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["bincount", "histc", "histogram"]


class HistogramResult(NamedTuple):
    """What histogram returns.

    hist:       how many elements, or how much weight, each bin has
    bin_edges:  where the bins begin, and the last one ends
    """

    hist: Any
    bin_edges: Any


def bincount(self: T, weights: Tensor | None = None, minlength: int = 0) -> T:
    """Returns how often each integer 0, 1, ... comes in a vector, int64; computes it to know the greatest.

    Args:
      weights:    what each element counts; the result is float64, or float32 for float32
      minlength:  the least length of the result

    Raises:
      ShapeError:    self is no vector, or weights has another shape.
      DTypeError:    self has no integers.
      ArgumentError: an element is negative, or minlength.

    >>> Tensor([1, 1, 3]).bincount()
    Tensor([0, 2, 0, 1])
    """
    op = integer_index("bincount", self)
    if self.ndim != 1 or (weights is not None and weights.shape != self.shape):
        shown = f", weights {weights.shape}" if weights is not None else ""
        raise ShapeError(f"bincount: needs a vector, and weights of its shape; got {self.shape}{shown}.")
    minlength = whole("bincount", "minlength", minlength)
    if minlength < 0:
        raise ArgumentError(f"bincount: minlength must not be negative, got {minlength}.")
    found = self._host("bincount")
    if found.size and found.min() < 0:
        raise ArgumentError(f"bincount: elements must not be negative, got {found.min()}.")
    length = max(minlength, int(found.max()) + 1 if found.size else 0)
    if weights is None:
        counted, device = filled(1, dtypes.int64, op.shape), self.cell.device
    else:
        dtype = weights.dtype if weights.dtype is dtypes.float32 else dtypes.float64
        counted, device = detached(cast(weights.read(), dtype)), self.other_device("bincount", weights)
    if not length:
        return self.from_op(filled(0, counted.dtype, (0,)), device)
    return self.from_op(_added(cast(op, dtypes.int64), counted, length), device)


def histc(self: T, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> T:  # noqa: A002
    """Returns how many elements lie in each of `bins` bins of one width from `min` to `max`, in the dtype of x.

    Those outside and NaN are left out. Where min = max, the bins reach from the least element to the greatest.

    Raises:
      DTypeError:    self is no float.
      ArgumentError: there is no bin, or max < min.

    >>> Tensor([1.0, 2.0, 2.5, 4.0]).histc(3, 1, 4)
    Tensor([1., 2., 1.])
    """
    op = detached(_float_line(self, "histc"))
    bins = whole("histc", "bins", bins)
    if bins < 1 or not (math.isfinite(min) and math.isfinite(max) and min <= max):
        raise ArgumentError(f"histc: needs bins >= 1 and finite min <= max, got {bins}, {min} and {max}.")
    if not op.numel:
        return self.from_op(filled(0, self.dtype, (bins,)), self.cell.device)
    low, high = (op.filled(float(bound)) for bound in (min, max)) if min < max else _extent(op, 1.0)
    hist = _added(_bins(op, low, high, bins), filled(1, dtypes.int64, op.shape), bins)
    return self.from_op(cast(hist, self.dtype), self.cell.device)


def histogram(
    self: T,
    bins: int | Tensor,
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramResult:
    """Returns how many elements lie in each bin, and the edges of the bins; those outside are left out.

    A bin has its left edge, the last one both.

    Args:
      bins:     how many of one width, or a vector of edges in rising order
      range:    where equal bins begin and end; default: the least element and the greatest; half a unit to both
                sides where these are equal
      weight:   what each element counts
      density:  divide by width and total, so that hist * width adds up to 1

    Raises:
      DTypeError:    self is no float, or weight or edges of another dtype.
      ShapeError:    weight has another shape, or the edges are no vector of two or more.
      ArgumentError: there is no bin, or a range is given with edges, or does not rise.

    >>> Tensor([1.0, 2.0, 2.5, 4.0]).histogram(2, range=(1, 3))
    HistogramResult(hist=Tensor([1., 2.]), bin_edges=Tensor([1., 2., 3.]))
    """
    op = detached(_float_line(self, "histogram"))
    counted = filled(1, self.dtype, op.shape)
    if weight is not None:
        needs_dtype(self, "histogram", "weight", weight)
        if weight.shape != self.shape:
            raise ShapeError(f"histogram: weight must have the shape {self.shape} of x, got {weight.shape}.")
        counted = detached(reshape(weight.read(), op.shape))
    if isinstance(bins, TensorCore):
        edges, places = _between_edges(self, op, bins, range)
    else:
        edges, places = _equal_bins(self, op, bins, range)
    hist = _added(places, counted, static(edges.shape[0]) - 1)
    if density:
        width = _differences(edges)
        total = broadcast_to(reduce(hist, OpCode.ADD, (0,)), hist.shape)
        hist = hist / total / width
    device = self.cell.device
    return HistogramResult(self.from_op(hist, device), self.from_op(edges, device))


def _float_line(self: T, function: str) -> Op:
    """Returns all elements, which must be floats, along one axis."""
    return reshape(need_float(function, self.read()), (numel(self.op.shape),))


def _equal_bins(self: T, op: Op, bins: int, bounds: Sequence[float] | None) -> tuple[Op, Op]:
    """Returns (edges, bin of each element)."""
    bins = whole("histogram", "bins", bins)
    if bins < 1:
        raise ArgumentError(f"histogram: needs at least one bin, got {bins}.")
    if bounds is not None and (len(bounds) != 2 or not bounds[0] <= bounds[1]):
        raise ArgumentError(f"histogram: range must be (least, greatest), got {tuple(bounds)}.")
    if bounds is not None and bounds[0] < bounds[1]:
        low, high = (filled(float(bound), op.dtype, ()) for bound in bounds)
    elif op.shape != (0,) and bounds is None:
        low, high = (reduce(bound, OpCode.MAX, (0,)) for bound in _extent(op, 0.5))
    else:
        middle = float(bounds[0]) if bounds is not None else 0.5
        low, high = filled(middle - 0.5, op.dtype, ()), filled(middle + 0.5, op.dtype, ())
    part = cast(iota(bins + 1), op.dtype) * (1.0 / bins)
    edges = broadcast_to(low, part.shape) + part * broadcast_to(high - low, part.shape)
    edges = where(compare(OpCode.CMPEQ, iota(bins + 1), bins), broadcast_to(high, part.shape), edges)
    return edges, _bins(op, broadcast_to(low, op.shape), broadcast_to(high, op.shape), bins)


def _between_edges(self: T, op: Op, bins: TensorCore, bounds: Sequence[float] | None) -> tuple[Op, Op]:
    """Returns (edges, bin of each element)."""
    needs_dtype(self, "histogram", "bins", bins)
    if bounds is not None:
        raise ArgumentError("histogram: edges have a range of their own; give one of bins and range.")
    if bins.ndim != 1 or known("histogram", bins.shape, 0) < 2:
        raise ShapeError(f"histogram: edges must be a vector of two or more, got shape {bins.shape}.")
    edges, count = detached(bins.read()), bins.shape[0] - 1
    rows = type(self).from_op(edges, bins.cell.device)
    place = places_of(rows, "histogram", self.from_op(op, self.cell.device), True, False).op - 1
    last = broadcast_to(reshape(shrink(edges, ((count, count + 1),)), ()), op.shape)
    return edges, where(compare(OpCode.CMPEQ, op, last), count - 1, place)


# ---- on Ops ----
def _added(places: Op, counted: Op, length: int) -> Op:
    """Returns the sum of what goes to each place; what goes elsewhere is left out."""
    return scatter(filled(0, counted.dtype, (length,)), places, counted, OpCode.ADD, 0, 0)


def _extent(op: Op, room: float) -> tuple[Op, Op]:
    """Returns the least and the greatest element, repeated; with room to both sides where they are equal."""
    low, high = (broadcast_to(reduce(op, code, (0,)), op.shape) for code in (OpCode.MIN, OpCode.MAX))
    equal = compare(OpCode.CMPEQ, low, high)
    return where(equal, low - room, low), where(equal, high + room, high)


def _bins(op: Op, low: Op, high: Op, count: int) -> Op:
    """Returns the bin of each element of `count` equal ones; -1 outside."""
    place = cast(pointwise.floor((op - low) * float(count) / (high - low)), dtypes.int64)
    place = Op(OpCode.MIN, dtypes.int64, (place, place.filled(count - 1)))
    return where(both(compare(OpCode.CMPLE, low, op), compare(OpCode.CMPLE, op, high)), place, -1)


def _differences(edges: Op) -> Op:
    (length,) = edges.shape
    assert isinstance(length, int)
    return shrink(edges, ((1, length),)) - shrink(edges, ((0, length - 1),))
