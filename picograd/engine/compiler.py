"""Takes kernels down the road to callable code, keeping what was made.

In:    Kernel, Device
Out:   Executable
Called by: engine/realize.py.    Next: picograd/schedule/create.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from picograd.codegen.lower import lower
from picograd.config import setting, shown_stages, verify_on
from picograd.device import Target
from picograd.engine.cache import kept
from picograd.engine.watch import note
from picograd.ir.backend import Device
from picograd.ir.spec import verify_kernel
from picograd.ir.spec_program import verify_program
from picograd.ir.stages import Binary, Executable, Kernel, Program, Source
from picograd.ir.text import format_kernel, format_program


@dataclass(frozen=True)
class Backend:
    """The stages that differ from language to language.

    render:   Program, Target -> Source
    compile:  Source, Target -> Binary
    """

    render: Callable[[Program, Target], Source]
    compile: Callable[[Source, Target], Binary]


class Compiler:
    """Makes executables for one device; equal kernels are made once."""

    def __init__(self, device: Device, backend: Backend):
        self.device, self.backend = device, backend
        self._made: dict[Kernel, Executable] = {}

    def executable(self, kernel: Kernel) -> Executable:
        """Returns callable code for a kernel: from this process, from disk, or newly compiled."""
        found = self._made.get(kernel)
        if found is None:
            found = self._made[kernel] = self.device.load(self.binary(kernel))
        return found

    def binary(self, kernel: Kernel) -> Binary:
        """Returns the machine code of a kernel; where somebody looks on, every stage runs again."""
        if shown_stages() & {"program", "source"} or setting("PICOGRAD_DUMP"):
            return self.compile(kernel)
        return kept(format_kernel(kernel), self.device.target, lambda: self.compile(kernel))

    def compile(self, kernel: Kernel) -> Binary:
        """Kernel -> Program -> Source -> Binary, each shown and dumped where asked for."""
        target = self.device.target
        place = place_of_dumps(kernel, target)
        if verify_on():
            verify_kernel(kernel, after="create_schedule")
        dump(place, "kernel.txt", format_kernel(kernel))
        note("lowered")
        program = lower(kernel, target)
        if verify_on():
            verify_program(program, after="linearize")
        show("program", dump(place, "program.txt", format_program(program)))
        note("rendered")
        source = self.backend.render(program, target)
        text = dump(place, f"source.{'ll' if source.language == 'llvm' else 'cu'}", source.text)
        show("source", text)
        if text != source.text:
            source = Source(source.name, source.language, text, source.params, source.variables, source.launches)
        note("compiled")
        return self.backend.compile(source, target)


def show(stage: str, text: str) -> None:
    """Prints a stage that PICOGRAD_SHOW asks for."""
    if stage in shown_stages():
        print(text)


def place_of_dumps(kernel: Kernel, target: Target) -> Path | None:
    """Returns the folder of one kernel on one device, if PICOGRAD_DUMP asks for it: names alone are not unique."""
    folder = setting("PICOGRAD_DUMP")
    if not folder:
        return None
    digest = hashlib.sha256(f"{target.device}\n{format_kernel(kernel)}".encode()).hexdigest()
    return Path(folder) / f"{kernel.name}_{digest[:8]}"


def dump(place: Path | None, file: str, text: str) -> str:
    """Writes an artefact; a file that is there already overrides it.

    Returns: the text to go on with
    """
    if place is None:
        return text
    path = place / file
    if path.exists():
        return path.read_text()
    place.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text
