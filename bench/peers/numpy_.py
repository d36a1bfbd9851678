"""NumPy, float32, gradients by hand: the steps of bench/reference.py in half the width.

In:    a training
Out:   functions of arrays (see `bench.runner.Peer`)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bench.reference import sgd_step
from bench.runner import count_nothing as count
from bench.runner import no_nbytes as scratch_nbytes
from bench.runner import no_nbytes as tensor_nbytes
from bench.workloads import Array, Training, start_embedding, start_weights

__all__ = ["count", "numpy", "scratch_nbytes", "tensor", "tensor_nbytes", "train", "version", "wait"]
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
