"""Operators that choose elements by index, and that write elements at indices.

In:    tensors; indices as tensors, negative ones counted from the end
Out:   `OPERATORS`
Next:  picograd/onnx/operators/casts.py
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.onnx.kinds import of_one_more
from picograd.onnx.record import row
from picograd.onnx.values import Array, as_array, choose, fixed
from picograd.tensor.tensor import Tensor

# ---- reading ----


def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """Returns x at indices of one axis, whose place their axes take."""
    if isinstance(x, np.ndarray):
        return x.take(as_array(indices), axis)
    return x[(slice(None),) * axis + (indices,)]


def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Returns for each place of `indices` the element of x there, but at this index of one axis."""
    return x.gather(axis, _from_start(indices, x.shape[axis]))


def _from_start(indices: Tensor, length: int) -> Tensor:
    return choose(indices < 0, indices + length, indices)


def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Returns x at places whose indices stand along the last axis of `indices`."""
    return x[_places(x, indices, batch_dims)]


def _places(x: Tensor, indices: Tensor, batch_dims: int = 0) -> tuple[Tensor, ...]:
    """Returns an index tensor for each of the axes that the last axis of `indices` names."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or depth + batch_dims > x.ndim:
        raise ShapeError(f"indices of shape {indices.shape} name {depth} axes of shape {x.shape}.")
    rows = indices.shape[:-1]
    batch = tuple(_counted(rows, axis, indices.device) for axis in range(batch_dims))
    return batch + tuple(indices[..., number] for number in range(depth))


def compress(x: Tensor, condition: Array, *, axis: int | None = None) -> Tensor:
    """Returns the elements, or the slices along an axis, for which the condition holds."""
    x, along = (x.reshape(-1), 0) if axis is None else (x, axis)
    chosen = np.flatnonzero(condition)
    return x.index_select(along, fixed(chosen, x.device))


def nonzero(x: Tensor) -> Tensor:
    """Returns the places of what is not zero: a row for each axis."""
    places: Tensor = x.nonzero()
    return places.T


def one_hot(indices: Tensor, depth: float, values: Tensor, *, axis: int = -1) -> Tensor:
    """Returns values[1] where an index equals its place along a new axis, else values[0]; -1 is the last place."""
    count = int(depth)
    if values.shape != (2,):
        raise ShapeError(f"OneHot: values must be two, got shape {values.shape}.")
    places = Tensor.arange(count, device=indices.device).reshape(-1, *(1,) * (indices.ndim - axis))
    whole = indices.long() if indices.dtype.is_int else indices.trunc().long()
    return choose(_from_start(whole, count).unsqueeze(axis).eq(places), values[1], values[0])


def trilu(x: Tensor, k: int | None = None, *, upper: int = 1) -> Tensor:
    """Returns x with 0 below, or above, the diagonal k."""
    return x.triu(k or 0) if upper else x.tril(k or 0)


def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """Returns x with the first lengths[b] elements along the time axis of each batch in reverse order."""
    if {batch_axis, time_axis} != {0, 1} or lengths.shape != (x.shape[batch_axis],):
        axes = f"batch_axis {batch_axis} and time_axis {time_axis}"
        raise ShapeError(f"ReverseSequence: {axes} with lengths of shape {lengths.shape} do not fit shape {x.shape}.")
    steps = x.shape[time_axis]
    places = Tensor.arange(steps, device=x.device).reshape(-1, 1)
    mirrored = choose(places < lengths, lengths - 1 - places, places)  # (time, batch)
    mirrored = mirrored if time_axis < batch_axis else mirrored.T
    shape = [x.shape[axis] if axis in (batch_axis, time_axis) else 1 for axis in range(x.ndim)]
    return x.gather(time_axis, mirrored.reshape(shape).expand(x.shape))


def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, ...]:  # noqa: A002
    """Returns the different elements, or slices along an axis; where each first stands; which each is; how often."""
    values, first, which, counts = np.unique(x, True, True, True, axis=axis)
    which = which.reshape(-1)
    if not sorted:
        order = np.argsort(first)
        values, first, counts = values.take(order, axis or 0), first[order], counts[order]
        which = np.argsort(order)[which]
    return values, first.astype(np.int64), which.astype(np.int64), counts.astype(np.int64)


# ---- writing ----
WAYS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Returns x with `updates` written at these indices of one axis, or combined with what stands there."""
    places = _from_start(indices, x.shape[axis]).long()
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _way("ScatterElements", reduction))


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Returns x with `updates` written, or combined, at places whose indices stand along the last axis of `indices`."""
    places = _places(x, indices)
    if reduction == "none":
        result = x.clone()
        result[places] = updates
        return result
    count = math.prod(x.shape[len(places) :])
    number = Tensor.zeros(indices.shape[:-1], dtype=dtypes.int64, device=x.device)
    for axis, place in enumerate(places):
        number = number * x.shape[axis] + _from_start(place, x.shape[axis])
    rows = number.reshape(-1, 1).expand(-1, count)
    combined = x.reshape(-1, count).scatter_reduce(0, rows, updates.reshape(-1, count), _way("ScatterND", reduction))
    return combined.reshape(x.shape)


def _way(function: str, reduction: str) -> str:
    if reduction not in WAYS:
        raise ArgumentError(f'{function}: reduction must be "none", "add", "mul", "max" or "min", got {reduction!r}.')
    return WAYS[reduction]


def _counted(shape: tuple[int, ...], axis: int, device: str) -> Tensor:
    """Returns for each place of a shape where along an axis it stands."""
    return Tensor.arange(shape[axis], device=device).reshape(-1, *(1,) * (len(shape) - axis - 1)).expand(shape)


OPERATORS = [
    row("Gather", 1, gather, hosts=True), row("GatherElements", 11, gather_elements, "1+ like"),
    row("GatherND", 11, gather_nd, "1+ 1+"), row("Compress", 9, compress, "x 1!"), row("NonZero", 9, nonzero),
    row("OneHot", 9, one_hot, "x one 1", of_one_more), row("Trilu", 14, trilu, "2+ one"),
    row("ReverseSequence", 10, reverse_sequence, "2+ 1"), row("Unique", 11, unique, "x!"),
    row("Scatter", 9, scatter_elements, "1+ like like"), row("ScatterElements", 11, scatter_elements, "1+ like like"),
    row("ScatterND", 11, scatter_nd, "1+ 1+ x"),
]  # fmt: skip
