"""The ladder of a softmax along rows on a GPU: from one row per thread to a row in the registers of a block.

In:    lengths ROWS, COLS
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung
from picograd_lab.ladder.rules import all_of, at_most, per, roundings, whole
from picograd_lab.ladder.runnable import Array

MASKED = 0.05  # share of elements that are -inf, as in masked attention


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns x (ROWS, COLS): each row with its own offset, and at least one element that is not -inf."""
    rows, columns = lengths["ROWS"], lengths["COLS"]
    x = 3 * rng.standard_normal((rows, columns)) + 50 * rng.standard_normal((rows, 1))
    x[:, 1:][rng.random((rows, columns - 1)) < MASKED] = -np.inf
    x[::3, 0] = np.where(columns > 1 and np.isfinite(x[::3, 1:]).any(axis=1), -np.inf, x[::3, 0])
    return (x,)


def softmax(lengths: Lengths, x: Array) -> tuple[Array, ...]:
    """Returns exp(x - max) / sum of exp(x - max), along rows."""
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return (powers / powers.sum(axis=1, keepdims=True),)


def bound(lengths: Lengths, roundoff: float, x: Array) -> tuple[Array, ...]:
    """Returns g(6 COLS + 2 d + 10) y, and the least subnormal; d: the largest difference within the row.

    A term of the sum is added and scaled at most COLS times, each time by an exponential with an error of 4 u. The
    arguments of exponentials are rounded, too; the errors of these differences sum up to d.
    """
    lowest = np.where(np.isfinite(x), x, np.inf).min(axis=1, keepdims=True)
    spread = x.max(axis=1, keepdims=True) - lowest
    return (roundings(6 * lengths["COLS"] + 2 * spread + 10, roundoff) * softmax(lengths, x)[0] + 2.0**-148,)


def own(lengths: Lengths, x: Tensor) -> tuple[Tensor, ...]:
    """Returns the softmax along rows."""
    return (x.softmax(1),)


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="y = softmax(x) along the rows of (ROWS, COLS)",
    lengths={"ROWS": 64, "COLS": 1024},
    inputs=operands,
    meaning=softmax,
    bound=bound,
    flops=lambda lengths: 5 * lengths["ROWS"] * lengths["COLS"],
    tensors=own,
    axes=("ROWS COLS",),
    results=lambda lengths: ((lengths["ROWS"], lengths["COLS"]),),
    rungs=(
        Rung("01_thread_a_row.cu", per("thread_a_row", "ROWS", 256, 256)),
        Rung("02_block_a_row.cu", per("block_a_row", "ROWS", 1, 256)),
        Rung("03_warp_shuffles.cu", per("warp_shuffles", "ROWS", 1, 256)),
        Rung("04_online.cu", per("online", "ROWS", 1, 256)),
        Rung("05_vectors.cu", per("vectors", "ROWS", 1, 256), whole("COLS", 4)),
        Rung("06_registers.cu", per("registers", "ROWS", 1, 256), all_of(whole("COLS", 4), at_most("COLS", 8192))),
    ),
)
