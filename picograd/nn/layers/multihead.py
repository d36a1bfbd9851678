"""Attention with several heads, as a module.

In:    queries, keys and values
Out:   a mixture of values for each query, and its weights
Next:  picograd/nn/layers/transformer.py

L queries, S keys and values, N batch, E features, H heads, D = E / H features of a head.
"""

from __future__ import annotations

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.layers.features import Linear
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.creation.probabilities import probability
from picograd.tensor.tensor import Tensor


class MultiheadAttention(Module):
    """Parallel heads, each softmax(q k.T / sqrt(D) + mask) v of projections of its own, joined by out_proj.

    Args:
      embed_dim:      E, of queries and of the result
      num_heads:      H, divides E
      dropout:        of the weights, in training
      bias:           of all projections
      add_bias_kv:    one more key and value that are trained, bias_k and bias_v
      add_zero_attn:  one more key and value of zeros
      kdim, vdim:     features of keys and values, E unless given
      batch_first:    (N, L, E), not (L, N, E)

    State: in_proj_weight (3 E, E), or q_proj_weight, k_proj_weight, v_proj_weight where kdim or vdim differs;
    in_proj_bias (3 E,); out_proj.weight, out_proj.bias.

    Raises:
      ArgumentError: num_heads does not divide embed_dim, or dropout is no probability.

    Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2.

    >>> x = Tensor.rand(5, 2, 8)
    >>> output, weights = MultiheadAttention(8, 2)(x, x, x)
    >>> output.shape, weights.shape
    ((5, 2, 8), (2, 5, 5))
    """

    in_proj_weight: Tensor | None
    q_proj_weight: Tensor
    k_proj_weight: Tensor
    v_proj_weight: Tensor
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if embed_dim < 1 or num_heads < 1 or embed_dim % num_heads:
            fits = [n for n in range(1, embed_dim + 1) if embed_dim % n == 0]
            hint = f"num_heads may be {', '.join(map(str, fits))}." if 0 < len(fits) <= 16 else None
            raise ArgumentError(f"MultiheadAttention: {num_heads} heads do not divide embed_dim {embed_dim}.", hint)
        probability("MultiheadAttention", "dropout", dropout)
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.add_zero_attn = add_zero_attn
        one = self.kdim == embed_dim == self.vdim
        shapes = {"in_proj_weight": embed_dim} if one else {
            "q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim,
        }  # fmt: skip
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            self.register_parameter(name, None)
        for name, features in shapes.items():
            weight = new_parameter((embed_dim * (3 if one else 1), features), device, dtype)
            setattr(self, name, init.xavier_uniform_(weight))
        self.in_proj_bias = new_parameter((3 * embed_dim,), device, dtype) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        if self.out_proj.bias is not None:
            init.zeros_(self.out_proj.bias)
        more = [init.xavier_normal_(new_parameter((1, 1, embed_dim), device, dtype)) for _ in range(2 * add_bias_kv)]
        self.bias_k, self.bias_v = (more[0], more[1]) if more else (None, None)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the output, of the shape of query, and the weights, or None.

        query (L, N, E), key (S, N, kdim), value (S, N, vdim); batch_first: (N, L, E), ...; without a batch (L, E), ...
        key_padding_mask (N, S) or (S,) and attn_mask (L, S) or (N H, L, S): True is left out; floats are added to scores.
        need_weights: the weights (N, L, S), the mean over heads, or (N, H, L, S) without average_attn_weights.
        is_causal: query i sees the keys 0 to i. A query that sees no key finds zeros.

        Raises:
          ShapeError: the shapes do not fit each other.
        """
        _check_inputs(self, query, key, value)
        is_swapped = self.batch_first and query.ndim == 3
        parts = [x.transpose(0, 1) if is_swapped else x for x in (query, key, value)]
        if key is query and value is key:
            parts = [parts[0]] * 3
        out, weights = functional.multi_head_attention_forward(
            parts[0], parts[1], parts[2], self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias,
            self.bias_k, self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias,
            self.training, key_padding_mask, need_weights, attn_mask, self.in_proj_weight is None, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return out.transpose(0, 1) if is_swapped else out, weights


def _check_inputs(layer: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises ShapeError unless queries, keys and values fit the layer and each other."""
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"MultiheadAttention: {shapes} must have three axes each, or two without a batch.")
    wanted = (layer.embed_dim, layer.kdim, layer.vdim)
    if (query.shape[-1], key.shape[-1], value.shape[-1]) != wanted:
        raise ShapeError(f"MultiheadAttention: {shapes} must have {wanted[0]}, {wanted[1]} and {wanted[2]} features.")
    batch = 0 if layer.batch_first else 1
    if key.shape[:-1] != value.shape[:-1] or (query.ndim == 3 and query.shape[batch] != key.shape[batch]):
        raise ShapeError(f"MultiheadAttention: {shapes} do not fit each other.")
