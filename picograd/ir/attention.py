"""Attention as MATMULs, reductions and elementwise Ops: for its higher derivatives, and for devices without a kernel of it.

In:    an ATTENTION or an ATTENTION_GRAD
Out:   `composed`: its results as graphs of other Ops;  `outputs`: its results as they are;  `lengths`;
       `with_rows_of_a_head`
Next:  picograd/ir/attention_parts.py

C = cap tanh(scale q k^T / cap), or scale q k^T, plus a mask of floats (B, H, T, S); visible is what causal and window say,
and where a mask of bools is True. L = log(sum(exp(C))), over what is visible; P = exp(C - L); O = P v.
dv = P^T dO;  dP = dO v^T;  dC = P (dP - delta);  dS = scale dC (1 - (C / cap)^2);  dq = dS k;  dk = dS^T q.
delta = rowsum(dO O) - dL stands for all that a row sends back.
Source: Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135, appendix B.2. Letters: B batch, H = G R heads, R of which share
k and v, T queries, S keys, D and E features. Heads that share keys stand as R T rows of one matrix. B, T and S may be
symbolic. All is computed in the dtype that narrow floats are computed in, and rounded once.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.ir.build import (
    both,
    cast,
    compare,
    expand,
    positions,
    reduce,
    repeat_axes,
    reshape,
    static_shape,
    swap_last,
    unary,
    where,
)
from picograd.ir.matrices import product
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.symbolic import mul, subtract, to_op

NOTHING = float("-inf")  # the score of a key that is not visible, and the logsumexp of a row that sees none


def outputs(op: Op) -> list[Op]:
    """Returns the OUTPUTs of an ATTENTION or an ATTENTION_GRAD."""
    first, wide = op.dtype, op.dtype.compute_dtype
    dtypes = (first, wide) if op.code is OpCode.ATTENTION else (first, first, first)
    return [Op(OpCode.OUTPUT, dtype, (op,), number) for number, dtype in enumerate(dtypes)]


def lengths(op: Op) -> tuple[int, int, int, int, int, int]:
    """Returns H, G, T, S, D and E of an ATTENTION or an ATTENTION_GRAD; all of them must be known."""
    (_, heads, queries, features), (_, groups, keys, _), (*_, values) = (s.shape for s in op.src[:3])
    H, G, T, S, D, E = static_shape((heads, groups, queries, keys, features, values))
    return H, G, T, S, D, E


def with_rows_of_a_head(op: Op) -> Op:
    """Returns an ATTENTION or ATTENTION_GRAD whose heads that share keys stand as the queries of one head.

    Its results lie in memory as those of `op` do. Queries must have no places among the keys: neither causal, nor a window.
    """
    B, G, R, T, _ = _extents(op)
    src = [x if i in (1, 2) else reshape(x, (B, G, mul(R, T), *x.shape[3:])) for i, x in enumerate(op.src)]
    return op.replace(tuple(src))


def composed(op: Op) -> list[Op]:
    """Returns what computes each result of an ATTENTION or an ATTENTION_GRAD; what they share is one Op."""
    results = _averages(op) if op.code is OpCode.ATTENTION else _gradients(op)
    return [cast(reshape(x, like.shape), like.dtype) for x, like in zip(results, outputs(op))]


def _averages(attention: Op) -> list[Op]:
    """Returns O (B, G, R T, E) and L (B, G, R T); of a row that sees nothing 0 and -inf, without a NaN on the way."""
    q, k, v, *masks = _grouped(attention)
    arg: AttentionArg = attention.arg
    scores = _visible(_scores(q, k, arg)[0], attention)
    for mask in masks:
        scores = where(mask, scores, NOTHING) if mask.dtype is dtypes.bool_ else scores + mask
    greatest = unary(OpCode.DETACH, reduce(scores, OpCode.MAX, (3,)))
    greatest = where(compare(OpCode.CMPEQ, greatest, NOTHING), 0.0, greatest)
    powers = unary(OpCode.EXP, scores - _along(greatest, scores))
    total = reduce(powers, OpCode.ADD, (3,))
    sees_none = compare(OpCode.CMPEQ, total, 0.0)
    total = where(sees_none, 1.0, total)
    weights = powers * _along(unary(OpCode.RECIPROCAL, total), powers)
    return [product(weights, v), where(sees_none, NOTHING, greatest + unary(OpCode.LOG, total))]


def _gradients(gradient: Op) -> list[Op]:
    """Returns dq (B, G, R T, D), dk and dv, the latter summed over the heads that share k and v."""
    q, k, v, grad, logsumexp, delta = _grouped(gradient)
    arg: AttentionArg = gradient.arg
    scores, bent = _scores(q, k, arg)
    # Masked at last: where a row sees nothing, the difference is infinite.
    weights = unary(OpCode.EXP, _visible(scores - _along(logsumexp, scores), gradient))
    slopes = weights * (product(grad, swap_last(v)) - _along(delta, scores))
    if bent is not None:
        slopes = slopes * (bent.filled(1) - bent * bent)
    slopes = slopes * arg.scale
    return [product(slopes, k), product(swap_last(slopes), q), product(swap_last(weights), grad)]


def _extents(op: Op) -> tuple[Dim, int, int, Dim, Dim]:
    """Returns B, G, R, T and S."""
    q, k = op.src[0].shape, op.src[1].shape
    H, G = static_shape((q[1], k[1]))
    return q[0], G, H // G, q[2], k[2]


def _grouped(op: Op) -> list[Op]:
    """Returns the sources in the dtype that is computed in, those of H heads (B, H, T, ...) as (B, G, R T, ...)."""
    found = with_rows_of_a_head(op).src
    return [x if x.dtype is dtypes.bool_ else cast(x, op.dtype.compute_dtype) for x in found]


def _scores(q: Op, k: Op, arg: AttentionArg) -> tuple[Op, Op | None]:
    """Returns C (B, G, R T, S), as if everything were visible, and C / cap where there is a cap."""
    scores = product(q, swap_last(k)) * arg.scale
    if not arg.soft_cap:
        return scores, None
    bent = unary(OpCode.TANH, scores / arg.soft_cap)
    return bent * arg.soft_cap, bent


def _visible(scores: Op, op: Op) -> Op:
    """Returns scores (B, G, R T, S), -inf where the position does not see the key."""
    arg: AttentionArg = op.arg
    if not arg.causal and not arg.window:
        return scores
    heads = _extents(op)  # (B, G, R, T, S)
    T, S = heads[3:]
    position, key = positions(heads, 3) + expand(to_op(subtract(S, T)), heads), positions(heads, 4)
    seen: list[Op] = []
    if arg.causal:
        seen.append(compare(OpCode.CMPLE, key, position))
    if arg.window:
        seen.append(compare(OpCode.CMPLT, position, key + arg.window))
    return where(reshape(seen[0] if len(seen) == 1 else both(*seen), scores.shape), scores, NOTHING)


def _along(rows: Op, scores: Op) -> Op:
    """Returns a value for each row (B, G, R T) at each of its scores."""
    return repeat_axes(rows, (3,), scores.shape)
