"""Copies in the background in a hand-written kernel: on the simulator, on a GPU where there is one, and as machine code."""

from __future__ import annotations

import re

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.engine import devices
from picograd.errors import DeviceError
from picograd.ir.stages import Binary, Launch, Param, Source
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler, simulated
from tests.on_devices import device_params

THREADS, BLOCKS, TILES, LENGTH = 64, 3, 5, 1270  # of the last tile half is there

# y[t] = sum of x[tile * 256 + 4 t' + lane] over tiles and lanes, where t' is t reversed: three stages of shared memory.
PIPELINE = """extern "C" __global__ void written_0(Global<const float32> p0, Global<float32> p1) {
  SHARED(float32, tiles, 768);
  const int64 own = threadIdx.x * 4;
  for (int64 tile = 0; tile < 2; tile++) {
    copy_async<4>(tiles, tile * 256 + own, p0, tile * 256 + own, tile * 256 + own < 1268);
    commit_copies();
  }
  float32 sum = 0.0f;
  for (int64 tile = 0; tile < 5; tile++) {
    wait_copies<1>();
    __syncthreads();
    const int64 next = (tile + 2) * 256 + own;
    if (tile + 2 < 5) copy_async<4>(tiles, (tile + 2) % 3 * 256 + own, p0, next, next < 1268);
    commit_copies();
    for (int64 lane = 0; lane < 4; lane++) sum += tiles[tile % 3 * 256 + (63 - threadIdx.x) * 4 + lane];
  }
  wait_copies<0>();
  p1[blockIdx.x * 64 + threadIdx.x] = sum;
}
"""


def source_of(text: str) -> Source:
    params = (Param(dtypes.float32, LENGTH, "in"), Param(dtypes.float32, THREADS * BLOCKS, "out"))
    whole = f'#include "primitives.h"\n\n{text}'
    return Source("written", "cuda", whole, params, (), (Launch("written_0", BLOCKS, THREADS, 1),))


def outcome(device: object, compiled: Binary, rng: np.random.Generator) -> tuple[Array, Array]:
    """Returns what a kernel computes from small whole numbers, and what it should."""
    x, found = rng.integers(-9, 10, LENGTH).astype(np.float32), np.zeros(THREADS * BLOCKS, np.float32)
    run(device, device.load(compiled), [x, found])  # type: ignore[attr-defined]
    padded = np.zeros(TILES * 256, np.float32)
    padded[:1268] = x[:1268]
    return found, np.tile(padded.reshape(TILES, THREADS, 4).sum((0, 2))[::-1], BLOCKS)


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_a_pipeline_of_three_stages(order: str, rng: np.random.Generator) -> None:
    compiled = simulated(source_of(PIPELINE))
    np.testing.assert_array_equal(*outcome(CudaSimDevice(order, seed=2), compiled, rng))


@pytest.mark.parametrize("device", device_params("CUDA"))
def test_it_on_a_gpu(device: str, rng: np.random.Generator) -> None:
    compiler = devices.compiler_for(device)
    compiled = compiler.backend.compile(source_of(PIPELINE), compiler.device.target)
    np.testing.assert_array_equal(*outcome(compiler.device, compiled, rng))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_it_is_machine_code(arch: str) -> None:
    target = Target("CUDA", "cuda", arch, block_threads=256, shared_bytes=48 * 1024)
    (usage,) = nvrtc.resource_usage(source_of(PIPELINE), target).values()
    assert usage.spill_nbytes == usage.stack_nbytes == 0 and usage.shared_nbytes == 768 * 4


BUGS = {
    "no wait": (r"wait_copies<1>\(\);", "", "a copy is on its way"),
    "a wait for too few": (r"wait_copies<1>\(\);", "wait_copies<2>();", "a copy is on its way"),
    "no barrier": (r"__syncthreads\(\);", "", "race|not written|on its way"),
    "a stage that is still read": (r"\(tile \+ 2\) % 3", "(tile + 3) % 3", "race|on its way"),
    "one nobody waits for": (r"wait_copies<0>\(\);", "copy_async<4>(tiles, own, p0, own, true);", "ends while|race"),
    "a source past its end": (r"next < 1268", "true", "reads p0"),
    "a destination past its end": (r"\(tile \+ 2\) % 3", "(tile + 2)", "copies to tiles"),
    "a place that is no multiple": (r"% 3 \* 256 \+ own,", "% 3 * 256 + own + 1,", "no multiple"),
    "a group too many in one": (r"    commit_copies\(\);\n    for", "    for", "on its way"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, rng: np.random.Generator) -> None:
    pattern, becomes, says = BUGS[name]
    text, count = re.subn(pattern, becomes, PIPELINE, count=1)
    assert count == 1
    compiled, messages = hostcxx.compile_source(source_of(text), TARGET), []
    for order in ORDERS:
        try:
            outcome(CudaSimDevice(order, seed=2), compiled, rng)
        except DeviceError as error:
            messages.append(error.fact)
    assert any(re.search(says, message) for message in messages), messages
