"""The number of the last change to what captured functions rely on, so that whoever saw it need not look again.

In:    attributes of Modules that are set, tensors that begin or cease to require grad, that are moved, cast or reshaped
Out:   `last_change`; `last_move` of the tensors alone, and `note_move`
Next:  picograd/tensor/cell.py
"""

from __future__ import annotations

import itertools


class Change:
    """A number that no later change has again: while it is the same, no Module has another attribute and no tensor another
    mode, device, dtype or shape than before.
    """

    __slots__ = ("number", "_numbers")

    def __init__(self) -> None:
        self.number, self._numbers = 0, itertools.count(1)

    def note(self) -> None:
        """Says that something has changed."""
        self.number = next(self._numbers)


last_change = Change()
last_move = Change()  # to another device, dtype or shape


def note_move() -> None:
    """Says that a tensor has another device, dtype or shape."""
    last_move.note()
    last_change.note()  # last: who sees it sees the move, too
