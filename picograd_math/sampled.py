"""Functions of sampled data: slopes, areas, histograms, segments, windows.

A periodic window of n weights is a symmetric one of n + 1 without the last. Windows are computed in float64 and rounded
once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.tensor.arguments import check_one_of
from picograd.tensor.build import axes_of, axis_of, guarded, is_integer
from picograd.tensor.formulas import of_tensors
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known

__all__ = [
    "bartlett_window", "blackman_window", "cumulative_trapezoid", "gradient", "hamming_window", "hann_window",
    "histogramdd", "kaiser_window", "segment_reduce", "trapezoid", "trapz",
]  # fmt: skip


# ---- slopes ----
def gradient(
    input: Tensor,  # noqa: A002
    *,
    spacing: float | Sequence[float | Tensor] = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Returns the slope along each axis of a function whose values on a grid are given.

    Inside, the slope is that of the parabola through a point and its neighbours; at the edges that of a line through the
    points there, or with edge_order=2 of a parabola.

    Args:
      input:       values of the function
      spacing:     distance between points: a number, one per axis, or a vector of coordinates per axis
      dim:         one or several axes; None: all
      edge_order:  1 or 2

    Raises:
      ArgumentError: an unknown edge_order, a repeated axis, or a wrong number of spacings.
      ShapeError:    an axis has fewer than edge_order + 1 points, or a wrong number of coordinates.

    >>> gradient(Tensor([1.0, 2.0, 4.0, 7.0]))[0]
    Tensor([1. , 1.5, 2.5, 3. ])
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order!r}.")
    if dim is None or is_integer(dim):
        axes = axes_of("gradient", input.shape, dim)
    else:
        axes = tuple(axis_of("gradient", input.shape, axis) for axis in dim)
        if len(set(axes)) != len(axes):
            raise ArgumentError(f"gradient: axes {tuple(dim)} of shape {input.shape} name one axis twice.")
    spacing = 1 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, Sequence) else [spacing] * len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(f"gradient: {len(spacings)} spacings were given for {len(axes)} axes.")
    return tuple(_slopes(input, axis, step, edge_order) for axis, step in zip(axes, spacings))


@of_tensors
def _slopes(x: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    """Returns the slopes along one axis."""
    count = known("gradient", x.shape, axis)
    if count <= edge_order:
        fact = f"gradient: edge_order={edge_order} needs {edge_order + 1} points, axis {axis} of {x.shape} has {count}."
        raise ShapeError(fact)
    x = x if x.dtype.is_float else x.float()
    if isinstance(spacing, Tensor):
        if spacing.shape != (count,):
            raise ShapeError(f"gradient: axis {axis} of {x.shape} needs {count} coordinates, got shape {spacing.shape}.")
        steps = spacing.diff().to(x.dtype)
    else:
        steps = Tensor.full((count - 1,), float(spacing), dtype=x.dtype, device=x.device)
    line = x.movedim(axis, -1)
    first, last = line[..., 1:2] - line[..., :1], line[..., -1:] - line[..., -2:-1]
    edges = [first / steps[:1], last / steps[-1:]]
    if edge_order == 2:
        edges[0] = _parabola(line[..., :3], steps[:1], steps[1:2], -1)
        edges[1] = _parabola(line[..., -3:], steps[-2:-1], steps[-1:], 1)
    return Tensor.cat([edges[0], _inside(line, steps), edges[1]], -1).movedim(-1, axis)


def _inside(line: Tensor, steps: Tensor) -> Tensor:
    """Returns the slopes at all points except the first and the last."""
    before, after = steps[:-1], steps[1:]
    rising = (line[..., 2:] - line[..., 1:-1]) * before / after
    return (rising + (line[..., 1:-1] - line[..., :-2]) * after / before) / (before + after)


def _parabola(three: Tensor, before: Tensor, after: Tensor, side: int) -> Tensor:
    """Returns the slope of the parabola through three points, at the first (side = -1) or the last (1)."""
    first = (three[..., 1:2] - three[..., :1]) / before
    second = (three[..., 2:] - three[..., 1:2]) / after
    curve = (second - first) / (before + after)
    return first - curve * before if side < 0 else second + curve * after


# ---- areas under curves ----
@of_tensors
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Returns the area under y along `dim` by the trapezoidal rule, at points x or `dx` apart.

    >>> trapezoid(Tensor([1.0, 2.0, 3.0]))
    Tensor(4.)
    """
    return _trapezoids("trapezoid", y, x, dx, dim).sum(dim)


trapz = trapezoid


