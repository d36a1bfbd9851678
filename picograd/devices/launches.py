"""The launches of a schedule, as data that a GPU's runner walks: which function, on which memory.

In:    Schedule, Executables
Out:   `LaunchList`: calls in order, and how many bytes of temporaries they need; `runner_by_steps`, `runner_of_calls`
       `HostFunction`, `load_host`: functions of Python as launches of a plan whose kernels run elsewhere
       `load_library`: the functions of a shared library
       `place_scratch`: for each kernel the pieces of the arena it works in, where nothing lives while it runs
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.interrupts import Latest, held_back, lock
from picograd.ir.backend import Device
from picograd.ir.checks import Refused, first_report
from picograd.ir.op import Buffer, Dim, Op
from picograd.ir.stages import (
    REPORT_WORDS,
    Binary,
    BufferUse,
    Executable,
    FixedMemory,
    Launch,
    LoopItem,
    Param,
    Result,
    Runner,
    Schedule,
    ScheduleItem,
)
from picograd.ir.symbolic import dim_value
from picograd.record import Record

# ---- scratch memory ----
# How much a kernel packs is known when its code is, after the temporaries have their places. So scratch memory takes what
# they leave: while a kernel runs that is the place of every temporary that is dead then, and the rest after all of them.
Piece = tuple[int, int]  # start, end: bytes of the arena
Ends = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def place_scratch(schedule: Schedule, executables: Sequence[Executable], alignment: int) -> tuple[list[list[Piece]], int]:
    """Returns, by `schedule.kernel_items()`, the pieces of the arena for each "scratch" parameter; and the arena's bytes.

    Args:
      alignment:  bytes that every piece starts at a multiple of
    """
    if not any(param.role == "scratch" for executable in executables for param in executable.params):
        return [[] for _ in executables], schedule.arena_nbytes
    placer = _Placer(executables, alignment)
    placer.add_items(schedule, 0, np.zeros((0, 2), np.int64))
    return placer.pieces, max([schedule.arena_nbytes, *(end for found in placer.pieces for _, end in found)])


class _Placer:
    """The pieces of the kernels so far."""

    def __init__(self, executables: Sequence[Executable], alignment: int):
        self.pieces: list[list[Piece]] = []
        self._executables, self._alignment = iter(executables), alignment

    def add_items(self, schedule: Schedule, base: int, held: Ends) -> None:
        """Adds the kernels of a schedule whose temporaries begin at `base`.

        Args:
          held: what lives around all of it, as (start, end)
        """
        places, first, last = _lifetimes(schedule, base)
        for number, item in enumerate(schedule.items):
            lives = (first <= number) & (number <= last)
            if isinstance(item, LoopItem):
                self.add_items(item.body, *_inside(item, places, lives, held))
                continue
            lengths = _scratch_lengths(next(self._executables), len(item.buffers))
            around = np.concatenate([held, places[lives]]) if lengths else held
            self.pieces.append(_lowest(around, lengths, self._alignment))


def _lifetimes(schedule: Schedule, base: int) -> tuple[Ends, Ends, Ends]:
    """Returns (start, end) of each buffer of a schedule, and its first and last item; other than temporaries never live."""
    count = len(schedule.buffers)
    places, first, last = np.zeros((count, 2), np.int64), np.full(count, len(schedule.items)), np.full(count, -1)
    for i, use in enumerate(schedule.buffers):
        if use.role == "temporary":
            start = base + use.source
            places[i] = start, start + use.nbytes
    is_temporary = [use.role == "temporary" for use in schedule.buffers]
    for number, item in enumerate(schedule.items):
        for i in item.buffers:
            if is_temporary[i]:
                first[i], last[i] = min(first[i], number), number
    return places, first, last


def _inside(item: LoopItem, places: Ends, lives: Bools, held: Ends) -> tuple[int, Ends]:
    """Returns where the temporaries of a loop's body begin, and what lives around them.

    The item's own memory has them at its start; the memory after them, carries, lives from step to step.
    """
    if item.memory is None:
        return 0, np.concatenate([held, places[lives]])
    start, end = places[item.memory]
    outside = lives.copy()
    outside[item.memory] = False
    carries = np.array([[start + item.body.arena_nbytes, end]])
    return int(start), np.concatenate([held, places[outside], carries])


def _scratch_lengths(executable: Executable, num_buffers: int) -> list[int]:
    """Returns the bytes of each "scratch" parameter of a kernel."""
    own = executable.params[num_buffers:]
    return [param.nbytes for param in own if param.role == "scratch"]


def _lowest(around: Ends, lengths: Sequence[int], alignment: int) -> list[Piece]:
    """Returns a piece for each length, the longest placed first, each at the lowest place where nothing lives."""
    found: dict[int, Piece] = {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        ordered = around[np.argsort(around[:, 0], kind="stable")]
        gaps = np.maximum.accumulate(np.concatenate([[0], ordered[:, 1]]))  # where the gap before each one begins
        gaps = -(-gaps // alignment) * alignment
        fits = np.flatnonzero(gaps[:-1] + lengths[i] <= ordered[:, 0])
        start = int(gaps[fits[0] if len(fits) else -1])
        found[i] = start, start + lengths[i]
        around = np.concatenate([around, [found[i]]])
    return [found[i] for i in range(len(lengths))]


# ---- shared libraries ----
def load_library(binary: Binary, device: str) -> ctypes.CDLL:
    """Loads the library of a kernel, which needs a file only while it is being loaded.

    Raises:
      DeviceError: the system does not take it.
    """
    handle, path = tempfile.mkstemp(prefix="picograd_", suffix=".so")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(binary.data)
        return ctypes.CDLL(path)
    except OSError as error:
        raise DeviceError(f"{device}: kernel {binary.name} cannot be loaded ({error}).") from None
    finally:
        os.unlink(path)


def words_of(binary: Binary) -> dict[str, int]:
    """Returns the address of each launch's function in the library of a kernel in C; the library stays loaded."""
    library = load_library(binary, "C")
    functions = {launch.symbol: library[f"{launch.symbol}_words"] for launch in binary.launches}
    return {symbol: ctypes.cast(function, ctypes.c_void_p).value or 0 for symbol, function in functions.items()}


