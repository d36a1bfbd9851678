"""What a schedule launches, as data that a GPU's runner walks: which function, on which memory.

In:    Schedule, Executables
Out:   `LaunchList`: calls in order, and how many bytes of temporaries they need
Called by: runtime/cuda_plan.py, runtime/opencl.py, runtime/cudasim.py.    Next: picograd/compile/libraries.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from picograd.dtype import DType
from picograd.errors import UnsupportedOp
from picograd.ir.op import Dim, Op, greatest
from picograd.ir.stages import REPORT_WORDS, Executable, Launch, LoopItem, Result, Schedule, ScheduleItem
from picograd.runtime.scratch import Piece, place_scratch

REPORT_NBYTES = 8 * REPORT_WORDS
ALIGNMENT = 256  # bytes, of scratch memory: whole cache lines


@dataclass(frozen=True)
class Place:
    """Where one argument lives.

    group:         "input", "output", "temporary" or "report"
    at:            the index of the input or output; for a temporary or a report its byte offset
    dtype, numel:  what the kernel may touch there
    offset:        bytes from the start of the input or output: the row that a step of a loop is about
    """

    group: str
    at: int
    dtype: DType
    numel: Dim
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """One launch of a device function."""

    function: Any
    launch: Launch
    places: tuple[Place, ...]
    variables: tuple[Op, ...]


@dataclass(frozen=True)
class LaunchList:
    """All launches of a schedule, in order.

    temporary_nbytes:  the arena, with the scratch memory of its kernels
    checks:            by report, what its kernel's numbers are in the plan
    commit:            calls after which the reports are looked at, before what overwrites inputs; 0: only in the end
    """

    calls: tuple[Call, ...]
    temporary_nbytes: int
    checks: tuple[tuple[Any, ...], ...]
    commit: int = 0

    @property
    def parts(self) -> tuple[tuple[Call, ...], ...]:
        """Returns the calls in parts after each of which the reports are looked at."""
        return (self.calls[: self.commit], self.calls[self.commit :]) if self.commit else (self.calls,)


def list_launches(schedule: Schedule, executables: Sequence[Executable]) -> LaunchList:
    """Lists what a schedule launches, loops step by step.

    Raises:
      UnsupportedOp: the number of steps of a loop is symbolic.
    """
    found = _Lister(*place_scratch(schedule, executables, ALIGNMENT))
    home = [Home("output" if use.role == "hosted" else use.role, use.source) for use in schedule.buffers]
    found.add_items(schedule, home, executables, 0)
    return LaunchList(tuple(found.calls), found.temporary_nbytes, tuple(found.checks.values()), found.commit)


@dataclass(frozen=True)
class Home:
    """Where a buffer of a schedule lives; the fields are those of a Place."""

    group: str
    at: int
    offset: int = 0

    def row(self, nbytes: int) -> Home:
        """Returns the place so many bytes further."""
        at, offset = (nbytes, 0) if self.group == "temporary" else (0, nbytes)
        return Home(self.group, self.at + at, self.offset + offset)


class _Lister:
    """A list of launches under construction."""

    def __init__(self, scratch: list[list[Piece]], temporary_nbytes: int):
        self.scratch, self.temporary_nbytes = scratch, temporary_nbytes
        self.calls: list[Call] = []
        self.commit = 0
        self.checks: dict[int, tuple[Any, ...]] = {}  # by kernel

    def add_items(self, schedule: Schedule, home: Sequence[Home], executables: Sequence[Executable], first: int) -> None:
        """Adds the items of a schedule whose buffers live at `home`; its kernels are numbered from `first`."""
        for number, item in enumerate(schedule.items):
            if number and number == schedule.commit:
                self.commit = len(self.calls)
            if isinstance(item, LoopItem):
                if not isinstance(item.steps, int):
                    raise UnsupportedOp(f"LOOP: a loop of {item.steps} steps, a symbolic number, runs on the CPU only.")
                for r in range(item.steps):
                    self.add_items(item.body, _step_home(item, home, r, item.steps), executables, first)
                first += len(item.body.kernel_items())
            else:
                self.add_kernel(item, [home[i] for i in item.buffers], executables[first], first)
                first += 1

    def add_kernel(self, item: ScheduleItem, home: Sequence[Home], executable: Executable, number: int) -> None:
        """Adds the launches of one kernel."""
        places = [Place(h.group, h.at, p.dtype, p.numel, h.offset) for h, p in zip(home, executable.params)]
        scratch = iter(self.scratch[number])
        for param in executable.params[len(places) :]:
            if param.role == "report":
                self.checks.setdefault(number, item.checks)
                report = list(self.checks).index(number)
                places.append(Place("report", report * REPORT_NBYTES, param.dtype, param.numel))
                continue
            places.append(Place("temporary", next(scratch)[0], param.dtype, param.numel))
        for function, launch in zip(executable.functions, executable.launches, strict=True):
            self.calls.append(Call(function, launch, tuple(places), executable.variables))


def _step_home(item: LoopItem, home: Sequence[Home], r: int, steps: int) -> list[Home]:
    """Returns where the buffers of a loop's body live in step r."""
    memory = 0 if item.memory is None else home[item.memory].at
    found: list[Home] = []
    for use in item.body.buffers:
        nbytes = greatest(use.numel) * use.dtype.itemsize
        if use.role == "temporary":
            found.append(Home("temporary", memory + use.source))
        elif use.role == "output":
            found.append(_stored(item.results[use.source], home, memory, r, steps, nbytes))
        else:
            feed = item.feeds[use.source]
            if feed.carried is not None and r > 0:
                found.append(_stored(item.results[feed.carried], home, memory, r - 1, steps, nbytes))
            else:
                row = (steps - 1 - r if feed.reversed else r) if feed.is_row else 0
                found.append(home[feed.buffer].row(row * nbytes))
    return found


def _stored(result: Result, home: Sequence[Home], memory: int, r: int, steps: int, nbytes: int) -> Home:
    """Returns where step r of a loop stores an output of its body."""
    places = [] if result.buffer is None else [home[result.buffer]]
    places += [Home("temporary", memory + at) for at in (result.other, result.spare) if at is not None]
    if result.is_row:
        return places[0].row(r * nbytes)
    return places[0] if (steps - 1 - r) % 2 == 0 else places[-1]
