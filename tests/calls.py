"""Counts calls: what a piece of work costs, on any machine, however busy."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType

PYTHON = ("call",)
PYTHON_AND_C = ("call", "c_call")


def calls(work: Callable[[], object], of: tuple[str, ...] = PYTHON) -> int:
    """Returns how many functions `work` calls on this thread: Python's, or C's as well."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in of

    gc.collect()
    gc.disable()  # what is collected meanwhile is not of this work
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count - 1  # `work` itself
