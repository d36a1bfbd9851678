"""Layers that map or rearrange features: Linear, Bilinear, Flatten, Unflatten, Identity, Embedding, EmbeddingBag, MLP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.nn.containers import ModuleList
from picograd.nn.functions.linear import padding_row
from picograd.nn.layers.layer import Layer, layer
from picograd.nn.module import Module
from picograd.nn.parameter import Parameter, add_parameter, draw_evenly, new_parameter
from picograd.tensor.arguments import at_least
from picograd.tensor.tensor import Tensor

__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Flatten", "Identity", "Linear", "MLP", "Unflatten"]


class Linear(Module):
    """y = x @ weight.T + bias, weight (out_features, in_features), drawn uniformly from +-1 / sqrt(in_features).

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.in_features = at_least("Linear", "in_features", in_features, 0)
        self.out_features = at_least("Linear", "out_features", out_features, 0)
        self.weight = new_parameter((out_features, in_features), device, dtype)
        add_parameter(self, "bias", (out_features,) if bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias, in the constructor and whenever it is called."""
        draw_evenly(self.in_features, self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        """input (..., in_features) -> (..., out_features)."""
        return functional.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """y[n] = x1 @ weight[n] @ x2 + bias[n], weight (out_features, in1_features, in2_features).

    Weights are drawn uniformly from +-1 / sqrt(in1_features); `bias=False` leaves the bias out.

    >>> Bilinear(3, 4, 2)(Tensor.ones(5, 3), Tensor.ones(5, 4)).shape
    (5, 2)
    """

    bias: Tensor | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.in1_features = at_least("Bilinear", "in1_features", in1_features, 0)
        self.in2_features, self.out_features = in2_features, out_features
        self.weight = new_parameter((out_features, in1_features, in2_features), device, dtype)
        add_parameter(self, "bias", (out_features,) if bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias, in the constructor and whenever it is called."""
        draw_evenly(self.in1_features, self.weight, self.bias)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """input1 (..., in1_features), input2 (..., in2_features) -> (..., out_features)."""
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        features = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{features}, out_features={self.out_features}, bias={self.bias is not None}"


class Identity(Module):
    """The identity; constructor arguments `args` and `kwargs` are ignored.

    >>> Identity()(Tensor([1.0]))
    Tensor([1.])
    """

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    def forward(self, input: Any) -> Any:
        """Returns input."""
        return input


@layer()
class Flatten(Layer):
    """Joins the axes `start_dim` to `end_dim`.

    >>> Flatten()(Tensor.zeros(2, 3, 4)).shape
    (2, 12)
    """

    start_dim: int = 1
    end_dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        """input (N, ...) -> (N, product of the others), with the default axes."""
        return input.flatten(self.start_dim, self.end_dim)


@layer(shown="dim={dim}, unflattened_size={unflattened_size}")
class Unflatten(Layer):
    """Splits axis `dim` into axes of lengths `unflattened_size`.

    >>> Unflatten(1, (3, 4))(Tensor.zeros(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        """input (..., M, ...) -> (..., *unflattened_size, ...)."""
        return input.unflatten(self.dim, self.unflattened_size)


class Embedding(Module):
    """A table of rows (num_embeddings, embedding_dim), read by index; drawn from the normal distribution.

    Args:
      num_embeddings:      V
      embedding_dim:       D
      padding_idx:         a row that starts as 0 and gets no gradient
      max_norm:            rows that are read are scaled to at most this norm
      norm_type:           order of that norm
      scale_grad_by_freq:  divide the gradient of a row by how often it is read
      sparse:              has no effect: gradients are dense

    Raises:
      ArgumentError: padding_idx is not a row.

    >>> Embedding(10, 4)(Tensor([1, 2, 3])).shape
    (3, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_row("Embedding", padding_idx, num_embeddings)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.weight = new_parameter((num_embeddings, embedding_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight from a normal distribution, in the constructor and whenever it is called."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.detach()[self.padding_idx].zero_()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Returns a layer with the weight `embeddings` (V, D), frozen unless freeze=False.

        `padding_idx`, `max_norm`, `norm_type`, `scale_grad_by_freq`, `sparse`: as in Embedding.

        >>> nn.Embedding.from_pretrained(Tensor([[1.0], [2.0]]))(Tensor([1]))
        Tensor([[2.]])
        """
        count, width = embeddings.shape
        layer = cls(count, width, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        layer.weight = Parameter(embeddings.detach(), requires_grad=not freeze)
        return layer

    def forward(self, input: Tensor) -> Tensor:
        """input (...) integers -> (..., embedding_dim)."""
        rule = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
        return functional.embedding(input, self.weight, *rule)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class EmbeddingBag(Module):
    """Sums, means or maxima of rows of a table (num_embeddings, embedding_dim), one for each bag of indices.

    Args:
      num_embeddings:       V
      embedding_dim:        D
      max_norm, norm_type, scale_grad_by_freq, sparse, padding_idx: those of Embedding
      mode:                 "sum", "mean" or "max"
      include_last_offset:  the last of offsets is the end of the last bag

    Raises:
      ArgumentError: padding_idx is not a row.

    >>> EmbeddingBag(10, 4)(Tensor([1, 2, 3]), Tensor([0, 2])).shape
    (2, 4)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.padding_idx = None if padding_idx is None else padding_row("EmbeddingBag", padding_idx, num_embeddings)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self.include_last_offset = include_last_offset
        self.weight = new_parameter((num_embeddings, embedding_dim), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight from a normal distribution, in the constructor and whenever it is called."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.detach()[self.padding_idx].zero_()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Returns a layer with the weight `embeddings` (V, D), frozen unless freeze=False.

        `max_norm`, `norm_type`, `scale_grad_by_freq`, `mode`, `sparse`, `include_last_offset`, `padding_idx`: as in
        EmbeddingBag.

        >>> nn.EmbeddingBag.from_pretrained(Tensor([[1.0], [2.0]]), mode="sum")(Tensor([[0, 1], [1, 1]])).tolist()
        [[3.0], [4.0]]
        """
        count, width = embeddings.shape
        layer = cls(count, width, max_norm, norm_type, scale_grad_by_freq, mode, sparse, include_last_offset, padding_idx)
        layer.weight = Parameter(embeddings.detach(), requires_grad=not freeze)
        return layer

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """input (B, L), or (N,) with offsets (B,) -> (B, embedding_dim); per_sample_weights, for "sum", as input."""
        return functional.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            per_sample_weights=per_sample_weights, include_last_offset=self.include_last_offset,
            padding_idx=self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"


class MLP(Module):
    """A multi-layer perceptron: linear layers with activations between them, as in micrograd.

    Args:
      nin:               number of input features
      nouts:             number of features after each layer
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

    def forward(self, input: Tensor) -> Tensor:
        """input (..., nin) -> (..., nouts[-1])."""
        for place, linear in enumerate(self.layers):
            input = linear(input)
            if place < len(self.layers) - 1:
                input = self.activation(input)
        return input if self.final_activation is None else self.final_activation(input)
