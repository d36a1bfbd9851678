"""Distances and angles between vectors.

In:    vectors
Out:   a number for each pair
Next:  picograd/nn/functions/losses.py
"""

from __future__ import annotations

import numpy as np

from picograd.errors import ShapeError
from picograd.nn.functions.precision import widened
from picograd.tensor.build import broadcast_shapes, broadcast_to, need_float
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known

__all__ = ["cosine_similarity", "normalize", "pairwise_distance", "pdist"]


@widened
def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:  # noqa: A002
    """Returns input / max(norm, eps), the norm of order `p` along axis `dim`.

    Raises:
      DTypeError: input is no float.

    >>> normalize(Tensor([[3.0, 4.0]]))
    Tensor([[0.6, 0.8]])
    """
    need_float("normalize", input.op)
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


@widened
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Returns x1 . x2 / (max(|x1|, eps) max(|x2|, eps)) along axis `dim`, both broadcast.

    Raises:
      DTypeError: x1 or x2 is no float.

    >>> cosine_similarity(Tensor([[1.0, 0.0]]), Tensor([[3.0, 4.0]]))
    Tensor([0.6])
    """
    for name, x in (("x1", x1), ("x2", x2)):
        need_float("cosine_similarity", x.op, name)
    shape = broadcast_shapes("cosine_similarity", x1.op.shape, x2.op.shape)
    parts = []
    for x in (x1, x2):
        whole = Tensor.from_op(broadcast_to(x.read(), shape), x.cell.device)
        norm = whole.norm(2.0, dim, keepdim=True)
        parts.append(whole / (norm + (norm.clamp(min=eps) - norm).detach()))  # as in PyTorch, eps stops no gradient
    return (parts[0] * parts[1]).sum(dim)


@widened
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Returns the norm of order `p` of x1 - x2 + eps along the last axis, x1 and x2 broadcast.

    >>> pairwise_distance(Tensor([[1.0, 2.0]]), Tensor([[4.0, 6.0]]), eps=0.0)
    Tensor([5.])
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim)


@widened
def pdist(input: Tensor, p: float = 2.0) -> Tensor:  # noqa: A002
    """Returns the distances of order `p` between all rows i < j of input (N, D): (N (N - 1) / 2,).

    Raises:
      ShapeError: input has not two axes.
      DTypeError: input is no float.

    >>> pdist(Tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])).round(4)
    Tensor([5.    , 1.    , 4.2426])
    """
    if input.ndim != 2:
        raise ShapeError(f"pdist: input must be (N, D), got {input.shape}.")
    need_float("pdist", input.op)
    first, second = (Tensor(rows, device=input.device) for rows in np.triu_indices(known("pdist", input.shape, 0), 1))
    return (input[first] - input[second]).norm(p, -1)
