"""NumPy, float32, gradients by hand: the steps of bench/reference.py in half the width.

In:    a training
Out:   functions of arrays (see `bench.runner.Peer`)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.reference import sgd_step
from bench.runner import NOT_COUNTED, Runner
from bench.workloads import Array, Training, start_embedding, start_weights

VARIANTS = ("numpy",)


def version() -> str:
    return np.__version__


def tensor(array: Array) -> Array:
    return array.copy()


def wait(handle: float) -> None:
    """NumPy returns when it is done."""


def numpy(handle: float) -> Array:
    return np.asarray(handle)


def train(workload: Training, variant: str) -> Callable[[Array, Array], float]:
    """One step of SGD."""
    layers, table = [list(layer) for layer in start_weights(workload)], start_embedding(workload)
    return lambda x, y: sgd_step(workload, layers, table, x, y)


def count(work: Callable[[], None]) -> dict[str, int | None]:
    work()
    return NOT_COUNTED


def tensor_nbytes(runner: Runner) -> int | None:
    """NumPy does not tell."""
    return None


def scratch_nbytes() -> int | None:
    return None
