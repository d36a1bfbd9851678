"""`.grad`: what may stand there, None or a tensor like the one it is the gradient of, and how it goes away again.

In:    a tensor, and what is to be its gradient
Out:   `store_grad`, `read_grad`, `zero_grads`; `UsedUp`, what stands there after a jitted step
Next:  picograd/tensor/hooks.py
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from picograd.annotations import shown
from picograd.errors import ArgumentError, ArgumentTypeError, DeviceError, DTypeError, JitError, ShapeError
from picograd.tensor.cell import trace
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


class UsedUp:
    """Stands in place of a gradient that a jitted function made and used up: it was never stored.

    function:    its name
    leaf:        how the user would write the tensor
    is_of_steps: it is what the last of several steps left
    """

    def __init__(self, function: str, leaf: str, is_of_steps: bool = False):
        self.function, self.leaf, self.is_of_steps = function, leaf, is_of_steps

    def error(self) -> JitError:
        """Returns the error for whoever needs the gradient."""
        why = "makes several steps at a time" if self.is_of_steps else f"writes to {self.leaf} after backward()"
        return JitError(
            f"jit: the gradient of {self.leaf} was used up in {self.function}, which {why}.",
            f"return it from {self.function}; or forget it by zero_grad() before the next backward().",
        )


def read_grad(tensor: Tensor) -> Any:
    """Returns the gradient of a tensor; tells a trace."""
    active = trace.get()
    if active is not None:
        active.on_look(tensor)
    grad: Any = tensor._grad
    if type(grad) is UsedUp:
        raise grad.error()
    return grad


def store_grad(tensor: Tensor, value: Any) -> None:
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
    active = trace.get()
    if active is not None:
        active.on_forget(tensor)
    tensor._grad = value


def zero_grads(tensors: Iterable[Tensor], set_to_none: bool) -> None:
    """Forgets the gradients of tensors; with set_to_none=False makes them 0."""
    active = trace.get()
    for tensor in tensors:
        if set_to_none:
            if active is not None:
                active.on_forget(tensor)
            tensor._grad = None
        elif isinstance(tensor._grad, UsedUp):
            tensor._grad = type(tensor).from_op(tensor.op.filled(0), tensor.cell.device)
        elif (grad := read_grad(tensor)) is not None:
            grad.write("zero_grad", grad.op.filled(0))
