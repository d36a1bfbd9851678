"""Reverse and forward mode on any graph, by any table of derivatives.

In:    the gradients that arrive at some Ops, or the tangents of some; the wanted Ops; a table of rows
Out:   `reverse`: the gradient of each wanted Op;  `forward`: the tangent of each root, or None if it is constant

A row of a table computes the gradient of each source of an Op from the gradient of its result. Reverse mode visits each Op
once, with the gradients of all its results. Forward mode uses the same rows: the kind of a row says how. There is no
recursion, because a graph may be deeper than Python's stack; the cost is linear in the differentiable part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from types import MappingProxyType

from picograd.errors import GradientError
from picograd.ir.build import zeros_like
from picograd.ir.host import name_of
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE, SEVERAL_RESULTS, OpCode
from picograd.ir.origin import Following, copy_lines, line_of, lines_of, spread
from picograd.ir.pattern import Pattern, PatternMatcher, Rule
from picograd.record import Record


# ---- which values change ----
def is_differentiable(op: Op) -> bool:
    """True where a change of its sources may change an Op smoothly."""
    return (op.dtype.kind == "f" or op.code in SEVERAL_RESULTS) and op.code is not OpCode.DETACH


def varying(roots: Iterable[Op], start: Collection[Op] | Collection[int]) -> set[Op]:
    """Returns the Ops below `roots` that change with `start`, which are Ops, or slots of PARAMs."""
    found: set[Op] = set()
    for op in toposort(roots):
        begins = op in start or (op.code is OpCode.PARAM and op.arg[0] in start)
        if begins or (is_differentiable(op) and not found.isdisjoint(op.src)):
            found.add(op)
    return found


def active_slots(body: Op, num_carry: int, start: Collection[int]) -> set[int]:
    """Returns the slots of a LOOP's body that change, at some step, with the slots in `start`."""
    slots = set(start)
    while True:
        found = varying(body.src, slots)
        more = {i for i in range(num_carry) if body.src[i] in found} - slots
        if not more:
            return slots
        slots |= more


# ---- rows of a table ----
SourceRule = Callable[[Op, Op], Op | None]


class Kind(Enum):
    """The form of an Op's Jacobian J. Rows give its transpose; forward mode needs J itself."""

    ELEMENTWISE = "elementwise"  # J is diagonal, so its own transpose: the row serves both directions
    LINEAR = "linear"  # the Op is linear in all its float sources together: J is the Op itself
    MULTILINEAR = "multilinear"  # the Op is linear in each float source: J is a sum of the Op itself
    GENERAL = "general"  # J is the transpose of the row's function, which is linear in `grad`


class Derivative(Record):
    """The derivative of one kind of Op.

    kind:       how forward mode uses it
    by_source:  for each source, (grad, out) -> J^T grad, called only for wanted sources; None: no gradient
    """

    kind: Kind
    by_source: tuple[SourceRule | None, ...]


