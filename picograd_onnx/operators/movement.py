"""Operators that move elements (shapes, slices, joins, repetition, padding), make constants, or choose elements.

Shapes, axes and bounds are known arrays. Indices are tensors; negative ones count from the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DataError, ShapeError, UnsupportedOp
from picograd.tensor.build import broadcast_shapes
from picograd.tensor.tensor import Tensor
from picograd_onnx.record import Step, of_gaps, of_more, of_one_more, row
from picograd_onnx.values import Array, as_array, choose, counted, dtype_of, element_type, fixed


# ---- constants and shapes ----
def constant(
    *,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Array:
    """Returns the given value."""
    made = [value] if value is not None else []
    made += [np.array(floats, np.float32) for floats in (value_float, value_floats) if floats is not None]
    made += [np.array(ints, np.int64) for ints in (value_int, value_ints) if ints is not None]
    made += [np.array(strings, object) for strings in (value_string, value_strings) if strings is not None]
    if len(made) != 1:
        raise DataError(f"Constant: needs exactly one value, got {len(made)}.")
    return made[0]


def constant_of_shape(shape: Sequence[int], *, value: Array | None = None) -> Tensor:
    """Returns one number repeated in a shape."""
    number = np.zeros(1, np.float32) if value is None else value
    if number.size != 1:
        raise DataError(f"ConstantOfShape: value must have one element, got {number.size}.")
    dtype = dtype_of(element_type(number), "ConstantOfShape")
    return Tensor.full(_lengths("ConstantOfShape", shape), number.reshape(()).item(), dtype=dtype)


def _lengths(function: str, shape: Sequence[int]) -> tuple[int, ...]:
    if any(length < 0 for length in shape):
        raise ShapeError(f"{function}: the lengths of a shape must be >= 0, got {[*shape]}.")
    return tuple(shape)


def shape_of(x: Any, *, start: int = 0, end: int | None = None) -> Array:
    """Returns the shape, or its part from axis `start` to `end`."""
    return np.array([int(n) for n in x.shape][slice(start, end)], np.int64)


def size_of(x: Any) -> Array:
    """Returns the number of elements."""
    return np.array(math.prod(int(n) for n in x.shape), np.int64)


def number_range(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Tensor:
    """Returns the numbers from start to limit in steps of delta; 16-bit floats are computed in float32.

    Raises:
      UnsupportedOp: stash_type asks for another dtype of the computation.
    """
    if not delta:
        raise ArgumentError("Range: delta must not be 0.")
    dtype = dtype_of(element_type(start), "Range")
    if dtype.is_float and dtype.itemsize < 4 and stash_type != TensorProto.FLOAT:
        raise UnsupportedOp(f"Range: stash_type {stash_type} of {dtype} is not supported; 1, float32, is.")
    first, last, step = (number.item() for number in (start, limit, delta))
    steps = (last - first) / step
    if not math.isfinite(steps):
        raise ArgumentError(f"Range: from {first} to {last} in steps of {step} has no finite number of steps.")
    count = max(math.ceil(steps), 0)
    made: Tensor = Tensor.arange(count, dtype=dtype if dtype.is_int else dtype.compute_dtype) * step + first
    return made.to(dtype)


def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """Returns a matrix of the shape of x with ones on a diagonal."""
    if x.ndim != 2:
        raise ShapeError(f"EyeLike: needs two axes, got shape {x.shape}.")
    rows, columns = Tensor.arange(x.shape[0]).unsqueeze(1), Tensor.arange(x.shape[1])
    return (columns - rows).eq(k).to(x.dtype if dtype is None else dtype_of(dtype, "EyeLike"))


# ---- shape ----
def reshape(x: Any, shape: Sequence[int], *, allowzero: int = 0) -> Any:
    """Reshapes x; 0 keeps a length unless allowzero, -1 is inferred."""
    lengths = [*shape]
    if not allowzero:
        for axis, length in enumerate(lengths):
            if length == 0 and axis >= len(x.shape):
                raise ShapeError(f"Reshape: 0 at axis {axis} of {lengths} keeps an axis that shape {x.shape} lacks.")
        lengths = [x.shape[axis] if length == 0 else length for axis, length in enumerate(lengths)]
    return x.reshape(tuple(lengths))


def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """Joins the axes of x before `axis` to one, and the others to one."""
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def squeeze(x: Any, axes: Sequence[int] | None = None) -> Any:
    """Removes axes of length 1."""
    chosen = {axis for axis, n in enumerate(x.shape) if n == 1} if axes is None else {*axes}
    if any(x.shape[axis] != 1 for axis in chosen):
        raise ShapeError(f"Squeeze: axes {sorted(chosen)} of shape {tuple(x.shape)} must have length 1.")
    return x.reshape(tuple(n for axis, n in enumerate(x.shape) if axis not in chosen))


def unsqueeze(x: Any, axes: Sequence[int]) -> Any:
    """Inserts axes of length 1."""
    rest = iter(x.shape)
    return x.reshape(tuple(1 if axis in axes else next(rest) for axis in range(len(x.shape) + len(axes))))


def transpose(x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    """Returns x with its axes in the order `perm`, by default reversed."""
    return x.T if perm is None else x.permute(*perm)


def expand(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Repeats x to its broadcast with a shape."""
    return x.expand(broadcast_shapes("Expand", tuple(x.shape), _lengths("Expand", shape)))


