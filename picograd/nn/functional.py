"""Functions of networks: linear, normalisation, embedding, dropout, attention, activations; the losses by name.

In:    tensors
Out:   tensors
Next:  picograd/nn/losses.py

Letters: B... batch axes, L queries, S keys and values, D features of a query, E of a value, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import compare, where
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.nn.losses import binary_cross_entropy as binary_cross_entropy
from picograd.nn.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from picograd.nn.losses import cross_entropy as cross_entropy
from picograd.nn.losses import l1_loss as l1_loss
from picograd.nn.losses import mse_loss as mse_loss
from picograd.nn.losses import nll_loss as nll_loss
from picograd.tensor import pointwise
from picograd.tensor.build import broadcast_to, cast
from picograd.tensor.indexing import along_axis, gather_op
from picograd.tensor.random import Generator, random_bits, uniform_op
from picograd.tensor.reduce import mean_op, variance_op
from picograd.tensor.tensor import Tensor


# ---- layers as functions ----
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    """Returns input @ weight.T + bias.

    Args:
      input:   (..., K)
      weight:  (N, K)
      bias:    (N,) or None

    Returns:   (..., N)

    Raises:
      ShapeError: the last axes of input and weight differ.

    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]]), Tensor([0.5]))
    Tensor([[11.5]])
    """
    if weight.ndim != 2 or input.shape[-1:] != weight.shape[1:]:
        raise ShapeError(
            f"linear: input {input.shape} does not fit weight {weight.shape}: the last axes must be equal.",
            hint="weight is (out_features, in_features).",
        )
    product = input @ weight.T
    return product if bias is None else product + bias


def embedding(input: Tensor, weight: Tensor) -> Tensor:  # noqa: A002
    """Returns the rows of `weight` (V, D) that the integers of `input` name: (*input.shape, D).

    Raises:
      DTypeError: input is no integer tensor.
      ShapeError: weight has not two axes.
      IndexingError: when it is computed: an integer is negative or not below V.

    >>> embedding(Tensor([1, 0]), Tensor([[0.0, 1.0], [2.0, 3.0]]))
    Tensor([[2., 3.],
            [0., 1.]])
    """
    if not input.dtype.is_int:
        raise DTypeError(
            f"embedding: the indices must be integers, got {input.dtype} of shape {input.shape}.", hint="input.long()"
        )
    if weight.ndim != 2:
        raise ShapeError(f"embedding: weight must be (V, D), got {weight.shape}.")
    op = weight.read()
    op = gather_op(op, along_axis("embedding", input.read(), op.shape, 0), 0)
    return Tensor.from_op(op, weight.other_device("embedding", input))


def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalises the last axes to mean 0 and variance 1, then scales and shifts.

    out = (x - mean) / sqrt(var + eps) * weight + bias        (var divides by the count, not the count - 1)

    Args:
      input:             (..., *normalized_shape)  float; 16-bit floats are normalised in float32
      normalized_shape:  the axes at the end that are normalised together
      weight, bias:      (*normalized_shape) or None

    Raises:
      ShapeError: input does not end in normalized_shape, or weight or bias has another shape.

    Source:    Ba, Kiros, Hinton 2016, arXiv:1607.06450, eq. 3 and 4.

    >>> layer_norm(Tensor([[1.0, 3.0]]), (2,)).round(3).tolist()
    [[-1.0, 1.0]]
    """
    shape = tuple(normalized_shape)
    if not shape or input.shape[-len(shape) :] != shape:
        raise ShapeError(f"layer_norm: input {input.shape} does not end in {shape}.")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.shape != shape:
            raise ShapeError(f"layer_norm: {name} has shape {tensor.shape}, it must be {shape}.")
    op = cast(input.read(), input.dtype.wide)
    axes = tuple(range(input.ndim - len(shape), input.ndim))
    deviation = op - broadcast_to(mean_op(op, axes, keepdim=True), op.shape)
    scale = pointwise.rsqrt(variance_op(op, axes, 0, keepdim=True) + eps)
    result = Tensor.from_op(cast(deviation * broadcast_to(scale, op.shape), input.dtype), input.cell.device)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


def dropout(input: Tensor, p: float = 0.5, training: bool = True, generator: Generator | None = None) -> Tensor:  # noqa: A002
    """Returns each element with the probability 1 - p, divided by it, else 0; the input itself outside training.

    Raises:
      ArgumentError: p is not in [0, 1].

    >>> dropout(Tensor([1.0, 2.0]), training=False)
    Tensor([1., 2.])
    """
    if not 0.0 <= p <= 1.0:
        raise ArgumentError(f"dropout: p must be a probability, got {p}.")
    if not training or p == 0.0:
        return input
    if p == 1.0:
        return input * 0.0
    op = input.read()
    uniform = uniform_op(random_bits(op.shape, generator, input.device), dtypes.float32)
    kept = compare(OpCode.CMPLE, filled(p, dtypes.float32, op.shape), uniform)
    return Tensor.from_op(where(kept, op * (1.0 / (1.0 - p)), 0.0), input.cell.device)


