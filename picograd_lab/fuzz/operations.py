"""Random operations with bounds: each takes a Generator and one of its values, and returns a new value or None.

None means that the operation does not apply. In order: elementwise operations; movement; reductions, normalizations,
scans and sorts; matrix products, convolutions, gathers, scatters, writes of blocks and stored values.
"""

from __future__ import annotations

import math

import numpy as np

from picograd import dtype as dtypes
from picograd.ir import build
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd_lab.fuzz.values import ADD, EXACT, LENGTHS, MAX, MIN, MUL, ULP, Action, Generator, Value, combined

# ---- elementwise ----
FUNCTIONS = {  # opcode -> (bound on the result's magnitude, bound on the derivative) for |x| <= 4
    OpCode.EXP: (55.0, 55.0), OpCode.EXP2: (16.0, 12.0), OpCode.SIN: (1.0, 1.0), OpCode.COS: (1.0, 1.0),
    OpCode.TANH: (1.0, 1.0), OpCode.ERF: (1.0, 1.2),
}  # fmt: skip


def binary(g: Generator, v: Value) -> Value | None:
    other = g.partner(v)
    a, b = (v, other) if g.chance(0.5) else (other, v)
    return combined(g.pick((ADD, ADD, OpCode.SUB, MUL, MUL, MAX, MIN)), a, b)


def divide(g: Generator, v: Value) -> Value | None:
    """v / (w * w + 2), whose denominator is at least 2."""
    if v.op.dtype is not dtypes.float32 and v.op.dtype is not dtypes.float64:
        return None
    w = g.partner(v)
    if w.magnitude > 100:
        return None
    square = combined(MUL, w, w)
    assert square is not None
    below = combined(ADD, square, Value(filled(2.0, v.op.dtype, v.shape), 2.0, 0.0))
    assert below is not None
    error = v.error / 2 + v.magnitude * below.error / 4 + v.magnitude * ULP[v.op.dtype]
    return Value(v.op / below.op, v.magnitude / 2, error)


def integer_divide(g: Generator, v: Value) -> Value | None:
    if not v.op.dtype.is_int:
        return None
    code = g.pick((OpCode.IDIV, OpCode.MOD))
    if g.chance(0.5):
        low = -5 if v.op.dtype.kind == "i" else 1
        return Value(Op(code, v.op.dtype, (v.op, filled(int(g.rng.integers(low, 9)), v.op.dtype, v.shape))), v.magnitude, 0)
    return Value(Op(code, v.op.dtype, (v.op, g.partner(v).op)), v.magnitude, 0.0)


def bits(g: Generator, v: Value) -> Value | None:
    if v.op.dtype.kind not in "biu":
        return None
    if v.op.dtype.is_int and g.chance(0.4):
        code = g.pick((OpCode.SHL, OpCode.SHR))
        return Value(Op(code, v.op.dtype, (v.op, filled(int(g.rng.integers(0, 9)), v.op.dtype, v.shape))), 2e9, 0.0)
    code = g.pick((OpCode.AND, OpCode.OR, OpCode.XOR))
    return Value(Op(code, v.op.dtype, (v.op, g.partner(v).op)), 2e9, 0.0)


def unary(g: Generator, v: Value) -> Value | None:
    """Applies a function of one operand, if its error stays bounded."""
    dtype = v.op.dtype
    if dtype.kind == "b":
        return None
    if g.chance(0.5) or dtype not in (dtypes.float32, dtypes.float64):
        return Value(-v.op, v.magnitude, v.error)
    if v.exact and g.chance(0.5):
        halves = v.op * 0.5
        return Value(Op(OpCode.FLOOR, dtype, (halves,)), v.magnitude / 2 + 1, 0.0)
    if v.magnitude > 4:
        return None
    code = g.pick(tuple(FUNCTIONS))
    magnitude, slope = FUNCTIONS[code]
    own = 4 * ULP[dtype] * magnitude
    return Value(build.unary(code, v.op), magnitude, v.error * slope * 1.1 + own)


def root(g: Generator, v: Value) -> Value | None:
    """A root, logarithm, reciprocal or power of v * v + 1."""
    if v.op.dtype not in (dtypes.float32, dtypes.float64) or v.magnitude > 100:
        return None
    square = combined(MUL, v, v)
    assert square is not None
    above = combined(ADD, square, Value(filled(1.0, v.op.dtype, v.shape), 1.0, 0.0))
    assert above is not None
    if g.chance(0.2):
        exponent = float(g.pick((0.3, -0.7, -1.5, 0.5)))
        power = Op(OpCode.POW, v.op.dtype, (above.op, filled(exponent, v.op.dtype, v.shape)))
        return Value(power, max(1.0, v.magnitude + 1), above.error * 1.5 + 8 * ULP[v.op.dtype] * (v.magnitude + 1))
    code = g.pick((OpCode.SQRT, OpCode.LOG, OpCode.LOG2, OpCode.RECIPROCAL))
    return Value(build.unary(code, above.op), max(1.0, v.magnitude + 4), above.error * 1.5 + 20 * ULP[v.op.dtype])


