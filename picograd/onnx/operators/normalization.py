"""Normalisation over batches, channels and instances; dropout.

In:    tensors (N, C, spatial axes...)
Out:   `OPERATORS`
Next:  picograd/onnx/operators/resize.py
"""

from __future__ import annotations

from picograd.errors import UnsupportedOp
from picograd.nn import functional as F
from picograd.nn.functions.normalization import divided_by_neighbours, standardized
from picograd.onnx.operators.random import generator_of
from picograd.onnx.record import Step, row
from picograd.tensor.tensor import Tensor


def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias; in training with those of x, and running ones."""
    if not training_mode:
        return (_normalized(x, mean, variance, scale, bias, epsilon),)
    axes, wide = (0, *range(2, x.ndim)), x.to(x.dtype.compute_dtype)
    running = [
        (old * momentum + now.to(old.dtype) * (1 - momentum)).detach()
        for old, now in ((mean, wide.mean(axes)), (variance, wide.var(axes, 0)))
    ]
    return standardized(wide, axes, scale.to(wide.dtype), bias.to(wide.dtype), epsilon).to(x.dtype), *running


def legacy_batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, is_test: int = 1, spatial: int = 1,
) -> Tensor:  # fmt: skip
    """Returns batch_normalization outside training.

    Raises:
      UnsupportedOp: it is asked for in training, or for statistics of each element.
    """
    if not is_test or not spatial:
        raise UnsupportedOp(f"BatchNormalization: is_test {is_test} with spatial {spatial} is not supported.")
    return _normalized(x, mean, variance, scale, bias, epsilon)


def _normalized(x: Tensor, mean: Tensor, variance: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Returns batch normalization by given statistics; a vector is a batch of one channel."""
    wide = (x.unsqueeze(1) if x.ndim == 1 else x).to(x.dtype.compute_dtype)
    mean, variance, scale, bias = (value.to(wide.dtype) for value in (mean, variance, scale, bias))
    return F.batch_norm(wide, mean, variance, scale, bias, eps=epsilon).to(x.dtype).reshape(*x.shape)


def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Returns each channel of each instance with mean 0 and variance 1, scaled and shifted."""
    wide = x.to(x.dtype.compute_dtype)
    scale, bias = scale.to(wide.dtype), bias.to(wide.dtype)
    return standardized(wide, tuple(range(2, x.ndim)), scale, bias, epsilon).to(x.dtype)


def local_response(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:  # noqa: A002
    """Returns x / (bias + alpha / size * sum of squares of `size` channels around) ** beta."""
    return divided_by_neighbours(x, size, (size - 1) // 2, alpha, beta, bias)


SMALLEST = 1e-38  # about the least normal float32: a row of smaller norm is as good as 0


def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Returns x divided by its p-norm along an axis; 0 where that is 0."""
    return F.normalize(x, p, axis, SMALLEST)


# ---- dropout ----
def dropout(
    x: Tensor, ratio: float | None = None, training: bool | None = None, *, step: Step, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns x with each element 0 with probability `ratio` in training, others scaled up; and which ones stayed."""
    p = 0.5 if ratio is None else ratio
    if not training or p == 0.0:
        return x, Tensor.ones(*x.shape, device=x.device).bool()
    scale = F.dropout(Tensor.ones(*x.shape, device=x.device), p, generator=generator_of(seed))
    return x * scale.to(x.dtype), scale.ne(0)


def legacy_dropout(x: Tensor, *, ratio: float = 0.5, is_test: int = 1) -> tuple[Tensor, Tensor]:
    """Returns x as it is outside training, and ones; version 7 knows nothing else."""
    scale = F.dropout(Tensor.ones(*x.shape, device=x.device), ratio, training=not is_test)
    return x * scale.to(x.dtype), scale.ne(0).to(x.dtype)


def dropout_outside_training(x: Tensor, *, ratio: float = 0.5) -> tuple[Tensor, Tensor]:
    """Returns x, and True for each element: that is all of version 10."""
    return x, Tensor.ones(*x.shape, device=x.device).bool()


OPERATORS = [
    row("BatchNormalization", 1, legacy_batch_normalization, "1+ 1 1 1 1", state=(3, 4)),
    row("BatchNormalization", 14, batch_normalization, "1+ 1 1 1 1", state=(3, 4)),
    row("InstanceNormalization", 1, instance_normalization, "3+ 1 1"), row("LRN", 1, local_response, "3+"),
    row("LpNormalization", 1, lp_normalization), row("Dropout", 1, legacy_dropout, random=True),
    row("Dropout", 10, dropout_outside_training),
    row("Dropout", 12, dropout, "x one one", random=True),
]  # fmt: skip
