"""Every primitive of the CUDA headers: its C++ body against NumPy, its PTX body as machine code, and both on a GPU.

The kernels are in primitive_cases.py and hopper_cases.py; a header's are compiled as one.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import picograd
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.engine import devices
from picograd.ir.stages import Binary, Launch, Param, Source
from picograd.record import replace
from tests.devices.cuda import hopper_cases, primitive_cases
from tests.devices.cuda.primitive_cases import EVERYWHERE, Case, dtype_of
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.on_devices import device_params

HEADERS = {"primitives.h": primitive_cases.CASES, "hopper.h": hopper_cases.CASES}
CASES = {name: (header, case) for header, cases in HEADERS.items() for name, case in cases.items()}
# What only the body of a primitive calls.
PARTS = {
    "is_aligned": "load_lanes", "pair_of": "mma_m16n8k16", "as_tf32": "mma_m16n8k16", "as_multiplied": "mma_m16n8k16",
    "shared_address": "load_tile", "address_of": "mbarrier_init", "hold_registers": "wgmma_wait",
    "descriptor_of": "wgmma_m64k16",
}  # fmt: skip


def symbol_of(name: str) -> str:
    header, _ = CASES[name]
    return f"case_{list(HEADERS[header]).index(name)}"


def params_of(case: Case) -> tuple[Param, ...]:
    given = tuple(Param(dtype_of(array), array.size, "in") for array in case.inputs)
    return (*given, Param(dtype_of(case.expected), case.expected.size, "out"))


def launch_of(name: str) -> Launch:
    _, case = CASES[name]
    return Launch(symbol_of(name), case.blocks, case.threads, 1, 0, case.maps)


def kernel_of(name: str) -> str:
    """Returns the function of a case."""
    _, case = CASES[name]
    *inputs, out = params_of(case)
    params = [f"Global<const {param.dtype}> p{slot}" for slot, param in enumerate(inputs)]
    params += [f"Global<{out.dtype}> p2", *(f"TILE_MAP(map{i})" for i in range(len(case.maps)))]
    head = f"typedef {inputs[0].dtype} T;\n  const int32 i = blockIdx.x * {case.threads} + threadIdx.x;"
    start = f'extern "C" __global__ void __launch_bounds__({case.threads}, 1) {symbol_of(name)}'
    if case.cluster > 1:
        start = f"KERNEL_OF_CLUSTERS({symbol_of(name)}, {case.cluster}, {case.threads})"
    return f"{start}({', '.join(params)}) {{\n  {head}\n  {case.body}\n}}\n"


def source_of(header: str, arch: str | None = None, most_blocks: int = 2) -> Source:
    """Returns the cases of a header in one text: those that an architecture has, of clusters as large at most."""
    cases = [(name, case) for name, case in HEADERS[header].items() if arch is None or arch in case.archs]
    names = [name for name, case in cases if case.cluster <= most_blocks]
    text = "\n".join([f'#include "{header}"\n', *map(kernel_of, names)])
    return Source("cases", "cuda", text, (), (), tuple(map(launch_of, names)))


def alone(binary: Binary, name: str) -> Binary:
    """Returns the kernel of one case."""
    return replace(binary, params=params_of(CASES[name][1]), launches=(launch_of(name),))


def outcome(device: object, binary: Binary, name: str) -> Array:
    _, case = CASES[name]
    found = np.zeros_like(case.expected)
    run(device, device.load(alone(binary, name)), [*case.inputs, found])  # type: ignore[attr-defined]
    return found


def same_bits(found: Array, expected: Array) -> bool:
    """Whether two arrays have the same bits, or both a NaN."""
    bits = [array.view(f"u{array.itemsize}") for array in (found, expected)]
    return bool(((bits[0] == bits[1]) | ((found != found) & (expected != expected))).all())


def check(found: Array, expected: Array, case: Case) -> None:
    if case.tolerance == case.relative == 0:
        assert same_bits(found, expected), (found, expected)
    else:
        greatest = np.abs(expected).max() if case.tolerance else 0.0  # of exponentials it is infinite
        np.testing.assert_allclose(found, expected, case.relative, case.tolerance * greatest)


@cache
def simulated(header: str) -> Binary:
    return hostcxx.compile_source(source_of(header), TARGET)


@pytest.mark.variants(every=7)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_the_simulator_does_what_is_meant(name: str) -> None:
    header, case = CASES[name]
    for order in ORDERS:
        check(outcome(CudaSimDevice(order, 2), simulated(header), name), case.expected, case)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("arch", EVERYWHERE)
@pytest.mark.parametrize("header", HEADERS)
def test_they_are_machine_code(header: str, arch: str) -> None:
    target = Target("CUDA", "cuda", arch, block_threads=256, shared_bytes=99 * 1024)
    source = source_of(header, arch)
    if not source.launches:
        assert (header, arch) == ("hopper.h", "sm_80")
        return
    usages = nvrtc.resource_usage(source, target)
    assert len(usages) == len(source.launches)
    assert not [symbol for symbol, usage in usages.items() if usage.spill_nbytes or usage.stack_nbytes]


@needs_compiler
@pytest.mark.parametrize("device", device_params("CUDA"))
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_does_what_the_simulator_does(name: str, device: str) -> None:
    header, case = CASES[name]
    compiler = devices.compiler_for(device)
    arch = compiler.device.target.arch
    if arch not in case.archs and not (case.archs == EVERYWHERE and int(arch.rstrip("a")[3:]) >= 80):
        pytest.skip(f"{name} is not of {arch}, but of {', '.join(case.archs)}")
    known = arch if arch in case.archs else "sm_80"
    binary = compiler.backend.compile(source_of(header, known), compiler.device.target)
    expected = outcome(CudaSimDevice(), simulated(header), name)
    check(outcome(compiler.device, binary, name), expected, case)


HAVE = [("primitives.h", 10), ("numbers.h", 15), ("matrices.h", 2), ("hopper.h", 12), ("wgmma.h", 6)]


@pytest.mark.parametrize("header, least", HAVE)
def test_every_primitive_has_a_case(header: str, least: int) -> None:
    text = (Path(picograd.__file__).parent / "devices" / "cuda" / header).read_text()
    primitives = set(re.findall(r"\bPRIMITIVE [^(;{]*?\b(\w+)\(", text)) - {"name"}
    bodies = "\n".join(case.body for _, case in CASES.values())
    assert len(primitives) > least
    for name in primitives:
        assert re.search(rf"\b{PARTS.get(name, name)}\b", bodies), f"{name} has no case"
