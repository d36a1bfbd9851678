"""Layers that normalize features, groups of channels, channels by their neighbours, or channels over a batch."""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.layers.layer import Unary, layer
from picograd.nn.module import Module
from picograd.nn.parameter import add_parameter
from picograd.tensor.build import is_integer
from picograd.tensor.tensor import Tensor

__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d",
    "LayerNorm", "LocalResponseNorm", "RMSNorm",
]  # fmt: skip


def set_affine(weight: Tensor | None, bias: Tensor | None) -> None:
    """Sets weight to ones and bias to zeros, if they exist."""
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


# ---- over an example ----
class LayerNorm(Module):
    """Normalizes the last axes to mean 0 and variance 1, then scales by weight (ones) and shifts by bias (zeros).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      normalized_shape:    lengths of the last axes, or of the last axis
      elementwise_affine:  False: no weight and no bias

    >>> LayerNorm(2)(Tensor([[1.0, 3.0]])).round(3)
    Tensor([[-1.,  1.]], requires_grad=True)
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.normalized_shape = (normalized_shape,) if is_integer(normalized_shape) else tuple(normalized_shape)
        self.eps = eps
        affine = self.elementwise_affine = elementwise_affine
        add_parameter(self, "weight", self.normalized_shape if affine else None, device, dtype)
        add_parameter(self, "bias", self.normalized_shape if affine and bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets weight to ones and bias to zeros, in the constructor and whenever it is called."""
        set_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *normalized_shape) -> the same shape."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        shown = f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        return f"{shown}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divides the last axes by their root mean square, then scales by weight (ones).

    out = x / sqrt(mean(x^2) + eps) * weight

    Args:
      normalized_shape:    lengths of the last axes, or of the last axis
      eps:                 as in functional.rms_norm
      elementwise_affine:  False: no weight

    >>> RMSNorm(2)(Tensor([[3.0, 4.0]])).detach().round(3)
    Tensor([[0.849, 1.131]])
    """

    weight: Tensor | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.normalized_shape = (normalized_shape,) if is_integer(normalized_shape) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        add_parameter(self, "weight", self.normalized_shape if elementwise_affine else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets weight to ones, in the constructor and whenever it is called."""
        set_affine(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape) -> the same shape."""
        return functional.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalizes each group of consecutive channels of (N, C, ...), then scales and shifts each channel.

    Args:
      num_groups:    a divisor of num_channels
      num_channels:  C
      eps:           in units of var
      affine:        False: no weight and no bias
      bias:          False: a weight, no bias

    Raises:
      ArgumentError: num_groups does not divide num_channels.

    >>> GroupNorm(2, 4)(Tensor([[1.0, 3.0, 10.0, 30.0]])).detach().round(3)
    Tensor([[-1.,  1., -1.,  1.]])
    """

    weight: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: {num_channels} channels do not split into {num_groups} groups.")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        add_parameter(self, "weight", (num_channels,) if affine else None, device, dtype)
        add_parameter(self, "bias", (num_channels,) if affine and bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets weight to ones and bias to zeros, in the constructor and whenever it is called."""
        set_affine(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, ...) -> the same shape."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.weight is not None}" + (
            f", bias={self.bias is not None}"
        )


@layer(functional.local_response_norm, shown="{size}, alpha={alpha}, beta={beta}, k={k}")
class LocalResponseNorm(Unary):
    """x / (`k` + `alpha` * mean of x^2 over `size` neighbouring channels) ** `beta`.

    >>> LocalResponseNorm(2, alpha=1.0, beta=1.0)(Tensor([[[2.0], [0.0]]])).round(3).flatten()
    Tensor([0.667, 0.   ])
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0


# ---- with running statistics ----
class _Running(Module):
    """Base of batch and instance norms: weight and bias, and buffers of running statistics.

    ranks: accepted numbers of axes
    """

    weight: Tensor | None
    bias: Tensor | None

    ranks: tuple[int, ...] = ()
    eps: float
    momentum: float | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _start(
        self, num_features: int, affine: bool, bias: bool, tracked: bool, device: str | None, dtype: DType | None
    ) -> None:
        """Makes weight and bias, if affine, and the running statistics, if tracked."""
        self.num_features, self.affine, self.track_running_stats = num_features, affine, tracked
        add_parameter(self, "weight", (num_features,) if affine else None, device, dtype)
        add_parameter(self, "bias", (num_features,) if affine and bias else None, device, dtype)
        mean = Tensor.zeros(num_features, dtype=dtype, device=device) if tracked else None
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", None if mean is None else Tensor.ones_like(mean))
        self.register_buffer("num_batches_tracked", Tensor(0, device=device) if tracked else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets weight to ones, bias to zeros, and the running statistics."""
        self.reset_running_stats()
        set_affine(self.weight, self.bias)

    def reset_running_stats(self) -> None:
        """Resets the running statistics to mean 0 and variance 1.

        >>> layer = nn.BatchNorm1d(2)
        >>> _ = layer(Tensor.rand(4, 2))
        >>> layer.reset_running_stats()
        >>> layer.running_mean
        Tensor([0., 0.])
        """
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1.0)
            self.num_batches_tracked.zero_()

    def _check(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            shown = " or ".join(str(rank) for rank in self.ranks)
            other = next((f"{rank}d" for rank in (1, 2, 3) if x.ndim - 2 == rank or x.ndim == 2), None)
            hint = f"BatchNorm{other} normalizes {x.ndim} axes." if other is not None else None
            raise ShapeError(f"{type(self).__name__}: input must have {shown} axes, got {x.shape}.", hint)

    def extra_repr(self) -> str:
        shown = f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
        return f"{shown}, bias={self.bias is not None}, track_running_stats={self.track_running_stats}"


class _BatchNorm(_Running):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        self.eps, self.momentum = eps, momentum
        self._start(num_features, affine, bias, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, ...) -> the same shape."""
        self._check(input)
        momentum: float | Tensor = 0.0 if self.momentum is None else self.momentum
        tracks = self.training and self.track_running_stats
        if tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.to(input.dtype.compute_dtype)
        of_batch = self.training or self.running_mean is None
        running = (self.running_mean, self.running_var) if tracks or not of_batch else (None, None)
        return functional.batch_norm(input, *running, self.weight, self.bias, of_batch, momentum, self.eps)


class _InstanceNorm(_Running):
    momentum: float

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        *,
        bias: bool = True,
    ):
        self.eps, self.momentum = eps, momentum
        self._start(num_features, affine, bias, track_running_stats, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, ...), or (C, ...) -> the same shape."""
        self._check(input)
        batch = input if input.ndim == max(self.ranks) else input.unsqueeze(0)
        of_example = self.training or not self.track_running_stats or self.running_mean is None
        running = (self.running_mean, self.running_var)
        result = functional.instance_norm(batch, *running, self.weight, self.bias, of_example, self.momentum, self.eps)
        return result if batch is input else result.squeeze(0)


class BatchNorm1d(_BatchNorm):
    """Normalizes each channel of (N, C) or (N, C, L) over the batch; in evaluation by running statistics.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in units of var
      momentum:             running += momentum (new - running); None: running statistics average all batches
      affine:               False: no weight and no bias
      track_running_stats:  False: no running statistics; evaluation uses the batch's, too
      bias:                 False: a weight, no bias

    State: weight, bias, running_mean, running_var (C,), num_batches_tracked ().

    >>> layer = BatchNorm1d(2)
    >>> layer(Tensor.rand(3, 2, 4)).shape, layer.num_batches_tracked.item()
    ((3, 2, 4), 1)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalizes each channel of (N, C, H, W) over the batch; arguments as in `BatchNorm1d`.

    >>> layer = BatchNorm2d(2)
    >>> layer(Tensor.rand(3, 2, 4, 4)).shape, layer.num_batches_tracked.item()
    ((3, 2, 4, 4), 1)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalizes each channel of (N, C, D, H, W) over the batch; arguments as in `BatchNorm1d`.

    >>> layer = BatchNorm3d(2)
    >>> layer(Tensor.rand(3, 2, 4, 4, 4)).shape, layer.num_batches_tracked.item()
    ((3, 2, 4, 4, 4), 1)
    """

    ranks = (5,)


class InstanceNorm1d(_InstanceNorm):
    """Normalizes each channel of each example of (N, C, L).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in units of var
      momentum:             running += momentum (new - running)
      affine:               True: weight and bias
      track_running_stats:  True: running statistics, used in evaluation
      bias:                 False: a weight, no bias

    >>> InstanceNorm1d(2)(Tensor.rand(3, 2, 4)).shape
    (3, 2, 4)
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalizes each channel of each example of (N, C, H, W); arguments as in `InstanceNorm1d`.

    >>> InstanceNorm2d(2)(Tensor.rand(3, 2, 4, 4)).shape
    (3, 2, 4, 4)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalizes each channel of each example of (N, C, D, H, W); arguments as in `InstanceNorm1d`.

    >>> InstanceNorm3d(2)(Tensor.rand(3, 2, 4, 4, 4)).shape
    (3, 2, 4, 4, 4)
    """

    ranks = (4, 5)
