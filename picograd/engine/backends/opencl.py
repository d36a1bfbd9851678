"""A GPU, or any other device with an OpenCL driver: OpenCL C, compiled by the driver.

Called by: engine/devices.py
"""

from __future__ import annotations

from picograd.compilers.opencl import compile_source
from picograd.device import Target
from picograd.engine.compiler import Backend, Compiler
from picograd.ir.stages import Binary, Source
from picograd.render.opencl import render
from picograd.runtime.opencl import OpenClDevice, available


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU that has an OpenCL driver, or else of the first device."""
    device = OpenClDevice()

    def compile_(source: Source, target: Target) -> Binary:
        return compile_source(source, target, device.context)

    return Compiler(device, Backend(render, compile_))


def why_not() -> str | None:
    """Returns None where there is a device to use, else the reason."""
    return available()
