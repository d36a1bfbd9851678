"""On which device operands meet: CPU tensors of no axes, and CPU indices in brackets, go where the others are.

In:    tensors that one operation takes
Out:   `meeting_device`, `brought_to`, `storing_device`; `value_at`: what a tensor holds, on that device
Next:  picograd/tensor/growth.py

These are PyTorch's rules (TensorIterator's `allow_cpu_scalars`, `index`, `index_put_`); whatever does not ask here takes
operands of one device. What goes along is a COPY, through which gradients flow back.
"""

from __future__ import annotations

from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.core import TensorCore

GOES_ALONG = "CPU"  # the device whose tensors may go where others are


def meeting_device(function: str, first: TensorCore, *others: TensorCore) -> str | None:
    """Returns the device on which an operation on elements takes place.

    Raises:
      DeviceError: they are on two devices, and not because of CPU tensors of no axes alone.
    """
    tensors = (first, *others)
    staying = [tensor for tensor in tensors if tensor.cell.device != GOES_ALONG or tensor.op.shape]
    start, *rest = staying if any(tensor.cell.device is not None for tensor in staying) else tensors
    return start.other_device(function, *rest)


def brought_to(function: str, tensor: TensorCore, *brought: TensorCore) -> str | None:
    """Returns the device of `tensor`, to which CPU tensors are brought: its indices, or a number that is filled in.

    Raises:
      DeviceError: one of them is on a third device, or `tensor` is on the CPU and one of them is not.
    """
    home = tensor.cell.device
    staying = [other for other in brought if home in (None, GOES_ALONG) or other.cell.device != GOES_ALONG]
    return tensor.other_device(function, *staying)


def storing_device(function: str, target: TensorCore, value: TensorCore) -> str | None:
    """Returns the device on which a value is stored where indices say: the target's, where values of no axes go.

    Raises:
      DeviceError: the value has axes, and is on another device.
    """
    return target.cell.device if target.cell.device and not value.op.shape else target.other_device(function, value)


def value_at(tensor: TensorCore, device: str | None) -> Op:
    """Returns what a tensor holds as an operand of a graph on a device; constants live everywhere."""
    op = tensor.read()
    if device is None or tensor.cell.device in (None, device) or op.code is OpCode.CONST:
        return op
    return Op(OpCode.COPY, op.dtype, (op,), device)
