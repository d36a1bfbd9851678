"""The flat form of a schedule: arguments and entries as arrays of words, and the order in which entries wait.

In:    Schedule, Executables, the number of threads
Out:   `Layout`: arrays that the walker reads, and the places in them where a run writes addresses and values

An entry waits for the last earlier one with which it conflicts: one writes memory that the other reads or writes.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.devices.cpu.walker import (
    AFTER,
    ARGUMENTS,
    BODY,
    CARRIED,
    CHUNK,
    COUNT,
    ENTRY_WORDS,
    FUNCTION,
    PATCH_WORDS,
    PLACES,
    REVERSED,
    ROW,
    STATE_WORDS,
    TURNS,
)
from picograd.devices.launches import NO_TEMPORARIES, Temporaries
from picograd.ir.backend import ALIGNMENT
from picograd.ir.op import Dim, greatest
from picograd.ir.stages import REPORT_WORDS, BufferUse, Executable, Feed, Launch, LoopItem, Result, Schedule, ScheduleItem
from picograd.record import Record

# ---- conflicts ----
LOOK_BACK = 32  # kernels; older ones count as conflicting with everything

Piece = tuple[str, int, int]  # space, start, end


class Use(Record):
    """A piece of memory that a kernel or a loop reads or writes.

    space:      "outer" (inputs and outputs), "arena" or "step" (memory that differs between steps of a loop)
    start, end: bytes of the arena; for "outer" and "step" a number, counted from 0
    writes:     False: it only reads
    """

    space: str
    start: int
    end: int
    writes: bool


class Touched(Record):
    """The pieces read and the pieces written, each in rising order and without overlaps."""

    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]


History = list[tuple[Touched, int]]  # the memory that each item used, and the number of entries up to its end


def touched(uses: Iterable[Use]) -> Touched:
    """Returns the uses of one item in the form that `last_conflict` compares."""
    reads: list[Piece] = []
    writes: list[Piece] = []
    for use in uses:
        (writes if use.writes else reads).append((use.space, use.start, use.end))
    return Touched(joined(reads), joined(writes))


def joined(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Returns pieces in rising order, overlapping ones joined and empty ones left out."""
    result: list[Piece] = []
    for space, start, end in sorted([piece for piece in pieces if piece[1] < piece[2]]):
        if result and result[-1][0] == space and start < result[-1][2]:
            result[-1] = space, result[-1][1], max(end, result[-1][2])
        else:
            result.append((space, start, end))
    return tuple(result)


def last_conflict(history: History, now: Touched) -> int:
    """Returns the number of entries that must be done before an item that uses `now` may begin."""
    for before, entries in reversed(history[-LOOK_BACK:]):
        if meet(before.writes, now.writes) or meet(before.writes, now.reads) or meet(before.reads, now.writes):
            return entries
    return history[-LOOK_BACK - 1][1] if len(history) > LOOK_BACK else 0


def meet(some: tuple[Piece, ...], others: tuple[Piece, ...]) -> bool:
    """True if a piece of `some` overlaps one of `others`; both are results of `joined`."""
    few, many = (some, others) if len(some) < len(others) else (others, some)
    for space, start, end in few:
        last = bisect_left(many, (space, end)) - 1  # the last piece that begins before this one ends
        if last >= 0 and many[last][0] == space and many[last][2] > start:
            return True
    return False


# ---- the layout ----
Words = np.ndarray[Any, np.dtype[np.int64]]
# In the unit of `Launch.work`; a core (AVX-512, 2.5 GHz) does 2^32 of it a second if memory sets the pace, six times
# as much if it computes functions such as exp, and 25 times as much in products.
SHARE_WORK = 1 << 17  # of a launch; with less, a second thread costs more than it saves (measured by bench/plans.py)
HELP_WORK = 1 << 19  # of shared launches for each thread that a plan wakes; it comes when half of it is done
STOP_WORK = 1 << 28  # of a chunk; between two chunks the walker checks whether to stop
WORK_MAX = 1 << 62
CHUNKS_PER_THREAD = 4
BUFFERS_MAX = 1 << 62
LINE_WORDS = 8


class Symbolic(Record):
    """A word of the plan that depends on variables: the count of a launch, the steps of a loop, or a patch's stride.

    row:   its row in `entries`, or in `patches`
    dim:   its value; a stride is `scale` times that
    work:  work of one iteration of a launch; 0 for a loop
    """

    row: int
    dim: Dim
    work: int = 0
    scale: int = 1