def choose(g: Generator, v: Value) -> Value | None:
    """Compares two exact values, and selects by the result."""
    if not v.exact:
        return None
    code = g.pick((OpCode.CMPLT, OpCode.CMPLE, OpCode.CMPEQ, OpCode.CMPNE))
    other = g.partner(v)
    if not other.exact:
        return None
    condition = build.compare(code, v.op, other.op)
    if g.chance(0.3):
        return Value(condition, 1.0, 0.0)
    a = g.pick([w for w in g.values if w.shape == v.shape])
    b = g.partner(a)
    return Value(build.where(condition, a.op, b.op), max(a.magnitude, b.magnitude), max(a.error, b.error))


def convert(g: Generator, v: Value) -> Value | None:
    """Casts to another dtype that can represent the value."""
    target = g.pick((*g.dtypes, dtypes.float32))
    if not v.exact and (target.kind != "f" or (target.itemsize < 4)):
        return None
    if g.is_smooth and target is dtypes.float32:
        return None  # its floats are farther apart than a central difference's step
    if target.is_float and v.magnitude > EXACT[target]:
        return None
    if target.is_int and v.op.dtype.is_float and (target.kind == "u" or v.magnitude > 120):
        return None
    error = v.error + (v.magnitude * ULP[target] if target.is_float and not v.exact else 0.0)
    magnitude = max(1.0, v.magnitude) if target.is_float else 2e9 * (target.bits > 8) + 255
    return Value(build.cast(v.op, target), magnitude, error)


def fused(g: Generator, v: Value) -> Value | None:
    """v * w + u with one rounding."""
    if v.op.dtype not in (dtypes.float32, dtypes.float64):
        return None
    w, u = g.partner(v), g.partner(v)
    product = combined(MUL, v, w)
    assert product is not None
    total = combined(ADD, product, u)
    assert total is not None
    return Value(Op(OpCode.FMA, v.op.dtype, (v.op, w.op, u.op)), total.magnitude, total.error)


def other_bits(g: Generator, v: Value) -> Value | None:
    """The bits of an exact float as an integer of the same width."""
    if not v.exact or v.op.dtype not in (dtypes.float32, dtypes.float64):
        return None
    target = dtypes.int32 if v.op.dtype is dtypes.float32 else dtypes.int64
    positive = v.op + 0.0  # MAX may return 0.0 or -0.0, whose bits differ
    return Value(Op(OpCode.BITCAST, target, (positive,)), 2e9, 0.0)


def random_bits(g: Generator, v: Value) -> Value | None:
    """Random bits of a counter and a key."""
    if not v.exact or v.op.dtype.kind == "b" or (v.op.dtype.is_float and v.magnitude > 100):
        return None
    counter = build.cast(build.cast(v.op, dtypes.int64), dtypes.uint64)
    key = filled(int(g.rng.integers(1 << 62)), dtypes.uint64, v.shape)
    return Value(Op(OpCode.THREEFRY, dtypes.uint64, (counter, key)), 2e19, 0.0)


def cut(g: Generator, v: Value) -> Value | None:
    """v without its gradient; not in smooth graphs, where a slope would differ from the gradient."""
    return None if g.is_smooth else Value(Op(OpCode.DETACH, v.op.dtype, (v.op,)), v.magnitude, v.error)


ELEMENTWISE: tuple[Action, ...] = (
    binary, binary, binary, binary, divide, integer_divide, bits, unary, unary, root, fused, choose, choose, convert,
    other_bits, random_bits, cut,
)  # fmt: skip


# ---- movement ----
def move(g: Generator, v: Value) -> Value | None:
    return Value(moved(g, v.op), v.magnitude, v.error)


