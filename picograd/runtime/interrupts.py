"""Ctrl-C: held back while something must not be left half done, and heard while a device is waited for.

In:    nothing
Out:   `held_back`, `wait_until`
Called by: runtime/cuda/memory.py, runtime/launches.py, runtime/opencl.py.    Next: picograd/runtime/cuda/queue.py
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

# Module signal wraps them, to make enums of numbers and numbers of enums, which costs more than they do.
_handler_of, _set_handler = _signal.getsignal, _signal.signal
SPIN, PAUSE = 2e-3, 1e-4  # seconds: of asking again and again, then between two questions


class HeldBack:
    """A block until whose end an interrupt waits."""

    __slots__ = ("_usual", "_waiting")

    def __enter__(self) -> None:
        usual, self._usual = _handler_of(signal.SIGINT), None
        if not callable(usual) or threading.current_thread() is not threading.main_thread():
            return
        self._waiting: list[tuple[int, FrameType | None]] = []
        _set_handler(signal.SIGINT, self._note)
        self._usual = usual

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append((number, frame))

    def __exit__(self, *failure: object) -> None:
        usual = self._usual
        if usual is not None:
            _set_handler(signal.SIGINT, usual)
            if self._waiting:
                usual(*self._waiting[0])


def held_back() -> HeldBack:
    """Has an interrupt wait until the block ends. Other threads than the first are not interrupted anyway.

    Cost: 1 us.
    """
    return HeldBack()


def wait_until(is_done: Callable[[], bool], spin: float = SPIN) -> None:
    """Asks until it is so. Ctrl-C ends the waiting, and nothing else: what a device was given goes on.

    Args:
      spin:  seconds of asking again and again; a device that shares the host's processors wants few
    """
    start = time.perf_counter()
    while not is_done():
        if time.perf_counter() - start > spin:
            time.sleep(PAUSE)