class Layout(Record):
    """A schedule as words, all in one array whose parts begin on cache lines.

    state:         the walker's state
    entries:       (number of entries, ENTRY_WORDS)
    patches:       (number of patches, PATCH_WORDS)
    table:         addresses of inputs, then of outputs, then of places in the arena, then values of symbolic integers,
                   then addresses of reports, then places that the patches of loops set
    places:        for each argument of each kernel its place in the table
    offsets:       bytes from the start of the arena, for each place in it
    starts:        the same, if all lengths are the greatest
    reports:       words for the reports of kernels with CHECKs
    work:          for each entry the work of one iteration, times the steps of the loops around it
    num_outer:     number of inputs and outputs
    variables:     names of symbolic integers, in the order of the table
    checks:        for each report the numbers, in the plan, of its kernel's CHECKs
    temporaries:   the schedule's temporaries and the kernels' "scratch" parameters
    scratch_nbytes: bytes of the arena that temporaries do not need
    symbolic:      entries that depend on variables
    strides:       patches that depend on variables
    has_gate:      the table ends with the gate's arguments: address and number of words of reports, address of `stop`
    """

    state: Words
    entries: Words
    patches: Words
    table: Words
    places: Words
    offsets: Words
    starts: tuple[int, ...]
    reports: Words
    work: Words
    num_outer: int
    variables: tuple[str, ...]
    checks: tuple[tuple[Any, ...], ...]
    temporaries: Temporaries
    scratch_nbytes: int
    symbolic: tuple[Symbolic, ...]
    strides: tuple[Symbolic, ...]
    has_gate: bool


# "input" or "output" and its index, "arena" and a start of a piece, "variable" and its name, "report" and its number,
# "step" and the number of a place that a loop sets, "gate" and the name of the gate's argument
Place = tuple[str, Any]
GATE_PLACES: tuple[Place, ...] = (("gate", "reports"), ("gate", "words"), ("gate", "stop"))


class Patch(Record):
    """A place of the table that is set at each step of a loop; see walker.py.

    use:  the buffer of the body to which the place belongs; a row has its length
    """

    kind: int
    place: Place
    base: Place
    other: Place
    use: BufferUse


