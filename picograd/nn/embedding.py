"""Rows of a table by their numbers: embedding.

In:    integers and weights
Out:   tensors
Next:  picograd/nn/normalization.py
"""

from __future__ import annotations

from picograd.errors import DTypeError, ShapeError
from picograd.tensor.indexing import along_axis, gather_op
from picograd.tensor.tensor import Tensor


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