def is_library(data: bytes) -> bool:
    """True for a shared library of this system's kind, and not for an object file."""
    is_elf, is_mach = data[:4] == b"\x7fELF", data[:4] == b"\xcf\xfa\xed\xfe"
    return (is_elf and data[16] == 3) or (is_mach and data[12] == 6) or data[:2] == b"MZ"


# ---- functions of the host ----
Array = np.ndarray[Any, Any]
Function = Callable[[Sequence[Array], Mapping[str, int]], None]


class HostFunction(Record):
    """A function that a plan calls between its kernels.

    params:  what it takes, by slot; the last one is the report
    run:     (flat arrays of the others, values of symbolic integers by name): what it does
    """

    params: tuple[Param, ...]
    run: Function

    def __call__(self, arrays: Sequence[Array], variables: Mapping[str, int]) -> None:
        """Runs once, on flat arrays by slot. A refusal goes to the report, as with a CHECK; an interrupt waits."""
        try:
            with held_back():
                self.run(arrays[:-1], variables)
        except Refused as refused:
            assert isinstance(refused.site, int), "a kernel knows its CHECKs by number"
            arrays[-1][:] = refused.site + 1, refused.value


def load_host(name: str, params: Sequence[Param], variables: Sequence[Op], work: int, run: Function) -> Executable:
    """Makes a function on arrays a launch; a report is added to its parameters."""
    function = HostFunction((*params, Param(dtypes.int64, REPORT_WORDS, "report")), run)
    return Executable(name, function.params, tuple(variables), (Launch(f"{name}_0", 1, 1, work),), (function,), None)


