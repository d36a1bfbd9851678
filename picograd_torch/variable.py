"""torch.autograd.Variable, in which programs from before PyTorch 0.4 wrap tensors."""

from __future__ import annotations

from typing import Any

from picograd.public import check_arguments
from picograd.tensor.tensor import Tensor

__all__ = ["Variable"]


class OfTensors(type):
    """Metaclass: all tensors are instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=OfTensors):
    """A tensor; the name is from a time when gradients needed a wrapper.

    Args:
      data:           a tensor, whose memory is shared
      requires_grad:  make backward() collect a gradient in the result

    >>> x = pg.autograd.Variable(Tensor([1.0, 2.0]), requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad, isinstance(x, pg.autograd.Variable)
    (Tensor([2., 4.]), True)
    """

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Any:
        check_arguments("Variable", Variable.__new__, (cls, data, requires_grad), {})
        return data.detach().requires_grad_(requires_grad)
