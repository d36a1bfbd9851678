"""Forms that are planned again and again, each time with other lengths: mentioned once, on the user's line.

In:    the Template of a graph that is about to be planned
Out:   `Repeats`
Called by: engine/realize.py

Numbers and offsets that change are inputs of a plan. A length is none, so each new one is scheduled and compiled.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from picograd.engine.plan import Template
from picograd.errors import PlanningWarning, user_line, warn_user
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode

PLANNINGS_TO_MENTION = 8
MOST_FORMS = 4096  # whose plannings are counted
OF_LENGTHS = frozenset(
    {OpCode.RESHAPE, OpCode.EXPAND, OpCode.PAD, OpCode.SHRINK, OpCode.IOTA, OpCode.CONST, OpCode.CHECK}
)  # on whose arguments the count does not depend


class Repeats:
    """How often forms have been planned for one line that differ in numbers alone."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, form: Template, shape: Shape) -> None:
        """Counts a planning, and warns where it is the eighth of graphs that differ in numbers alone.

        Args:
          form:   of the graphs, nothing in it freed
          shape:  of one of its results
        """
        parts = zip(form.order, form.key)  # type: ignore[call-overload]
        skeleton = hash((user_line(), *[_without_numbers(op, part, op in form.leaves) for op, part in parts]))
        if len(self._counts) >= MOST_FORMS:
            self._counts.clear()
        count = self._counts[skeleton] = self._counts.get(skeleton, 0) + 1
        if count == PLANNINGS_TO_MENTION:
            warn_user(
                f"realize: what is computed here has been planned {count} times, each time with other lengths or"
                f" numbers, the last with a result of shape {shape}. Each plan is scheduled, and may compile."
                "\n  hint: pad to a few lengths, or cut to a symbolic one: n = pg.Variable('n', 1, 512), x[: n.bind(k)].",
                PlanningWarning,
            )


def _without_numbers(op: Op, part: Any, is_leaf: bool) -> Hashable:
    """Returns a part of a form's key with no lengths, offsets and constants."""
    if is_leaf:
        return part[0], part[1], len(part[2])
    return (*part[:2], *part[3:]) if op.code in OF_LENGTHS else part
