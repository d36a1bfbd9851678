"""Smooth activations, gates and the softmax family as modules.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/rectifiers.py
"""

from __future__ import annotations

import picograd.nn.functional as functional
from picograd.errors import ShapeError
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class Tanh(Module):
    """Hyperbolic tangent.

    >>> Tanh()(Tensor([0.0]))
    Tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return input.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return input.sigmoid()


class GELU(Module):
    """x * Phi(x), or with approximate="tanh" its cheaper form.

    >>> GELU()(Tensor([0.0]))
    Tensor([0.])
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return input.gelu(self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x); `inplace` stores it in x.

    >>> SiLU()(Tensor([0.0]))
    Tensor([0.])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.silu(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class Mish(Module):
    """x * tanh(softplus(x)); `inplace` stores it in x.

    >>> Mish()(Tensor([0.0]))
    Tensor([0.])
    """

    def __init__(self, inplace: bool = False):
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.mish(input, self.inplace)

    def extra_repr(self) -> str:
        return "inplace=True" * self.inplace


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above `threshold`.

    >>> Softplus()(Tensor([0.0]))
    Tensor([0.6931472])
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class LogSigmoid(Module):
    """log(sigmoid(x)).

    >>> LogSigmoid()(Tensor([0.0]))
    Tensor([-0.6931472])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|).

    >>> Softsign()(Tensor([-1.0]))
    Tensor([-0.5])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x).

    >>> Tanhshrink()(Tensor([0.0]))
    Tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.tanhshrink(input)


class GLU(Module):
    """a * sigmoid(b), a and b the halves of x along axis `dim`.

    >>> GLU()(Tensor([1.0, 0.0]))
    Tensor([0.5])
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (..., 2 C, ...) -> (..., C, ...)."""
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) / sum(exp(x)) along axis `dim`.

    >>> Softmax(0)(Tensor([0.0, 0.0]))
    Tensor([0.5, 0.5])
    """

    def __init__(self, dim: int):
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """x - log(sum(exp(x))) along axis `dim`.

    >>> LogSoftmax(0)(Tensor([0.0, 0.0]))
    Tensor([-0.6931472, -0.6931472])
    """

    def __init__(self, dim: int):
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """softmax(-x) along axis `dim`.

    >>> Softmin(0)(Tensor([0.0, 0.0]))
    Tensor([0.5, 0.5])
    """

    def __init__(self, dim: int):
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input of any shape -> the same shape."""
        return functional.softmin(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """softmax over the channels of an image.

    >>> Softmax2d()(Tensor.zeros(2, 1, 1))[:, 0, 0]
    Tensor([0.5, 0.5])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, H, W) or (C, H, W) -> the same shape.

        Raises:
          ShapeError: input has neither three axes nor four.
        """
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: input must be (N, C, H, W) or (C, H, W), got {input.shape}.")
        return input.softmax(-3)
