"""The meaning of MATMUL, CONV, ATTENTION and its gradient, accumulated in float64 and rounded once.

In:    an Op, the arrays of its sources, the values of symbolic integers
Out:   the array of its result (ATTENTION: two, its gradient: three), to be rounded to the Op's dtype
Next:  picograd/evaluator/iterated.py

Integers are multiplied and added in the dtype of the result, where they wrap: exact modulo 2**bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.evaluator.arrays import Rule, Variables, shape_value
from picograd.evaluator.elementwise import Array
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg


def _computing(op: Op, args: Sequence[Array]) -> list[Array]:
    """Returns the operands in the dtype they are contracted in."""
    dtype = np.dtype(np.float64) if op.dtype.is_float else op.dtype.numpy
    return [a.astype(dtype) for a in args]


def _matmul(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    lhs, rhs = _computing(op, args)
    result: Array = np.matmul(lhs, rhs)
    return result


# ---- convolution ----
def _dilated(x: Array, steps: Sequence[int]) -> Array:
    """Returns x (B, C, *spatial) with steps - 1 zeros between neighbours of each spatial axis."""
    spatial = tuple(max(0, (length - 1) * step + 1) for length, step in zip(x.shape[2:], steps))
    result = np.zeros(x.shape[:2] + spatial, x.dtype)
    result[(slice(None), slice(None), *(slice(None, None, step) for step in steps))] = x
    return result


def _padded(x: Array, padding: Sequence[tuple[int, int]]) -> Array:
    """Returns x with zeros around each spatial axis; negative padding crops."""
    lengths = x.shape[2:]
    zeros = [(max(0, before), max(0, after)) for before, after in padding]
    crop = tuple(slice(max(0, -before), length + min(0, after)) for (before, after), length in zip(padding, lengths))
    return np.pad(x[(slice(None), slice(None), *crop)], [(0, 0), (0, 0), *zeros])


def _conv(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    """out[b, o, p] = sum over c, t of x[b, c, p * stride + t * dilation] * w[o, c, t], by groups of channels."""
    x, w = _computing(op, args)
    arg, num_spatial = op.arg, x.ndim - 2
    shape = shape_value(op.shape, variables)
    x = _padded(_dilated(x, arg.input_dilation), arg.padding)
    x = x.reshape(x.shape[0], arg.groups, x.shape[1] // arg.groups, *x.shape[2:])
    w = w.reshape(arg.groups, w.shape[0] // arg.groups, *w.shape[1:])
    result = np.zeros((shape[0], arg.groups, w.shape[1], *shape[2:]), x.dtype)
    for tap in np.ndindex(*w.shape[3:]):
        start = [tap[i] * arg.dilation[i] for i in range(num_spatial)]
        span = [(shape[2 + i] - 1) * arg.stride[i] + 1 for i in range(num_spatial)]
        window = tuple(slice(start[i], start[i] + span[i], arg.stride[i]) for i in range(num_spatial))
        taken = x[(slice(None), slice(None), slice(None), *window)]  # (B, groups, C, *spatial)
        columns = taken.reshape(*taken.shape[:3], math.prod(shape[2:]))
        result += np.matmul(w[(..., *tap)], columns).reshape(result.shape)
    return result.reshape(shape)


# ---- attention ----
def visible(num_queries: int, num_keys: int, causal: bool, window: int) -> Array:
    """Returns (T, S) bool: which keys each position sees.

    A query stands at t + S - T. Causal: it sees nothing after itself. window: it sees the last `window` positions, its
    own among them; 0 is everything.
    """
    position = np.arange(num_queries)[:, None] + num_keys - num_queries
    key = np.arange(num_keys)[None, :]
    seen = np.ones((num_queries, num_keys), np.bool_)
    if causal:
        seen &= key <= position
    if window:
        seen &= key > position - window
    return seen


def _of_all_heads(args: Sequence[Array]) -> list[Array]:
    """Returns the operands of an attention, k and v repeated for the heads that share them."""
    q, k, v, *rows = (a.astype(np.float64) for a in args)
    heads = q.shape[1] // k.shape[1]
    return [q, np.repeat(k, heads, axis=1), np.repeat(v, heads, axis=1), *rows]


def _scores(q: Array, k: Array, arg: AttentionArg) -> tuple[Array, Array]:
    """Returns the scores (B, H, T, S), capped, and which of them are visible (T, S)."""
    scores = np.matmul(q, k.swapaxes(-1, -2)) * arg.scale
    if arg.soft_cap:
        scores = arg.soft_cap * np.tanh(scores / arg.soft_cap)
    return scores, visible(q.shape[2], k.shape[2], arg.causal, arg.window)


def _attention(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Any, Any]:
    """softmax(mask(cap(scale * q k))) v and the logarithm of its denominator; a row that sees nothing is 0 and -inf.

    A mask of bools is True for keys that take part; one of floats is added to the scores.
    """
    q, k, v = _of_all_heads(args[:3])
    scores, seen = _scores(q, k, op.arg)
    for mask in args[3:]:
        seen, scores = (seen & mask, scores) if mask.dtype == np.bool_ else (seen, scores + mask.astype(np.float64))
    scores = np.where(seen, scores, -np.inf)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(peak), 0.0, peak))
    total = weights.sum(axis=-1, keepdims=True)
    out = np.matmul(weights, v) / np.where(total == 0, 1.0, total)
    return out, (peak + np.log(total))[..., 0]


def _attention_grad(op: Op, args: Sequence[Array], variables: Variables) -> tuple[Any, ...]:
    """The gradients of q, k and v, as ir/attention.py gives them; k and v sum over the heads that share them."""
    q, k, v, grad, logsumexp, delta = _of_all_heads(args)
    scores, seen = _scores(q, k, op.arg)
    weights = np.exp(np.where(seen, scores - logsumexp[..., None], -np.inf))
    slopes = weights * (np.matmul(grad, v.swapaxes(-1, -2)) - delta[..., None])
    if op.arg.soft_cap:
        slopes *= 1 - (scores / op.arg.soft_cap) ** 2
    slopes *= op.arg.scale
    of_heads = np.matmul(slopes.swapaxes(-1, -2), q), np.matmul(weights.swapaxes(-1, -2), grad)
    B, G, *_ = args[1].shape
    split = (x.reshape(B, G, q.shape[1] // G, *x.shape[2:]) for x in of_heads)  # (B, G, R, S, D or E)
    return np.matmul(slopes, k), *(x.sum(axis=2) for x in split)


CONTRACTION_RULES: dict[OpCode, Rule] = {
    OpCode.MATMUL: _matmul,
    OpCode.CONV: _conv,
    OpCode.ATTENTION: _attention,
    OpCode.ATTENTION_GRAD: _attention_grad,
}
