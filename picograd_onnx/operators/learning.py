"""Part of the domains ai.onnx.ml and ai.onnx.preview.training.

In:    tensors or arrays
Out:   `OPERATORS`
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.tensor import Tensor
from picograd_onnx.record import row
from picograd_onnx.values import Array, choose

ML, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"


# ---- ai.onnx.ml ----
def extract(x: Tensor, indices: Tensor) -> Tensor:
    """Returns the elements of the last axis at indices."""
    rows = x if x.ndim > 1 else x.unsqueeze(0)
    return rows.index_select(-1, indices.reshape(-1))


def binarize(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    """Returns 1 if x is above the threshold, else 0."""
    return (x > threshold).to(x.dtype)


def encode_labels(
    x: Array, *,
    keys_strings: Sequence[str] | None = None, keys_int64s: Sequence[int] | None = None,
    keys_floats: Sequence[float] | None = None, keys_tensor: Array | None = None,
    values_strings: Sequence[str] | None = None, values_int64s: Sequence[int] | None = None,
    values_floats: Sequence[float] | None = None, values_tensor: Array | None = None,
    default_string: str = "_Unused", default_int64: int = -1, default_float: float = -0.0,
    default_tensor: Array | None = None,
) -> Array:  # fmt: skip
    """Returns the value of each element's key, or the default."""
    keys = _one("keys", keys_strings, keys_int64s, keys_floats, keys_tensor)
    values = _one("values", values_strings, values_int64s, values_floats, values_tensor)
    if len(keys) != len(values):
        raise ShapeError(f"LabelEncoder: {len(keys)} keys and {len(values)} values must be equally many.")
    default: Any = default_string if values_strings is not None else default_int64
    default = default_float if values_floats is not None else default
    dtype = object if values_strings is not None else np.int64 if values_int64s is not None else np.float32
    if values_tensor is not None:
        dtype = values_tensor.dtype
        default = default_tensor.reshape(-1)[0] if default_tensor is not None else _least_default(values_tensor)
    pairs = {_key(key): value for key, value in zip(keys, values)}
    made = np.empty(x.size, dtype)
    for number, key in enumerate(x.reshape(-1).tolist()):
        made[number] = pairs.get(_key(key), default)
    return made.reshape(x.shape)


def _one(what: str, *given: Any) -> list[Any]:
    found = [value for value in given if value is not None]
    if len(found) != 1:
        raise ArgumentError(f"LabelEncoder: needs one list of {what}, got {len(found)}.")
    return found[0].reshape(-1).tolist() if isinstance(found[0], np.ndarray) else [*found[0]]


def _key(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def _least_default(values: Array) -> Any:
    return "_Unused" if values.dtype.kind in "OU" else -1 if values.dtype.kind in "iu" else -0.0


# ---- ai.onnx.preview.training ----
def adagrad(
    rate: Tensor, count: Tensor, *tensors: Tensor, decay_factor: float = 0.0, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns parameters after a step of Adagrad, and the sums of squares."""
    xs, grads, sums = _groups("Adagrad", tensors, 3)
    rate = rate / (count.to(rate.dtype) * decay_factor + 1)
    grads = [grad + x * norm_coefficient for x, grad in zip(xs, grads)]
    sums = [old + grad * grad for old, grad in zip(sums, grads)]
    return (*(x - rate * grad / (total.sqrt() + epsilon) for x, grad, total in zip(xs, grads, sums)), *sums)


def adam(
    rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float = 0.9, beta: float = 0.999, epsilon: float = 1e-6,
    norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns parameters after a step of Adam, and the running means of gradients and of their squares."""
    xs, grads, firsts, seconds = _groups("Adam", tensors, 4)
    step = count.to(rate.dtype)
    fresh = ((1 - beta**step).sqrt() / (1 - alpha**step)) * rate
    rate = choose(step > 0, fresh, rate)
    grads = [grad + x * norm_coefficient for x, grad in zip(xs, grads)]
    firsts = [old * alpha + grad * (1 - alpha) for old, grad in zip(firsts, grads)]
    seconds = [old * beta + grad * grad * (1 - beta) for old, grad in zip(seconds, grads)]
    moved = [x - rate * one / (two.sqrt() + epsilon) for x, one, two in zip(xs, firsts, seconds)]
    return (*(x * (1 - norm_coefficient_post) for x in moved), *firsts, *seconds)


def momentum(
    rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str, norm_coefficient: float
) -> tuple[Tensor, ...]:
    """Returns parameters after a step with momentum, standard or Nesterov's, and the momenta."""
    if mode not in ("standard", "nesterov"):
        raise ArgumentError(f'Momentum: mode must be "standard" or "nesterov", got {mode!r}.')
    xs, grads, momenta = _groups("Momentum", tensors, 3)
    scale = choose(count > 0, Tensor.full((), beta, dtype=rate.dtype), 1.0)
    grads = [grad + x * norm_coefficient for x, grad in zip(xs, grads)]
    momenta = [old * alpha + grad * scale for old, grad in zip(momenta, grads)]
    ways = momenta if mode == "standard" else [grad + new * alpha for grad, new in zip(grads, momenta)]
    return (*(x - rate * way for x, way in zip(xs, ways)), *momenta)


def _groups(function: str, tensors: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """Splits the inputs into `count` groups of equal length: parameters, gradients, ..."""
    each = len(tensors) // count
    if not each or each * count != len(tensors):
        raise ShapeError(f"{function}: {len(tensors)} tensors are not {count} groups of one length.")
    groups = [[*tensors[i * each : (i + 1) * each]] for i in range(count)]
    for one in zip(*groups):
        shapes = [tensor.shape for tensor in one]
        if len({*shapes}) > 1:
            raise ShapeError(f"{function}: a parameter, its gradient and its state must have one shape, got {shapes}.")
    return groups


OPERATORS = [
    row("ArrayFeatureExtractor", 1, extract, "1+", domain=ML), row("Binarizer", 1, binarize, domain=ML),
    row("LabelEncoder", 2, encode_labels, "x!", hosts=True, domain=ML),
    row("Adagrad", 1, adagrad, "single single", domain=TRAINING), row("Adam", 1, adam, "single single", domain=TRAINING),
    row("Momentum", 1, momentum, "single single", domain=TRAINING),
]  # fmt: skip
