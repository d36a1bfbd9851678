"""Lists of Python's floats, no library: where a reader of micrograd begins.

In:    a perceptron with tanh and mean squared error
Out:   functions of nested lists (see `bench.runner.Peer`)
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import Any

import numpy as np

from bench.runner import count_nothing as count
from bench.runner import no_nbytes as scratch_nbytes
from bench.runner import no_nbytes as tensor_nbytes
from bench.workloads import Array, Training, start_weights

__all__ = ["count", "numpy", "scratch_nbytes", "tensor", "tensor_nbytes", "train", "version", "wait"]
VARIANTS = ("lists",)
Row = Sequence[float]
Matrix = list[list[float]]


def version() -> str:
    return platform.python_version()


def tensor(array: Array) -> Any:
    return array.tolist()


def wait(handle: Any) -> None:
    """Python returns when it is done."""


def numpy(handle: Any) -> Array:
    return np.asarray(handle)


def _products(rows: Iterable[Row], columns: Iterable[Row]) -> Matrix:
    """Each row times each column, summed: the fastest that lists do."""
    columns = list(columns)
    return [[sum(map(mul, row, column)) for column in columns] for row in rows]


def train(workload: Training, variant: str) -> Callable[[list[Row], list[Row]], float]:
    """One step of SGD: forward, backward by hand, update."""
    assert (workload.activation, workload.loss, workload.embedding) == ("tanh", "mse", None)
    layers = [(weight.tolist(), bias.tolist()) for weight, bias in start_weights(workload)]

    def step(x: list[Row], y: list[Row]) -> float:
        inputs: list[list[Row]] = []  # of each layer
        for number, (weight, bias) in enumerate(layers):
            inputs.append(x)
            x = [[total + b for total, b in zip(row, bias)] for row in _products(x, weight)]
            if number < len(layers) - 1:
                x = [list(map(math.tanh, row)) for row in x]
        errors = [[out - target for out, target in zip(*rows)] for rows in zip(x, y)]
        num_errors = len(errors) * len(errors[0])
        grad: Matrix = [[2 * error / num_errors for error in row] for row in errors]
        for number in reversed(range(len(layers))):
            grad = _update(layers[number], inputs[number], grad, workload.learning_rate)
            if number:  # what a layer is given is the tanh of the layer before
                grad = [[g * (1 - a * a) for g, a in zip(*rows)] for rows in zip(grad, inputs[number])]
        return sum(error * error for row in errors for error in row) / num_errors

    return step


def _update(layer: tuple[Matrix, list[float]], x: list[Row], grad: Matrix, rate: float) -> Matrix:
    """Updates weight and bias in place; returns the gradient of what the layer was given."""
    weight, bias = layer
    by_output = list(zip(*grad))
    grad_x = _products(grad, zip(*weight))
    for row, changes in zip(weight, _products(by_output, zip(*x))):
        row[:] = [w - rate * change for w, change in zip(row, changes)]
    bias[:] = [b - rate * sum(column) for b, column in zip(bias, by_output)]
    return grad_x
