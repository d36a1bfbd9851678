"""Attention as functions.

In:    queries, keys and values
Out:   values, averaged
Next:  picograd/nn/functions/multihead.py

Letters: B... batch axes, L queries, S keys and values, D features of a query, E of a value, H heads.
"""

from __future__ import annotations

import math

from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.attention_parts import FEW_QUERIES
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.nn.functions.dropout import dropout
from picograd.tensor.arguments import number
from picograd.tensor.autocast import lowered, precision_mode, uses_tf32
from picograd.tensor.build import need_float
from picograd.tensor.creation.probabilities import probability
from picograd.tensor.tensor import Tensor

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Returns the values, averaged with weights that say how well each key fits each query.

    out = dropout(softmax(scale * query @ key.T + mask)) @ value

    Args:
      query:       (B..., L, D)  float
      key:         (B..., S, D)
      value:       (B..., S, E)
      attn_mask:   broadcasts to (B..., L, S), or None. bool: True takes part; float: added to the scores
      dropout_p:   probability with which a weight is 0; applied whenever it is above 0, in training or not
      is_causal:   query number i sees the keys 0 to i
      scale:       1 / sqrt(D) unless given
      enable_gqa:  key and value have fewer heads (axis -3); each serves as many queries' heads in a row

    Returns:       (B..., L, E)  of a query that no key is open to: zeros

    Raises:
      ShapeError:    query, key and value do not fit each other.
      DTypeError:    query is no float, or the mask is of integers.
      ArgumentError: both a mask and is_causal; scale is no number.

    Cost:      4 L S D FLOPs. With no mask and nothing dropped, of 8 queries or more (on a GPU of any number), one kernel
               that keeps no scores, and one for all gradients (on a GPU of 16 queries or more): no memory but for 8 bytes
               a query. So is one of less than 16 queries on a GPU with a mask. Otherwise the scores: L S numbers each head.
    Source:    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; grouped heads: Ainslie et al. 2023, arXiv:2305.13245.

    >>> q = Tensor([[[0.0, 0.0]]])
    >>> scaled_dot_product_attention(q, Tensor.zeros(1, 2, 2), Tensor([[[1.0], [3.0]]]))
    Tensor([[[2.]]])
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: got both attn_mask and is_causal; put both into the mask.")
    need_float("scaled_dot_product_attention", query.op, "query")
    if precision_mode.get() is not None:
        query, key, value = (x.to(lowered(x.dtype)) for x in (query, key, value))
    probability("scaled_dot_product_attention", "dropout_p", dropout_p)
    if scale is not None:
        number("scaled_dot_product_attention", "scale", scale)
    _check_attention(query, key, value)
    repeats = [_heads_that_share(query, tensor) for tensor in (key, value)] if enable_gqa else [1, 1]
    is_one = dropout_p == 0.0 and _has_kernel(query, key, value, is_causal, enable_gqa)
    if is_one and (attn_mask is None or _joins(attn_mask, query, key)):
        return _fused(query, key, value, attn_mask, is_causal, enable_gqa, _scale(query) if scale is None else scale)
    key, value = (x.repeat_interleave(n, x.ndim - 3) if n > 1 else x for x, n in zip((key, value), repeats))
    weights = attention_weights(query, key, attn_mask, is_causal, scale)
    return dropout(weights, dropout_p) @ value


def _has_kernel(query: Tensor, key: Tensor, value: Tensor, is_causal: bool, shares_heads: bool) -> bool:
    """Returns whether one Op does it all: of one dtype and batch, and lengths that are known but for that of many keys.

    A causal query that stands behind all keys sees all of them, which an ATTENTION, whose last query is at the last key,
    cannot say.
    """
    last = -3 if shares_heads else -2
    alike = query.dtype is key.dtype is value.dtype and key.shape[:-2] == value.shape[:-2]
    alike = alike and query.shape[:last] == key.shape[:last]
    L, S = query.shape[-2], key.shape[-2]
    known = all(isinstance(n, int) and n > 0 for n in (L, query.shape[-1], value.shape[-1]))
    if not alike or not known or query.device != key.device:
        return False
    return S > 0 and not (is_causal and L > S) if isinstance(S, int) else L < FEW_QUERIES and not is_causal


