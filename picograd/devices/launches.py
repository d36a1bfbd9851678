"""The launches of a schedule, as data for a GPU's runner: functions with their memory.

In:    Schedule, Executables
Out:   `LaunchList`: calls in order, and the size of the arena of temporaries; `runner_by_steps`, `runner_of_calls`
       `HostFunction`, `load_host`: Python functions as launches of a plan whose kernels run elsewhere
       `load_library`: the functions of a shared library
       `Temporaries`: the pieces of a plan's arena, and their positions for the lengths of a run
       `place_scratch`: for each kernel the pieces of the arena that are free while it runs
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    Elements,
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
from picograd.ir.symbolic import ceildiv, dim_value
from picograd.record import Record

# ---- temporaries ----
SPREAD_NBYTES_MAX = 1 << 26  # of an arena in which temporaries of short lengths are as far apart as the longest


class Temporaries:
    """The pieces of a plan's arena. A plan knows a piece by where it begins if all lengths are the greatest.

    scratch:    by `schedule.kernel_items()`, start and end of each "scratch" parameter
    starts:     of all pieces
    nbytes:     of the arena for the greatest lengths
    is_spread:  they begin there for other lengths, too
    """

    def __init__(self, schedule: Schedule, executables: Sequence[Executable], alignment: int):
        self.scratch, self.nbytes = place_scratch(schedule, executables, alignment)
        self._alignment = alignment
        lengths = {(start, each.numel, each.dtype.itemsize): each.nbytes for start, each in _pieces(schedule, 0)}
        for executable, places in zip(executables, self.scratch):
            own = [param for param in executable.params if param.role == "scratch"]
            lengths |= {(start, p.numel, p.dtype.itemsize): p.nbytes for p, (start, _) in zip(own, places, strict=True)}
        self.starts = sorted({start for start, _, _ in lengths})
        is_fixed = all(isinstance(numel, int) for _, numel, _ in lengths)
        self.is_spread = is_fixed or self.nbytes <= SPREAD_NBYTES_MAX
        self._spread = {start: start for start in self.starts}
        # Where pieces end and begin, in rising order; at the same place ends are first.
        ends = [(piece[0] + nbytes, 0, piece) for piece, nbytes in lengths.items() if nbytes]
        begins = [(start, 1, (start, 0, 0)) for start in self.starts]
        self._turns = [(is_start, piece) for _, is_start, piece in sorted([*ends, *begins], key=lambda turn: turn[:2])]

    def places(self, variables: Mapping[str, int]) -> tuple[Mapping[int, int], int]:
        """Returns by its start where each piece begins in a run, and the bytes of the arena.

        A piece begins where those end that end below it for the greatest lengths: what is apart stays so.

        Args:
          variables:  values of the symbolic integers
        """
        if self.is_spread:
            return self._spread, self.nbytes
        numels = {numel: dim_value(numel, variables) for numel in {numel for _, (_, numel, _) in self._turns}}
        found: dict[int, int] = {}
        top = 0
        for is_start, (start, numel, itemsize) in self._turns:
            if is_start:
                found[start] = top
            else:
                end = found[start] + ceildiv(numels[numel] * itemsize, self._alignment) * self._alignment
                top = max(top, end)
        return found, top


def _pieces(schedule: Schedule, base: int) -> Iterator[tuple[int, Elements]]:
    """Yields the start of each temporary of a schedule and of the bodies of its loops, and what it holds.

    A loop's own memory is not among them, but what is in it: temporaries of its body, and carries.
    """
    loops = [item for item in schedule.items if isinstance(item, LoopItem)]
    own = {item.memory for item in loops}
    for i, use in enumerate(schedule.buffers):
        if use.role == "temporary" and i not in own:
            yield base + use.source, use
    for item in loops:
        start = 0 if item.memory is None else base + schedule.buffers[item.memory].source
        yield from _pieces(item.body, start)
        carried = {use.source: use for use in item.body.buffers if use.role == "output"}
        for i, result in enumerate(item.results):
            for at in (result.other, result.spare):
                if at is not None:
                    yield start + at, carried[i]


# ---- scratch memory ----
# A kernel's scratch size is known only with its code, after temporaries have been placed. So scratch memory uses what they
# leave free: while a kernel runs, the places of all temporaries that are dead then, and memory after all of them.
Piece = tuple[int, int]  # start, end: bytes of the arena
Ends = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def place_scratch(schedule: Schedule, executables: Sequence[Executable], alignment: int) -> tuple[list[list[Piece]], int]:
    """Returns, by `schedule.kernel_items()`, the arena pieces of each "scratch" parameter; and the arena's size in bytes.

    Args:
      alignment:  every piece begins at a multiple of this, bytes
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
          held: pieces that stay live during all of it, as (start, end)
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
    """Returns (start, end) of each buffer of a schedule, and its first and last item; only temporaries are ever live."""
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
    """Returns the start of the temporaries of a loop's body, and the pieces that stay live around them.

    The loop's own memory begins with them; the rest of it, for carries, lives from step to step.
    """
    if item.memory is None:
        return 0, np.concatenate([held, places[lives]])
    start, end = places[item.memory]
    outside = lives.copy()
    outside[item.memory] = False
    carries = np.array([[start + item.body.arena_nbytes, end]])
    return int(start), np.concatenate([held, places[outside], carries])


