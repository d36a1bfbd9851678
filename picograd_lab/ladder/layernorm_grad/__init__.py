"""The ladder of a layer norm's gradients on a GPU: from atomic additions to one partial row per block.

In:    lengths ROWS, COLS
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.stages import Launch
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder import layernorm as forward
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung, ceil_div
from picograd_lab.ladder.rules import all_of, at_most, per, roundings, together, whole
from picograd_lab.ladder.runnable import Array

BLOCKS_MAX = 264  # two per multiprocessor of an H100


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns x, weight, the gradient of the result, and mean and 1 / sd of each row from the forward pass."""
    x, weight, _ = forward.operands(lengths, rng)
    gradient: Array = np.asarray(rng.standard_normal(x.shape))
    return x, weight, gradient, x.mean(axis=1), 1 / forward.normalized(x)[1][:, 0]


def parts(x: Array, weight: Array, g: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    """Returns the normalized rows, and their gradient."""
    return (x - mean[:, None]) * scale[:, None], g * weight


def gradients(lengths: Lengths, x: Array, weight: Array, g: Array, mean: Array, scale: Array) -> tuple[Array, ...]:
    """Returns scale (h - avg(h) - n avg(h n)) with h = g weight, and the sums of g n and of g down the columns."""
    n, h = parts(x, weight, g, mean, scale)
    centred = h - h.mean(axis=1, keepdims=True) - n * (h * n).mean(axis=1, keepdims=True)
    return scale[:, None] * centred, (g * n).sum(axis=0), g.sum(axis=0)


def bound(
    lengths: Lengths, roundoff: float, x: Array, weight: Array, g: Array, mean: Array, scale: Array
) -> tuple[Array, ...]:
    """Returns g(COLS + 12) of the terms of dx, and g(ROWS + 6) of those of the sums, with absolute values."""
    n, h = (np.abs(each) for each in parts(x, weight, g, mean, scale))
    terms = h + h.mean(axis=1, keepdims=True) + n * (h * n).mean(axis=1, keepdims=True)
    along, down = roundings(lengths["COLS"] + 12, roundoff), roundings(lengths["ROWS"] + 6, roundoff)
    return along * scale[:, None] * terms, down * (np.abs(g) * n).sum(axis=0), down * np.abs(g).sum(axis=0)


def own(lengths: Lengths, x: Tensor, weight: Tensor, g: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """Returns the three gradients by their formulas."""
    mean, scale = mean.unsqueeze(1), scale.unsqueeze(1)
    n, h = (x - mean) * scale, g * weight
    centred = h - h.mean(1, keepdim=True) - n * (h * n).mean(1, keepdim=True)
    return scale * centred, (g * n).sum(0), g.sum(0)


def blocks(lengths: Lengths) -> int:
    """Returns the number of blocks of eight warps that loop over the rows."""
    return min(ceil_div(lengths["ROWS"], 8), BLOCKS_MAX)


def partial_rows(lengths: Lengths) -> tuple[tuple[DType, int], ...]:
    """Returns scratch memory for two sums of each column and block."""
    return ((dtypes.float32, 2 * blocks(lengths) * lengths["COLS"]),)


def walkers(symbol: str, lengths: Lengths) -> tuple[Launch, ...]:
    """Returns the launches of blocks that loop over the rows, and of the sums of their partial rows."""
    return (Launch(symbol, blocks(lengths), 256, 1), *per("sums", "COLS", 256, 256)(lengths))


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="gradients of (x - mean) / sqrt(var + eps) * weight + bias along the rows of (ROWS, COLS)",
    lengths={"ROWS": 64, "COLS": 512},
    inputs=operands,
    meaning=gradients,
    bound=bound,
    flops=lambda lengths: 14 * lengths["ROWS"] * lengths["COLS"],
    tensors=own,
    rungs=(
        Rung("01_atomics.cu", together(per("zero", "COLS", 256, 256), per("atomics", "ROWS", 8, 256))),
        Rung("02_columns.cu", together(per("rows", "ROWS", 8, 256), per("columns", "COLS", 256, 256))),
        Rung(
            "03_partial_sums.cu",
            lambda lengths: walkers("partial_sums", lengths),
            at_most("COLS", 1024),
            scratch=partial_rows,
        ),
        Rung(
            "04_vectors.cu",
            lambda lengths: walkers("vectors", lengths),
            all_of(whole("COLS", 4), at_most("COLS", 1024)),
            scratch=partial_rows,
        ),
    ),
)
