"""Rules as data: patterns of Ops, named rules, and a driver that rewrites a graph with them once.

In:    a graph and a PatternMatcher
Out:   the rewritten graph
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from picograd.dtype import DType
from picograd.ir.op import Op, const_value, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import copy_lines
from picograd.record import Record

Action = Callable[..., Any]


class Pattern(Record):
    """The form of an Op to which a rule applies.

    codes:  one OpCode or several; () is any
    src:    a pattern for each source; None does not look
    name:   the name under which the rule's action receives the matched Op
    value:  the constant it must be, seen through broadcasting; None does not ask
    kinds:  letters of the dtype kinds allowed ("biuf")
    either: the two sources may come in either order
    when:   a condition on the Op itself, for what the fields above cannot say (its arg, as a rule)
    """

    codes: OpCode | tuple[OpCode, ...] = ()
    src: tuple[Pattern, ...] | None = None
    name: str | None = None
    value: Any = None
    kinds: str = "biuf"
    either: bool = False
    when: Callable[[Op], bool] | None = None

    def match(self, op: Op, found: dict[str, Op]) -> bool:
        """True when `op` fits; the named parts are then in `found`."""
        codes = self.codes if isinstance(self.codes, tuple) else (self.codes,)
        if (codes and op.code not in codes) or op.dtype.kind not in self.kinds:
            return False
        if self.when is not None and not self.when(op):
            return False
        if self.value is not None and const_value(op) != self.value:
            return False
        if self.name is not None and found.setdefault(self.name, op) is not op:
            return False
        if self.src is None:
            return True
        return self._match_sources(op.src, found) or (self.either and self._match_sources(op.src[::-1], found))

    def _match_sources(self, sources: tuple[Op, ...], found: dict[str, Op]) -> bool:
        assert self.src is not None
        if len(sources) != len(self.src):
            return False
        trial = dict(found)
        if all(pattern.match(op, trial) for pattern, op in zip(self.src, sources)):
            found.update(trial)
            return True
        return False


class Rule(Record):
    """A named rule: where `pattern` fits, `action(**named parts)` gives the result, or None to decline.

    In autodiff/chain_rules.py an action is a record, which the caller of `find` reads; only `rewrite` calls actions.
    """

    name: str
    pattern: Pattern
    action: Any


class PatternMatcher:
    """A table of rules, dispatched by opcode; the first that fits and does not decline wins.

    Users extend one by adding tables: `chain_rules + PatternMatcher([...])`; the right one is asked first.

    codes: those that have a rule
    sure:  those whose first rule fits every Op
    """

    def __init__(self, rules: Iterable[Rule | tuple[str, Pattern, Action]]):
        self.rules = [rule if isinstance(rule, Rule) else Rule(*rule) for rule in rules]
        self._by_code: dict[OpCode, list[Rule]] = {}
        for rule in self.rules:
            for code in _codes(rule.pattern) or OpCode:
                self._by_code.setdefault(code, []).append(rule)
        self.codes = self._by_code.keys()
        self._sure: dict[OpCode, tuple[Rule, str]] = {}  # what fits every Op of a code, and the name it is matched by
        for code, (rule, *_) in self._by_code.items():
            first = rule.pattern
            if first.name is not None and first == Pattern(first.codes, name=first.name):
                self._sure[code] = rule, first.name
        self.sure = frozenset(self._sure)

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(other.rules + self.rules)

    def find(self, op: Op) -> tuple[Rule, Mapping[str, Op]] | None:
        """Returns the first rule whose pattern fits `op`, with the named parts."""
        if (sure := self._sure.get(op.code)) is not None:
            return sure[0], {sure[1]: op}
        for rule in self._by_code.get(op.code, ()):
            found: dict[str, Op] = {}
            if rule.pattern.match(op, found):
                return rule, found
        return None

    def may_fit(self, code: OpCode, dtype: DType) -> bool:
        """True where some rule is about Ops of this opcode and dtype."""
        return any(dtype.kind in rule.pattern.kinds for rule in self._by_code.get(code, ()))

    def rewrite(self, op: Op, **extra: Any) -> Any:
        """Returns the result of the first rule that fits `op` and does not decline, else None."""
        for rule in self._by_code.get(op.code, ()):
            found: dict[str, Any] = {}
            if rule.pattern.match(op, found):
                result = rule.action(**found, **extra)
                if result is not None:
                    return result
        return None


def _codes(pattern: Pattern) -> tuple[OpCode, ...]:
    return pattern.codes if isinstance(pattern.codes, tuple) else (pattern.codes,)


def graph_rewrite(roots: Iterable[Op], matcher: PatternMatcher, limit: int = 64) -> dict[Op, Op]:
    """Rewrites a graph sources first; returns what each Op became.

    After:  no rule of `matcher` applies to a node as it was built (a node's own result is tried again, at most
            `limit` times; its sources, already final, are not revisited).
    """
    became: dict[Op, Op] = {}
    made: set[Op] = set()
    for op in toposort(roots):
        src = tuple(map(became.__getitem__, op.src))
        new = op if src == op.src else op.replace(src=src)
        for _ in range(limit):
            result = matcher.rewrite(new) if new.code in matcher.codes else None
            if result is None or result is new:
                break
            new = result
        if new not in made:  # what an earlier Op became keeps the lines of that one
            copy_lines(op, new, replace=True)
            made.add(new)
        became[op] = new
    return became
