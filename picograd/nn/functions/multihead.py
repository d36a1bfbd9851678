"""Attention with several heads: projections of queries, keys and values, masks, and the heads joined.

In:    queries, keys and values; weights of the projections
Out:   `multi_head_attention_forward`: a mixture of values for each query, and its weights
Next:  picograd/nn/functions/rectifiers.py

L queries, S keys and values, N batch, E features, H heads, D = E / H features of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.attention import additive_mask, attention_weights, causal_mask, scaled_dot_product_attention
from picograd.nn.functions.dropout import dropout
from picograd.nn.functions.linear import linear
from picograd.tensor.build import whole
from picograd.tensor.tensor import Tensor

__all__ = ["multi_head_attention_forward"]


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Returns nn.MultiheadAttention of weights that are given: the output, and the attention weights or None.

    Args:
      query:               (L, N, E), or (L, E)
      key, value:          (S, N, features), or (S, features)
      embed_dim_to_check:  E
      num_heads:           H, divides E
      in_proj_weight:      (3 E, E); None with use_separate_proj_weight
      in_proj_bias:        (3 E,)
      bias_k, bias_v:      (1, 1, E): one more key and value
      add_zero_attn:       one more key and value of zeros
      dropout_p:           of the weights, in training
      out_proj_weight:     (E, E)
      out_proj_bias:       (E,)
      training:            whether weights are dropped
      key_padding_mask:    (N, S), or (S,): True is left out; floats are added to scores
      need_weights:        whether the weights are returned
      attn_mask:           (L, S) or (N H, L, S): True is left out; floats are added to scores
      use_separate_proj_weight: q_proj_weight, k_proj_weight and v_proj_weight in the place of in_proj_weight
      q_proj_weight, k_proj_weight, v_proj_weight: (E, features) each
      static_k, static_v:  (N H, S, D): in the place of projected keys and values
      average_attn_weights: the mean of the weights over heads
      is_causal:           query i sees the keys 0 to i

    Returns:   (L, N, E) and (N, L, S), or (N, H, L, S) of every head

    Raises:
      ShapeError:    the shapes do not fit each other.
      ArgumentError: num_heads does not divide E, or a weight is missing.

    >>> x, w = Tensor.ones(3, 1, 2), Tensor.eye(2)
    >>> multi_head_attention_forward(x, x, x, 2, 1, pg.cat([w, w, w]), None, None, None, False, 0.0, w, None)[0].shape
    (3, 1, 2)
    """
    num_heads = whole("multi_head_attention_forward", "num_heads", num_heads)
    _check_inputs(query, key, value)
    if num_heads < 1 or embed_dim_to_check % num_heads or query.shape[-1] != embed_dim_to_check:
        raise ArgumentError(
            f"multi_head_attention_forward: {num_heads} heads must divide embed_dim {embed_dim_to_check}, and query"
            f" {query.shape} have so many features."
        )
    for name, given in (("in_proj_weight", in_proj_weight), ("in_proj_bias", in_proj_bias)):
        if given is not None and (not given.ndim or given.shape[0] != 3 * embed_dim_to_check):
            wanted = f"3 * embed_dim = {3 * embed_dim_to_check} rows"
            raise ShapeError(f"multi_head_attention_forward: {name} {given.shape} must have {wanted}.")
    is_batch = query.ndim == 3
    parts = [x.transpose(0, 1) if is_batch else x.unsqueeze(0) for x in (query, key, value)]
    if key is query and value is key:
        parts = [parts[0]] * 3
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q_NLE, k_NSE, v_NSE = _projected(parts, in_proj_weight, in_proj_bias, separate)
    mask = _mask(attn_mask, key_padding_mask, is_causal, num_heads, q_NLE, k_NSE, is_batch)
    k_NHSD, v_NHSD = (
        _heads(_with_more(x, bias, add_zero_attn), num_heads) if static is None else static.unflatten(0, (-1, num_heads))
        for x, bias, static in ((k_NSE, bias_k, static_k), (v_NSE, bias_v, static_v))
    )
    if mask is not None:
        mask = mask.pad((0, k_NHSD.shape[2] - mask.shape[-1]))
    rate = dropout_p if training else 0.0
    out_NHLD, weights = _attend(_heads(q_NLE, num_heads), k_NHSD, v_NHSD, mask, rate, need_weights)
    out_NLE = linear(out_NHLD.transpose(1, 2).flatten(2), out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    if not is_batch:
        return out_NLE.squeeze(0), None if weights is None else weights.squeeze(0)
    return out_NLE.transpose(0, 1), weights


def _check_inputs(query: Tensor, key: Tensor, value: Tensor) -> None:
    """Raises ShapeError unless queries, keys and values have two axes each, or three, and fit each other."""
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"multi_head_attention_forward: {shapes} must have three axes each, or two without a batch.")
    if key.shape[:-1] != value.shape[:-1] or query.shape[1:-1] != key.shape[1:-1]:
        raise ShapeError(f"multi_head_attention_forward: {shapes} do not fit each other.")


