"""Activations and dropout as modules, declared by their functions."""

from __future__ import annotations

from typing import Any

import picograd.nn.functional as functional
from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.nn.init import constant_
from picograd.nn.layers.layer import Unary, layer
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.random import probability
from picograd.tensor.tensor import Tensor

__all__ = [
    "AlphaDropout", "CELU", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU", "FeatureAlphaDropout", "GELU",
    "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish",
    "PReLU", "RReLU", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d", "Softmin", "Softplus",
    "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


# ---- rectifiers ----
@layer(functional.relu)
class ReLU(Unary):
    """0 where x <= 0, else x; `inplace` stores the result in x.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """

    inplace: bool = False


@layer(functional.relu6)
class ReLU6(Unary):
    """x clamped to [0, 6]; `inplace` stores the result in x.

    >>> ReLU6()(Tensor([-1.0, 8.0]))
    Tensor([0., 6.])
    """

    inplace: bool = False


@layer(functional.hardtanh)
class Hardtanh(Unary):
    """x clamped to [`min_val`, `max_val`]; `inplace` stores the result in x.

    >>> Hardtanh()(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5])
    """

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False


@layer(functional.hardsigmoid)
class Hardsigmoid(Unary):
    """x / 6 + 1/2, clamped to [0, 1]; `inplace` stores the result in x.

    >>> Hardsigmoid()(Tensor([0.0, 4.0]))
    Tensor([0.5, 1. ])
    """

    inplace: bool = False


@layer(functional.hardswish)
class Hardswish(Unary):
    """x * hardsigmoid(x); `inplace` stores the result in x.

    >>> Hardswish()(Tensor([0.0, 4.0]))
    Tensor([0., 4.])
    """

    inplace: bool = False


@layer(functional.hardshrink, shown="{lambd}")
class Hardshrink(Unary):
    """0 where |x| <= `lambd`, else x.

    >>> Hardshrink()(Tensor([0.25, 1.0]))
    Tensor([0., 1.])
    """

    lambd: float = 0.5


@layer(functional.softshrink, shown="{lambd}")
class Softshrink(Unary):
    """x moved towards 0 by `lambd`, and 0 where |x| <= lambd.

    >>> Softshrink()(Tensor([0.25, 1.0]))
    Tensor([0. , 0.5])
    """

    lambd: float = 0.5


@layer(functional.leaky_relu)
class LeakyReLU(Unary):
    """x if it is positive, else x * `negative_slope`; `inplace` stores the result in x.

    >>> LeakyReLU(0.5)(Tensor([-1.0, 2.0]))
    Tensor([-0.5,  2. ])
    """

    negative_slope: float = 0.01
    inplace: bool = False


class PReLU(Module):
    """x if it is positive, else x * weight, a trained slope.

    Args:
      num_parameters:  1, or the number of channels (axis 1), each with its own slope
      init:            initial slope

    >>> PReLU()(Tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: str | None = None, dtype: DType | None = None):
        self.num_parameters, self.init = num_parameters, init
        self.weight = new_parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Resets the slopes to `init`."""
        constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, ...) -> the same shape."""
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


@layer(functional.rrelu)
class RReLU(Unary):
    """x if it is positive, else x * a; a is uniform in [lower, upper) in training, and their mean otherwise.

    `inplace` stores the result in x.

    >>> RReLU(0.25, 0.75).eval()(Tensor([-1.0, 2.0]))
    Tensor([-0.5,  2. ])
    """

    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False


@layer(functional.elu)
class ELU(Unary):
    """x if it is positive, else `alpha` * (exp(x) - 1); `inplace` stores the result in x.

    >>> ELU()(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """

    alpha: float = 1.0
    inplace: bool = False


@layer(functional.selu)
class SELU(Unary):
    """1.0507 * elu(x, 1.6733), which preserves mean 0 and variance 1; `inplace` stores the result in x.

    >>> SELU()(Tensor([0.0, 1.0])).round(4)
    Tensor([0.    , 1.0507])
    """

    inplace: bool = False


@layer(functional.celu)
class CELU(Unary):
    """x if it is positive, else `alpha` * (exp(x / alpha) - 1); `inplace` stores the result in x.

    >>> CELU()(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """

    alpha: float = 1.0
    inplace: bool = False


@layer(functional.threshold)
class Threshold(Unary):
    """x if it is above `threshold`, else `value`; `inplace` stores the result in x.

    >>> Threshold(1.0, -1.0)(Tensor([0.5, 2.0]))
    Tensor([-1.,  2.])
    """

    threshold: float
    value: float
    inplace: bool = False


# ---- smooth ----
@layer(functional.tanh)
class Tanh(Unary):
    """Hyperbolic tangent.

    >>> Tanh()(Tensor([0.0]))
    Tensor([0.])
    """


@layer(functional.sigmoid)
class Sigmoid(Unary):
    """1 / (1 + exp(-x)).

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5])
    """


@layer(functional.gelu)
class GELU(Unary):
    """x * Phi(x); approximate="tanh" is cheaper.

    >>> GELU()(Tensor([0.0]))
    Tensor([0.])
    """

    approximate: str = "none"


@layer(functional.silu)
class SiLU(Unary):
    """x * sigmoid(x); `inplace` stores the result in x.

    >>> SiLU()(Tensor([0.0]))
    Tensor([0.])
    """

    inplace: bool = False


@layer(functional.mish)
class Mish(Unary):
    """x * tanh(softplus(x)); `inplace` stores the result in x.

    >>> Mish()(Tensor([0.0]))
    Tensor([0.])
    """

    inplace: bool = False


@layer(functional.softplus)
class Softplus(Unary):
    """log(1 + exp(beta * x)) / beta; x itself if beta * x is above `threshold`.

    >>> Softplus()(Tensor([0.0]))
    Tensor([0.6931472])
    """

    beta: float = 1.0
    threshold: float = 20.0


@layer(functional.logsigmoid)
class LogSigmoid(Unary):
    """log(sigmoid(x)).

    >>> LogSigmoid()(Tensor([0.0]))
    Tensor([-0.6931472])
    """


@layer(functional.softsign)
class Softsign(Unary):
    """x / (1 + |x|).

    >>> Softsign()(Tensor([-1.0]))
    Tensor([-0.5])
    """


@layer(functional.tanhshrink)
class Tanhshrink(Unary):
    """x - tanh(x).

    >>> Tanhshrink()(Tensor([0.0]))
    Tensor([0.])
    """


@layer(functional.glu)
class GLU(Unary):
    """a * sigmoid(b), a and b the halves of x along axis `dim`: (..., 2 C, ...) -> (..., C, ...).

    >>> GLU()(Tensor([1.0, 0.0]))
    Tensor([0.5])
    """

    dim: int = -1


@layer(functional.softmax)
class Softmax(Unary):
    """exp(x) / sum(exp(x)) along axis `dim`.

    >>> Softmax(0)(Tensor([0.0, 0.0]))
    Tensor([0.5, 0.5])
    """

    dim: int | None = None


@layer(functional.log_softmax)
class LogSoftmax(Unary):
    """x - log(sum(exp(x))) along axis `dim`.

    >>> LogSoftmax(0)(Tensor([0.0, 0.0]))
    Tensor([-0.6931472, -0.6931472])
    """

    dim: int | None = None


@layer(functional.softmin)
class Softmin(Unary):
    """softmax(-x) along axis `dim`.

    >>> Softmin(0)(Tensor([0.0, 0.0]))
    Tensor([0.5, 0.5])
    """

    dim: int | None = None


class Softmax2d(Module):
    """softmax over the channels of an image.

    >>> Softmax2d()(Tensor.zeros(2, 1, 1))[:, 0, 0]
    Tensor([0.5, 0.5])
    """

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, H, W) or (C, H, W) -> the same shape.

        Raises:
          ShapeError: input has neither three axes nor four.
        """
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: input must be (N, C, H, W) or (C, H, W), got {input.shape}.")
        return input.softmax(-3)


