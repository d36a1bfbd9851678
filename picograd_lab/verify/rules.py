"""Counts applications of rewrite rules and stops after a limit; a binary search names the rule that matters.

In:    a function that applies rules, and a question whose answer depends on them
Out:   the rule, and the Op that it was applied to

As with LLVM's -opt-bisect-limit: with no rule applied the answer is no, with all of them it is yes; the search halves the
range between a limit with no and one with yes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from picograd.ir.op import Op
from picograd.ir.pattern import PatternMatcher, Rule
from picograd.rewrites import simplify as algebra

Applied = tuple[str, Op]


class Limited(PatternMatcher):
    """A table of rules that makes only the first applications.

    limit:      number of applications; None: all
    applied:    name of each applied rule, with its Op, up to the limit
    decisions:  all decisions, refused ones included; the same rule on the same Op is decided as before
    """

    def __init__(self, rules: Iterable[Rule], limit: int | None):
        super().__init__(rules)
        self.limit = limit
        self.applied: list[Applied] = []
        self.decisions: dict[Applied, bool] = {}

    @property
    def count(self) -> int:
        """Number of applications, each counted once."""
        return len(self.decisions)

    def rewrite(self, op: Op, **extra: Any) -> Any:
        """Returns the result of the first rule that matches `op`, does not decline and is not refused, else None."""
        for rule in self._by_code.get(op.code, ()):
            found: dict[str, Any] = {}
            if rule.pattern.match(op, found):
                result = rule.action(**found, **extra)
                if result is not None and self._permits(rule, op):
                    return result
        return None

    def _permits(self, rule: Rule, op: Op) -> bool:
        application = rule.name, op
        if application not in self.decisions:
            self.decisions[application] = self.limit is None or self.count < self.limit
            if self.decisions[application]:
                self.applied.append(application)
        return self.decisions[application]


@contextmanager
def limited(limit: int | None = None) -> Iterator[Limited]:
    """Makes only the first `limit` applications of rules of algebra inside the block, or all, and counts them.

    Other tables stay complete, as later passes do not know the codes that they remove (LEAF, or one that a target lacks).
    """
    before = algebra.simplify
    seen = algebra.simplify = Limited(before.rules, limit)
    try:
        yield seen
    finally:
        algebra.simplify = before


def which(apply: Callable[[], object], is_wrong: Callable[[int], bool]) -> Applied | None:
    """Returns the first application that makes the answer yes; None if the answer is yes without any, or no with all.

    Args:
      apply:     applies the rules
      is_wrong:  the question, with rules up to a limit
    """
    with limited() as seen:
        apply()
    if is_wrong(0) or not is_wrong(seen.count):
        return None
    right, wrong = 0, seen.count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        right, wrong = (right, middle) if is_wrong(middle) else (middle, wrong)
    with limited(wrong) as seen:
        apply()
    return seen.applied[-1]