class SeveralResults(Record):
    """The derivative of an Op with several results, called once for all of them.

    reverse:  (the Op, result number -> its gradient, numbers of the wanted sources, table) -> their gradients
    forward:  (the Op, for each source its tangent or None, table) -> for each result its tangent or None
    """

    reverse: Callable[[Op, Mapping[int, Op], Sequence[int], PatternMatcher], list[Op | None]]
    forward: Callable[[Op, Sequence[Op | None], PatternMatcher], list[Op | None]]

    def __call__(self, op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
        """Returns the gradients of the wanted sources."""
        return self.reverse(op, grads, needed, rules)


def elementwise(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of an Op whose element i depends on element i of its sources."""
    return _rule_of(name, head, Kind.ELEMENTWISE, by_source)


def linear(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of an Op that is linear in its float sources together: their transposes."""
    return _rule_of(name, head, Kind.LINEAR, by_source)


def multilinear(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of an Op that is linear in each float source, the others held: their transposes."""
    return _rule_of(name, head, Kind.MULTILINEAR, by_source)


def general(name: str, head: OpCode | Pattern, *by_source: SourceRule | None) -> Rule:
    """Returns the row of any other Op."""
    return _rule_of(name, head, Kind.GENERAL, by_source)


def _rule_of(name: str, head: OpCode | Pattern, kind: Kind, by_source: tuple[SourceRule | None, ...]) -> Rule:
    pattern = head if isinstance(head, Pattern) else Pattern(head, name="out")
    return Rule(name, pattern, Derivative(kind, by_source))


def kind_of(rule: Rule, out: Op) -> Kind:
    """Returns the kind of a row; for a user's row that is a plain function it follows from the opcode."""
    if isinstance(rule.action, Derivative):
        return rule.action.kind
    return Kind.ELEMENTWISE if out.code in ELEMENTWISE else Kind.GENERAL


def passes(grad: Op, out: Op) -> Op:
    """The derivative 1: the gradient passes unchanged, without an Op."""
    return grad


# ---- reverse mode ----
needs_grad: Callable[[Op], bool] = attrgetter("needs_grad")  # True for Ops that depend on a LEAF


def arriving(pairs: Iterable[tuple[Op, Op]]) -> dict[Op, Op]:
    """Returns the gradient that arrives at each root, given (root, gradient) pairs: the sum if a root has several."""
    found: dict[Op, Op] = {}
    for root, grad in pairs:
        found[root] = found[root] + grad if root in found else grad
    return found


def reverse(
    seeds: Mapping[Op, Op],
    wanted: Collection[Op],
    rules: PatternMatcher,
    constant: Collection[Op] = frozenset(),
    through: Callable[[Op], bool] = needs_grad,
    changes: Mapping[Op, Callable[[Op], Op]] = MappingProxyType({}),
) -> dict[Op, Op]:
    """Returns the sum over roots of d<root, seed> / d op for each wanted op.

    Args:
      seeds:     root -> the gradient that arrives there
      wanted:    Ops; one in the middle of the graph collects its gradient and passes it on
      rules:     the derivative table
      constant:  Ops known not to depend on the wanted ones; the walk ends at them
      through:   whether a wanted Op may be below an Op
      changes:   Op -> a function that its whole gradient passes through before it is passed on or returned
    """
    wanted = set(wanted)
    reaching = _towards(seeds, wanted, constant, through)
    if Following.is_on:
        spread([*reaching])
    grads: dict[Op, Op] = dict(seeds)
    several: dict[Op, dict[int, Op]] = {}
    result: dict[Op, Op] = {}
    for op in reversed(reaching):
        grad = grads.pop(op, None)
        if grad is not None and op in changes:
            grad = changes[op](grad)
        if op.code is OpCode.OUTPUT and grad is not None:
            several.setdefault(op.src[0], {})[op.arg] = grad
            copy_lines(op, op.src[0])  # of several results each has its line, not what gives them
        if grad is not None and op in wanted:
            result[op] = grad
        needed = [i for i, s in enumerate(op.src) if s in reaching]
        if not needed or op.code is OpCode.OUTPUT:
            continue
        if op.code in SEVERAL_RESULTS:
            bundle = several.pop(op, None) or (None if grad is None else {0: grad})  # a formula's only result is itself
            parts = several_gradients(op, bundle, needed, rules) if bundle else []
        else:
            parts = source_gradients(op, grad, needed, rules) if grad is not None else []
        for i, part in zip(needed, parts):
            if part is not None:
                copy_lines(op, part)
                source = op.src[i]
                before = grads.get(source)
                grads[source] = part if before is None else Op(OpCode.ADD, part.dtype, (before, part))
    return result


def _towards(
    roots: Iterable[Op], wanted: Collection[Op], constant: Collection[Op], through: Callable[[Op], bool]
) -> dict[Op, None]:
    """Returns the Ops from which a wanted Op is reached through differentiable Ops, as an ordered set, sources first."""

    def sources(op: Op) -> tuple[Op, ...]:
        return op.src[::-1] if through(op) and op not in constant else ()

    reaching: dict[Op, None] = {}
    for op in toposort([*roots][::-1], sources=sources):
        if through(op) and op not in constant and (op in wanted or not reaching.keys().isdisjoint(op.src)):
            reaching[op] = None
    return reaching


# ---- rows ----
def source_gradients(op: Op, grad: Op, needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the sources numbered `needed`, by the row of `rules` that fits `op`.

    Raises:
      GradientError: no row fits, or a row gives a gradient that is not of its source's shape and dtype.
    """
    rule, named = _row(op, rules)
    if isinstance(rule.action, Derivative):
        parts: list[Op | None] = []
        for i in needed:
            source = rule.action.by_source[i]
            parts.append(None if source is None else source(grad, op))
    else:
        every = rule.action(grad=grad, **named)
        parts = [every[i] for i in needed]
    return _checked(rule, op, needed, parts)


def several_gradients(op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the sources numbered `needed` of an Op with several results, from those of its results.

    Raises:
      GradientError: no row fits, or a row gives a gradient that is not of its source's shape and dtype.
    """
    rule, _ = _row(op, rules)
    assert isinstance(rule.action, SeveralResults), f"row {rule.name!r} is about one result, {op} has several"
    return _checked(rule, op, needed, rule.action(op, grads, needed, rules))


def _row(op: Op, rules: PatternMatcher, function: str = "backward") -> tuple[Rule, Mapping[str, Op]]:
    """Returns the row of an Op, and the Ops that its pattern names.

    Raises:
      GradientError: there is no row; names `function`.
    """
    found = rules.find(op)
    if found is None:
        raise no_rule(function, op)
    return found


def _checked(rule: Rule, op: Op, needed: Sequence[int], parts: list[Op | None]) -> list[Op | None]:
    for i, part in zip(needed, parts):
        if part is not None and (part.shape != op.src[i].shape or part.dtype is not op.src[i].dtype):
            raise GradientError(
                f"backward: row {rule.name!r} of chain_rules gives source {i} of {op.code.name}, {op.src[i].dtype} "
                f"{op.src[i].shape}, a gradient {part.dtype} {part.shape}."
            )
    return parts


def no_rule(function: str, op: Op) -> GradientError:
    """Returns the error that names an Op without a row, and the line that made it."""
    if op.code is OpCode.KERNEL:
        fact = f"{function}: the kernel {name_of(op)} has no gradient."
        return GradientError(fact, "give pg.kernel(..., gradient=...), or .detach() its operands.", line_of(op))
    name = describe(op)
    made = "".join(f"\n  {name} was made at {line}" for line in lines_of(op)[:1])
    return GradientError(
        f"{function}: {name} has no chain rule.{made}",
        hint=".detach() it if no gradient should flow, or add a row to chain_rules in picograd/autodiff/chain_rules.py.",
    )


def describe(op: Op) -> str:
    """Returns an Op as an error names it: with its operation if several share an opcode."""
    several = op.code in (OpCode.REDUCE, OpCode.SCAN, OpCode.SCATTER) and op.arg[0] is not None
    return f"{op.code.name} {op.arg[0].name}" if several else op.code.name


# ---- forward mode ----
def forward(roots: Sequence[Op], tangents: Mapping[Op, Op], rules: PatternMatcher) -> list[Op | None]:
    """Returns d root / d x * tangent of x, summed over the Ops x in `tangents`, at which the walk ends."""
    found: dict[Op, Op] = dict(tangents)
    several: dict[Op, list[Op | None]] = {}
    for op in toposort(roots, stop=tangents):
        if op in found or not is_differentiable(op):
            continue
        if op.code is OpCode.OUTPUT:
            change = several[op.src[0]][op.arg] if op.src[0] in several else None
        else:
            parts = [found.get(s) for s in op.src]
            if all(part is None for part in parts):
                continue
            if op.code in SEVERAL_RESULTS:
                several[op] = _tangents(op, parts, rules)
                continue
            change = _tangent(op, parts, rules)
        if change is not None:
            copy_lines(op, change)
            found[op] = change
    return [found.get(root) for root in roots]


def _tangents(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangent of each result of an Op with several."""
    rule, _ = _row(op, rules, "jvp")
    assert isinstance(rule.action, SeveralResults), f"row {rule.name!r} is about one result, {op} has several"
    return rule.action.forward(op, parts, rules)


def _tangent(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> Op | None:
    """Returns the tangent of `op` from those of its sources (None: the source does not change)."""
    rule, _ = _row(op, rules, "jvp")
    kind = kind_of(rule, op)
    moving = [(i, part) for i, part in enumerate(parts) if part is not None]
    if kind is Kind.ELEMENTWISE:
        return _sum(source_gradients(op, part, [i], rules)[0] for i, part in moving)
    if kind is Kind.LINEAR:
        return op.replace(src=tuple(_moved(s, part) for s, part in zip(op.src, parts)))
    if kind is Kind.MULTILINEAR:
        return _sum(op.replace(src=(*op.src[:i], part, *op.src[i + 1 :])) for i, part in moving)
    return _transposed_twice(op, moving, rules)


def _moved(source: Op, part: Op | None) -> Op:
    """Returns a source of a linear Op's tangent: an index or a condition stays, the tangent of a constant source is 0."""
    if part is not None:
        return part
    return zeros_like(source) if source.dtype.kind == "f" else source


def _transposed_twice(op: Op, moving: Sequence[tuple[int, Op]], rules: PatternMatcher) -> Op | None:
    """Returns J tangent: the row computes u -> J^T u, and the gradient of <J^T u, tangent> by u is J tangent."""
    u = Op(OpCode.LEAF, op.dtype, (zeros_like(op),), "u")
    return transposed(u, op, moving, lambda i: source_gradients(op, u, [i], rules)[0], rules)


def transposed(
    u: Op, op: Op, moving: Sequence[tuple[int, Op]], transpose: Callable[[int], Op | None], rules: PatternMatcher
) -> Op | None:
    """Returns the sum of J tangent over the sources that change; `transpose` returns J^T u for a source."""
    constant = {op, *op.src}
    results: list[Op | None] = []
    for i, part in moving:
        pulled = transpose(i)
        if pulled is not None:
            results.append(reverse({pulled: part}, [u], rules, constant).get(u))
    return _sum(results)


def _sum(parts: Iterable[Op | None]) -> Op | None:
    total: Op | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else Op(OpCode.ADD, part.dtype, (total, part))
    return total