def _scratch_lengths(executable: Executable, num_buffers: int) -> list[int]:
    """Returns the sizes in bytes of a kernel's "scratch" parameters."""
    own = executable.params[num_buffers:]
    return [param.nbytes for param in own if param.role == "scratch"]


def _lowest(around: Ends, lengths: Sequence[int], alignment: int) -> list[Piece]:
    """Returns a piece for each length: the longest is placed first, each at the lowest free position."""
    found: dict[int, Piece] = {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        ordered = around[np.argsort(around[:, 0], kind="stable")]
        gaps = np.maximum.accumulate(np.concatenate([[0], ordered[:, 1]]))  # start of the gap before each piece
        gaps = -(-gaps // alignment) * alignment
        fits = np.flatnonzero(gaps[:-1] + lengths[i] <= ordered[:, 0])
        start = int(gaps[fits[0] if len(fits) else -1])
        found[i] = start, start + lengths[i]
        around = np.concatenate([around, [found[i]]])
    return [found[i] for i in range(len(lengths))]


NO_TEMPORARIES = Temporaries(Schedule((), (), (), (), 0), [], 1)


# ---- shared libraries ----
def load_library(binary: Binary, device: str) -> ctypes.CDLL:
    """Loads the library of a kernel; the file is needed only during the call.

    Raises:
      DeviceError: the system rejects it.
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
    """Returns the address of each launch's function in a kernel's C library; the library stays loaded."""
    library = load_library(binary, "C")
    functions = {launch.symbol: library[f"{launch.symbol}_words"] for launch in binary.launches}
    return {symbol: ctypes.cast(function, ctypes.c_void_p).value or 0 for symbol, function in functions.items()}


def is_library(data: bytes) -> bool:
    """True for a shared library of this system's format; False for an object file."""
    is_elf, is_mach = data[:4] == b"\x7fELF", data[:4] == b"\xcf\xfa\xed\xfe"
    return (is_elf and data[16] == 3) or (is_mach and data[12] == 6) or data[:2] == b"MZ"


# ---- functions of the host ----
Array = np.ndarray[Any, Any]
Function = Callable[[Sequence[Array], Mapping[str, int]], None]


class HostFunction(Record):
    """A host function that a plan calls between kernels.

    params:  its parameters, by slot; the last one is the report
    run:     the function of (flat arrays of the other parameters, values of symbolic integers by name)
    """

    params: tuple[Param, ...]
    run: Function

    def __call__(self, arrays: Sequence[Array], variables: Mapping[str, int]) -> None:
        """Runs it on flat arrays by slot. Refusals go to the report, as for a CHECK; interrupts wait."""
        try:
            with held_back():
                self.run(arrays[:-1], variables)
        except Refused as refused:
            assert isinstance(refused.site, int), "a kernel knows its CHECKs by number"
            arrays[-1][:] = refused.site + 1, refused.value


def load_host(name: str, params: Sequence[Param], variables: Sequence[Op], work: int, run: Function) -> Executable:
    """Makes a launch of a function on arrays; a report is added to its parameters."""
    function = HostFunction((*params, Param(dtypes.int64, REPORT_WORDS, "report")), run)
    return Executable(name, function.params, tuple(variables), (Launch(f"{name}_0", 1, 1, work),), (function,), None)


def array_at(address: int, numel: int, dtype: DType) -> Array:
    """Returns memory of this process as a flat array, without a copy."""
    raw = (ctypes.c_uint8 * (numel * dtype.itemsize)).from_address(address)
    return np.ctypeslib.as_array(raw).view(dtype.numpy)


# ---- launches ----
REPORT_NBYTES = 8 * REPORT_WORDS
SCRATCH_ALIGNMENT = 256  # bytes: whole cache lines
REMEMBERED_STEPS_MAX = 8  # per plan: numbers of loop steps whose launches are cached
NONE: Mapping[str, int] = MappingProxyType({})
CallMaker = Callable[["Call", list[tuple[Any, int]], Mapping[str, int]], object]


class Place(Record):
    """A position in a plan's memory: bytes from the start of an input, an output, a temporary or the reports.

    group:   "input", "output", "temporary" or "report"
    number:  number of the input or output; start of the temporary in the arena of the greatest lengths; 0 for reports
    offset:  bytes
    """

    group: str
    number: int
    offset: int = 0

    def moved(self, nbytes: int) -> Place:
        """Returns the place `nbytes` further."""
        return Place(self.group, self.number, self.offset + nbytes)


class Argument(Record):
    """An argument of a kernel: a place in memory, with the dtype and number of its elements."""

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

    temporaries:  the arena's pieces, with the kernels' scratch memory
    checks:       by report, the kernel's numbers in the plan
    commit:       number of calls after which reports are read, before inputs are overwritten; 0: only at the end
    """

    calls: tuple[Call, ...]
    temporaries: Temporaries
    checks: tuple[tuple[Any, ...], ...]
    commit: int = 0

    @property
    def parts(self) -> tuple[tuple[Call, ...], ...]:
        """Returns the calls in parts; reports are read after each."""
        return (self.calls[: self.commit], self.calls[self.commit :]) if self.commit else (self.calls,)


def list_launches(schedule: Schedule, executables: Sequence[Executable], variables: Mapping[str, int]) -> LaunchList:
    """Lists the launches of a schedule, with loops step by step.

    Args:
      variables: values of the symbolic integers in `symbolic_lengths`
    """
    found = _Lister(Temporaries(schedule, executables, SCRATCH_ALIGNMENT), variables)
    found.add_items(schedule, [_outer_place(use) for use in schedule.buffers], executables, 0)
    return LaunchList(tuple(found.calls), found.temporaries, tuple(found.checks.values()), found.commit)


def symbolic_lengths(schedule: Schedule) -> list[Dim]:
    """Returns numbers of loop steps and row lengths of a schedule that are known only at a run."""
    found: dict[Dim, None] = {}
    for item in schedule.items:
        if isinstance(item, LoopItem):
            rows = [use.numel for use in item.body.buffers if _is_row(item, use)]
            found.update(dict.fromkeys(dim for dim in (item.steps, *rows) if not isinstance(dim, int)))
            found.update(dict.fromkeys(symbolic_lengths(item.body)))
    return list(found)


def runner_by_steps(schedule: Schedule, make: Callable[[Mapping[str, int]], Runner], holds_back: bool = True) -> Runner:
    """Returns a Runner of a schedule; for symbolic numbers of steps or row lengths, one Runner per set of values.

    Ctrl-C waits until the whole plan is submitted; otherwise some of the user's values would be new and some old.

    Args:
      make:        makes the Runner for values of the symbolic integers; only those of loops matter
      holds_back:  False for Runners that delay Ctrl-C themselves when `may_stop` is False

    Cost: a new number lists its launches; the last `REMEMBERED_STEPS_MAX` are cached.
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
            kept.put(numbers, runner)  # the least recently used one is dropped
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
    """Returns a Runner of a schedule that makes one call after the other, and reads the reports after each part.

    Args:
      make_call:   (call, memory and place of each argument, values of symbolic integers): runs or submits it
      one_by_one:  lock held by a run: runs of a plan share its temporaries, its reports, and kernels' arguments
      begin:       called with the memory of the temporaries before each run
    """

    def make(steps: Mapping[str, int]) -> Runner:
        listed = list_launches(schedule, executables, steps)
        reports = device.allocate(REPORT_NBYTES * len(listed.checks))
        arenas: dict[int, Any] = {}  # of the last run, by its length
        words = np.zeros((len(listed.checks), REPORT_WORDS), np.int64)

        def run(inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int], *_: object) -> None:
            with one_by_one:
                starts, nbytes = listed.temporaries.places(variables)
                if nbytes not in arenas:
                    arenas.clear()
                    arenas[nbytes] = device.allocate(nbytes)
                arena = arenas[nbytes]
                first: dict[tuple[str, int], tuple[Any, int]] = {("report", 0): (reports, 0)}
                first |= {("input", i): (x.memory, 0) for i, x in enumerate(inputs)}
                first |= {("output", i): (x.memory, 0) for i, x in enumerate(outputs)}
                first |= {("temporary", start): (arena, place) for start, place in starts.items()}
                begin(arena)
                words[:] = 0
                device.copy_in(reports, words)
                for calls in listed.parts:
                    for call in calls:
                        places = [argument.place for argument in call.arguments]
                        found = [(first[at.group, at.number], at.offset) for at in places]
                        make_call(call, [(memory, start + offset) for (memory, start), offset in found], variables)
                    device.copy_out(reports, words)
                    if words.any():
                        raise first_report(words.tolist(), listed.checks)

        return run

    return runner_by_steps(schedule, make)


class _Lister:
    """A list of launches under construction."""

    def __init__(self, temporaries: Temporaries, variables: Mapping[str, int]):
        self.temporaries, self.variables = temporaries, variables
        self.calls: list[Call] = []
        self.commit = 0
        self.checks: dict[int, tuple[Any, ...]] = {}  # by kernel

    def add_items(self, schedule: Schedule, places: Sequence[Place], executables: Sequence[Executable], first: int) -> None:
        """Adds the items of a schedule with buffers at `places`; kernels are numbered from `first`."""
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
        """Adds the launches of a kernel whose first parameters are the buffers at `places`."""
        all_places, scratch = list(places), iter(self.temporaries.scratch[number])
        for param in executable.params[len(places) :]:
            if param.role == "report":
                self.checks.setdefault(number, item.checks)
                all_places.append(Place("report", 0, list(self.checks).index(number) * REPORT_NBYTES))
            else:
                all_places.append(Place("temporary", next(scratch)[0]))
        arguments = tuple([Argument(at, p.dtype, p.numel) for at, p in zip(all_places, executable.params, strict=True)])
        for function, launch in zip(executable.functions, executable.launches, strict=True):
            self.calls.append(Call(function, launch, arguments, executable.variables))


def _outer_place(use: BufferUse) -> Place:
    """Returns the place of a schedule's buffer outside loops."""
    if use.role == "temporary":
        return Place("temporary", use.source)
    return Place("output" if use.role == "lent" else use.role, use.source)


def _is_row(item: LoopItem, use: BufferUse) -> bool:
    """True if a buffer of a loop's body is a row of an outer buffer, in some or all steps."""
    if use.role == "temporary":
        return False
    if use.role == "output":
        return item.results[use.source].is_row
    feed = item.feeds[use.source]
    return feed.is_row or feed.carried is not None and item.results[feed.carried].is_row


def _places_in_step(
    item: LoopItem, outer: Sequence[Place], r: int, steps: int, variables: Mapping[str, int]
) -> list[Place]:
    """Returns the places of the body's buffers in step r."""
    memory = 0 if item.memory is None else outer[item.memory].number
    found: list[Place] = []
    for use in item.body.buffers:
        nbytes = dim_value(use.numel, variables) * use.dtype.itemsize if _is_row(item, use) else 0
        if use.role == "temporary":
            found.append(Place("temporary", memory + use.source))
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
    """Returns the place at which step r of a loop stores an output of its body."""
    places = [] if result.buffer is None else [outer[result.buffer]]
    places += [Place("temporary", memory + at) for at in (result.other, result.spare) if at is not None]
    if result.is_row:
        return places[0].moved(r * nbytes)
    return places[0] if (steps - 1 - r) % 2 == 0 else places[-1]
