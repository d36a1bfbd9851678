"""Runs a schedule on the CPU: writes addresses into a flat plan and has the walker run it.

In:    Schedule, Executables, the walker
Out:   `Runner`, as specified in ir/stages.py;  `HostCode`: a Python function as an entry of a plan

A Python function is an entry of one iteration, so only the leader of a plan, a thread of Python's, calls it. Nothing
leaves the call except through memory: a refused value goes to the function's report, like that of a CHECK, and any other
error waits until the run is over. An interrupt waits, too, so that memory that the plan overwrites is complete.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from picograd.config import num_threads
from picograd.devices.cpu.memory import MemoryPool
from picograd.devices.cpu.plan import HELP_WORK, Words, chunk_of, lay_out
from picograd.devices.cpu.pool import pool
from picograd.devices.cpu.walker import (
    ARGUMENTS,
    ARGUMENTS_MAX,
    BODY,
    CHUNK,
    COPIED,
    COUNT,
    ENTRIES,
    FIRST,
    FUNCTION,
    HELPED,
    HELPERS,
    PLACES,
    STOP,
    STRIDE,
    TABLE,
    WAKES,
    YIELD,
    Walker,
    libc_address,
)
from picograd.devices.launches import Function, array_at
from picograd.interrupts import LivingSet
from picograd.ir.checks import Refused, first_report
from picograd.ir.op import Buffer, Op
from picograd.ir.stages import REPORT_WORDS, Executable, FixedMemory, Param, Schedule
from picograd.ir.symbolic import dim_value
from picograd.record import Record

# ---- functions of the host ----
FAILED = -1  # in a report: the error is in `failures`


class HostCode:
    """A function that plans can call.

    address:   address of a function with the signature of a kernel
    failures:  errors that are not reports, by the address of the report of the call
    """

    def __init__(self, params: Sequence[Param], variables: Sequence[Op], function: Function):
        """`params` are the arguments by slot; the last one is the report. `function` takes arrays of the others."""
        self.params, self.variables, self.function = tuple(params), tuple(variables), function
        self.failures: dict[int, BaseException] = {}
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self._run)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _run(self, arguments: int, begin: int, end: int) -> None:
        """Runs once; `arguments` is the address of the words."""
        count = len(self.params) + len(self.variables)
        words = list((ctypes.c_int64 * count).from_address(arguments))
        report = words[len(self.params) - 1]
        interrupt: BaseException | None = None
        while True:
            try:
                self._call(words)
            except KeyboardInterrupt as error:  # NOTE: it would be lost here, so it waits, and the call begins again
                interrupt = error
                continue
            except Refused as refused:
                assert isinstance(refused.site, int), "a kernel knows its CHECKs by number"
                self._report(report, refused.site + 1, refused.value)
            except BaseException as error:
                self.failures[report] = error
                self._report(report, FAILED, 0)
            break
        if interrupt is not None:
            self.failures[report] = interrupt
            self._report(report, FAILED, 0)

    def _call(self, words: Sequence[int]) -> None:
        variables = {v.arg[0]: value for v, value in zip(self.variables, words[len(self.params) :])}
        arrays = [
            array_at(word, dim_value(param.numel, variables), param.dtype) for param, word in zip(self.params[:-1], words)
        ]
        self.function(arrays, variables)

    def _report(self, address: int, number: int, value: int) -> None:
        (ctypes.c_int64 * REPORT_WORDS).from_address(address)[:] = [number, value]


# ---- runs that can be stopped ----
def _lead_elsewhere(walk: Callable[[], None], state: Words, may_stop: bool) -> None:
    """Lets another thread lead a plan while this one waits for it, or for Ctrl-C.

    Args:
      state:     the plan's state, where the walker finds out whether to stop
      may_stop:  False if the plan overwrites its inputs: an interrupt then waits until it is done
    """
    state[STOP] = 0  # a second interrupt may have left it set
    turn, finished = threading.Lock(), threading.Event()
    failures: list[BaseException] = []

    def lead() -> None:
        if not turn.acquire(blocking=False):  # the caller has given up
            return
        try:
            walk()
        except BaseException as error:
            failures.append(error)
        finally:
            finished.set()

    leader = threading.Thread(target=lead, name="picograd-leader", daemon=True)
    while True:  # NOTE: returning before the leader is done would let its memory be freed
        try:
            if leader.ident is None:
                leader.start()
            while not finished.wait(0.1):  # from time to time, for signals that another thread received
                pass
            break
        except BaseException as error:  # Ctrl-C, or an error of another signal's handler
            if turn.acquire(blocking=False):
                raise
            failures.append(error)
            state[STOP] |= may_stop
    state[STOP] = 0
    for failure in failures[:1]:
        raise failure


# ---- runs ----
WORD = attrgetter("memory.word")  # of a Buffer
NO_REPORTS = np.zeros((0, REPORT_WORDS), np.int64)
LONG_WORK = 1 << 29  # of a plan that is long enough to be interrupted, in the unit of plan.py


class Effort(Record):
    """The threads that run a plan of some length.

    is_long:   another thread leads, while the caller waits for it or for Ctrl-C
    is_short:  the plan needs nothing but the walk: it has no temporaries and no reports, and is too short to be stopped
    helpers:   number of other threads that may help
    woken:     number of helpers worth waking
    """

    is_long: bool
    is_short: bool
    helpers: int
    woken: int


class Runner:
    """One schedule in its flat form. Calls from many threads run one after the other.

    Memory of a run must stay alive until the run is over; no reference to it is kept afterwards. The words that the walker
    reads are written only where they change:

    _outer, _outer_bytes:  addresses of inputs and outputs in the table, as words and as bytes
    _words:                the addresses that are written there; [] if they are unknown
    _fixed:                the promise of the last run about its memory
    _arena_address:        the address of temporaries that is written; 0 if it is unknown;  _arena_nbytes: their bytes
    _variables:            the values of symbolic integers that are written; {} if they are unknown
    _effort:               follows from these values

    Parts of a plan that all runs share:

    executables:     keep the code loaded
    _host_code:      those of them that are functions of the host
    _layout:         the plan as words, and the places of all this;  _state_address: where the walker begins
    _reports:        a row for each kernel with CHECKs;  _no_reports: its bytes if there are no reports
    _overwritten:    (output, input) that may be one memory
    """

    __slots__ = (
        "__weakref__", "_arena_address", "_arena_nbytes", "_effort", "_fixed", "_host_code", "_layout", "_lock",
        "_memory", "_no_reports", "_outer", "_outer_bytes", "_overwritten", "_reports", "_state_address", "_variables",
        "_walker", "_words", "executables", "num_threads",
    )  # fmt: skip

    def __init__(self, schedule: Schedule, executables: Sequence[Executable], walker: Walker, memory: MemoryPool):
        self.executables = tuple(executables)
        self._host_code = tuple([e.owner for e in self.executables if isinstance(e.owner, HostCode)])
        self.num_threads = num_threads()
        self._walker, self._memory, self._lock = walker, memory, threading.Lock()
        self._layout = layout = lay_out(schedule, executables, walker.gate, self.num_threads)
        entries, state, table = layout.entries, layout.state, layout.table
        self._outer = table[: layout.num_outer].data
        self._outer_bytes = self._outer.cast("B")
        self._words: list[bytes] = []
        self._fixed: FixedMemory | None = None
        self._reports = reports = layout.reports if layout.checks else NO_REPORTS
        self._no_reports = bytes(8 * REPORT_WORDS * len(layout.checks))
        first = layout.num_outer + len(layout.offsets) + len(layout.variables)
        table[first : first + len(layout.checks)] = [report.ctypes.data for report in layout.reports]
        is_loop = entries[:, FUNCTION] == 0
        entries[:, PLACES] += np.where(is_loop, layout.patches.ctypes.data, layout.places.ctypes.data)
        state[ENTRIES], state[FIRST] = len(entries), entries.ctypes.data
        state[TABLE], state[COPIED] = table.ctypes.data, len(table) if is_loop.any() else 0
        state[ARGUMENTS_MAX] = entries[~is_loop, ARGUMENTS].max(initial=0)
        state[YIELD] = libc_address("sched_yield")
        self._state_address = state.ctypes.data
        if layout.has_gate:
            table[-3:] = reports.ctypes.data, reports.size, self._state_address + 8 * STOP
        pairs = [(use.source, at) for use in schedule.written() for at in (use.over, *use.also) if at is not None]
        self._overwritten = tuple(pairs)
        self._arena_address, self._arena_nbytes = 0, layout.temporaries.nbytes
        self._variables: dict[str, int] = {}
        self._effort = self._weighed()
        _runners.add(self)

    def __call__(
        self,
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        variables: Mapping[str, int],
        may_stop: bool = True,
        fixed: FixedMemory | None = None,
    ) -> None:
        """Runs the schedule once.

        Raises:
          OutOfRange: a Check of a kernel failed, or a function of the host; the run went on to its end, and the outputs
                      are not to be used.
        """
        layout = self._layout
        with self._lock:
            if variables and self._variables != variables:
                self._set_variables(dict(variables))
            if fixed is None or fixed is not self._fixed:
                self._set_addresses(inputs, outputs, fixed)
            else:
                outer, first = self._outer, len(inputs)
                for place in fixed.moving_inputs:
                    outer[place] = inputs[place].memory.address
                for run in fixed.moving_runs:
                    self._outer_bytes[8 * run.start : 8 * run.stop] = b"".join([i.memory.word for i in inputs[run]])
                for place in fixed.moving_outputs:
                    outer[first + place] = outputs[place].memory.address
            effort = self._effort
            if effort.is_short:
                self._lead()
                return
            nbytes = self._arena_nbytes
            arena = self._memory.borrow_arena(nbytes, min(nbytes, layout.scratch_nbytes)) if nbytes else None
            try:
                if arena is not None and arena.address != self._arena_address:
                    self._set_arena(arena.address)
                if effort.is_long and threading.current_thread() is threading.main_thread():
                    _lead_elsewhere(self._lead, layout.state, may_stop and not self._overwrites(inputs, outputs))
                else:
                    self._lead()
            finally:
                if arena is not None:
                    self._memory.return_arena(arena)
                reports = self._take_reports() if layout.checks else []
            if reports:
                self._raise_failure()
                raise first_report(reports, layout.checks)

    def _set_addresses(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], fixed: FixedMemory | None) -> None:
        """Writes the addresses of inputs and outputs."""
        words = [*map(WORD, (*inputs, *outputs))]
        if words != self._words:
            self._words, self._fixed = [], None  # unknown until all are written: an interrupt may come
            self._outer_bytes[:] = b"".join(words)
        self._fixed = fixed
        self._words = words if fixed is None else []  # runs with the same promise will write others

    def _overwrites(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> bool:
        """Returns whether an output has the memory of an input."""
        return any(outputs[output].memory is inputs[i].memory for output, i in self._overwritten)

    def _take_reports(self) -> list[list[int]]:
        """Returns the reports of all kernels with CHECKs, or [] if there are none, and clears them."""
        if self._reports.tobytes() == self._no_reports:
            return []
        found: list[list[int]] = self._reports.tolist()
        self._reports[:] = self._layout.state[STOP] = 0
        return found

    def _raise_failure(self) -> None:
        """Raises the error of a host function of this plan, unless it was about a refused value."""
        for report in self._reports:
            for code in self._host_code:
                failure = code.failures.pop(report.ctypes.data, None)
                if failure is not None:
                    raise failure

    def _set_arena(self, address: int) -> None:
        """Writes the addresses of temporaries."""
        layout, self._arena_address = self._layout, 0  # unknown until all are written
        layout.table[layout.num_outer : layout.num_outer + len(layout.offsets)] = address + layout.offsets
        self._arena_address = address

    def _set_variables(self, variables: dict[str, int]) -> None:
        """Writes values of symbolic integers, and the grids and the places of temporaries that depend on them."""
        layout, self._variables = self._layout, {}  # unknown until all are written
        if not layout.temporaries.is_spread:
            self._arena_address, (places, self._arena_nbytes) = 0, layout.temporaries.places(variables)
            layout.offsets[:] = [places[start] for start in layout.starts]
        first = layout.num_outer + len(layout.offsets)
        layout.table[first : first + len(layout.variables)] = [variables[name] for name in layout.variables]
        dims = {s.dim for s in (*layout.symbolic, *layout.strides)}  # many words depend on few of them
        values = {dim: dim_value(dim, variables) for dim in dims}
        for symbolic in layout.symbolic:
            count = max(0, values[symbolic.dim])
            layout.entries[symbolic.row, COUNT] = count
            if symbolic.work:
                layout.entries[symbolic.row, CHUNK] = chunk_of(count, symbolic.work, self.num_threads)
        for stride in layout.strides:
            layout.patches[stride.row, STRIDE] = stride.scale * values[stride.dim]
        if layout.symbolic:  # else the grids have not changed
            self._effort = self._weighed()
        self._variables = variables

    def _weighed(self) -> Effort:
        """Returns the threads that run the plan; writes the number of helpers, and how far they help."""
        layout, entries = self._layout, self._layout.entries
        is_long = bool(entries[:, COUNT].astype(np.float64) @ layout.work >= LONG_WORK)
        shared = ((entries[:, CHUNK] < entries[:, COUNT]) & (entries[:, FUNCTION] != 0)).nonzero()[0]
        helpers = self.num_threads - 1 if len(shared) else 0
        woken = min(helpers, int(entries[shared, COUNT] @ layout.work[shared]) // HELP_WORK)
        state = layout.state
        state[HELPED] = self._end_of(shared[-1]) if len(shared) else 0
        state[HELPERS], state[WAKES] = helpers, woken
        return Effort(is_long, not (is_long or layout.temporaries.nbytes or layout.checks), helpers, woken)

    def _end_of(self, entry: int) -> int:
        """Returns the number of entries up to this one, and to the end of the outermost loop around it."""
        entries = self._layout.entries
        for loop in (entries[:, FUNCTION] == 0).nonzero()[0]:
            end = int(loop + 1 + entries[loop, BODY])
            if loop < entry < end:
                return end
        return entry + 1

    def _lead(self) -> None:
        """Walks the plan with helpers; if it is too short to wake some, with those that are awake."""
        effort = self._effort
        if effort.helpers:
            crew = pool.crew(self._walker, effort.helpers, starts=effort.woken > 0)
            self._walker.walk(self._state_address, 0 if crew is None else crew.address)
        else:
            self._walker.walk(self._state_address, 0)

    def after_fork(self) -> None:
        """Forgets a run that a thread of the parent was in the middle of."""
        self._lock = threading.Lock()
        self._reports[:] = self._layout.state[STOP] = 0


_runners: LivingSet[Runner] = LivingSet()


def _after_fork() -> None:
    for runner in _runners.living():
        runner.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
