"""Attention: scaled dot-product attention, and multi-head attention with its projections and masks.

Letters: B... batch axes, N batch, L queries, S keys and values, H heads, D features of a query, E of a value (with several
heads: E features in all, D = E / H per head).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.attention import MATRIX_QUERIES_MIN
from picograd.ir.build import expand, positions
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.nn.functions.dropout import dropout
from picograd.nn.functions.linear import linear
from picograd.tensor.arguments import number
from picograd.tensor.build import broadcasts, need_float, whole
from picograd.tensor.generator import default_generator
from picograd.tensor.modes import lowered, precision_mode, uses_tf32
from picograd.tensor.random import probability
from picograd.tensor.tensor import Tensor

__all__ = ["multi_head_attention_forward", "scaled_dot_product_attention"]


# ---- one head ----
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    window: int = 0,
    soft_cap: float = 0.0,
) -> Tensor:
    """Returns averages of the values, weighted by the softmax of query-key scores.

    out = dropout(softmax(scores + mask)) @ value;  scores = scale * query @ key.T, and with a soft cap
    scores = soft_cap * tanh(scores / soft_cap)

    Args:
      query:       (B..., L, D)  float
      key:         (B..., S, D)
      value:       (B..., S, E)
      attn_mask:   broadcasts to (B..., L, S), or None. bool: True keeps the score; float: added to the scores
      dropout_p:   probability that a weight becomes 0; applied whenever it is above 0, also outside training
      is_causal:   query i sees keys 0 to i
      scale:       factor of the scores, by default 1 / sqrt(D)
      enable_gqa:  key and value have fewer heads (axis -3); each serves as many consecutive query heads
      window:      with is_causal, query i sees keys i - window + 1 to i; 0: all keys up to i
      soft_cap:    bound of the scores' absolute value; 0: no bound

    Returns:       (B..., L, E); zeros for a query that sees no key

    Raises:
      ShapeError:    the shapes of query, key and value do not match.
      DTypeError:    query is not a float, or the mask has integers.
      ArgumentError: both a mask and is_causal; scale is not a number; a window without is_causal; a negative window or
                     soft_cap.

    Cost:      4 L S D FLOPs. Without a mask and with at least 8 queries (on a GPU any number; with dropout 16), one kernel
               that stores no scores, and one for all gradients (on a GPU from 16 queries on): extra memory is 8 bytes a
               query, and dropout is drawn again for the gradients. On a GPU also with a mask, for fewer than 16 queries and
               without dropout. Otherwise scores are stored: L S numbers per head.
    Source:    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; grouped heads: Ainslie et al. 2023, arXiv:2305.13245; windows:
               Beltagy et al. 2020, arXiv:2004.05150, section 3.1; soft caps: Gemma Team 2024, arXiv:2408.00118, section 2.

    >>> q = Tensor([[[0.0, 0.0]]])
    >>> scaled_dot_product_attention(q, Tensor.zeros(1, 2, 2), Tensor([[[1.0], [3.0]]]))
    Tensor([[[2.]]])
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: give one of attn_mask and is_causal; a mask can hold both.")
    need_float("scaled_dot_product_attention", query.op, "query")
    if precision_mode.get() is not None:
        query, key, value = (x.to(lowered(x.dtype)) for x in (query, key, value))
    probability("scaled_dot_product_attention", "dropout_p", dropout_p)
    if scale is not None:
        number("scaled_dot_product_attention", "scale", scale)
    _check_window(whole("scaled_dot_product_attention", "window", window), is_causal, soft_cap)
    _check_attention(query, key, value)
    factor = _scale(query) if scale is None else scale
    arg = AttentionArg(factor, is_causal, window, float(soft_cap), uses_tf32(query.dtype), float(dropout_p))
    if is_causal and _has_more(key, query):  # keys after the last query
        key, value = (x[..., : query.shape[-2], :] for x in (key, value))
    repeats = [_heads_that_share(query, tensor) for tensor in (key, value)] if enable_gqa else [1, 1]
    if dropout_p:  # with fewer than all weights dropped, and a known number of keys
        joins = attn_mask is None and isinstance(key.shape[-2], int) and dropout_p < 1.0
    else:
        joins = attn_mask is None or _joins(attn_mask, query, key)
    if joins and _has_kernel(query, key, value, is_causal, enable_gqa):
        return _fused(query, key, value, attn_mask, enable_gqa, arg)
    key, value = (x.repeat_interleave(n, x.ndim - 3) if n > 1 else x for x, n in zip((key, value), repeats))
    weights = attention_weights(query, key, attn_mask, is_causal, scale, window, soft_cap)
    return dropout(weights, dropout_p) @ value


def _has_kernel(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, shares_heads: bool) -> bool:
    """Returns whether one ATTENTION computes it: equal dtypes and batches, and known lengths; the number of keys may vary.

    An ATTENTION has its last causal query at the last key, so it cannot express causal queries that come after all keys.
    """
    last = -3 if shares_heads else -2
    alike = query.dtype is key.dtype is value.dtype and key.shape[:-2] == value.shape[:-2]
    alike = alike and query.shape[:last] == key.shape[:last]
    L, S = query.shape[-2], key.shape[-2]
    known = all(isinstance(n, int) and n > 0 for n in (L, query.shape[-1], value.shape[-1]))
    if not alike or not known or query.device != key.device:
        return False
    return S > 0 and not (is_causal and L > S) if isinstance(S, int) else L < MATRIX_QUERIES_MIN and not is_causal


