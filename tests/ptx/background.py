"""What works beside the threads of a launch: copies, products of warpgroups, and the shared memory that they see.

In:    a Machine
Out:   `background_of`, `working`, `Background`

Two proxies go to shared memory: the generic one of the threads, and the asynchronous one of copies of tiles and wgmma. The
second sees what threads wrote as it was at the last fence.proxy.async of a thread of their block (PTX ISA 9.0, "Proxies").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from tests.ptx import mbarriers
from tests.ptx.copies import Load, ThreadCopies, TileCopies, When
from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.memory import POISON, START
from tests.ptx.module import PtxError
from tests.ptx.warpgroups import WarpProducts, check_one_story

_when = [When.LATE]


@contextmanager
def working(when: When) -> Iterator[None]:
    """Launches within it do what is in the background at some moment of those that the rules allow."""
    _when.append(when)
    try:
        yield
    finally:
        _when.pop()


class ByThreads:
    """A space of memory as the generic proxy goes to it, in rows of bytes."""

    def __init__(self, machine: Machine, space: str):
        self.machine, self.space = machine, space

    def read(self, threads: Array, addresses: Array, nbytes: int) -> Array:
        unit = nbytes & -nbytes if nbytes % 8 else 8
        firsts = [(addresses + first).astype(np.uint64) for first in range(0, nbytes, unit)]
        words = [self.machine.memory.load(self.space, first, unit, Lanes(threads, False)) for first in firsts]
        return np.stack(words, axis=1).view(np.uint8)

    def write(self, threads: Array, addresses: Array, rows: Array) -> None:
        unit = rows.shape[1] & -rows.shape[1] if rows.shape[1] % 8 else 8
        words = np.ascontiguousarray(rows).view(f"u{unit}")
        for i in range(words.shape[1]):
            at = (addresses + i * unit).astype(np.uint64)
            self.machine.memory.store(self.space, at, words[:, i].copy(), Lanes(threads, False))


class AsSeen:
    """Shared memory as the asynchronous proxy sees it."""

    def __init__(self, machine: Machine):
        self.owner, self.region = machine.layout.block, machine.memory.private["shared"]
        assert self.region.written is not None, "shared memory knows what has been written"
        self.bytes, self.written = np.full_like(self.region.bytes, POISON), np.zeros_like(self.region.written)
        self.nbytes = machine.memory.ends["shared"] - START

    def show(self, lanes: Lanes) -> None:
        """What the blocks of some threads wrote can be seen from now on."""
        assert self.region.written is not None
        for block in np.unique(lanes.pick(self.owner)):
            part = slice(int(block) * self.region.nbytes, (int(block) + 1) * self.region.nbytes)
            self.bytes[part], self.written[part] = self.region.bytes[part], self.region.written[part]

    def _places(self, threads: Array, addresses: Array, nbytes: int) -> Array:
        first = addresses.astype(np.int64) - START
        if ((first < 0) | (first + nbytes > self.nbytes)).any():
            raise PtxError(f"a copy of a tile, or a wgmma, goes to {int(first.max())} of {self.nbytes} shared bytes.")
        return (first + self.owner[threads] * self.region.nbytes)[:, None] + np.arange(nbytes)

    def read(self, threads: Array, addresses: Array, nbytes: int) -> Array:
        places = self._places(threads, addresses, nbytes)
        missing = self.written[places] == 0
        if missing.any():
            at = int(addresses[missing.any(axis=1)][0]) - START
            raise PtxError(
                f"byte {at} of a block is read in the background: not written, or no fence.proxy.async shows it."
            )
        found: Array = self.bytes[places]
        return found

    def now(self, threads: Array, addresses: Array, nbytes: int) -> Array:
        """Returns what threads see, written or not."""
        found: Array = self.region.bytes[self._places(threads, addresses, nbytes)]
        return found

    def write(self, threads: Array, addresses: Array, rows: Array) -> None:
        assert self.region.written is not None
        places = self._places(threads, addresses, rows.shape[1])
        self.bytes[places] = self.region.bytes[places] = rows
        self.written[places] = self.region.written[places] = 0xFF


class Background:
    """All that is under way in a launch."""

    def __init__(self, machine: Machine, when: When):
        self.machine, self.when, self.seen = machine, when, AsSeen(machine)
        memory = ByThreads(machine, "global")
        self.copies = ThreadCopies(memory, ByThreads(machine, "shared"), when, machine.registers.count)
        self.tiles = TileCopies(memory, self.seen, when)
        self.products: dict[int, WarpProducts] = {}  # by the number of the warp
        self.not_shown: dict[tuple[int, int], int] = {}  # (block, mbarrier) -> the thread that has initialised it
        self.givers: list[Array] = []  # who has arrived, and goes on last
        machine.on_stall.append(lambda machine: self.land_next() or self.let_givers_go())
        machine.on_end.append(lambda machine: self.end())

    # ---- mbarriers ----
    def update(self, thread: int, address: int, change: Callable[[int], int]) -> int:
        """Changes an mbarrier; returns what it was."""
        one, at = Lanes(np.array([thread]), False), np.array([address], np.uint64)
        word = int(self.machine.memory.load("shared", at, 8, one)[0])
        self.machine.memory.store("shared", at, np.array([change(word)], np.uint64), one)
        return word

    def gave(self, lanes: Lanes) -> Array | None:
        """Keeps threads that have arrived, and announce nothing, until nothing else can happen, where that is asked for."""
        if self.when is not When.GIVER_LAST:
            return None
        self.givers.append(lanes.at)
        return self.machine.park(lanes.at)

    def let_givers_go(self) -> bool:
        if not self.givers or (self.machine.waiting and self.machine.has_moved):
            return False
        self.machine.unpark(np.concatenate(self.givers))
        self.givers.clear()
        return True

    # ---- copies of tiles ----
    def start_load(self, load: Load) -> None:
        block = int(self.machine.layout.block[load.thread])
        if (block, load.mbarrier) in self.not_shown:
            raise PtxError("a copy completes on an mbarrier with no fence.mbarrier_init behind its initialisation.")
        self.tiles.loads.append(load)
        if self.when is When.AT_ONCE:
            self._land(self.tiles.next_load())

    def land_next(self) -> bool:
        """Lets one load land, where threads wait and nothing else can happen; returns whether it did."""
        if not self.tiles.loads or not self.machine.waiting or self.machine.has_moved:
            return False
        self._land(self.tiles.next_load())
        return True

    def _land(self, load: Load) -> None:
        self.tiles.land(load)
        self.update(load.thread, load.mbarrier, lambda word: mbarriers.complete(word, load.tensor.nbytes))

    # ---- warpgroups ----
    def warp(self, number: int, thread: int) -> WarpProducts:
        """Returns the account of a warp; `thread` is its first."""
        if number not in self.products:
            place = int(self.machine.layout.thread[thread]) // 32 % 4
            self.products[number] = WarpProducts(place, thread, self.seen, self.when)
        return self.products[number]

    def end(self) -> None:
        """Checks that nothing is under way, once all threads are done."""
        self.tiles.end()
        groups: dict[tuple[int, int], list[WarpProducts]] = {}
        for own in self.products.values():
            layout = self.machine.layout
            groups.setdefault((int(layout.block[own.thread]), int(layout.thread[own.thread]) // 128), []).append(own)
        for warps in groups.values():
            check_one_story(sorted(warps, key=lambda own: own.warp))


def background_of(machine: Machine) -> Background:
    """Returns what works beside the threads of a launch."""
    if "background" not in machine.state:
        machine.state["background"] = Background(machine, _when[-1])
    found: Background = machine.state["background"]
    return found
