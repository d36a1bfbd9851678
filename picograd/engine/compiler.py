"""Takes kernels down the road to callable code, several at a time, and keeps it.

In:    Kernel, Device
Out:   Executable
       `pipelined`: Python begins the next kernel while other threads finish earlier ones, then helps them

Overlapping pays because the second half, LLVM or NVRTC, runs without Python's lock. Threads live as long as a call. A
kernel of a function of the host has no code: the evaluator runs it, called by the plan.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from picograd.codegen.emit import guess
from picograd.codegen.unfuse import Cut
from picograd.config import OF_KERNELS, is_on, num_threads, setting, shown_stages
from picograd.device import Target
from picograd.engine.cache import entry_name, kept, load_binary
from picograd.engine.choose import Parts, call_of, choose, library_binary, may_be_tuned, merged, parts_of, with_given
from picograd.errors import PicogradError, UnsupportedOp
from picograd.evaluator import evaluate_kernel
from picograd.interrupts import lock
from picograd.ir.backend import Device, HostDevice
from picograd.ir.host import name_of, offers
from picograd.ir.op import Op, greatest
from picograd.ir.opcode import OpCode
from picograd.ir.opts import ByHand, Choice, Generated, Library, Offered, Opts
from picograd.ir.origin import line_of
from picograd.ir.stages import Binary, Executable, Kernel, NestKind, Program, Schedule, Source
from picograd.ir.symbolic import forget_sums
from picograd.ir.text import format_kernel, parse_kernel
from picograd.ir.text_program import format_program
from picograd.look import look, note, place_of_dumps, telling
from picograd.record import Record
from picograd.road import lower, schedule_graphs, source_of

# ---- threads ----
Item = TypeVar("Item")
Result = TypeVar("Result")

TURN_SECONDS = 0.0002  # longest wait for Python's lock of a thread that comes back from a compiler
_running = lock()


def pipelined(items: Sequence[Item], begin: Callable[[Item], Callable[[], Result]], num_threads: int) -> Iterable[Result]:
    """Returns begin(item)() for each item: `begin` runs on this thread, the function it returns on any thread.

    The error raised is that of the first item in order, as if the items were done one after the other. No thread is started
    for a single item, nor while another call has threads: an item is then begun when its result is asked for.
    """
    if len(items) < 2 or num_threads < 1 or not _running.acquire(blocking=False):
        return (begin(item)() for item in items)
    try:
        with _quick_turns():
            return _overlapped(items, begin, num_threads)
    finally:
        _running.release()


def ahead(make: Callable[[], Result]) -> Callable[[], Result]:
    """Calls `make` on another thread; returns a function that waits for the result and returns it.

    If the call failed, or no thread is granted, that function calls `make` itself, and raises its error. A fork waits for
    the thread, which a child would not have.
    """
    results: list[Result] = []

    def run() -> None:
        with suppress(Exception):
            results.append(make())

    thread = threading.Thread(target=run, name="picograd_ahead")
    started = _start([thread])
    if started and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=thread.join)

    def result() -> Result:
        _wait_for(started)
        if not results:
            results.append(make())
        return results[0]

    return result


def _overlapped(items: Sequence[Item], begin: Callable[[Item], Callable[[], Result]], num_threads: int) -> list[Result]:
    """Begins the items in order while other threads finish them, then helps these; raises the error of the first item."""
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}
    begun: SimpleQueue[tuple[int, Callable[[], Result]] | None] = SimpleQueue()

    def finish_all() -> None:
        while (job := begun.get()) is not None:
            number, finish = job
            try:
                results[number] = finish()
            except Exception as error:
                errors[number] = error

    names = [f"picograd_compile_{i}" for i in range(min(num_threads, len(items)))]
    threads = _start([threading.Thread(target=finish_all, name=name, daemon=True) for name in names])
    try:
        for number, item in enumerate(items):
            try:
                begun.put((number, begin(item)))
            except Exception as error:  # raised below, unless an earlier item fails, too
                errors[number] = error
            if errors:
                break
        begun.put(None)
        _tell_the_end(begun, threads)
        finish_all()
        _wait_for(threads)
    except BaseException:  # an interrupt, perhaps during the last wait
        _drop(begun)
        _tell_the_end(begun, threads)
        _wait_for(threads)
        raise
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(items))]


def _start(threads: Sequence[threading.Thread]) -> list[threading.Thread]:
    """Starts threads, and returns those that this process is granted."""
    started: list[threading.Thread] = []
    with suppress(RuntimeError):
        for thread in threads:
            thread.start()
            started.append(thread)
    return started


def _tell_the_end(jobs: SimpleQueue[Any], threads: Sequence[threading.Thread]) -> None:
    """Puts in an end for each thread."""
    for _ in threads:
        jobs.put(None)


def _wait_for(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _drop(jobs: SimpleQueue[Any]) -> None:
    """Removes the jobs that no thread has taken."""
    while not jobs.empty():
        with suppress(Empty):  # a thread was faster
            jobs.get_nowait()


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Lets threads take turns quickly: by default a thread waits 5 ms for Python's lock after each call of a compiler."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _not_collecting() -> Iterator[None]:
    """Stops the search for garbage meanwhile: a plan leaves none, and a look at a large network's takes up to 80 ms."""
    was_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()


