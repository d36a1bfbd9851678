"""The derivatives of ATTENTION and ATTENTION_GRAD.

In:    one of them, and gradients of its results or tangents of its sources
Out:   gradients of its sources, tangents of its results
Next:  picograd/autodiff/custom.py

The gradient of ATTENTION is one ATTENTION_GRAD, which needs no scores in memory. All other derivatives are those of what
both are composed of (ir/attention.py), as a body that computes the scores again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from picograd.autodiff.bodies import body_gradients, call_forward, call_reverse, sink
from picograd.autodiff.split import RECOMPUTE
from picograd.ir.attention import composed, outputs
from picograd.ir.build import cast, reduce, zeros_like
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import PatternMatcher
from picograd.ir.substitute import param, substitute


def attention_reverse(
    attention: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher
) -> list[Op | None]:
    """Returns the gradients of those of q, k, v that are needed; v has none from the logsumexp.

    Those of a masked one, among which may be that of the mask itself, are the composition's.
    """
    if len(attention.src) > 3:
        return _masked_reverse(attention, grads, needed, rules)
    out, logsumexp = outputs(attention)
    grad = grads.get(0, zeros_like(out))
    made = Op(OpCode.ATTENTION_GRAD, attention.dtype, (*attention.src, grad, logsumexp, _delta(out, grads)), attention.arg)
    results = outputs(made)
    return [None if i == 2 and 0 not in grads else results[i] for i in needed]


def _masked_reverse(
    attention: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher
) -> list[Op | None]:
    """Returns the gradients of what an ATTENTION is composed of, which shares its scores where no kernel computes it."""
    params = [param(s, slot) for slot, s in enumerate(attention.src)]
    roots = composed(attention.replace(tuple(params)))
    seeds = {number: param(roots[number], len(params) + number) for number in grads}
    found = body_gradients(roots, seeds, [params[i] for i in needed], rules)
    given = dict(zip([*params, *seeds.values()], [*attention.src, *grads.values()], strict=True))
    made = dict(zip(found, substitute(list(found.values()), given), strict=True))
    return [made.get(params[i]) for i in needed]


def _delta(out: Op, grads: Mapping[int, Op]) -> Op:
    """Returns rowsum(dO O) - dL, (B, H, T) in the dtype that is computed in."""
    dtype = out.dtype.compute_dtype
    if 0 not in grads:
        return -grads[1]
    mean = reduce(cast(grads[0], dtype) * cast(out, dtype), OpCode.ADD, (3,))
    return mean - grads[1] if 1 in grads else mean


def composed_reverse(op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
    """Returns the gradients of the sources that are needed, by those of the composition."""
    return call_reverse(_as_call(op), grads, needed, rules)


def composed_forward(op: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the results, by those of the composition."""
    return call_forward(_as_call(op), parts, rules)


def _as_call(op: Op) -> Op:
    """Returns an ATTENTION or an ATTENTION_GRAD as a CALL of what it is composed of, computed again by derivatives."""
    body = sink(composed(op.replace(tuple(param(s, slot) for slot, s in enumerate(op.src)))), RECOMPUTE)
    return Op(OpCode.CALL, body.dtype, op.src, body)
