"""Rewrite rules counted, and stopped after a number of applications: a binary search names the rule that matters.

In:    something that applies rules, and a question whose answer changes with them
Out:   the rule, and the Op that it was applied to

It is what LLVM's -opt-bisect-limit does: with no rule applied the answer is no, with all of them it is yes, and half-way
between a limit with no and one with yes a third is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from picograd.ir.op import Op
from picograd.ir.pattern import PatternMatcher, Rule
from picograd.record import Struct, field
from picograd.rewrites import simplify as algebra

Applied = tuple[str, Op]


class Limit(Struct):
    """Applications of rules in a block.

    applied:    each rule by name, with the Op that it was applied to, up to the limit
    decisions:  of all, those that were refused too; a rule that is applied to the same Op once more is decided as before
    """

    applied: list[Applied] = field(default_factory=list)
    decisions: dict[Applied, bool] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Applications, each counted once."""
        return len(self.decisions)


@contextmanager
def limited(limit: int | None = None) -> Iterator[Limit]:
    """Allows the first `limit` applications of rules of algebra inside the block, or all, and counts them.

    Other tables are always applied: what they take out no later pass knows, as LEAF or an operation that a target lacks.
    """
    seen = Limit()

    def permits(matcher: PatternMatcher, rule: Rule, op: Op) -> bool:
        if matcher is not algebra.simplify:
            return True
        application = rule.name, op
        if application not in seen.decisions:
            seen.decisions[application] = limit is None or seen.count < limit
            if seen.decisions[application]:
                seen.applied.append(application)
        return seen.decisions[application]

    before: Any = PatternMatcher.permits
    PatternMatcher.permits = permits
    try:
        yield seen
    finally:
        PatternMatcher.permits = before


def which(apply: Callable[[], object], is_wrong: Callable[[int], bool]) -> Applied | None:
    """Returns the first application without which the answer is no; None where it is yes with no rule applied.

    Args:
      apply:     applies the rules
      is_wrong:  the question, with rules up to a limit
    """
    with limited() as seen:
        apply()
    if not seen.count or is_wrong(0):
        return None
    right, wrong = 0, seen.count
    while wrong - right > 1:
        middle = (right + wrong) // 2
        right, wrong = (right, middle) if is_wrong(middle) else (middle, wrong)
    with limited(wrong) as seen:
        apply()
    return seen.applied[-1]
