"""Multi-head attention, and the layers of transformers.

Letters: L queries, S keys and values, N batch, E features, H heads, D = E / H features per head; in transformers T target
steps, S source steps. Masks: True masks a key; floats are added to scores.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.containers import ModuleList
from picograd.nn.functions.dot_product_attention import additive_mask, causal_mask
from picograd.nn.layers.features import Linear
from picograd.nn.layers.norms import LayerNorm
from picograd.nn.layers.pointwise import Dropout
from picograd.nn.module import Module
from picograd.nn.parameter import add_parameter, new_parameter
from picograd.tensor.random import probability
from picograd.tensor.tensor import Tensor

__all__ = [
    "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


# ---- attention ----
class MultiheadAttention(Module):
    """Heads softmax(q k.T / sqrt(D) + mask) v with projections of their own, joined by out_proj.

    Args:
      embed_dim:      E, features of queries and of the result
      num_heads:      H, a divisor of E
      dropout:        probability that a weight is dropped in training
      bias:           give all projections a bias
      add_bias_kv:    add a trained key and value, bias_k and bias_v
      add_zero_attn:  add a key and a value of zeros
      kdim, vdim:     features of keys and values, by default E
      batch_first:    (N, L, E), not (L, N, E)

    State: in_proj_weight (3 E, E), or q_proj_weight, k_proj_weight, v_proj_weight if kdim or vdim differs from E;
    in_proj_bias (3 E,); out_proj.weight, out_proj.bias.

    Raises:
      ArgumentError: num_heads does not divide embed_dim, or dropout is not a probability.

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
        add_parameter(self, "in_proj_bias", (3 * embed_dim,) if bias else None, device, dtype)
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
        """Returns the output, of the shape of query, and the weights or None.

        query (L, N, E), key (S, N, kdim), value (S, N, vdim); batch_first: (N, L, E), ...; without a batch (L, E), ...
        key_padding_mask (N, S) or (S,) and attn_mask (L, S) or (N H, L, S): True masks; floats are added to scores.
        need_weights: return the weights (N, L, S) averaged over heads, or (N, H, L, S) without average_attn_weights.
        is_causal: query i sees keys 0 to i. A query that sees no key gets zeros.

        Raises:
          ShapeError: the shapes do not match.
        """
        _check_layer_inputs(self, query, key, value)
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


