"""Whether state is still what a plan was made for: on its device, of the dtype and shape that it had.

In:    the cells of a trace
Out:   `Kinds`
Called by: transforms/described.py, transforms/capture.py.    Next: picograd/transforms/donate.py

A plan takes memory by its address, and would read what was moved or cast since as what it had been.
"""

from __future__ import annotations

from collections.abc import Iterable

from picograd.ir.op import Op
from picograd.tensor.cell import Cell, CellKind, last_move


class Kinds:
    """Device, dtype and shape of state as a function was traced with it."""

    def __init__(self, cells: Iterable[Cell], device: str):
        """`device` is where the plan runs, and with it state that is of no device yet."""
        self.device, self.kinds = device, [(cell, cell.kind()) for cell in cells]
        self._looked = -1  # the last move there was then

    def have_changed(self) -> bool:
        """True where some state has been moved to another device, cast, or given another shape."""
        move = last_move.number
        if move != self._looked and not all(self._fits(cell.kind(), before) for cell, before in self.kinds):
            return True
        self._looked = move
        return False

    def _fits(self, now: CellKind, before: CellKind) -> bool:
        (device, dtype, shape), (old_device, old_dtype, old_shape) = now, before
        is_symbolic = any(isinstance(dim, Op) for dim in (*shape, *old_shape))  # each call has a length of its own
        same_place = device in (None, old_device or self.device)
        return same_place and dtype == old_dtype and (is_symbolic or shape == old_shape)
