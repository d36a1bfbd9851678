"""REGISTER memory becomes values: what loops and branches change of it is named where two ways meet (issue 3.5)."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.compile_llvm import host_target
from picograd.devices.cpu.render import LaneValues, lane_values, render
from picograd.errors import VerifyError
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Alloc
from tests.cpu_programs import BOOL, F32, Body, loop_range, memory, one_phase, param, run

HELD = memory("held", 4)


def program(body: Body, numel: int = 6) -> Program:
    outer = Body()
    outer.loop(0, 1, AxisKind.GRID, body)
    return one_phase("registers", [(F32, numel, "out")], outer)


@pytest.mark.parametrize("extent", [0, 1, 5])
def test_a_loop_that_may_not_run_leaves_what_was_there(extent: int) -> None:
    """Two loops, one in the other, and what was held before them."""
    body, outer, inner = Body(), Body(), Body()
    body.add(Alloc(HELD))
    body.store(HELD, 0, 1.0)
    body.store(HELD, 1, 7.0)
    inner.store(HELD, 0, inner.let(OpCode.ADD, inner.load(HELD, 0), const(2.0, F32), dtype=F32))
    outer.loop(2, 3, AxisKind.LOOP, inner)
    outer.store(HELD, 1, outer.load(HELD, 0))
    body.loop(1, extent, AxisKind.LOOP, outer)
    for place in (0, 1):
        body.store(param(0, 6), place, body.load(HELD, place))
    (result,) = run(program(body), [np.zeros(6, np.float32)])
    expected = 1.0 + 6.0 * extent
    assert result[:2].tolist() == [expected, expected if extent else 7.0]
    assert "alloca" not in render(program(body), host_target()).text


def test_places_that_overlap_are_refused() -> None:
    body = Body()
    body.add(Alloc(HELD))
    body.store(HELD, 0, 1.0)
    body.load(HELD, 0, lanes=4)
    with pytest.raises(VerifyError, match=r"render llvm: .*\[0\] is used with 4 lanes and with another number"):
        render(program(body), host_target())


def test_a_place_that_is_computed_is_refused() -> None:
    body, inner = Body(), Body()
    body.add(Alloc(HELD))
    inner.store(HELD, loop_range(1, 4), 1.0)
    body.loop(1, 4, AxisKind.LOOP, inner)
    with pytest.raises(VerifyError, match="is in registers, and its index .* is not a constant"):
        render(program(body), host_target())


def test_a_table_of_another_length_is_refused() -> None:
    """What a vector of lanes chooses of registers is one instruction's, or nothing."""
    body = Body()
    body.add(Alloc(HELD))
    lanes = body.let(OpCode.LANES, arg=4, lanes=4)
    body.store(HELD, 0, body.let(OpCode.CAST, lanes, dtype=F32, lanes=4))
    body.load(HELD, lanes, lanes=4)
    with pytest.raises(VerifyError, match="is not a table of 16 float32 that 16 lanes read"):
        render(program(body), host_target())


def test_accesses_share_a_base_and_a_counter() -> None:
    """p[row * 48 + 3 * i + 2] and q at the same place: one counter of threes, a base for each memory."""
    x, y = param(0, 480), param(1, 480)
    outer, body = Body(), Body()
    row = outer.let(OpCode.MUL, loop_range(0, 4, AxisKind.GRID), 48)
    threes = body.let(OpCode.MUL, loop_range(1, 10), 3)
    where = body.let(OpCode.ADD, body.let(OpCode.ADD, threes, row), 2)
    body.store(y, where, body.load(x, where))
    outer.loop(1, 10, AxisKind.LOOP, body)
    grid = Body()
    grid.loop(0, 4, AxisKind.GRID, outer)
    made = one_phase("strides", [(F32, 480, "in"), (F32, 480, "out")], grid)
    text = render(made, host_target()).text
    inner = text[text.index("\nloop2:") : text.index("\nloop2.done:")]
    assert inner.count("phi i64") == 2 and "mul" not in inner and inner.count(" = add ") == 2
    given = np.arange(480, dtype=np.float32)
    result = run(made, [given, np.zeros(480, np.float32)])[-1]
    places = (np.arange(4)[:, None] * 48 + np.arange(10) * 3 + 2).ravel()
    expected = np.zeros(480, np.float32)
    expected[places] = given[places]
    np.testing.assert_array_equal(result, expected)


def test_a_bool_in_a_register_is_a_bit() -> None:
    flag = memory("flag", 1, dtype=BOOL)
    body = Body()
    body.add(Alloc(flag))
    body.store(flag, 0, const(True, BOOL))
    body.store(param(0, 6), 0, body.let(OpCode.CAST, body.load(flag, 0), dtype=F32))
    assert run(program(body), [np.zeros(6, np.float32)])[0][0] == 1.0


@pytest.mark.parametrize("number", [0.5, float("inf"), float("-inf"), float("nan")])
def test_a_float_is_no_place_in_memory(number: float) -> None:
    """Places that are made of logarithms, as those of T5's buckets, have such numbers in them."""
    whole, float_number = const(3, dtypes.int64), const(number, F32)
    assert lane_values(Op(OpCode.EXPAND, whole.dtype, (whole,), (4,)), 4, []) == LaneValues((3,) * 4, True)
    assert lane_values(Op(OpCode.EXPAND, F32, (float_number,), (4,)), 4, []) is None
