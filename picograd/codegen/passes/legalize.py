"""Turns what a target has no instruction for into what it has.

In:    statements in the free form, Target
Out:   the same, with every operation one the target has
Called by: road.py.    Next: picograd/codegen/scalar.py

Example:  EXP(x)  ->  BITCAST, SHL, SHR, FMA, MUL, ... of x          for LLVM IR; CUDA C has an exp of its own
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from picograd.codegen.passes.exponentials import erf, exp, exp2, log, log2, pow_, tanh
from picograd.codegen.passes.integers import divide, int_power, shift, threefry
from picograd.codegen.passes.narrow import compute_wide, convert
from picograd.codegen.passes.trigonometry import cos, sin
from picograd.codegen.passes.without_fma import fma_without_instruction
from picograd.codegen.scalar import equal, like, where
from picograd.device import Target
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE, ROUGHLY, OpCode
from picograd.ir.pattern import Pattern, PatternMatcher
from picograd.ir.statements import For, If, Statement, mapped
from picograd.record import replace

INTEGERS = "iu"
# Languages without functions of numbers: a CPU's and a GPU's LLVM IR; OpenCL C, whose own may be 3 ulp and more off.
WITHOUT_FUNCTIONS = ("llvm", "nvptx", "opencl")


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


def legalize(root: Op, target: Target) -> Op:
    """Rewrites one scalar expression for a target."""
    return Legalizer(target).expression(root)


# ---- rules ----
def _power(op: Op) -> Op:
    """POW: by the exponents people write most, else by the general way."""
    x, y = op.src
    if op.dtype.is_int:
        return int_power(op)
    if y.code is OpCode.CONST:
        if y.arg == 0.5:  # NOTE: sqrt(-0.0) and sqrt(-inf) are not the powers
            root = Op(OpCode.SQRT, x.dtype, (x + 0.0,))
            return where(equal(x, float("-inf")), like(float("inf"), x), root)
        if y.arg in SMALL_POWERS:
            return SMALL_POWERS[y.arg](x)
    return pow_(x, y)


SMALL_POWERS: dict[float, Callable[[Op], Op]] = {
    0.0: lambda x: like(1.0, x),
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    4.0: lambda x: (x * x) * (x * x),
    -1.0: lambda x: like(1.0, x) / x,
    -2.0: lambda x: like(1.0, x) / (x * x),
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
        ("reciprocal", Pattern(OpCode.RECIPROCAL, kinds="f", name="op"), lambda op: like(1.0, op) / op.src[0]),
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

WITHOUT_FMA = PatternMatcher(
    [
        # fma(a, b, c) = round(a b + c)
        ("fma without the instruction", Pattern(OpCode.FMA, kinds="f", name="op"), fma_without_instruction),
    ]
)


@cache
def rules_for(
    language: str, has_narrow: bool = False, half_in_hardware: bool = False, has_fma: bool = True
) -> PatternMatcher:
    """Returns the rules of a target; those further right are asked first.

    Args:
      has_narrow:        there may be floats narrower than float32
      half_in_hardware:  float16 is converted by an instruction
      has_fma:           so is a product added
    """
    if language not in WITHOUT_FUNCTIONS:
        return EVERYWHERE
    wide = EVERYWHERE + FUNCTIONS if has_fma else EVERYWHERE + FUNCTIONS + WITHOUT_FMA
    wide = wide + ROUGH if language == "nvptx" else wide
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
    """What each expression became, for one target.

    rules:  those of narrow floats are among them from where the first one is met, before whatever is made of it
    """

    def __init__(self, target: Target):
        self.rules = rules_for(target.language, has_fma=target.has_fma)
        self.narrow_rules = rules_for(target.language, True, has_half(target), target.has_fma)
        self.became: dict[Op, Op] = {}

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
            if op.code is OpCode.RANGE:  # whose extent is no part of the expression
                became[op] = op
                continue
            if op.dtype.is_narrow:
                self.rules = self.narrow_rules
            src = tuple(map(became.__getitem__, op.src))
            new = op if src == op.src else op.replace(src=src)
            if new in became:
                became[op] = became[new]
                continue
            result = self.rules.rewrite(new) if new.code in ELEMENTWISE else None
            final = new if result is None or result is new else self.expression(result)
            became[op] = became[new] = became[final] = final
        return became[root]
