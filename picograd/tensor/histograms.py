"""Counts of points in the boxes of a grid. Those of numbers between edges are methods, in reductions/counts.py.

In:    tensors of points
Out:   `histogramdd`
Next:  picograd/tensor/segments.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.build import INTS
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known

__all__ = ["histogramdd"]


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
    ends = [None if range is None else range[2 * axis : 2 * axis + 2] for axis, _ in enumerate(each)]
    counted = Tensor.ones(input.shape[0], dtype=input.dtype, device=input.device)
    counted = counted if weight is None else weight.detach().to(input.dtype)
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
    """Returns the edges along one axis, and in which box each coordinate lies; the last box holds its end, too."""
    edge = column.histogram(bins, range=ends).bin_edges
    found = edge.searchsorted(column, right=True) - 1
    return edge, Tensor.choose(column == edge[-1], known("histogramdd", edge.shape, 0) - 2, found)
