"""Fusion of batch norms in evaluation mode with the preceding layer."""

from __future__ import annotations

import copy
from typing import Any

from picograd.errors import ArgumentError
from picograd.nn.module import Module
from picograd.nn.parameter import Parameter
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor


def fuse_conv_bn_eval(conv: Module, bn: Module, transpose: bool = False) -> Any:
    """Returns a convolution that computes bn(conv(x)); both must be in evaluation mode.

    w' = w g / sqrt(var + eps), b' = (b - mean) g / sqrt(var + eps) + bias of bn, with g the weight of bn

    Args:
      conv:       a convolution
      bn:         the batch norm that follows it, with running statistics
      transpose:  conv is a transposed convolution, whose weight has the output channels second

    Raises:
      ArgumentError: a module is in training mode, or bn has no running statistics.

    >>> conv, bn = nn.Conv2d(1, 2, 1).eval(), nn.BatchNorm2d(2).eval()
    >>> x = Tensor.ones(1, 1, 1, 1)
    >>> bool(((fuse_conv_bn_eval(conv, bn)(x) - bn(conv(x))).abs() < 1e-6).all())
    True
    """
    _check("fuse_conv_bn_eval", conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, transpose
    )
    return fused


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns weight and bias of fuse_conv_bn_eval's convolution, as parameters.

    Args:
      conv_w, conv_b:  weight and bias of the convolution, (O, I, ...) and (O,) or None
      bn_rm, bn_rv:    running mean and variance, (O,)
      bn_eps:          added to the variance
      bn_w, bn_b:      weight and bias of the norm, (O,) or None: 1 and 0
      transpose:       conv_w is (I, O, ...)

    >>> w, b = fuse_conv_bn_weights(Tensor([[2.0]]), None, Tensor([1.0]), Tensor([4.0]), 0.0, None, None)
    >>> w, b
    (Tensor([[1.]]), Tensor([-0.5]))
    """
    with no_grad():
        bias = Tensor.zeros_like(bn_rm) if conv_b is None else conv_b.detach()
        factor = (bn_rv + bn_eps).rsqrt() * (1.0 if bn_w is None else bn_w.detach())
        rows = (1, -1) if transpose else (-1, 1)
        shape = (*rows, *(1,) * (conv_w.ndim - 2))
        weight = conv_w.detach() * factor.reshape(shape).to(conv_w.dtype)
        moved = (bias - bn_rm) * factor + (0.0 if bn_b is None else bn_b.detach())
    return Parameter(weight, conv_w.requires_grad), Parameter(moved.to(conv_w.dtype), conv_w.requires_grad)


def fuse_linear_bn_eval(linear: Module, bn: Module) -> Any:
    """Returns a linear layer that computes bn(linear(x)); both must be in evaluation mode.

    Args:
      linear:  a linear layer
      bn:      the batch norm that follows it, with running statistics

    Raises:
      ArgumentError: a module is in training mode, or bn has no running statistics or a different number of features.

    >>> linear, bn = nn.Linear(2, 3).eval(), nn.BatchNorm1d(3).eval()
    >>> x = Tensor.ones(4, 2)
    >>> bool(((fuse_linear_bn_eval(linear, bn)(x) - bn(linear(x))).abs() < 1e-6).all())
    True
    """
    _check("fuse_linear_bn_eval", linear, bn)
    if bn.num_features not in (1, linear.out_features):
        raise ArgumentError(f"fuse_linear_bn_eval: {linear.out_features} features do not fit a norm of {bn.num_features}.")
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Returns weight and bias of fuse_linear_bn_eval's layer, as parameters.

    Args:
      linear_w, linear_b:  weight and bias of the linear layer, (O, I) and (O,) or None
      bn_rm, bn_rv:        running mean and variance, (O,)
      bn_eps:              added to the variance
      bn_w, bn_b:          weight and bias of the norm, (O,) or None: 1 and 0

    >>> fuse_linear_bn_weights(Tensor([[2.0]]), None, Tensor([1.0]), Tensor([4.0]), 0.0, None, None)[1]
    Tensor([-0.5])
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _check(function: str, layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise ArgumentError(f"{function}: both layers must be in evaluation mode.", hint="net.eval() first.")
    if bn.running_mean is None or bn.running_var is None:
        raise ArgumentError(f"{function}: the norm has no running statistics.")
