"""Records of `verify`'s comparisons, and their table.

In:    compared kernels, plans and gradients
Out:   `Verdict`, which prints as a table with all known facts about the first deviation
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from picograd.errors import Line
from picograd.record import Record, Struct, field

ROWS_MAX, LINES_MAX = 8, 4


class Held(Struct):
    """One kernel of a plan, and its worst error.

    name:      the kernel's name
    runs:      number of compared runs; steps of a loop count
    ulp:       the largest error, in units in the last place
    share:     the largest error as a share of the tolerance; above 1 is a mismatch
    is_sample: only some elements of each output were compared, since the evaluator would take too long for all
    unbounded: number of elements without a bound, since rounding may change an index or an order that they depend on
    note:      why it was not compared
    """

    name: str
    runs: int = 0
    ulp: float = 0.0
    share: float = 0.0
    is_sample: bool = False
    unbounded: int = 0
    note: str = ""


class Mismatch(Record):
    """One deviation from the meaning.

    what:    the deviating part, in a few words: "kernel reduce_32", "the rules of simplify", "the memory of a plan"
    fact:    the size and the place of the deviation
    ops:     its Ops as text
    lines:   the user's lines for these Ops
    script:  a program that shows only this; "" if there is none
    """

    what: str
    fact: str
    ops: str = ""
    lines: tuple[Line, ...] = ()
    script: str = ""

    def __str__(self) -> str:
        parts = [f"{self.what}: {self.fact}"]
        parts += [f"  made at {line}" for line in self.lines[:LINES_MAX]]
        if len(self.lines) > LINES_MAX:
            parts.append(f"  and at {len(self.lines) - LINES_MAX} more lines")
        return "\n".join([*parts, *(f"  {line}" for line in self.ops.strip().splitlines())])


class Verdict(Struct):
    """The result of a verification; true if nothing deviates.

    against:     the reference
    compared:    "kernels", or "layers" of a module: outputs and gradients
    kernels:     each kernel of each plan
    mismatches:  in the order of discovery; the first is the culprit, later ones may follow from it
    plans:       number of plans
    runs:        number of their runs; `watched` of them were compared
    gradients:   number of operations whose chain rule was compared with slopes
    notes:       parts that could not be compared, with reasons
    """

    against: str = "the evaluator"
    compared: str = "kernels"
    kernels: list[Held] = field(default_factory=list)
    mismatches: list[Mismatch] = field(default_factory=list)
    plans: int = 0
    runs: int = 0
    watched: int = 0
    gradients: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """True if nothing deviates."""
        return not self.mismatches

    def __bool__(self) -> bool:
        return self.is_right

    @property
    def first(self) -> Mismatch | None:
        """The first mismatch, or None."""
        return self.mismatches[0] if self.mismatches else None

    def note(self, text: str) -> None:
        """Adds a remark once."""
        if text not in self.notes:
            self.notes.append(text)

    def __str__(self) -> str:
        worst = sorted(self.kernels, key=lambda held: (-held.share, -held.unbounded, -held.ulp))[:ROWS_MAX]
        rows = [(self.compared[:-1], "compared", "largest error", "of tolerance"), *map(_row, worst)]
        parts = [*_table(rows)] if worst else []
        if len(self.kernels) > len(worst):
            parts.append(f"and {len(self.kernels) - len(worst)} with smaller errors")
        parts += [f"note: {text}" for text in self.notes]
        parts.append(self.sentence())
        if self.first is not None:
            parts += ["", str(self.first)]
            parts += [f"\nthen also: {other.what}: {other.fact}" for other in self.mismatches[1:ROWS_MAX]]
        return "\n".join(parts)

    __repr__ = __str__

    def sentence(self) -> str:
        """Returns the verdict in one sentence."""
        compared = sum(held.runs > 0 for held in self.kernels)
        of_plans = f" of {self.plans} plans, {self.watched} of {self.runs} runs" if self.plans else ""
        seen = f"{compared} {self.compared}{of_plans}"
        grads = f", and the gradients of {self.gradients} operations against slopes" if self.gradients else ""
        if self.first is None:
            return f"right: {seen}, held against {self.against}{grads}; nothing deviates"
        count = len(self.mismatches)
        deviate = f"{count} deviate{'s' * (count == 1)}, the first is {self.first.what}"
        return f"WRONG: {seen}, held against {self.against}{grads}; {deviate}"


def _row(held: Held) -> tuple[str, ...]:
    if not held.runs:
        return held.name, held.note or "no", "", ""
    compared = f"{held.runs}x" + " (sample)" * held.is_sample + f" ({held.unbounded} unknown)" * bool(held.unbounded)
    ulp = f"{held.ulp:.3g} ulp" if math.isfinite(held.ulp) else "not a number"
    return held.name, compared, ulp, f"{held.share:.2f}" if held.share < 1e4 else f"{held.share:.1e}"


def _table(rows: Iterable[tuple[str, ...]]) -> list[str]:
    cells = list(rows)
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