@of_tensors
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Returns the areas under y up to each point after the first along `dim`, at points x or `dx` apart.

    >>> cumulative_trapezoid(Tensor([1.0, 2.0, 3.0]))
    Tensor([1.5, 4. ])
    """
    return _trapezoids("cumulative_trapezoid", y, x, dx, dim).cumsum(dim)


def _trapezoids(function: str, y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    """Returns the area of each step."""
    dim = axis_of(function, y.shape, dim)
    count = known(function, y.shape, dim)
    parts = y.narrow(dim, 0, max(count - 1, 0)) + y.narrow(dim, min(1, count), max(count - 1, 0))
    if x is None:
        return parts * dx / 2
    if x.ndim == 1 and y.ndim > 1:
        x = x.reshape(tuple(-1 if axis == dim % y.ndim else 1 for axis in range(y.ndim)))
    elif x.ndim != y.ndim:
        raise ShapeError(f"{function}: x {x.shape} needs one axis, or the shape of y {y.shape}.")
    return parts * x.diff(dim=dim) / 2


# ---- histograms ----
class HistogramDD(NamedTuple):
    """Counts, with one axis per column, and the edges along each."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


def histogramdd(
    input: Tensor,  # noqa: A002
    bins: int | Sequence[int | Tensor],
    *,
    range: Sequence[float] | None = None,  # noqa: A002
    weight: Tensor | None = None,
    density: bool = False,
) -> HistogramDD:
    """Returns the number of points in each box of a grid, and the edges of the boxes; points outside are left out.

    Args:
      input:    (..., D) floats: points
      bins:     number of boxes along each axis, a list of D numbers, or of D rising vectors of edges
      range:    2 D numbers: bounds of the boxes along each axis; by default the smallest and the largest value
      weight:   (...) weight of each point
      density:  divide by volume and total

    Raises:
      ShapeError:    input has fewer than two axes, or weight is not (...).
      ArgumentError: bins or range for a wrong number of axes.

    >>> histogramdd(Tensor([[0.0, 0.0], [1.0, 3.0]]), [2, 1]).hist.tolist()
    [[1.0], [1.0]]
    """
    if input.ndim < 2:
        raise ShapeError(f"histogramdd: needs points (..., D), got shape {input.shape}.")
    if weight is not None and weight.shape != input.shape[:-1]:
        raise ShapeError(f"histogramdd: weight must be {input.shape[:-1]}, got {weight.shape}.")
    columns = known("histogramdd", input.shape, -1)
    input = input.reshape(-1, columns)  # noqa: A001
    each = [bins] * columns if is_integer(bins) else list(bins)
    if len(each) != columns or (range is not None and len(range) != 2 * columns):
        raise ArgumentError(f"histogramdd: points of {columns} axes need {columns} bins and {2 * columns} ends of ranges.")
    ends = [None if range is None else range[2 * axis : 2 * axis + 2] for axis, _ in enumerate(each)]
    counted = Tensor.ones(input.shape[0], dtype=input.dtype, device=input.device)
    counted = counted if weight is None else weight.detach().to(input.dtype).flatten()
    edges, place = [], Tensor.zeros(input.shape[0], dtype=dtypes.int64, device=input.device)
    for axis, kind in enumerate(each):
        edge, found = _along_axis(input.detach()[:, axis].contiguous(), kind, ends[axis])
        count = edge.shape[0] - 1
        inside = (found >= 0) & (found < count)
        counted, place = counted * inside, place * count + Tensor.choose(inside, found, 0)
        edges.append(edge)
    lengths = [edge.shape[0] - 1 for edge in edges]
    hist = Tensor.zeros(math.prod(lengths), dtype=input.dtype, device=input.device)
    hist = hist.scatter_add(0, place, counted).reshape(lengths)
    if density:
        hist = hist / hist.sum()
        for axis, edge in enumerate(edges):
            hist = hist / edge.diff().reshape([-1 if other == axis else 1 for other, _ in enumerate(edges)])
    return HistogramDD(hist, tuple(edges))


def _along_axis(column: Tensor, bins: int | Tensor, ends: Sequence[float] | None) -> tuple[Tensor, Tensor]:
    """Returns the edges along one axis, and the box of each coordinate; the last box includes its right edge."""
    edge = column.histogram(bins, range=ends).bin_edges
    found = edge.searchsorted(column, right=True) - 1
    return edge, Tensor.choose(column == edge[-1], known("histogramdd", edge.shape, 0) - 2, found)


# ---- segments ----
EMPTY = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf, "prod": 1.0}  # results for empty segments