def _joins(mask: Tensor, query: Tensor, key: Tensor) -> bool:
    """Returns whether an ATTENTION takes the mask: one of few queries does, if the mask broadcasts to the scores."""
    fits = broadcasts(mask.shape, (*query.shape[:-1], key.shape[-2]))
    kinds = mask.dtype.kind == "b" or mask.dtype.is_float
    return fits and kinds and mask.device == query.device and query.shape[-2] < MATRIX_QUERIES_MIN


def _fused(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, shares_heads: bool, arg: AttentionArg) -> Tensor:
    """Returns the OUTPUT of an ATTENTION Op."""
    masks = [] if mask is None else [mask.expand(*query.shape[:-1], key.shape[-2])]
    sources = tuple(_with_four_axes(x, shares_heads).read() for x in (query, key, value, *masks))
    sources += _draws(sources[0].shape[:2], query.device) if arg.dropout else ()
    attention = Op(OpCode.ATTENTION, query.dtype, sources, arg)
    result = Op(OpCode.OUTPUT, query.dtype, (attention,), 0)
    made, shape = query.from_op(result, query.device), (*query.op.shape[:-1], value.op.shape[-1])
    return made if result.shape == shape else made.reshape(shape)


def _draws(heads: Shape, device: str) -> tuple[Op, Op]:
    """Returns the seed and a number per head (B, H) of the draws that `dropout` makes for all weights."""
    numbers = positions(heads, 0) * int(heads[1]) + positions(heads, 1)
    return expand(default_generator.next_key(device), heads), numbers


def _has_more(key: Tensor, query: Tensor) -> bool:
    S, L = key.shape[-2], query.shape[-2]
    return isinstance(S, int) and isinstance(L, int) and S > L


def _with_four_axes(x: Tensor, shares_heads: bool) -> Tensor:
    """Returns x as (batch, heads, length, features): further batch axes are joined, missing ones added."""
    if x.ndim == 4:
        return x
    if x.ndim == 3 and not shares_heads:
        return x.unsqueeze(1)  # axis 0 is the batch
    return x.flatten(0, -4) if x.ndim > 4 else x[(None,) * (4 - x.ndim)]


def _scale(query: Tensor) -> float:
    return 1.0 / math.sqrt(query.shape[-1])


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
) -> Tensor:
    """Returns softmax(scores + mask), (B..., L, S); zeros for a query that sees no key.

    The arguments are those of `scaled_dot_product_attention`.
    """
    scores = query @ key.mT * (_scale(query) if scale is None else scale)
    scores = (scores / soft_cap).tanh() * soft_cap if soft_cap else scores
    if is_causal and not window:  # every query sees key 0
        return scores.masked_fill(causal_mask(query.shape[-2], key.shape[-2], query.device), -math.inf).softmax(-1)
    if is_causal:
        mask = ~causal_mask(query.shape[-2], key.shape[-2], query.device, window)
    return scores.softmax(-1) if mask is None else _softmax_or_zeros(_masked(scores, mask))


def _check_attention(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"scaled_dot_product_attention: needs (..., length, features) each, got {shapes}.")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: {shapes} do not fit: query and key must have the same last axis, "
            "key and value the same axis -2."
        )


def _check_window(window: int, is_causal: bool, soft_cap: float) -> None:
    number("scaled_dot_product_attention", "soft_cap", soft_cap)
    if window < 0 or (window and not is_causal):
        needed = "must not be negative" if window < 0 else "needs is_causal=True"
        raise ArgumentError(f"scaled_dot_product_attention: window {needed}, got {window}.")
    if not 0 <= soft_cap < math.inf:
        raise ArgumentError(f"scaled_dot_product_attention: soft_cap must be a finite number, 0 or more, got {soft_cap}.")


def _heads_that_share(query: Tensor, tensor: Tensor) -> int:
    """Returns the number of query heads per head of keys and values."""
    if query.ndim < 3 or tensor.ndim < 3 or not tensor.shape[-3] or query.shape[-3] % tensor.shape[-3]:
        raise ShapeError(
            f"scaled_dot_product_attention: enable_gqa: the heads (axis -3) of query {query.shape} must be a multiple "
            f"of those of key or value {tensor.shape}."
        )
    return int(query.shape[-3] // tensor.shape[-3])


# ---- masks ----
def causal_mask(queries: int, keys: int, device: str | None = None, window: int = 0) -> Tensor:
    """Returns (queries, keys) bool: True if the key is masked: after the query, or before its window."""
    rows_L1, columns_S = Tensor.arange(queries, device=device).unsqueeze(1), Tensor.arange(keys, device=device)
    after_LS = columns_S > rows_L1
    return after_LS | (columns_S <= rows_L1 - window) if window else after_LS


def additive_mask(function: str, mask: Tensor, dtype: DType | None) -> Tensor:
    """Returns a mask as an addend of scores: -inf where a bool mask is True.

    Raises:
      DTypeError: the mask has integers.
    """
    if mask.dtype.kind == "b":
        return Tensor.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -math.inf)
    if not mask.dtype.is_float:
        raise DTypeError(f"{function}: a mask must be bool or a float, got {mask.dtype} of shape {mask.shape}.")
    return mask.to(dtype)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    if mask.dtype.is_int:
        raise DTypeError(
            f"scaled_dot_product_attention: attn_mask must be bool or a float, got {mask.dtype} of shape {mask.shape}.",
            hint="mask.bool(): True takes part.",
        )
    return scores.masked_fill(~mask, -math.inf) if mask.dtype.kind == "b" else scores + mask.to(scores.dtype)


