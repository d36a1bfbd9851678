"""LLVM IR from programs written by hand: the text of one, and what the others compute.

`python -m tests.render.test_llvm` rewrites the text.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd import dtype as dtypes
from picograd.devices.compile_llvm import assembly, compile_source, host_target
from picograd.devices.cpu.render import render
from picograd.errors import CompileError, VerifyError
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Program, Source
from picograd.ir.statements import Alloc, Prefetch, Transpose
from tests.cpu_programs import BOOL, F32, I64, Body, loop_range, memory, one_phase, param, run, scale_add

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "render"
LANES = 8
Params = list[tuple[dtypes.DType, int, str]]


def in_grid(name: str, params: Params, body: Body, extent: int = 1) -> Program:
    outer = Body()
    outer.loop(0, extent, AxisKind.GRID, body)
    return one_phase(name, params, outer)


def numbers(count: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(count).astype(np.float32)


@pytest.mark.req("G6")
# ---- text ----
def test_text_is_golden() -> None:
    assert render(scale_add(), host_target()).text == (GOLDEN / "scale_add.ll").read_text()


def test_launch_counts_iterations_of_all_grid_loops() -> None:
    (launch,) = render(scale_add(lanes=8, numel=20), host_target()).launches
    assert (launch.symbol, launch.grid, launch.block) == ("scale_add_0", 20 // 8 + 20 % 8, 1)


def test_constants_keep_their_bits() -> None:
    body = Body()
    for i, value in enumerate((0.1, -0.0, float("inf"), 1e-45)):
        body.store(param(0, 4), i, value)
    (result,) = run(in_grid("constants", [(F32, 4, "out")], body), [np.zeros(4, np.float32)])
    assert result.tobytes() == np.array([0.1, -0.0, np.inf, 1e-45], np.float32).tobytes()


def test_no_flag_lets_llvm_change_the_bits_of_floats() -> None:
    text = render(scale_add(), host_target()).text
    assert not any(flag in text for flag in (" fast ", " reassoc ", " contract ", " nnan ", " arcp "))


def test_operation_without_a_row_is_named() -> None:
    body = Body()
    body.let(OpCode.EXP, const(1.0, F32), dtype=F32)
    with pytest.raises(VerifyError, match="render llvm: EXP of float32 has no row: legalize must replace it."):
        render(in_grid("exponential", [], body), host_target())


def test_compile_error_quotes_the_line() -> None:
    source = Source("broken", "llvm", "define void @broken_0() {\n  %x = fadd i32 1, 2\n  ret void\n}\n", (), (), ())
    with pytest.raises(CompileError, match=r"(?s)llvm rejected kernel broken\..*broken.ll:2: error.*fadd i32 1, 2"):
        compile_source(source, host_target())


# ---- loops ----
@pytest.mark.parametrize("numel", [0, 7, 8, 20, 1000])
def test_vectors_and_tail(numel: int) -> None:
    n = Op(OpCode.VARIABLE, I64, (), ("n", 0, 1 << 20))
    x = numbers(1000)
    (y,) = run(scale_add(numel=n), [x, np.zeros_like(x)], {"n": numel})
    np.testing.assert_array_equal(y[:numel], x[:numel] * 2 + 1)  # the product by 2 is exact: one rounding
    assert not y[numel:].any()


def test_two_phases_run_one_after_the_other() -> None:
    first, second = Body(), Body()
    i, j = loop_range(0, 64, AxisKind.GRID), loop_range(1, 64, AxisKind.GRID)
    inner, reverse = Body(), Body()
    x = inner.load(param(0, 64), i)
    inner.store(param(2, 64), i, inner.let(OpCode.ADD, x, const(1.0, F32), dtype=F32))
    first.loop(0, 64, AxisKind.GRID, inner)
    back = reverse.let(OpCode.SUB, 63, j)
    reverse.store(param(1, 64), j, reverse.load(param(2, 64), back))
    second.loop(1, 64, AxisKind.GRID, reverse)
    whole = one_phase("phases", [(F32, 64, "in"), (F32, 64, "out"), (F32, 64, "scratch")], first)
    x = numbers(64)
    program = Program(whole.name, whole.params, (), (first.done(), second.done()))
    assert [launch.symbol for launch in render(program, host_target()).launches] == ["phases_0", "phases_1"]
    np.testing.assert_array_equal(run(program, [x, x])[0], (x + 1)[::-1])


@pytest.mark.parametrize(("dtype", "lanes"), [(F32, 16), (F32, 8), (F32, 4), (dtypes.float64, 8), (BOOL, 16), (F32, 2)])
def test_a_square_is_transposed(dtype: dtypes.DType, lanes: int) -> None:
    step, stride, count = lanes + 1, lanes + 3, 3
    body, i = Body(), loop_range(0, count, AxisKind.GRID)
    index, place = body.let(OpCode.MUL, i, lanes * stride), body.let(OpCode.MUL, i, lanes * step)
    memories = param(0, count * lanes * stride, dtype=dtype), param(1, count * lanes * step, dtype=dtype)
    body.add(Transpose(memories[1], place, step, memories[0], index, stride, lanes))
    params: Params = [(dtype, count * lanes * stride, "in"), (dtype, count * lanes * step, "out")]
    numbers = np.arange(count * lanes * stride)
    x = (numbers * 7 % 5 < 3 if dtype is BOOL else numbers).astype(dtype.numpy)
    found = run(in_grid("square", params, body, count), [x, np.zeros(count * lanes * step, dtype.numpy)])[0]
    squares = x.reshape(count, lanes, stride)[:, :, :lanes].swapaxes(1, 2)
    np.testing.assert_array_equal(found.reshape(count, lanes, step)[:, :, :lanes], squares)


def test_a_prefetch_asks_for_a_line_and_may_point_anywhere() -> None:
    body, i = Body(), loop_range(0, 64, AxisKind.GRID)
    body.add(Prefetch(param(0, 64), body.let(OpCode.MUL, i, 1 << 20)))
    body.store(param(1, 64), i, body.load(param(0, 64), i))
    outer = Body()
    outer.loop(0, 64, AxisKind.GRID, body)
    program = one_phase("ask", [(F32, 64, "in"), (F32, 64, "out")], outer)
    assert "prefetch" in assembly(render(program, host_target()), host_target())
    x = numbers(64)
    np.testing.assert_array_equal(run(program, [x, x])[0], x)


def test_if_runs_where_its_condition_holds() -> None:
    body, inside = Body(), Body()
    i = loop_range(0, 10, AxisKind.GRID)
    inside.store(param(0, 10), i, 5.0)
    body.when(body.let(OpCode.CMPLT, i, 4, dtype=BOOL), inside)
    (y,) = run(in_grid("branch", [(F32, 10, "out")], body, 10), [np.zeros(10, np.float32)])
    np.testing.assert_array_equal(y, [5] * 4 + [0] * 6)


def test_register_tile_accumulates_without_touching_the_stack() -> None:
    """A row of 2 x LANES accumulators over k: y = sum over k of a[k] * b[k, :]."""
    tile, k = memory("tile", 2 * LANES), loop_range(1, 50)
    body, step = Body(), Body()
    body.add(Alloc(tile))
    for half in range(2):
        zero = body.let(OpCode.EXPAND, const(0.0, F32), dtype=F32, arg=LANES, lanes=LANES)
        body.store(tile, half * LANES, zero)
    a = step.let(OpCode.EXPAND, step.load(param(0, 50), k), dtype=F32, arg=LANES, lanes=LANES)
    for half in range(2):
        b = step.load(param(1, 50 * 2 * LANES), step.at(k, 2 * LANES, half * LANES), lanes=LANES)
        old = step.load(tile, half * LANES, lanes=LANES)
        product = step.let(OpCode.MUL, a, b, dtype=F32, lanes=LANES)
        step.store(tile, half * LANES, step.let(OpCode.ADD, product, old, dtype=F32, lanes=LANES))
    body.loop(1, 50, AxisKind.LOOP, step)
    for half in range(2):
        body.store(param(2, 2 * LANES), half * LANES, body.load(tile, half * LANES, lanes=LANES))
    params: Params = [(F32, 50, "in"), (F32, 100 * LANES, "in"), (F32, 2 * LANES, "out")]
    program = in_grid("tile", params, body)
    a_, b_ = numbers(50), numbers(100 * LANES)
    (y,) = run(program, [a_, b_, np.zeros(2 * LANES, np.float32)])
    np.testing.assert_allclose(y, a_ @ b_.reshape(50, -1), rtol=1e-5, atol=1e-5)  # sums of 50 in another order
    assert "rsp)" not in assembly(render(program, host_target()), host_target())


# ---- lanes ----
@pytest.mark.parametrize("code, order", [(OpCode.ADD, np.add), (OpCode.MAX, np.maximum), (OpCode.MUL, np.multiply)])
def test_lanes_are_joined_by_halves(code: OpCode, order: np.ufunc) -> None:
    body = Body()
    x = body.load(param(0, 16), 0, lanes=16)
    body.store(param(1, 1), 0, body.let(OpCode.REDUCE, x, dtype=F32, arg=(code, 16)))
    values = numbers(16)
    (y,) = run(in_grid("join", [(F32, 16, "in"), (F32, 1, "out")], body), [values, values[:1]])
    expected = values
    while len(expected) > 1:
        expected = order(expected[: len(expected) // 2], expected[len(expected) // 2 :])
    assert y[0] == expected[0]


def test_bools_are_bytes_in_memory_and_lanes_of_one_bit_in_registers() -> None:
    body = Body()
    mask = body.load(param(0, LANES, BOOL), 0, lanes=LANES)
    flipped = body.let(OpCode.XOR, mask, const(True, BOOL), dtype=BOOL, lanes=LANES)
    body.store(param(1, LANES, BOOL), 0, flipped)
    body.store(param(2, 1, BOOL), 0, body.let(OpCode.REDUCE, mask, dtype=BOOL, arg=(OpCode.MAX, LANES)))
    held = np.arange(LANES) % 3 == 0
    program = in_grid("bools", [(BOOL, LANES, "in"), (BOOL, LANES, "out"), (BOOL, 1, "out")], body)
    y, some = run(program, [held, held, held[:1]])
    np.testing.assert_array_equal(y, ~held)
    assert some[0]


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int8, dtypes.bfloat16, dtypes.bool_], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_gather_and_scatter(dtype: dtypes.DType, masked: bool) -> None:
    """out[p[i]] = x[q[i]]: indices of masked lanes may point anywhere."""
    body = Body()
    q = body.load(param(1, LANES, I64), 0, lanes=LANES)
    p = body.load(param(2, LANES, I64), 0, lanes=LANES)
    valid = body.let(OpCode.CMPLE, const(0, I64), q, dtype=BOOL, lanes=LANES) if masked else None
    body.store(param(3, 32, dtype), p, body.load(param(0, 32, dtype), q, valid, lanes=LANES), valid)
    x = (numbers(32) * 50).astype(dtype.numpy)
    q_, p_ = np.array([3, 1, 31, 0, 7, 7, 9, 2]), np.array([30, 0, 5, 6, 6, 2, 1, 9])
    if masked:
        q_[[1, 6]], p_[[1, 6]] = -(1 << 40), 1 << 40
    program = in_grid("gather", [(dtype, 32, "in"), (I64, 8, "in"), (I64, 8, "in"), (dtype, 32, "out")], body)
    (y,) = run(program, [x, q_, p_, np.zeros(32, dtype.numpy)])
    expected = np.zeros(32, dtype.numpy)
    for i in range(LANES):  # where two lanes meet the later one stays
        if q_[i] >= 0:
            expected[p_[i]] = x[q_[i]]
    assert y.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.bool_], ids=str)
@pytest.mark.parametrize("wanted", [0, 5, LANES])
def test_what_all_lanes_read_is_one_load_and_none_where_no_lane_wants_it(dtype: dtypes.DType, wanted: int) -> None:
    body = Body()
    place = body.load(param(2, 1, I64), 0)
    everywhere = body.let(OpCode.EXPAND, place, arg=LANES, lanes=LANES)
    lane = body.let(OpCode.LANES, arg=LANES, lanes=LANES)
    valid = body.let(OpCode.CMPLT, lane, const(wanted, I64), dtype=BOOL, lanes=LANES)
    body.store(param(1, LANES, dtype), 0, body.load(param(0, 5, dtype), everywhere, valid, lanes=LANES))
    program = in_grid("everywhere", [(dtype, 5, "in"), (dtype, LANES, "out"), (I64, 1, "in")], body)
    assert "masked.gather" not in render(program, host_target()).text
    ones = np.ones(5, dtype.numpy)
    (y,) = run(program, [ones, np.ones(LANES, dtype.numpy), np.array([3 if wanted else 1 << 40])])
    np.testing.assert_array_equal(y, [1] * wanted + [0] * (LANES - wanted))


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.int8, dtypes.bool_], ids=str)
def test_masked_lanes_read_zero_and_write_nothing(dtype: dtypes.DType) -> None:
    body = Body()
    lane = body.let(OpCode.LANES, arg=LANES, lanes=LANES)
    valid = body.let(OpCode.CMPLT, lane, const(5, I64), dtype=BOOL, lanes=LANES)
    body.store(param(1, LANES, dtype), 0, body.load(param(0, 5, dtype), 0, valid, lanes=LANES))
    body.store(param(2, LANES, dtype), 0, body.load(param(0, 5, dtype), 0, valid, lanes=LANES), valid)
    x = np.ones(5, dtype.numpy)
    program = in_grid("masked", [(dtype, 5, "in"), (dtype, LANES, "out"), (dtype, LANES, "out")], body)
    whole, part = run(program, [x, np.ones(LANES, dtype.numpy), np.full(LANES, 1, dtype.numpy)])
    np.testing.assert_array_equal(whole, [1] * 5 + [0] * 3)
    np.testing.assert_array_equal(part, [1] * LANES)


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("holds", [False, True])
def test_condition_of_one_lane_covers_the_whole_access(lanes: int, holds: bool) -> None:
    body = Body()
    valid = body.let(OpCode.CMPEQ, body.load(param(2, 1, I64), 0), 1, dtype=BOOL)
    far = body.let(OpCode.MUL, body.let(OpCode.SUB, 1, body.load(param(2, 1, I64), 0)), 1 << 40)
    body.store(param(1, lanes), 0, body.load(param(0, lanes), far, valid, lanes))
    body.store(param(1, lanes), far, body.let(OpCode.EXPAND, const(7.0, F32), dtype=F32, arg=lanes, lanes=lanes), valid)
    program = in_grid("condition", [(F32, lanes, "in"), (F32, lanes, "out"), (I64, 1, "in")], body)
    x = numbers(lanes)
    (y,) = run(program, [x, x, np.array([int(holds)])])
    np.testing.assert_array_equal(y, np.full(lanes, 7.0 if holds else 0.0))


def test_shared_memory_is_read_at_indices_that_change() -> None:
    tile = memory("panel", 64, MemorySpace.SHARED)
    body, put, take = Body(), Body(), Body()
    i, j = loop_range(1, 64), loop_range(2, 64)
    body.add(Alloc(tile))
    put.store(tile, put.let(OpCode.SUB, 63, i), put.load(param(0, 64), i))
    body.loop(1, 64, AxisKind.LOOP, put)
    take.store(param(1, 64), j, take.load(tile, j))
    body.loop(2, 64, AxisKind.LOOP, take)
    x = numbers(64)
    (y,) = run(in_grid("panel", [(F32, 64, "in"), (F32, 64, "out")], body), [x, x])
    np.testing.assert_array_equal(y, x[::-1])


@pytest.mark.parametrize("high", [100, 1 << 40])
def test_division_of_indices(high: int) -> None:
    """Not negative: without sign, in 32 bits where they fit; else rounded down."""
    body = Body()
    i = loop_range(0, 50, AxisKind.GRID)
    for slot, offset in enumerate((0, high, -high)):
        a = body.let(OpCode.ADD, i, offset)
        body.store(param(2 * slot, 50, I64), i, body.let(OpCode.IDIV, a, 7))
        body.store(param(2 * slot + 1, 50, I64), i, body.let(OpCode.MOD, a, 7))
    program = in_grid("division", [(I64, 50, "out")] * 6, body, 50)
    results = run(program, [np.zeros(50, np.int64)] * 6)
    for slot, offset in enumerate((0, high, -high)):
        a = np.arange(50) + offset
        np.testing.assert_array_equal(results[2 * slot], a // 7)
        np.testing.assert_array_equal(results[2 * slot + 1], a % 7)


def test_an_index_that_passed_a_check_is_no_choice() -> None:
    """A condition that lives on behind the branch is a byte of a register: each turn then waits for the turn before."""
    rows, place = Tensor(numbers(12)).reshape(4, 3), Tensor([2, 0, 3])
    text = str(pg.explain(rows.index_select(0, place).sum(1), stages=["source"]))
    assert "br i1" in text and "phi i64" in text and "select i1" not in text
    with pytest.raises(pg.IndexingError, match="4"):
        rows.index_select(0, Tensor([0, 4, 1])).sum(1).tolist()


if __name__ == "__main__":
    (GOLDEN / "scale_add.ll").write_text(render(scale_add(), host_target()).text)


# ---- meanings ----
SPECIAL = {"i": (-7, -1, 0, 1, 2, 5), "u": (0, 1, 2, 5), "b": (False, True), "f": (-np.inf, -2.5, 0.0, 1.0, np.inf, np.nan)}
NUMBERS = {"b": ("bitwise_and", "bitwise_or", "bitwise_xor"), "f": ("div",)}
INTEGERS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")
KINDS = (dtypes.int8, dtypes.uint16, dtypes.int32, dtypes.uint64, BOOL, F32, dtypes.float64)
ALL = ("add", "mul", "maximum", "minimum", "lt", "le", "gt", "ge", "eq", "ne")


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_instruction_means_what_the_evaluator_says(dtype: dtypes.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [] if dtype.kind in "bf" else [int(dtype.min), int(dtype.max)]
    values = np.array([*SPECIAL[dtype.kind], *ends], dtype.numpy)
    a, b = (side.ravel() for side in np.meshgrid(values, values))

    def results(device: str) -> list[np.ndarray]:
        monkeypatch.setenv("PICOGRAD_DEVICE", device)
        x, y = Tensor(a), Tensor(b)
        found = [getattr(x, name)(y) for name in (*ALL, *NUMBERS.get(dtype.kind, INTEGERS))]
        if dtype.kind in "iu":
            divisor = pg.where(y == 0, y + 1, y)
            found += [x // divisor, x % divisor]
        pg.realize(found)
        return [each.numpy() for each in found]

    for number, (got, expected) in enumerate(zip(results("CPU"), results("NUMPY"), strict=True)):
        np.testing.assert_array_equal(got, expected, str(number))
