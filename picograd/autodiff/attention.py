"""The gradient of ATTENTION as a composition of MATMULs and elementwise Ops that recomputes the scores.

In:    the incoming gradient `grad` of one of its two results, and that OUTPUT `out`
Out:   the gradient of q, k or v
Next:  picograd/autodiff/gradient.py

S = scale q k^T, capped: C = cap tanh(S / cap); P = exp(C - L) where visible, L the logsumexp; O = P v.
dv = P^T dO;  dP = dO v^T;  dC = P (dP - rowsum(dO O)) + P dL;  dS = dC (1 - (C / cap)^2);  dq = scale dS k.
Source: Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135, appendix B.2. H = G R heads: R of them share k and v, so
they stand as R T rows of one matrix.
"""

from __future__ import annotations

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
)
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg


def _dtype(out: Op) -> DType:
    return out.src[0].dtype.wide


def _matmul(lhs: Op, rhs: Op) -> Op:
    return Op(OpCode.MATMUL, lhs.dtype, (lhs, rhs))


def _grouped(x: Op, out: Op) -> Op:
    """Returns x (B, H, T, ...) as (B, G, R T, ...) in the dtype that is computed in."""
    B, H, T, *rest = static_shape(x.shape)
    G = static_shape(out.src[0].src[1].shape)[1]
    rows = H // G * T
    return cast(reshape(x, (B, G, rows, *rest)), _dtype(out))


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


def _weights(out: Op) -> tuple[Op, Op | None]:
    """Returns P (B, G, R T, S), and tanh(S / cap) where the scores are capped."""
    attention = out.src[0]
    q, k, _ = attention.src
    arg: AttentionArg = attention.arg
    dtype = _dtype(out)
    scores = _matmul(_grouped(q, out), swap_last(cast(k, dtype))) * arg.scale
    bent = None
    if arg.soft_cap:
        bent = unary(OpCode.TANH, scores / arg.soft_cap)
        scores = bent * arg.soft_cap
    logsumexp = _grouped(Op(OpCode.OUTPUT, dtype, (attention,), 1), out)
    difference = scores - repeat_axes(logsumexp, (3,), scores.shape)
    seen = _visible(arg, static_shape(q.shape)[2], static_shape(k.shape)[2], static_shape(scores.shape))
    if seen is not None:
        difference = where(seen, difference, filled(float("-inf"), dtype, scores.shape))
    return unary(OpCode.EXP, difference), bent


def _scores_grad(grad: Op, out: Op) -> Op:
    """Returns scale dS, (B, G, R T, S)."""
    attention = out.src[0]
    weights, bent = _weights(out)
    grad = _grouped(grad, out)
    if out.arg == 0:
        result = _grouped(Op(OpCode.OUTPUT, attention.dtype, (attention,), 0), out)
        towards = _matmul(grad, swap_last(cast(attention.src[2], weights.dtype)))
        mean = repeat_axes(reduce(grad * result, OpCode.ADD, (3,)), (3,), weights.shape)
        through = weights * (towards - mean)
    else:
        through = weights * repeat_axes(grad, (3,), weights.shape)
    if bent is not None:
        through = through * (bent._other(1) - bent * bent)
    scale: float = attention.arg.scale
    return through * scale


def attention_q(grad: Op, out: Op) -> Op:
    """dq = scale dS k."""
    q, k, _ = out.src[0].src
    scores = _scores_grad(grad, out)
    return cast(reshape(_matmul(scores, cast(k, scores.dtype)), q.shape), q.dtype)


def attention_k(grad: Op, out: Op) -> Op:
    """dk = scale dS^T q, summed over the heads that share k."""
    q, k, _ = out.src[0].src
    return cast(_matmul(swap_last(_scores_grad(grad, out)), _grouped(q, out)), k.dtype)


def attention_v(grad: Op, out: Op) -> Op | None:
    """dv = P^T dO; the logsumexp does not depend on v."""
    if out.arg == 1:
        return None
    return cast(_matmul(swap_last(_weights(out)[0]), _grouped(grad, out)), out.src[0].src[2].dtype)
