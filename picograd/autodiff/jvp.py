"""Forward mode: how roots change along given tangents, from the same table as reverse mode.

In:    roots, and the tangents of some Ops
Out:   for each root its tangent, or None where it does not change
Next:  picograd/autodiff/counts.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.derivative import Kind, kind_of, sources_of
from picograd.autodiff.gradient import gradient, no_rule, source_gradients
from picograd.errors import GradientError
from picograd.ir.build import zeros_like
from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import PatternMatcher


def jvp(roots: Iterable[Op], tangents: Mapping[Op, Op], rules: PatternMatcher = chain_rules) -> list[Op | None]:
    """Returns d root / d x * tangent of x, summed over the Ops x in `tangents`.

    Args:
      roots:     any shapes
      tangents:  Op -> its tangent, of its shape and dtype; the graph below such an Op is not looked at
      rules:     the derivative table

    Raises:
      GradientError: an Op that changes has no row in `rules`.

    >>> x = Op(OpCode.BUFFER, dtypes.float32, (), ("x", ()))
    >>> jvp([x * x], {x: const(1.0, dtypes.float32)})
    [<ADD float32 ()>]
    """
    roots = list(roots)
    for op, tangent in tangents.items():
        if tangent.shape != op.shape or tangent.dtype is not op.dtype:
            raise GradientError(f"jvp: the tangent is {tangent.dtype} {tangent.shape}, its Op {op.dtype} {op.shape}.")
    found: dict[Op, Op] = dict(tangents)
    for op in toposort(roots, stop=tangents):
        if op in found or op.dtype.kind != "f":
            continue
        parts = [found.get(s) for s in sources_of(op)]
        change = _tangent(op, parts, rules) if any(part is not None for part in parts) else None
        if change is not None:
            copy_lines(op, change)
            found[op] = change
    return [found.get(root) for root in roots]


def _tangent(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> Op | None:
    """Returns the tangent of `op` from those of its sources (None: the source does not change)."""
    match = rules.find(op)
    if match is None:
        if op.code in SEVERAL_RESULTS:
            return None  # each OUTPUT has its own
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
    constant = {op, *sources_of(op)}
    results: list[Op | None] = []
    for i, part in moving:
        transposed = source_gradients(op, u, [i], rules)[0]
        if transposed is not None:
            results.append(gradient(transposed, part, [u], rules, constant).get(u))
    return _sum(results)


def _sum(parts: Iterable[Op | None]) -> Op | None:
    total: Op | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else Op(OpCode.ADD, part.dtype, (total, part))
    return total


SEVERAL_RESULTS = frozenset({OpCode.ATTENTION, OpCode.CALL, OpCode.LOOP})
