"""The flat form of a schedule: arguments and entries as arrays of words, and which entry waits for which.

In:    Schedule, Executables, the number of threads
Out:   `Layout`: arrays that the walker reads, and where a run has to write addresses and values into them
Called by: picograd/runtime/cpu_runner.py.    Next: picograd/runtime/cpu_runner.py
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd.errors import VerifyError
from picograd.ir.op import Dim, Op, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Executable, Launch, Schedule, ScheduleItem
from picograd.ir.symbolic import bounds
from picograd.runtime.cpu_walker import AFTER, ARGUMENTS, CHUNK, COUNT, ENTRY_WORDS, FUNCTION

Words = np.ndarray[Any, np.dtype[np.int64]]
SHARE_WORK = 1 << 17  # elements of a launch below which a second thread costs more than it brings
HELP_WORK = 1 << 19  # elements of all shared launches of a plan, some 20 us: a thread needs half of that to come
STOP_WORK = 1 << 28  # elements of a chunk: some 50 ms
CHUNKS_PER_THREAD = 4
ALIGNMENT = 64  # bytes, of places in the arena
LOOK_BACK = 32  # kernels; an older one counts as read or written by everything


# A piece of memory. Its space is "outer" (inputs and outputs), "arena" or "scratch"; its start and end are bytes of the
# arena or of scratch, for "outer" the buffer's number, counted from 0.
Piece = tuple[str, int, int]


@dataclass
class Uses:
    """What a kernel does with memory. Pieces that it reads do not overlap, nor do those that it writes."""

    reads: list[Piece]
    writes: list[Piece]


@dataclass
class Layout:
    """A schedule as words.

    words:         argument blocks, one after the other: words[i] = table[of[i]]
    of:            for each word, which value of the table it is
    table:         addresses of inputs, then of outputs, then of places in the arena, then values of symbolic integers,
                   then addresses of reports
    num_outer:     inputs and outputs
    offsets:       bytes from the start of the arena, for each place in it
    variables:     names, by their order in the table
    checks:        by report, what its kernel's numbers are in the plan
    entries:       (number of launches, ENTRY_WORDS)
    arena_nbytes:  of the schedule's temporaries, and behind them of the kernels' "scratch" parameters
    work:          elements of one iteration, for each entry
    symbolic:      (entry, launch) of each launch whose grid depends on variables
    total_work:    elements of all launches, at their greatest
    """

    words: Words
    of: Words
    table: Words
    num_outer: int
    offsets: Words
    variables: tuple[str, ...]
    checks: tuple[tuple[Any, ...], ...]
    entries: Words
    arena_nbytes: int
    work: Words
    symbolic: list[tuple[int, Launch]]
    total_work: int


# "input" or "output" and its index, "arena" and a byte offset, "variable" and its name, "report" and its number
Place = tuple[str, Any]


class _Builder:
    """A layout under construction."""

    def __init__(self, schedule: Schedule, num_threads: int):
        self.schedule, self.num_threads = schedule, num_threads
        self.places: list[Place] = []  # what each word of the arguments is
        self.rows: list[list[int]] = []
        self.work: list[int] = []
        self.checks: list[tuple[Any, ...]] = []
        self.symbolic: list[tuple[int, Launch]] = []
        self.history: list[tuple[Uses, int]] = []  # what each kernel used, and the number of entries after it
        self.scratch_start = _up(schedule.arena_nbytes)
        self.arena_nbytes, self.total_work = schedule.arena_nbytes, 0

    def add(self, item: ScheduleItem, executable: Executable) -> None:
        """Adds one kernel: its arguments, and an entry for each launch."""
        block, scratch = len(self.places), self.scratch_start
        for slot, param in enumerate(executable.params):
            if slot < len(item.buffers):
                use = self.schedule.buffers[item.buffers[slot]]
                self.places.append(("arena" if use.role == "temporary" else use.role, use.source))
            elif param.role == "report":
                self.places.append(("report", len(self.checks)))
                self.checks.append(item.checks)
            else:
                self.places.append(("arena", scratch))
                scratch += _up(greatest(param.numel) * param.dtype.itemsize)
                self.arena_nbytes = max(self.arena_nbytes, scratch)
        self.places += [("variable", variable.arg[0]) for variable in executable.variables]
        uses = _uses(self.schedule, item.buffers, executable, scratch - self.scratch_start)
        after = _last_conflict(self.history, uses)
        for launch, function in zip(executable.launches, executable.functions):
            self.add_entry(launch, function, 8 * block, after)
            after = len(self.rows)
        self.history.append((uses, len(self.rows)))

    def add_entry(self, launch: Launch, function: int, arguments: int, after: int) -> None:
        count = launch.grid if isinstance(launch.grid, int) else 0
        if not isinstance(launch.grid, int):
            self.symbolic.append((len(self.rows), launch))
        self.total_work += bounds(launch.grid)[1] * launch.work
        row = [0] * ENTRY_WORDS
        row[FUNCTION], row[ARGUMENTS], row[COUNT], row[AFTER] = function, arguments, count, after
        row[CHUNK] = chunk_of(count, launch.work, self.num_threads)
        self.rows.append(row)
        self.work.append(launch.work)


def lay_out(schedule: Schedule, executables: Sequence[Executable], num_threads: int) -> Layout:
    """Returns the flat form of a schedule; arguments are offsets in `words` as yet."""
    build = _Builder(schedule, num_threads)
    for item, executable in zip(schedule.items, executables):
        build.add(item, executable)
    entries = aligned_words(len(build.rows) * ENTRY_WORDS).reshape(len(build.rows), ENTRY_WORDS)
    entries[:] = np.array(build.rows, np.int64).reshape(len(build.rows), ENTRY_WORDS)
    outer: list[Place] = []
    for role, least in (("input", len(schedule.inputs)), ("output", 0)):
        sources = [use.source + 1 for use in schedule.buffers if use.role == role]
        outer += [(role, i) for i in range(max([least, *sources]))]
    arena, variables, reports = (
        list(dict.fromkeys(place for place in build.places if place[0] == kind))
        for kind in ("arena", "variable", "report")
    )
    number = {place: i for i, place in enumerate([*outer, *arena, *variables, *reports])}
    return Layout(
        aligned_words(len(build.places)), _words(number[place] for place in build.places), aligned_words(len(number)),
        len(outer), _words(offset for _, offset in arena), tuple(name for _, name in variables),
        tuple(build.checks), entries, build.arena_nbytes, _words(build.work), build.symbolic, build.total_work,
    )  # fmt: skip


def aligned_words(count: int) -> Words:
    """Returns zeroed words that start on a cache line."""
    words = np.zeros(count + 8, np.int64)
    first = -words.ctypes.data % 64 // 8
    return words[first : first + count]


def chunk_of(count: int, work: int, num_threads: int) -> int:
    """Returns how many iterations a thread takes at a time: all of them where sharing does not pay.

    A chunk is never so long that Ctrl-C would have to wait for it.
    """
    patience = max(1, STOP_WORK // work)
    if num_threads == 1 or count < 2 or count * work < SHARE_WORK:
        return max(1, min(count, patience))
    return min(patience, -(-count // (CHUNKS_PER_THREAD * num_threads)) if count >= num_threads else 1)


def evaluate_dim(dim: Dim, variables: Mapping[str, int]) -> int:
    """Returns the value of an expression of variables."""
    if isinstance(dim, int):
        return dim
    values: dict[Op, int] = {}
    for op in toposort([dim]):
        if op.code is OpCode.CONST:
            values[op] = int(op.arg)
        elif op.code is OpCode.VARIABLE:
            values[op] = variables[op.arg[0]]
        elif op.code is OpCode.BIND:
            values[op] = values[op.src[0]]
        elif op.code in _ARITHMETIC:
            values[op] = _ARITHMETIC[op.code](*[values[s] for s in op.src])
        else:
            raise VerifyError(f"plan: {op} stands in the extent of a grid.")
    return values[dim]


_ARITHMETIC: dict[OpCode, Callable[[int, int], int]] = {
    OpCode.ADD: lambda a, b: a + b,
    OpCode.SUB: lambda a, b: a - b,
    OpCode.MUL: lambda a, b: a * b,
    OpCode.IDIV: lambda a, b: a // b,
    OpCode.MOD: lambda a, b: a % b,
    OpCode.MIN: min,
    OpCode.MAX: max,
}


# ---- which kernel must wait for which ----
def _uses(schedule: Schedule, buffers: Sequence[int], executable: Executable, scratch_nbytes: int) -> Uses:
    uses = Uses([], [("scratch", 0, scratch_nbytes)] if scratch_nbytes else [])
    for index, param in zip(buffers, executable.params):
        use, writes = schedule.buffers[index], param.role != "in"
        if use.role == "temporary":
            piece = "arena", use.source, use.source + greatest(use.numel) * use.dtype.itemsize
        else:
            # NOTE: an output may be stored where an input is, so writing one waits for every reader of the inputs.
            piece = "outer", 0 if writes else index, len(schedule.buffers) if writes else index + 1
        if piece[1] < piece[2]:
            (uses.writes if writes else uses.reads).append(piece)
    uses.reads.sort()
    uses.writes.sort()
    return uses


def _last_conflict(history: list[tuple[Uses, int]], uses: Uses) -> int:
    """Returns how many entries must be done before a kernel with these uses may begin."""
    for before, entries in reversed(history[-LOOK_BACK:]):
        if _meet(before.writes, uses.writes) or _meet(before.writes, uses.reads) or _meet(before.reads, uses.writes):
            return entries
    return history[-LOOK_BACK - 1][1] if len(history) > LOOK_BACK else 0


def _meet(some: list[Piece], others: list[Piece]) -> bool:
    """True when one of `some` overlaps one of `others`; both are sorted."""
    few, many = sorted((some, others), key=len)
    for space, start, end in few:
        place = bisect_left(many, (space, end)) - 1  # the last one that begins before this one ends
        if place >= 0 and many[place][0] == space and many[place][2] > start:
            return True
    return False


def _words(values: Iterable[int]) -> Words:
    return np.array(list(values), np.int64)


def _up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
