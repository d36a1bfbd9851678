"""Memory of a GPU: the driver's segments, split into blocks and merged when these are free.

In:    numbers of bytes
Out:   `Memory`; `Pool`

A block can be reused as soon as its object dies: later kernels of the stream run after those that used it. Other streams
have to wait for these kernels only: a free block has the number of the last submission before it was freed. Small blocks
come from segments of their own, so that a scalar with a long life does not split a large segment.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from picograd.interrupts import AtDeath, held_back, lock
from picograd.ir.backend import MemoryCount

STEP_BYTES = 512  # bytes; lengths are multiples, so blocks begin at multiples of 256, as the driver's memory does
SMALL_NBYTES_MAX = 1 << 20  # up to here blocks come from segments of their own kind, and may leave a rest
SMALL_SEGMENT_NBYTES, LARGE_SEGMENT_NBYTES = 2 << 20, 32 << 20  # minimum sizes
SEGMENT_STEP_BYTES = 2 << 20  # bytes; longer segments are multiples


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment.

    start, nbytes:  address and size
    is_small:       the kind of its segment
    ticket:         number of the last submission that may use it, if it is free
    is_free:        it is not in use
    before, after:  its neighbours in the segment
    """

    start: int
    nbytes: int
    is_small: bool
    ticket: int = 0
    is_free: bool = False
    before: Block | None = None
    after: Block | None = None


class Memory:
    """Memory of the GPU; returned to the pool when this object dies.

    address:  of the first byte, a multiple of 256
    nbytes:   requested size
    freed:    the submission after which it has no other user
    born:     the last submission before it was allocated
    """

    __slots__ = ("address", "nbytes", "freed", "born", "_given_back", "_counted")

    def __init__(self, address: int, nbytes: int, freed: int, born: int, given_back: AtDeath, counted: AtDeath):
        self.address, self.nbytes, self.freed, self.born = address, nbytes, freed, born
        self._given_back, self._counted = given_back, counted


class Pool:
    """The memory of one GPU that this process holds; thread-safe.

    count:  count of the memory of live objects
    held:   bytes allocated from the driver

    Args:
      new_segment:   allocates bytes from the driver: an address, or None if it is exhausted
      drop_segment:  frees a segment once it is no longer used
      ticket:        returns the number of the last submission
    """

    def __init__(
        self, new_segment: Callable[[int], int | None], drop_segment: Callable[[int], None], ticket: Callable[[], int]
    ) -> None:
        self._new_segment, self._drop_segment, self._ticket = new_segment, drop_segment, ticket
        self._lock = lock()
        self._given: deque[Block] = deque()
        self._by_length: dict[bool, list[tuple[int, int]]] = {True: [], False: []}  # by is_small: (nbytes, start), sorted
        self._free: dict[int, Block] = {}  # by start
        self.count, self.held = MemoryCount(), 0

    def allocate(self, nbytes: int, is_counted: bool = True) -> Memory | None:
        """Returns memory of at least `nbytes` bytes, or None if there is none left.

        Args:
          is_counted:  count it as an object's
        """
        wanted = -(-nbytes // STEP_BYTES) * STEP_BYTES or STEP_BYTES
        num_counted, given = nbytes if is_counted else 0, self._given
        with self._lock:
            if given and given[0].nbytes == wanted:  # the usual case: a step has freed what the next one needs
                block, ticket, back = given[0], self._ticket(), AtDeath.__new__(AtDeath)
                memory, give_back = (
                    Memory(block.start, nbytes, ticket, ticket, back, self.count.take(num_counted)),
                    partial(given.append, block),
                )
                del given[0]  # NOTE: no call between these two, since an interrupt might come
                back.__del__ = give_back  # type: ignore[assignment]
                return memory
        with held_back(), self._lock:
            self._collect()
            found = self._best(wanted) or self._grown(wanted)
            if found is None:
                return None
            self._take(found, wanted)
            where = found.start, nbytes, found.ticket, self._ticket()
            return Memory(*where, AtDeath(given.append, found), self.count.take(num_counted))  # no frame holds it

    def trim(self) -> None:
        """Frees segments without a block in use."""
        with held_back(), self._lock:
            self._collect()
            for block in [b for b in self._free.values() if b.before is None and b.after is None]:
                self._drop_segment(block.start)  # first: if the driver fails, the block stays here
                self._remove(block)
                self.held -= block.nbytes

    # ---- blocks; with the lock ----
    def _collect(self) -> None:
        """Merges returned blocks with their free neighbours."""
        while self._given:
            block = self._given.popleft()
            block.ticket, block.is_free = self._ticket(), True
            for other in (block.before, block.after):
                if other is not None and other.is_free:
                    self._remove(other)
                    block = _joined(other, block) if other is block.before else _joined(block, other)
            self._free[block.start] = block
            insort(self._by_length[block.is_small], (block.nbytes, block.start))

    def _best(self, wanted: int) -> Block | None:
        """Returns the shortest free block that fits."""
        lengths = self._by_length[wanted <= SMALL_NBYTES_MAX]
        at = bisect_left(lengths, (wanted, 0))
        return self._free[lengths[at][1]] if at < len(lengths) else None

    def _grown(self, wanted: int) -> Block | None:
        """Returns a new segment as one free block, of the usual or the needed length, or None."""
        is_small = wanted <= SMALL_NBYTES_MAX
        rounded = -(-wanted // SEGMENT_STEP_BYTES) * SEGMENT_STEP_BYTES
        usual = SMALL_SEGMENT_NBYTES if is_small else max(LARGE_SEGMENT_NBYTES, rounded)
        for nbytes in dict.fromkeys((usual, rounded, wanted)):
            address = self._new_segment(nbytes)
            if address is not None:
                self.held += nbytes
                block = Block(address, nbytes, is_small, is_free=True)
                self._free[address] = block
                insort(self._by_length[is_small], (nbytes, address))
                return block
        return None

    def _take(self, block: Block, wanted: int) -> None:
        """Hands out a free block; the rest of it stays free, if it is large enough."""
        self._remove(block)
        rest = block.nbytes - wanted
        if rest >= (STEP_BYTES if block.is_small else SMALL_NBYTES_MAX):
            other = Block(block.start + wanted, rest, block.is_small, block.ticket, True, block, block.after)
            if block.after is not None:
                block.after.before = other
            block.after, block.nbytes = other, wanted
            self._free[other.start] = other
            insort(self._by_length[other.is_small], (other.nbytes, other.start))
        block.is_free = False

    def _remove(self, block: Block) -> None:
        """Removes a free block from the lists."""
        del self._free[block.start]
        lengths = self._by_length[block.is_small]
        del lengths[bisect_left(lengths, (block.nbytes, block.start))]


def _joined(left: Block, right: Block) -> Block:
    """Joins two neighbours."""
    left.nbytes, left.after, left.ticket = left.nbytes + right.nbytes, right.after, max(left.ticket, right.ticket)
    if right.after is not None:
        right.after.before = left
    left.is_free = True
    return left
