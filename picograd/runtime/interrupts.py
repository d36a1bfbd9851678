"""Ctrl-C, held back while something must not be left half done.

In:    nothing
Out:   `held_back`
Called by: runtime/cuda_memory.py, runtime/cuda_plan.py.    Next: picograd/runtime/cuda_queue.py
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
