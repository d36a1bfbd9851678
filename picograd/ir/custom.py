"""Gradients that a user has written for a body: kept beside the graphs, under a mark that the body carries.

In:    a backward body, and what it reads of a CALL
Out:   `CustomGradient`; `mark_of`, the arg of the SINK of such a body;  `custom_gradient`, what a mark stands for
Next:  picograd/ir/checks.py

A mark is a short text, so a body prints, reads back and is compared like any other. Equal gradients have one mark.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from picograd.ir.op import Op


@dataclass(frozen=True)
class CustomGradient:
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


_marks: dict[CustomGradient, str] = {}  # graphs over PARAMs hold no memory
_gradients: dict[str, CustomGradient] = {}
_numbers = itertools.count()


def mark_of(gradient: CustomGradient) -> str:
    """Returns the mark of a gradient."""
    mark = _marks.setdefault(gradient, f"custom {next(_numbers)}")
    _gradients[mark] = gradient
    return mark


def custom_gradient(body: Op) -> CustomGradient | None:
    """Returns the gradient that a user has written for a body, or None."""
    return _gradients.get(body.arg) if body.arg is not None else None
