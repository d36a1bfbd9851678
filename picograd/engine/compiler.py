"""Takes kernels down the road to callable code, keeping what was made.

In:    Kernel, Device
Out:   Executable
Called by: engine/realize.py.    Next: picograd/schedule/create.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from picograd.codegen.lower import lower
from picograd.codegen.opts import candidates
from picograd.config import is_on, setting, shown_stages
from picograd.device import Target
from picograd.engine.cache import kept
from picograd.engine.choose import choose
from picograd.engine.show import dump, place_of_dumps, show
from picograd.engine.watch import note
from picograd.ir.backend import Device
from picograd.ir.opts import Opts
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
            choice = choose(kernel, self.device, self.make)
            found = self._made[kernel] = self.make(kernel, choice.opts)
        return found

    def make(self, kernel: Kernel, opts: Opts) -> Executable:
        """Returns callable code for a kernel with given choices."""
        return self.device.load(self.binary(kernel, opts))

    def binary(self, kernel: Kernel, opts: Opts) -> Binary:
        """Returns the machine code of a kernel; where somebody looks on, every stage runs again."""
        if shown_stages() & {"program", "source"} or setting("PICOGRAD_DUMP"):
            return self.compile(kernel, opts)
        text = f"{format_kernel(kernel)}\nopts {opts}"
        return kept(text, self.device.target, lambda: self.compile(kernel, opts))

    def compile(self, kernel: Kernel, opts: Opts) -> Binary:
        """Kernel -> Program -> Source -> Binary, each shown and dumped where asked for."""
        target = self.device.target
        place = place_of_dumps(kernel, target)
        if is_on("PICOGRAD_VERIFY"):
            verify_kernel(kernel, after="create_schedule")
        dump(place, "kernel.txt", format_kernel(kernel))
        note("lowered")
        program = lower(kernel, target, opts)
        if is_on("PICOGRAD_VERIFY"):
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

    def explain(self, kernel: Kernel, target: Target) -> dict[str, str]:
        """Returns the text of each stage of a kernel, for the device's own target or another of the same language."""
        own = target == self.device.target
        opts = choose(kernel, self.device, self.make).opts if own else candidates(kernel, target)[0]
        program = lower(kernel, target, opts)
        source = self.backend.render(program, target)
        texts = {"kernel": format_kernel(kernel), "choice": f"choice {opts}", "program": format_program(program)}
        return {**texts, "source": source.text}
