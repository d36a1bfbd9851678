"""Memory of small results and state that a replay wrote two calls ago, written again where nobody reads it any more.

In:    what each call of a replay wrote; claims on state
Out:   `Spares`, `sole_versions`: buffers to write to
Called by: transforms/capture.py.    Next: picograd/transforms/guards.py

A training step replaces every parameter and returns a loss. Asking the allocator for each of them costs more Python than
a small network takes to compute, so a replay keeps two versions of each small one and writes them in turn. That nobody
reads a version is known from reference counts: of the tuple that a cell holds, of the Buffer in it, of its memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from picograd.dtype import float32
from picograd.ir.op import Buffer
from picograd.tensor.cell import Cell, Claim, Held

MOST_NBYTES = 4096  # of one state: what is larger takes longer to compute than to allocate


def _with_references(held: Sequence[Held]) -> list[tuple[Buffer, tuple[int, int, int]]]:
    """Returns buffers, and how many references there are to what leads to each."""
    # NOTE: the references are taken before they are counted, so of two threads that look at once neither is alone.
    return [
        (buffer := version[0], (sys.getrefcount(version), sys.getrefcount(buffer), sys.getrefcount(buffer.memory)))
        for version in held
    ]


def _references_of_one_reader() -> tuple[int, int, int] | None:
    """Returns the counts of a version that only a list knows, or None where counts tell nothing."""
    # NOTE: from Python 3.14 on, and without the interpreter's lock, an object in use may have fewer counts than users.
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return None
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    return _with_references([(Buffer("", float32, 0, object()), ())])[0][1]


ALONE = _references_of_one_reader()


def sole_versions(claim: Claim, inputs: Sequence[Buffer], places: Sequence[int]) -> list[Buffer | None]:
    """Returns the memory of each cell of a claim that nobody else can read: the cell's next value may be written there.

    Args:
      claim:   on the cells; gives back those that others read
      inputs:  what the caller is about to read
      places:  for each cell where its memory is among these
    """
    # NOTE: counted after the claim: a thread that reads the cell from now on waits, and one that did before is counted.
    found = [
        inputs[place] if version is not None and version[0] is inputs[place] and references == ALONE_IN_CELL else None
        for (version, references), place in zip(_references(claim.versions), places)
    ]
    for cell, version, buffer in zip(claim.cells, claim.versions, found):
        if buffer is None and version is not None:
            claim.give_back(cell, version)
    return found


def _references(versions: Sequence[Held | None]) -> list[tuple[Held | None, tuple[int, ...]]]:
    """Returns versions, and how many references there are to what leads to the memory of each."""
    return [
        (None, ())
        if version is None
        else (version, (sys.getrefcount(version), sys.getrefcount(version[0]), sys.getrefcount(version[0].memory)))
        for version in versions
    ]


def _references_of_one_cell() -> tuple[int, ...]:
    """Returns the counts of a version that only a claim and the inputs of a call know."""
    inputs = [Buffer("", float32, 0, object())]
    claim = Claim([Cell((inputs[0], ()), None)])
    claim.take()
    return _references(claim.versions)[0][1]


ALONE_IN_CELL = _references_of_one_cell()


class Spares:
    """The last two versions of small results and state.

    outputs:  which outputs of the plan they are
    older:    what the call before the last one wrote to them; () before there was one
    newer:    what the last call wrote
    """

    def __init__(self, written: Sequence[tuple[int, int]]):
        """written: (output of the plan, its bytes) of each result or state that a call makes."""
        self.outputs = tuple(output for output, nbytes in written if nbytes <= MOST_NBYTES and ALONE is not None)
        self.older: Sequence[Held] = ()
        self.newer: Sequence[Held] = ()

    def give(self, buffers: list[Buffer | None]) -> None:
        """Puts a buffer that nobody reads in the place of each output that has one."""
        older = self.older
        if older:
            for output, (buffer, references) in zip(self.outputs, _with_references(older)):
                if references == ALONE:
                    buffers[output] = buffer

    def keep(self, versions: Sequence[Held]) -> None:
        """Takes note of what a call has written to the outputs."""
        self.older, self.newer = self.newer, versions
