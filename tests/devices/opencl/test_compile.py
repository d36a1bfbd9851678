"""The compiler of an OpenCL driver: what it rejects, and what a device lacks."""

from __future__ import annotations

import pytest

from picograd.devices.opencl.compile import compile_source
from picograd.devices.opencl.device import OpenClDevice
from picograd.engine.devices import compiler_for
from picograd.errors import CompileError
from picograd.ir.stages import Launch, Source
from picograd.record import replace
from tests.on_devices import device_params

needs_driver = pytest.mark.parametrize("name", device_params("OPENCL"))


def source(body: str) -> Source:
    text = f'#include "primitives.h"\n\nkernel void written_0(global float32 *p0) {{\n  {body}\n}}\n'
    return Source("written", "opencl", text, (), (), (Launch("written_0", 1, 1, 1),))


def rejected(name: str, body: str, features: str = "fp64") -> CompileError:
    device = compiler_for(name).device
    assert isinstance(device, OpenClDevice)
    with pytest.raises(CompileError) as caught:
        compile_source(source(body), replace(device.target, arch="it", features=features), device.context)
    return caught.value


@needs_driver
def test_rejected_source_shows_the_line(name: str) -> None:
    lines = rejected(name, "p0[0] = nothing;").fact.splitlines()
    assert lines[0] == "opencl rejected kernel written for it."
    assert lines[1].startswith("  written.cl:4: error: ") and "nothing" in lines[1]
    assert lines[2] == "     4 |   p0[0] = nothing;"


@needs_driver
def test_a_device_without_float64_says_so(name: str) -> None:
    error = rejected(name, "p0[0] = (float64)p0[1];", features="")
    assert error.fact == "OPENCL: kernel written computes in float64, and it has no cl_khr_fp64."
    assert error.hint == "cast to float32, or use PICOGRAD_DEVICE=CPU"