def tile(x: Tensor, repeats: Sequence[int]) -> Tensor:
    """Repeats x along its axes."""
    return x.repeat(*repeats) if x.ndim else x


# ---- pieces and joins ----
def concat(*parts: Any, axis: int = 1) -> Any:
    """Concatenates the parts along an axis."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts, axis)
    return Tensor.cat([*parts], axis)


def split_to(x: Tensor, *, step: Step, axis: int = 0, split: Sequence[int] | None = None) -> tuple[Tensor, ...]:
    """Splits along an axis into pieces of the lengths `split`, or of equal lengths."""
    return _pieces(x, axis, split, len(step.outputs))


def split_by(
    x: Tensor, split: Sequence[int] | None = None, *, step: Step, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """Splits along an axis into pieces of the lengths `split`, or into num_outputs pieces; the last may be shorter."""
    count = len(step.outputs)
    if num_outputs not in (None, count):
        raise ArgumentError(f"Split: num_outputs {num_outputs} must be the number of outputs, {count}.")
    return _pieces(x, axis, split, count)


def split_evenly_or_by(
    x: Tensor, split: Sequence[int] | None = None, *, step: Step, axis: int = 0, num_outputs: int | None = None
) -> tuple[Tensor, ...]:
    """Returns split_by, with exactly one of the lengths and the number of pieces given (since version 18)."""
    if (split is None) == (num_outputs is None):
        raise ArgumentError("Split: needs either split or num_outputs.")
    return split_by(x, split, step=step, axis=axis, num_outputs=num_outputs)


def _pieces(x: Tensor, axis: int, lengths: Sequence[int] | None, count: int) -> tuple[Tensor, ...]:
    if lengths is None:
        whole = x.shape[axis]
        each = -(-whole // count)
        lengths = [max(0, min(each, whole - each * i)) for i in range(count)]
    return x.split([*lengths], axis)


def slice_by(
    x: Any, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """Returns the slice from starts to ends along axes, in steps; bounds are clamped to the axis."""
    ndim = len(x.shape)
    axes = range(len(starts)) if axes is None else axes
    if len({len(starts), len(ends), len(axes), len(axes if steps is None else steps)}) > 1:
        raise ShapeError(f"Slice: starts {[*starts]}, ends {[*ends]} and axes {[*axes]} must be equally many.")
    if len(axes) > ndim:
        raise ShapeError(f"Slice: {len(axes)} starts are more than the axes of shape {tuple(x.shape)}.")
    if steps is not None and 0 in steps:
        raise ArgumentError(f"Slice: steps {[*steps]} must not be 0.")
    subscript = [slice(None)] * ndim
    for number, axis in enumerate(axes):
        step = 1 if steps is None else steps[number]
        length = x.shape[axis]
        start, end = max(_bound(starts[number], length, step), 0), _bound(ends[number], length, step)
        subscript[axis] = slice(start, None if end < 0 else end, step) if length else slice(0, 0)
    return x[tuple(subscript)]


def _bound(bound: int, length: int, step: int) -> int:
    """Returns a nonnegative bound, clamped to the range of a step's sign; -1 is before the first element."""
    bound = bound + length if bound < 0 else bound
    return min(max(bound, 0), length) if step > 0 else min(max(bound, -1), length - 1)


