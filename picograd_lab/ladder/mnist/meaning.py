"""The meaning of each tensor of a training step, with a bound of its rounding errors.

In:    the tensors that a program has dumped; a rule uses the inputs of its kernel
Out:   `RULES`: name, sources and formula of each tensor, in the order of a step; `Near`, their values

A formula is written once, on `Near`: values in float64, each with a bound of the rounding error of float32. An
intermediate tensor of a fused kernel is computed from earlier ones, and its error enters later ones.

Source: Higham 2002, "Accuracy and stability of numerical algorithms", section 3.3, running error analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from picograd.record import Record

Array = np.ndarray[Any, Any]
ROUNDOFF = 2.0**-24  # of float32
FUNCTION_ULPS = 8  # largest error of exp and log on any machine
LEARNING_RATE = 0.01


class Near(Record):
    """An array with error bounds.

    value:  the elements in float64
    error:  bounds in the same shape
    unit:   largest relative error of products' operands: 2**-24, or that of TF32 or half precision
    """

    value: Array
    error: Array
    unit: float = ROUNDOFF

    def _made(self, value: Array, error: Array, roundings: float = 1.0) -> Near:
        return Near(value, error + roundings * ROUNDOFF * np.abs(value), self.unit)

    def __matmul__(self, other: Near) -> Near:
        magnitude = np.abs(self.value) @ np.abs(other.value)
        error = np.abs(self.value) @ other.error + self.error @ np.abs(other.value) + self.error @ other.error
        roundings = (self.value.shape[1] + 1) * ROUNDOFF + 2 * self.unit
        return Near(self.value @ other.value, error + roundings * magnitude, self.unit)

    def __add__(self, other: Near) -> Near:
        return self._made(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Near) -> Near:
        return self._made(self.value - other.value, self.error + other.error)

    def times(self, factor: float) -> Near:
        """Returns the product with a number, which is rounded, too."""
        return self._made(factor * self.value, abs(factor) * self.error, 2)

    @property
    def T(self) -> Near:
        """The transpose."""
        return Near(self.value.T, self.error.T, self.unit)

    def total(self) -> Near:
        """Returns the sum over the rows, as one row."""
        magnitude, rows = np.abs(self.value).sum(0, keepdims=True), len(self.value)
        error = self.error.sum(0, keepdims=True) + rows * ROUNDOFF * magnitude
        return Near(self.value.sum(0, keepdims=True), error, self.unit)

    def relu(self) -> Near:
        """Returns max(x, 0)."""
        return Near(np.maximum(self.value, 0), self.error, self.unit)

    def where_positive(self, other: Near) -> Near:
        """Returns the elements of `self` if those of `other` are positive, else 0; either if the sign is uncertain."""
        is_unsure = (other.error > 0) & (np.abs(other.value) <= other.error)
        kept = self.value * (other.value > 0)
        return Near(kept, np.where(is_unsure, np.abs(self.value), 0) + self.error, self.unit)

    def softmax(self) -> Near:
        """Returns exp(x) / sum(exp(x)) of each row."""
        off = self.value - self.value.max(1, keepdims=True)
        p = np.exp(off) / np.exp(off).sum(1, keepdims=True)
        error = 2 * self.error.max(1, keepdims=True) * p
        return self._made(p, error, 2 * FUNCTION_ULPS + p.shape[1] + 2 * np.abs(off).max())

    def cross_entropy(self, labels: Array) -> Near:
        """Returns the mean of -log(p[label])."""
        rows = np.arange(len(labels))
        p, error = self.value[rows, labels], self.error[rows, labels]
        losses = -np.log(np.maximum(p, np.finfo(np.float64).tiny))
        roundings = (FUNCTION_ULPS + len(labels)) * ROUNDOFF * (losses + 1)
        mean = (error / np.maximum(p, np.finfo(np.float64).tiny) + roundings).mean()
        return Near(np.full((1, 1), losses.mean()), np.full((1, 1), mean), self.unit)

    def minus_one_hot(self, labels: Array) -> Near:
        """Returns p - (column == label)."""
        return self._made(self.value - np.eye(self.value.shape[1])[labels], self.error)


def exactly(array: Array, unit: float) -> Near:
    """Returns an array without error."""
    value = np.asarray(array, np.float64)
    return Near(value, np.zeros_like(value), unit)


class Rule(Record):
    """The meaning of one tensor.

    name:     the tensor's name; "new w1" is w1 after the update
    phase:    phase of the step that computes it
    sources:  names of its inputs
    formula:  (a Near for each source, labels) -> Near
    """

    name: str
    phase: str
    sources: tuple[str, ...]
    formula: Callable[..., Near]


def _updated(name: str) -> Rule:
    return Rule(f"new {name}", "update", (name, f"d{name}"), lambda w, dw, labels: w - dw.times(LEARNING_RATE))


WEIGHTS = ("w1", "b1", "w2", "b2")
RULES = (
    Rule("z1", "forward", ("x", "w1", "b1"), lambda x, w1, b1, labels: x @ w1 + b1),
    Rule("h", "forward", ("z1",), lambda z1, labels: z1.relu()),
    Rule("logits", "forward", ("h", "w2", "b2"), lambda h, w2, b2, labels: h @ w2 + b2),
    Rule("probabilities", "loss", ("logits",), lambda logits, labels: logits.softmax()),
    Rule("loss", "loss", ("probabilities",), lambda p, labels: p.cross_entropy(labels)),
    Rule("dlogits", "backward", ("probabilities",), lambda p, labels: p.minus_one_hot(labels).times(1 / len(labels))),
    Rule("dw2", "backward", ("h", "dlogits"), lambda h, dlogits, labels: h.T @ dlogits),
    Rule("db2", "backward", ("dlogits",), lambda dlogits, labels: dlogits.total()),
    Rule("dh", "backward", ("dlogits", "w2"), lambda dlogits, w2, labels: dlogits @ w2.T),
    Rule("dz1", "backward", ("dh", "h"), lambda dh, h, labels: dh.where_positive(h)),
    Rule("dw1", "backward", ("x", "dz1"), lambda x, dz1, labels: x.T @ dz1),
    Rule("db1", "backward", ("dz1",), lambda dz1, labels: dz1.total()),
    *map(_updated, WEIGHTS),
)
