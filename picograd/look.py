"""Looks at the compiler at work, where somebody asks for that: stages, counts of events, a line on the terminal.

In:    what a pass has made: graphs, a Schedule, a Kernel, a Program, a Source, a Plan; events of the engine
Out:   `look`: the same, checked, printed and kept; a Source is another where its file in PICOGRAD_DUMP was edited
       `watch`: `Counts` of events, for tests, benches and tools;  `telling`: a line while something takes long;
       `Profiling`: who runs plans in the engine's place
"""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, TypeVar

from picograd.config import is_on, setting, shown_stages
from picograd.device import Target, language_of
from picograd.errors import FileError
from picograd.files import is_ours, opened, write_whole
from picograd.ir.op import Buffer, Op
from picograd.ir.spec import verify_graph, verify_kernel, verify_program
from picograd.ir.stages import Kernel, Plan, Source
from picograd.ir.text import format_graph, format_kernel
from picograd.ir.text_program import format_plan, format_program, format_schedule
from picograd.record import Record, Struct, field, replace

T = TypeVar("T")


class Look(Record):
    """The check and the text of one stage.

    check:  of the specification, given the name of the pass before
    text:   what PICOGRAD_SHOW prints and PICOGRAD_DUMP keeps
    """

    check: Callable[[Any, str], None] | None = None
    text: Callable[[Any], str] | None = None


LOOKS = {  # the STAGES of config.py, and what is checked or kept alone
    "graph": Look(verify_graph, format_graph),
    "simplify": Look(verify_graph),
    "schedule": Look(text=format_schedule),
    "kernel": Look(verify_kernel, format_kernel),
    "choice": Look(text=lambda choice: f"choice {choice}"),
    "split": Look(verify_kernel, format_kernel),
    "program": Look(verify_program, format_program),
    "source": Look(text=lambda source: source.text),
    "plan": Look(text=format_plan),
}
# By what each makes.
PASSES = {"graph": "parametrize", "kernel": "create_schedule", "split": "unfuse", "program": "linearize"}


def look(stage: str, value: T, place: Path | None = None) -> T:
    """Returns the result of a pass after checking, showing and keeping it.

    Args:
      stage:  a name in LOOKS
      place:  the folder of its kernel's files

    Raises:
      VerifyError: PICOGRAD_VERIFY is on, and the value breaks a rule of its specification.
      FileError:   the folder cannot be written to, or the file there is one that other users can write.
    """
    check, text_of = LOOKS[stage].check, LOOKS[stage].text
    if check is not None and is_on("PICOGRAD_VERIFY"):
        check(value, PASSES.get(stage, stage))
    is_shown = stage in shown_stages()
    if text_of is None or (place is None and not is_shown):
        return value
    text = text_of(value)
    if place is not None:
        suffix = language_of(value.language).suffix if isinstance(value, Source) else "txt"
        text = _kept(place / f"{stage}.{suffix}", text)
    if is_shown:
        print(text)
    return replace(value, text=text) if isinstance(value, Source) and text != value.text else value


def show(stage: str, text: Callable[[], str]) -> None:
    """Prints what else is to be said of a stage that PICOGRAD_SHOW asks for; only then is it written."""
    if stage in shown_stages():
        print(text())


def place_of_dumps(kernel: Kernel, target: Target) -> Path | None:
    """Returns the folder of one kernel on one device, if PICOGRAD_DUMP asks for it: names alone are not unique."""
    folder = setting("PICOGRAD_DUMP")
    if not folder:
        return None
    digest = hashlib.sha256(f"{target.device}\n{format_kernel(kernel)}".encode()).hexdigest()
    return Path(folder) / f"{kernel.name}_{digest[:8]}"


def _kept(path: Path, text: str) -> str:
    """Returns the text of a file that is there; else writes the given text, and returns that."""
    with suppress(FileNotFoundError, NotADirectoryError):
        _check_ours(path, os.lstat(path))
        with opened("PICOGRAD_DUMP", path) as found:
            _check_ours(path, os.fstat(found.fileno()))
            return found.read().decode()
    # Whole or not there: another process may look at the same kernel.
    write_whole("PICOGRAD_DUMP", path, lambda file: file.write(text.encode()), makes_folder=True, is_durable=False)
    return text


