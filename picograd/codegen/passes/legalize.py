"""Replaces operations that a target has no instruction for by others that it has.

In:    statements in the free form, Target
Out:   the same, with every operation one the target has

Example:  EXP(x)  ->  BITCAST, SHL, SHR, FMA, MUL, ... of x          for LLVM IR; CUDA C has an exp of its own

Floats narrower than float32 (float16, bfloat16 and both float8) are computed in float32 and rounded to nearest even, by
integer operations: a narrow float is only loaded, stored, chosen and converted. It becomes float32 by moving its bits,
and narrow again by adding half of the last place it keeps. NaN, infinity and subnormals convert as in ml_dtypes.

FMA on processors that have no instruction for it (x86-64 before FMA3) is arithmetic on halves: functions such as log and
sin use it to keep digits that two roundings would lose, and LLVM would call the C library's fma for each element. Sums of
products do not come here: `multiply_add` lets them round twice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache

from picograd import dtype as dtypes
from picograd.codegen.passes.functions import cos, erf, exp, exp2, log, log2, one_and_erf, pow_, sin, tanh
from picograd.codegen.passes.integers import divide, int_power, shift, threefry
from picograd.device import Target, language_of
from picograd.dtype import DType
from picograd.ir.build import absolute, and_, bitcast, bits_of, both, cast, differs, equal, less, or_, shl, shr, where, xor
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import COMPARE, ELEMENTWISE, ROUGHLY, OpCode
from picograd.ir.pattern import Pattern, PatternMatcher
from picograd.ir.statements import For, If, Statement, mapped
from picograd.record import replace

# ---- floats narrower than float32 ----
SINGLE = dtypes.float32
MOVES = frozenset({OpCode.WHERE, OpCode.BITCAST, OpCode.CAST})


def compute_wide(op: Op) -> Op | None:
    """Any arithmetic on narrow floats: the same in float32, rounded once. Extrema choose one of the operands, and what is
    exact is not rounded.
    """
    if op.code in MOVES or True not in [s.dtype.is_narrow for s in op.src]:
        return None
    if op.code is OpCode.NEG:
        return bitcast(xor(bits_of(op.src[0]), op.dtype.sign_bit), op.dtype)
    wide = tuple(cast(s, dtypes.float32) if s.dtype.is_narrow else s for s in op.src)
    if op.code in COMPARE:
        return Op(op.code, op.dtype, wide, op.arg)
    if op.code in (OpCode.MAX, OpCode.MIN):
        (a, b), (wide_a, wide_b) = op.src, wide
        takes_a = less(wide_b, wide_a) if op.code is OpCode.MAX else less(wide_a, wide_b)
        return where(Op(OpCode.OR, dtypes.bool_, (takes_a, differs(wide_a, wide_a))), a, b)
    result = Op(op.code, dtypes.float32, wide, op.arg)
    is_exact = op.code is OpCode.FLOOR or (op.code is OpCode.ADD and op.src[1].code is OpCode.CONST and op.src[1].arg == 0)
    return _upper_half(bits_of(result)) if is_exact and op.dtype is dtypes.bfloat16 else cast(result, op.dtype)


def convert(op: Op, half_in_hardware: bool) -> Op | None:
    """CAST to or from a narrow float."""
    x, target = op.src[0], op.dtype
    if not (x.dtype.is_narrow or target.is_narrow) or x.dtype is target:
        return None
    if half_in_hardware and {x.dtype, target} == {dtypes.float16, dtypes.float32}:
        return None
    if half_in_hardware and x.dtype is dtypes.float8_e5m2 and target is dtypes.float32:
        return cast(bitcast(shl(cast(bits_of(x), dtypes.uint16), 8), dtypes.float16), target)  # the upper half of a float16
    if x.dtype.is_narrow:
        if target is not dtypes.float32:
            return cast(cast(x, dtypes.float32), target)
        return _widen_bfloat16(x) if x.dtype is dtypes.bfloat16 else _widen(x)
    if x.dtype is dtypes.float64 and target is dtypes.float16:
        return cast(_to_odd(x), target)
    if x.dtype is not dtypes.float32:
        return cast(cast(x, dtypes.float32), target)
    return _round_bfloat16(x) if target is dtypes.bfloat16 else _round(x, target)


def _widen_bfloat16(x: Op) -> Op:
    return bitcast(shl(cast(bits_of(x), dtypes.uint32), 16), dtypes.float32)


def _round_bfloat16(x: Op) -> Op:
    """Adds half of the last bit kept, less one where that bit is even; NaN keeps its sign and upper bits."""
    bits = bits_of(x)
    even = and_(shr(bits, 16), 1)
    rounded = bits + even + 0x7FFF
    return _upper_half(where(differs(x, x), or_(bits, 0x40 << 16), rounded))


def _upper_half(bits: Op) -> Op:
    return bitcast(cast(shr(bits, 16), dtypes.uint16), dtypes.bfloat16)


def _has_infinity(dtype: DType) -> bool:
    return dtype is not dtypes.float8_e4m3


def _widen(x: Op) -> Op:
    """Moves exponent and mantissa into place; a factor corrects the bias, also of subnormals."""
    form = x.dtype
    bits = cast(bits_of(x), dtypes.uint32)
    magnitude = and_(bits, form.sign_bit - 1)
    moved = shl(magnitude, SINGLE.mantissa - form.mantissa)
    scaled = bitcast(moved, SINGLE) * 2.0 ** (SINGLE.exponent_bias - form.exponent_bias)
    if _has_infinity(form):
        beyond = or_(moved, SINGLE.infinity_bits)
        value = where(less(magnitude, form.infinity_bits), bits_of(scaled), beyond)
    else:
        value = where(less(magnitude, form.sign_bit - 1), bits_of(scaled), const(0x7FC00000, dtypes.uint32))
    sign = shl(and_(bits, form.sign_bit), 32 - form.bits)
    return bitcast(or_(value, sign), dtypes.float32)


def _round(x: Op, target: DType) -> Op:
    """Rounds a float32 to float16 or float8.

    Normal numbers: half of the last bit kept is added to the bits, and the exponent's bias changed. Below them: adding
    a power of two whose last place is the target's least number rounds in the adder, and leaves the bits wanted.
    """
    bits = bits_of(x)
    magnitude = and_(bits, SINGLE.sign_bit - 1)
    dropped, biases = SINGLE.mantissa - target.mantissa, SINGLE.exponent_bias - target.exponent_bias
    even = and_(shr(magnitude, dropped), 1)
    normal = shr(magnitude + even + ((1 << (dropped - 1)) - 1), dropped) - (biases << target.mantissa)
    adder = 2.0 ** (1 - target.exponent_bias - target.mantissa + SINGLE.mantissa)
    subnormal = bits_of(bitcast(magnitude, dtypes.float32) + adder) - bits_of(x.filled(adder))
    is_subnormal = less(bitcast(magnitude, dtypes.float32), 2.0 ** (1 - target.exponent_bias))
    result = where(is_subnormal, subnormal, normal)
    if _has_infinity(target):
        limit = target.infinity_bits
        result = where(less(normal, limit), result, result.filled(limit))
        result = where(is_subnormal, subnormal, result)
        nan = target.infinity_bits | 1 << (target.mantissa - 1)
    else:
        nan = target.sign_bit - 1
        result = where(is_subnormal, subnormal, where(less(normal, nan), result, result.filled(nan)))
    result = where(differs(x, x), result.filled(nan), result)
    sign = shr(and_(bits, SINGLE.sign_bit), 32 - target.bits)
    return bitcast(cast(or_(result, sign), target.unsigned), target)


def _to_odd(x: Op) -> Op:
    """float64 to float32 rounded to odd: an inexact result ends in a 1, so that rounding again does no harm.

    Source: Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums", section 3.
    """
    single = cast(x, dtypes.float32)
    back = cast(single, dtypes.float64)
    bits = bitcast(single, dtypes.int32)
    too_far = less(absolute(x), absolute(back))
    step = where(too_far, const(-1, dtypes.int32), 1)
    inexact = both(differs(back, x), less(absolute(x), float("inf")))
    moves = both(equal(and_(bits, 1), 0), inexact)
    return bitcast(where(moves, bits + step, bits), dtypes.float32)


# ---- FMA without the instruction ----
LOW_BITS = 27  # of the 53 of a float64; rounded to the nearest, each half has 26 bits, so their products are exact


def fma_without_instruction(op: Op) -> Op:
    """Returns a * b + c, off by hardly more than half a unit in the last place.

    float32: in float64, where the product is exact.
    float64: the product, the sum, and the errors of both added up. Where these errors are too small for a float64, or an
             operand is next to the largest one, the result is that of two roundings.
    """
    a, b, c = op.src
    if op.dtype is dtypes.float32:
        wide = [cast(x, dtypes.float64) for x in op.src]
        return cast(wide[0] * wide[1] + wide[2], dtypes.float32)
    product = a * b
    total = product + c
    part = total - product
    sum_error = (product - (total - part)) + (c - part)
    exact = total + (_product_error(a, b, product) + sum_error)
    return where(less(absolute(exact), math.inf), exact, total)


def _product_error(a: Op, b: Op, product: Op) -> Op:
    """Returns a * b - product.

    Source: Dekker 1971, "A floating-point technique for extending the available precision", with operands that are cut
    in two by their bits: multiplying them by 2**27 would overflow sooner.
    """
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(x: Op) -> tuple[Op, Op]:
    """Returns a float64 rounded to the first half of its bits, and the rest."""
    keep = (1 << x.dtype.bits) - (1 << LOW_BITS)
    high = bitcast(and_(bits_of(x) + (1 << (LOW_BITS - 1)), keep), x.dtype)
    return high, x - high


# ---- what a target has ----
INTEGERS = "iu"


@cache
def illegal(target: Target) -> frozenset[tuple[OpCode, DType]]:
    """Returns the opcodes and dtypes that some rule of a target is about; statements without any of them stay the same."""
    rules = rules_for(target.language, has_fma=target.has_fma)
    kinds = itertools.product(OpCode, dtypes.ALL)
    return frozenset([(code, dtype) for code, dtype in kinds if dtype.is_narrow or rules.may_fit(code, dtype)])


def legalize_statements(statements: Sequence[Statement], target: Target) -> tuple[Statement, ...]:
    """Rewrites every expression of the statements for a target.

    After:   an opcode of TRANSCENDENTAL is left only where the target's language has a function for it; signed
             IDIV and MOD only of indices that are not negative, unsigned ones only by what is not 0; shifts only by
             less than the width; FMA of floats only where the target has it; in languages without functions floats
             narrower than float32 only in LOAD, WHERE, BITCAST, and in the CAST between float16 and float32 where the
             processor has it.
    Before:  `linearize`, which names each operation and finds equal ones.
    """
    work = Legalizer(target)
    return tuple(work.statement(s) for s in statements)


# ---- rules ----
def _power(op: Op) -> Op:
    """POW: by the exponents people write most, else by the general way."""
    x, y = op.src
    if op.dtype.is_int:
        return int_power(op)
    if y.code is OpCode.CONST:
        if y.arg == 0.5:  # NOTE: sqrt(-0.0) and sqrt(-inf) are not the powers
            root = Op(OpCode.SQRT, x.dtype, (x + 0.0,))
            return where(equal(x, float("-inf")), x.filled(float("inf")), root)
        if y.arg in SMALL_POWERS:
            return SMALL_POWERS[y.arg](x)
    return pow_(x, y)


SMALL_POWERS: dict[float, Callable[[Op], Op]] = {
    0.0: lambda x: x.filled(1.0),
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
    -1.0: lambda x: x.filled(1.0) / x,
    -2.0: lambda x: x.filled(1.0) / (x * x),
}


def _fma_of_integers(op: Op) -> Op:
    a, b, c = op.src
    return a * b + c


def _unary(code: OpCode, function: Callable[[Op], Op]) -> tuple[str, Pattern, Callable[..., Op | None]]:
    return (code.name.lower(), Pattern(code, kinds="f", name="op"), lambda op: function(op.src[0]))


EVERYWHERE = PatternMatcher(
    [
        # threefry(counter, key) = 20 rounds of add, rotate, xor
        ("threefry", Pattern(OpCode.THREEFRY, name="op"), lambda op: threefry(*op.src)),
        # a // 0 = a % 0 = 0; a // b rounds to minus infinity
        ("floor division", Pattern((OpCode.IDIV, OpCode.MOD), name="op"), divide),
        # x << n = 0 and x >> n = the sign where n is not below the width
        ("shift by any count", Pattern((OpCode.SHL, OpCode.SHR), name="op"), shift),
        # a ** b = a * a * ... in integers
        ("power of integers", Pattern(OpCode.POW, kinds=INTEGERS, name="op"), int_power),
        # floor(i) = i
        ("floor of an integer", Pattern(OpCode.FLOOR, kinds="biu", name="op"), lambda op: op.src[0]),
        # fma(a, b, c) = a * b + c, which integers do not round
        ("fma of integers", Pattern(OpCode.FMA, kinds="biu", name="op"), _fma_of_integers),
        # 1/x = 1 / x
        ("reciprocal", Pattern(OpCode.RECIPROCAL, kinds="f", name="op"), lambda op: op.filled(1.0) / op.src[0]),
    ]
)
FUNCTIONS = PatternMatcher(
    [
        _unary(OpCode.EXP, exp), _unary(OpCode.EXP2, exp2), _unary(OpCode.LOG, log), _unary(OpCode.LOG2, log2),
        _unary(OpCode.SIN, sin), _unary(OpCode.COS, cos), _unary(OpCode.TANH, tanh), _unary(OpCode.ERF, erf),
        ("pow", Pattern(OpCode.POW, kinds="f", name="op"), _power),
    ]
)  # fmt: skip

ROUGH = PatternMatcher(
    [
        # exp2(x), where 2 ulp are little: an instruction
        ("rough exp2", Pattern(OpCode.EXP2, kinds="f", name="op"), lambda op: op if op.arg == ROUGHLY else None),
    ]
)

ONE_AND_ERF = PatternMatcher(
    [
        # 1 + erf(x), of which gelu is made: half the instructions of CUDA's erff
        (
            "1 + erf",
            Pattern(OpCode.ADD, (Pattern(OpCode.ERF, name="erf"), Pattern(value=1.0)), kinds="f", either=True),
            lambda erf: one_and_erf(erf.src[0]) if erf.dtype is dtypes.float32 else None,
        ),
    ]
)

WITHOUT_FMA = PatternMatcher(
    [
        # fma(a, b, c) = round(a b + c)
        ("fma without the instruction", Pattern(OpCode.FMA, kinds="f", name="op"), fma_without_instruction),
    ]
)


@cache
def rules_for(
    language: str, has_narrow: bool = False, half_in_hardware: bool = False, *, has_fma: bool, has_erf: bool = False
) -> PatternMatcher:
    """Returns the rules of a target; those further right are asked first.

    Args:
      has_narrow:        there may be floats narrower than float32
      half_in_hardware:  float16 is converted by an instruction
      has_fma:           so is a product added
      has_erf:           there may be an ERF
    """
    facts = language_of(language)
    if facts.has_functions:
        return EVERYWHERE + ONE_AND_ERF if has_erf and facts.has_rough_exp2 else EVERYWHERE
    wide = EVERYWHERE + FUNCTIONS if has_fma else EVERYWHERE + FUNCTIONS + WITHOUT_FMA
    wide = wide + ROUGH if facts.has_rough_exp2 else wide
    if not has_narrow:
        return wide
    narrow = PatternMatcher(
        [
            # f(x) = round(f(float32(x)))
            ("narrow floats in float32", Pattern(tuple(ELEMENTWISE), name="op"), compute_wide),
            ("cast of a narrow float", Pattern(OpCode.CAST, name="op"), lambda op: convert(op, half_in_hardware)),
        ]
    )
    return wide + narrow


def has_half(target: Target) -> bool:
    """True where float16 becomes float32 and back by an instruction (x86 F16C; every AArch64 and NVIDIA GPU)."""
    features = target.features.split(",")
    return "+f16c" in features or "+neon" in features or target.triple.startswith(("aarch64", "arm64", "nvptx"))


# ---- driver ----
class Legalizer:
    """The replacement of each expression, for one target.

    rules:  those of narrow floats, and of ERF, are among them from the first one on, before anything made of it
    """

    def __init__(self, target: Target):
        self.target, self.has_narrow, self.has_erf = target, False, False
        self.rules = rules_for(target.language, has_fma=target.has_fma)
        self.became: dict[Op, Op] = {}

    def notice(self, op: Op) -> None:
        """Adds the rules that an Op asks for: of narrow floats, or of ERF."""
        target, has_fma = self.target, self.target.has_fma
        self.has_narrow, self.has_erf = self.has_narrow or op.dtype.is_narrow, self.has_erf or op.code is OpCode.ERF
        self.rules = rules_for(target.language, self.has_narrow, has_half(target), has_fma=has_fma, has_erf=self.has_erf)

    def statement(self, statement: Statement) -> Statement:
        """Returns a statement with all its expressions rewritten."""
        if isinstance(statement, For | If):
            statement = replace(statement, body=tuple([self.statement(each) for each in statement.body]))
        return mapped(statement, self.expression, self.expression)

    def expression(self, root: Op) -> Op:
        """Returns an expression with only operations the target has."""
        became = self.became
        for op in toposort([root], stop=became) if root not in became else ():
            if op in became:
                continue
            if op.code is OpCode.RANGE:  # whose extent is not part of the expression
                became[op] = op
                continue
            if (op.dtype.is_narrow and not self.has_narrow) or (op.code is OpCode.ERF and not self.has_erf):
                self.notice(op)
            src = tuple(map(became.__getitem__, op.src))
            new = op if src == op.src else op.replace(src=src)
            if new in became:
                became[op] = became[new]
                continue
            result = self.rules.rewrite(new) if new.code in self.rules.codes else None
            final = new if result is None or result is new else self.expression(result)
            became[op] = became[new] = became[final] = final
        return became[root]
