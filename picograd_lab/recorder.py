"""Times each kernel of running plans, and assigns it to the user's lines.

In:    plans, with the graphs they are made of
Out:   `Recorder`, and its `Span`s

A profiled plan runs kernel by kernel, each to its end before the next begins. Its schedule is made once more from the
graph, since a plan does not keep its graph: so each kernel is known with its Ops, and these with their lines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import NamedTuple

from picograd.engine.devices import EVALUATOR, compiler_for
from picograd.engine.plan import Template, parametrize
from picograd.errors import ArgumentError, Line
from picograd.ir.op import Buffer, Dim, Op, toposort
from picograd.ir.opcode import SOURCES
from picograd.ir.origin import line_of, lines_of
from picograd.ir.shape import flops_of
from picograd.ir.stages import BufferUse, Executable, LoopItem, Plan, Schedule, ScheduleItem
from picograd.ir.symbolic import dim_value
from picograd.look import Profiling
from picograd.record import Record, replace

NOWHERE = Line("", 0)
PLANNING = "planning"  # name of a Span


class Span(Record):
    """A kernel that ran, or a plan that was made, with its time.

    name:     name of the kernel; "planning" for the making of a plan
    start:    seconds on the clock of perf_counter
    seconds:  duration
    flops:    floating-point operations
    nbytes:   bytes of the arrays that it reads and writes, each counted once
    lines:    the user's lines that it computes, with their shares of the work, which sum to 1
    """

    name: str
    start: float
    seconds: float
    flops: int = 0
    nbytes: int = 0
    lines: Mapping[Line, float] = {}


class _Work(NamedTuple):
    """The Ops of one item of a schedule, each with its line, and how often they run in a run of the plan."""

    lines: Mapping[Op, Line]
    steps: Dim


class _Part(NamedTuple):
    """One item of a plan as a plan of its own, on the buffers with these numbers."""

    name: str
    run: Callable[..., None]
    buffers: tuple[int, ...]


class Recorder:
    """Records kernels while it is the recorder of `Profiling` (picograd/look.py).

    spans:  in order
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._works: dict[int, list[_Work]] = {}  # by id of a plan
        self._parts: dict[int, list[_Part]] = {}
        self._plans: list[Plan] = []  # kept alive, so that no other plan gets their id

    def gives_way(self) -> bool:
        """True if another recorder may take its place for a while; the recorder then notes that it did."""
        return False

    # ---- plans ----
    def learn(self, plan: Plan, roots: Sequence[Op], form: Template, device: str, began: float | None) -> None:
        """Notes which Ops the kernels of a plan compute, and how long it took to make if it `began` just now."""
        if began is not None:
            self.spans.append(Span(PLANNING, began, perf_counter() - began))
        if id(plan) not in self._parts:
            self._plans.append(plan)
            self._parts[id(plan)] = [] if device == EVALUATOR else list(_parts_of(plan, device))
        if device != EVALUATOR:
            schedule = compiler_for(device).schedule(parametrize(roots, form))
            if _names(schedule) == _names(plan.schedule):  # else a plan of an earlier process, made differently
                self._works[id(plan)] = [_Work(_lines_in(item), _steps_of(item)) for item in schedule.items]

    def run(
        self, plan: Plan, inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int], may_stop: bool
    ) -> None:
        """Runs a plan kernel by kernel, and notes the time of each."""
        parts = self._parts.get(id(plan))
        if not parts:
            began = perf_counter()
            plan.run(inputs, outputs, variables, may_stop)
            self.spans.append(Span("plan", began, perf_counter() - began))
            return
        buffers = _all_buffers(plan.schedule, inputs, outputs, variables)
        works = self._works.get(id(plan)) or [_Work({}, 1)] * len(parts)
        for part, work in zip(parts, works):
            own = [buffers[i] for i in part.buffers]
            began = perf_counter()
            part.run([], own, variables, may_stop)
            self._wait(own)
            seconds = perf_counter() - began
            nbytes = sum({id(buffer.memory): buffer.nbytes for buffer in own}.values())
            flops, lines = _shares(work, variables)
            self.spans.append(Span(part.name, began, seconds, flops, nbytes, lines))

    def _wait(self, buffers: Sequence[Buffer]) -> None:
        """Waits for a device that works asynchronously."""
        wait = getattr(compiler_for(buffers[0].device).device, "synchronize", None) if buffers else None
        if wait is not None:
            wait()


@contextmanager
def recording(recorder: Recorder, refusal: str) -> Iterator[None]:
    """Makes a recorder that of `Profiling` within a block; one that gives way is it again afterwards.

    Raises:
      ArgumentError: with the text `refusal`: another recorder is on, and does not give way.
    """
    before, owner = Profiling.recorder, os.getpid()
    if before is not None and not (isinstance(before, Recorder) and before.gives_way()):
        raise ArgumentError(refusal)
    Profiling.recorder = recorder
    try:
        yield
    finally:
        Profiling.recorder = before if os.getpid() == owner else None  # nothing is recorded in a forked process