def _check_ours(path: Path, facts: os.stat_result) -> None:
    """Raises FileError for a file, or a link, of another user, or one that all may write: its code would be run."""
    if not is_ours(facts, of_others=0o002):
        raise FileError(
            f"PICOGRAD_DUMP: {path}: is not read: other users may have written it (mode {facts.st_mode & 0o777:o}).",
            hint="set PICOGRAD_DUMP to a folder that only you can write to.",
        )


# ---- plans run by others ----
class Recorder(Protocol):
    """Runs plans in the engine's place, and notes their times (picograd_lab/recorder.py)."""

    def learn(self, plan: Plan, roots: Sequence[Op], form: Any, device: str, began: float | None) -> None:
        """Notes the graphs of a plan, by their form (engine/plan.py), and when its making `began`, if it was just made."""
        ...

    def run(
        self, plan: Plan, inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int], may_stop: bool
    ) -> None:
        """Runs a plan."""
        ...


class Profiling:
    """The recorder of this process that is on, or None."""

    recorder: Recorder | None = None


# ---- counts of events ----
class Counts(Struct):
    """Counts of events since counting began.

    plans:               plans run
    kernels:             kernels run
    launches:            phases launched
    temporary_nbytes:    bytes of intermediates between kernels, before they share memory
    arena_nbytes:        bytes of the largest arena
    scheduled, lowered, rendered, compiled: calls of these stages
    disk_hits:           binaries found on disk
    timed:               candidates of kernels that were timed
    library_failures:    candidates of a vendor's library that failed, and were left out
    names:               names of the kernels run, in order
    """

    plans: int = 0
    kernels: int = 0
    launches: int = 0
    temporary_nbytes: int = 0
    arena_nbytes: int = 0
    scheduled: int = 0
    lowered: int = 0
    rendered: int = 0
    compiled: int = 0
    disk_hits: int = 0
    timed: int = 0
    library_failures: int = 0
    names: list[str] = field(default_factory=list)

    def add_run(self, plan: Plan) -> None:
        """Counts a run of a plan."""
        self.plans += 1
        self.kernels += len(plan.executables)
        self.launches += sum(len(executable.launches) for executable in plan.executables)
        self.names += [executable.name for executable in plan.executables]
        self.arena_nbytes = max(self.arena_nbytes, plan.schedule.arena_nbytes)
        for use in plan.schedule.buffers:
            if use.role in ("temporary", "lent") and isinstance(use.numel, int):
                self.temporary_nbytes += use.nbytes


_active: ContextVar[tuple[Counts, ...]] = ContextVar("picograd_watch", default=())
active = _active.get  # gives the counters that are on


@contextmanager
def watch() -> Iterator[Counts]:
    """Counts what the engine does inside the block.

    >>> with watch() as counts:
    ...     pass
    >>> counts.kernels
    0
    """
    counts = Counts()
    outer = _active.get()
    try:
        _active.set((*_active.get(), counts))
        yield counts
    finally:
        _active.set(outer)


def note(event: str, amount: int = 1) -> None:
    """Adds to one count of every active counter."""
    for counts in _active.get():
        setattr(counts, event, getattr(counts, event) + amount)


# ---- a line on the terminal ----
# It appears after a second and is wiped away at the end. None is written where PICOGRAD_QUIET is 1.
PATIENCE_SECONDS = 1.0
WIPE = "\r\x1b[K"  # to the beginning of the line, then all to its end


@contextmanager
def telling(text: Callable[[], str]) -> Iterator[None]:
    """Shows a line while the block runs, if that takes longer than PATIENCE_SECONDS.

    Cost: 0.1 ms where standard error is a terminal, for a thread is started.
    """
    if is_on("PICOGRAD_QUIET") or sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(text, done), name="picograd_progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(text: Callable[[], str], done: threading.Event) -> None:
    """Writes the line every second, and wipes it out at the end."""
    start, shown = time.monotonic(), False
    while not done.wait(PATIENCE_SECONDS):
        shown = True
        sys.stderr.write(f"{WIPE}picograd: {text()}, {time.monotonic() - start:.0f} s")
        sys.stderr.flush()
    if shown:
        sys.stderr.write(WIPE)
        sys.stderr.flush()
