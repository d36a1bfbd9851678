"""Places temporaries in one arena, so that those that do not live at the same time share memory.

In:    temporaries with their first and last use
Out:   a byte offset for each, and the bytes of the arena
Called by: schedule/create.py.    Next: picograd/schedule/overwrite.py
"""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True)
class Lifetime:
    """When a temporary holds data.

    nbytes:  its length
    first:   index of the kernel that writes it
    last:    index of the last kernel that reads it
    """

    nbytes: int
    first: int
    last: int


def plan_memory(lifetimes: list[Lifetime]) -> tuple[list[int], int]:
    """Returns an offset for each lifetime, and the bytes needed for all.

    The longest are placed first, each at the lowest offset where nothing that lives at the same time stands.

    >>> plan_memory([Lifetime(64, 0, 1), Lifetime(64, 1, 2), Lifetime(64, 2, 3)])
    ([0, 64, 0], 128)
    """
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].nbytes, lifetimes[i].first, i)):
        own = lifetimes[i]
        length = -(-own.nbytes // ALIGNMENT) * ALIGNMENT
        neighbours = [j for j in placed if lifetimes[j].first <= own.last and own.first <= lifetimes[j].last]
        offset = 0
        for j in sorted(neighbours, key=lambda j: offsets[j]):
            if offset + length <= offsets[j]:
                break
            offset = max(offset, offsets[j] + -(-lifetimes[j].nbytes // ALIGNMENT) * ALIGNMENT)
        offsets[i] = offset
        placed.append(i)
        total = max(total, offset + length)
    return offsets, total
