"""Memory of the CPU device: blocks by size class, kept for reuse, aligned to a cache line.

In:    a number of bytes
Out:   `Memory`, which gives its block back when it dies; arenas, which plans lend each other

Blocks up to 2 MiB are cut from slabs, larger ones are mappings of their own. Both begin where a huge page does, and the
system is asked for huge pages as far as whole ones fit: a small block shares one with others, and a large one ends on
small pages, so that no page is resident without need. A freed block keeps its pages: the next plan finds them
in place, which is worth more than returning them (mapping a fresh page takes 0.1 us).
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import struct
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial

from picograd.interrupts import AtDeath, finish_later, later, lock
from picograd.ir.backend import ALIGNMENT
from picograd.ir.origin import format_nbytes, out_of_memory

HUGE_NBYTES = 2 << 20  # a huge page of x86-64, and of AArch64 with pages of 4 KiB
SLAB_NBYTES = 8 << 20
SLAB_BLOCK_NBYTES_MAX = HUGE_NBYTES  # longer blocks are not cut from slabs
KEPT_NBYTES_MAX = 4 << 30  # of all large blocks that are kept for reuse

_word = struct.Struct("q").pack


class Memory:
    """One block: `nbytes` bytes at `address`; free again when the object dies.

    word:  the address as eight bytes: joining these costs less than packing addresses

    The pool fills its slots. One is its finalizer (see interrupts.py), which gives the block back in C, on any thread.
    """

    __slots__ = ("address", "word", "nbytes", "__del__", "__weakref__")

    address: int
    word: bytes
    nbytes: int
    __del__: Callable[[], object]

    def __repr__(self) -> str:
        return f"Memory({self.nbytes} bytes at {self.address:#x})"


class Arena:
    """Memory that runs lend each other, one at a time.

    address, room:  its address and its bytes
    use:            the bytes that its last run used
    """

    __slots__ = ("address", "room", "use", "_memory", "_lost")

    def __init__(self, memory: Memory, room: int, lost: deque[ArenaUse]):
        self.address, self.room, self._memory, self.use = memory.address, room, memory, ArenaUse()
        self._lost = AtDeath(lost.append, self.use)


class ArenaUse:
    """Bytes of an arena that count as used: `lent` for temporaries, `scratch` as workspace of kernels."""

    __slots__ = ("lent", "scratch")

    def __init__(self) -> None:
        self.lent = self.scratch = 0


@lru_cache(1024)
def size_class(nbytes: int) -> int:
    """Returns the block length for a request: four classes between powers of two, so that at most a quarter is lost.

    >>> [size_class(n) for n in (1, 65, 100, 1000)]
    [64, 128, 128, 1024]
    """
    if nbytes <= 4 * ALIGNMENT:
        return max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
    step = 1 << ((nbytes - 1).bit_length() - 3)
    return -(-nbytes // step) * step


class MemoryPool:
    """Blocks in use and blocks kept. Safe for many threads. Implements ir/backend.py's MemoryUse.

    Python handles an interrupt only where a call begins or ends, or a loop goes back. So all
    fields that change together are changed by plain statements in a row, without a call, after everything is prepared.
    """

    def __init__(self) -> None:
        self._lock = lock()
        self._returned: deque[tuple[int, int, int]] = deque()
        self._free: dict[int, list[int]] = {}
        self._maps: dict[int, mmap.mmap] = {}
        self._slab, self._slab_left = 0, 0
        self._slabs: list[mmap.mmap] = []
        self._arenas: list[Arena] = []  # those that no run has
        self._came_back: deque[Arena] = deque()  # arenas of finished runs that still count as used
        self._lost: deque[ArenaUse] = deque()  # of arenas that died, because an interrupt came while one was handed over
        self._in_use = self._peak = self._kept = 0
        self._scratch = self._peak_with_scratch = 0

    # ---- memory that is held ----
    @property
    def in_use(self) -> int:
        """Bytes in use, as they were asked for; of an arena, those that a run has for temporaries."""
        finish_later()
        with self._lock:
            self._collect()
            return self._in_use

    @property
    def kept(self) -> int:
        """Bytes of blocks that wait for reuse."""
        with self._lock:
            self._collect()
            return self._kept + sum(arena.room for arena in self._arenas)

    @property
    def peak(self) -> int:
        """The most bytes held at one time since the last `reset_peak`."""
        return self._peak

    @property
    def peak_with_scratch(self) -> int:
        """The most bytes held at one time, scratch memory of kernels included."""
        return self._peak_with_scratch

    def reset_peak(self) -> None:
        """Starts the peaks from the memory held now."""
        with self._lock:
            self._collect()
            self._peak, self._peak_with_scratch = self._in_use, self._in_use + self._scratch

    # ---- blocks ----
    def allocate(self, nbytes: int) -> Memory:
        """Returns a block of at least `nbytes` bytes.

        Raises:
          OutOfMemoryError: the system gives no memory, even after kept blocks are returned to it.
        """
        return self.allocate_all((nbytes,))[0]

    def allocate_all(self, lengths: Sequence[int]) -> list[Memory]:
        """Returns a block for each number of bytes: all of them, or none."""
        if later:
            finish_later()
        with self._lock:
            if self._returned or self._came_back:
                self._collect()
            made = [*map(self._taken, map(size_class, lengths), lengths)]
            if self._in_use > self._peak or self._in_use + self._scratch > self._peak_with_scratch:
                self._note_peaks()
        return made

    def _note_peaks(self) -> None:
        self._peak = max(self._peak, self._in_use)
        self._peak_with_scratch = max(self._peak_with_scratch, self._in_use + self._scratch)

    def borrow_arena(self, nbytes: int, scratch: int = 0) -> Arena:
        """Returns memory for the temporaries of one run and its kernels' workspace; `return_arena` takes it back.

        Successive runs get the same arena, of the length that the longest of them needs. Its pages stay in place
        between runs, but only the bytes that a run asks for count, while it runs. A returned arena counts until
        somebody asks for memory or for its use: a run of equal needs before that takes it again as it is.

        Args:
          nbytes:   bytes in all
          scratch:  bytes among these that are workspace
        """
        try:
            arena = self._came_back.pop()
            if arena.use.lent + arena.use.scratch == nbytes and arena.use.scratch == scratch:
                return arena  # it still counts
            self._came_back.append(arena)
        except IndexError:  # memory was asked for since the last run, or another thread has the arena
            pass
        with self._lock:
            if self._returned or self._came_back or self._lost:
                self._collect()
            found = self._arenas.pop() if self._arenas else None  # else other threads' runs have all arenas
            if found is None or found.room < nbytes:
                found = None  # first, so that its memory can be dropped, too, if the system has none
                room = size_class(nbytes)
                found = Arena(self._taken(room, 0), room, self._lost)
            use = found.use
            use.lent, use.scratch = nbytes - scratch, scratch
            self._in_use += nbytes - scratch
            self._scratch += scratch
            if self._in_use > self._peak or self._in_use + self._scratch > self._peak_with_scratch:
                self._note_peaks()
        return found

    def return_arena(self, arena: Arena) -> None:
        """Takes back an arena of `borrow_arena`."""
        self._came_back.append(arena)

    def _collect(self) -> None:
        """Takes back arenas of finished runs, and the blocks of dead Memory objects."""
        while self._came_back:
            try:
                arena = self._came_back.popleft()
            except IndexError:  # another thread's run took it
                break
            self._count_no_more(arena.use)
            self._arenas.append(arena)
        while self._lost:
            self._count_no_more(self._lost[0])
            del self._lost[0]
        returned, kept = self._returned, self._free
        while returned:
            address, nbytes, length = returned[0]
            free = kept.get(length)
            if free is None:
                free = kept[length] = []
            self._in_use -= nbytes
            if length > SLAB_BLOCK_NBYTES_MAX and self._kept + length > KEPT_NBYTES_MAX:
                del returned[0], self._maps[address]
            else:
                del returned[0]
                free += (address,)
                self._kept += length

    def _count_no_more(self, use: ArenaUse) -> None:
        self._in_use -= use.lent
        self._scratch -= use.scratch
        use.lent = use.scratch = 0

    def _taken(self, length: int, nbytes: int) -> Memory:
        """Returns a block of a class's length that counts as `nbytes`: a kept one, if there is one."""
        free = self._free.get(length)
        if not free:
            free = self._free.setdefault(length, [])
            self._add_block(length, free)
        memory, address = Memory(), free[-1]
        memory.address, memory.word, memory.nbytes = address, _word(address), nbytes
        give_back = partial(self._returned.append, (address, nbytes, length))
        del free[-1]
        self._kept -= length
        self._in_use += nbytes
        memory.__del__ = give_back
        return memory

    def _add_block(self, length: int, free: list[int]) -> None:
        """Adds a new block to the kept ones: a piece of a slab, or a mapping of its own if it is long."""
        if length <= SLAB_BLOCK_NBYTES_MAX:
            if self._slab_left < length:
                slab, address = self._map(SLAB_NBYTES)
                self._slabs.append(slab)
                self._slab, self._slab_left = address, SLAB_NBYTES
            address = self._slab
            self._slab, self._slab_left = address + length, self._slab_left - length
        else:
            block, address = self._map(length)
            self._maps[address] = block
        free += (address,)
        self._kept += length

    def _map(self, length: int) -> tuple[mmap.mmap, int]:
        """Returns a mapping, and the address in it at which `length` bytes begin on a huge page."""
        try:
            return _anonymous(length)
        except (OSError, OverflowError, ValueError):
            self._drop_kept()
        try:
            return _anonymous(length)
        except (OSError, OverflowError, ValueError):
            raise out_of_memory("CPU", length, f"{format_nbytes(self._in_use)} are in use") from None

    def _drop_kept(self) -> None:
        """Returns unused large blocks and arenas to the system."""
        gc.collect()  # tensors in cycles of references
        self._collect()
        self._arenas.clear()
        self._collect()
        for length in [n for n in self._free if n > SLAB_BLOCK_NBYTES_MAX]:
            for address in self._free.pop(length):
                del self._maps[address]
                self._kept -= length


def _anonymous(length: int) -> tuple[mmap.mmap, int]:
    """Maps memory; returns the mapping and an address in it at which huge pages can begin."""
    room = length + HUGE_NBYTES - mmap.PAGESIZE  # of address space: memory around the block is never touched
    if hasattr(mmap, "MAP_PRIVATE"):  # NOTE: the default is shared, and a forked child would write into its parent
        block = mmap.mmap(-1, room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        block = mmap.mmap(-1, room)
    start = ctypes.addressof(ctypes.c_char.from_buffer(block))
    address = -(-start // HUGE_NBYTES) * HUGE_NBYTES
    whole = length // HUGE_NBYTES * HUGE_NBYTES
    if whole and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            block.madvise(mmap.MADV_HUGEPAGE, address - start, whole)
    return block, address
