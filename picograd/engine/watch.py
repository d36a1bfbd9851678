"""A watch on the engine at work: counts, for tests, benches and tools, and a line on the terminal.

In:    events from the engine's other files; what to say, asked again every second
Out:   `Counts`, `watch`;  `telling`

The line appears after a second and is wiped away at the end. Nothing is written where standard error is no terminal, nor
where PICOGRAD_QUIET is 1.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from picograd.config import is_on
from picograd.ir.stages import Plan
from picograd.record import Struct, field


# ---- counts ----
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
            if use.role in ("temporary", "hosted") and isinstance(use.numel, int):
                self.temporary_nbytes += use.numel * use.dtype.itemsize


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
