"""Which divisions and shifts are left as they are, because their form shows that nothing can go wrong."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.passes.legalize import Legalizer
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode
from tests.cpu_programs import loop_range
from tests.same_meaning import CPU_TARGETS

LLVM = CPU_TARGETS[2]


def legalize(root: Op, target: Target) -> Op:
    """Returns one expression as a target gets it."""
    return Legalizer(target).expression(root)


def unknown(dtype: DType = dtypes.int64) -> Op:
    """A value of which nothing is known."""
    return Op(OpCode.LOAD, dtype, (Op(OpCode.PARAM, dtype, (), (0, (100,))), const(0, dtypes.int64)))


def test_index_division_that_may_be_of_less_than_zero_or_by_zero_is_guarded() -> None:
    index, other = loop_range(0, 1000, AxisKind.GRID), loop_range(1, 8, AxisKind.LOOP)
    below = Op(OpCode.ADD, dtypes.int64, (index, const(-1, dtypes.int64)))
    for code in (OpCode.IDIV, OpCode.MOD):
        kept = [(index, other + 1), (below + 1, const(7, dtypes.int64)), (index * 3, const(1, dtypes.int64))]
        guarded = [(below, const(7, dtypes.int64)), (index, other), (index, const(-7, dtypes.int64))]
        for pair in kept:
            assert legalize(Op(code, dtypes.int64, pair), LLVM) is Op(code, dtypes.int64, pair)
        for pair in [*guarded, (unknown(), other + 1)]:
            assert legalize(Op(code, dtypes.int64, pair), LLVM) is not Op(code, dtypes.int64, pair)


def test_a_shift_is_guarded_unless_its_form_shows_that_it_is_inside() -> None:
    bits = dtypes.int32
    x = unknown(bits)

    def masked(most: int) -> Op:
        return Op(OpCode.AND, bits, (x, const(most, bits)))

    def less_than(most: int, count: Op) -> Op:
        return Op(OpCode.SUB, bits, (const(most, bits), count))

    kept = [
        const(0, bits), const(31, bits), masked(31), masked(7), masked(0), less_than(31, masked(31)),
        less_than(20, masked(7)), less_than(31, const(31, bits)),
    ]  # fmt: skip
    guarded = [
        const(32, bits), const(-1, bits), x, masked(32), masked(-1), less_than(32, masked(31)), less_than(31, x),
        less_than(15, masked(31)), less_than(31, masked(63)), Op(OpCode.SUB, bits, (masked(31), const(1, bits))),
    ]  # fmt: skip
    for code in (OpCode.SHL, OpCode.SHR):
        for count in kept:
            assert legalize(Op(code, bits, (x, count)), LLVM) is Op(code, bits, (x, count)), count
        for count in guarded:
            assert legalize(Op(code, bits, (x, count)), LLVM) is not Op(code, bits, (x, count)), count
