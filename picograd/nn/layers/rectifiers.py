"""Activations in pieces as modules.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/losses.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd.dtype import DType
from picograd.nn.init import constant_
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.tensor import Tensor


class ReLU(Module):
    """0 where x <= 0, else x; `inplace` stores it in x.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.relu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class ReLU6(Module):
    """x held between 0 and 6; `inplace` stores it in x.

    >>> ReLU6()(Tensor([-1.0, 8.0]))
    Tensor([0., 6.])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.relu6(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class Hardtanh(Module):
    """x held between `min_val` and `max_val`; `inplace` stores it in x.

    >>> Hardtanh()(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}" + ", inplace=True" * self.inplace


class Hardsigmoid(Module):
    """x / 6 + 1/2, held between 0 and 1; `inplace` stores it in x.

    >>> Hardsigmoid()(Tensor([0.0, 4.0]))
    Tensor([0.5, 1. ])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class Hardswish(Module):
    """x * hardsigmoid(x); `inplace` stores it in x.

    >>> Hardswish()(Tensor([0.0, 4.0]))
    Tensor([0., 4.])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class Hardshrink(Module):
    """0 where |x| <= `lambd`, else x.

    >>> Hardshrink()(Tensor([0.25, 1.0]))
    Tensor([0., 1.])
    """

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(Module):
    """x moved towards 0 by `lambd`, and 0 where |x| <= lambd.

    >>> Softshrink()(Tensor([0.25, 1.0]))
    Tensor([0. , 0.5])
    """

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return str(self.lambd)


class LeakyReLU(Module):
    """x where it is positive, else x * `negative_slope`; `inplace` stores it in x.

    >>> LeakyReLU(0.5)(Tensor([-1.0, 2.0]))
    Tensor([-0.5,  2. ])
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}" + ", inplace=True" * self.inplace


class PReLU(Module):
    """x where it is positive, else x * weight, which is trained.

    Args:
      num_parameters:  1, or the channels (axis 1 of x), each with a slope
      init:            the slopes at the start

    >>> PReLU()(Tensor([-1.0, 2.0])).tolist()
    [-0.25, 2.0]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: str | None = None, dtype: DType | None = None
    ):
        self.num_parameters = num_parameters
        self.weight = constant_(new_parameter((num_parameters,), device, dtype), init)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, ...) -> the same shape."""
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x where it is positive, else x * a: drawn from [lower, upper) while training, their mean otherwise.

    `inplace` stores it in x.

    >>> RReLU(0.25, 0.75).eval()(Tensor([-1.0, 2.0]))
    Tensor([-0.5,  2. ])
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}" + ", inplace=True" * self.inplace


class ELU(Module):
    """x where it is positive, else `alpha` * (exp(x) - 1); `inplace` stores it in x.

    >>> ELU()(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + ", inplace=True" * self.inplace


class SELU(Module):
    """1.0507 * elu(x, 1.6733), which keeps mean 0 and variance 1; `inplace` stores it in x.

    >>> SELU()(Tensor([0.0, 1.0])).round(4)
    Tensor([0.    , 1.0507])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.selu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class CELU(Module):
    """x where it is positive, else `alpha` * (exp(x / alpha) - 1); `inplace` stores it in x.

    >>> CELU()(Tensor([0.0, 2.0]))
    Tensor([0., 2.])
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}" + ", inplace=True" * self.inplace


class Threshold(Module):
    """x where it is above `threshold`, else `value`; `inplace` stores it in x.

    >>> Threshold(1.0, -1.0)(Tensor([0.5, 2.0]))
    Tensor([-1.,  2.])
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}" + ", inplace=True" * self.inplace
