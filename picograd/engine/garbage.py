"""Has Python look for cyclic garbage rarely while a plan is made: a fifth of the time went there.

In:    nothing
Out:   `few_collections`
Called by: engine/plan.py.    Next: picograd/schedule/create.py

Graphs, loops and texts are many small objects that die by themselves when a kernel is done. By default Python looks through
them after every 700, and again and again through all that is there.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_MIN = 50_000  # made between two looks: some MB
_changing = threading.Lock()
_before: list[int] = []  # what was set when the first of those that are open was opened, once for each of them


def _start_afresh() -> None:
    global _changing
    _changing = threading.Lock()


if hasattr(os, "register_at_fork"):  # a child must not start with the lock held by a thread it does not have
    os.register_at_fork(after_in_child=_start_afresh)


@contextmanager
def few_collections() -> Iterator[None]:
    """Lets at least OBJECTS_MIN objects be made between two collections of the youngest, in all threads.

    A process that has switched collections off, or to fewer, keeps what it has set.
    """
    with _changing:
        own, *others = gc.get_threshold()
        _before.append(_before[-1] if _before else own)
        if 0 < own < OBJECTS_MIN:
            gc.set_threshold(OBJECTS_MIN, *others)
    try:
        yield
    finally:
        with _changing:
            before = _before.pop()
            own, *others = gc.get_threshold()
            if not _before and own == OBJECTS_MIN:
                gc.set_threshold(before, *others)