# ---- functions of the host ----
HOST_ENTRY = "kernel "  # the first letters of the text of a kernel


def runs_on_host(kernel: Kernel) -> bool:
    """True for a kernel of a function of the host, or a user's."""
    return any(nest.kind is NestKind.HOST for phase in kernel.phases for nest in phase)


def given_kernel(kernel: Kernel) -> Op | None:
    """Returns the KERNEL Op of a kernel whose source a user has given; None for any other."""
    value = kernel.phases[0][0].outputs[0][1]
    return value.src[0] if value.code is OpCode.OUTPUT and value.src[0].code is OpCode.KERNEL else None


def given_source(kernel: Kernel, backend: Backend) -> Source | None:
    """Returns the source of a user's kernel; None if the device does not take its language: then the host computes it."""
    call = given_kernel(kernel)
    if call is None or call.arg[0].language not in backend.given:
        return None
    return backend.given[call.arg[0].language].write(kernel, call)


def load_host(kernel: Kernel, device: Device) -> Executable:
    """Returns callable code of a kernel of a function of the host.

    Raises:
      UnsupportedOp: plans of this device cannot call the host.
    """
    value = given_kernel(kernel) or kernel.phases[0][0].outputs[0][1]
    if not isinstance(device, HostDevice):
        raise UnsupportedOp(
            f"{name_of(value)}: a plan on {device.name} cannot call a function of the host.",
            'x.to("CPU") moves a tensor to a device that can.',
            line_of(value),
        )
    look("kernel", kernel)

    def run(arrays: Sequence[np.ndarray[Any, Any]], variables: Mapping[str, int]) -> None:
        evaluate_kernel(kernel, arrays, variables)

    numel = sum(greatest(param.numel) for param in kernel.params)
    rows = max((greatest(s.shape[-1]) for s in value.src if s.shape), default=1)
    return device.load_host(kernel.name, kernel.params, kernel.variables, max(1, numel * rows), run)


# ---- the compiler ----
KERNELS_MAX = 4096  # kept in a process, some KB each


class Given(Record):
    """The stages of a user's kernel.

    write:    Kernel, its KERNEL -> Source
    compile:  Source, Target -> Binary
    """

    write: Callable[[Kernel, Op], Source]
    compile: Callable[[Source, Target], Binary]


class Backend(Record):
    """The stages that differ from language to language.

    render:   Program, Target -> Source
    compile:  Source, Target -> Binary
    given:    the languages in which it takes a user's kernel
    """

    render: Callable[[Program, Target], Source]
    compile: Callable[[Source, Target], Binary]
    given: Mapping[str, Given] = MappingProxyType({})


class Wanted(Record):
    """Facts on which a kernel's code depends: the kernel, the kernels that are offered, and whether candidates are timed.

    text:  the kernel as text
    key:   a digest of all this, which keeps no graph alive
    """

    kernel: Kernel
    tune: bool
    text: str
    key: bytes

    @staticmethod
    def of(kernel: Kernel, tune: bool) -> Wanted:
        """Returns the record of everything a kernel's code depends on."""
        text = format_kernel(kernel)
        return Wanted(kernel, tune, text, sha256(f"{tune} {offers.key} {text}".encode()).digest())


