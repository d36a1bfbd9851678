"""A GPU, or any other device with an OpenCL driver: OpenCL C, compiled by the driver."""

from __future__ import annotations

from picograd.device import Target
from picograd.devices.opencl.compile import compile_source
from picograd.devices.opencl.device import OpenClDevice, first_device, target_of
from picograd.devices.opencl.render import render
from picograd.engine.compiler import Backend, Compiler
from picograd.ir.stages import Binary, Source

HINT = "install an OpenCL driver (that of the GPU, or PoCL), then pip install 'picograd[opencl]'"


def make_compiler() -> Compiler:
    """Returns the Compiler of the first GPU with an OpenCL driver, else of the first device."""
    device = OpenClDevice()

    def compile_(source: Source, target: Target) -> Binary:
        return compile_source(source, target, device.context)

    return Compiler(device, Backend(render, compile_))


def check_usable() -> None:
    """Checks that there is a usable device.

    Raises:
      DeviceError: there is none, or its work-groups are too small.
    """
    target_of(first_device())
