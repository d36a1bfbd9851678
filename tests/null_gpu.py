"""A GPU that never runs: programs come as far as the text of their kernels, on any machine.

`null_gpu(target)` gives the name of the device and the list of what is rendered for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from picograd.device import Target
from picograd.devices.cuda import render as cuda
from picograd.devices.null.backend import NullDevice
from picograd.devices.ptx import render as nvptx
from picograd.engine import devices
from picograd.engine.compiler import Backend, Compiler
from picograd.ir.stages import Binary, Program, Source
from picograd.tensor.generator import default_generator

RENDER = {"cuda": cuda.render, "nvptx": nvptx.render}


@contextmanager
def null_gpu(target: Target) -> Iterator[tuple[str, list[Source]]]:
    """Makes a device of a target the default one; gives its name, and the text of each kernel as it is made.

    NOTE: plans are kept by device, and its name is the architecture's: what has run in this process makes no kernel again.
    """
    made: list[Source] = []
    device = NullDevice(target)
    device.name = f"NULL_{target.device}_{target.arch}".upper()

    def render(program: Program, _: Target) -> Source:
        made.append(RENDER[target.language](program, target))
        return made[-1]

    def compile_source(source: Source, _: Target) -> Binary:
        return source.binary(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PICOGRAD_DEVICE", device.name)
        patch.setattr(default_generator, "states", {**default_generator.states})  # a device that is gone has none
        patch.setenv("PICOGRAD_CACHE", "off")
        patch.setitem(devices.FACTORIES, device.name, "picograd.devices.null.backend")
        patch.setitem(devices._compilers, device.name, Compiler(device, Backend(render, compile_source)))
        yield device.name, made
