"""`.grad`: what may stand there, None or a tensor like the one it is the gradient of, and how it goes away again.

In:    a tensor, and what is to be its gradient
Out:   `store_grad`, `zero_grads`
Next:  picograd/tensor/hooks.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from picograd.annotations import shown
from picograd.errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError, ShapeError
from picograd.tensor.core import TensorCore


def store_grad(tensor: TensorCore, value: Any) -> None:
    """Stores `value` as the gradient of a tensor.

    Raises:
      ArgumentTypeError: it is no tensor and not None.
      ArgumentError:     it is the tensor itself.
      ShapeError:        it is of another shape.
      DTypeError:        it is of another dtype.
      DeviceError:       it is on another device.
    """
    if value is not None:
        if not isinstance(value, TensorCore):
            raise ArgumentTypeError(f"grad: must be a tensor or None, got {shown(value)}.")
        if value is tensor:
            raise ArgumentError("grad: a tensor cannot be its own gradient.", hint="x.grad = x.detach().clone()")
        if value.op.shape != tensor.op.shape:
            raise ShapeError(f"grad: a gradient of shape {value.shape} does not fit a tensor of shape {tensor.shape}.")
        if value.dtype is not tensor.dtype:
            raise DTypeError(f"grad: a gradient of {value.dtype} does not fit a tensor of {tensor.dtype}.")
        if value.device != tensor.device:
            raise DeviceError(f"grad: a gradient on {value.device} does not fit a tensor on {tensor.device}.")
    tensor._grad = value


def zero_grads(tensors: Iterable[TensorCore], set_to_none: bool) -> None:
    """Forgets the gradients of tensors; with set_to_none=False makes them 0."""
    for tensor in tensors:
        if set_to_none:
            tensor._grad = None
        elif tensor._grad is not None:
            tensor._grad.write("zero_grad", tensor._grad.op.filled(0))