# ---- a plan in parts ----
def _parts_of(plan: Plan, device: str) -> Sequence[_Part]:
    """Returns the items of a plan, each as a plan whose buffers are all outputs."""
    make, executables = compiler_for(device).device.make_runner, list(plan.executables)
    parts = []
    for item in plan.schedule.items:
        count = len(item.body.kernel_items()) if isinstance(item, LoopItem) else 1
        code, executables = executables[:count], executables[count:]
        own = item.memory if isinstance(item, LoopItem) else None  # memory that the runner must provide
        numbers = tuple(dict.fromkeys(i for i in item.buffers if i != own))
        uses = [plan.schedule.buffers[i] for i in numbers]
        buffers = [BufferUse(use.dtype, use.numel, "output", place) for place, use in enumerate(uses)]
        nbytes = 0
        if own is not None:
            use = plan.schedule.buffers[own]
            nbytes = use.nbytes
            buffers.append(BufferUse(use.dtype, use.numel, "temporary", 0))
        renumbered = _renumbered(item, numbers if own is None else (*numbers, own))
        alone = Schedule((renumbered,), tuple(buffers), (), tuple(range(len(numbers))), nbytes)
        parts.append(_Part(_name_of(item, code), make(alone, code), numbers))
    return parts


def _names(schedule: Schedule) -> list[str]:
    return [item.kernel.name for item in schedule.kernel_items()]


def _name_of(item: ScheduleItem | LoopItem, code: Sequence[Executable]) -> str:
    if isinstance(item, LoopItem):
        return f"loop of {len(code)} kernels"
    return code[0].name


def _renumbered(item: ScheduleItem | LoopItem, numbers: Sequence[int]) -> ScheduleItem | LoopItem:
    """Returns an item with its buffers renumbered by `numbers`."""
    place = {number: i for i, number in enumerate(numbers)}
    if isinstance(item, ScheduleItem):
        return replace(item, buffers=tuple(place[i] for i in item.buffers))
    feeds = tuple(replace(feed, buffer=place[feed.buffer]) for feed in item.feeds)
    results = tuple(r if r.buffer is None else replace(r, buffer=place[r.buffer]) for r in item.results)
    return replace(item, feeds=feeds, results=results, memory=None if item.memory is None else place[item.memory])


def _all_buffers(
    schedule: Schedule, inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int]
) -> list[Buffer]:
    """Returns memory for each buffer of a schedule; temporaries get their own."""
    device = (*outputs, *inputs)[0].device
    allocate = compiler_for(device).device.allocate
    found = []
    for use in schedule.buffers:
        if use.role in ("input", "output"):
            found.append((inputs if use.role == "input" else outputs)[use.source])
        else:
            numel = dim_value(use.numel, variables)
            found.append(Buffer(device, use.dtype, numel, allocate(max(numel, 1) * use.dtype.itemsize)))
    return found


# ---- shares of lines ----
def _lines_in(item: ScheduleItem | LoopItem) -> dict[Op, Line]:
    """Returns the Ops of a kernel, or of a loop's kernels, each with the user's line.

    A function of several Ops has recorded its line at the last of them: the others get that of the Op that reads them.
    """
    items = item.body.kernel_items() if isinstance(item, LoopItem) else (item,)
    nests = [nest for kernel_item in items for phase in kernel_item.kernel.phases for nest in phase]
    values = [value for nest in nests for _, value in nest.outputs]
    lines = {value: line_of(value) or NOWHERE for value in values}
    for op in reversed(toposort(values)):
        lines[op] = next(iter(lines_of(op)), lines[op])
        for source in op.src:
            lines.setdefault(source, lines[op])
    return lines


def _steps_of(item: ScheduleItem | LoopItem) -> Dim:
    return item.steps if isinstance(item, LoopItem) else 1


def _shares(work: _Work, variables: Mapping[str, int]) -> tuple[int, Mapping[Line, float]]:
    """Returns FLOPs, and the share of each line: by FLOPs, or equal shares if there are none."""
    flops = {op: flops_of(op, variables) for op in work.lines}
    total = sum(flops.values())
    parts: dict[Line, float] = {}
    for op, line in work.lines.items():
        if op.code not in SOURCES:
            parts[line] = parts.get(line, 0.0) + (flops[op] if total else 1.0)
    whole = sum(parts.values())
    shares = {line: part / whole for line, part in parts.items() if part} if whole else {NOWHERE: 1.0}
    return total * dim_value(work.steps, variables), shares
