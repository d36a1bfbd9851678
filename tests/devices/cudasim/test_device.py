"""The simulator runs right kernels to the right result in every order of threads, and catches wrong ones."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.evaluator.program import evaluate_program
from picograd.ir.stages import Binary, Launch, Param, Program, Source
from picograd.record import replace
from tests.gpu_programs import (
    F32,
    Array,
    check_elementwise,
    check_matmul,
    check_row_sums,
    elementwise,
    matmul,
    row_sums,
    run,
)
from tests.host_compilers import needs_compiler, simulated

pytestmark = needs_compiler


@pytest.fixture(params=ORDERS)
def device(request: pytest.FixtureRequest) -> CudaSimDevice:
    return CudaSimDevice(request.param, seed=7)


def load(device: CudaSimDevice, program: Program, *options: str):  # type: ignore[no-untyped-def]
    return device.load(simulated(render(program, TARGET), *options))


# ---- right kernels ----
ELEMENTWISE, ROW_SUMS, WITHOUT_BARRIERS = elementwise(), row_sums(5, 300), row_sums(2, 100, barriers=False)


def test_elementwise(device: CudaSimDevice) -> None:
    check_elementwise(device, load(device, ELEMENTWISE))


def test_row_sums(device: CudaSimDevice) -> None:
    check_row_sums(device, load(device, ROW_SUMS), 5, 300)


@pytest.mark.variants(every=3)
def test_matmul(device: CudaSimDevice) -> None:
    check_matmul(device, load(device, matmul(128, 32, 48)), 128, 32, 48)


@pytest.mark.variants(every=3)
def test_fibers_without_assembly(device: CudaSimDevice) -> None:
    """The way processors other than x86-64 switch threads."""
    check_row_sums(device, load(device, row_sums(3, 100), "-DCUDASIM_UCONTEXT"), 3, 100)


@pytest.mark.parametrize(
    ("program", "shapes"),
    [(row_sums(2, 70, threads=8), ((2, 70), (2,))), (matmul(16, 8, 8, tile=4, rows=4), ((16, 8), (8, 8), (16, 8)))],
    ids=lambda value: value.name if isinstance(value, Program) else "",
)
def test_the_evaluator_agrees_to_the_bit(program: Program, shapes: tuple[tuple[int, ...], ...]) -> None:
    device = CudaSimDevice("shuffled", 3)
    *inputs, out = [np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(shapes)]
    expected = out.copy()
    run(device, load(device, program), [*inputs, out])
    evaluate_program(program, [*[x.reshape(-1) for x in inputs], expected.reshape(-1)])
    np.testing.assert_array_equal(out, expected)


def test_a_rough_power_of_two_is_2_ulp_off_at_most_and_never_subnormal() -> None:
    found = run_text("p1[threadIdx.x] = rough_exp2(p0[threadIdx.x] * -2.3f);")
    exact = np.exp2((np.arange(64, dtype=np.float32) * np.float32(-2.3)).astype(np.float64))
    normal = exact >= 2.0**-126
    assert not found[~normal].any() and not normal.all()
    assert np.abs(found / exact - 1)[normal].max() <= 2.0**-22
    assert run_text("p1[threadIdx.x] = rough_exp2(-1.0f / p0[0]);")[0] == 0


# ---- seeded bugs ----
def run_text(body: str, order: str = "forward", block: int = 64, grid: int = 1) -> Array:
    """Runs a kernel body over p0, 64 floats to read, and p1, 64 floats to write."""
    return run_seeded(seeded(body, grid=grid, block=block), order)


def seeded(*bodies: str, grid: int = 1, block: int = 64) -> Binary:
    """Returns kernels seeded_0, ...; each body begins at line 3."""
    head = '#line 2\nextern "C" __global__ void seeded_{}(Global<const float32> p0, Global<float32> p1) {{\n{}\n}}\n'
    text = "".join(['#include "primitives.h"\n', *(head.format(i, body) for i, body in enumerate(bodies))])
    launches = tuple(Launch(f"seeded_{i}", grid, block, 1) for i in range(len(bodies)))
    params = (Param(F32, 64, "in"), Param(F32, 64, "out"))
    return simulated(Source("seeded", "cuda", text, params, (), launches))


def run_seeded(binary: Binary, order: str = "forward") -> Array:
    device, out = CudaSimDevice(order), np.zeros(64, np.float32)
    run(device, device.load(binary), [np.arange(64, dtype=np.float32), out])
    return out


def caught(body: str, order: str = "forward", block: int = 64, grid: int = 1) -> str:
    with pytest.raises(DeviceError) as error:
        run_text(body, order, block, grid)
    return error.value.fact


def test_a_parameter_is_named_by_its_number_however_many_there_are() -> None:
    given = ", ".join(f"Global<float32> p{i}" for i in range(300))
    text = f'#include "primitives.h"\nextern "C" __global__ void many_0({given}) {{ p280[1] = 1.0f; }}\n'
    params = (Param(F32, 1, "out"),) * 300
    source = Source("many", "cuda", text, params, (), (Launch("many_0", 1, 1, 1),))
    device = CudaSimDevice()
    loaded = device.load(hostcxx.compile_source(source, TARGET))
    with pytest.raises(DeviceError, match=r"writes p280\[1\], which has 1 elements"):
        run(device, loaded, [np.zeros(1, np.float32) for _ in params])


BUGS = {
    "global read out of bounds": (
        "p1[threadIdx.x] = p0[threadIdx.x + 1];",
        "CUDASIM: kernel seeded_0, block 0, thread 63: reads p0[64], which has 64 elements.",
    ),
    "global write out of bounds": (
        "p1[(int64)threadIdx.x - 1] = 1.0f;",
        "CUDASIM: kernel seeded_0, block 0, thread 0: writes p1[-1], which has 64 elements.",
    ),
    "shared out of bounds": (
        "SHARED(float32, tile, 63);\n  tile[threadIdx.x] = 1.0f;",
        "CUDASIM: kernel seeded_0, block 0, thread 63: writes tile[63], which has 63 elements.",
    ),
    "register out of bounds": (
        "REGISTERS(float32, acc, 2);\n  acc[threadIdx.x / 32 + 1] = 1.0f;",
        "CUDASIM: kernel seeded_0, block 0, thread 32: writes acc[2], which has 2 elements.",
    ),
    "shared read before it is written": (
        "SHARED(float32, tile, 64);\n  if (threadIdx.x > 0) tile[threadIdx.x] = 1.0f;\n  __syncthreads();\n  p1[0] = tile[0];",  # noqa: E501
        "CUDASIM: kernel seeded_0, block 0, thread 0: reads tile[0], which this block has not written.",
    ),
    "register read before it is written": (
        "REGISTERS(float32, acc, 1);\n  p1[threadIdx.x] = acc[0];",
        "CUDASIM: kernel seeded_0, block 0, thread 0: reads acc[0], which this thread has not written.",
    ),
    "race of a write and a read": (
        "SHARED(float32, tile, 64);\n  tile[threadIdx.x] = p0[0];\n  p1[threadIdx.x] = tile[threadIdx.x / 2];",
        "CUDASIM: kernel seeded_0, block 0, thread 1: race: reads tile[0], "
        "which thread 0 wrote since the last barrier.",
    ),
    "race of two writes": (
        "SHARED(float32, tile, 64);\n  tile[threadIdx.x / 2] = p0[threadIdx.x];",
        "CUDASIM: kernel seeded_0, block 0, thread 1: race: writes tile[0], "
        "which thread 0 wrote since the last barrier.",
    ),
    "barrier in a branch": (
        "if (threadIdx.x < 32) __syncthreads();\n  p1[threadIdx.x] = 1.0f;",
        "CUDASIM: kernel seeded_0, block 0, thread 0: divergent barrier: waits at line 3, while thread 32 has ended.",
    ),
    "two barriers in two branches": (
        "if (threadIdx.x < 32) __syncthreads();\n  else\n    __syncthreads();",
        "CUDASIM: kernel seeded_0, block 0, thread 0: divergent barrier: waits at line 3, "
        "while thread 32 waits at line 5.",
    ),
    "too much stack": (
        "volatile float32 big[40000];\n  for (int i = 0; i < 40000; i++) big[i] = 1.0f;\n  p1[0] = big[7];",
        "CUDASIM: kernel seeded_0: a thread needs more than 131072 bytes of stack.",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_bug_is_named(bug: str) -> None:
    every, number = seeded(*(body for body, _ in BUGS.values())), list(BUGS).index(bug)
    with pytest.raises(DeviceError) as error:
        run_seeded(replace(every, launches=(every.launches[number],)))
    assert error.value.fact == BUGS[bug][1].replace("seeded_0", f"seeded_{number}")


def test_missing_barrier_is_caught_in_every_order(device: CudaSimDevice) -> None:
    executable = load(device, WITHOUT_BARRIERS)
    with pytest.raises(DeviceError, match=r"partial\[\d+\], which (thread \d+|this block)"):
        run(device, executable, [np.ones((2, 100), np.float32), np.zeros(2, np.float32)])


def test_write_after_read_without_a_barrier_is_a_race() -> None:
    body = """  SHARED(float32, tile, 64);
  tile[threadIdx.x] = p0[threadIdx.x];
  __syncthreads();
  const float32 next = tile[(threadIdx.x + 1) % 64];
  tile[threadIdx.x] = next;"""
    expected = "writes tile[1], which thread 0 read since the last barrier."
    assert caught(body) == f"CUDASIM: kernel seeded_0, block 0, thread 1: race: {expected}"


def test_element_read_by_many_and_written_by_one_is_a_race() -> None:
    body = """  SHARED(float32, tile, 1);
  if (threadIdx.x == 0) tile[0] = 1.0f;
  __syncthreads();
  p1[threadIdx.x] = tile[0];
  if (threadIdx.x == 63) tile[0] = 2.0f;"""
    expected = "writes tile[0], which other threads read since the last barrier."
    assert caught(body) == f"CUDASIM: kernel seeded_0, block 0, thread 63: race: {expected}"


def test_shared_memory_of_another_block_is_not_kept() -> None:
    body = """  SHARED(float32, tile, 64);
  if (blockIdx.x == 0) tile[threadIdx.x] = 1.0f;
  __syncthreads();
  p1[threadIdx.x] = tile[threadIdx.x];"""
    expected = "reads tile[0], which this block has not written."
    assert caught(body, grid=2) == f"CUDASIM: kernel seeded_0, block 1, thread 0: {expected}"


def test_orders_show_what_depends_on_order() -> None:
    """Threads that write one global element: the last one wins, and which is last depends on the order."""
    winners = {order: run_text("p1[0] = (float32)threadIdx.x;", order)[0] for order in ORDERS}
    assert winners["forward"] == 63 and winners["backward"] == 0
    assert winners["shuffled"] not in (63, 0)


def test_blocks_follow_the_order_too() -> None:
    assert run_text("p1[0] = (float32)blockIdx.x;", "backward", block=1, grid=5)[0] == 0


def test_a_device_goes_on_after_an_error() -> None:
    caught(BUGS["race of two writes"][0])
    assert run_text("p1[threadIdx.x] = p0[threadIdx.x] * 2;").tolist() == [2.0 * i for i in range(64)]


def test_unwritten_output_is_nan() -> None:
    assert np.isnan(run_text("if (threadIdx.x != 5) p1[threadIdx.x] = 1.0f;")[5])


def test_memory_is_counted() -> None:
    device = CudaSimDevice()
    first, second = device.allocate(100), device.allocate(7)
    del first
    assert (device.memory.in_use, device.memory.peak, second.nbytes) == (7, 107, 7)


# ---- narrow floats ----
NARROW = {dtypes.float16: "uint16", dtypes.bfloat16: "uint16", dtypes.float8_e4m3: "uint8", dtypes.float8_e5m2: "uint8"}


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_narrow_float_widens_and_narrows_exactly(dtype: DType) -> None:
    """All bit patterns, and the points halfway between neighbours with their neighbours."""
    count = 256**dtype.itemsize
    bits = np.arange(count, dtype=NARROW[dtype])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = bits.view(dtype.numpy).astype(np.float32)
    finite = np.sort(wide[np.isfinite(wide)])
    halfway = (finite[1:].astype(np.float64) + finite[:-1]) / 2
    ties = halfway[halfway != 0].astype(np.float32)
    above, below = np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))
    with np.errstate(over="ignore"):
        probes = np.concatenate([wide, ties, above, below, finite[-1:] * np.float32(2)])
    text = f"""#include "primitives.h"