def _softmax_or_zeros(scores: Tensor) -> Tensor:
    """Returns softmax over the last axis; zeros, without NaN gradients, for rows of -inf alone."""
    closed = scores.detach().amax(-1, keepdim=True) == -math.inf
    return scores.masked_fill(closed, 0.0).softmax(-1).masked_fill(closed, 0.0)


# ---- several heads ----
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
    """Multi-head attention with given weights; returns the output, and the attention weights or None.

    Args:
      query:               (L, N, E), or (L, E)
      key, value:          (S, N, features), or (S, features)
      embed_dim_to_check:  E
      num_heads:           H, a divisor of E
      in_proj_weight:      (3 E, E); None with use_separate_proj_weight
      in_proj_bias:        (3 E,)
      bias_k, bias_v:      (1, 1, E): an additional key and value
      add_zero_attn:       add a key and a value of zeros
      dropout_p:           probability that a weight is dropped in training
      out_proj_weight:     (E, E)
      out_proj_bias:       (E,)
      training:            apply dropout
      key_padding_mask:    (N, S), or (S,): True masks the key; floats are added to scores
      need_weights:        return the weights
      attn_mask:           (L, S) or (N H, L, S): True masks the score; floats are added to scores
      use_separate_proj_weight: use q_proj_weight, k_proj_weight and v_proj_weight instead of in_proj_weight
      q_proj_weight, k_proj_weight, v_proj_weight: (E, features) each
      static_k, static_v:  (N H, S, D): replace the projected keys and values
      average_attn_weights: average the weights over heads
      is_causal:           query i sees keys 0 to i

    Returns:   (L, N, E), and (N, L, S) or, not averaged, (N, H, L, S)

    Raises:
      ShapeError:    the shapes do not match.
      ArgumentError: num_heads does not divide E, or a weight is missing.

    >>> x, w = Tensor.ones(3, 1, 2), Tensor.eye(2)
    >>> multi_head_attention_forward(x, x, x, 2, 1, pg.cat([w, w, w]), None, None, None, False, 0.0, w, None)[0].shape
    (3, 1, 2)
    """
    num_heads = whole("multi_head_attention_forward", "num_heads", num_heads)
    _check_inputs(query, key, value)
    _check_features(embed_dim_to_check, num_heads, query, in_proj_weight, in_proj_bias)
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
    """Raises ShapeError unless queries, keys and values all have two axes, or all three, and match."""
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if query.ndim not in (2, 3) or not query.ndim == key.ndim == value.ndim:
        raise ShapeError(f"multi_head_attention_forward: {shapes} must have three axes each, or two without a batch.")
    if key.shape[:-1] != value.shape[:-1] or query.shape[1:-1] != key.shape[1:-1]:
        raise ShapeError(f"multi_head_attention_forward: {shapes} do not fit each other.")


def _check_features(width: int, num_heads: int, query: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Raises ArgumentError unless num_heads divides the features, and ShapeError unless the projections have E features."""
    if num_heads < 1 or width % num_heads or query.shape[-1] != width:
        raise ArgumentError(
            f"multi_head_attention_forward: {num_heads} heads must divide embed_dim {width}, the features of"
            f" query {query.shape}."
        )
    for name, given in (("in_proj_weight", weight), ("in_proj_bias", bias)):
        if given is not None and (not given.ndim or given.shape[0] != 3 * width):
            wanted = f"3 * embed_dim = {3 * width} rows"
            raise ShapeError(f"multi_head_attention_forward: {name} {given.shape} must have {wanted}.")


def _projected(
    parts: Sequence[Tensor], weight: Tensor | None, bias: Tensor | None, separate: Sequence[Tensor | None] | None
) -> Sequence[Tensor]:
    """Returns projected queries, keys and values, (N, L, E) each; self-attention takes one product."""
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
    """Splits the features into heads: (N, H, L, D)."""
    return x_NLE.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _with_more(x_NSE: Tensor, bias: Tensor | None, zeros: bool) -> Tensor:
    """Appends rows to every example: `bias`, and zeros for add_zero_attn."""
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
    """Returns the masks as one addend of the scores that broadcasts to (N, H, L, S), or None."""
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