def moved(g: Generator, op: Op) -> Op:
    """Applies one random movement."""
    shape = [int(dim) for dim in op.shape]
    kind = g.pick(("reshape", "reshape", "permute", "permute", "expand", "pad", "shrink", "flip"))
    if kind == "reshape":
        return build.reshape(op, reshaped(g, shape))
    if not shape:
        return build.expand(op, (int(g.pick(LENGTHS)),))
    if kind == "permute":
        return build.permute(op, tuple(int(a) for a in g.rng.permutation(len(shape))))
    if kind == "expand":
        return build.expand(op, tuple(int(g.pick(LENGTHS)) if dim == 1 else dim for dim in shape))
    if kind == "pad":
        return build.pad(op, tuple((int(g.rng.integers(0, 3)), int(g.rng.integers(0, 3))) for _ in shape))
    if kind == "shrink":
        bounds = []
        for dim in shape:
            start = int(g.rng.integers(0, dim + 1)) if g.chance(0.5) else 0
            stop = int(g.rng.integers(start, dim + 1)) if g.chance(0.5) else dim
            bounds.append((start, stop) if stop > start or g.chance(0.02) else (0, dim))
        return build.shrink(op, tuple(bounds))
    return build.flip(op, tuple(a for a in range(len(shape)) if g.chance(0.5)))


