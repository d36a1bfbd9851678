"""The gradient of ATTENTION as a composition of MATMULs and elementwise Ops that recomputes the scores.

In:    an ATTENTION and the gradients of its results
Out:   the gradients of q, k and v
Next:  picograd/autodiff/split.py

S = scale q k^T, capped: C = cap tanh(S / cap); P = exp(C - L) where visible, L the logsumexp; O = P v.
dv = P^T dO;  dP = dO v^T;  dC = P (dP - rowsum(dO O)) + P dL;  dS = dC (1 - (C / cap)^2);  dq = scale dS k.
Source: Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135, appendix B.2. H = G R heads: R of them share k and v, so
they stand as R T rows of one matrix. No function of Tensor builds an ATTENTION yet: see ir/opcode.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from picograd.autodiff.forward import transposed
from picograd.dtype import DType
from picograd.ir.build import (
    both,
    cast,
    compare,
    positions,
    reduce,
    repeat_axes,
    reshape,
    static_shape,
    swap_last,
    unary,
    where,
    zeros_like,
)
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import PatternMatcher
from picograd.ir.shape import AttentionArg


def _dtype(attention: Op) -> DType:
    return attention.dtype.compute_dtype


def _matmul(lhs: Op, rhs: Op) -> Op:
    return Op(OpCode.MATMUL, lhs.dtype, (lhs, rhs))


def _grouped(x: Op, attention: Op) -> Op:
    """Returns x (B, H, T, ...) as (B, G, R T, ...) in the dtype that is computed in."""
    B, H, T, *rest = static_shape(x.shape)
    G = static_shape(attention.src[1].shape)[1]
    rows = H // G * T
    return cast(reshape(x, (B, G, rows, *rest)), _dtype(attention))


def _visible(arg: AttentionArg, T: int, S: int, shape: tuple[int, ...]) -> Op | None:
    """Returns which keys each row sees, over (B, G, R T, S); None: all."""
    if not arg.causal and not arg.window:
        return None
    B, G, rows, _ = shape
    full = (B, G, rows // T, T, S)
    position, key = positions(full, 3) + (S - T), positions(full, 4)
    parts: list[Op] = []
    if arg.causal:
        parts.append(compare(OpCode.CMPLE, key, position))
    if arg.window:
        parts.append(compare(OpCode.CMPLT, position, key + arg.window))
    return reshape(parts[0] if len(parts) == 1 else both(*parts), shape)


def _weights(attention: Op) -> tuple[Op, Op | None]:
    """Returns P (B, G, R T, S), and tanh(S / cap) where the scores are capped."""
    q, k, _ = attention.src
    arg: AttentionArg = attention.arg
    dtype = _dtype(attention)
    scores = _matmul(_grouped(q, attention), swap_last(cast(k, dtype))) * arg.scale
    bent = None
    if arg.soft_cap:
        bent = unary(OpCode.TANH, scores / arg.soft_cap)
        scores = bent * arg.soft_cap
    logsumexp = _grouped(Op(OpCode.OUTPUT, dtype, (attention,), 1), attention)
    difference = scores - repeat_axes(logsumexp, (3,), scores.shape)
    seen = _visible(arg, static_shape(q.shape)[2], static_shape(k.shape)[2], static_shape(scores.shape))
    if seen is not None:
        difference = where(seen, difference, filled(float("-inf"), dtype, scores.shape))
    return unary(OpCode.EXP, difference), bent


def _scores_grad(attention: Op, grads: Mapping[int, Op]) -> Op:
    """Returns scale dS, (B, G, R T, S), from the gradients of the output (0) and of the logsumexp (1)."""
    weights, bent = _weights(attention)
    parts: list[Op] = []
    if 0 in grads:
        grad = _grouped(grads[0], attention)
        result = _grouped(Op(OpCode.OUTPUT, attention.dtype, (attention,), 0), attention)
        towards = _matmul(grad, swap_last(cast(attention.src[2], weights.dtype)))
        mean = repeat_axes(reduce(grad * result, OpCode.ADD, (3,)), (3,), weights.shape)
        parts.append(weights * (towards - mean))
    if 1 in grads:
        parts.append(weights * repeat_axes(_grouped(grads[1], attention), (3,), weights.shape))
    through = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    if bent is not None:
        through = through * (bent.filled(1) - bent * bent)
    scale: float = attention.arg.scale
    return through * scale


def _grad_q(attention: Op, grads: Mapping[int, Op]) -> Op:
    """dq = scale dS k."""
    q, k, _ = attention.src
    scores = _scores_grad(attention, grads)
    return cast(reshape(_matmul(scores, cast(k, scores.dtype)), q.shape), q.dtype)


def _grad_k(attention: Op, grads: Mapping[int, Op]) -> Op:
    """dk = scale dS^T q, summed over the heads that share k."""
    q, k, _ = attention.src
    return cast(_matmul(swap_last(_scores_grad(attention, grads)), _grouped(q, attention)), k.dtype)


def _grad_v(attention: Op, grads: Mapping[int, Op]) -> Op | None:
    """dv = P^T dO; the logsumexp does not depend on v."""
    if 0 not in grads:
        return None
    return cast(_matmul(swap_last(_weights(attention)[0]), _grouped(grads[0], attention)), attention.src[2].dtype)


def attention_reverse(
    attention: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher
) -> list[Op | None]:
    """Returns the gradients of those of q, k, v that are needed."""
    return [(_grad_q, _grad_k, _grad_v)[i](attention, grads) for i in needed]


def attention_forward(attention: Op, parts: Sequence[Op | None], rules: PatternMatcher) -> list[Op | None]:
    """Returns the tangents of the output and of the logsumexp."""
    moving = [(i, part) for i, part in enumerate(parts) if part is not None]
    results: list[Op | None] = []
    for number, dtype in enumerate((attention.dtype, _dtype(attention))):
        out = Op(OpCode.OUTPUT, dtype, (attention,), number)
        u = Op(OpCode.LEAF, dtype, (zeros_like(out),), "u")
        results.append(transposed(u, attention, moving, partial(_pulled, attention, number, u), rules))
    return results


def _pulled(attention: Op, number: int, u: Op, source: int) -> Op | None:
    return (_grad_q, _grad_k, _grad_v)[source](attention, {number: u})
