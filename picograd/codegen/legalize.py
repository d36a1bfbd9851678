"""Turns what a target has no instruction for into what it has.

In:    statements in the free form
Out:   the same, with every operation one the target has
Called by: codegen/lower.py.    Next: picograd/codegen/linearize.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.statements import For, If, Load, Statement, Store
from picograd.ir.symbolic import bounds


def legalize_statements(statements: Sequence[Statement], target: Target) -> tuple[Statement, ...]:
    """Rewrites every expression of the statements for a target."""
    work = _Legalizer(target)
    return tuple(work.statement(s) for s in statements)


class _Legalizer:
    def __init__(self, target: Target):
        self.rules = LLVM_RULES if target.language == "llvm" else CUDA_RULES
        self.became: dict[Op, Op] = {}

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, For):
            return For(statement.range, tuple(self.statement(s) for s in statement.body))
        if isinstance(statement, If):
            return If(self.op(statement.condition), tuple(self.statement(s) for s in statement.body))
        if isinstance(statement, Store):
            valid = None if statement.valid is None else self.op(statement.valid)
            return Store(statement.memory, self.op(statement.index), self.op(statement.value), valid)
        if isinstance(statement, Load):
            valid = None if statement.valid is None else self.op(statement.valid)
            return Load(statement.var, statement.memory, self.op(statement.index), valid)
        return statement

    def op(self, root: Op) -> Op:
        for op in toposort([root], stop=self.became):
            if op in self.became:
                continue
            src = tuple(self.became.get(s, s) for s in op.src)
            new = op if src == op.src else op.replace(src=src)
            rule = self.rules.get(op.code)
            self.became[op] = rule(new) if rule is not None else new
        return self.became[root]


def _f(value: float, x: Op) -> Op:
    return const(value, x.dtype)


def _fma(a: Op, b: Op, c: Op) -> Op:
    return Op(OpCode.FMA, c.dtype, (a, b, c))


def _poly(x: Op, coefficients: Sequence[float]) -> Op:
    result = _f(coefficients[0], x)
    for c in coefficients[1:]:
        result = _fma(result, x, _f(c, x))
    return result


def _where(condition: Op, a: Op, b: Op) -> Op:
    return Op(OpCode.WHERE, a.dtype, (condition, a, b))


def _less(a: Op, b: Op) -> Op:
    return Op(OpCode.CMPLT, dtypes.bool_, (a, b))


def _i32(value: int) -> Op:
    return const(value, dtypes.int32)


def exp(x: Op) -> Op:
    x = _where(_less(x, _f(-104.0, x)), _f(-104.0, x), _where(_less(_f(89.0, x), x), _f(89.0, x), x))
    shifted = _fma(x, _f(math.log2(math.e), x), _f(12582912.0, x))
    n = shifted - _f(12582912.0, x)
    r = _fma(n, _f(-0.693359375, x), x)
    r = _fma(n, _f(2.12194440e-4, x), r)
    p = _poly(r, [1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1])
    p = _fma(p, r * r, r) + _f(1.0, x)
    bits = Op(OpCode.BITCAST, dtypes.int32, (shifted,)) - _i32(0x4B400000)
    half = Op(OpCode.SHR, dtypes.int32, (bits, _i32(1)))
    return p * _power_of_two(half) * _power_of_two(bits - half)


def _power_of_two(n: Op) -> Op:
    return Op(OpCode.BITCAST, dtypes.float32, (Op(OpCode.SHL, dtypes.int32, (n + _i32(127), _i32(23))),))


def log(x: Op) -> Op:
    bits = Op(OpCode.BITCAST, dtypes.int32, (x,))
    e = Op(OpCode.SHR, dtypes.int32, (bits - _i32(0x3F3504F3), _i32(23)))
    m = Op(OpCode.BITCAST, dtypes.float32, (bits - Op(OpCode.SHL, dtypes.int32, (e, _i32(23))),)) - _f(1.0, x)
    n = Op(OpCode.CAST, dtypes.float32, (e,))
    z = m * m
    p = _poly(m, [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                  -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1])  # fmt: skip
    y = _fma(n, _f(-2.12194440e-4, x), p * m * z)
    y = _fma(z, _f(-0.5, x), y)
    y = _fma(n, _f(0.693359375, x), m + y)
    y = _where(Op(OpCode.CMPEQ, dtypes.bool_, (x, _f(0.0, x))), _f(-math.inf, x), y)
    y = _where(_less(x, _f(0.0, x)), _f(math.nan, x), y)
    return _where(_less(x, _f(math.inf, x)), y, x)


def tanh(x: Op) -> Op:
    z = x * x
    small = _fma(_poly(z, [-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1,
                           -3.33332819422e-1]) * z, x, x)  # fmt: skip
    positive = _where(_less(x, _f(0.0, x)), -x, x)
    big = _f(1.0, x) - _f(2.0, x) / (exp(positive + positive) + _f(1.0, x))
    big = _where(_less(x, _f(0.0, x)), -big, big)
    return _where(_less(positive, _f(0.625, x)), small, big)


def reciprocal(x: Op) -> Op:
    return _f(1.0, x) / x


def _in_float32(rule: Callable[[Op], Op]) -> Callable[[Op], Op]:
    def apply(op: Op) -> Op:
        x = op.src[0]
        if op.dtype is dtypes.float32:
            return rule(x)
        wide = x if x.dtype is dtypes.float32 else Op(OpCode.CAST, dtypes.float32, (x,))
        return Op(OpCode.CAST, op.dtype, (rule(wide),))

    return apply


def sin_of(shift: float) -> Callable[[Op], Op]:
    def sin(x: Op) -> Op:
        wide = Op(OpCode.CAST, dtypes.float64, (x,)) + const(shift, dtypes.float64)
        n = Op(OpCode.FLOOR, dtypes.float64, (wide * const(1 / math.pi, dtypes.float64) + const(0.5, dtypes.float64),))
        r = _fma(n, const(-math.pi, dtypes.float64), wide)
        r = _fma(n, const(-1.2246467991473532e-16, dtypes.float64), r)
        z = r * r
        p = _poly(z, [(-1) ** k / math.factorial(2 * k + 1) for k in range(9, -1, -1)]) * r
        odd = n - const(2.0, dtypes.float64) * Op(OpCode.FLOOR, dtypes.float64, (n * const(0.5, dtypes.float64),))
        signed = _where(_less(const(0.5, dtypes.float64), odd), -p, p)
        return Op(OpCode.CAST, dtypes.float32, (signed,))

    return sin


def erf(x: Op) -> Op:
    positive = _where(_less(x, _f(0.0, x)), -x, x)
    t = _f(1.0, x) / _fma(positive, _f(0.3275911, x), _f(1.0, x))
    p = _poly(t, [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592]) * t
    y = _f(1.0, x) - p * exp(-(x * x))
    return _where(_less(x, _f(0.0, x)), -y, y)


def threefry(op: Op) -> Op:
    counter, key = op.src
    u32, u64 = dtypes.uint32, dtypes.uint64

    def high(v: Op) -> Op:
        return Op(OpCode.CAST, u32, (Op(OpCode.SHR, u64, (v, const(32, u64))),))

    def low(v: Op) -> Op:
        return Op(OpCode.CAST, u32, (v,))

    keys = [high(key), low(key)]
    keys.append(Op(OpCode.XOR, u32, (Op(OpCode.XOR, u32, (keys[0], keys[1])), const(0x1BD11BDA, u32))))
    a, b = high(counter) + keys[0], low(counter) + keys[1]
    for group in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
            a = a + b
            left = Op(OpCode.SHL, u32, (b, const(rotation, u32)))
            right = Op(OpCode.SHR, u32, (b, const(32 - rotation, u32)))
            b = Op(OpCode.XOR, u32, (Op(OpCode.OR, u32, (left, right)), a))
        a = a + keys[(group + 1) % 3]
        b = b + keys[(group + 2) % 3] + const(group + 1, u32)
    wide = Op(OpCode.SHL, u64, (Op(OpCode.CAST, u64, (a,)), const(32, u64)))
    return Op(OpCode.OR, u64, (wide, Op(OpCode.CAST, u64, (b,))))


def _pow(op: Op) -> Op:
    a, b = op.src
    positive = _where(_less(a, _f(0.0, a)), -a, a)
    return exp(b * log(positive))


def _whole_division(op: Op) -> Op:
    """Integers: what is divided by 0 is 0, and the least integer by -1 is itself; processors trap on both."""
    a, b = op.src
    if not op.dtype.is_int or (b.code is OpCode.CONST and b.arg not in (0, -1)):
        return op
    if op.dtype is dtypes.int64 and bounds(b)[0] > 0:
        return op
    zero = Op(OpCode.CMPEQ, dtypes.bool_, (b, const(0, b.dtype)))
    traps = zero
    if op.dtype.kind == "i":
        minus = Op(OpCode.CMPEQ, dtypes.bool_, (b, const(-1, b.dtype)))
        traps = Op(OpCode.OR, dtypes.bool_, (zero, minus))
    safe = op.replace(src=(a, _where(traps, const(1, b.dtype), b)))
    if op.code is OpCode.MOD:
        return safe
    turned = safe if op.dtype.kind == "u" else _where(traps, const(0, a.dtype) - a, safe)
    return _where(zero, const(0, a.dtype), turned)


def _shift(op: Op) -> Op:
    """A count outside 0 .. bits - 1 shifts everything out; processors and LLVM leave it undefined."""
    value, count = op.src
    bits = op.dtype.bits
    if count.code is OpCode.CONST and 0 <= count.arg < bits:
        return op
    inside = _less(count, const(bits, count.dtype))
    if count.dtype.kind == "i":
        inside = Op(OpCode.AND, dtypes.bool_, (inside, _less(const(-1, count.dtype), count)))
    zero = const(0, op.dtype)
    shifted = op.replace(src=(value, _where(inside, count, const(bits - 1, count.dtype))))
    if op.code is OpCode.SHR and op.dtype.kind == "i":
        inside = Op(OpCode.OR, dtypes.bool_, (inside, _less(value, zero)))
    return _where(inside, shifted, zero)


Rule = Callable[[Op], Op]
LLVM_RULES: dict[OpCode, Rule] = {
    OpCode.EXP: _in_float32(exp),
    OpCode.EXP2: _in_float32(lambda x: exp(x * _f(math.log(2), x))),
    OpCode.LOG: _in_float32(log),
    OpCode.LOG2: _in_float32(lambda x: log(x) * _f(1 / math.log(2), x)),
    OpCode.TANH: _in_float32(tanh),
    OpCode.SIN: _in_float32(sin_of(0.0)),
    OpCode.COS: _in_float32(sin_of(math.pi / 2)),
    OpCode.ERF: _in_float32(erf),
    OpCode.POW: _pow,
    OpCode.RECIPROCAL: lambda op: reciprocal(op.src[0]),
    OpCode.THREEFRY: threefry,
    OpCode.IDIV: _whole_division,
    OpCode.MOD: _whole_division,
    OpCode.SHL: _shift,
    OpCode.SHR: _shift,
}
CUDA_RULES: dict[OpCode, Rule] = {
    OpCode.THREEFRY: threefry,
    OpCode.IDIV: _whole_division,
    OpCode.MOD: _whole_division,
    OpCode.SHL: _shift,
    OpCode.SHR: _shift,
}
__all__ = ["DType", "legalize_statements"]
