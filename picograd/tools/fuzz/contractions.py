"""Random products of matrices, convolutions, gathers, scatters, writes of blocks and stored values, with bounds.

In:    a Generator and a value it has made
Out:   a new value, or None where the operation does not apply
Next:  picograd/tools/fuzz/bodies.py
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.ir import build
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.tools.fuzz.generator import LENGTHS, Action, Generator
from picograd.tools.fuzz.values import ADD, EXACT, MAX, MIN, ULP, Value, combined


def matmul(g: Generator, v: Value) -> Value | None:
    """Multiplies by a matrix that fits: one there is, one there is transposed, or a new one."""
    if len(v.shape) < 2 or v.op.dtype.kind == "b":
        return None
    *batch, _, k = v.shape
    others = [
        w for w in g.values
        if w.op.dtype is v.op.dtype and len(w.shape) == len(v.shape) and w.shape[:-1] == (*batch, k)
    ]  # fmt: skip
    swapped = [
        w for w in g.values
        if w.op.dtype is v.op.dtype and len(w.shape) == len(v.shape) and (*w.shape[:-2], w.shape[-1]) == (*batch, k)
    ]  # fmt: skip
    if others and g.chance(0.5):
        b = g.pick(others)
    elif swapped and g.chance(0.6):
        w = g.pick(swapped)
        b = Value(build.swap_last(w.op), w.magnitude, w.error)
    else:
        b = g.param((*batch, k, int(g.pick(LENGTHS))), v.op.dtype)
    magnitude = v.magnitude * b.magnitude * k
    exact = v.exact and b.exact and magnitude <= EXACT.get(v.op.dtype, 1)
    error = k * (v.error * (b.magnitude + b.error) + b.error * v.magnitude)
    error += 0.0 if exact or not v.op.dtype.is_float else magnitude * k * ULP[v.op.dtype]
    magnitude, error = (2e9, 0.0) if v.op.dtype.is_int else (magnitude, error)
    return Value(Op(OpCode.MATMUL, v.op.dtype, (v.op, b.op)), magnitude, error)


def dequantised(g: Generator, v: Value) -> Value | None:
    """Multiplies by a matrix of integers below 16, one or two in a byte: as they are, looked up, or with scales along K."""
    dtype = v.op.dtype
    if len(v.shape) != 2 or not dtype.is_float or dtype.itemsize < 4 or g.is_smooth or 0 in v.shape:
        return None
    n, k = int(g.pick((1, 3, 16, 17, 40))), v.shape[1]
    if k % 2 == 0 and g.chance(0.5):
        codes = _unpacked(g.index((n, k // 2), 256, (dtypes.uint8,)), side_by_side=g.chance(0.5))
    else:
        codes = g.index((n, k), 16, (dtypes.uint8, dtypes.int8))
    matrix = Value(build.cast(codes, dtype), 15.0, 0.0)
    if g.chance(0.3):
        table = g.param((16,), dtype)
        matrix = Value(build.gather(table.op, codes, 0, 0), table.magnitude, 0.0)
    for length in (k, *[length for length in (2, 4, 16) if k % length == 0]):
        if g.chance(0.3):  # a scale or an offset for each row, or for so many elements of one
            groups = (n, k // length, length)
            scale = g.param((n, k // length, 1), dtype)
            repeated = Value(build.expand(scale.op, groups), scale.magnitude, 0.0)
            grouped = Value(build.reshape(matrix.op, groups), matrix.magnitude, 0.0)
            scaled = combined(g.pick((OpCode.MUL, OpCode.SUB)), grouped, repeated)
            assert scaled is not None
            matrix = Value(build.reshape(scaled.op, (n, k)), scaled.magnitude, 0.0)
    magnitude = v.magnitude * matrix.magnitude * k
    exact = v.exact and magnitude <= EXACT[dtype]
    error = k * v.error * matrix.magnitude + (0.0 if exact else magnitude * k * ULP[dtype])
    return Value(Op(OpCode.MATMUL, dtype, (v.op, build.swap_last(matrix.op))), magnitude, error)


def _unpacked(bytes_: Op, side_by_side: bool) -> Op:
    """Returns the low and the high four bits of bytes (N, K): by turns, or half a row apart."""
    n, k = bytes_.shape
    low = Op(OpCode.AND, bytes_.dtype, (bytes_, bytes_.filled(15)))
    high = Op(OpCode.SHR, bytes_.dtype, (bytes_, bytes_.filled(4)))
    shape, axis = ((n, k, 1), 2) if side_by_side else ((n, 1, k), 1)
    parts = [build.reshape(part, shape) for part in (low, high)]
    return build.reshape(build.pad_axis(parts[0], axis, 0, 1) + build.pad_axis(parts[1], axis, 1, 0), (n, 2 * k))


def conv(g: Generator, v: Value) -> Value | None:
    """v as batch, channels and windows, with weights that are a PARAM."""
    dtype = v.op.dtype
    if not 3 <= len(v.shape) <= 5 or 0 in v.shape or dtype.kind == "b" or (dtype.is_float and dtype.itemsize < 4):
        return None
    channels, *lengths = v.shape[1:]
    groups = int(g.pick([count for count in range(1, channels + 1) if channels % count == 0]))
    taps = [int(g.rng.integers(1, min(length, 3) + 1)) for length in lengths]
    weights = g.param((groups * int(g.rng.integers(1, 4)), channels // groups, *taps), dtype)
    few = [int(n) for n in g.rng.integers(1, 3, 3 * len(lengths))]
    stride, dilation, apart = (tuple(few[i :: 3]) for i in range(3))
    span = [(k - 1) * d + 1 for k, d in zip(taps, dilation)]
    short = [max(0, s - (n - 1) * e - 1) for s, n, e in zip(span, lengths, apart)]  # zeros that a window needs
    padding = tuple((least, int(g.rng.integers(0, 2))) for least in short)
    arg = ConvArg(stride, padding, dilation, apart, groups)
    count = channels // groups * math.prod(taps)
    magnitude = v.magnitude * weights.magnitude * count
    error = count * (v.error * (weights.magnitude + weights.error) + weights.error * v.magnitude)
    exact = v.exact and weights.exact and magnitude <= EXACT.get(dtype, 1)
    error += 0.0 if exact or not dtype.is_float else magnitude * count * ULP[dtype]
    magnitude, error = (2e9, 0.0) if dtype.is_int else (magnitude, error)
    return Value(Op(OpCode.CONV, dtype, (v.op, weights.op), arg), magnitude, error)


def gather(g: Generator, v: Value) -> Value | None:
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    batch = int(g.rng.integers(0, axis + 1)) if g.chance(0.5) else 0
    if v.shape[axis] == 0:
        return None
    shape = (*v.shape[:batch], *g.random_shape(20)[:2])
    return Value(build.gather(v.op, g.index(shape, v.shape[axis]), axis, batch), v.magnitude, v.error)


def scatter(g: Generator, v: Value) -> Value | None:
    """Stores or combines updates at random places of an axis."""
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    batch = int(g.rng.integers(0, axis + 1)) if g.chance(0.5) else 0
    if v.shape[axis] == 0:
        return None
    index = g.index((*v.shape[:batch], *g.random_shape(12)[:2]), v.shape[axis])
    shape = (*v.shape[:axis], *index.shape[batch:], *v.shape[axis + 1 :])
    updates = g.param(tuple(int(dim) for dim in shape), v.op.dtype)
    fitting = [w for w in g.values if w.shape == shape and w.op.dtype is v.op.dtype]
    if fitting and g.chance(0.5):
        updates = g.pick(fitting)
    code = g.pick((None, ADD, ADD, MAX, MIN))
    count = index.numel
    magnitude, error = max(v.magnitude, updates.magnitude), max(v.error, updates.error)
    if code is ADD and v.op.dtype.kind != "b":
        magnitude = v.magnitude + updates.magnitude * count
        error = v.error + updates.error * count
        exact = v.exact and updates.exact and magnitude <= EXACT.get(v.op.dtype, 1e9)
        error += 0.0 if exact or not v.op.dtype.is_float else magnitude * count * ULP[v.op.dtype]
    return Value(build.scatter(v.op, index, updates.op, code, axis, batch), magnitude, error)


def store(g: Generator, v: Value) -> Value | None:
    return Value(Op(OpCode.CONTIGUOUS, v.op.dtype, (v.op,)), v.magnitude, v.error)


def positions(g: Generator, v: Value) -> Value | None:
    """Adds the position along an axis."""
    if not v.shape or v.op.dtype.kind == "b":
        return None
    axis = int(g.rng.integers(len(v.shape)))
    count = build.cast(build.positions(v.shape, axis), v.op.dtype)
    return combined(ADD, v, Value(count, float(v.shape[axis]), 0.0))


def update(g: Generator, v: Value) -> Value | None:
    """v with a block written over: where v is a buffer that nobody reads later, in its memory."""
    if not v.shape:
        return None
    starts = [int(g.rng.integers(0, dim + 1)) if g.chance(0.6) else 0 for dim in v.shape]
    stops = [int(g.rng.integers(start, dim + 1)) for start, dim in zip(starts, v.shape)]
    shape = tuple(stop - start for start, stop in zip(starts, stops))
    fitting = [w for w in g.values if w.shape == shape and w.op.dtype is v.op.dtype]
    value = g.pick(fitting) if fitting and g.chance(0.7) else g.param(shape, v.op.dtype)
    margins = tuple((start, dim - stop) for start, stop, dim in zip(starts, stops, v.shape))
    inside = build.pad(filled(True, dtypes.bool_, shape), margins)
    op = build.where(inside, build.pad(value.op, margins), v.op)
    return Value(op, max(v.magnitude, value.magnitude), max(v.error, value.error))


CONTRACTIONS: tuple[Action, ...] = (matmul, matmul, dequantised, conv, conv, gather, scatter, store, positions, update)
