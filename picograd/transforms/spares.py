"""Memory of state that a replay wrote two calls ago, written again where nobody reads it any more.

In:    what each call of a replay wrote
Out:   `Spares`: buffers to write to
Called by: transforms/capture.py.    Next: picograd/transforms/guards.py

A training step replaces every parameter. Asking the allocator for each of them costs more Python than a small network
takes to compute, so a replay keeps two versions of each small state and writes them in turn. That nobody reads a
version is known from reference counts: of the tuple that a cell holds, of the Buffer in it, of its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from picograd.dtype import float32
from picograd.ir.op import Buffer, Shape, const
from picograd.tensor.cell import Cell

Held = tuple[Buffer, Shape]
MOST_NBYTES = 4096  # of one state: what is larger takes longer to compute than to allocate


def _with_references(held: Sequence[Held], k: int) -> tuple[Buffer, tuple[int, int, int]]:
    """Returns a buffer, and how many references there are to what leads to it."""
    # NOTE: the references are taken before they are counted, so of two threads that look at once neither is alone.
    version = held[k]
    buffer = version[0]
    return buffer, (sys.getrefcount(version), sys.getrefcount(buffer), sys.getrefcount(buffer.memory))


def _references_of_one_reader() -> tuple[int, int, int] | None:
    """Returns the counts of a version that only a list knows, or None where counts tell nothing."""
    # NOTE: from Python 3.14 on, and without the interpreter's lock, an object in use may have fewer counts than users.
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    return _with_references([(Buffer("", float32, 0, object()), ())], 0)[1]


ALONE = _references_of_one_reader()


def sole_version(cell: Cell) -> Buffer | None:
    """Returns the memory of a cell if nobody else can read it: it may be written over by the cell's next value."""
    version = cell.version()
    if version is None or not ALONE_IN_CELL or _references(version) != ALONE_IN_CELL:
        return None
    return version[0]


def _references(version: Held) -> tuple[int, ...]:
    buffer = version[0]
    return sys.getrefcount(version), sys.getrefcount(buffer), sys.getrefcount(buffer.memory)


def _references_of_one_cell() -> tuple[int, ...]:
    """Returns the counts of a version that only a cell knows, or () where counts tell nothing."""
    cell = Cell(const(0, float32), None)
    cell.hold((Buffer("", float32, 0, object()), ()))
    version = cell.version()
    return _references(version) if version is not None and ALONE is not None else ()


ALONE_IN_CELL = _references_of_one_cell()


class Spares:
    """The last two versions of small state.

    outputs:  which outputs of the plan they are
    older:    what the call before the last one wrote to them; () before there was one
    newer:    what the last call wrote
    """

    def __init__(self, written: Sequence[tuple[int, int]]):
        """written: (output of the plan, its bytes) of each state that a call replaces."""
        self.outputs = tuple(output for output, nbytes in written if nbytes <= MOST_NBYTES and ALONE is not None)
        self.older: Sequence[Held] = ()
        self.newer: Sequence[Held] = ()

    def give(self, buffers: list[Buffer | None]) -> None:
        """Puts a buffer that nobody reads in the place of each output that has one."""
        older = self.older
        if older:
            for k, output in enumerate(self.outputs):
                buffer, references = _with_references(older, k)
                if references == ALONE:
                    buffers[output] = buffer

    def keep(self, versions: Sequence[Held]) -> None:
        """Takes note of what a call has written to the outputs."""
        self.older, self.newer = self.newer, versions
