"""What a row of chain_rules holds: how gradients pass one Op, and what forward mode may conclude from that.

In:    functions (grad, out) -> gradient of one source
Out:   `Derivative`; `elementwise`, `linear`, `multilinear`, `general`, which make rows; `SeveralResults`
Next:  picograd/autodiff/reverse.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from picograd.ir.op import Op
from picograd.ir.opcode import ELEMENTWISE, OpCode
from picograd.ir.pattern import Pattern, PatternMatcher, Rule
from picograd.record import Record

SourceRule = Callable[[Op, Op], Op | None]


class Kind(Enum):
    """How the Jacobian J of an Op looks. Rows give its transpose; forward mode needs J itself."""

    ELEMENTWISE = "elementwise"  # J is diagonal, so its own transpose: the row serves both directions
    LINEAR = "linear"  # the Op is linear in all its float sources together: J is the Op itself
    MULTILINEAR = "multilinear"  # the Op is linear in each float source: J is a sum of the Op itself
    GENERAL = "general"  # J is the transpose of what the row computes, which is linear in `grad`


class Derivative(Record):
    """The derivative of one kind of Op.

    kind:       what forward mode may do with it
    by_source:  for each source, (grad, out) -> J^T grad, computed only where it is asked for; None: no gradient
    """

    kind: Kind
    by_source: tuple[SourceRule | None, ...]


class SeveralResults(Record):
    """The derivative of an Op with several results, asked once for all of them.

    reverse:  (the Op, result number -> its gradient, numbers of the sources asked for, table) -> their gradients
    forward:  (the Op, for each source its tangent or None, table) -> for each result its tangent or None
    """

    reverse: Callable[[Op, Mapping[int, Op], Sequence[int], PatternMatcher], list[Op | None]]
    forward: Callable[[Op, Sequence[Op | None], PatternMatcher], list[Op | None]]

    def __call__(self, op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
        """Returns the gradients of the sources asked for."""
        return self.reverse(op, grads, needed, rules)


def elementwise(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of an Op whose element i depends on element i of its sources."""
    return _row(name, head, Kind.ELEMENTWISE, by_source)


def linear(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of an Op that is linear in its float sources together: their transposes."""
    return _row(name, head, Kind.LINEAR, by_source)


def multilinear(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of an Op that is linear in each float source, the others held: their transposes."""
    return _row(name, head, Kind.MULTILINEAR, by_source)


def general(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of any other Op."""
    return _row(name, head, Kind.GENERAL, by_source)


def _row(name: str, head: OpCode | Pattern, kind: Kind, by_source: tuple[SourceRule | None, ...]) -> Rule:
    pattern = head if isinstance(head, Pattern) else Pattern(head, name="out")
    return Rule(name, pattern, Derivative(kind, by_source))


def kind_of(rule: Rule, out: Op) -> Kind:
    """Returns the kind of a row; a user's row that is a plain function says it by the opcode."""
    if isinstance(rule.action, Derivative):
        return rule.action.kind
    return Kind.ELEMENTWISE if out.code in ELEMENTWISE else Kind.GENERAL


def passes(grad: Op, out: Op) -> Op:
    """The derivative 1: the gradient passes as it is, at the cost of no Op."""
    return grad
