"""The ladder of a matrix product on a GPU, c = a @ b: from one element per thread to persistent warpgroups.

In:    lengths M, N, K
Out:   `LADDER`; each rung's text is a file of this folder
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from picograd import dtype as dtypes
from picograd.ir.stages import Launch, TileMap
from picograd.tensor.tensor import Tensor
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
    """Returns g(K) (|a| @ |b|), with g(K) = K u / (1 - K u): the error of K roundings, each of relative size u.

    Source: Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1.
    """
    part = lengths["K"] * roundoff
    return (part / (1 - part) * (np.abs(a) @ np.abs(b)),)


def own(lengths: Lengths, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Returns a @ b."""
    return (a @ b,)


# ---- launches ----
MULTIPROCESSORS = 132  # of an H100: the number of persistent blocks
LINE = 64  # bfloat16 in 128 bytes, a row of a swizzled tile
Launches = Callable[[Lengths], tuple[Launch, ...]]


def elements(symbol: str, threads: int) -> Launches:
    """Returns the launch of a kernel with one thread per element of c."""
    return lambda lengths: (Launch(symbol, ceil_div(lengths["M"] * lengths["N"], threads), threads, 1),)


def tiles(symbol: str, side: int, threads: int, shared_nbytes: int = 0) -> Launches:
    """Returns the launch of a kernel with one block per tile of c."""

    def launches(lengths: Lengths) -> tuple[Launch, ...]:
        blocks = ceil_div(lengths["M"], side) * ceil_div(lengths["N"], side)
        return (Launch(symbol, blocks, threads, 1, shared_nbytes),)

    return launches


def warpgroups(
    symbol: str, columns: int, threads: int, shared_nbytes: int = 0, stays: bool = False, cluster: int = 1
) -> Launches:
    """Returns the launch of a kernel with tiles of 128 rows and TMA; persistent blocks also store by TMA."""

    def launches(lengths: Lengths) -> tuple[Launch, ...]:
        m, n, k = (lengths[name] for name in "MNK")
        blocks = ceil_div(m, 128 * cluster) * cluster * ceil_div(n, columns)
        plain = (TileMap(0, (m, k), (128, LINE)), TileMap(1, (k, n), (LINE, LINE)))
        # the maps of persistent blocks have a batch axis of length 1
        boxes = ((1, 128, LINE), (1, LINE, LINE), (1, 64, LINE // 2))
        batched = tuple(TileMap(i, (1, *shape), box) for i, (shape, box) in enumerate(zip(((m, k), (k, n), (m, n)), boxes)))
        if stays:
            return (Launch(symbol, min(blocks, MULTIPROCESSORS), threads, 1, shared_nbytes, batched),)
        return (Launch(symbol, blocks, threads, 1, shared_nbytes, plain),)

    return launches


def multiples(of: int) -> Callable[[Lengths], str]:
    """Returns the rule of kernels that move 16 bytes of a row at once."""
    return lambda lengths: f"N and K must be multiples of {of}" if lengths["N"] % of or lengths["K"] % of else ""


def by_mma(file: str, launches: Launches, oldest: int) -> Rung:
    """Returns a rung that multiplies bfloat16 on tensor cores, whose sums may be truncated."""
    return Rung(file, launches, multiples(8), dtypes.bfloat16, 2.0**-22, oldest)


KIB = 1024
LADDER = Ladder(
    folder=Path(__file__).parent,
    does="c = a @ b of (M, K) and (K, N)",
    lengths={"M": 256, "N": 256, "K": 256},
    inputs=operands,
    meaning=product,
    bound=bound,
    flops=lambda lengths: 2 * lengths["M"] * lengths["N"] * lengths["K"],
    library=lambda torch, a, b: torch.mm(a, b),
    library_name="cuBLAS",
    tensors=own,
    axes=("M K", "K N"),
    results=lambda lengths: ((lengths["M"], lengths["N"]),),
    rungs=(
        Rung("01_naive.cu", elements("naive", 256)),
        Rung("02_coalesced.cu", elements("coalesced", 256)),
        Rung("03_shared_tile.cu", tiles("shared_tile", 32, 1024)),
        Rung("04_register_column.cu", tiles("register_column", 64, 512)),
        Rung("05_register_tile.cu", tiles("register_tile", 128, 256)),
        Rung("06_vectors.cu", tiles("vectors", 128, 256), multiples(4)),
        Rung("07_warp_tile.cu", tiles("warp_tile", 128, 256), multiples(4)),
        Rung("08_async_copies.cu", tiles("async_copies", 128, 256, 54 * KIB), multiples(4), oldest=80),
        by_mma("09_mma.cu", tiles("mma", 128, 256, 3 * (128 * 40 + 32 * 136) * 2), oldest=80),
        by_mma("10_wgmma_and_tma.cu", warpgroups("wgmma_and_tma", 128, 256), oldest=90),
        by_mma("11_warp_specialised.cu", warpgroups("warp_specialised", 128, 384, 128 * KIB), oldest=90),
        by_mma("12_persistent.cu", warpgroups("persistent", 128, 384, 160 * KIB, stays=True), oldest=90),
        by_mma("13_wide_tile.cu", warpgroups("wide_tile", 256, 384, 224 * KIB, stays=True), oldest=90),
        by_mma("14_clusters.cu", warpgroups("clusters", 256, 384, 224 * KIB, stays=True, cluster=2), oldest=90),
    ),
)
