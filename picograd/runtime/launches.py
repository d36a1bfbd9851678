"""What a schedule launches, as data that a GPU's runner walks: which function, on which memory.

In:    Schedule, Executables
Out:   `LaunchList`: calls in order, and how many bytes of temporaries they need; `runner_by_steps`
Called by: runtime/cuda_plan.py, runtime/opencl.py, runtime/cudasim.py.    Next: picograd/compile/libraries.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType
from typing import Any

from picograd.dtype import DType
from picograd.ir.dims import dim_value
from picograd.ir.op import Buffer, Dim, Op, greatest
from picograd.ir.stages import REPORT_WORDS, Executable, Launch, LoopItem, Result, Runner, Schedule, ScheduleItem, Settled
from picograd.runtime.scratch import Piece, place_scratch

REPORT_NBYTES = 8 * REPORT_WORDS
ALIGNMENT = 256  # bytes, of scratch memory: whole cache lines
MOST_KEPT = 8  # numbers of steps of a plan's loops for which launches are remembered
NONE: Mapping[str, int] = MappingProxyType({})


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


def list_launches(
    schedule: Schedule, executables: Sequence[Executable], variables: Mapping[str, int] = NONE
) -> LaunchList:
    """Lists what a schedule launches, loops step by step.

    Args:
      variables: values of the symbolic integers that `symbolic_steps` reads
    """
    found = _Lister(*place_scratch(schedule, executables, ALIGNMENT), variables)
    home = [Home("output" if use.role == "hosted" else use.role, use.source) for use in schedule.buffers]
    found.add_items(schedule, home, executables, 0)
    return LaunchList(tuple(found.calls), found.temporary_nbytes, tuple(found.checks.values()), found.commit)


def symbolic_steps(schedule: Schedule) -> list[Dim]:
    """Returns the numbers of steps of a schedule's loops, and of loops in their bodies, that only a run tells."""
    found: dict[Dim, None] = {}
    for item in schedule.items:
        if isinstance(item, LoopItem):
            found.update(dict.fromkeys([] if isinstance(item.steps, int) else [item.steps]))
            found.update(dict.fromkeys(symbolic_steps(item.body)))
    return list(found)


def runner_by_steps(schedule: Schedule, make: Callable[[Mapping[str, int]], Runner]) -> Runner:
    """Returns a Runner of a schedule: where a loop has a symbolic number of steps, one for each number that comes.

    Args:
      make: gives the Runner for values of the symbolic integers, of which only numbers of steps may matter

    Cost: what another number of steps costs is listing its launches; the last `MOST_KEPT` numbers are remembered.
    """
    steps = symbolic_steps(schedule)
    if not steps:
        return make(NONE)
    kept: dict[tuple[int, ...], Runner] = {}
    one_by_one = Lock()

    def run(
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        variables: Mapping[str, int],
        may_stop: bool = True,
        settled: Settled | None = None,
    ) -> None:
        numbers = tuple(dim_value(each, variables) for each in steps)
        with one_by_one:
            runner = kept.pop(numbers, None) or make(variables)
            kept[numbers] = runner
            if len(kept) > MOST_KEPT:
                del kept[next(iter(kept))]  # the one that was not asked for the longest time
        runner(inputs, outputs, variables, may_stop, settled)

    return run


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

    def __init__(self, scratch: list[list[Piece]], temporary_nbytes: int, variables: Mapping[str, int]):
        self.scratch, self.temporary_nbytes, self.variables = scratch, temporary_nbytes, variables
        self.calls: list[Call] = []
        self.commit = 0
        self.checks: dict[int, tuple[Any, ...]] = {}  # by kernel

    def add_items(self, schedule: Schedule, home: Sequence[Home], executables: Sequence[Executable], first: int) -> None:
        """Adds the items of a schedule whose buffers live at `home`; its kernels are numbered from `first`."""
        for number, item in enumerate(schedule.items):
            if number and number == schedule.commit:
                self.commit = len(self.calls)
            if isinstance(item, LoopItem):
                steps = dim_value(item.steps, self.variables)
                for r in range(steps):
                    self.add_items(item.body, _step_home(item, home, r, steps), executables, first)
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
