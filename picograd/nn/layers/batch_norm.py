"""Layers that normalise channels over a batch or an example, with running statistics.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/dropout.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.tensor import Tensor

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _Running(Module):
    """What both kinds share: weight and bias, and cells for running statistics.

    ranks: numbers of axes that inputs may have
    """

    ranks: tuple[int, ...] = ()
    eps: float
    momentum: float | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _start(
        self, num_features: int, affine: bool, bias: bool, tracked: bool, device: str | None, dtype: DType | None
    ) -> None:
        """Makes weight and bias, where asked for, and the running statistics, where they are tracked."""
        self.num_features, self.affine, self.track_running_stats = num_features, affine, tracked
        self.weight = init.ones_(new_parameter((num_features,), device, dtype)) if affine else None
        self.bias = init.zeros_(new_parameter((num_features,), device, dtype)) if affine and bias else None
        mean = Tensor.zeros(num_features, dtype=dtype, device=device) if tracked else None
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", None if mean is None else Tensor.ones_like(mean))
        self.register_buffer("num_batches_tracked", Tensor(0, device=device) if tracked else None)

    def reset_running_stats(self) -> None:
        """Sets the running statistics back to mean 0 and variance 1.

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
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / self.num_batches_tracked.to(input.dtype.compute_dtype)
        of_batch = self.training or self.running_mean is None
        running = (self.running_mean, self.running_var)
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
        of_example = self.training or self.running_mean is None
        running = (self.running_mean, self.running_var)
        result = functional.instance_norm(batch, *running, self.weight, self.bias, of_example, self.momentum, self.eps)
        return result if batch is input else result.squeeze(0)


class BatchNorm1d(_BatchNorm):
    """Normalises each channel of (N, C) or (N, C, L) over the batch; in evaluation by running statistics.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in the units of var
      momentum:             running += momentum (new - running); None: the running ones are means over all batches
      affine:               False: neither weight nor bias
      track_running_stats:  False: no running statistics; those of the batch in evaluation too
      bias:                 False: weight alone

    State: weight, bias, running_mean, running_var (C,), num_batches_tracked ().

    >>> layer = BatchNorm1d(2)
    >>> layer(Tensor.rand(3, 2, 4)).shape, layer.num_batches_tracked.item()
    ((3, 2, 4), 1)
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalises each channel of (N, C, H, W) over the batch; in evaluation by running statistics.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in the units of var
      momentum:             running += momentum (new - running); None: the running ones are means over all batches
      affine:               False: neither weight nor bias
      track_running_stats:  False: no running statistics; those of the batch in evaluation too
      bias:                 False: weight alone

    State: weight, bias, running_mean, running_var (C,), num_batches_tracked ().

    >>> layer = BatchNorm2d(2)
    >>> layer(Tensor.rand(3, 2, 4, 4)).shape, layer.num_batches_tracked.item()
    ((3, 2, 4, 4), 1)
    """

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalises each channel of (N, C, D, H, W) over the batch; in evaluation by running statistics.

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in the units of var
      momentum:             running += momentum (new - running); None: the running ones are means over all batches
      affine:               False: neither weight nor bias
      track_running_stats:  False: no running statistics; those of the batch in evaluation too
      bias:                 False: weight alone

    State: weight, bias, running_mean, running_var (C,), num_batches_tracked ().

    >>> layer = BatchNorm3d(2)
    >>> layer(Tensor.rand(3, 2, 4, 4, 4)).shape, layer.num_batches_tracked.item()
    ((3, 2, 4, 4, 4), 1)
    """

    ranks = (5,)


class InstanceNorm1d(_InstanceNorm):
    """Normalises each channel of each example of (N, C, L).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in the units of var
      momentum:             running += momentum (new - running)
      affine:               True: weight and bias
      track_running_stats:  True: running statistics, which evaluation normalises by
      bias:                 False: weight alone

    >>> InstanceNorm1d(2)(Tensor.rand(3, 2, 4)).shape
    (3, 2, 4)
    """

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalises each channel of each example of (N, C, H, W).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in the units of var
      momentum:             running += momentum (new - running)
      affine:               True: weight and bias
      track_running_stats:  True: running statistics, which evaluation normalises by
      bias:                 False: weight alone

    >>> InstanceNorm2d(2)(Tensor.rand(3, 2, 4, 4)).shape
    (3, 2, 4, 4)
    """

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalises each channel of each example of (N, C, D, H, W).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      num_features:         C
      eps:                  in the units of var
      momentum:             running += momentum (new - running)
      affine:               True: weight and bias
      track_running_stats:  True: running statistics, which evaluation normalises by
      bias:                 False: weight alone

    >>> InstanceNorm3d(2)(Tensor.rand(3, 2, 4, 4, 4)).shape
    (3, 2, 4, 4, 4)
    """

    ranks = (4, 5)