def reshaped(g: Generator, shape: list[int]) -> tuple[int, ...]:
    """Joins adjacent axes, splits an axis, or inserts and removes axes of length 1."""
    new = list(shape)
    for _ in range(int(g.rng.integers(1, 4))):
        at = int(g.rng.integers(0, len(new) + 1))
        kind = g.pick(("one", "merge", "split", "drop"))
        if kind == "one" and len(new) < 5:
            new.insert(at, 1)
        elif kind == "merge" and at + 1 < len(new):
            new[at : at + 2] = [new[at] * new[at + 1]]
        elif kind == "split" and at < len(new) and len(new) < 5:
            factors = [f for f in range(2, new[at]) if new[at] % f == 0]
            if factors:
                factor = int(g.pick(factors))
                new[at : at + 1] = [new[at] // factor, factor]
        elif kind == "drop" and at < len(new) and new[at] == 1:
            del new[at]
    return tuple(new)


MOVEMENT: tuple[Action, ...] = (move, move, move, move)


# ---- reductions, scans and sorts ----
def random_axes(g: Generator, rank: int) -> tuple[int, ...]:
    kind = g.pick(("last", "first", "all", "some", "some"))
    if kind == "last":
        return (rank - 1,)
    if kind == "first":
        return (0,)
    if kind == "all":
        return tuple(range(rank))
    chosen = tuple(a for a in range(rank) if g.chance(0.5))
    return chosen or (int(g.rng.integers(rank)),)


def reduce(g: Generator, v: Value) -> Value | None:
    """Reduces some axes; they may stay with length 1."""
    if not v.shape:
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    code = g.pick((ADD, ADD, ADD, MAX, MIN, MUL))
    if code in (MAX, MIN) and count == 0:
        return None
    if code is MUL and v.op.dtype.is_float and (v.magnitude > 4 or count > 3):
        return None
    if code is ADD:
        magnitude, error = v.magnitude * count, v.error * count
        error += 0.0 if v.exact and magnitude <= EXACT.get(v.op.dtype, 1) else magnitude * count * ULP.get(v.op.dtype, 0.0)
    elif code is MUL and v.op.dtype.is_float:
        magnitude = max(1.0, v.magnitude) ** count
        error = 0.0 if v.exact else count * magnitude * (v.error + ULP.get(v.op.dtype, 0.0))
    else:
        magnitude, error = v.magnitude, v.error
    if v.op.dtype.is_int:
        magnitude, error = 2e9, 0.0
    op = build.reduce(v.op, code, axes)
    if g.chance(0.6):
        op = build.reshape(op, tuple(1 if a in axes else dim for a, dim in enumerate(v.shape)))
    return Value(op, magnitude, error)


def normalise(g: Generator, v: Value) -> Value | None:
    """A reduction along axes, broadcast back and combined with the elements, as in softmax and norms."""
    if not v.shape or v.op.dtype.kind == "b":
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    code = g.pick((ADD, MAX, MIN))
    if count == 0:
        return None
    magnitude = v.magnitude * (count if code is ADD else 1)
    exact = v.exact and magnitude <= EXACT.get(v.op.dtype, 1e9)
    error = v.error * (count if code is ADD else 1)
    error += 0.0 if exact or code is not ADD else magnitude * count * ULP.get(v.op.dtype, 0.0)
    row = build.repeat_axes(build.reduce(v.op, code, axes), axes, v.shape)
    return combined(g.pick((ADD, OpCode.SUB, MAX, MUL)), v, Value(row, magnitude, error))


def softmax(g: Generator, v: Value) -> Value | None:
    """exp(x - max) / sum: three levels of passes over the same rows."""
    if v.op.dtype not in (dtypes.float32, dtypes.float64) or not v.shape or v.magnitude > 30 or 0 in v.shape:
        return None
    axes = random_axes(g, len(v.shape))
    count = int(np.prod([v.shape[a] for a in axes]))
    top = build.repeat_axes(build.reduce(v.op, MAX, axes), axes, v.shape)
    e = build.unary(OpCode.EXP, v.op - top)
    total = build.repeat_axes(build.reduce(e, ADD, axes), axes, v.shape)
    return Value(e / total, 1.0, (4 * v.error + 16 * ULP[v.op.dtype] * (1 + v.magnitude)) * 2 + count * ULP[v.op.dtype])


def scan(g: Generator, v: Value) -> Value | None:
    """A cumulative sum or extreme along an axis."""
    if not v.shape:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    count = int(v.shape[axis])
    code = g.pick((ADD, ADD, MAX, MIN))
    magnitude, error = (v.magnitude * count, v.error * count) if code is ADD else (v.magnitude, v.error)
    if code is ADD and v.op.dtype.is_float and not (v.exact and magnitude <= EXACT[v.op.dtype]):
        error += magnitude * count * ULP[v.op.dtype]
    if v.op.dtype.is_int:
        magnitude, error = 2e9, 0.0
    return Value(build.scan(v.op, code, axis), magnitude, error)


def sort(g: Generator, v: Value) -> Value | None:
    """The order of exact values, its first positions, or some ranks; an error could change the order of others."""
    if not v.shape or not v.exact:
        return None
    axis = int(g.rng.integers(len(v.shape)))
    length = int(v.shape[axis])
    count, kind = int(g.rng.integers(1, length + 1)) if length else 0, g.pick((0, 1, 2))
    sources, arg = [v.op], [axis, g.chance(0.5)]
    if kind == 1:
        arg.append(count)
    elif kind == 2 and length:
        shape = (*v.shape[:axis], count, *v.shape[axis + 1 :])
        sources.append(build.positions(shape, axis) * int(g.rng.integers(1, 3)))
    return Value(Op(OpCode.SORT, dtypes.int64, tuple(sources), tuple(arg)), float(length), 0.0)


AXES: tuple[Action, ...] = (reduce, reduce, reduce, normalise, normalise, softmax, scan, sort)


# ---- products, gathers, scatters, writes ----
def matmul(g: Generator, v: Value) -> Value | None:
    """Multiplies by a fitting matrix: an earlier value, a transposed one, or a new one."""
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
    """Multiplies by a matrix of integers below 16, one or two per byte: plain, by a table, or with scales along K."""
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
        if g.chance(0.3):  # a scale or an offset for each row, or for groups of its elements
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
    """Returns the low and the high four bits of bytes (N, K), interleaved or half a row apart."""
    n, k = bytes_.shape
    low = Op(OpCode.AND, bytes_.dtype, (bytes_, bytes_.filled(15)))
    high = Op(OpCode.SHR, bytes_.dtype, (bytes_, bytes_.filled(4)))
    shape, axis = ((n, k, 1), 2) if side_by_side else ((n, 1, k), 1)
    parts = [build.reshape(part, shape) for part in (low, high)]
    return build.reshape(build.pad_axis(parts[0], axis, 0, 1) + build.pad_axis(parts[1], axis, 1, 0), (n, 2 * k))


def conv(g: Generator, v: Value) -> Value | None:
    """v as batch, channels and windows, convolved with weights of a PARAM."""
    dtype = v.op.dtype
    if not 3 <= len(v.shape) <= 5 or 0 in v.shape or dtype.kind == "b" or (dtype.is_float and dtype.itemsize < 4):
        return None
    channels, *lengths = v.shape[1:]
    groups = int(g.pick([count for count in range(1, channels + 1) if channels % count == 0]))
    taps = [int(g.rng.integers(1, min(length, 3) + 1)) for length in lengths]
    weights = g.param((groups * int(g.rng.integers(1, 4)), channels // groups, *taps), dtype)
    few = [int(n) for n in g.rng.integers(1, 3, 3 * len(lengths))]
    stride, dilation, apart = (tuple(few[i::3]) for i in range(3))
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
    """Writes or combines updates at random positions of an axis."""
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
    """Adds the index along an axis."""
    if not v.shape or v.op.dtype.kind == "b":
        return None
    axis = int(g.rng.integers(len(v.shape)))
    count = build.cast(build.positions(v.shape, axis), v.op.dtype)
    return combined(ADD, v, Value(count, float(v.shape[axis]), 0.0))


def update(g: Generator, v: Value) -> Value | None:
    """v with an overwritten block; in place if v is a buffer without later readers."""
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
