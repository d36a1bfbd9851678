"""Copies in the background: cp.async of threads, boxes of tensor maps, and when what they bring is there.

In:    addresses; which threads start, close and wait for what
Out:   shared or global memory, later

PTX ISA 9.0, 9.7.9.25: "Data Movement and Conversion Instructions: Asynchronous copy". A copy may read and write at any
moment between its start and the end of the wait for it. LATE does both at the wait, so that a missing wait shows what
was there before; AT_ONCE at the start, so that a copy to memory that somebody still reads shows what came too early.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from tests.devices.cuda.hopper_cases import copied_as_tf32
from tests.ptx.module import PtxError
from tests.ptx.tensor_maps import TensorMap, box_places

Array = np.ndarray[Any, Any]


class When(Enum):
    """When work in the background is done, and threads go on, of all that the rules allow.

    LAST_FIRST:  late, tiles in the other order
    GIVER_LAST:  late, and who gives something back by an mbarrier goes on when nothing else can happen
    """

    AT_ONCE = "at once"
    LATE = "late"
    LAST_FIRST = "last first"
    GIVER_LAST = "giver last"


class Memory(Protocol):
    """Global memory, or that of a block: rows of bytes, (n, nbytes) uint8, at the addresses of n threads."""

    def read(self, threads: Array, addresses: Array, nbytes: int) -> Array: ...

    def write(self, threads: Array, addresses: Array, rows: Array) -> None: ...


class Shared(Memory, Protocol):
    """Shared memory as the asynchronous proxy sees it; `now` is what threads see there."""

    def now(self, threads: Array, addresses: Array, nbytes: int) -> Array: ...


# ---- cp.async ----
@dataclass
class Copy:
    """Of each thread `given` bytes from global memory, then zeros up to `nbytes`, to shared memory; arrays of one length.

    group:  how many groups the thread had closed before
    """

    threads: Array
    group: Array
    to: Array
    source: Array
    given: Array
    nbytes: int

    def part(self, chosen: Array) -> Copy:
        each = (array[chosen] for array in (self.threads, self.group, self.to, self.source, self.given))
        return Copy(*each, self.nbytes)


class ThreadCopies:
    """The copies of threads by cp.async, in groups that each thread closes for itself."""

    def __init__(self, memory: Memory, shared: Memory, when: When, threads: int):
        self.memory, self.shared, self.when = memory, shared, when
        self.closed = np.zeros(threads, np.int64)  # groups, of each thread
        self.pending: list[Copy] = []

    def start(self, threads: Array, to: Array, source: Array, nbytes: int, given: Array) -> None:
        wrong = (to % nbytes != 0) | ((source % nbytes != 0) & (given > 0))
        if wrong.any():
            at = np.flatnonzero(wrong)[0]
            raise PtxError(f"cp.async: {nbytes} bytes from {source[at]:#x} to {to[at]:#x}, not at multiples of them.")
        if (given > nbytes).any():
            raise PtxError(f"cp.async: {given.max()} bytes are given where {nbytes} are copied.")
        copy = Copy(threads, self.closed[threads], to, source, given, nbytes)
        if self.when is When.AT_ONCE:
            self._land(copy)
        else:
            self.pending.append(copy)

    def close(self, threads: Array) -> None:
        self.closed[threads] += 1

    def wait(self, threads: Array, but: int) -> None:
        """Lets all groups of some threads land but the last `but` ones, in order."""
        ends = np.full_like(self.closed, -1)
        ends[threads] = self.closed[threads] - but
        left = []
        for copy in self.pending:
            lands = copy.group < ends[copy.threads]
            if lands.any():
                self._land(copy.part(lands))
            if not lands.all():
                left.append(copy.part(~lands))
        self.pending = left

    def _land(self, copy: Copy) -> None:
        rows = np.zeros((len(copy.to), copy.nbytes), np.uint8)
        for given in np.unique(copy.given):
            chosen = copy.given == given
            if given:  # else memory is not touched, wherever `source` points
                rows[chosen, :given] = self.memory.read(copy.threads[chosen], copy.source[chosen], int(given))
        self.shared.write(copy.threads, copy.to, rows)


# ---- cp.async.bulk.tensor ----
@dataclass(frozen=True)
class Load:
    """A box on its way to the shared memory of a thread's block; its bytes are counted at an mbarrier."""

    thread: int
    tensor: TensorMap
    corner: tuple[int, ...]
    shared: int
    mbarrier: int


