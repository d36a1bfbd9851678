"""Places the scratch memory of kernels in the arena, where nothing lives while they run.

In:    Schedule, Executables
Out:   for each kernel the pieces of the arena it works in, and the bytes of the arena with them

How much a kernel packs is known when its code is, after the temporaries have their places. So scratch memory takes what
they leave: while a kernel runs that is the place of every temporary that is dead then, and the rest after all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.ir.stages import Executable, LoopItem, Schedule

Piece = tuple[int, int]  # start, end: bytes of the arena
Ends = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


def place_scratch(schedule: Schedule, executables: Sequence[Executable], alignment: int) -> tuple[list[list[Piece]], int]:
    """Returns, by `schedule.kernel_items()`, the pieces of the arena for each "scratch" parameter; and the arena's bytes.

    Args:
      alignment:  bytes that every piece starts at a multiple of
    """
    if not any(param.role == "scratch" for executable in executables for param in executable.params):
        return [[] for _ in executables], schedule.arena_nbytes
    placer = _Placer(executables, alignment)
    placer.add_items(schedule, 0, np.zeros((0, 2), np.int64))
    return placer.pieces, max([schedule.arena_nbytes, *(end for found in placer.pieces for _, end in found)])


class _Placer:
    """The pieces of the kernels so far."""

    def __init__(self, executables: Sequence[Executable], alignment: int):
        self.pieces: list[list[Piece]] = []
        self._executables, self._alignment = iter(executables), alignment

    def add_items(self, schedule: Schedule, base: int, held: Ends) -> None:
        """Adds the kernels of a schedule whose temporaries begin at `base`.

        Args:
          held: what lives around all of it, as (start, end)
        """
        places, first, last = _lifetimes(schedule, base)
        for number, item in enumerate(schedule.items):
            lives = (first <= number) & (number <= last)
            if isinstance(item, LoopItem):
                self.add_items(item.body, *_inside(item, places, lives, held))
                continue
            lengths = _scratch_lengths(next(self._executables), len(item.buffers))
            around = np.concatenate([held, places[lives]]) if lengths else held
            self.pieces.append(_lowest(around, lengths, self._alignment))


def _lifetimes(schedule: Schedule, base: int) -> tuple[Ends, Ends, Ends]:
    """Returns (start, end) of each buffer of a schedule, and its first and last item; other than temporaries never live."""
    count = len(schedule.buffers)
    places, first, last = np.zeros((count, 2), np.int64), np.full(count, len(schedule.items)), np.full(count, -1)
    for i, use in enumerate(schedule.buffers):
        if use.role == "temporary":
            start = base + use.source
            places[i] = start, start + use.nbytes
    is_temporary = [use.role == "temporary" for use in schedule.buffers]
    for number, item in enumerate(schedule.items):
        for i in item.buffers:
            if is_temporary[i]:
                first[i], last[i] = min(first[i], number), number
    return places, first, last


def _inside(item: LoopItem, places: Ends, lives: Bools, held: Ends) -> tuple[int, Ends]:
    """Returns where the temporaries of a loop's body begin, and what lives around them.

    The item's own memory has them at its start; the memory after them, carries, lives from step to step.
    """
    if item.memory is None:
        return 0, np.concatenate([held, places[lives]])
    start, end = places[item.memory]
    outside = lives.copy()
    outside[item.memory] = False
    carries = np.array([[start + item.body.arena_nbytes, end]])
    return int(start), np.concatenate([held, places[outside], carries])


def _scratch_lengths(executable: Executable, num_buffers: int) -> list[int]:
    """Returns the bytes of each "scratch" parameter of a kernel."""
    own = executable.params[num_buffers:]
    return [param.nbytes for param in own if param.role == "scratch"]


def _lowest(around: Ends, lengths: Sequence[int], alignment: int) -> list[Piece]:
    """Returns a piece for each length, the longest placed first, each at the lowest place where nothing lives."""
    found: dict[int, Piece] = {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        ordered = around[np.argsort(around[:, 0], kind="stable")]
        gaps = np.maximum.accumulate(np.concatenate([[0], ordered[:, 1]]))  # where the gap before each one begins
        gaps = -(-gaps // alignment) * alignment
        fits = np.flatnonzero(gaps[:-1] + lengths[i] <= ordered[:, 0])
        start = int(gaps[fits[0] if len(fits) else -1])
        found[i] = start, start + lengths[i]
        around = np.concatenate([around, [found[i]]])
    return [found[i] for i in range(len(lengths))]