def _check_layer_inputs(layer: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises ShapeError unless queries, keys and values match the layer and each other."""
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"MultiheadAttention: {shapes} must have three axes each, or two without a batch.")
    wanted = (layer.embed_dim, layer.kdim, layer.vdim)
    if (query.shape[-1], key.shape[-1], value.shape[-1]) != wanted:
        raise ShapeError(f"MultiheadAttention: {shapes} must have {wanted[0]}, {wanted[1]} and {wanted[2]} features.")
    batch = 0 if layer.batch_first else 1
    if key.shape[:-1] != value.shape[:-1] or (query.ndim == 3 and query.shape[batch] != key.shape[batch]):
        raise ShapeError(f"MultiheadAttention: {shapes} do not fit each other.")


# ---- transformers ----
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "gelu": functional.gelu}


class _Layer(Module):
    """Base of encoder and decoder layers: self-attention, and linear1, activation, linear2."""

    reads_memory = False  # True for decoder layers: another attention, norm and dropout read the encoder's result

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        if isinstance(activation, str) and activation not in ACTIVATIONS:
            name = type(self).__name__
            raise ArgumentError(f'{name}: activation must be "relu", "gelu" or a function, got {activation!r}.')
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
        )
        if self.reads_memory:
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype
            )
        self.linear1 = Linear(d_model, dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first = norm_first
        self.norm1, self.norm2 = (LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype) for _ in range(2))
        if self.reads_memory:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        if self.reads_memory:
            self.dropout3 = Dropout(dropout)
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def _part(self, norm: LayerNorm, dropout: Dropout, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns x plus the result of a sublayer, normalized before or after."""
        return x + dropout(part(norm(x))) if self.norm_first else norm(x + dropout(part(x)))

    def _feed_forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.dropout(self.activation(self.linear1(x)))
        return self.linear2(hidden)


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a feed-forward network, each added to its input and normalized.

    Args:
      d_model:          E
      nhead:            number of heads
      dim_feedforward:  features between linear1 and linear2
      dropout:          on attention weights, between the linear layers, and before each addition
      activation:       "relu", "gelu" or a function
      layer_norm_eps:   eps of the norms
      batch_first:      (N, L, E), not (L, N, E)
      norm_first:       normalize the input of each sublayer, not its result
      bias:             give linear layers and norms a bias

    Raises:
      ArgumentError: an unknown activation, or nhead does not divide d_model.

    Source: Vaswani et al. 2017, arXiv:1706.03762, figure 1, left.

    >>> TransformerEncoderLayer(8, 2, 16)(Tensor.rand(5, 3, 8)).shape
    (5, 3, 8)
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src (S, N, E), src_mask (S, S), src_key_padding_mask (N, S) -> (S, N, E); is_causal: mask later steps."""

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)[0]

        src = self._part(self.norm1, self.dropout1, src, attend)
        return self._part(self.norm2, self.dropout2, src, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, then a feed-forward network, each added and normalized.

    Args:
      d_model:          E
      nhead:            number of heads of each attention
      dim_feedforward:  features between linear1 and linear2
      dropout:          on attention weights, between the linear layers, and before each addition
      activation:       "relu", "gelu" or a function
      layer_norm_eps:   eps of the norms
      batch_first:      (N, L, E), not (L, N, E)
      norm_first:       normalize the input of each sublayer, not its result
      bias:             give linear layers and norms a bias

    Raises:
      ArgumentError: an unknown activation, or nhead does not divide d_model.

    Source: Vaswani et al. 2017, arXiv:1706.03762, figure 1, right.

    >>> TransformerDecoderLayer(8, 2, 16)(Tensor.rand(5, 3, 8), Tensor.rand(4, 3, 8)).shape
    (5, 3, 8)
    """

    reads_memory = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt (T, N, E), memory (S, N, E) -> (T, N, E).

        tgt_mask (T, T), memory_mask (T, S), tgt_key_padding_mask (N, T), memory_key_padding_mask (N, S);
        tgt_is_causal, memory_is_causal: mask later steps.
        """

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]

        def look(x: Tensor) -> Tensor:
            rule = (memory_key_padding_mask, False, memory_mask)
            return self.multihead_attn(x, memory, memory, *rule, is_causal=memory_is_causal)[0]

        tgt = self._part(self.norm1, self.dropout1, tgt, attend)
        tgt = self._part(self.norm2, self.dropout2, tgt, look)
        return self._part(self.norm3, self.dropout3, tgt, self._feed_forward)


class TransformerEncoder(Module):
    """`num_layers` copies of `encoder_layer` in sequence, then `norm`.

    enable_nested_tensor, mask_check: accepted, without effect.

    >>> TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)(Tensor.rand(5, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ):
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """src (S, N, E), mask (S, S), src_key_padding_mask (N, S) -> (S, N, E); is_causal: mask later steps."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of `decoder_layer` in sequence, then `norm`.

    >>> decoder = TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 2)
    >>> decoder(Tensor.rand(5, 3, 8), Tensor.rand(4, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None):
        self.layers = ModuleList(copy.deepcopy(decoder_layer) for _ in range(num_layers))
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt (T, N, E), memory (S, N, E) -> (T, N, E).

        tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal, memory_is_causal: as in
        TransformerDecoderLayer.
        """
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, and a decoder that attends to its result.

    Args:
      d_model:          E
      nhead:            number of heads of each attention
      num_encoder_layers, num_decoder_layers:  number of layers
      dim_feedforward:  features between linear1 and linear2
      dropout:          on attention weights, between the linear layers, and before each addition
      activation:       "relu", "gelu" or a function
      layer_norm_eps:   eps of the norms
      batch_first:      (N, L, E), not (L, N, E)
      norm_first:       normalize the input of each sublayer, not its result
      bias:             give linear layers and norms a bias
      custom_encoder, custom_decoder:  modules used instead of the built-in ones

    Raises:
      ArgumentError: an unknown activation, or nhead does not divide d_model.

    Source: Vaswani et al. 2017, arXiv:1706.03762, figure 1.

    >>> net = Transformer(8, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=16)
    >>> net(Tensor.rand(4, 3, 8), Tensor.rand(5, 3, 8)).shape
    (5, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ):
        kind = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, True, bias, device, dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*kind, device, dtype), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*kind, device, dtype), num_decoder_layers, norm()
        )
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """src (S, N, E), tgt (T, N, E) -> (T, N, E).

        src_mask (S, S), tgt_mask (T, T), memory_mask (T, S); src_key_padding_mask, memory_key_padding_mask (N, S),
        tgt_key_padding_mask (N, T); src_is_causal, tgt_is_causal, memory_is_causal: mask later steps.

        Raises:
          ShapeError: src and tgt differ in batch or features.
        """
        batch = 0 if self.batch_first else 1
        if src.shape[-1] != tgt.shape[-1] or (src.ndim == 3 and src.shape[batch] != tgt.shape[batch]):
            raise ShapeError(f"Transformer: src {src.shape} and tgt {tgt.shape} differ in batch or features.")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: str | None = None, dtype: DType | None = None) -> Tensor:
        """Returns (sz, sz): 0 for steps that are visible, -inf for later ones.

        >>> nn.Transformer.generate_square_subsequent_mask(2)
        Tensor([[  0., -inf],
                [  0.,   0.]])
        """
        return additive_mask("generate_square_subsequent_mask", causal_mask(sz, sz, device), dtype)