class _Builder:
    """A layout under construction."""

    def __init__(self, schedule: Schedule, executables: Sequence[Executable], gate: int, num_threads: int):
        self.executables, self.num_threads = iter(executables), num_threads
        self.gate, self.has_gate = gate, False
        self.places: list[Place] = []  # of the arguments of all kernels
        self.patches: list[Patch] = []
        self.rows: list[list[int]] = []
        self.work: list[int] = []
        self.checks: list[tuple[Any, ...]] = []
        self.symbolic: list[Symbolic] = []
        self.num_steps = itertools.count()  # numbers of the places that loops set
        self.scratch: list[list[tuple[int, int]]] = [[] for _ in executables]  # start and end of each kernel's own memory
        self.temporaries = NO_TEMPORARIES
        if schedule.arena_nbytes or "scratch" in {param.role for executable in executables for param in executable.params}:
            self.temporaries = Temporaries(schedule, executables, ALIGNMENT)
            self.scratch = self.temporaries.scratch
        self.num_kernels = 0
        spaces = {"temporary": "arena", "lent": "output"}
        outer: list[Place] = [(spaces.get(use.role, use.role), use.source) for use in schedule.buffers]
        self.add_items(schedule, outer, [], 1)

    def add_items(self, schedule: Schedule, home: Sequence[Place], history: History, repeats: int) -> None:
        """Adds the items of a schedule whose buffers are at the places `home`, in steps of loops `repeats` times."""
        for number, item in enumerate(schedule.items):
            if number and number == schedule.commit:
                self.add_gate(history)
            if not isinstance(item, LoopItem):
                self.add_kernel(schedule, item, home, history, repeats)
            elif item.steps == 1:
                self.add_items(item.body, self.body_home(item, home), history, repeats)
            else:
                self.add_loop(schedule, item, home, history, repeats)

    # ---- kernels ----
    def add_kernel(
        self, schedule: Schedule, item: ScheduleItem, home: Sequence[Place], history: History, repeats: int
    ) -> None:
        """Adds one kernel: the places of its arguments, and an entry for each launch."""
        executable = next(self.executables)
        first, scratch = len(self.places), iter(self.scratch[self.num_kernels])
        self.num_kernels += 1
        uses: list[Use] = []
        for slot, param in enumerate(executable.params):
            if slot < len(item.buffers):
                place, use = home[item.buffers[slot]], schedule.buffers[item.buffers[slot]]
                self.places.append(place)
                uses.append(_use(place, use.nbytes, param.role != "in"))
            elif param.role == "report":
                self.places.append(("report", len(self.checks)))
                self.checks.append(item.checks)
            else:
                start, end = next(scratch)
                self.places.append(("arena", start))
                uses.append(Use("arena", start, end, True))
        self.places += [("variable", variable.arg[0]) for variable in executable.variables]
        now = touched(uses)
        after = last_conflict(history, now)
        for launch, function in zip(executable.launches, executable.functions):
            self.add_entry(launch, function, first, after, repeats)
            after = len(self.rows)
        history.append((now, len(self.rows)))

    def add_entry(self, launch: Launch, function: int, first: int, after: int, repeats: int) -> None:
        """Adds one launch of a kernel: a row of words that the walker reads."""
        count = launch.grid if isinstance(launch.grid, int) else 0
        if not isinstance(launch.grid, int):
            self.symbolic.append(Symbolic(len(self.rows), launch.grid, launch.work))
        row = [0] * ENTRY_WORDS
        row[FUNCTION], row[COUNT], row[AFTER] = function, count, after
        row[PLACES], row[ARGUMENTS] = 8 * first, len(self.places) - first
        row[CHUNK] = chunk_of(count, launch.work, self.num_threads)
        self.rows.append(row)
        self.work.append(launch.work * repeats)

    def add_gate(self, history: History) -> None:
        """Adds an entry that stops the run if a CHECK has failed, before other entries overwrite inputs."""
        self.has_gate = True
        row = [0] * ENTRY_WORDS
        row[FUNCTION], row[COUNT], row[CHUNK], row[AFTER] = self.gate, 1, 1, len(self.rows)
        row[PLACES], row[ARGUMENTS] = 8 * len(self.places), len(GATE_PLACES)
        self.places += GATE_PLACES
        self.rows.append(row)
        self.work.append(1)
        history.append((touched([Use("outer", 0, BUFFERS_MAX, True)]), len(self.rows)))

    # ---- loops ----
    def add_loop(self, schedule: Schedule, item: LoopItem, home: Sequence[Place], history: History, repeats: int) -> None:
        """Adds a loop: an entry of its own, its patches, and the entries of its body."""
        entry, first = len(self.rows), len(self.patches)
        row = [0] * ENTRY_WORDS
        row[COUNT], row[PLACES] = item.steps if isinstance(item.steps, int) else 0, 8 * PATCH_WORDS * first
        scratch = self.scratch[self.num_kernels : self.num_kernels + len(item.body.kernel_items())]
        now = touched(_loop_uses(schedule, item, home) + [Use("arena", *piece, True) for own in scratch for piece in own])
        row[AFTER] = last_conflict(history, now)
        if not isinstance(item.steps, int):
            self.symbolic.append(Symbolic(entry, item.steps))
        self.rows.append(row)
        self.work.append(0)
        body_home = self.body_home(item, home)
        row[ARGUMENTS] = len(self.patches) - first
        self.add_items(item.body, body_home, [(touched([]), entry + 1)], repeats * greatest(item.steps))
        row[BODY] = len(self.rows) - entry - 1
        history.append((now, len(self.rows)))

    def body_home(self, item: LoopItem, home: Sequence[Place]) -> list[Place]:
        """Returns the place of each buffer of a loop's body; those that differ from step to step get patches."""
        memory = 0 if item.memory is None else home[item.memory][1]
        uses = {(use.role, use.source): use for use in item.body.buffers}
        place: dict[tuple[str, int], Place] = {}
        results: list[Patch] = []
        for i, result in enumerate(item.results):
            key = ("output", i)
            place[key] = self.place_of(_result_patch(result, home, memory), uses[key], item, results)
        for i, feed in enumerate(item.feeds):
            key = ("input", i)
            place[key] = self.place_of(_feed_patch(feed, home, place), uses[key], item, self.patches)
        self.patches += results  # NOTE: after those of carries, which are read where the step before stored them
        temporary = [("arena", memory + use.source) if use.role == "temporary" else None for use in item.body.buffers]
        return [at or place[use.role, use.source] for at, use in zip(temporary, item.body.buffers)]

    def place_of(
        self, found: tuple[int | None, Place, Place], use: BufferUse, item: LoopItem, patches: list[Patch]
    ) -> Place:
        """Returns the place of an input or output of a body; a new patch sets it if it differs from step to step."""
        kind, base, other = found
        if kind is None or item.steps == 1:
            return base
        patches.append(Patch(kind, ("step", next(self.num_steps)), base, other, use))
        return patches[-1].place


def _result_patch(result: Result, home: Sequence[Place], memory: int) -> tuple[int | None, Place, Place]:
    """Returns the patch that finds an output of a body at each step: its kind, base and other; None as kind: no patch."""
    places = [] if result.buffer is None else [home[result.buffer]]
    places += [("arena", memory + at) for at in (result.other, result.spare) if at is not None]
    return (ROW if result.is_row else TURNS), places[0], places[-1]


def _feed_patch(
    feed: Feed, home: Sequence[Place], results: Mapping[tuple[str, int], Place]
) -> tuple[int | None, Place, Place]:
    """Returns the patch that finds an input of a body at each step."""
    source = home[feed.buffer]
    if feed.carried is not None:
        return CARRIED, source, results["output", feed.carried]
    return (REVERSED if feed.reversed else ROW) if feed.is_row else None, source, source