class Compiler:
    """Makes executables for one device; equal kernels are made once.

    entries:  executable -> the name of its entry in the cache, or the text of a kernel that the host runs; has none if
              PICOGRAD_SHOW or PICOGRAD_DUMP asked for the stages when the executable was made
    """

    def __init__(self, device: Device, backend: Backend):
        self.device, self.backend = device, backend
        self.writes = {language: given.write for language, given in backend.given.items()}
        self._made: dict[bytes, Executable] = {}  # by Wanted.key
        self._by_entry: dict[str, Executable] = {}
        self.entries: dict[Executable, str] = {}

    @_not_collecting()
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
        tunable = partial(may_be_tuned, target=self.device.target, writes=self.writes)
        wanted = {kernel: Wanted.of(kernel, tune and tunable(kernel)) for kernel in dict.fromkeys(kernels)}
        made = {kernel: known[one.key] for kernel, one in wanted.items() if one.key in known}
        for kernel, one in wanted.items():
            if kernel not in made and runs_on_host(kernel) and given_source(kernel, self.backend) is None:
                made[kernel] = load_host(kernel, self.device)
                if given_kernel(kernel) is None:  # its text does not say which function of Python it calls
                    self._made[one.key] = made[kernel]
                    self.entries[made[kernel]] = one.text  # there is no code to keep
        missing = [one for kernel, one in wanted.items() if kernel not in made]
        if missing:
            made |= self._make(missing, 0 if tune else num_threads() - 1)  # where kernels are timed nothing else runs
        return [made[kernel] for kernel in kernels]

    @_not_collecting()
    def _make(self, missing: Sequence[Wanted], num_threads: int) -> dict[Kernel, Executable]:
        """Makes the executables of kernels; shows the progress on the terminal if it takes long."""
        made: dict[Kernel, Executable] = {}
        finished: list[Binary] = []
        names: list[str | None] = []

        def begin(one: Wanted) -> Callable[[], Binary]:
            """Begins a kernel by the best choice; returns the function that finishes its code."""
            with _naming_line_of(one.kernel):
                choice = self._choice(one)
                name = self._entry_of(one.text, choice)
                finish = kept(name, partial(self._begin, one.kernel, choice))
            names.append(name)

            def finish_named() -> Binary:
                with _naming_line_of(one.kernel):
                    finished.append(binary := finish())
                return binary

            return finish_named

        with telling(lambda: f"{len(finished)} of {len(missing)} kernels are compiled"):
            for number, binary in enumerate(pipelined(missing, begin, num_threads)):
                one, name = missing[number], names[number]
                made[one.kernel] = self._made[one.key] = loaded = self.device.load(binary)
                if name is not None:
                    self.entries[loaded] = name
        forget_sums()
        return made

    def _forget_many(self) -> None:
        """Forgets all kernels if there are too many; plans keep those that they run."""
        if len(self._made) > KERNELS_MAX or len(self._by_entry) > KERNELS_MAX:
            self._made, self._by_entry, self.entries = {}, {}, {}

    def from_disk(self, names: Sequence[str]) -> list[Executable] | None:
        """Returns the code of entries of the cache, or None if one of them is no longer there."""
        self._forget_many()
        known = self._by_entry
        found = {name: known[name] for name in dict.fromkeys(names) if name in known}
        for name in dict.fromkeys(names):
            if name not in found and name.startswith(HOST_ENTRY):
                found[name] = self._by_entry[name] = load_host(parse_kernel(name), self.device)
        missing = [name for name in dict.fromkeys(names) if name not in found]
        binaries: list[Binary] = []
        for binary in map(load_binary, missing):
            if binary is None:
                return None
            binaries.append(binary)
        note("disk_hits", len(missing))
        for name, binary in zip(missing, binaries):
            found[name] = self._by_entry[name] = self.device.load(binary)
        return [found[name] for name in names]

    def make(self, kernel: Kernel, choice: Choice) -> Executable:
        """Returns callable code for a kernel by a given choice."""
        return self.device.load(kept(self._entry_of(format_kernel(kernel), choice), partial(self._begin, kernel, choice))())

    def _choice(self, wanted: Wanted) -> Choice:
        """Returns the best choice for a kernel: the guess if there are no other candidates."""
        if given_kernel(wanted.kernel) is not None:
            return Generated(Opts())
        if wanted.tune or self.device.target.has_warpgroups or offers.key:
            return choose(wanted.kernel, self.device, self.make, wanted.tune, self.writes)
        return Generated(guess(wanted.kernel, self.device.target))

    def _entry_of(self, text: str, choice: Choice) -> str | None:
        """Returns the name of a kernel's cache entry; None if its stages are shown or dumped, so that all must run."""
        if not shown_stages().isdisjoint(OF_KERNELS) or setting("PICOGRAD_DUMP"):
            return None
        return entry_name(f"{text}\nopts {choice}", self.device.target)

    def _begin(self, kernel: Kernel, choice: Choice) -> Callable[[], Binary]:
        """Takes a kernel to its Source by a choice; returns the function, for any thread, that makes the Binary of it.

        A part of the kernel may be left to a library, whose call is a Binary already, or to a kernel written by hand.
        """
        target, place = self.device.target, place_of_dumps(kernel, self.device.target)
        look("kernel", kernel, place)
        if (given := given_source(kernel, self.backend)) is not None:
            note("compiled")
            return partial(self.backend.given[given.language].compile, look("source", given, place), target)
        parts = Parts(kernel, choice.opts) if isinstance(choice, Generated) else parts_of(kernel, choice, target)
        split, source, compile_ = parts.split, None, None
        if split is not None:
            look("split", split.kernel, place)
        look("choice", choice if split is None else f"{choice}; {split}", place)
        if parts.generated is not None:
            note("lowered")
            note("rendered")
            source = source_of(parts.generated, target, parts.opts, self.backend.render, place)
        by, source = self._joined(kernel, parts, choice, source)
        if source is not None:
            compile_ = partial(by, look("source", source, place), target)
            note("compiled")
        if isinstance(choice, Library):
            return lambda: library_binary(kernel, parts, choice, None if compile_ is None else compile_())
        assert compile_ is not None, f"{kernel.name}: nothing is left to compile, and no library computes it"
        return compile_

    def _joined(
        self, kernel: Kernel, parts: Parts, choice: Choice, source: Source | None
    ) -> tuple[Callable[[Source, Target], Binary], Source | None]:
        """Returns the compiler of a kernel and its source: the generated part joined with the part written by hand."""
        if isinstance(choice, ByHand):
            return self.backend.compile, merged(kernel, parts, choice, source, self.device.target)
        if isinstance(choice, Offered):
            assert isinstance(parts.split, Cut), f"{kernel.name} has no cut, but a kernel was chosen for it"
            by = self.backend.given[call_of(parts.split).arg[0].language].compile
            return by, with_given(parts.split, source, self.writes)
        return self.backend.compile, source

    def explain(self, kernel: Kernel, target: Target) -> dict[str, str]:
        """Returns the text of each stage of a kernel, for the device's own target or another of the same language."""
        texts = {"kernel": format_kernel(kernel)}
        if (given := given_source(kernel, self.backend)) is not None:
            return {**texts, "source": given.text}
        if runs_on_host(kernel):
            return texts
        choice: Choice = Generated(guess(kernel, target))
        if target == self.device.target:
            choice = choose(kernel, self.device, self.make, is_on("PICOGRAD_TUNE"), self.writes)
        parts = parts_of(kernel, choice, target)
        texts["choice"] = f"choice {choice}" if parts.split is None else f"choice {choice}; {parts.split}"
        source = None
        if parts.generated is not None:
            if parts.split is not None:
                texts["choice"] += f"\n{format_kernel(parts.split.kernel)}"
            program = lower(parts.generated, target, parts.opts)
            source, texts["program"] = self.backend.render(program, target), format_program(program)
        _, source = self._joined(kernel, parts, choice, source)
        return texts if source is None else {**texts, "source": source.text}


@contextmanager
def _naming_line_of(kernel: Kernel) -> Iterator[None]:
    """Adds to an error the user's line that made the kernel's values: that of the first value with a line."""
    try:
        yield
    except PicogradError as error:
        error.made_at(next(filter(None, map(line_of, kernel.values())), None))
        raise
