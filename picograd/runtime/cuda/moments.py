"""A moment in the work of a GPU, which others can wait for and measure from.

In:    the queue of a GPU, and an event that it has recorded
Out:   `Moment`
Called by: runtime/cuda/device.py.    Next: picograd/runtime/cuda/plan.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.living import AtDeath
from picograd.runtime.cuda.queue import CommandQueue, seconds_between


class Moment:
    """When everything that had been submitted was done. Its event goes back to the queue with it.

    enter: makes the GPU's context that of the calling thread
    """

    def __init__(self, queue: CommandQueue, event: Any, enter: Callable[[], None]):
        self.queue, self.event, self.enter = queue, event, enter
        # No driver is called: whatever thread a finalizer runs in, it may have no context.
        self._given_back = AtDeath(queue.moments.append, event)

    def has_come(self) -> bool:
        """True if it is over."""
        with self.queue.lock:
            self.enter()
            return self.queue.is_done(self.event)

    def wait(self) -> None:
        """Waits for it."""
        with self.queue.lock:
            self.enter()
            self.queue.wait_for(self.event)

    def seconds_until(self, later: Moment) -> float:
        """Returns the seconds to a later moment, for which it waits."""
        later.wait()
        with self.queue.lock:
            self.enter()
            return seconds_between(self.event, later.event)
