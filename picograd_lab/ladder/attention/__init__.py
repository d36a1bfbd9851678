"""The ladder of attention on a GPU: from stored scores to products by matrix instructions, with O(T) memory.

In:    lengths HEADS, KV_HEADS (fewer for grouped queries), T, D; CAUSAL, 1 or 0
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.nn.functional import scaled_dot_product_attention
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung, ceil_div
from picograd_lab.ladder.rules import all_of, at_most, per, roundings, tiles, together, whole
from picograd_lab.ladder.runnable import Array

HALF = 2.0**-11  # roundoff of float16


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns q (HEADS, T, D), k and v (KV_HEADS, T, D)."""
    heads, kv_heads, rows, width = (lengths[name] for name in ("HEADS", "KV_HEADS", "T", "D"))
    shapes = ((heads, rows, width), (kv_heads, rows, width), (kv_heads, rows, width))
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    return 2 * q, k, v


def of_heads(lengths: Lengths, x: Array) -> Array:
    """Returns x (KV_HEADS, ...) repeated for each head."""
    return np.repeat(x, ceil_div(lengths["HEADS"], lengths["KV_HEADS"]), axis=0)[: lengths["HEADS"]]


def scores_of(lengths: Lengths, q: Array, k: Array) -> Array:
    """Returns q @ k.T / sqrt(D) of each head; -inf right of the diagonal if causal."""
    scores = q @ of_heads(lengths, k).transpose(0, 2, 1) / np.sqrt(lengths["D"])
    return np.where(np.tri(lengths["T"], dtype=bool), scores, -np.inf) if lengths["CAUSAL"] else scores


def attention(lengths: Lengths, q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """Returns softmax(scores) @ v, and the log-sum-exp of each row."""
    scores = scores_of(lengths, q, k)
    greatest = scores.max(axis=2, keepdims=True)
    powers = np.exp(scores - greatest)
    total = powers.sum(axis=2, keepdims=True)
    return powers / total @ of_heads(lengths, v), (greatest + np.log(total))[..., 0]


def bound(lengths: Lengths, roundoff: float, q: Array, k: Array, v: Array) -> tuple[Array, ...]:
    """Returns (2 e + g(8 T + 20) + u) (weights @ |v|), and e + g(8 T + 20) (1 + |lse|) for the log-sum-exp.

    e is the largest error of a score in the row, 2 g(D + 4) |q| @ |k|.T / sqrt(D): a matrix instruction may truncate its
    sums. Sums are float32; u is the roundoff of a stored weight; float16 stores weights down to 2**-25 of the largest.
    """
    rows, one = lengths["T"], 2.0**-24
    magnitudes = scores_of({**lengths, "CAUSAL": 0}, np.abs(q), np.abs(k))
    error = 2 * roundings(lengths["D"] + 4, one) * magnitudes.max(axis=2, keepdims=True)
    result, logarithms = attention(lengths, q, k, np.abs(v))
    sums = roundings(8 * rows + 20, one)
    least = 2.0**-25 * of_heads(lengths, np.abs(v).sum(axis=1, keepdims=True)) * (roundoff > one)
    return (2 * error + sums + roundoff) * result + least, error[..., 0] + sums * (1 + np.abs(logarithms))


def results(lengths: Lengths) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the result and of its log-sum-exp."""
    heads, rows, width = lengths["HEADS"], lengths["T"], lengths["D"]
    return (heads, rows, width), (heads, rows)


def flops(lengths: Lengths) -> int:
    """Returns the operations of the two products; about half of them if causal."""
    heads, rows, width = lengths["HEADS"], lengths["T"], lengths["D"]
    return 4 * heads * width * (rows * (rows + 1) // 2 if lengths["CAUSAL"] else rows * rows)


def own(lengths: Lengths, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    """Returns the attention, without its log-sum-exp."""
    q, k, v = (each.unsqueeze(0) for each in (q, k, v))
    is_causal, is_grouped = bool(lengths["CAUSAL"]), lengths["HEADS"] > lengths["KV_HEADS"]
    return (scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=is_grouped),)


# ---- rules ----
def grouped(lengths: Lengths) -> str:
    """Returns "" if the heads are a multiple of KV_HEADS."""
    return "" if lengths["HEADS"] % lengths["KV_HEADS"] == 0 else "HEADS must be a multiple of KV_HEADS"


def squares(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for the scores of all heads."""
    return ((dtypes.float32, lengths["HEADS"] * lengths["T"] ** 2),)


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="o = softmax(q @ k.T / sqrt(D)) @ v",
    lengths={"HEADS": 4, "KV_HEADS": 2, "T": 128, "D": 64, "CAUSAL": 1},
    inputs=operands,
    meaning=attention,
    bound=bound,
    flops=flops,
    switches=("CAUSAL",),
    tensors=own,
    axes=("HEADS T D", "KV_HEADS T D", "KV_HEADS T D"),
    results=results,
    rungs=(
        Rung(
            "01_naive.cu",
            together(
                per("scores", "HEADS T T", 256, 256),
                per("softmax", "HEADS T", 8, 256),
                per("weighted", "HEADS T D", 256, 256),
            ),
            grouped,
            scratch=squares,
        ),
        Rung(
            "02_tiled.cu",
            together(
                tiles("scores", 256, ("HEADS", 1), ("T", 16), ("T", 16)),
                per("softmax", "HEADS T", 8, 256),
                tiles("weighted", 256, ("HEADS", 1), ("T", 16), ("D", 16)),
            ),
            grouped,
            scratch=squares,
        ),
        Rung("03_online.cu", tiles("online", 128, ("HEADS", 1), ("T", 32)), all_of(grouped, at_most("D", 128))),
        Rung(
            "04_async_copies.cu",
            tiles("async_copies", 128, ("HEADS", 1), ("T", 32)),
            all_of(grouped, whole("D", 4), at_most("D", 112)),  # three tiles and the weights fill 48 KiB
            oldest=80,
        ),
        Rung(
            "05_mma.cu",
            tiles("mma", 128, ("HEADS", 1), ("T", 64)),
            all_of(grouped, whole("D", 16), at_most("D", 128)),
            dtypes.float16,
            HALF,
            80,
        ),
    ),
)
