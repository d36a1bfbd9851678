"""The ladder of a product of matrices on a GPU, c = a @ b: from a thread an element to warpgroups that stay.

In:    lengths M, N, K
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from picograd.ir.stages import Launch
from picograd_lab.ladder.gpu import Ladder, Lengths, Rung, ceil_div
from picograd_lab.ladder.runnable import Array


def operands(lengths: Lengths, rng: np.random.Generator) -> tuple[Array, ...]:
    """Returns a (M, K) and b (K, N)."""
    m, n, k = (lengths[name] for name in "MNK")
    return rng.uniform(-1, 1, (m, k)), rng.uniform(-1, 1, (k, n))


def product(lengths: Lengths, a: Array, b: Array) -> tuple[Array, ...]:
    """Returns a @ b."""
    return (a @ b,)


def bound(lengths: Lengths, roundoff: float, a: Array, b: Array) -> tuple[Array, ...]:
    """Returns g(K) (|a| @ |b|), with g(K) = K u / (1 - K u): so far K roundings lead, each of a part u.

    Source: Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1.
    """
    part = lengths["K"] * roundoff
    return (part / (1 - part) * (np.abs(a) @ np.abs(b)),)


def nbytes(lengths: Lengths) -> int:
    """Returns the bytes of a, b and c in float32."""
    m, n, k = (lengths[name] for name in "MNK")
    return 4 * (m * k + k * n + m * n)


# ---- launches ----
def elements(symbol: str, threads: int) -> Callable[[Lengths], tuple[Launch, ...]]:
    """Returns the launch of a kernel that has a thread for each element of c."""
    return lambda lengths: (Launch(symbol, ceil_div(lengths["M"] * lengths["N"], threads), threads, 1),)


def tiles(symbol: str, rows: int, columns: int, threads: int) -> Callable[[Lengths], tuple[Launch, ...]]:
    """Returns the launch of a kernel that has a block for each tile of c."""
    return lambda lengths: (
        Launch(symbol, ceil_div(lengths["M"], rows) * ceil_div(lengths["N"], columns), threads, 1),
    )  # fmt: skip


LADDER = Ladder(
    folder=Path(__file__).parent,
    does="c = a @ b of (M, K) and (K, N)",
    lengths={"M": 128, "N": 128, "K": 128},
    inputs=operands,
    meaning=product,
    bound=bound,
    flops=lambda lengths: 2 * lengths["M"] * lengths["N"] * lengths["K"],
    nbytes=nbytes,
    rungs=(
        Rung("01_naive.cu", elements("naive", 256)),
        Rung("02_coalesced.cu", elements("coalesced", 256)),
        Rung("03_shared_tile.cu", tiles("shared_tile", 32, 32, 1024)),
    ),
)
