"""Dropout as functions.

In:    tensors
Out:   the same with elements left out at random
Next:  picograd/nn/attention.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.build import compare, where
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.tensor.random import Generator, random_bits, uniform_op
from picograd.tensor.tensor import Tensor


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
