"""Places temporaries in one arena, so that those that do not live at the same time share memory; some in outputs.

In:    temporaries with their first and last use, outputs with what writes them
Out:   a byte offset for each or the output it lies in, and the bytes of the arena
Called by: schedule/create.py, schedule/loops.py.    Next: picograd/codegen/opts.py
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush

from picograd.record import Record

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
MANY = 1024  # temporaries from which on a better place is not worth the search for it


class Lifetime(Record):
    """When a temporary holds data. A moment is a phase of a kernel, or a loop.

    nbytes:    its length
    first:     the moment that writes it
    last:      the last moment that reads it
    in_arena:  it can be nowhere else
    """

    nbytes: int
    first: int
    last: int
    in_arena: bool = False


class Host(Record):
    """When the memory of an output may have something else in it.

    nbytes:  its length
    first:   the first moment that may write there
    end:     the moment that writes the output
    """

    nbytes: int
    first: int
    end: int


def place_temporaries(lifetimes: list[Lifetime], hosts: list[Host]) -> tuple[list[int | None], list[int], int]:
    """Returns for each lifetime the host it begins in, or None; its offset in the arena otherwise; the arena's bytes.

    Outputs take in temporaries only where the arena becomes shorter by that.

    >>> place_temporaries([Lifetime(64, 0, 1), Lifetime(64, 1, 2)], [Host(64, 0, 2)])
    ([0, None], [0, 0], 64)
    """
    offsets, nbytes = plan_memory(lifetimes)
    nowhere: list[int | None] = [None] * len(lifetimes)
    chosen = _hosted(lifetimes, hosts) if len(lifetimes) <= MANY else nowhere
    left = [i for i, host in enumerate(chosen) if host is None]
    fewer, less = plan_memory([lifetimes[i] for i in left])
    if less >= nbytes:
        return nowhere, offsets, nbytes
    found = [0] * len(lifetimes)
    for i, offset in zip(left, fewer):
        found[i] = offset
    return chosen, found, less


def _hosted(lifetimes: list[Lifetime], hosts: list[Host]) -> list[int | None]:
    """The longest first, of equal ones the last: what the kernel before the output's reads must lie elsewhere."""
    chosen: list[int | None] = [None] * len(lifetimes)
    inside: list[list[Lifetime]] = [[] for _ in hosts]
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, -lifetimes[i].last, i)):
        own = lifetimes[i]
        for number, host in enumerate(hosts):
            fits = own.nbytes <= host.nbytes and host.first <= own.first and own.last < host.end and not own.in_arena
            if fits and all(other.last < own.first or own.last < other.first for other in inside[number]):
                chosen[i] = number
                inside[number].append(own)
                break
    return chosen


def plan_memory(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Returns an offset for each lifetime, and the bytes needed for all.

    The longest are placed first, each at the lowest offset where nothing that lives at the same time stands. Where
    there are very many, they are placed in the order of their first use: that takes a search less for each.

    >>> plan_memory([Lifetime(64, 0, 1), Lifetime(64, 1, 2), Lifetime(64, 2, 3)])
    ([0, 64, 0], 128)
    """
    return _by_length(lifetimes) if len(lifetimes) <= MANY else _by_time(lifetimes)


def _by_length(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """The longest first. Cost: quadratic."""
    offsets, lengths = [0] * len(lifetimes), [aligned(lifetime.nbytes) for lifetime in lifetimes]
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i)):
        own, length = lifetimes[i], lengths[i]
        neighbours = [j for j in placed if lifetimes[j].first <= own.last and own.first <= lifetimes[j].last]
        offset = 0
        for j in sorted(neighbours, key=offsets.__getitem__):
            if offset + length <= offsets[j]:
                break
            if offset < (end := offsets[j] + lengths[j]):
                offset = end
        offsets[i] = offset
        placed.append(i)
        total = max(total, offset + length)
    return offsets, total


def _by_time(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Those that begin first first, the longest of them before, each in the shortest gap that it fits. Cost: n log n."""
    offsets = [0] * len(lifetimes)
    gaps = _Gaps()
    ending: list[tuple[int, int]] = []  # heap of (last use, number)
    for i in sorted(range(len(lifetimes)), key=lambda i: (lifetimes[i].first, -lifetimes[i].nbytes, i)):
        while ending and ending[0][0] < lifetimes[i].first:
            _, gone = heappop(ending)
            gaps.give(offsets[gone], aligned(lifetimes[gone].nbytes))
        offsets[i] = gaps.take(aligned(lifetimes[i].nbytes))
        heappush(ending, (lifetimes[i].last, i))
    return offsets, gaps.total


class _Gaps:
    """The parts of an arena that nothing lives in, while time goes on.

    total:  bytes of the arena so far
    """

    def __init__(self) -> None:
        self.total = 0
        self._by_length: list[tuple[int, int]] = []  # sorted (length, start)
        self._length: dict[int, int] = {}  # start -> length
        self._start: dict[int, int] = {}  # end -> start

    def take(self, length: int) -> int:
        """Returns the start of `length` bytes: of the shortest gap that has them, or at the end of the arena."""
        if not length:
            return 0
        place = bisect_left(self._by_length, (length, 0))
        if place < len(self._by_length):
            found, start = self._by_length[place]
            self._remove(start, found)
            self._add(start + length, found - length)
            return start
        start = self._start.get(self.total, self.total)  # a gap at the end grows
        if start < self.total:
            self._remove(start, self.total - start)
        self.total = start + length
        return start

    def give(self, start: int, length: int) -> None:
        """Makes a gap of what has been taken, one with the gaps at its sides."""
        end = start + length
        if end in self._length:
            behind = self._length[end]
            self._remove(end, behind)
            length += behind
        if start in self._start:
            before = self._start[start]
            self._remove(before, start - before)
            length += start - before
            start = before
        self._add(start, length)

    def _add(self, start: int, length: int) -> None:
        if length:
            insort(self._by_length, (length, start))
            self._length[start], self._start[start + length] = length, start

    def _remove(self, start: int, length: int) -> None:
        del self._by_length[bisect_left(self._by_length, (length, start))]
        del self._length[start], self._start[start + length]


def aligned(nbytes: int) -> int:
    """Returns the bytes that a temporary takes up in an arena."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
