"""Functions of places: slopes between points of a grid, indices along several axes, counts in boxes, sums of segments.

In:    tensors
Out:   `gradient`, `unravel_index`, `histogramdd`, `segment_reduce`; `real`, `to_dlpack`
Next:  picograd/tensor/draws.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.tensor.build import INTS, axes_of, axis_of, whole
from picograd.tensor.products.matmul import tensor_of
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known


# ---- slopes ----
def gradient(
    input: Tensor,  # noqa: A002
    *,
    spacing: float | Sequence[float | Tensor] = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Returns along each axis the slope of a function whose values at the points of a grid are given.

    Inside, that of the parabola through a point and its neighbours; at the edges that of a line, or with edge_order=2 of a
    parabola, through the points there.

    Args:
      input:       the values
      spacing:     the distance of points: a number, one for each axis, or for each axis a vector of coordinates
      dim:         an axis or several; None: all
      edge_order:  1 or 2

    Raises:
      ArgumentError: another edge_order, an axis twice, or spacings for another number of axes.
      ShapeError:    an axis has fewer than edge_order + 1 points, or another number of coordinates.

    >>> gradient(Tensor([1.0, 2.0, 4.0, 7.0]))[0]
    Tensor([1. , 1.5, 2.5, 3. ])
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order!r}.")
    if dim is None or isinstance(dim, INTS):
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
    """Returns the slopes at all points but the first and the last."""
    before, after = steps[:-1], steps[1:]
    rising = (line[..., 2:] - line[..., 1:-1]) * before / after
    return (rising + (line[..., 1:-1] - line[..., :-2]) * after / before) / (before + after)


def _parabola(three: Tensor, before: Tensor, after: Tensor, side: int) -> Tensor:
    """Returns the slope of the parabola through three points, at the first (side = -1) or the last (1)."""
    first = (three[..., 1:2] - three[..., :1]) / before
    second = (three[..., 2:] - three[..., 1:2]) / after
    curve = (second - first) / (before + after)
    return first - curve * before if side < 0 else second + curve * after


# ---- indices and counts ----
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Returns the index along each axis of places in a flattened tensor of `shape`.

    Args:
      indices:  integers of any shape
      shape:    lengths of the axes

    Raises:
      DTypeError:    indices are no integers.
      ArgumentError: a length is negative.

    >>> [index.tolist() for index in unravel_index(Tensor([4, 5]), (2, 3))]
    [[1, 1], [1, 2]]
    """
    lengths = [whole("unravel_index", "shape", length) for length in ([shape] if isinstance(shape, INTS) else shape)]
    if not indices.dtype.is_int:
        raise DTypeError(f"unravel_index: indices must be integers, got {indices.dtype}.", hint="indices.long()")
    if any(length < 0 for length in lengths):
        raise ArgumentError(f"unravel_index: lengths must not be negative, got {tuple(lengths)}.")
    flat = indices.long()
    return tuple(flat // math.prod(lengths[axis + 1 :]) % length for axis, length in enumerate(lengths))


class HistogramDD(NamedTuple):
    """Counts, with an axis for each column, and the edges along each."""

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
    """Returns how many points lie in each box of a grid, and the edges of its boxes; points outside are left out.

    Args:
      input:    (N, D) floats: N points
      bins:     a number of boxes along each axis, a list of D numbers, or of D vectors of edges in rising order
      range:    2 D numbers: where the boxes begin and end along each axis; default: the least and the greatest value
      weight:   (N,) what each point counts
      density:  divide by volume and total

    Raises:
      ShapeError:    input is not (N, D), or weight not (N,).
      ArgumentError: bins or range for another number of axes.

    >>> histogramdd(Tensor([[0.0, 0.0], [1.0, 3.0]]), [2, 1]).hist.tolist()
    [[1.0], [1.0]]
    """
    if input.ndim != 2:
        raise ShapeError(f"histogramdd: needs points (N, D), got shape {input.shape}.")
    columns = known("histogramdd", input.shape, 1)
    each = [bins] * columns if isinstance(bins, INTS) else list(bins)
    if len(each) != columns or (range is not None and len(range) != 2 * columns):
        raise ArgumentError(f"histogramdd: points of {columns} axes need {columns} bins and {2 * columns} ends of ranges.")
    if weight is not None and weight.shape != input.shape[:1]:
        raise ShapeError(f"histogramdd: weight must be ({input.shape[0]},), got {weight.shape}.")
    points, counted = input.detach(), Tensor.ones(input.shape[0], dtype=input.dtype, device=input.device)
    counted = counted if weight is None else weight.detach().to(input.dtype)
    edges, place = [], Tensor.zeros(input.shape[0], dtype=dtypes.int64, device=input.device)
    for axis, kind in enumerate(each):
        ends = None if range is None else range[2 * axis : 2 * axis + 2]
        edge = points[:, axis].contiguous().histogram(kind, range=ends).bin_edges
        count = known("histogramdd", edge.shape, 0) - 1
        column = points[:, axis].contiguous()
        found = edge.searchsorted(column, right=True) - 1
        found = Tensor.choose(column == edge[-1], count - 1, found)
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


# ---- segments ----
EMPTY = {"sum": 0.0, "mean": math.nan, "max": -math.inf, "min": math.inf, "prod": 1.0}  # what no elements amount to


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
    """Returns the rows of `data` reduced in segments that follow each other: (S, ...).

    Args:
      data:     (N, ...) floats
      reduce:   "sum", "mean", "max", "min" or "prod"
      lengths:  (S,) of the segments; they add up to N
      offsets:  (S + 1,) in place of lengths: where each segment begins, and N
      axis:     0
      unsafe:   changes nothing: lengths that exceed N are never read beyond
      initial:  what each segment begins with

    Raises:
      ArgumentError: another reduce or axis, or not just one of lengths and offsets.
      ShapeError:    lengths or offsets are no vector, or data has no axes.
      IndexingError: when it is computed: rows are left behind the last segment.

    >>> segment_reduce(Tensor([1.0, 2.0, 4.0]), "sum", lengths=Tensor([1, 2]))
    Tensor([1., 6.])
    """
    if reduce not in EMPTY:
        raise ArgumentError(f"segment_reduce: reduce must be one of {', '.join(EMPTY)}, got {reduce!r}.")
    if axis != 0 or (lengths is None) == (offsets is None):
        raise ArgumentError("segment_reduce: needs axis=0, and lengths or offsets.")
    given = offsets if lengths is None else lengths
    assert given is not None
    if given.ndim != 1 or not data.ndim:
        raise ShapeError(f"segment_reduce: needs rows of data and a vector, got shapes {data.shape} and {given.shape}.")
    sizes = given.diff() if lengths is None else lengths
    count = known("segment_reduce", sizes.shape, 0)
    ends = sizes.cumsum(0)
    segment = ends.searchsorted(Tensor.arange(data.shape[0], device=data.device, dtype=ends.dtype), right=True)
    place = segment.reshape(-1, *(1,) * (data.ndim - 1)).expand(*data.shape)
    start = EMPTY["sum" if reduce == "mean" else reduce] if initial is None else initial
    base = Tensor.full((count, *data.shape[1:]), start, dtype=data.dtype, device=data.device)
    kind = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    result = base.scatter_reduce(0, place, data, kind)
    if reduce != "mean":
        return result
    divisor = sizes.reshape(-1, *(1,) * (data.ndim - 1)).to(data.dtype)
    return Tensor.choose(divisor == 0, math.nan if initial is None else initial, result / divisor)


# ---- other names ----
def real(input: Tensor) -> Tensor:  # noqa: A002
    """Returns `input` itself: there are no complex numbers.

    >>> x = Tensor([1.0])
    >>> real(x) is x
    True
    """
    return tensor_of("real", "input", input)  # type: ignore[return-value]  # it is no other kind of tensor


def to_dlpack(tensor: Tensor) -> Any:
    """Returns a DLPack capsule on the memory of `tensor`, for libraries that take no object with __dlpack__.

    >>> to_dlpack(Tensor([1.0])).__class__.__name__
    'PyCapsule'
    """
    return tensor.__dlpack__()
