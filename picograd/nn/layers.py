"""Layers: modules with parameters, or names for functions.

In:    tensors
Out:   tensors
Next:  picograd/nn/recurrent.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class Linear(Module):
    """y = x @ weight.T + bias, weight (out_features, in_features), drawn evenly from +-1 / sqrt(in_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features) if in_features else 0.0
        self.weight = _parameter((out_features, in_features), device, dtype)
        init.uniform_(self.weight, -bound, bound)
        self.bias = init.uniform_(_parameter((out_features,), device, dtype), -bound, bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., in_features) -> (..., out_features)."""
        return functional.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """Rows of weight (num_embeddings, embedding_dim) by their numbers, drawn from the normal distribution.

    >>> Embedding(10, 4)(Tensor([1, 2, 3])).shape
    (3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, device: str | None = None, dtype: DType | None = None):
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = init.normal_(_parameter((num_embeddings, embedding_dim), device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """x (...) integers -> (..., embedding_dim)."""
        return functional.embedding(x, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Module):
    """Normalises the last axes to mean 0 and variance 1, then scales by weight (ones) and shifts by bias (zeros).

    out = (x - mean) / sqrt(var + eps) * weight + bias

    Args:
      normalized_shape:    lengths of the last axes, or of the last axis
      elementwise_affine:  False: neither weight nor bias

    >>> LayerNorm(2)(Tensor([[1.0, 3.0]])).round(3)
    Tensor([[-1.,  1.]], requires_grad=True)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        affine = elementwise_affine
        self.weight = init.ones_(_parameter(self.normalized_shape, device, dtype)) if affine else None
        self.bias = init.zeros_(_parameter(self.normalized_shape, device, dtype)) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """x (..., *normalized_shape) -> the same shape."""
        return functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class Dropout(Module):
    """In training: each element with the probability 1 - p, divided by it, else 0.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> Dropout(0.5).eval()(Tensor([1.0, 2.0]))
    Tensor([1., 2.])
    """

    def __init__(self, p: float = 0.5):
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"Dropout: p must be a probability, got {p}.")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return functional.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


# ---- functions as modules ----
class ReLU(Module):
    """0 where x <= 0, else x.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.relu()


class Tanh(Module):
    """Hyperbolic tangent.

    >>> Tanh()(Tensor([0.0]))
    Tensor([0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.tanh()


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.sigmoid()


class GELU(Module):
    """x * Phi(x), or with approximate="tanh" its cheaper form.

    >>> GELU()(Tensor([0.0]))
    Tensor([0.])
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.gelu(self.approximate)


class SiLU(Module):
    """x * sigmoid(x).

    >>> SiLU()(Tensor([0.0]))
    Tensor([0.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape -> the same shape."""
        return x.silu()


# ---- containers ----
class _Numbered(Module):
    """Modules held under the names 0, 1, ..."""

    length: int

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(place)) for place in range(self.length))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> Any:
        return getattr(self, str(range(self.length)[place]))


class Sequential(_Numbered):
    """Modules (or functions) `layers`, one after the other.

    >>> Sequential(Linear(2, 3), Tanh())(Tensor.ones(4, 2)).shape
    (4, 3)
    """

    def __init__(self, *layers: Module | Callable[[Tensor], Tensor]):
        for place, layer in enumerate(layers):
            setattr(self, str(place), layer)
        self.length = len(layers)

    def forward(self, x: Any) -> Any:
        """x goes through all layers."""
        for layer in self:
            x = layer(x)
        return x


class ModuleList(_Numbered):
    """A list of modules, which are part of the module that holds it.

    >>> len(ModuleList([Linear(2, 3), Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module] = ()):
        self.length = 0
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Adds a module at the end; returns self.

        >>> len(ModuleList([Linear(2, 3)]).append(Tanh()))
        2
        """
        setattr(self, str(self.length), module)
        self.length += 1
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds modules at the end; returns self.

        >>> len(ModuleList([Linear(2, 3)]).extend([Tanh(), Tanh()]))
        3
        """
        for module in modules:
            self.append(module)
        return self


class MLP(Module):
    """Linear layers with an activation between them, as in micrograd.

    Args:
      nin:               features of the input
      nouts:             features after each layer
      activation:        between layers
      final_activation:  after the last layer, or None

    >>> sum(p.numel() for p in MLP(2, [16, 16, 1]).parameters())
    337
    """

    def __init__(
        self,
        nin: int,
        nouts: Sequence[int],
        activation: Callable[[Tensor], Tensor] = functional.relu,
        final_activation: Callable[[Tensor], Tensor] | None = None,
        device: str | None = None,
    ):
        widths = [nin, *nouts]
        self.layers = ModuleList(Linear(k, n, device=device) for k, n in zip(widths, widths[1:]))
        self.activation, self.final_activation = activation, final_activation

    def forward(self, x: Tensor) -> Tensor:
        """x (..., nin) -> (..., nouts[-1])."""
        for place, layer in enumerate(self.layers):
            x = layer(x)
            if place < len(self.layers) - 1:
                x = self.activation(x)
        return x if self.final_activation is None else self.final_activation(x)


def _parameter(shape: tuple[int, ...], device: str | None, dtype: DType | None) -> Tensor:
    return Tensor.zeros(shape, dtype=dtype, device=device, requires_grad=True)
