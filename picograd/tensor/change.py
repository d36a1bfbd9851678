"""The number of the last change to what captured functions rely on, so that whoever saw it need not look again.

In:    attributes of Modules that are set, tensors that begin or cease to require grad
Out:   `last_change`
Next:  picograd/tensor/cell.py
"""

from __future__ import annotations

import itertools


class Change:
    """A number that no later change has again: while it is the same, no Module has another attribute and no tensor another
    mode than before.
    """

    __slots__ = ("number", "_numbers")

    def __init__(self) -> None:
        self.number, self._numbers = 0, itertools.count(1)

    def note(self) -> None:
        """Says that something has changed."""
        self.number = next(self._numbers)


last_change = Change()
