"""Which threads an instruction is for, and where each thread stands in its warp, its block and the grid.

Out:   `Lanes`, `Layout`

A lane is a thread of those that the machine runs at once: some blocks of a grid, one after the other, thread by thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WARP = 32


class Lanes:
    """Numbers of lanes, in order.

    at:        int64
    is_whole:  whether they are all that the machine has, so that nothing has to be picked
    """

    __slots__ = ("at", "is_whole")

    def __init__(self, at: Array, is_whole: bool):
        self.at, self.is_whole = at, is_whole

    def __len__(self) -> int:
        return len(self.at)

    def pick(self, values: Array) -> Array:
        """Returns the values of these lanes, of an array that has one for each lane."""
        return values if self.is_whole else values[self.at]

    def put(self, target: Array, values: Array) -> None:
        """Stores a value for each of these lanes."""
        target[slice(None) if self.is_whole else self.at] = values

    def where(self, mask: Array) -> Lanes:
        """Returns those lanes for which a mask of one bool for each of these is true."""
        return self if mask.all() else Lanes(self.at[mask], False)

    def without(self, gone: Array) -> Lanes:
        """Returns the lanes but those of some numbers."""
        return Lanes(np.setdiff1d(self.at, gone, assume_unique=True), False)


@dataclass(frozen=True)
class Layout:
    """Where the lanes stand, each an array with an int64 for every lane.

    blocks, threads:  how many blocks there are, and threads in one
    first_block:      the number of the first block in the grid, which has `grid` of them
    thread:           in the block
    block:            of the machine's blocks, from 0
    place:            in the warp
    warp:             of the machine's warps, from 0
    """

    blocks: int
    threads: int
    first_block: int
    grid: int
    thread: Array = field(init=False)
    block: Array = field(init=False)
    place: Array = field(init=False)
    warp: Array = field(init=False)

    def __post_init__(self) -> None:
        lane = np.arange(self.blocks * self.threads)
        warps = -(-self.threads // WARP)
        values = {"thread": lane % self.threads, "block": lane // self.threads}
        values["place"] = values["thread"] % WARP
        values["warp"] = values["block"] * warps + values["thread"] // WARP
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def all(self) -> Lanes:
        return Lanes(np.arange(self.blocks * self.threads), True)

    def names(self, lane: int) -> str:
        """Returns which thread a lane is, for an error."""
        return f"thread {self.thread[lane]} of block {self.first_block + self.block[lane]}"
