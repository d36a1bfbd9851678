"""What becomes of a call: errors that say so, and counts of them."""

from __future__ import annotations

from dataclasses import dataclass, field

EXAMPLES = 3


class Missing(Exception):
    """picograd has no function of this name."""


class Skipped(Exception):
    """A call that has no counterpart: the message says why."""


class Differs(Exception):
    """The results of the two libraries: the message says how they differ."""


class Values(Differs):
    """Values alone differ, which may be PyTorch's own rounding."""


@dataclass
class Row:
    """What became of one operator in one kind of check.

    counts:    calls by what became of them: right, wrong, refused, skipped
    examples:  a few of each kind that is not right: what differs, and the call
    """

    op: str
    kind: str
    dtype: str
    verdict: str = "right"
    counts: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, verdict: str, text: str = "") -> None:
        """Counts a call."""
        self.counts[verdict] = self.counts.get(verdict, 0) + 1
        if verdict != "right":
            line = f"{verdict}: {text}"
            alike = [known for known in self.examples if known[:30] == line[:30]]
            if line not in alike and len(alike) < EXAMPLES:
                self.examples.append(line)

    def close(self) -> Row:
        """Settles the verdict: the worst of its calls."""
        order = ("wrong", "missing", "refused", "right", "skipped")
        self.verdict = next((verdict for verdict in order if self.counts.get(verdict)), "skipped")
        return self
