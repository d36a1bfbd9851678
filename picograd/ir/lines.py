"""Where the user made each Op: in a slot that is no part of what it is, so that equal graphs stay equal.

In:    an Op just built for the user
Out:   `record`, `lines_of`, `line_of`, `copy_lines`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextvars import ContextVar
from types import FrameType
from typing import Any

from picograd.errors import BETWEEN, Line
from picograd.ir.op import Op

MOST = 3  # lines kept for one Op

# The lines that called a function whose graph is made only now: who asks for it has made none of it.
of_formula: ContextVar[tuple[tuple[str, int], ...] | None] = ContextVar("picograd_lines", default=None)


class Following:
    """Notes on Ops besides their lines, taken while somebody profiles.

    is_on:   Ops that a function makes on its way to a result have the line of the result
    module:  the one whose forward runs, by its name; "" elsewhere
    """

    is_on = False
    module = ""


class _IsOwn(dict[str, bool]):
    """File name -> is it picograd's: worked out once for each name."""

    def __missing__(self, name: str) -> bool:
        own = self[name] = name.startswith(BETWEEN)
        return own


_is_own = _IsOwn()


def record(op: Op) -> None:
    """Remembers that the innermost line on the stack that is not picograd's made `op`."""
    given = of_formula.get()
    if given is not None:
        op.lines = op.lines or given
        return
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own[frame.f_code.co_filename]:
        frame = frame.f_back
    if frame is not None:
        place: tuple[Any, ...] = (frame.f_code.co_filename, frame.f_lineno)
        if Following.module:
            place += (Following.module,)
        known = op.lines
        if not known:
            op.lines = (place,)
        elif place not in known and len(known) < MOST:
            op.lines = (*known, place)


def lines_of(op: Op) -> tuple[Line, ...]:
    """Returns the user's lines that made `op`, the first one first; () if none is known."""
    return tuple(Line(*place) for place in op.lines)


def line_of(op: Op) -> Line | None:
    """Returns the user's line that made `op`, or where none is known that of the nearest Op it is computed from."""
    level, seen = [op], {op}
    while level:
        for here in level:
            if here.lines:
                return lines_of(here)[0]
        level = list(dict.fromkeys(s for here in level for s in here.src if s not in seen))
        seen.update(level)
    return None


def copy_lines(source: Op, result: Op, replace: bool = False) -> None:
    """Lets `result`, which a rewrite or a gradient made from `source`, keep the user's lines of `source`.

    Args:
      replace: lines that `result` has go: they are those of an equal Op of another graph
    """
    if result is source:
        return
    places = source.lines
    if replace or (places and not result.lines):
        result.lines = places


def spread(order: Sequence[Op]) -> None:
    """Gives Ops without a line that of an Op that reads them; `order`: sources first."""
    for op in reversed(order):
        for source in op.src:
            if source.src and not source.lines:
                source.lines = op.lines