def array_at(address: int, numel: int, dtype: DType) -> Array:
    """Returns memory of this process as a flat array, without a copy."""
    raw = (ctypes.c_uint8 * (numel * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(raw).view(dtype.numpy)


# ---- launches ----
REPORT_NBYTES = 8 * REPORT_WORDS
SCRATCH_ALIGNMENT = 256  # bytes, of scratch memory: whole cache lines
REMEMBERED_STEPS_MAX = 8  # numbers of steps of a plan's loops for which launches are remembered
NONE: Mapping[str, int] = MappingProxyType({})
CallMaker = Callable[["Call", list[tuple[Any, int]], Mapping[str, int]], object]


class Place(Record):
    """A place in memory of a plan: bytes from the start of an input, an output, the temporaries or the reports.

    group:   "input", "output", "temporary" or "report"
    number:  of the input or output; temporaries are one piece of memory, number 0, and so are reports
    offset:  bytes
    """

    group: str
    number: int
    offset: int = 0

    def moved(self, nbytes: int) -> Place:
        """Returns the place that many bytes further."""
        return Place(self.group, self.number, self.offset + nbytes)


class Argument(Record):
    """Memory that a kernel is given: a place, and what may be touched there."""

    place: Place
    dtype: DType
    numel: Dim


class Call(Record):
    """One launch of a device function."""

    function: Any
    launch: Launch
    arguments: tuple[Argument, ...]
    variables: tuple[Op, ...]


def axes_of(launch: Launch) -> tuple[tuple[int, int], tuple[int, int, int]]:
    """Returns a launch's blocks along y and z, and its threads along x, y and z."""
    high, deep, *block = launch.axes or (1, 1, launch.block, 1, 1)
    return (high, deep), (block[0], block[1], block[2])


class LaunchList(Record):
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
        """Returns the calls in parts; after each part the reports are looked at."""
        return (self.calls[: self.commit], self.calls[self.commit :]) if self.commit else (self.calls,)


def list_launches(schedule: Schedule, executables: Sequence[Executable], variables: Mapping[str, int]) -> LaunchList:
    """Lists what a schedule launches, loops step by step.

    Args:
      variables: values of the symbolic integers that `symbolic_lengths` reads
    """
    found = _Lister(*place_scratch(schedule, executables, SCRATCH_ALIGNMENT), variables)
    found.add_items(schedule, [_outer_place(use) for use in schedule.buffers], executables, 0)
    return LaunchList(tuple(found.calls), found.temporary_nbytes, tuple(found.checks.values()), found.commit)


def symbolic_lengths(schedule: Schedule) -> list[Dim]:
    """Returns the numbers of steps of a schedule's loops, and lengths of rows, that only a run tells."""
    found: dict[Dim, None] = {}
    for item in schedule.items:
        if isinstance(item, LoopItem):
            rows = [use.numel for use in item.body.buffers if _is_row(item, use)]
            found.update(dict.fromkeys(dim for dim in (item.steps, *rows) if not isinstance(dim, int)))
            found.update(dict.fromkeys(symbolic_lengths(item.body)))
    return list(found)


def runner_by_steps(schedule: Schedule, make: Callable[[Mapping[str, int]], Runner], holds_back: bool = True) -> Runner:
    """Returns a Runner of a schedule: where a loop has a symbolic number of steps, or length of rows, one for each.

    Ctrl-C waits until a plan is submitted that somebody's values are in the middle of: some of them would be new, some old.

    Args:
      make:        gives the Runner for values of the symbolic integers, of which only those of loops matter
      holds_back:  False for Runners that have Ctrl-C wait themselves where `may_stop` is False

    Cost: what another number costs is listing its launches; the last `REMEMBERED_STEPS_MAX` are remembered.
    """
    lengths = symbolic_lengths(schedule)
    only = None if lengths else make(NONE)
    over = [(use.source, at) for use in schedule.written() for at in (use.over, *use.also) if at is not None]
    kept: Latest[tuple[int, ...], Runner] = Latest(REMEMBERED_STEPS_MAX)
    one_by_one = lock()

    def runner_for(variables: Mapping[str, int]) -> Runner:
        numbers = tuple(dim_value(each, variables) for each in lengths)
        with one_by_one:
            runner = kept.get(numbers) or make(variables)
            kept.put(numbers, runner)  # the one that was not asked for the longest time goes
        return runner

    def run(
        inputs: Sequence[Buffer],
        outputs: Sequence[Buffer],
        variables: Mapping[str, int],
        may_stop: bool = True,
        fixed: FixedMemory | None = None,
    ) -> None:
        runner = only or runner_for(variables)
        for o, i in over if may_stop else ():
            if outputs[o].memory is inputs[i].memory:
                may_stop = False
                break
        if may_stop or not holds_back:
            runner(inputs, outputs, variables, may_stop, fixed)
        else:
            with held_back():
                runner(inputs, outputs, variables, may_stop, fixed)

    return run if only is None or over or holds_back else only


def runner_of_calls(
    device: Device, schedule: Schedule, executables: Sequence[Executable], make_call: CallMaker,
    one_by_one: AbstractContextManager[Any], begin: Callable[[Any], object] = lambda arena: None,
) -> Runner:  # fmt: skip
    """Returns a Runner of a schedule that makes one call after the other, and looks at the reports after each part.

    Args:
      make_call:   (call, memory and place of each argument, values of symbolic integers): makes or submits it
      one_by_one:  held by a run: those of a plan share its temporaries, its reports, and arguments of kernels
      begin:       is given the memory of the temporaries before each run
    """

    def make(steps: Mapping[str, int]) -> Runner:
        listed = list_launches(schedule, executables, steps)
        arena, reports = device.allocate(listed.temporary_nbytes), device.allocate(REPORT_NBYTES * len(listed.checks))
        words = np.zeros((len(listed.checks), REPORT_WORDS), np.int64)

        def run(inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int], *_: object) -> None:
            groups = {"input": [x.memory for x in inputs], "output": [x.memory for x in outputs]}
            groups |= {"temporary": [arena], "report": [reports]}
            with one_by_one:
                begin(arena)
                words[:] = 0
                device.copy_in(reports, words)
                for calls in listed.parts:
                    for call in calls:
                        places = [argument.place for argument in call.arguments]
                        make_call(call, [(groups[at.group][at.number], at.offset) for at in places], variables)
                    device.copy_out(reports, words)
                    if words.any():
                        raise first_report(words.tolist(), listed.checks)

        return run

    return runner_by_steps(schedule, make)


class _Lister:
    """A list of launches under construction."""

    def __init__(self, scratch: list[list[Piece]], temporary_nbytes: int, variables: Mapping[str, int]):
        self.scratch, self.temporary_nbytes, self.variables = scratch, temporary_nbytes, variables
        self.calls: list[Call] = []
        self.commit = 0
        self.checks: dict[int, tuple[Any, ...]] = {}  # by kernel

    def add_items(self, schedule: Schedule, places: Sequence[Place], executables: Sequence[Executable], first: int) -> None:
        """Adds the items of a schedule whose buffers are at `places`; its kernels are numbered from `first`."""
        for number, item in enumerate(schedule.items):
            if number and number == schedule.commit:
                self.commit = len(self.calls)
            if isinstance(item, LoopItem):
                steps = dim_value(item.steps, self.variables)
                for r in range(steps):
                    own = _places_in_step(item, places, r, steps, self.variables)
                    self.add_items(item.body, own, executables, first)
                first += len(item.body.kernel_items())
            else:
                self.add_kernel(item, [places[i] for i in item.buffers], executables[first], first)
                first += 1

    def add_kernel(self, item: ScheduleItem, places: Sequence[Place], executable: Executable, number: int) -> None:
        """Adds the launches of one kernel, whose first parameters are the buffers at `places`."""
        all_places, scratch = list(places), iter(self.scratch[number])
        for param in executable.params[len(places) :]:
            if param.role == "report":
                self.checks.setdefault(number, item.checks)
                all_places.append(Place("report", 0, list(self.checks).index(number) * REPORT_NBYTES))
            else:
                all_places.append(Place("temporary", 0, next(scratch)[0]))
        arguments = tuple([Argument(at, p.dtype, p.numel) for at, p in zip(all_places, executable.params, strict=True)])
        for function, launch in zip(executable.functions, executable.launches, strict=True):
            self.calls.append(Call(function, launch, arguments, executable.variables))


def _outer_place(use: BufferUse) -> Place:
    """Returns the place of a buffer of a schedule outside of loops."""
    if use.role == "temporary":
        return Place("temporary", 0, use.source)
    return Place("output" if use.role == "lent" else use.role, use.source)


def _is_row(item: LoopItem, use: BufferUse) -> bool:
    """True for a buffer of a loop's body that is a row of one outside, in all steps or in some."""
    if use.role == "temporary":
        return False
    if use.role == "output":
        return item.results[use.source].is_row
    feed = item.feeds[use.source]
    return feed.is_row or feed.carried is not None and item.results[feed.carried].is_row


def _places_in_step(
    item: LoopItem, outer: Sequence[Place], r: int, steps: int, variables: Mapping[str, int]
) -> list[Place]:
    """Returns the places of the buffers of a loop's body in step r."""
    memory = 0 if item.memory is None else outer[item.memory].offset
    found: list[Place] = []
    for use in item.body.buffers:
        nbytes = dim_value(use.numel, variables) * use.dtype.itemsize if _is_row(item, use) else 0
        if use.role == "temporary":
            found.append(Place("temporary", 0, memory + use.source))
        elif use.role == "output":
            found.append(_stored(item.results[use.source], outer, memory, r, steps, nbytes))
        else:
            feed = item.feeds[use.source]
            if feed.carried is not None and r > 0:
                found.append(_stored(item.results[feed.carried], outer, memory, r - 1, steps, nbytes))
            else:
                row = (steps - 1 - r if feed.reversed else r) if feed.is_row else 0
                found.append(outer[feed.buffer].moved(row * nbytes))
    return found


def _stored(result: Result, outer: Sequence[Place], memory: int, r: int, steps: int, nbytes: int) -> Place:
    """Returns where step r of a loop stores an output of its body."""
    places = [] if result.buffer is None else [outer[result.buffer]]
    places += [Place("temporary", 0, memory + at) for at in (result.other, result.spare) if at is not None]
    if result.is_row:
        return places[0].moved(r * nbytes)
    return places[0] if (steps - 1 - r) % 2 == 0 else places[-1]
