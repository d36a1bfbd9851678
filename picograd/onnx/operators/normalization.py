"""Normalisation over batches, channels and instances; dropout.

In:    tensors (N, C, spatial axes...)
Out:   `OPERATORS`
Next:  picograd/onnx/operators/resize.py
"""

from __future__ import annotations

from picograd.errors import UnsupportedOp
from picograd.nn import functional as F
from picograd.onnx.operators.random import generator_of
from picograd.onnx.operators.windows import Windows
from picograd.onnx.record import Step, row
from picograd.onnx.values import Array
from picograd.tensor.tensor import Tensor


def _by_channel(x: Tensor, ndim: int) -> Tensor:
    return x.reshape(-1, *(1,) * (ndim - 2)) if x.ndim else x


def batch_normalization(
    x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, *,
    epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns (x - mean) / sqrt(variance + epsilon) * scale + bias; in training with those of x, and running ones."""
    if not training_mode:
        return (_normalized(x, mean, variance, scale, bias, epsilon),)
    axes = (0, *range(2, x.ndim))
    wide = x.to(x.dtype.wide)
    now_mean, now_variance = wide.mean(axes), wide.var(axes, 0)
    running = [
        (old * momentum + now.to(old.dtype) * (1 - momentum)).detach()
        for old, now in ((mean, now_mean), (variance, now_variance))
    ]
    return _normalized(x, now_mean, now_variance, scale, bias, epsilon), *running


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
    wide = x.dtype.wide
    mean, variance, scale, bias = (_by_channel(value.to(wide), x.ndim) for value in (mean, variance, scale, bias))
    return ((x.to(wide) - mean) * (variance + epsilon).rsqrt() * scale + bias).to(x.dtype)


def instance_normalization(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    """Returns each channel of each instance with mean 0 and variance 1, scaled and shifted."""
    axes = tuple(range(2, x.ndim))
    wide = x.to(x.dtype.wide)
    deviation = wide - wide.mean(axes, keepdim=True)
    unit = deviation * (wide.var(axes, 0, keepdim=True) + epsilon).rsqrt()
    return (unit * _by_channel(scale, x.ndim) + _by_channel(bias, x.ndim)).to(x.dtype)


def local_response(x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:  # noqa: A002
    """Returns x / (bias + alpha / size * sum of squares of `size` channels around) ** beta."""
    channels = x.shape[1]
    flat = (x * x).reshape(x.shape[0], 1, channels, -1)
    before = (size - 1) // 2
    windows = Windows((size, 1), (1, 1), (1, 1), (before, 0), (size - 1 - before, 0), (0, 0), (channels, flat.shape[3]))
    squares = windows.seen(windows.padded(flat, 0.0)).sum((-2, -1)).reshape(x.shape)
    return x / (squares * (alpha / size) + bias) ** beta


def lp_normalization(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    """Returns x divided by its p-norm along an axis; 0 where that is 0."""
    norm = (x.abs() if p == 1 else x * x).sum(axis, True)
    norm = norm if p == 1 else norm.sqrt()
    return (x / norm.masked_fill(norm.eq(0), 1)).to(x.dtype)


# ---- dropout ----
def dropout(
    x: Tensor, ratio: Array | None = None, training: Array | None = None, *, step: Step, seed: int | None = None
) -> tuple[Tensor, Tensor]:
    """Returns x with each element 0 with probability `ratio` in training, others scaled up; and which ones stayed."""
    p = 0.5 if ratio is None else float(ratio.reshape(()))
    if training is None or not training.reshape(()) or p == 0.0:
        return x, Tensor.ones(*x.shape, device=x.device).bool()
    scale = F.dropout(Tensor.ones(*x.shape, device=x.device), p, generator=generator_of(seed))
    return x * scale.to(x.dtype), scale.ne(0)


def legacy_dropout(x: Tensor, *, ratio: float = 0.5, is_test: int = 1) -> tuple[Tensor, Tensor]:
    """Returns x as it is outside training; versions 7 and 10 know nothing else."""
    scale = F.dropout(Tensor.ones(*x.shape, device=x.device), ratio, training=not is_test)
    return x * scale.to(x.dtype), scale.ne(0)


OPERATORS = [
    row("BatchNormalization", 1, legacy_batch_normalization, state=(3, 4)),
    row("BatchNormalization", 14, batch_normalization, state=(3, 4)),
    row("InstanceNormalization", 1, instance_normalization), row("LRN", 1, local_response),
    row("LpNormalization", 1, lp_normalization), row("Dropout", 1, legacy_dropout, random=True),
    row("Dropout", 12, dropout, static=(1, 2), random=True),
]  # fmt: skip