extern "C" __global__ void convert_0(Global<const {dtype}> p0, Global<float32> p1, Global<const float32> p2,
                                     Global<{dtype}> p3) {{
  const int64 i = blockIdx.x * 256 + threadIdx.x;
  if (i < {count}) p1[i] = to_float32(p0[i]);
  if (i < {len(probes)}) p3[i] = to_{dtype}(p2[i]);
}}
"""
    numels = (count, count, len(probes), len(probes))
    params = tuple(Param(t, n, r) for t, n, r in zip((dtype, F32, F32, dtype), numels, ("in", "out", "in", "out")))
    blocks = -(-max(numels) // 256)
    source = Source("convert", "cuda", text, params, (), (Launch("convert_0", blocks, 256, 1),))
    device = CudaSimDevice()
    widened, narrowed = np.zeros(count, np.float32), np.zeros(len(probes), dtype.numpy)
    executable = device.load(hostcxx.compile_source(source, TARGET))
    run(device, executable, [bits.view(dtype.numpy), widened, probes, narrowed])
    np.testing.assert_array_equal(widened, wide)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = probes.astype(dtype.numpy)
    same = narrowed.view(bits.dtype) == expected.view(bits.dtype)
    with np.errstate(invalid="ignore"):
        both_nan = np.isnan(narrowed.astype(np.float32)) & np.isnan(expected.astype(np.float32))
    assert (same | both_nan).all(), probes[~(same | both_nan)][:5]
