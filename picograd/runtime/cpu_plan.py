"""The flat form of a schedule: arguments and entries as arrays of words, and which entry waits for which.

In:    Schedule, Executables, the number of threads
Out:   `Layout`: arrays that the walker reads, and where a run has to write addresses and values into them
Called by: picograd/runtime/cpu_runner.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd.errors import VerifyError
from picograd.ir.op import Dim, Op, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import REPORT_WORDS, Executable, Launch, Schedule, ScheduleItem
from picograd.ir.symbolic import bounds
from picograd.runtime.cpu_walker import AFTER, ARGUMENTS, CHUNK, COUNT, ENTRY_WORDS, FUNCTION

Words = np.ndarray[Any, np.dtype[np.int64]]
SHARE_WORK = 1 << 17  # elements of a launch below which a second thread costs more than it brings
STOP_WORK = 1 << 28  # elements of a chunk: some 50 ms
CHUNKS_PER_THREAD = 4
LOOK_BACK = 32  # kernels; an older one counts as read or written by everything


@dataclass(frozen=True)
class Use:
    """What a kernel does with one piece of memory.

    space:      "outer" (inputs and outputs), "arena" or "scratch"
    start, end: bytes of the arena or of scratch; for "outer" the buffer's number, counted from 0
    writes:     False: it only reads
    """

    space: str
    start: int
    end: int
    writes: bool


@dataclass(frozen=True)
class Patch:
    """Words that hold addresses: words[at] = table[of], or base + of where there is one block of memory."""

    at: Words
    of: Words


@dataclass
class Layout:
    """A schedule as words.

    words:           argument blocks, one after the other
    entries:         (number of launches, ENTRY_WORDS)
    inputs, outputs: where their addresses stand, by index
    arena, scratch:  where addresses of temporaries stand, by byte offset
    scratch_nbytes:  of memory for the "scratch" parameters of all kernels
    reports:         where addresses of reports stand, by byte offset
    checks:          by report, what its kernel's numbers are in the plan
    variables:       (position in words, name) of each symbolic integer
    symbolic:        (entry, launch) of each launch whose grid depends on variables
    total_work:      elements of all launches, at their greatest
    """

    words: Words
    entries: Words
    inputs: Patch
    outputs: Patch
    arena: Patch
    scratch: Patch
    scratch_nbytes: int
    reports: Patch
    checks: tuple[tuple[Any, ...], ...]
    variables: list[tuple[int, str]]
    symbolic: list[tuple[int, Launch]]
    total_work: int


class _Builder:
    """A layout under construction."""

    def __init__(self, schedule: Schedule, num_threads: int):
        self.schedule, self.num_threads = schedule, num_threads
        groups = ("input", "output", "temporary", "scratch", "report")
        self.places: dict[str, list[tuple[int, int]]] = {group: [] for group in groups}
        self.variables: list[tuple[int, str]] = []
        self.rows: list[list[int]] = []
        self.symbolic: list[tuple[int, Launch]] = []
        self.checks: list[tuple[Any, ...]] = []
        self.history: list[tuple[list[Use], int]] = []  # what each kernel used, and the number of entries after it
        self.length = self.scratch_nbytes = self.total_work = 0

    def add(self, item: ScheduleItem, executable: Executable) -> None:
        """Adds one kernel: its arguments, and an entry for each launch."""
        block, scratch_end = self.length, 0
        for slot, param in enumerate(executable.params):
            if slot < len(item.buffers):
                use = self.schedule.buffers[item.buffers[slot]]
                self.places[use.role].append((self.length, use.source))
            elif param.role == "report":
                self.places["report"].append((self.length, 8 * REPORT_WORDS * len(self.checks)))
                self.checks.append(item.checks)
            else:
                self.places["scratch"].append((self.length, scratch_end))
                scratch_end += -(-greatest(param.numel) * param.dtype.itemsize // 64) * 64
            self.length += 1
        for variable in executable.variables:
            self.variables.append((self.length, variable.arg[0]))
            self.length += 1
        self.scratch_nbytes = max(self.scratch_nbytes, scratch_end)
        uses = _uses(self.schedule, item.buffers, executable, scratch_end)
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


def lay_out(schedule: Schedule, executables: Sequence[Executable], num_threads: int) -> Layout:
    """Returns the flat form of a schedule; arguments are offsets in `words` as yet."""
    build = _Builder(schedule, num_threads)
    for item, executable in zip(schedule.items, executables):
        build.add(item, executable)
    entries = aligned_words(len(build.rows) * ENTRY_WORDS).reshape(len(build.rows), ENTRY_WORDS)
    entries[:] = np.array(build.rows, np.int64).reshape(len(build.rows), ENTRY_WORDS)
    inputs, outputs, arena, scratch, reports = (
        Patch(_column(pairs, 0), _column(pairs, 1)) for pairs in build.places.values()
    )  # fmt: skip
    return Layout(
        aligned_words(build.length), entries, inputs, outputs, arena, scratch, build.scratch_nbytes, reports,
        tuple(build.checks), build.variables, build.symbolic, build.total_work,
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
def _uses(schedule: Schedule, buffers: Sequence[int], executable: Executable, scratch_nbytes: int) -> list[Use]:
    found = [Use("scratch", 0, scratch_nbytes, True)] if scratch_nbytes else []
    for index, param in zip(buffers, executable.params):
        use, writes = schedule.buffers[index], param.role != "in"
        if use.role == "temporary":
            found.append(Use("arena", use.source, use.source + greatest(use.numel) * use.dtype.itemsize, writes))
        else:
            # NOTE: an output may be stored where an input is, so writing one waits for every reader of the inputs.
            found.append(Use("outer", 0 if writes else index, len(schedule.buffers) if writes else index + 1, writes))
    return found


def _last_conflict(history: list[tuple[list[Use], int]], uses: list[Use]) -> int:
    """Returns how many entries must be done before a kernel with these uses may begin."""
    for uses_before, entries in reversed(history[-LOOK_BACK:]):
        if any(_conflict(a, b) for a in uses_before for b in uses):
            return entries
    return history[-LOOK_BACK - 1][1] if len(history) > LOOK_BACK else 0


def _conflict(a: Use, b: Use) -> bool:
    return (a.writes or b.writes) and a.space == b.space and a.start < b.end and b.start < a.end


def _column(pairs: list[tuple[int, int]], column: int) -> Words:
    return np.array([pair[column] for pair in pairs], np.int64)
