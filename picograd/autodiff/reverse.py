"""Reverse mode on any graph, by any table: each Op is visited once, with the gradients of all its results.

In:    the gradients that arrive at some Ops, the Ops asked for, a table of rows
Out:   for each Op asked for its gradient
Next:  picograd/autodiff/forward.py

No recursion: a graph may be deeper than Python's stack. Cost: linear in the differentiable part of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType

from picograd.autodiff.derivative import Derivative, SeveralResults
from picograd.errors import GradientError
from picograd.ir.lines import Following, copy_lines, lines_of, spread
from picograd.ir.op import Op
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.ir.pattern import PatternMatcher, Rule

needs_grad: Callable[[Op], bool] = attrgetter("needs_grad")  # where a LEAF can be reached

def reverse(
    seeds: Mapping[Op, Op],
    wanted: Collection[Op],
    rules: PatternMatcher,
    constant: Collection[Op] = frozenset(),
    through: Callable[[Op], bool] = needs_grad,
    changes: Mapping[Op, Callable[[Op], Op]] = MappingProxyType({}),
) -> dict[Op, Op]:
    """Returns the sum over roots of d<root, seed> / d op for each op that is wanted.

    Args:
      seeds:     root -> the gradient that arrives there
      wanted:    Ops; one in the middle of the graph collects its gradient and passes it on
      rules:     the derivative table
      constant:  Ops known not to depend on what is wanted: the graph below is not looked at
      through:   whether anything that is wanted may be below an Op
      changes:   Op -> what its whole gradient goes through before it is handed on, or returned
    """
    order, reaching = _towards(seeds, set(wanted), constant, through)
    if Following.is_on:
        spread(order)
    grads: dict[Op, Op] = dict(seeds)
    several: dict[Op, dict[int, Op]] = {}
    result: dict[Op, Op] = {}
    for op in reversed(order):
        grad = grads.pop(op, None)
        if grad is not None and op in changes:
            grad = changes[op](grad)
        if op.code is OpCode.OUTPUT and grad is not None:
            several.setdefault(op.src[0], {})[op.arg] = grad
        if grad is not None and op in wanted:
            result[op] = grad
        needed = [i for i, s in enumerate(op.src) if s in reaching]
        if not needed or op.code is OpCode.OUTPUT:
            continue
        if op.code in SEVERAL_RESULTS:
            bundle = several.pop(op, None)
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
    roots: Iterable[Op], wanted: set[Op], constant: Collection[Op], through: Callable[[Op], bool]
) -> tuple[list[Op], set[Op]]:
    """Returns the Ops from which a wanted Op is reached through differentiable Ops, sources first, and their set."""
    order: list[Op] = []
    reaching: set[Op] = set()
    seen: set[Op] = set()
    stack = list(roots)
    while stack:
        op = stack[-1]
        if op not in seen:
            if through(op) and op not in constant:
                for s in op.src:
                    if s not in seen:
                        stack.append(s)
                if stack[-1] is not op:  # it waits for what stands above it
                    continue
                if op in wanted or not reaching.isdisjoint(op.src):
                    reaching.add(op)
                    order.append(op)
            seen.add(op)
        stack.pop()
    return order, reaching


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


def _row(op: Op, rules: PatternMatcher) -> tuple[Rule, Mapping[str, Op]]:
    found = rules.find(op)
    if found is None:
        raise no_rule("backward", op)
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
    name = describe(op)
    made = "".join(f"\n  {name} was made at {line}" for line in lines_of(op)[:1])
    return GradientError(
        f"{function}: {name} has no chain rule.{made}",
        hint=".detach() it if no gradient should flow, or add a row to chain_rules in picograd/autodiff/chain_rules.py.",
    )


def describe(op: Op) -> str:
    """Returns an Op as an error names it: with its operation where several share an opcode."""
    several = op.code in (OpCode.REDUCE, OpCode.SCAN, OpCode.SCATTER) and op.arg[0] is not None
    return f"{op.code.name} {op.arg[0].name}" if several else op.code.name
