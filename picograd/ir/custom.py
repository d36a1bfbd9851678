"""Gradients that a user has written for a body: kept beside the graphs, under a mark that the body carries.

In:    a backward body, and what it reads of a CALL
Out:   `CustomGradient`; `mark_of`, the arg of the SINK of such a body;  `custom_gradient`, what a mark stands for
Next:  picograd/ir/checks.py

A mark is a short text, so a body prints, reads back and is compared like any other. Equal gradients have one mark, which
holds the gradient: who drops the last body drops it too.
"""

from __future__ import annotations

import itertools

from picograd.ir.op import Op
from picograd.living import LivingValues
from picograd.record import Record


class CustomGradient(Record):
    """How the gradients of a CALL's sources are computed.

    backward:     a SINK over PARAMs: what it reads, then a gradient for each of the first results of the CALL
    reads:        of the CALL: ("source", slot) or ("result", number)
    num_results:  results of the CALL that have gradients by it; further ones are kept for it, and have their own
    places:       for each source of the CALL the root of `backward` that is its gradient, or None
    """

    backward: Op
    reads: tuple[tuple[str, int], ...]
    num_results: int
    places: tuple[int | None, ...]


class Mark(str):
    """The text under which a gradient is known; the gradient lives as long as a body that carries it."""

    gradient: CustomGradient


_marks: LivingValues[CustomGradient, Mark] = LivingValues()
_by_text: LivingValues[str, Mark] = LivingValues()  # for a body that was read back
_numbers = itertools.count()


def mark_of(gradient: CustomGradient) -> Mark:
    """Returns the mark of a gradient."""
    mark = _marks.get(gradient)
    if mark is None:
        mark = Mark(f"custom {next(_numbers)}")
        mark.gradient = gradient
        _marks[gradient] = _by_text[str(mark)] = mark
    return mark


def custom_gradient(body: Op) -> CustomGradient | None:
    """Returns the gradient that a user has written for a body, or None."""
    mark = body.arg if isinstance(body.arg, Mark) else _by_text.get(body.arg)
    return None if mark is None else mark.gradient
