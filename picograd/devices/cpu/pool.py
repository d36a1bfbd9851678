"""The threads that help to run plans: they live in native code, where plans reach them without Python.

In:    the walker, how many helpers are wanted
Out:   `pool.crew()`: the lines that `walk` offers plans at

A helper is a thread that calls `serve` once and stays there until it is dismissed; it never takes the interpreter's lock
meanwhile. After a fork the child has no threads but its own: it makes a new crew when it first needs one.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time

from picograd.config import num_processors
from picograd.devices.cpu.plan import Words, aligned_words
from picograd.devices.cpu.walker import (
    ACQUIRE,
    CLOCK,
    CLOCK_ID,
    LINE_WORDS,
    LINE_YIELD,
    LOCK,
    NEXT_LINE,
    RELEASE,
    SPIN_NS,
    Walker,
    libc_address,
)
from picograd.errors import DeviceError

SPIN_NS_MAX = 5_000_000  # a virtual processor that was left idle may take 20 ms to come back


class Crew:
    """Helpers, each with its line; the first line leads to the others.

    Who may reach a line holds its crew: each helper, and a leader while it walks.
    """

    def __init__(self, walker: Walker) -> None:
        self.walker = walker
        self.lines: list[Words] = []
        self.threads: list[threading.Thread] = []
        self.address = 0

    def grow(self, count: int) -> None:
        """Starts helpers until there are `count`."""
        # Where threads take turns on a processor, a helper that looks for work keeps others from theirs
        spin_ns = SPIN_NS_MAX if count + 1 <= num_processors() else 0
        for line in self.lines:
            line[SPIN_NS] = spin_ns
        while len(self.lines) < count:
            line = new_line(spin_ns)
            name = f"picograd-{len(self.lines)}"
            thread = threading.Thread(target=self._serve, args=(line,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                fact = f"CPU: {len(self.lines) + 1} of {count + 1} threads run, the system refuses another one: {error}."
                raise DeviceError(fact, "a smaller PICOGRAD_THREADS") from None
            self.threads.append(thread)
            if self.lines:
                self.lines[-1][NEXT_LINE] = line.ctypes.data
            else:
                self.address = line.ctypes.data
            self.lines.append(line)

    def _serve(self, line: Words) -> None:
        self.walker.serve(line.ctypes.data)

    def dismiss(self) -> None:
        """Ends the helpers; one at work on a plan comes to its end first."""
        for line in self.lines:
            self.walker.dismiss(line.ctypes.data)
        for thread in self.threads:
            thread.join(timeout=1.0)


class ThreadPool:
    """The crew of this process, started when first needed."""

    def __init__(self) -> None:
        self._crew: Crew | None = None
        self._lock = threading.Lock()
        self._is_over = False

    @property
    def helpers(self) -> list[threading.Thread]:
        """The threads there are."""
        return [] if self._crew is None else self._crew.threads

    @property
    def lines(self) -> list[Words]:
        """Their lines."""
        return [] if self._crew is None else self._crew.lines

    def crew(self, walker: Walker, count: int, starts: bool = True) -> Crew | None:
        """Returns the crew; hold it for as long as its address is used.

        Args:
          walker: serves, if this is the first call
          count:  helpers there shall be
          starts: False: no helper is started, and None means that there is none; nor is one while the process ends
        """
        crew = self._crew
        if not starts or (crew is not None and len(crew.lines) >= count) or self._is_over:
            return crew
        with self._lock:
            if self._is_over:
                return self._crew
            if self._crew is None:
                self._crew = Crew(walker)
            self._crew.grow(count)
            return self._crew

    def stop(self) -> None:
        """Ends the helpers of this process; a later plan starts new ones."""
        with self._lock:
            crew, self._crew = self._crew, None
        if crew is not None:
            crew.dismiss()

    def end(self) -> None:
        """Ends them for good: threads that outlive this run their plans alone."""
        self._is_over = True
        self.stop()

    def after_fork(self) -> None:
        """Forgets helpers that only the parent has, and a lock that one of its threads may have held."""
        self._crew, self._lock = None, threading.Lock()


# ---- lines ----
# NOTE: these locks may be taken and released by threads that do not hold the interpreter's. They are never freed: a leader
# may still be inside `release` when the helper that it wakes has ended.
_new_lock = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", ctypes.pythonapi))
_acquire = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(("PyThread_acquire_lock", ctypes.pythonapi))
_release = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyThread_release_lock", ctypes.pythonapi))


def new_line(spin_ns: int) -> Words:
    """Returns the line of a helper that looks for a plan for so long before it sleeps."""
    line = aligned_words(LINE_WORDS)
    lock = _new_lock()
    if not lock:
        raise MemoryError("CPU: no memory for a lock")
    _acquire(lock, 1)
    line[LOCK] = lock
    for word, function in ((ACQUIRE, _acquire), (RELEASE, _release)):
        line[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
    line[CLOCK], line[CLOCK_ID] = libc_address("clock_gettime"), getattr(time, "CLOCK_MONOTONIC", 0)
    line[LINE_YIELD], line[SPIN_NS] = libc_address("sched_yield"), spin_ns
    return line


pool = ThreadPool()
atexit.register(pool.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.after_fork)
