"""Whether anybody else can read some memory, told from reference counts.

In:    lists that know memory: of versions (a Buffer and its shape, as a cell holds them), or of Buffers
Out:   `unread`, `has_readers`; `COUNTS_TELL`
Called by: transforms/spares.py, transforms/donate.py, transforms/capture.py.    Next: picograd/transforms/spares.py

Whoever can read memory holds the tuple of a cell, the Buffer in it, or its memory. What only a list knows has certain
counts, which are taken once, in the way in which they are taken later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from sys import getrefcount

from picograd.dtype import float32
from picograd.ir.op import Buffer
from picograd.tensor.cell import Held


def unread(held: Sequence[Held], number: int, others: int = 0) -> Held | None:
    """Returns a version where only this list knows it, else None.

    Args:
      others:  how many others know the buffer, and do not count
    """
    # NOTE: the references are taken before they are counted, so of two threads that look at once neither is alone.
    version = held[number]
    buffer = version[0]
    if (
        getrefcount(version) != _VERSION
        or getrefcount(buffer) != _BUFFER + others
        or getrefcount(buffer.memory) != _MEMORY
    ):
        return None
    return version


def has_readers(buffers: Sequence[Buffer | None], place: int) -> bool:
    """Returns whether anything but this list may know a buffer or its memory."""
    buffer = buffers[place]
    assert buffer is not None
    return getrefcount(buffer) != _BUFFER or getrefcount(buffer.memory) != _MEMORY


def _references(held: Sequence[Held]) -> tuple[int, int, int]:
    """Returns the counts of a version that only a list knows, taken as above."""
    version = held[0]
    buffer = version[0]
    return getrefcount(version), getrefcount(buffer), getrefcount(buffer.memory)


def _counts_tell() -> bool:
    # NOTE: from Python 3.14 on, and without the interpreter's lock, an object in use may have fewer counts than users.
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return False
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


COUNTS_TELL = _counts_tell()  # else everything has readers
_VERSION, _BUFFER, _MEMORY = _references([(Buffer("", float32, 0, object()), ())]) if COUNTS_TELL else (0, 0, 0)
