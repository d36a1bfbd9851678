"""Takes kernels down the road to callable code, keeping what was made.

In:    Kernel, Device
Out:   Executable
Called by: engine/plan.py.    Next: picograd/engine/pipeline.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from picograd.codegen.opts import guess
from picograd.config import is_on, num_threads, setting, shown_stages
from picograd.device import Target
from picograd.engine import cache
from picograd.engine.choose import choose, library_binary, may_be_tuned, merged, rest_of, split_of, written_split
from picograd.engine.host import HOST_ENTRY, load_host, runs_on_host
from picograd.engine.pipeline import pipelined
from picograd.engine.watch import note, telling
from picograd.errors import PicogradError
from picograd.ir.backend import Device
from picograd.ir.lines import line_of
from picograd.ir.op import Op
from picograd.ir.opts import ByHand, Choice, Generated, Library, Opts
from picograd.ir.stages import Binary, Executable, Kernel, Program, Schedule, Source
from picograd.ir.symbolic import forget_sums
from picograd.ir.text import format_kernel, format_program, parse_kernel
from picograd.look import look, place_of_dumps, show
from picograd.record import Record
from picograd.road import lower, schedule_graphs, source_of

MOST_KERNELS = 4096  # of a process, some KB each


class Backend(Record):
    """The stages that differ from language to language.

    render:   Program, Target -> Source
    compile:  Source, Target -> Binary
    """

    render: Callable[[Program, Target], Source]
    compile: Callable[[Source, Target], Binary]


class Wanted(Record):
    """A kernel, and whether its candidates are timed: what its code depends on.

    text:  of the kernel
    key:   a digest of all of it, which keeps no graph alive
    """

    kernel: Kernel
    tune: bool
    text: str
    key: bytes

    @staticmethod
    def of(kernel: Kernel, tune: bool) -> Wanted:
        """Returns what code for a kernel depends on."""
        text = format_kernel(kernel)
        return Wanted(kernel, tune, text, sha256(f"{tune} {text}".encode()).digest())


class Compiler:
    """Makes executables for one device; equal kernels are made once.

    entries:  of executables, the name of the cache's entry for the code; none where somebody looked on when it was made;
              the text of a kernel that the host runs
    """

    def __init__(self, device: Device, backend: Backend):
        self.device, self.backend = device, backend
        self._made: dict[bytes, Executable] = {}  # by Wanted.key
        self._by_entry: dict[str, Executable] = {}
        self.entries: dict[Executable, str] = {}

    def schedule(self, roots: Sequence[Op]) -> Schedule:
        """Returns the kernels that compute graphs over PARAMs on this device, in order."""
        return schedule_graphs(roots, self.device.target)

    def executables(self, kernels: Sequence[Kernel], tune: bool = False) -> list[Executable]:
        """Returns callable code for each kernel: from this process, from disk, or newly compiled.

        An error names the user's line, and is that of the first kernel in order.

        Args:
          tune:  whether candidates are timed
        """
        self._forget_many()
        known = self._made  # another thread may put an empty one in its place
        wanted = {kernel: self._wanted(kernel, tune) for kernel in dict.fromkeys(kernels)}
        made = {kernel: known[one.key] for kernel, one in wanted.items() if one.key in known}
        for kernel, one in wanted.items():
            if kernel not in made and runs_on_host(kernel):
                made[kernel] = self._made[one.key] = load_host(kernel, self.device)
                self.entries[made[kernel]] = one.text  # there is no code to keep
        missing = [one for kernel, one in wanted.items() if kernel not in made]
        if missing:
            made |= self._make(missing, 0 if tune else num_threads() - 1)  # where kernels are timed nothing else runs
        return [made[kernel] for kernel in kernels]

    def _make(self, missing: Sequence[Wanted], num_threads: int) -> dict[Kernel, Executable]:
        """Makes the executables of kernels; how far it is stands on the terminal where it takes long."""
        made: dict[Kernel, Executable] = {}
        finished: list[Binary] = []
        names: list[str | None] = []

        def begin(one: Wanted) -> Callable[[], Binary]:
            finish, name = self._begin_best(one)
            names.append(name)
            return lambda: kept(finish())

        def kept(binary: Binary) -> Binary:
            finished.append(binary)
            return binary

        with telling(lambda: f"{len(finished)} of {len(missing)} kernels are compiled"):
            for number, binary in enumerate(pipelined(missing, begin, num_threads)):
                one, name = missing[number], names[number]
                made[one.kernel] = self._made[one.key] = loaded = self.device.load(binary)
                if name is not None:
                    self.entries[loaded] = name
        forget_sums()
        return made

    def _wanted(self, kernel: Kernel, tune: bool) -> Wanted:
        return Wanted.of(kernel, tune and may_be_tuned(kernel, self.device.target))

    def _forget_many(self) -> None:
        """Forgets the kernels where there are too many; plans hold those that they run."""
        if len(self._made) > MOST_KERNELS or len(self._by_entry) > MOST_KERNELS:
            self._made, self._by_entry, self.entries = {}, {}, {}

    def from_disk(self, names: Sequence[str]) -> list[Executable] | None:
        """Returns the code of entries of the cache, or None where one of them is not there any more."""
        self._forget_many()
        known = self._by_entry
        found = {name: known[name] for name in dict.fromkeys(names) if name in known}
        for name in dict.fromkeys(names):
            if name not in found and name.startswith(HOST_ENTRY):
                found[name] = self._by_entry[name] = load_host(parse_kernel(name), self.device)
        missing = [name for name in dict.fromkeys(names) if name not in found]
        binaries: list[Binary] = []
        for binary in map(cache.load, missing):
            if binary is None:
                return None
            binaries.append(binary)
        note("disk_hits", len(missing))
        for name, binary in zip(missing, binaries):
            found[name] = self._by_entry[name] = self.device.load(binary)
        return [found[name] for name in names]

    def make(self, kernel: Kernel, choice: Choice) -> Executable:
        """Returns callable code for a kernel by a given choice."""
        return self.device.load(self._begin(kernel, choice, self._entry_of(format_kernel(kernel), choice))())

    def _begin_best(self, wanted: Wanted) -> tuple[Callable[[], Binary], str | None]:
        """Begins a kernel by the best choice; returned are what gives its code, and the name of the entry for that."""
        kernel = wanted.kernel
        with _naming_line_of(kernel):
            choice = choose(kernel, self.device, self.make, wanted.tune)
            name = self._entry_of(wanted.text, choice)
            finish = self._begin(kernel, choice, name)

        def finish_named() -> Binary:
            with _naming_line_of(kernel):
                return finish()

        return finish_named, name

    def _entry_of(self, text: str, choice: Choice) -> str | None:
        """Returns the name of the cache's entry for a kernel; None where somebody looks on: every stage runs again."""
        if shown_stages() & {"program", "source"} or setting("PICOGRAD_DUMP"):
            return None
        return cache.entry_name(f"{text}\nopts {choice}", self.device.target)

    def _begin(self, kernel: Kernel, choice: Choice, name: str | None) -> Callable[[], Binary]:
        """Goes as far as Python goes; what is returned gives the machine code, and may be called on another thread."""
        if name is None:
            return self._begin_compiling(kernel, choice)
        found = cache.load(name)
        if found is not None:
            note("disk_hits")
            return lambda: found
        compile_ = self._begin_compiling(kernel, choice)

        def compile_and_keep() -> Binary:
            binary = compile_()
            cache.store(name, binary)
            return binary

        return compile_and_keep

    def _begin_compiling(self, kernel: Kernel, choice: Choice) -> Callable[[], Binary]:
        """Kernel -> Source by a choice; returned is Source -> Binary.

        What a library leaves of a kernel goes this way, too; a call of the library is a Binary already.
        """
        place = place_of_dumps(kernel, self.device.target)
        look("kernel", kernel, place)
        if isinstance(choice, Generated):
            return self._compiling(self._generated(kernel, choice.opts, place), place)
        if isinstance(choice, ByHand):
            return self._compiling(self._source_around(kernel, choice, place), place)
        split = split_of(kernel, choice)
        look("split", split.kernel, place)
        show("source", lambda: f"{kernel.name}: {choice}; {split}")
        rest = rest_of(split, choice)
        if not rest.phases:
            return lambda: library_binary(kernel, split, choice, None)
        compile_ = self._compiling(self._generated(rest, Opts(), place), place)  # elementwise nests have no choices
        return lambda: library_binary(kernel, split, choice, compile_())

    def _source_around(self, kernel: Kernel, choice: ByHand, place: Path | None) -> Source:
        """Returns a kernel written by hand, beside what is generated of the rest."""
        split = written_split(kernel, choice, self.device.target)
        look("split", split.kernel, place)
        show("source", lambda: f"{kernel.name}: {choice}; {split}")
        rest = split.generated
        return merged(kernel, split, choice, self._generated(rest, Opts(), place) if rest.phases else None)

    def _generated(self, kernel: Kernel, opts: Opts, place: Path | None) -> Source:
        """Returns the source of a kernel that is generated, or of what is left of one."""
        note("lowered")
        note("rendered")
        return source_of(kernel, self.device.target, opts, self.backend.render, place)

    def _compiling(self, source: Source, place: Path | None) -> Callable[[], Binary]:
        """Returns what gives the machine code of a source."""
        source = look("source", source, place)
        note("compiled")
        return lambda: self.backend.compile(source, self.device.target)

    def explain(self, kernel: Kernel, target: Target) -> dict[str, str]:
        """Returns the text of each stage of a kernel, for the device's own target or another of the same language."""
        if runs_on_host(kernel):
            return {"kernel": format_kernel(kernel)}
        own = target == self.device.target
        tune = is_on("PICOGRAD_TUNE")
        choice = choose(kernel, self.device, self.make, tune) if own else Generated(guess(kernel, target))
        texts = {"kernel": format_kernel(kernel), "choice": f"choice {choice}"}
        opts = choice.opts if isinstance(choice, Generated) else Opts()
        if isinstance(choice, Library):
            split = split_of(kernel, choice)
            texts["choice"] += f"; {split}"
            kernel = rest_of(split, choice)
            if not kernel.phases:
                return texts
            texts["choice"] += f"\n{format_kernel(split.kernel)}"
        if isinstance(choice, ByHand):
            around = written_split(kernel, choice, target)
            texts["choice"] += f"; {around}"
            if not around.generated.phases:
                return {**texts, "source": merged(kernel, around, choice, None).text}
            texts["choice"] += f"\n{format_kernel(around.kernel)}"
            program = lower(around.generated, target, opts)
            source = merged(kernel, around, choice, self.backend.render(program, target))
            return {**texts, "program": format_program(program), "source": source.text}
        program = lower(kernel, target, opts)
        return {**texts, "program": format_program(program), "source": self.backend.render(program, target).text}


@contextmanager
def _naming_line_of(kernel: Kernel) -> Iterator[None]:
    """Has an error name the user's line that the kernel's first value with one comes from."""
    try:
        yield
    except PicogradError as error:
        values = [value for phase in kernel.phases for nest in phase for _, value in nest.outputs]
        error.made_at(next(filter(None, map(line_of, values)), None))
        raise