def _projected(
    parts: Sequence[Tensor], weight: Tensor | None, bias: Tensor | None, separate: Sequence[Tensor | None] | None
) -> Sequence[Tensor]:
    """Returns queries, keys and values, (N, L, E) each; of one tensor by one product."""
    if separate is None and weight is not None and parts[0] is parts[1] is parts[2]:
        return linear(parts[0], weight, bias).chunk(3, -1)
    weights = separate if separate is not None else weight.chunk(3) if weight is not None else (None,) * 3
    biases: Sequence[Tensor | None] = (None, None, None) if bias is None else bias.chunk(3)
    projected = []
    for x, w, b in zip(parts, weights, biases):
        if w is None:
            raise ArgumentError("multi_head_attention_forward: a weight of the projections is missing.")
        projected.append(linear(x, w, b))
    return projected


def _heads(x_NLE: Tensor, num_heads: int) -> Tensor:
    """Returns (N, H, L, D)."""
    return x_NLE.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _with_more(x_NSE: Tensor, bias: Tensor | None, zeros: bool) -> Tensor:
    """Returns x with one more row for every example: `bias`, and then zeros."""
    batch, _, features = x_NSE.shape
    rows = [] if bias is None else [bias.expand(batch, 1, features)]
    if zeros:
        rows.append(Tensor.zeros(1, 1, features, dtype=x_NSE.dtype, device=x_NSE.device).expand(batch, 1, features))
    for row in rows:
        x_NSE = Tensor.cat([x_NSE, row], 1)
    return x_NSE


def _mask(
    attn_mask: Tensor | None, padding: Tensor | None, is_causal: bool, num_heads: int, q_NLE: Tensor, k_NSE: Tensor,
    is_batch: bool,
) -> Tensor | None:  # fmt: skip
    """Returns the addend of the scores, broadcasting to (N, H, L, S), or None."""
    total: Tensor | None = None
    batch, queries, keys = q_NLE.shape[0], q_NLE.shape[1], k_NSE.shape[1]
    if is_causal and attn_mask is None:
        attn_mask = causal_mask(queries, keys, q_NLE.device)
    if attn_mask is not None:
        shapes = ((queries, keys), (batch * num_heads, queries, keys))
        if attn_mask.shape not in shapes:
            raise ShapeError(f"MultiheadAttention: attn_mask {attn_mask.shape} must be {shapes[0]} or {shapes[1]}.")
        total = additive_mask("MultiheadAttention", attn_mask, q_NLE.dtype)
        total = total.unflatten(0, (batch, num_heads)) if total.ndim == 3 else total
    if padding is not None:
        wanted = (batch, keys) if is_batch else (keys,)
        if padding.shape != wanted:
            raise ShapeError(f"MultiheadAttention: key_padding_mask {padding.shape} must be {wanted}.")
        added = additive_mask("MultiheadAttention", padding, q_NLE.dtype).reshape(batch, 1, 1, keys)
        total = added if total is None else total + added
    return total


def _attend(
    q_NHLD: Tensor, k_NHSD: Tensor, v_NHSD: Tensor, mask: Tensor | None, rate: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    if not need_weights:
        return scaled_dot_product_attention(q_NHLD, k_NHSD, v_NHSD, mask, rate), None
    weights = dropout(attention_weights(q_NHLD, k_NHSD, mask), rate)
    return weights @ v_NHSD, weights