# ---- attention ----
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
      DTypeError:    query is no float.
      ArgumentError: both a mask and is_causal.

    Source:    Vaswani et al. 2017, arXiv:1706.03762, eq. 1; grouped heads: Ainslie et al. 2023, arXiv:2305.13245.

    >>> q = Tensor([[[0.0, 0.0]]])
    >>> scaled_dot_product_attention(q, Tensor.zeros(1, 2, 2), Tensor([[[1.0], [3.0]]]))
    Tensor([[[2.]]])
    """
    if is_causal and attn_mask is not None:
        raise ArgumentError("scaled_dot_product_attention: got both attn_mask and is_causal; put both into the mask.")
    if not query.dtype.is_float:
        raise DTypeError(f"scaled_dot_product_attention: query must be a float, got {query.dtype} {query.shape}.")
    if enable_gqa:
        key, value = (_for_all_heads(query, tensor) for tensor in (key, value))
    _check_attention(query, key, value)
    scores = query @ key.mT * (1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(~_causal_mask(query, key), -math.inf)  # key 0 is open to every query
        weights = scores.softmax(-1)
    elif attn_mask is not None:
        weights = _softmax_or_zeros(_masked(scores, attn_mask))
    else:
        weights = scores.softmax(-1)
    return dropout(weights, dropout_p) @ value


def _check_attention(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {query.shape}, key {key.shape}, value {value.shape}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ShapeError(f"scaled_dot_product_attention: needs (..., length, features) each, got {shapes}.")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"scaled_dot_product_attention: {shapes} do not fit: query and key must have the same last axis, "
            "key and value the same axis -2."
        )


def _for_all_heads(query: Tensor, tensor: Tensor) -> Tensor:
    """Repeats each head of keys or values for the heads of queries that share it."""
    if query.ndim < 3 or tensor.ndim < 3 or not tensor.shape[-3] or query.shape[-3] % tensor.shape[-3]:
        raise ShapeError(
            f"scaled_dot_product_attention: enable_gqa: the heads (axis -3) of query {query.shape} must be a multiple "
            f"of those of key or value {tensor.shape}."
        )
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], tensor.ndim - 3)


def _causal_mask(query: Tensor, key: Tensor) -> Tensor:
    """Returns (L, S) bool: True where the key is not after the query."""
    rows_L = Tensor.arange(query.shape[-2], device=query.device)
    columns_S = Tensor.arange(key.shape[-2], device=query.device)
    return columns_S <= rows_L.unsqueeze(1)


def _masked(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -math.inf) if mask.dtype.kind == "b" else scores + mask.to(scores.dtype)


def _softmax_or_zeros(scores: Tensor) -> Tensor:
    """Returns softmax over the last axis, zeros for rows of -inf alone; neither has a gradient of NaN."""
    closed = scores.detach().amax(-1, keepdim=True) == -math.inf
    return scores.masked_fill(closed, 0.0).softmax(-1).masked_fill(closed, 0.0)


# ---- activations ----
def relu(input: Tensor) -> Tensor:  # noqa: A002
    """Returns 0 where input <= 0, else input.

    >>> relu(Tensor([-1.0, 2.0]))
    Tensor([0., 2.])
    """
    return input.relu()


def gelu(input: Tensor, approximate: str = "none") -> Tensor:  # noqa: A002
    """Returns input * Phi(input); `approximate` as in Tensor.gelu.

    >>> gelu(Tensor([0.0, 2.0]))
    Tensor([0.       , 1.9544997])
    """
    return input.gelu(approximate)


def silu(input: Tensor) -> Tensor:  # noqa: A002
    """Returns input * sigmoid(input).

    >>> silu(Tensor([0.0, 2.0]))
    Tensor([0.      , 1.761594])
    """
    return input.silu()


def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns exp(input) / sum(exp(input)) along one axis.

    >>> softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([0.5, 0.5])
    """
    return input.softmax(dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:  # noqa: A002
    """Returns input - log(sum(exp(input))) along one axis.

    >>> log_softmax(Tensor([0.0, 0.0]), dim=0)
    Tensor([-0.6931472, -0.6931472])
    """
    return input.log_softmax(dim, dtype)
