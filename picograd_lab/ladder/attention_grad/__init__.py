"""The ladder of attention's gradients on a GPU: stored scores, recomputed scores, matrix instructions.

In:    the lengths of attention
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.attention import outputs
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder import attention as forward
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung
from picograd_lab.ladder.rules import all_of, at_most, per, roundings, tiles, together, whole
from picograd_lab.ladder.runnable import Array


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns q, k, v, the result o, its gradient g, and the forward pass's log-sum-exp; o, g and the last are float32."""
    q, k, v = forward.operands(lengths, rng)
    o, lse = (array.astype(np.float32) for array in forward.attention(lengths, q, k, v))
    gradient: Array = np.asarray(rng.standard_normal(q.shape))
    return q, k, v, o, gradient, lse


def parts(lengths: Lengths, q: Array, k: Array, v: Array, o: Array, g: Array, lse: Array) -> tuple[Array, Array]:
    """Returns the weights, exp(score - lse), and the factors g v - g o that turn them into gradients of scores."""
    weights = np.exp(forward.scores_of(lengths, q, k) - lse[..., None])
    return weights, g @ forward.of_heads(lengths, v).transpose(0, 2, 1) - (g * o).sum(axis=2, keepdims=True)


def gradients(lengths: Lengths, slopes: Array, weights: Array, q: Array, k: Array, g: Array) -> tuple[Array, ...]:
    """Returns slopes @ k and slopes.T @ q, divided by sqrt(D), and weights.T @ g, summed over the heads of a group."""
    shape, root = (lengths["KV_HEADS"], -1, lengths["T"], lengths["D"]), np.sqrt(lengths["D"])
    dk, dv = (matrix.transpose(0, 2, 1) @ other for matrix, other in ((slopes, q), (weights, g)))
    return slopes @ forward.of_heads(lengths, k) / root, dk.reshape(shape).sum(axis=1) / root, dv.reshape(shape).sum(axis=1)


def meaning(lengths: Lengths, *given: Array) -> tuple[Array, ...]:
    """Returns the gradients of q, k and v."""
    q, k, _, _, g, _ = given
    weights, factors = parts(lengths, *given)
    return gradients(lengths, weights * factors, weights, q, k, g)


def bound(lengths: Lengths, roundoff: float, *given: Array) -> tuple[Array, ...]:
    """Returns the gradients' formulas on the errors of weights and slopes, plus the roundings of their own sums.

    The relative error of a weight comes from twice the error of its score (see attention's bound) and from lse; a slope
    has this error plus those of its two products. u is the roundoff of both in memory; the least float16 is 2**-25.
    """
    q, k, v, o, g, lse = (np.abs(array) for array in given)
    one, all_of_them = 2.0**-24, {**lengths, "CAUSAL": 0}
    of_product = 2 * roundings(lengths["D"] + 4, one)
    magnitudes = forward.scores_of(all_of_them, q, k)
    weights, factors = parts(lengths, *given)
    part = 2 * (of_product + 8 * one) * magnitudes + 8 * one * (1 + lse[..., None]) + roundoff
    part = part + roundings(2 * lengths["T"] * lengths["HEADS"] + 8, one)
    of_factors = of_product * (g @ forward.of_heads(lengths, v).transpose(0, 2, 1) + (g * o).sum(axis=2, keepdims=True))
    least = 2.0**-25 * (roundoff > one)
    slopes = weights * (np.abs(factors) * part + of_factors * 2) + least
    return gradients(lengths, slopes, weights * part + least, q, k, g)


def own(lengths: Lengths, q: Tensor, k: Tensor, v: Tensor, o: Tensor, g: Tensor, lse: Tensor) -> tuple[Tensor, ...]:
    """Returns the gradients of the backward pass, from the results of the forward pass."""
    (averages,) = forward.own(lengths, q, k, v)
    (attention,) = (op for op in toposort([averages.op]) if op.code is OpCode.ATTENTION)
    delta = (g.float() * o).sum(-1)
    rows = [each.unsqueeze(0).op for each in (g, lse, delta)]
    gradients = Op(OpCode.ATTENTION_GRAD, attention.dtype, (*attention.src, *rows), attention.arg)
    return tuple(Tensor.from_op(out, q.device) for out in outputs(gradients))


# ---- memory between kernels ----
def rows(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for a number per row."""
    return ((dtypes.float32, lengths["HEADS"] * lengths["T"]),)


def squares(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for a number per row, and for weights and slopes of all scores."""
    return (*rows(lengths), *(2 * forward.squares(lengths)))


DELTAS = per("deltas", "HEADS T", 8, 256)
LADDER = Ladder(
    folder=Path(__file__).parent,
    does="gradients of softmax(q @ k.T / sqrt(D)) @ v",
    lengths=forward.LADDER.lengths,
    inputs=operands,
    meaning=meaning,
    bound=bound,
    flops=lambda lengths: 5 * forward.flops(lengths) // 2,
    switches=forward.LADDER.switches,
    tensors=own,
    rungs=(
        Rung(
            "01_naive.cu",
            together(
                DELTAS,
                per("slope", "HEADS T T", 256, 256),
                per("queries", "HEADS T D", 256, 256),
                per("keys", "KV_HEADS T D", 256, 256),
            ),
            forward.grouped,
            scratch=squares,
        ),
        Rung(
            "02_recomputed.cu",
            together(
                DELTAS, tiles("queries", 128, ("HEADS", 1), ("T", 16)), tiles("keys", 128, ("KV_HEADS", 1), ("T", 16))
            ),
            all_of(forward.grouped, at_most("D", 128)),
            scratch=rows,
        ),
        Rung(
            "03_mma.cu",
            together(
                DELTAS, tiles("queries", 128, ("HEADS", 1), ("T", 64)), tiles("keys", 128, ("KV_HEADS", 1), ("T", 64))
            ),
            all_of(forward.grouped, whole("D", 16), at_most("D", 128)),
            dtypes.float16,
            forward.HALF,
            80,
            rows,
        ),
    ),
)
