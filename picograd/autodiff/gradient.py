"""Reverse mode: the gradient of one Op with respect to leaves, as a graph.

In:    a root, the gradient that arrives at it, the LEAF Ops asked for
Out:   for each leaf that the root depends on, its gradient
Next:  picograd/autodiff/jvp.py

No recursion: a graph may be deeper than Python's stack. Cost: linear in the differentiable part of the graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.derivative import Derivative, sources_of
from picograd.errors import GradientError
from picograd.ir.lines import copy_lines, lines_of
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import PatternMatcher, Rule


def gradient(
    root: Op,
    seed: Op,
    leaves: Iterable[Op],
    rules: PatternMatcher = chain_rules,
    constant: Collection[Op] = frozenset(),
) -> dict[Op, Op]:
    """Returns d<root, seed> / d leaf for each leaf.

    Args:
      root:      any shape, float
      seed:      shape of root: the gradient that arrives there (ones for a scalar)
      leaves:    LEAF Ops; one in the middle of the graph collects its gradient and passes it on
      rules:     the derivative table
      constant:  Ops known not to depend on the leaves: the graph below is not looked at

    Returns:   leaf -> gradient, of its shape and dtype; a leaf that root does not depend on is missing

    Raises:
      GradientError: an Op between root and a leaf has no row in `rules`.

    >>> x = Op(OpCode.LEAF, dtypes.float32, (const(3.0, dtypes.float32),), "x")
    >>> gradient(x + x, const(1.0, dtypes.float32), [x])[x]
    <ADD float32 ()>
    """
    if seed.shape != root.shape:
        raise GradientError(f"backward: the gradient given has shape {seed.shape}, the result {root.shape}.")
    wanted = set(leaves)
    order, reaching = _towards(root, wanted, constant)
    grads: dict[Op, Op] = {root: seed}
    result: dict[Op, Op] = {}
    for op in reversed(order):
        grad = grads.pop(op, None)
        if grad is None:
            continue
        if op in wanted:
            result[op] = grad
        sources = sources_of(op)
        needed = [i for i, s in enumerate(sources) if s in reaching]
        if not needed:
            continue
        for i, part in zip(needed, source_gradients(op, grad, needed, rules)):
            if part is not None:
                copy_lines(op, part)
                source = sources[i]
                before = grads.get(source)
                grads[source] = part if before is None else Op(OpCode.ADD, part.dtype, (before, part))
    return result


def _towards(root: Op, wanted: set[Op], constant: Collection[Op]) -> tuple[list[Op], set[Op]]:
    """Returns the Ops from which a wanted leaf is reached through differentiable Ops, sources first, and their set."""
    order: list[Op] = []
    reaching: set[Op] = set()
    seen: set[Op] = set()
    stack: list[tuple[Op, bool]] = [(root, False)]
    while stack:
        op, ready = stack.pop()
        if ready:
            if op in wanted or not reaching.isdisjoint(sources_of(op)):
                reaching.add(op)
                order.append(op)
        elif op not in seen:
            seen.add(op)
            if op.needs_grad and op not in constant:
                stack.append((op, True))
                stack.extend((s, False) for s in sources_of(op) if s.needs_grad and s not in seen)
    return order, reaching


def source_gradients(op: Op, grad: Op, needed: list[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the sources numbered `needed`, by the row of `rules` that fits `op`.

    Raises:
      GradientError: no row fits, or a row gives a gradient that is not of its source's shape and dtype.
    """
    rule, parts = _apply(op, grad, needed, rules)
    sources = sources_of(op)
    for i, part in zip(needed, parts):
        if part is not None and (part.shape != sources[i].shape or part.dtype is not sources[i].dtype):
            raise GradientError(
                f"backward: row {rule.name!r} of chain_rules gives source {i} of {op.code.value}, {sources[i].dtype} "
                f"{sources[i].shape}, a gradient {part.dtype} {part.shape}."
            )
    return parts


def _apply(op: Op, grad: Op, needed: list[int], rules: PatternMatcher) -> tuple[Rule, list[Op | None]]:
    found = rules.find(op)
    if found is None:
        raise no_rule("backward", op)
    rule, named = found
    if isinstance(rule.action, Derivative):
        by_source = [rule.action.by_source[i] for i in needed]
        return rule, [source(grad, op) if source is not None else None for source in by_source]
    every = rule.action(grad=grad, **named)
    return rule, [every[i] for i in needed]


def no_rule(function: str, op: Op) -> GradientError:
    """Returns the error that names an Op without a row, and the line that made it."""
    name = describe(op)
    made = "".join(f"\n  {name} was made at {line}" for line in lines_of(op)[:1])
    return GradientError(
        f"{function}: {name} has no chain rule.{made}",
        hint=".detach() it if no gradient should flow, or add a row to chain_rules in "
        "picograd/autodiff/chain_rules.py.",
    )


def describe(op: Op) -> str:
    """Returns an Op as an error names it: with its operation where several share an opcode."""
    if op.code is OpCode.OUTPUT:
        return op.src[0].code.value
    several = op.code in (OpCode.REDUCE, OpCode.SCAN, OpCode.SCATTER) and op.arg[0] is not None
    return f"{op.code.value} {op.arg[0].value}" if several else op.code.value
