"""Test of the exercise of chapter 15: ldmatrix brings each thread what mma wants."""

from __future__ import annotations

from types import ModuleType

import numpy as np


def load_matrices(tile: np.ndarray, rows: list[tuple[int, int]]) -> np.ndarray:
    """Returns the eight numbers of each thread, (32, 8), as ldmatrix.x4 does."""
    matrices = [np.stack([tile[r, c : c + 8] for r, c in rows[8 * m : 8 * m + 8]]) for m in range(4)]
    held = np.empty((32, 8), tile.dtype)
    for thread in range(32):
        g, t = divmod(thread, 4)
        for m in range(4):
            held[thread, 2 * m : 2 * m + 2] = matrices[m][g, 2 * t : 2 * t + 2]
    return held


def test_each_thread_holds_its_fragment(exercise: ModuleType) -> None:
    tile = np.arange(256).reshape(16, 16)
    held = load_matrices(tile, [exercise.row_of(thread) for thread in range(32)])
    for thread in range(32):
        g, t = divmod(thread, 4)
        wanted = [tile[g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)] for i in range(8)]
        assert held[thread].tolist() == wanted, f"thread {thread} holds {held[thread]}, mma wants {np.array(wanted)}"