# ---- padding ----
def pad_by(
    x: Tensor, pads: Sequence[int], value: Tensor | None = None, axes: Sequence[int] | None = None, *,
    mode: str = "constant",
) -> Tensor:  # fmt: skip
    """Pads x with a constant, its edge, its mirror image, or its periodic continuation."""
    chosen = range(x.ndim) if axes is None else axes
    if len(pads) != 2 * len(chosen):
        raise ShapeError(f"Pad: {len(pads)} pads must be two for each of {len(chosen)} axes.")
    pairs = [(0, 0)] * x.ndim
    for axis, before, after in zip(chosen, pads, pads[len(chosen) :]):
        pairs[axis] = before, after
    if mode == "constant":
        return _pad_constant(x, pairs, value)
    for axis, pair in enumerate(pairs):
        if pair != (0, 0):
            x = _pad_copied(x, axis, pair, mode)
    return x


def pad_to(x: Tensor, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Returns pad_by with the value as a number (before version 11)."""
    filler = Tensor.full((), value, dtype=x.dtype, device=x.device)
    return pad_by(x, pads, filler, mode=mode)


def _pad_constant(x: Tensor, pairs: Sequence[tuple[int, int]], value: Tensor | None) -> Tensor:
    flat = [n for pair in reversed(pairs) for n in pair]
    if value is None:
        return x.pad(flat)
    inside = Tensor.ones_like(x.detach()).bool().pad(flat)
    return choose(inside, x.pad(flat), value)


def _pad_copied(x: Tensor, axis: int, pair: tuple[int, int], mode: str) -> Tensor:
    """Pads x along one axis with copies of its own elements."""
    length = x.shape[axis]
    if not length and sum(pair) > 0:
        raise ShapeError(f"Pad: axis {axis} of shape {x.shape} has no elements to copy.")
    places = counted("Pad", -pair[0], length + pair[1])
    if mode == "edge":
        places = places.clip(0, length - 1)
    elif mode == "wrap":
        places = places % max(length, 1)
    elif mode == "reflect":
        period = max(2 * (length - 1), 1)
        places = places % period
        places = np.minimum(places, period - places) if length > 1 else places * 0
    else:
        raise ArgumentError(f'Pad: mode must be "constant", "reflect", "edge" or "wrap", got {mode!r}.')
    return x.index_select(axis, fixed(places, x.device))


OPERATORS = [
    row("Constant", 1, constant, hosts=True), row("ConstantOfShape", 9, constant_of_shape, "row"),
    row("Shape", 1, shape_of, hosts=True), row("Size", 1, size_of, hosts=True),
    row("Range", 11, number_range, "scalar scalar scalar"), row("EyeLike", 9, eye_like, "2"),
    row("Reshape", 1, reshape), row("Reshape", 5, reshape, "x row", hosts=True), row("Flatten", 1, flatten, span=of_gaps),
    row("Squeeze", 1, squeeze, hosts=True), row("Squeeze", 13, squeeze, "x axes", hosts=True),
    row("Unsqueeze", 1, unsqueeze, span=of_more, hosts=True),
    row("Unsqueeze", 13, unsqueeze, "x axes", of_more, hosts=True),
    row("Transpose", 1, transpose), row("Expand", 8, expand, "x row"), row("Tile", 6, tile, "x each"),
    row("Concat", 1, concat, hosts=True), row("Split", 1, split_to), row("Split", 13, split_by, "x row"),
    row("Split", 18, split_evenly_or_by, "x row"),
    row("Slice", 1, slice_by, hosts=True), row("Slice", 10, slice_by, "x row row axes row", hosts=True),
    row("Pad", 2, pad_to), row("Pad", 11, pad_by, "x row single axes"),
]  # fmt: skip


# ---- elements by index, read ----
def gather(x: Any, indices: Any, *, axis: int = 0) -> Any:
    """Returns the elements of x at indices of one axis; the axes of `indices` replace it."""
    if isinstance(x, np.ndarray):
        return x.take(as_array(indices), axis)
    return x[(slice(None),) * axis + (indices,)]


def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    """Returns the elements of x at the positions of `indices`, with the index along one axis replaced by its value."""
    return x.gather(axis, _from_start(indices, x.shape[axis]))


def _from_start(indices: Tensor, length: int) -> Tensor:
    return choose(indices < 0, indices + length, indices)


def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    """Returns the elements of x at multi-indices, which are along the last axis of `indices`."""
    return x[_places(x, indices, batch_dims)]


def _places(x: Tensor, indices: Tensor, batch_dims: int = 0) -> tuple[Tensor, ...]:
    """Returns an index tensor for each component of the multi-indices along the last axis of `indices`."""
    depth = indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or depth + batch_dims > x.ndim:
        raise ShapeError(f"indices of shape {indices.shape} name {depth} axes of shape {x.shape}.")
    rows = indices.shape[:-1]
    batch = tuple(_counted(rows, axis, indices.device) for axis in range(batch_dims))
    return batch + tuple(indices[..., number] for number in range(depth))


def compress(x: Tensor, condition: Array, *, axis: int | None = None) -> Tensor:
    """Returns the elements, or the slices along an axis, whose condition is true."""
    x, along = (x.reshape(-1), 0) if axis is None else (x, axis)
    chosen = np.flatnonzero(condition)
    return x.index_select(along, fixed(chosen, x.device))


def nonzero(x: Tensor) -> Tensor:
    """Returns the positions of nonzero elements: a row for each axis."""
    places: Tensor = x.nonzero()
    return places.T


def one_hot(indices: Tensor, depth: float, values: Tensor, *, axis: int = -1) -> Tensor:
    """Returns values[1] if an index equals its position along a new axis, else values[0]; -1 is the last position."""
    count = int(depth)
    if values.shape != (2,):
        raise ShapeError(f"OneHot: values must be two, got shape {values.shape}.")
    places = Tensor.arange(count, device=indices.device).reshape(-1, *(1,) * (indices.ndim - axis))
    whole = indices.long() if indices.dtype.is_int else indices.trunc().long()
    return choose(_from_start(whole, count).unsqueeze(axis).eq(places), values[1], values[0])


def trilu(x: Tensor, k: int | None = None, *, upper: int = 1) -> Tensor:
    """Returns x with zeros below, or above, the diagonal k."""
    return x.triu(k or 0) if upper else x.tril(k or 0)


def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    """Reverses the first lengths[b] elements along the time axis of each batch b."""
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
    """Returns the unique elements, or slices along an axis; the first position, the inverse indices and the counts."""
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
    """Returns x with `updates` written at these indices of one axis, or combined with the elements there."""
    places = _from_start(indices, x.shape[axis]).long()
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _way("ScatterElements", reduction))


def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    """Returns x with `updates` written, or combined, at multi-indices along the last axis of `indices`."""
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
    """Returns the index along an axis at each position of a shape."""
    return Tensor.arange(shape[axis], device=device).reshape(-1, *(1,) * (len(shape) - axis - 1)).expand(shape)


OPERATORS += [
    row("Gather", 1, gather, hosts=True), row("GatherElements", 11, gather_elements, "1+ like"),
    row("GatherND", 11, gather_nd, "1+ 1+"), row("Compress", 9, compress, "x 1!"), row("NonZero", 9, nonzero),
    row("OneHot", 9, one_hot, "x one 1", of_one_more), row("Trilu", 14, trilu, "2+ one"),
    row("ReverseSequence", 10, reverse_sequence, "2+ 1"), row("Unique", 11, unique, "x!"),
    row("Scatter", 9, scatter_elements, "1+ like like"), row("ScatterElements", 11, scatter_elements, "1+ like like"),
    row("ScatterND", 11, scatter_nd, "1+ 1+ x"),
]  # fmt: skip
