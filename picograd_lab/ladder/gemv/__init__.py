"""The ladder of a matrix-vector product on a GPU, y = a @ x: from one row per thread to warps that share rows.

In:    lengths M, K
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung
from picograd_lab.ladder.rules import per, roundings, whole
from picograd_lab.ladder.runnable import Array


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns a (M, K) and x (K,)."""
    return rng.uniform(-1, 1, (lengths["M"], lengths["K"])), rng.uniform(-1, 1, lengths["K"])


def product(lengths: Lengths, a: Array, x: Array) -> tuple[Array, ...]:
    """Returns a @ x."""
    return (a @ x,)


def bound(lengths: Lengths, roundoff: float, a: Array, x: Array) -> tuple[Array, ...]:
    """Returns g(K) (|a| @ |x|): a term is in at most K roundings."""
    return (roundings(lengths["K"], roundoff) * (np.abs(a) @ np.abs(x)),)


def own(lengths: Lengths, a: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Returns a @ x."""
    return (a @ x,)


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="y = a @ x of (M, K) and (K,)",
    lengths={"M": 256, "K": 1024},
    inputs=operands,
    meaning=product,
    bound=bound,
    flops=lambda lengths: 2 * lengths["M"] * lengths["K"],
    tensors=own,
    axes=("M K", "K"),
    results=lambda lengths: ((lengths["M"],),),
    rungs=(
        Rung("01_thread_a_row.cu", per("thread_a_row", "M", 256, 256)),
        Rung("02_warp_a_row.cu", per("warp_a_row", "M", 8, 256)),
        Rung("03_vectors.cu", per("vectors", "M", 8, 256), whole("K", 4)),
        Rung("04_rows_of_a_warp.cu", per("rows_of_a_warp", "M", 32, 256), whole("K", 4)),
        Rung("05_split_k.cu", per("split_k", "M", 4, 256), whole("K", 4)),
    ),
)
