"""The ladder of the K largest elements along rows on a GPU: from K maxima to a radix select of a row in registers.

In:    lengths ROWS, COLS, K
Out:   `LADDER`; each rung's text is a file of this folder

A key of 64 bits is a float's bits, in an order-preserving form, above the complement of its index. Keys are never equal,
and among equal elements the first has the largest key, so every rung has the same bits, those of Tensor.topk.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung
from picograd_lab.ladder.rules import all_of, at_most, per, whole
from picograd_lab.ladder.runnable import Array

STRANGE = 0.01  # share of the elements that are infinities or NaN


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns x (ROWS, COLS); every fourth row has many equal elements, zeros, infinities and NaN of both signs."""
    x = rng.standard_normal((lengths["ROWS"], lengths["COLS"]))
    x[::4] = np.round(x[::4], 1)
    for value in (np.nan, -np.nan, np.inf, -np.inf):
        x[::4][rng.random(x[::4].shape) < STRANGE] = value
    return (x,)


def topk(lengths: Lengths, x: Array) -> tuple[Array, ...]:
    """Returns the K largest elements of each row and their indices, NaN first; equal elements are in order."""
    indices = np.lexsort((-x, ~np.isnan(x)), axis=1)[:, : lengths["K"]]
    return np.take_along_axis(x, indices, axis=1), indices.astype(np.int32)


def exact(lengths: Lengths, roundoff: float, x: Array) -> tuple[Array, ...]:
    """Returns 0 for each element: there are no roundings."""
    shape = (lengths["ROWS"], lengths["K"])
    return np.zeros(shape), np.zeros(shape)


def own(lengths: Lengths, x: Tensor) -> tuple[Tensor, ...]:
    """Returns the largest elements of each row and their indices."""
    return tuple(x.topk(lengths["K"]))


# ---- rules ----
def has_k(lengths: Lengths) -> str:
    """Returns "" if a row has at least K elements."""
    return "" if lengths["K"] <= lengths["COLS"] else "K must be at most COLS"


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="the K greatest of each row of (ROWS, COLS), and their indices",
    lengths={"ROWS": 8, "COLS": 2048, "K": 32},
    inputs=operands,
    meaning=topk,
    bound=exact,
    flops=lambda lengths: 0,
    tensors=own,
    rungs=(
        Rung("01_passes.cu", per("passes", "ROWS", 1, 256), has_k),
        Rung("02_sort.cu", per("sort", "ROWS", 1, 256), all_of(has_k, at_most("COLS", 4096))),
        Rung("03_lists.cu", per("lists", "ROWS", 1, 256), all_of(has_k, at_most("K", 32))),
        Rung("04_radix_select.cu", per("radix_select", "ROWS", 1, 256), all_of(has_k, at_most("K", 4096))),
        Rung(
            "05_registers.cu",
            per("registers", "ROWS", 1, 256),
            all_of(has_k, at_most("K", 4096), whole("COLS", 4), at_most("COLS", 8192)),
        ),
    ),
)
