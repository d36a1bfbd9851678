"""Attention with several heads, as a module.

In:    queries, keys and values
Out:   what each query found, and where
Next:  picograd/nn/layers/transformer.py

L queries, S keys and values, N batch, E features, H heads, D = E / H features of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.attention import additive_mask, attention_weights, causal_mask
from picograd.nn.layers.features import Linear
from picograd.nn.module import Module
from picograd.nn.parameter import new_parameter
from picograd.tensor.creation.probabilities import probability
from picograd.tensor.tensor import Tensor


class MultiheadAttention(Module):
    """Heads side by side, each softmax(q k.T / sqrt(D) + mask) v of projections of its own, joined by out_proj.

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
        is_batch = query.ndim == 3
        parts = [self._batch_first(x, is_batch) for x in (query, key, value)]
        if key is query and value is key:
            parts = [parts[0]] * 3
        q_NLE, k_NSE, v_NSE = self._projected(*parts)
        mask = self._mask(attn_mask, key_padding_mask, is_causal, q_NLE, k_NSE, is_batch)
        if self.bias_k is not None and self.bias_v is not None:
            k_NSE, v_NSE = (_behind(x, more) for x, more in ((k_NSE, self.bias_k), (v_NSE, self.bias_v)))
        if self.add_zero_attn:
            zeros = Tensor.zeros(1, 1, self.embed_dim, dtype=k_NSE.dtype, device=k_NSE.device)
            k_NSE, v_NSE = _behind(k_NSE, zeros), _behind(v_NSE, zeros)
        if mask is not None:
            mask = mask.pad((0, k_NSE.shape[1] - mask.shape[-1]))
        heads = [x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q_NLE, k_NSE, v_NSE)]  # (N, H, L, D)
        out_NHLD, weights = self._attend(heads[0], heads[1], heads[2], mask, need_weights)
        out_NLE = self.out_proj(out_NHLD.transpose(1, 2).flatten(2))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not is_batch:
            return out_NLE.squeeze(0), None if weights is None else weights.squeeze(0)
        return out_NLE if self.batch_first else out_NLE.transpose(0, 1), weights

    def _batch_first(self, x: Tensor, is_batch: bool) -> Tensor:
        if not is_batch:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values, (N, L, E) each; of one tensor by one product."""
        biases: Sequence[Tensor | None] = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is not None and query is key and key is value:
            q, k, v = functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
            return q, k, v
        weights: Sequence[Tensor] = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            weights = self.in_proj_weight.chunk(3)
        q, k, v = (functional.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
        return q, k, v

    def _mask(
        self,
        attn_mask: Tensor | None,
        padding: Tensor | None,
        is_causal: bool,
        q_NLE: Tensor,
        k_NSE: Tensor,
        is_batch: bool,
    ) -> Tensor | None:
        """Returns what is added to the scores, broadcasting to (N, H, L, S), or None."""
        total: Tensor | None = None
        batch, queries, keys = q_NLE.shape[0], q_NLE.shape[1], k_NSE.shape[1]
        if is_causal and attn_mask is None:
            attn_mask = causal_mask(queries, keys, q_NLE.device)
        if attn_mask is not None:
            shapes = ((queries, keys), (batch * self.num_heads, queries, keys))
            if attn_mask.shape not in shapes:
                raise ShapeError(f"MultiheadAttention: attn_mask {attn_mask.shape} must be {shapes[0]} or {shapes[1]}.")
            total = additive_mask("MultiheadAttention", attn_mask, q_NLE.dtype)
            total = total.unflatten(0, (batch, self.num_heads)) if total.ndim == 3 else total
        if padding is not None:
            wanted = (batch, keys) if is_batch else (keys,)
            if padding.shape != wanted:
                raise ShapeError(f"MultiheadAttention: key_padding_mask {padding.shape} must be {wanted}.")
            added = additive_mask("MultiheadAttention", padding, q_NLE.dtype).reshape(batch, 1, 1, keys)
            total = added if total is None else total + added
        return total

    def _attend(
        self, q_NHLD: Tensor, k_NHSD: Tensor, v_NHSD: Tensor, mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        rate = self.dropout if self.training else 0.0
        if not need_weights:
            return functional.scaled_dot_product_attention(q_NHLD, k_NHSD, v_NHSD, mask, rate), None
        weights = functional.dropout(attention_weights(q_NHLD, k_NHSD, mask), rate)
        return weights @ v_NHSD, weights


def _behind(x_NSE: Tensor, one: Tensor) -> Tensor:
    """Returns x with one more row for every example."""
    return Tensor.cat([x_NSE, one.expand(x_NSE.shape[0], 1, x_NSE.shape[2])], 1)


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
