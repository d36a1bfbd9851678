"""What the CUDA driver makes and has to be given back: events, which are used again, and code and graphs, which are not.

In:    streams to record; handles of the driver's
Out:   `Events`; `Handles`
Called by: runtime/cuda/device.py and its parts.    Next: picograd/runtime/cuda/staging.py
"""

from __future__ import annotations

from collections import deque
from typing import Any

from picograd.living import AtDeath
from picograd.runtime.cuda.driver import call

NO_TIMING = 2  # CU_EVENT_DISABLE_TIMING


class Events:
    """Events without a time, by their handles, for those who need one.

    spare:  those that nobody needs
    """

    def __init__(self) -> None:
        self.spare: list[int] = []

    def recorded(self, stream: Any) -> int:
        """Returns an event behind all that a stream was given."""
        self.give(self.take())  # where it stays if it cannot be recorded
        call("cuEventRecord", self.spare[-1], stream)
        return self.spare.pop()

    def take(self) -> int:
        """Returns an event that the caller records."""
        return self.spare.pop() if self.spare else int(call("cuEventCreate", NO_TIMING))

    def give(self, event: int) -> None:
        """Takes one back; who waits for it in a stream waits for what it was recorded for then."""
        self.spare.append(event)


class Handles:
    """Things of the driver's of one kind; those that nobody needs any more wait here.

    Args:
      undo:  the function that gives one back
    """

    def __init__(self, undo: str):
        self.undo = undo
        self._dropped: deque[Any] = deque()

    def hold(self, value: Any) -> Handle:
        """Returns what holds a thing as long as it is alive."""
        return Handle(value, self._dropped)

    def __len__(self) -> int:
        return len(self._dropped)

    def give_back(self, count: int) -> None:
        """Gives the driver the first of what nobody needs. A context has to be current."""
        for _ in range(count):
            call(self.undo, self._dropped.popleft())


class Handle:
    """Holds something of the driver's.

    No driver is called when it dies, for it may die in a thread without a context, or while the process ends.
    """

    __slots__ = ("value", "_dropped")

    def __init__(self, value: Any, dropped: deque[Any]):
        self.value, self._dropped = value, AtDeath(dropped.append, value)
