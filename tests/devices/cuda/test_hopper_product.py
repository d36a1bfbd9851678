"""A product by warps that copy and warpgroups that multiply: on the simulator, on a GPU; and what is wrong is found.

The kernel is tests/devices/cuda/hopper_product.cu. Each bug is a change of its text, as somebody makes it by mistake.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.engine import devices
from picograd.errors import DeviceError
from picograd.ir.stages import Binary, Launch, Param, Source, TileMap
from picograd.record import replace
from tests.fake_driver import run_on
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.on_devices import device_params

TEXT = (Path(__file__).parent / "hopper_product.cu").read_text()
M, N, K = 200, 100, 304
SHARED_NBYTES = 104 * 1024
MAPS = (TileMap(0, (M, K), (128, 64)), TileMap(1, (N, K), (64, 64)), TileMap(2, (M, N), (64, 32)))


def source_of(text: str = TEXT, maps: tuple[TileMap, ...] = MAPS) -> Source:
    lengths = ((dtypes.bfloat16, M * K, "in"), (dtypes.bfloat16, N * K, "in"), (dtypes.float32, M * N, "out"))
    launch = Launch("product_0", 4, 384, 1, SHARED_NBYTES, maps)
    return Source("product", "cuda", text, tuple(Param(*each) for each in lengths), (), (launch,))


@cache
def operands() -> tuple[Array, Array, Array]:
    """Returns two matrices of small whole numbers, and their product, which is exact."""
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.integers(-4, 5, (rows, K)).astype(np.float32) for rows in (M, N))
    return lhs.astype(dtypes.bfloat16.numpy), rhs.astype(dtypes.bfloat16.numpy), lhs @ rhs.T


@cache
def right_one() -> Binary:
    return hostcxx.compile_source(source_of(), TARGET)


def outcome(device: object, binary: Binary) -> Array:
    lhs, rhs, expected = operands()
    found = np.zeros_like(expected)
    run(device, device.load(binary), [lhs, rhs, found])  # type: ignore[attr-defined]
    return found


@pytest.mark.variants(every=3, first=2)
@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_it_is_exact_in_every_order(order: str) -> None:
    for seed in range(3):
        np.testing.assert_array_equal(outcome(CudaSimDevice(order, seed), right_one()), operands()[2])


@pytest.mark.parametrize("device", device_params("CUDA"))
def test_it_on_a_gpu(device: str) -> None:
    compiler = devices.compiler_for(device)
    if not compiler.device.target.arch.startswith("sm_90"):
        pytest.skip(f"wgmma is of sm_90a, this GPU is {compiler.device.target.arch}")
    binary = compiler.backend.compile(source_of(), compiler.device.target)
    np.testing.assert_array_equal(outcome(compiler.device, binary), operands()[2])


def test_it_is_machine_code() -> None:
    target = Target("CUDA", "cuda", "sm_90a", block_threads=256, shared_bytes=227 * 1024)
    (usage,) = nvrtc.resource_usage(source_of(), target).values()
    assert usage.spill_nbytes == usage.stack_nbytes == 0
    assert usage.registers * 384 <= 64 * 1024 and usage.shared_nbytes + SHARED_NBYTES <= 227 * 1024


# ---- seeded bugs ----
# What is replaced, by what, and what is said in one of the orders; nothing is where only the result shows it.
BUGS = {
    "a consumer's parity": (r"full, stage, k / 3 % 2\)", "full, stage, k / 3 % 2 ^ 1)", "not written|copy is on its way"),
    "a producer's parity": (r"% 2 \^ 1\)", "% 2)", r"deadlock: thread \d+ waits at line \d+ for parity 0 of empty\[0\]"),
    "arrivals that nobody makes": (r"empty, stage, 2\)", "empty, stage, 3)", "deadlock: .* misses 1 of 3 arrivals"),
    "fewer arrivals than there are": (r"empty, stage, 2\)", "empty, stage, 1)", r"deadlock: .* for parity 0 of empty\[0\]"),
    "every thread arrives": (r" && threadIdx.x % 128 == 0\) mbarrier", ") mbarrier", r"deadlock: .* of empty\[0\]"),
    "more bytes than come": (r"24576", "32768", r"deadlock: .* misses 0 of 1 arrivals and 8192 bytes"),
    "fewer bytes than come": (r"24576", "16384", "expect"),
    "a copy that is not counted": (
        r"mbarrier_arrive_expecting\(full, stage, 24576\)",
        "mbarrier_arrive(full, stage)",
        r"no wait for full\[0\] is known",
    ),
    "no wait for a stage": (r"      mbarrier_wait\(full.*\n", "", "not written|copy is on its way"),
    "a wait by one thread": (
        r"mbarrier_wait\(full",
        "if (threadIdx.x % 128 == 0) mbarrier_wait(full",
        "no wait for full|not written",
    ),
    "no wait for an empty stage": (
        r"        mbarrier_wait\(empty.*\n",
        "",
        r"arrives at full\[0\], where all 1 of this phase have arrived",
    ),
    "a stage given back too early": (r"wgmma_wait<1, 32>\(acc, 0\);", "", "copies to .* which a wgmma"),
    "the stage that is read is given back": (
        r"k > 0 && (.*)empty, \(k - 1\) % 3",
        r"\1empty, k % 3",
        "copies to .* which a wgmma",
    ),
    "no wait before the sums are read": (r"    wgmma_wait<0, 32>\(acc, 0\);\n", "", "to which a wgmma adds"),
    "a group that is left open": (r"      wgmma_commit\(\);\n", "", "copies to .* which a wgmma"),
    "no fence before a wgmma": (r"      wgmma_fence<32>\(acc, 0\);\n", "", "before any wgmma_fence"),
    "sums written without a fence": (
        r"(wgmma_fence<32>\(acc, 0\);)",
        r"\1 if (k == 0) acc[3] = 0.0f;",
        r"adds to acc\[3\], written with no wgmma_fence",
    ),
    "sums changed on their way": (r"(wgmma_commit\(\);)", r"\1 if (k == 4) acc[0] += 1.0f;", "to which a wgmma adds"),
    "sums that nobody has cleared": (r"k \+ step > 0", "true", "which this thread has not written"),
    "a step of 32 along K": (r"own \+ step \* 16", "own + step * 32", "no 16 of K"),
    "a step of 8 along K": (r"own \+ step \* 16(.*stage \* 4096) \+ step \* 16", r"own + step * 8\1 + step * 8", ""),
    "a step of a row": (r"own \+ step \* 16", "own + step * 64", "no 16 of K are there in the first of 8 rows"),
    "the other warpgroup's rows": (r"own = stage \* 8192 \+ \(warpgroup - 1\) \* 4096", "own = stage * 8192", ""),
    "a tile that is not there": (
        r"own = stage \* 8192 \+ ",
        "own = (stage + 1) * 8192 + ",
        "which has 24576|on its way|not written",
    ),
    "warps that go apart": (
        r"      wgmma_commit\(\);",
        "      if (threadIdx.x % 128 < 96)\n"
        "        wgmma_m64k16<64>(acc, 0, operand_at<false>(lhs, own), operand_at<false>(rhs, stage * 4096), true);\n"
        "      wgmma_commit();",
        "divergent instruction of a warpgroup|on its way",
    ),
    "no fence behind initialising": (r"    fence_mbarriers\(\);\n", "", "no fence_mbarriers"),
    "no barrier behind initialising": (r"  __syncthreads\(\);\n", "", "initialised"),
    "an mbarrier that is not there": (
        r"load_tile\(rhs, stage \* 4096, b, full, stage",
        "load_tile(rhs, stage * 4096, b, full, k",
        r"uses full\[3\], which has 3|deadlock|expect",
    ),
    "an mbarrier of another stage": (r"b, full, stage, k \* 64", "b, full, (stage + 1) % 3, k * 64", "no wait for full"),
    "a copy to no row of eight": (
        r"load_tile\(rhs, stage \* 4096",
        "load_tile(rhs, stage * 4096 + 64",
        "no multiple of 1024",
    ),
    "a copy past the end": (r"load_tile\(lhs, stage \* 8192", "load_tile(lhs, (stage + 1) * 8192", "copies to lhs"),
    "axes in the other order": (r"full, stage, k \* 64, top\)", "full, stage, top, k * 64)", ""),
    "stored without swizzle": (r"swizzled<float32>\((row \* 32 \+ column % 32)\)", r"\1", ""),
    "no fence of the proxy": (r"    fence_async_proxy\(\);\n", "", "no fence_async_proxy behind it"),
    "a fence before what it is for": (
        r"(    const int32 first = [^@]*)    fence_async_proxy\(\);\n",
        r"    fence_async_proxy();\n\1",
        "no fence_async_proxy behind it",
    ),
    "no barrier before a store": (r"    sync_warpgroup\(\);\n", "", "stores from|not written"),
    "no wait for a store": (r" wait_stores<0>\(\);|      wait_stores<0>\(\);\n", "", "ends while it stores from out"),
    "a store that is not committed": (r"      commit_stores\(\);\n", "", "ends while it stores from out"),
    "written while it is stored": (r"(wait_stores<0>\(\);)", r"out[first] = 0.0f; \1", "race: writes out"),
    "a thread less in the warpgroup": (
        r"    sync_warpgroup\(\);",
        "    if (threadIdx.x % 128 > 0) sync_warpgroup();",
        "stores from out.*(not written|since the last barrier)",
    ),
    "a copy nobody waits for": (
        r"for \(int32 k = 0; k < 5; k\+\+\) \{\n        const",
        "for (int32 k = 0; k < 6; k++) {\n        const",
        "the block ends while a copy is on its way",
    ),
    "a step less": (
        r"for \(int32 k = 0; k < 5; k\+\+\) \{\n        const",
        "for (int32 k = 0; k < 4; k++) {\n        const",
        r"deadlock: thread \d+ waits at line \d+ for parity 1 of full\[1\]",
    ),
    "two threads copy": (
        r"threadIdx.x < 32 && is_elected\(\)",
        "threadIdx.x < 2",
        "have arrived|race: copies|copies to .* on its way",
    ),
}


def changed(name: str) -> str:
    pattern, becomes, _ = BUGS[name]
    text, count = re.subn(pattern, becomes, TEXT, count=1)
    assert count == 1, "the kernel has no such place any more"
    return text


@needs_compiler
@pytest.mark.parametrize(
    ("number", "wrong", "says"),
    [
        (0, TileMap(0, (M, K), (128, 64), swizzles=False), None),
        (1, TileMap(0, (N, K), (64, 64)), None),
        (2, TileMap(2, (N, M), (64, 32)), None),
        (0, TileMap(0, (M, K), (64, 64)), r"deadlock: .* misses 0 of 1 arrivals and 8192 bytes"),
        (0, TileMap(0, (K, M), (64, 128)), "is swizzled with rows of 256 bytes; they must be 128"),
        (1, TileMap(1, (N + 1, K), (64, 64)), r"tile map of parameter 1: \(101, 304\) exceeds its 30400 elements"),
    ],
    ids=["no swizzle", "another matrix", "rows for columns", "half a box", "a box of wide rows", "more than there is"],
)
def test_a_wrong_map_is_found(number: int, wrong: TileMap, says: str | None) -> None:
    maps = (*MAPS[:number], wrong, *MAPS[number + 1 :])
    binary = replace(right_one(), launches=source_of(TEXT, maps).launches)
    if says is None:
        assert not np.array_equal(outcome(CudaSimDevice(), binary), operands()[2])
        return
    with pytest.raises(DeviceError, match=says):
        outcome(CudaSimDevice(), binary)


@pytest.mark.variants(every=31)
@needs_compiler
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    binary, says, found = hostcxx.compile_source(source_of(changed(name)), TARGET), BUGS[name][2], []
    for order in ORDERS:
        try:
            found.append(np.array_equal(outcome(CudaSimDevice(order, 3), binary), operands()[2]))
        except DeviceError as error:
            found.append(error.fact)
    if says:
        assert any(isinstance(each, str) and re.search(says, each) for each in found), found
    else:
        assert False in found, found


MAPPED = """
from tests.devices.cuda.test_hopper_product import *
kernel = device.load(right_one())
lhs, rhs, expected = operands()
for turn in range(3):  # in other memory each time, and again
    held = device.allocate(4096 * turn + 1)
    found = np.zeros_like(expected)
    run(device, kernel, [lhs, rhs, found])
    np.testing.assert_array_equal(found, expected)
maps = (*MAPS[:2], TileMap(2, (M + 1, N), (64, 32)))
try:
    outcome(device, replace(right_one(), launches=source_of(TEXT, maps).launches))
except DeviceError as error:
    print(error.fact)
"""


@needs_compiler
def test_a_gpus_plan_has_the_driver_make_maps(fake_driver: Path) -> None:
    """On a driver that keeps its memory on the host."""
    assert run_on(fake_driver, MAPPED) == "tile map of parameter 2: (201, 100) exceeds its 20000 elements."
