"""The ladder of a layer norm along rows on a GPU: from two passes over memory to two over registers.

In:    lengths ROWS, COLS
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd.nn.functional import layer_norm as layer_norm_of
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung
from picograd_lab.ladder.rules import all_of, at_most, per, roundings, whole
from picograd_lab.ladder.runnable import Array

EPS = float(np.float32(1e-5))


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns x (ROWS, COLS), whose rows have different means and deviations, weight and bias (COLS,)."""
    rows, columns = lengths["ROWS"], lengths["COLS"]
    spread, mean = np.exp(rng.standard_normal((rows, 1))), 4 * rng.standard_normal((rows, 1))
    return spread * rng.standard_normal((rows, columns)) + mean, rng.uniform(0.5, 2, columns), rng.standard_normal(columns)


def normalized(x: Array) -> tuple[Array, Array]:
    """Returns (x - mean) / sd and sd = sqrt(var + eps) of rows."""
    spread = np.sqrt(x.var(axis=1, keepdims=True) + EPS)
    return (x - x.mean(axis=1, keepdims=True)) / spread, spread


def layer_norm(lengths: Lengths, x: Array, weight: Array, bias: Array) -> tuple[Array, ...]:
    """Returns (x - mean) / sqrt(var + eps) * weight + bias."""
    return (normalized(x)[0] * weight + bias,)


def bound(lengths: Lengths, roundoff: float, x: Array, weight: Array, bias: Array) -> tuple[Array, ...]:
    """Returns g(COLS + 8) c (1 + |n|) |weight| and 4 roundings of the sum; c = rms(x) / sd, n = (x - mean) / sd.

    The error of a mean of COLS numbers is g(COLS) rms(x), which is g(COLS) c of a deviation; that of the variance is the
    same share, by any algorithm.

    Source: Chan, Golub, LeVeque 1983, "Algorithms for computing the sample variance", table 1.
    """
    n, spread = normalized(x)
    condition = 1 + np.sqrt((x * x).mean(axis=1, keepdims=True)) / spread
    part = roundings(lengths["COLS"] + 8, roundoff) * condition
    return (part * (1 + np.abs(n)) * np.abs(weight) + roundings(4, roundoff) * (np.abs(n * weight) + np.abs(bias)),)


def own(lengths: Lengths, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    """Returns the layer norm along rows."""
    return (layer_norm_of(x, (lengths["COLS"],), weight, bias, EPS),)


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="y = (x - mean) / sqrt(var + eps) * weight + bias along the rows of (ROWS, COLS)",
    lengths={"ROWS": 64, "COLS": 1024},
    inputs=operands,
    meaning=layer_norm,
    bound=bound,
    flops=lambda lengths: 8 * lengths["ROWS"] * lengths["COLS"],
    tensors=own,
    axes=("ROWS COLS", "COLS", "COLS"),
    results=lambda lengths: ((lengths["ROWS"], lengths["COLS"]),),
    rungs=(
        Rung("01_two_passes.cu", per("two_passes", "ROWS", 1, 256)),
        Rung("02_welford.cu", per("welford", "ROWS", 1, 256)),
        Rung("03_warps.cu", per("warps", "ROWS", 8, 256)),
        Rung("04_vectors.cu", per("vectors", "ROWS", 8, 256), whole("COLS", 4)),
        Rung("05_registers.cu", per("registers", "ROWS", 8, 256), all_of(whole("COLS", 4), at_most("COLS", 2048))),
    ),
)
