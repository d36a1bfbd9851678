"""Pinned host memory, through which copies go: the GPU reads and writes it by itself, without the host.

In:    numbers of bytes
Out:   `Staging`
Called by: runtime/cuda/queue.py.    Next: picograd/runtime/cuda/moments.py

It is one ring. A piece of it can be used again once the copy that used it is done, which an event says. It is made at the
first copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from picograd.runtime.cuda.driver import call
from picograd.runtime.cuda.handles import Events

RING_NBYTES, PIECE_NBYTES = 32 << 20, 8 << 20
ALIGNMENT = 256
MOST_PIECES = 256  # on their way at once: of small ones the ring has room for so many that to look through them takes long


class Staging:
    """A ring of pinned memory.

    Args:
      events:    by which it knows what is done
      wait_for:  waits for one
    """

    def __init__(self, events: Events, wait_for: Callable[[Any], None]):
        self._events, self._wait_for = events, wait_for
        self._ring = 0  # its address
        self._head = 0  # bytes from its start to the next piece
        self._piece = 0, 0  # start and end of the piece handed out last
        self._used: deque[tuple[int, int, Any]] = deque()  # (start, end, event) of pieces, the oldest first

    def pieces(self, nbytes: int) -> Iterator[tuple[int, int, int]]:
        """Cuts a copy into pieces: (bytes before it, its address in the ring, its bytes). Each must be `used` in turn."""
        if not self._ring:
            self._ring = int(call("cuMemHostAlloc", RING_NBYTES, 0))
        for at in range(0, nbytes, PIECE_NBYTES):
            length = min(PIECE_NBYTES, nbytes - at)
            yield at, self._ring + self._room(length), length

    def _room(self, nbytes: int) -> int:
        """Returns where in the ring a piece can be, once the copies that used it are done."""
        start = self._head if self._head + nbytes <= RING_NBYTES else 0
        end = start + nbytes
        while len(self._used) >= MOST_PIECES or any(a < end and start < b for a, b, _ in self._used):
            self._wait_for(self._used[0][2])
            self._events.give(self._used.popleft()[2])
        self._head, self._piece = -(-end // ALIGNMENT) * ALIGNMENT, (start, end)
        return start

    def used(self, stream: Any) -> Any:
        """Notes that the copy just submitted to a stream uses the last piece; returns the event after it."""
        event = self._events.recorded(stream)
        self._used.append((*self._piece, event))
        return event
