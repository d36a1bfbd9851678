"""Atomics in hand-written kernels: on the simulator, on a GPU where there is one, as machine code for three generations."""

from __future__ import annotations

import re

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.engine import devices
from picograd.errors import DeviceError
from picograd.ir.stages import Launch, Param, Source
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler, simulated
from tests.on_devices import device_params

THREADS, BLOCKS, BINS = 64, 5, 8

# How often each number occurs: a block counts in shared memory, then adds what it has found.
HISTOGRAM = """extern "C" __global__ void written_1(Global<const int32> p0, Global<int32> p1) {
  SHARED(int32, counts, 8);
  if (threadIdx.x < 8) counts[threadIdx.x] = 0;
  __syncthreads();
  const int32 bin = p0[blockIdx.x * 64 + threadIdx.x];
  atomic_add(counts, bin, 1);
  __syncthreads();
  if (threadIdx.x < 8) atomic_add(p1, threadIdx.x, counts[threadIdx.x]);
}
"""
# sum, greatest, least, how many threads came, and which one was first (plus one)
EACH = """extern "C" __global__ void written_1(Global<const T> p0, Global<T> p1) {
  const T value = p0[blockIdx.x * 64 + threadIdx.x];
  atomic_add(p1, 0, value);
  INTEGERS(atomic_max(p1, 1, value); atomic_min(p1, 2, value);)
  atomic_add(p1, 3, 1);
  if (compare_and_swap(p1, 4, 0, 7) == 7) atomic_exchange(p1, 5, 9);
}
"""
INTEGERS = [dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64]


CLEAR = """extern "C" __global__ void written_0(Global<const {0}> p0, Global<{0}> p1) {{
  if (threadIdx.x < {1}) p1[threadIdx.x] = 0;
}}
"""


def source_of(text: str, dtype: DType, count: int) -> Source:
    """Returns a kernel with one that clears its result before it."""
    params = (Param(dtype, THREADS * BLOCKS, "in"), Param(dtype, count, "out"))
    launches = (Launch("written_0", 1, THREADS, 1), Launch("written_1", BLOCKS, THREADS, 1))
    whole = "\n".join(['#include "primitives.h"', CLEAR.format(dtype, count), text])
    return Source("written", "cuda", whole, params, (), launches)


def each_of(dtype: DType) -> Source:
    macro = "#define INTEGERS(text) text\n" if dtype.is_int else "#define INTEGERS(text)\n"
    return source_of(f"{macro}typedef {dtype} T;\n{EACH}", dtype, 6)


def bins(rng: np.random.Generator) -> Array:
    return rng.integers(0, BINS, THREADS * BLOCKS).astype(np.int32)


def check_each(dtype: DType, device: object, compiled: object, rng: np.random.Generator) -> None:
    """Whole numbers, so that a sum of floats is exact in every order."""
    x = rng.integers(0 if dtype.kind == "u" else -9, 10, THREADS * BLOCKS).astype(dtype.numpy)
    found = np.zeros(6, dtype.numpy)
    run(device, device.load(compiled), [x, found])  # type: ignore[attr-defined]
    extremes = [max(x.max(), 0), min(x.min(), 0)] if dtype.is_int else [0, 0]
    assert found.tolist() == [x.sum(), *extremes, THREADS * BLOCKS, 7, 9]


@needs_compiler
@pytest.mark.parametrize("order", ORDERS)
def test_a_histogram(order: str, rng: np.random.Generator) -> None:
    x, found, device = bins(rng), np.zeros(BINS, np.int32), CudaSimDevice(order, seed=1)
    run(device, device.load(simulated(source_of(HISTOGRAM, dtypes.int32, BINS))), [x, found])
    np.testing.assert_array_equal(found, np.bincount(x, minlength=BINS))


@needs_compiler
@pytest.mark.parametrize("dtype", [*INTEGERS, dtypes.float32, dtypes.float64], ids=str)
def test_each_on_the_simulator(dtype: DType, rng: np.random.Generator) -> None:
    check_each(dtype, CudaSimDevice(), hostcxx.compile_source(each_of(dtype), TARGET), rng)


@pytest.mark.parametrize("device", device_params("CUDA"))
@pytest.mark.parametrize("dtype", [*INTEGERS, dtypes.float32, dtypes.float64], ids=str)
def test_each_on_a_gpu(dtype: DType, device: str, rng: np.random.Generator) -> None:
    compiler = devices.compiler_for(device)
    check_each(dtype, compiler.device, compiler.backend.compile(each_of(dtype), compiler.device.target), rng)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_they_are_machine_code(arch: str) -> None:
    target = Target("CUDA", "cuda", arch, block_threads=256, shared_bytes=48 * 1024)
    kernels = [each_of(dtype) for dtype in (*INTEGERS, dtypes.float32, dtypes.float64)]
    for source in [source_of(HISTOGRAM, dtypes.int32, BINS), *kernels]:
        for usage in nvrtc.resource_usage(source, target).values():
            assert usage.spill_nbytes == usage.stack_nbytes == 0


BUGS = {
    "no barrier before": (r"__syncthreads\(\);", "", 0, "not written|race"),
    "no barrier after": (r"__syncthreads\(\);", "", 1, "changed by an atomic|which another thread read"),
    "an addition that is not atomic": (r"atomic_add\(counts, bin, 1\);", "counts[bin] += 1;", 0, "race"),
    "beside an atomic": (r"atomic_add\(counts, bin, 1\);", r"atomic_add(counts, bin, 1); counts[bin] = 1;", 0, "race"),
    "past the end": (r"atomic_add\(counts, bin", "atomic_add(counts, bin + 8", 0, "which has 8 elements"),
    "past the end of memory": (r"atomic_add\(p1, threadIdx.x", "atomic_add(p1, threadIdx.x + 8", 0, "which has 8 elements"),
}


@needs_compiler
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str, rng: np.random.Generator) -> None:
    pattern, becomes, number, says = BUGS[name]
    at = list(re.finditer(pattern, HISTOGRAM))[number]
    text = HISTOGRAM[: at.start()] + becomes + HISTOGRAM[at.end() :]
    binary, messages = hostcxx.compile_source(source_of(text, dtypes.int32, BINS), TARGET), []
    for order in ORDERS:
        device = CudaSimDevice(order, seed=1)
        try:
            run(device, device.load(binary), [bins(rng), np.zeros(BINS, np.int32)])
        except DeviceError as error:
            messages.append(error.fact)
    assert any(re.search(says, message) for message in messages), messages