def lay_out(schedule: Schedule, executables: Sequence[Executable], gate: int, num_threads: int) -> Layout:
    """Returns the flat form of a schedule; its entries still have offsets in `places` and `patches` for addresses.

    Args:
      gate: address of the walker's `gate`
    """
    build = _Builder(schedule, executables, gate, num_threads)
    outer: list[Place] = []
    for role, least in (("input", len(schedule.inputs)), ("output", 0)):
        sources = [use.source + 1 for use in schedule.buffers if use.role == role]
        outer += [(role, i) for i in range(max([least, *sources]))]
    named: dict[str, dict[Place, None]] = {"arena": {}, "variable": {}, "report": {}, "step": {}}
    for place in [*build.places, *[place for p in build.patches for place in (p.place, p.base, p.other)]]:
        if place[0] in named:
            named[place[0]][place] = None
    arena, variables = named["arena"], named["variable"]
    gates = GATE_PLACES if build.has_gate else ()
    number = {place: i for i, place in enumerate([*outer, *itertools.chain(*named.values()), *gates])}
    strides = [(row, p.use.numel, p.use.dtype.itemsize) for row, p in enumerate(build.patches)]
    state, entries, patches, *rest = adjacent(
        [(STATE_WORDS,), (len(build.rows), ENTRY_WORDS), (len(strides), PATCH_WORDS), (len(number),), (len(build.places),),
         (len(arena),), (len(build.checks), REPORT_WORDS), (len(build.rows),)]
    )  # fmt: skip
    table, places, offsets, reports, work = rest
    entries[:] = np.array(build.rows, np.int64).reshape(entries.shape)
    for (row, numel, itemsize), p in zip(strides, build.patches):
        patches[row] = p.kind, *(number[at] for at in (p.place, p.base, p.other)), greatest(numel) * itemsize
    places[:] = [number[place] for place in build.places]
    starts = tuple([start for _, start in arena])
    offsets[:] = starts
    work[:] = [min(each, WORK_MAX) for each in build.work]  # more than that takes forever on any machine
    return Layout(
        state, entries, patches, table, places, offsets, starts, reports, work, len(outer),
        tuple([name for _, name in variables]), tuple(build.checks), build.temporaries,
        build.temporaries.nbytes - schedule.arena_nbytes, tuple(build.symbolic),
        tuple([Symbolic(row, numel, scale=itemsize) for row, numel, itemsize in strides if not isinstance(numel, int)]),
        build.has_gate,
    )  # fmt: skip


def adjacent(shapes: Sequence[tuple[int, ...]]) -> list[Words]:
    """Returns arrays of words in one piece of memory, each beginning on a cache line."""
    lengths = [math.prod(shape) for shape in shapes]
    starts = [0, *itertools.accumulate([-(-length // LINE_WORDS) * LINE_WORDS for length in lengths])]
    words = aligned_words(starts[-1])
    return [words[at : at + length].reshape(shape) for at, length, shape in zip(starts, lengths, shapes)]


def aligned_words(count: int) -> Words:
    """Returns zeroed words that start on a cache line."""
    words = np.zeros(count + 8, np.int64)
    first = -words.ctypes.data % 64 // 8
    return words[first : first + count]


def chunk_of(count: int, work: int, num_threads: int) -> int:
    """Returns the number of iterations that a thread takes at a time: all of them if sharing does not pay.

    A chunk is never so long that Ctrl-C would have to wait for it.
    """
    patience = max(1, STOP_WORK // work)
    if num_threads == 1 or count < 2 or count * work < SHARE_WORK:
        return max(1, min(count, patience))
    return min(patience, -(-count // (CHUNKS_PER_THREAD * num_threads)) if count >= num_threads else 1)


# ---- memory that is used ----
def _use(place: Place, nbytes: int, writes: bool) -> Use:
    space, at = place
    if space == "arena":
        return Use("arena", at, at + nbytes, writes)
    if space == "step":
        return Use("step", at, at + 1, writes)
    # NOTE: an output may have the memory of an input, so writing it waits for all readers of inputs.
    number = 2 * at + (space == "output")
    return Use("outer", 0 if writes else number, BUFFERS_MAX if writes else number + 1, writes)


def _loop_uses(schedule: Schedule, item: LoopItem, home: Sequence[Place]) -> list[Use]:
    """Returns the uses of outer memory by all steps of a loop, without the scratch memory of its kernels."""
    written = {result.buffer for result in item.results} | {item.memory}
    uses: list[Use] = []
    for index in item.buffers:
        use = schedule.buffers[index]
        uses.append(_use(home[index], use.nbytes, index in written))
    return uses
