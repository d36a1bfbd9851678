"""Ctrl-C: held back while something must not be left half done, and heard while a device is waited for.

In:    nothing
Out:   `held_back`, `wait_until`
Called by: runtime/cuda/memory.py, runtime/launches.py, runtime/opencl.py.    Next: picograd/runtime/cuda/queue.py
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SPIN, PAUSE = 2e-3, 1e-4  # seconds: of asking again and again, then between two questions


@contextmanager
def held_back() -> Iterator[None]:
    """Has an interrupt wait until the block ends. Other threads than the first are not interrupted anyway.

    Cost: 3 us.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if waiting:
            usual(*waiting[0])


def wait_until(is_done: Callable[[], bool], spin: float = SPIN) -> None:
    """Asks until it is so. Ctrl-C ends the waiting, and nothing else: what a device was given goes on.

    Args:
      spin:  seconds of asking again and again; a device that shares the host's processors wants few
    """
    start = time.perf_counter()
    while not is_done():
        if time.perf_counter() - start > spin:
            time.sleep(PAUSE)
