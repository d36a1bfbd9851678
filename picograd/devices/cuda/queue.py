"""The queue of a GPU: kernels on one stream, and copies from the host on another, meanwhile.

In:    launches, graphs, host memory
Out:   `CommandQueue`;  `Staging`, pinned host memory for copies;  `Moment`, to wait for and measure from

By two rules it behaves as a single stream. A kernel starts after all copies submitted before it. A copy to the GPU waits
for the last kernels that used its memory, whose submission number the memory knows, and for no others: the next batch is
copied during a step. If an error or an interrupt leaves a submission incomplete, everything is waited for before the next
one.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from picograd.devices.cuda.commands import DUE, FIRST, NEVER, ONCE, Caller, Commands, Row
from picograd.devices.cuda.cublaslt import ProductCall
from picograd.devices.cuda.driver import NO_TIMING, Events, ask, call, failed
from picograd.interrupts import AtDeath, held_back, rlock, wait_until

# ---- pinned memory ----
RING_NBYTES, RING_PIECE_NBYTES = 32 << 20, 8 << 20
RING_ALIGNMENT_BYTES = 256
PIECES_MAX = 256  # in flight at once; more small ones could not be looked through quickly


class Staging:
    """A ring of pinned memory.

    Args:
      events:    pool of events that mark finished work
      wait_for:  function that waits for one
    """

    def __init__(self, events: Events, wait_for: Callable[[Any], None]):
        self._events, self._wait_for = events, wait_for
        self._ring = 0  # its address
        self._head = 0  # offset of the next piece
        self._piece = 0, 0  # start and end of the last piece
        self._used: deque[tuple[int, int, Any]] = deque()  # (start, end, event) of pieces, oldest first

    def pieces(self, nbytes: int) -> Iterator[tuple[int, int, int]]:
        """Splits a copy into pieces: (offset, address in the ring, bytes). Each must be `used` in turn."""
        if not self._ring:
            self._ring = int(call("cuMemHostAlloc", RING_NBYTES, 0))
        for at in range(0, nbytes, RING_PIECE_NBYTES):
            length = min(RING_PIECE_NBYTES, nbytes - at)
            yield at, self._ring + self._room(length), length

    def _room(self, nbytes: int) -> int:
        """Returns a free position in the ring, after the copies that used it are done."""
        start = self._head if self._head + nbytes <= RING_NBYTES else 0
        end = start + nbytes
        while len(self._used) >= PIECES_MAX or any(a < end and start < b for a, b, _ in self._used):
            self._wait_for(self._used[0][2])
            self._events.give(self._used.popleft()[2])
        self._head, self._piece = -(-end // RING_ALIGNMENT_BYTES) * RING_ALIGNMENT_BYTES, (start, end)
        return start

    def used(self, stream: Any) -> Any:
        """Notes that the last copy submitted to a stream uses the last piece; returns an event after it."""
        event = self._events.recorded(stream)
        self._used.append((*self._piece, event))
        return event


# ---- the queue ----
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: a stream that does not wait for other libraries
NOT_READY = 600  # CUDA_ERROR_NOT_READY
SUBMISSIONS_AHEAD_MAX = 64  # submissions that may wait for the GPU: a limit for the host's lead
ASKED_EVERY = 8  # submissions between two queries for finished ones


Alone = Callable[[], AbstractContextManager[None]]  # gives the calling thread exclusive use of the queue


class CommandQueue:
    """The commands of one GPU.

    caller:  makes driver calls
    stream:  handle of the kernels' stream
    ticket:  number of the last submission of kernels
    lock:    held by a thread during a submission or a copy
    moments: unused events with timing
    laps:    while kernels are timed: the name of each, and events before and after it; then graphs are not launched.
             Protected by the lock
    before, after: rows at the start and the end of a submission

    Args:
      context:  of the GPU
    """

    def __init__(self, caller: Caller, context: Any) -> None:
        self.ticket, self.lock, self._timing = 0, rlock(), rlock()
        self.laps: list[tuple[str, Any, Any]] | None = None
        self.moments: deque[Any] = deque()
        self._kernels, self._copies = (call("cuStreamCreate", NON_BLOCKING) for _ in range(2))
        self._marks: deque[tuple[int, int]] = deque()  # (ticket, event) of submissions that may not be done
        self._events = Events()
        self._arrival = call("cuEventCreate", NO_TIMING)  # after the last copy from the host
        self._staging = Staging(self._events, self.wait_for)
        self.is_whole = True  # no submission is incomplete
        self.caller, self.stream = caller, int(self._kernels)
        # For kernels that must wait for a submitted copy:
        self._arriving = Row("cuStreamWaitEvent", self.stream, self._arrival, 0, due=NEVER)
        self._record, self._query = Row("cuEventRecord", 0, self.stream), Row("cuEventQuery", 0)
        self.before = Row("cuCtxSetCurrent", context), self._arriving
        self.after = self._record, self._query
        self._enter = Commands(caller, self.before[:1])
        self._begin, self._end = Commands(caller, self.before), Commands(caller, self.after)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Guards a block that submits work: after an error, the next submission first waits for everything."""
        self.make_whole()
        try:
            yield
        except BaseException:
            self.is_whole = False
            raise

    def make_whole(self) -> None:
        """Waits for everything submitted, if an error left a submission incomplete."""
        if not self.is_whole:
            self._enter()
            for stream in (self._kernels, self._copies):
                wait_until(partial(_is_done, "cuStreamQuery", stream))
            self.is_whole = True

    # ---- kernels ----
    def run(self, commands: Commands) -> None:
        """Makes calls that end with those of `after`: a submission, which gets a number.

        Drops some of the oldest events if they are done; waits for one if the host is too far ahead.
        """
        spare, marks = self._events.spare, self._marks
        if not spare:
            self._enter()
            self._events.give(self._events.take())
        event = spare.pop()
        self.ticket += 1
        marks.append((self.ticket, event))
        self._record.words[FIRST] = event
        is_asked = len(marks) > ASKED_EVERY
        if is_asked:
            self._query.words[FIRST] = marks[ASKED_EVERY - 1][1]
        self._query.words[DUE] = ONCE if is_asked else NEVER
        ended = commands.ended()
        if ended:
            if ended != commands.last | NOT_READY:
                raise commands.failed(ended)
            while len(marks) > SUBMISSIONS_AHEAD_MAX:
                self.wait_for(marks[0][1])
                self._events.give(marks.popleft()[1])
        elif is_asked:
            for _ in range(ASKED_EVERY):
                spare.append(marks.popleft()[1])

    def launch(self, name: str, row: Row) -> None:
        """Submits a kernel, if its launch is due."""
        if row.is_due:
            self._submit(name, Commands(self.caller, [row]))

    def launch_product(self, product: ProductCall, name: str, addresses: Sequence[int]) -> None:
        """Submits a product by a library, on the kernels' stream."""
        self._submit(name, lambda: product(addresses, self.stream))

    def _submit(self, name: str, submit: Callable[[], Any]) -> None:
        """Submits a kernel, between two events while kernels are timed."""
        if self.laps is None:
            submit()
            return
        start, stop = self.take_moments(2)
        self.laps.append((name, start, stop))
        call("cuEventRecord", start, self._kernels)
        submit()
        call("cuEventRecord", stop, self._kernels)

    def begin(self) -> None:
        """Makes later kernels wait for copies in flight."""
        self._begin()

    def end(self) -> None:
        """Ends a submission of kernels."""
        self.run(self._end)

    # ---- copies ----
    def copy_in(self, target: int, source: int, nbytes: int, after: int) -> None:
        """Submits a copy from host memory, which may be changed after the return.

        Args:
          target, source:  addresses
          after:           number of the submission that must be done before
        """
        event = next((event for number, event in self._marks if number >= after), None)
        if event is not None:
            call("cuStreamWaitEvent", self._copies, event, 0)
        for at, staged, length in self._staging.pieces(nbytes):
            ctypes.memmove(staged, source + at, length)
            call("cuMemcpyHtoDAsync", target + at, staged, length, self._copies)
            self._staging.used(self._copies)
        call("cuEventRecord", self._arrival, self._copies)
        self._arriving.set_due(ONCE)

    def copy_out(self, source: int, target: int, nbytes: int) -> None:
        """Copies to host memory after all submissions, and waits: one piece is copied out while the next comes."""
        self.begin()
        before: tuple[int, int, int, Any] | None = None

        def deliver(at: int, staged: int, length: int, event: Any) -> None:
            self.wait_for(event)
            ctypes.memmove(target + at, staged, length)

        for at, staged, length in self._staging.pieces(nbytes):
            call("cuMemcpyDtoHAsync", staged, source + at, length, self._kernels)
            event = self._staging.used(self._kernels)
            if before is not None:
                deliver(*before)
            before = at, staged, length, event
        if before is not None:
            deliver(*before)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Submits a copy within the GPU."""
        self.begin()
        call("cuMemcpyDtoDAsync", target, source, nbytes, self._kernels)
        self.end()

    # ---- waiting ----
    def wait(self) -> None:
        """Waits until everything submitted is done; reports a kernel that failed."""
        self.begin()
        event = self._events.recorded(self._kernels)
        try:
            self.wait_for(event)
        finally:
            self._events.give(event)

    def wait_for(self, event: Any) -> None:
        """Waits for an event. Ctrl-C ends only the waiting: submitted work continues."""
        wait_until(lambda: self.is_done(event))

    # ---- time ----
    def take_moments(self, count: int) -> list[Any]:
        """Returns events with timing."""
        while len(self.moments) < count:
            self.moments.append(call("cuEventCreate", 0))
        return [self.moments.popleft() for _ in range(count)]

    def record(self, event: Any) -> None:
        """Records an event at the end of everything submitted so far."""
        self.begin()
        call("cuEventRecord", event, self._kernels)

    # NOTE: `work` runs without `lock`: it may wait for a thread that copies the next batch to the GPU.
    def timed(self, work: Callable[[], Any], alone: Alone) -> float:
        """Returns the seconds from the first to the last kernel that `work` submits, by events of the stream."""
        with alone():
            start, stop = self.take_moments(2)
        try:
            with alone():
                self.record(start)
            work()
            with alone():
                self.record(stop)
                self.wait_for(stop)
                return seconds_between(start, stop)
        finally:
            self.moments += (start, stop)

    def kernel_times(self, work: Callable[[], Any], alone: Alone) -> list[tuple[str, float]]:
        """Returns name and seconds of each kernel submitted while `work` runs, in order, by events of the stream."""
        laps: list[tuple[str, Any, Any]] = []
        with self._timing:
            try:
                with alone():
                    self.laps = laps
                work()
                with alone():
                    self.laps = None
                    self.wait()
                    return [(name, seconds_between(start, stop)) for name, start, stop in laps]
            finally:
                with held_back(), self.lock:  # a submission takes the lock twice
                    self.laps = None
                for _, *events in laps:
                    self.moments += events

    def is_done(self, event: Any) -> bool:
        """True if everything before an event is done."""
        return _is_done("cuEventQuery", event)


def _is_done(query: str, waited_for: Any) -> bool:
    """Asks the driver whether an event or a stream is done."""
    (status,) = ask(query, waited_for)
    if status.name == "CUDA_SUCCESS":
        return True
    if status.name == "CUDA_ERROR_NOT_READY":
        return False
    raise failed(query, status)


def seconds_between(start: Any, stop: Any) -> float:
    """Returns the seconds between two moments in the past."""
    return float(call("cuEventElapsedTime", start, stop)) / 1e3  # it answers in milliseconds


# ---- moments ----
class Moment:
    """The moment at which everything submitted before is done. Its event is returned to the queue with it.

    enter: makes the GPU's context current in the calling thread
    """

    def __init__(self, queue: CommandQueue, event: Any, enter: Callable[[], None]):
        self.queue, self.event, self.enter = queue, event, enter
        # It does not call the driver: a finalizer may run in a thread without a context.
        self._given_back = AtDeath(queue.moments.append, event)

    def has_come(self) -> bool:
        """True if it has passed."""
        with self.queue.lock:
            self.enter()
            return self.queue.is_done(self.event)

    def wait(self) -> None:
        """Waits for it."""
        with self.queue.lock:
            self.enter()
            self.queue.wait_for(self.event)

    def seconds_until(self, later: Moment) -> float:
        """Returns the seconds to a later moment, after waiting for that."""
        later.wait()
        with self.queue.lock:
            self.enter()
            return seconds_between(self.event, later.event)