# ---- dropout ----
@layer(shown="p={p}, inplace={inplace}")
class _Dropping(Unary):
    p: float = 0.5
    inplace: bool = False

    def _keep(self, given: dict[str, Any]) -> None:
        super()._keep({**given, "p": probability(type(self).__name__, "p", given["p"])})


@layer(functional.dropout)
class Dropout(_Dropping):
    """Zeroes each element with probability p in training, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """


@layer(functional.dropout1d)
class Dropout1d(_Dropping):
    """Zeroes each channel with probability p in training, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout1d(1.0)(Tensor.ones(1, 2, 1)).flatten()
    Tensor([0., 0.])
    """


@layer(functional.dropout2d)
class Dropout2d(_Dropping):
    """Zeroes each channel with probability p in training, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout2d(1.0)(Tensor.ones(1, 2, 1, 1)).flatten()
    Tensor([0., 0.])
    """


@layer(functional.dropout3d)
class Dropout3d(_Dropping):
    """Zeroes each channel with probability p in training, and divides the others by 1 - p.

    `p`: the probability; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout3d(1.0)(Tensor.ones(1, 2, 1, 1, 1)).flatten()
    Tensor([0., 0.])
    """


@layer(functional.alpha_dropout)
class AlphaDropout(_Dropping):
    """Replaces some elements by selu's minimum in training, then scales and shifts to mean 0 and variance 1.

    `p`: the probability of a replacement; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> AlphaDropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """


@layer(functional.feature_alpha_dropout)
class FeatureAlphaDropout(_Dropping):
    """AlphaDropout of whole channels, in training.

    `p`: the probability of a replacement; `inplace`: stores the result in the input.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> FeatureAlphaDropout(0.5).eval()(Tensor([[1.0, 2.0]]))
    Tensor([[1., 2.]])
    """