@dataclass
class Store:
    """A box on its way to global memory.

    before:  what threads saw of it in shared memory when it started
    rows:    once shared memory has been read
    """

    thread: int
    tensor: TensorMap
    corner: tuple[int, ...]
    shared: int
    before: Array | None = None
    rows: Array | None = None


class TileCopies:
    """The boxes that are on their way."""

    def __init__(self, memory: Memory, shared: Shared, when: When):
        self.memory, self.shared, self.when = memory, shared, when
        self.loads: list[Load] = []
        self.open: dict[int, list[Store]] = defaultdict(list)  # thread -> stores in no group so far
        self.groups: dict[int, list[list[Store]]] = defaultdict(list)  # thread -> those that are closed

    def next_load(self) -> Load:
        """Takes out the load that lands next."""
        return self.loads.pop(-1 if self.when is When.LAST_FIRST else 0)

    def land(self, load: Load) -> None:
        source, to, there = box_places(load.tensor, load.corner, load.shared)
        rows = np.zeros((len(to), load.tensor.itemsize), np.uint8)
        threads = np.full(len(to), load.thread)
        if there.any():
            rows[there] = self.memory.read(threads[there], source[there], load.tensor.itemsize)
        if load.tensor.rounds:
            rows = copied_as_tf32(rows.view(np.float32)).view(np.uint8)
        self.shared.write(threads, to, rows)

    def start_store(self, store: Store) -> None:
        store.before = self.shared.now(*self._bytes_of(store))
        if self.when is When.AT_ONCE:
            self._read(store)
        self.open[store.thread].append(store)

    def close_stores(self, thread: int) -> None:
        self.groups[thread].append(self.open.pop(thread, []))

    def wait_stores(self, thread: int, but: int, only_read: bool) -> None:
        """Lets all groups of a thread read shared memory but the last `but`, and write unless `only_read`."""
        groups = self.groups[thread]
        ends = max(len(groups) - but, 0)
        for store in [store for group in groups[:ends] for store in group]:
            self._read(store)
            if not only_read:
                self._write(store)
        if not only_read:
            del groups[:ends]

    def end(self) -> None:
        """Writes what stores have read, when all threads are done.

        Raises:
          PtxError: a copy is under way that needs the block's memory.
        """
        if self.loads:
            raise PtxError(f"the block ends while {len(self.loads)} copies to its shared memory are on their way.")
        if any(self.open.values()):
            raise PtxError("the block ends with stores of tiles that no group was closed over.")
        for store in [store for groups in self.groups.values() for group in groups for store in group]:
            if store.rows is None:
                raise PtxError("the block ends while a store still reads its shared memory: no wait for its group.")
            self._write(store)

    def _read(self, store: Store) -> None:
        if store.rows is None:
            store.rows = self.shared.read(*self._bytes_of(store))
            if not np.array_equal(self.shared.now(*self._bytes_of(store)), store.before):
                raise PtxError("a tile was written while a store still reads it: no wait for its group before.")

    def _bytes_of(self, store: Store) -> tuple[Array, Array, int]:
        _, shared, _ = box_places(store.tensor, store.corner, store.shared)
        return np.full(len(shared), store.thread), shared, store.tensor.itemsize

    def _write(self, store: Store) -> None:
        assert store.rows is not None, "a store writes what it has read"
        memory, _, there = box_places(store.tensor, store.corner, store.shared)
        if there.any():
            self.memory.write(np.full(there.sum(), store.thread), memory[there], store.rows[there])
