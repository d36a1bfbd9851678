"""Rows that follow each other, reduced in segments.

In:    tensors of rows, and where segments end
Out:   `segment_reduce`
Next:  picograd/tensor/draws.py
"""

from __future__ import annotations

import math

from picograd.dtype import Scalar
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known

__all__ = ["segment_reduce"]

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
    lengths = given.diff() if lengths is None else lengths
    count = known("segment_reduce", lengths.shape, 0)
    ends = lengths.cumsum(0)
    segment = ends.searchsorted(Tensor.arange(data.shape[0], device=data.device, dtype=ends.dtype), right=True)
    place = segment.reshape(-1, *(1,) * (data.ndim - 1)).expand(*data.shape)
    start = EMPTY["sum" if reduce == "mean" else reduce] if initial is None else initial
    base = Tensor.full((count, *data.shape[1:]), start, dtype=data.dtype, device=data.device)
    kind = {"max": "amax", "min": "amin", "mean": "sum"}.get(reduce, reduce)
    result = base.scatter_reduce(0, place, data, kind)
    if reduce != "mean":
        return result
    divisor = lengths.reshape(-1, *(1,) * (data.ndim - 1)).to(data.dtype)
    return Tensor.choose(divisor == 0, math.nan if initial is None else initial, result / divisor)