def _joins(mask: Tensor, query: Tensor, key: Tensor) -> bool:
    """Returns whether an ATTENTION takes the mask: that of few queries does, one that broadcasts to the scores' shape."""
    scores = (*query.shape[:-1], key.shape[-2])
    fits = mask.ndim <= len(scores) and all(n in (1, most) for n, most in zip(mask.shape[::-1], scores[::-1]))
    kinds = mask.dtype.kind == "b" or mask.dtype.is_float
    return fits and kinds and mask.device == query.device and query.shape[-2] < FEW_QUERIES


def _fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool, shares_heads: bool, scale: float
) -> Tensor:
    """Returns the OUTPUT of an ATTENTION; keys behind the last query, which no causal one sees, are left out."""
    if is_causal and key.shape[-2] != query.shape[-2]:
        key, value = (x[..., : query.shape[-2], :] for x in (key, value))
    masks = [] if mask is None else [mask.expand(*query.shape[:-1], key.shape[-2])]
    sources = tuple(_with_four_axes(x, shares_heads).op for x in (query, key, value, *masks))
    attention = Op(OpCode.ATTENTION, query.dtype, sources, AttentionArg(scale, is_causal, tf32=uses_tf32(query.dtype)))
    result = Op(OpCode.OUTPUT, query.dtype, (attention,), 0)
    return query.from_op(result, query.device).reshape(*query.shape[:-1], value.shape[-1])


def _with_four_axes(x: Tensor, shares_heads: bool) -> Tensor:
    """Returns (batch, heads, length, features), of what may have more axes of a batch, or lack it, or heads too."""
    if x.ndim == 4:
        return x
    if x.ndim == 3 and not shares_heads:
        return x.unsqueeze(1)  # axis 0 is a batch
    return x.flatten(0, -4) if x.ndim > 4 else x[(None,) * (4 - x.ndim)]


def _scale(query: Tensor) -> float:
    return 1.0 / math.sqrt(query.shape[-1])


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """Returns softmax(scale * query @ key.T + mask), (B..., L, S); a query that no key is open to has zeros.

    The arguments mean what they mean in `scaled_dot_product_attention`.
    """
    scores = query @ key.mT * (_scale(query) if scale is None else scale)
    if is_causal:  # key 0 is open to every query
        return scores.masked_fill(causal_mask(query.shape[-2], key.shape[-2], query.device), -math.inf).softmax(-1)
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


def _heads_that_share(query: Tensor, tensor: Tensor) -> int:
    """Returns how many heads of queries share a head of keys or values."""
    if query.ndim < 3 or tensor.ndim < 3 or not tensor.shape[-3] or query.shape[-3] % tensor.shape[-3]:
        raise ShapeError(
            f"scaled_dot_product_attention: enable_gqa: the heads (axis -3) of query {query.shape} must be a multiple "
            f"of those of key or value {tensor.shape}."
        )
    return int(query.shape[-3] // tensor.shape[-3])


# ---- masks ----
def causal_mask(queries: int, keys: int, device: str | None = None) -> Tensor:
    """Returns (queries, keys) bool: True where the key is after the query, so that it is left out."""
    rows_L, columns_S = Tensor.arange(queries, device=device), Tensor.arange(keys, device=device)
    return columns_S > rows_L.unsqueeze(1)


def additive_mask(function: str, mask: Tensor, dtype: DType | None) -> Tensor:
    """Returns a mask as numbers to add to scores: of a bool one -inf where it is True, for what is left out.

    Raises:
      DTypeError: it is of integers.
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
    """Returns softmax over the last axis, zeros for rows of -inf alone; neither has a gradient of NaN."""
    closed = scores.detach().amax(-1, keepdim=True) == -math.inf
    return scores.masked_fill(closed, 0.0).softmax(-1).masked_fill(closed, 0.0)
