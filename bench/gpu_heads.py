"""Attentions that bench.gpu_attention measures, and how PyTorch's are timed.

In:    nothing
Out:   `Problem`, `problems`;  `timed_by_torch`;  `name_of` a tile
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from bench.gpu_products_work import SAMPLES

TIMED, MOST_REPEATS = 4e-3, 20
ROTATED_NBYTES = 120 << 20  # more than the L2 cache holds
SLEPT_CLOCKS = 1_000_000  # in which the host gets ahead of the GPU
REFERENCES = ("default", "flash", "cudnn")


@dataclass(frozen=True)
class Problem:
    """An attention of q (B, H, T, D), k and v (B, G, S, D), as they are or views of one array; timed, or only looked at."""

    name: str
    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    features: int
    causal: bool = True
    dtype: str = "bfloat16"
    is_timed: bool = True
    is_view: bool = False
    is_gradient: bool = False

    @property
    def flops(self) -> float:
        """FLOPs, half of them where it is causal, as others count: a gradient has five products for two."""
        pairs = self.batch * self.heads * self.queries * self.keys / (2 if self.causal else 1)
        return (10.0 if self.is_gradient else 4.0) * pairs * self.features

    @property
    def nbytes(self) -> int:
        rows = (2 * self.heads * self.queries + 2 * self.groups * self.keys) * (2 if self.is_gradient else 1)
        return 2 * self.batch * rows * self.features

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of q, k and v in memory."""
        B, H, G, T, S, D = self.batch, self.heads, self.groups, self.queries, self.keys, self.features
        return ((B, T, 3, H, D),) if self.is_view else ((B, H, T, D), (B, G, S, D), (B, G, S, D))

    @property
    def scale(self) -> float:
        return float(self.features) ** -0.5


def problems(simulates: bool, only: str) -> list[Problem]:
    """Returns what is computed, the most telling first."""
    if simulates:
        found = [Problem("check views", 1, 2, 2, 200, 200, 64, is_timed=False, is_view=True),
                 Problem("grouped", 1, 2, 1, 72, 136, 128, dtype="float16"),
                 Problem("gradient check", 1, 2, 1, 136, 200, 64, is_timed=False, is_gradient=True),
                 Problem("gradient 128", 1, 2, 2, 72, 72, 128, dtype="float16", is_gradient=True)]  # fmt: skip
    else:
        found = [
            Problem("check edges", 2, 3, 3, 1000, 1000, 64, is_timed=False),
            Problem("check full", 2, 3, 3, 1000, 777, 64, False, "float16", False),
            Problem("check grouped", 2, 8, 2, 520, 1160, 128, True, "bfloat16", False),
            Problem("check more queries", 1, 2, 2, 1160, 520, 128, True, "bfloat16", False),
            Problem("check views", 2, 12, 12, 1024, 1024, 64, is_timed=False, is_view=True),
            Problem("check 80", 2, 4, 4, 450, 450, 80, is_timed=False),
            Problem("gradient check edges", 2, 3, 3, 1000, 1000, 64, is_timed=False, is_gradient=True),
            Problem("gradient check full", 2, 3, 3, 1000, 777, 64, False, "float16", False, is_gradient=True),
            Problem("gradient check grouped", 2, 8, 2, 520, 1160, 128, True, "bfloat16", False, is_gradient=True),
            Problem("gradient check rows", 1, 2, 2, 1160, 520, 128, True, "bfloat16", False, is_gradient=True),
            Problem("gradient 8x12x1024x64 causal", 8, 12, 12, 1024, 1024, 64, is_gradient=True),
            Problem("gradient 4x16x4096x128 causal", 4, 16, 16, 4096, 4096, 128, is_gradient=True),
            Problem("gradient 2x16x2048x128 full", 2, 16, 16, 2048, 2048, 128, False, is_gradient=True),
            Problem("gradient 8x6x256x64 causal", 8, 6, 6, 256, 256, 64, is_gradient=True),
            Problem("8x12x1024x64 causal", 8, 12, 12, 1024, 1024, 64),
            Problem("4x16x4096x128 causal", 4, 16, 16, 4096, 4096, 128),
            Problem("2x16x2048x128 full", 2, 16, 16, 2048, 2048, 128, False),
            Problem("8x6x256x64 causal", 8, 6, 6, 256, 256, 64),
            Problem("8x12x1024x64 views", 8, 12, 12, 1024, 1024, 64, is_view=True),
            Problem("8x12x1024x64 full", 8, 12, 12, 1024, 1024, 64, False),
            Problem("4x16x4096x128 full", 4, 16, 16, 4096, 4096, 128, False),
            Problem("4x16x4096x64 causal", 4, 16, 16, 4096, 4096, 64),
        ]
    return [each for each in found if each.name.startswith(tuple(only.split(",")))]


def way(name: str) -> AbstractContextManager[Any]:
    """Returns a context in which PyTorch has one of its attentions; "default": the one that it chooses."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    return sdpa_kernel(backends[name]) if name in backends else nullcontext()


def timed_by_torch(calls: list[Callable[[], Any]], name: str, repeats: int) -> list[float]:
    """Returns the seconds of one of some calls, which are made in turns with one of PyTorch's attentions."""
    import torch

    found = []
    with way(name):
        for _ in range(SAMPLES + 1):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(SLEPT_CLOCKS)
            start.record()
            for i in range(repeats):
                calls[i % len(calls)]()
            stop.record()
            stop.synchronize()
            found.append(start.elapsed_time(stop) / 1e3 / repeats)
    return found[1:]


def name_of(tile: Any) -> str:
    return f"{tile.keeps}x{tile.rows}x{tile.columns}{' lags' * tile.lags} s{tile.stages} g{tile.together}"
