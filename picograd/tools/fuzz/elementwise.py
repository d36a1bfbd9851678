"""Random elementwise operations, with bounds.

In:    a Generator and a value it has made
Out:   a new value, or None where the operation does not apply
Next:  picograd/tools/fuzz/movement.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.ir import build
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tools.fuzz.generator import Action, Generator
from picograd.tools.fuzz.values import ADD, EXACT, MAX, MIN, MUL, ULP, Value, combined

FUNCTIONS = {  # opcode -> (bound on the magnitude of the result, bound on the derivative) where |x| <= 4
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
    """Applies a function of one operand, where its error stays bounded."""
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
    """Compares two exact values, and chooses by what came out."""
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
    """Casts to another dtype that can hold the value."""
    target = g.pick((*g.dtypes, dtypes.float32))
    if not v.exact and (target.kind != "f" or (target.itemsize < 4)):
        return None
    if g.is_smooth and target is dtypes.float32:
        return None  # the steps between its floats are longer than those of a central difference
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
    """The bits of an exact float as an integer of its width."""
    if not v.exact or v.op.dtype not in (dtypes.float32, dtypes.float64):
        return None
    target = dtypes.int32 if v.op.dtype is dtypes.float32 else dtypes.int64
    positive = v.op + 0.0  # of 0.0 and -0.0 either may have come from MAX; their bits differ
    return Value(Op(OpCode.BITCAST, target, (positive,)), 2e9, 0.0)


def random_bits(g: Generator, v: Value) -> Value | None:
    """Random bits of a counter and a key."""
    if not v.exact or v.op.dtype.kind == "b" or (v.op.dtype.is_float and v.magnitude > 100):
        return None
    counter = build.cast(build.cast(v.op, dtypes.int64), dtypes.uint64)
    key = filled(int(g.rng.integers(1 << 62)), dtypes.uint64, v.shape)
    return Value(Op(OpCode.THREEFRY, dtypes.uint64, (counter, key)), 2e19, 0.0)


def cut(g: Generator, v: Value) -> Value | None:
    """v, through which no gradient flows: not a slope of it either."""
    return None if g.is_smooth else Value(Op(OpCode.DETACH, v.op.dtype, (v.op,)), v.magnitude, v.error)


ELEMENTWISE: tuple[Action, ...] = (
    binary, binary, binary, binary, divide, integer_divide, bits, unary, unary, root, fused, choose, choose, convert,
    other_bits, random_bits, cut,
)  # fmt: skip