@of_tensors
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Scalar | None = None,
) -> Tensor:
    """Returns reductions of consecutive segments of the rows of `data`: (S, ...).

    Args:
      data:     (N, ...) floats
      reduce:   "sum", "mean", "max", "min" or "prod"
      lengths:  (S,) nonnegative lengths of the segments, with sum N
      offsets:  (S + 1,) instead of lengths: the start of each segment, beginning with 0, and N
      axis:     0
      unsafe:   do not check lengths
      initial:  start value of each segment

    Raises:
      ArgumentError: another reduce or axis, or not just one of lengths and offsets; when it is computed: a length is
                     negative, or they do not add up to N.
      ShapeError:    lengths or offsets are not vectors, or data is 0-d.
      IndexingError: when it is computed, and unsafe: rows are left after the last segment.

    >>> segment_reduce(Tensor([1.0, 2.0, 4.0]), "sum", lengths=Tensor([1, 2]))
    Tensor([1., 6.])
    """
    check_one_of("segment_reduce", "reduce", reduce, EMPTY)
    if axis != 0 or (lengths is None) == (offsets is None):
        raise ArgumentError("segment_reduce: needs axis=0, and lengths or offsets.")
    given = offsets if lengths is None else lengths
    assert given is not None
    if given.ndim != 1 or not data.ndim:
        raise ShapeError(f"segment_reduce: needs rows of data and a vector, got shapes {data.shape} and {given.shape}.")
    first = given[:1] if lengths is None else 0
    lengths = given.diff() if lengths is None else lengths
    count = known("segment_reduce", lengths.shape, 0)
    if not unsafe:
        rows = Tensor.ones(data.shape[0], dtype=lengths.dtype, device=data.device).sum()  # a length may be symbolic
        inside = (lengths >= 0) & (lengths.sum() == rows) & (first == 0)
        fact = f"segment_reduce: lengths must not be negative, and add up to {data.shape[0]}, the rows of data"
        fact += "." if offsets is None else "; offsets begin with 0."
        lengths = Tensor.from_op(guarded(lengths.read(), inside.read(), fact), lengths.cell.device)
    ends = lengths.cumsum(0)
    segment = ends.searchsorted(Tensor.arange(data.shape[0], device=data.device, dtype=ends.dtype), right=True)
    start = EMPTY["sum" if reduce == "mean" else reduce] if initial is None else initial
    base = Tensor.full((count, *data.shape[1:]), start, dtype=data.dtype, device=data.device)
    kind = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    result = base.index_add(0, segment, data) if kind == "sum" else base.index_reduce(0, segment, data, kind)
    if reduce != "mean":
        return result
    divisor = lengths.reshape(-1, *(1,) * (data.ndim - 1)).to(data.dtype)
    return Tensor.choose(divisor == 0, math.nan if initial is None else initial, result / divisor)


# ---- windows ----
def check_window(function: str, name: str, length: int, dtype: DType | None) -> None:
    """Raises ArgumentError for a negative length, DTypeError for a dtype that is not a float."""
    if length < 0:
        raise ArgumentError(f"{function}: {name} must not be negative, got {length}.")
    if dtype is not None and not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.")


def _angles(function: str, window_length: int, periodic: bool, dtype: DType | None) -> Tensor | None:
    """Returns k / (n - 1) for each index k, in float64; None for at most one weight."""
    check_window(function, "window_length", window_length, dtype)
    if window_length < 2:
        return None
    return Tensor.arange(window_length, dtype=dtypes.float64) / (window_length - (not periodic))


def cosine_window(
    function: str, n: int, periodic: bool, weights: tuple[float, ...], dtype: DType | None, device: str | None
) -> Tensor:
    """Returns w0 - w1 cos(2 pi x) + w2 cos(4 pi x) - ...; errors name the function."""
    x = _angles(function, n, periodic, dtype)
    chosen = dtype or dtypes.default_float
    if x is None:
        return Tensor.ones(n, dtype=chosen, device=device)
    terms = ((-1) ** k * w * (x * (2 * math.pi * k)).cos() for k, w in enumerate(weights[1:], 1))
    total = Tensor.full_like(x, weights[0])
    for term in terms:
        total = total + term
    return total.to(chosen, device)


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns (1 - cos(2 pi k / n)) / 2 for `window_length` indices k; if not periodic, it also ends with 0.

    >>> hann_window(4).round(decimals=3)
    Tensor([0. , 0.5, 1. , 0.5])
    """
    return cosine_window("hann_window", window_length, periodic, (0.5, 0.5), dtype, device)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Returns alpha - beta cos(2 pi k / n) for `window_length` indices k; periodic as in hann_window.

    >>> hamming_window(4).round(decimals=3).tolist() == tensor([0.08, 0.54, 1.0, 0.54]).tolist()
    True
    """
    return cosine_window("hamming_window", window_length, periodic, (alpha, beta), dtype, device)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n) for `window_length` indices k; periodic as in hann_window.

    >>> blackman_window(4).shape
    (4,)
    """
    return cosine_window("blackman_window", window_length, periodic, (0.42, 0.5, 0.08), dtype, device)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns 1 - |2 k / n - 1| for `window_length` indices k, a triangle; periodic as in hann_window.

    >>> bartlett_window(4)
    Tensor([0. , 0.5, 1. , 0.5])
    """
    x = _angles("bartlett_window", window_length, periodic, dtype)
    chosen = dtype or dtypes.default_float
    if x is None:
        return Tensor.ones(window_length, dtype=chosen, device=device)
    return (1 - (x * 2 - 1).abs()).to(chosen, device)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Returns I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta) for `window_length` indices k; periodic as in hann_window.

    >>> kaiser_window(2)
    Tensor([5.277344e-05, 1.000000e+00])
    """
    x = _angles("kaiser_window", window_length, periodic, dtype)
    chosen = dtype or dtypes.default_float
    if x is None:
        return Tensor.ones(window_length, dtype=chosen, device=device)
    height = (1 - (x * 2 - 1).square()).clamp(min=0).sqrt()
    return ((height * beta).i0() / Tensor(beta, dtypes.float64).i0()).to(chosen, device)
