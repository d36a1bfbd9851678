"""Forward mode on any graph, by any table.

In:    roots, the tangents of some Ops, a table of rows
Out:   for each root its tangent, or None where it does not change
Next:  picograd/autodiff/chain_rules.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from picograd.autodiff.derivative import Kind, SeveralResults, kind_of
from picograd.autodiff.flow import is_differentiable
from picograd.autodiff.reverse import no_rule, reverse, source_gradients
from picograd.ir.build import zeros_like
from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.ir.pattern import PatternMatcher


def forward(roots: Sequence[Op], tangents: Mapping[Op, Op], rules: PatternMatcher) -> list[Op | None]:
    """Returns d root / d x * tangent of x, summed over the Ops x in `tangents`, below which nothing is looked at."""
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
    match = rules.find(op)
    if match is None:
        raise no_rule("jvp", op)
    assert isinstance(match[0].action, SeveralResults), f"row {match[0].name!r} is about one result, {op} has several"
    return match[0].action.forward(op, parts, rules)


def _tangent(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> Op | None:
    """Returns the tangent of `op` from those of its sources (None: the source does not change)."""
    match = rules.find(op)
    if match is None:
        raise no_rule("jvp", op)
    kind = kind_of(match[0], op)
    moving = [(i, part) for i, part in enumerate(parts) if part is not None]
    if kind is Kind.ELEMENTWISE:
        return _sum(source_gradients(op, part, [i], rules)[0] for i, part in moving)
    if kind is Kind.LINEAR:
        return op.replace(src=tuple(_moved(s, part) for s, part in zip(op.src, parts)))
    if kind is Kind.MULTILINEAR:
        return _sum(op.replace(src=(*op.src[:i], part, *op.src[i + 1 :])) for i, part in moving)
    return _transposed_twice(op, moving, rules)


def _moved(source: Op, part: Op | None) -> Op:
    """The source of a linear Op's tangent: an index or a condition stays, what does not change counts as 0."""
    if part is not None:
        return part
    return zeros_like(source) if source.dtype.kind == "f" else source


def _transposed_twice(op: Op, moving: Sequence[tuple[int, Op]], rules: PatternMatcher) -> Op | None:
    """The row computes u -> J^T u, which is linear in u: the gradient of <J^T u, tangent> by u is J tangent."""
    u = Op(OpCode.LEAF, op.dtype, (zeros_like(op),), "u")
    return transposed(u, op, moving, lambda i: source_gradients(op, u, [i], rules)[0], rules)


def transposed(
    u: Op, op: Op, moving: Sequence[tuple[int, Op]], transpose: Callable[[int], Op | None], rules: PatternMatcher
) -> Op | None:
    """Returns the sum of J tangent over the sources that move, from `transpose`, which gives J^T u of a source."""
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
