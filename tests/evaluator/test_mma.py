"""What a warp does together: the evaluator, the simulator and NumPy agree on Shuffle and Mma, and mistakes are named."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.evaluator.program import evaluate_program
from picograd.ir.op import const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.spec import verify_program
from picograd.ir.stages import Param, Program
from picograd.ir.statements import Alloc, For, If, Mma, Shuffle
from picograd.ir.text_program import format_program
from picograd_lab.reader import parse_program
from tests.gpu_programs import F32, Body, loop_range, memory, param, run
from tests.host_compilers import needs_compiler


def product(dtype: DType) -> Program:
    """d = c + a @ b for a (16, 16), b (16, 8), c (16, 8): each thread loads its parts element by element."""
    Body.count = 0
    thread, body = loop_range(1, AxisKind.BLOCK, 32), Body()
    g, t = body.let(OpCode.IDIV, thread, 4), body.let(OpCode.MOD, thread, 4)
    pair = body.let(OpCode.MUL, t, 2)
    acc, lhs, rhs = (memory(n, k, MemorySpace.REGISTER, d) for n, k, d in (("c", 4, F32), ("a", 8, dtype), ("b", 4, dtype)))
    body.add(*map(Alloc, (acc, lhs, rhs)))

    def places(count: int, row_of: int, k_of: int) -> list[tuple[int, int]]:
        return [(8 * (i // 2 % row_of), i % 2 + 8 * (i // k_of)) for i in range(count)]

    for i, (row, column) in enumerate(places(8, 2, 4)):
        at = body.at(body.let(OpCode.ADD, g, row), 16, body.let(OpCode.ADD, pair, column))
        body.store(lhs, i, body.load(param(0, 256, dtype), at))
    for i, (_, k) in enumerate(places(4, 1, 2)):
        at = body.at(body.let(OpCode.ADD, pair, k), 8, g)
        body.store(rhs, i, body.load(param(1, 128, dtype), at))
    result = [body.at(body.let(OpCode.ADD, g, 8 * (i // 2)), 8, body.let(OpCode.ADD, pair, i % 2)) for i in range(4)]
    for i, at in enumerate(result):
        body.store(acc, i, body.load(param(2, 128), at))
    zero = const(0, dtypes.int64)
    body.add(Mma(acc, zero, lhs, zero, rhs, zero))
    for i, at in enumerate(result):
        body.store(param(3, 128), at, body.load(acc, i))
    params = (Param(dtype, 256, "in"), Param(dtype, 128, "in"), Param(F32, 128, "in"), Param(F32, 128, "out"))
    return Program("product", params, (), ((For(loop_range(0, AxisKind.GRID, 1), (For(thread, body.done()),)),),))


DTYPES = pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32], ids=str)


@DTYPES
def test_a_warp_multiplies(dtype: DType, rng: np.random.Generator) -> None:
    """Whole numbers: every sum is exact, whatever the order."""
    program = product(dtype)
    verify_program(program, after="test")
    a, b = (rng.integers(-8, 9, shape).astype(dtype.numpy) for shape in ((16, 16), (16, 8)))
    c = rng.integers(-8, 9, (16, 8)).astype(np.float32)
    expected = c + a.astype(np.float32) @ b.astype(np.float32)
    found = np.zeros(128, np.float32)
    evaluate_program(program, [a.reshape(-1), b.reshape(-1), c.reshape(-1), found])
    np.testing.assert_array_equal(found.reshape(16, 8), expected)


@pytest.mark.variants(every=2)
@needs_compiler
@DTYPES
@pytest.mark.parametrize("order", ORDERS)
def test_the_simulator_multiplies(order: str, dtype: DType, rng: np.random.Generator) -> None:
    device = CudaSimDevice(order, seed=3)
    executable = device.load(hostcxx.compile_source(render(product(dtype), TARGET), TARGET))
    a, b = (rng.integers(-8, 9, shape).astype(dtype.numpy) for shape in ((16, 16), (16, 8)))
    c = rng.integers(-8, 9, (16, 8)).astype(np.float32)
    expected = c + a.astype(np.float32) @ b.astype(np.float32)
    run(device, executable, [a.reshape(-1), b.reshape(-1), c.reshape(-1), found := np.zeros(128, np.float32)])
    np.testing.assert_array_equal(found.reshape(16, 8), expected)


@needs_compiler
def test_of_float32_eleven_bits_are_multiplied(rng: np.random.Generator) -> None:
    """One product of each sum is not 0: both round it as TF32 does, ties away from zero, and keep what is no number."""
    a, b, c = np.zeros((16, 16), np.float32), np.zeros((16, 8), np.float32), np.zeros(128, np.float32)
    np.fill_diagonal(a, rng.standard_normal(16).astype(np.float32))
    b[:] = 1
    a[0, 0], a[1, 1], a[2, 2], a[3, 3], a[4, 4] = 1 + 2**-11, -1 - 3 * 2**-12, np.nan, -np.inf, np.float32(2**-130)
    executable = CudaSimDevice().load(hostcxx.compile_source(render(product(F32), TARGET), TARGET))
    found, simulated = np.zeros(128, np.float32), np.zeros(128, np.float32)
    evaluate_program(product(F32), [a.reshape(-1), b.reshape(-1), c, found])
    run(CudaSimDevice(), executable, [a.reshape(-1), b.reshape(-1), c, simulated])
    np.testing.assert_array_equal(found, simulated)
    assert found.reshape(16, 8)[:2, 0].tolist() == [1 + 2**-10, -1 - 2**-10]
    assert np.isnan(found.reshape(16, 8)[2]).all() and np.isneginf(found.reshape(16, 8)[3]).all()


def test_text_reads_back() -> None:
    program = product(dtypes.float16)
    assert parse_program(format_program(program)) == program


def shuffled(threads: int, condition: bool = False) -> Program:
    """y[t] = x[t ^ 4], of half the threads where there is a condition."""
    Body.count = 0
    thread, body, inside = loop_range(1, AxisKind.BLOCK, threads), Body(), Body()
    x, var = body.load(param(0, threads), thread), Body.var(F32)
    inside.add(Shuffle(var, x, 4))
    inside.store(param(1, threads), thread, var)
    half = body.let(OpCode.CMPLT, thread, 16, dtype=dtypes.bool_)
    body.add(*([If(half, inside.done())] if condition else inside.done()))
    params = (Param(F32, threads, "in"), Param(F32, threads, "out"))
    return Program("shuffled", params, (), ((For(loop_range(0, AxisKind.GRID, 1), (For(thread, body.done()),)),),))


def test_a_warp_exchanges_values() -> None:
    program, x, y = shuffled(64), np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    assert parse_program(format_program(program)) == program
    evaluate_program(program, [x, y])
    assert y.tolist() == [float(i ^ 4) for i in range(64)]


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_the_simulator_exchanges_values(order: str) -> None:
    device, x, y = CudaSimDevice(order), np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    run(device, device.load(hostcxx.compile_source(render(shuffled(64), TARGET), TARGET)), [x, y])
    assert y.tolist() == [float(i ^ 4) for i in range(64)]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (shuffled(64, condition=True), "threads of a warp wait at shuffle 0 and the end"),
        (shuffled(16), "16 threads of a warp reach a statement that needs all"),
    ],
    ids=["half a warp", "a small block"],
)
def test_what_not_all_of_a_warp_do_is_an_error(program: Program, message: str) -> None:
    threads = int(program.params[0].numel)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match=message):
        evaluate_program(program, [np.zeros(threads, np.float32), np.zeros(threads, np.float32)])


def test_parts_of_an_mma_are_in_registers() -> None:
    zero, shared = const(0, dtypes.int64), memory("s", 8, MemorySpace.SHARED, dtypes.float16)
    acc, rhs = memory("c", 4, MemorySpace.REGISTER), memory("b", 4, MemorySpace.REGISTER, dtypes.float16)
    thread = loop_range(1, AxisKind.BLOCK, 32)
    body = (Alloc(acc), Alloc(rhs), Mma(acc, zero, shared, zero, rhs, zero))
    phase: tuple[For, ...] = (For(loop_range(0, AxisKind.GRID, 1), (Alloc(shared), For(thread, body))),)
    with pytest.raises(VerifyError, match="the parts of an Mma's matrices are in registers"):
        verify_program(Program("wrong", (), (), (phase,)), after="test")

