"""Checks of arguments beyond annotations, and the device of an operation on several operands.

Operands on several devices follow PyTorch's rules (TensorIterator's `allow_cpu_scalars`, `index`, `index_put_`): 0-d CPU
tensors are copied to the device of the others; gradients flow back through the COPY. Other functions take operands of one
device.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from picograd.annotations import fits, shown
from picograd.errors import ArgumentError, ArgumentTypeError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import whole
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- values of arguments ----
Tensors = TypeVar("Tensors", bound=TensorCore)


def at_least(function: str, name: str, value: Any, least: int) -> int:
    """Returns an integer argument of at least `least`.

    Raises:
      ArgumentError: it is something else.
    """
    found = whole(function, name, value)
    if found < least:
        raise ArgumentError(f"{function}: {name} must be at least {least}, got {found}.")
    return found


def check_positive(function: str, name: str, value: float) -> None:
    """Checks a number that must be above 0.

    Raises:
      ArgumentError: it is not above 0.
    """
    if not value > 0:
        raise ArgumentError(f"{function}: {name} must be positive, got {value}.")


def check_nonnegative(function: str, name: str, value: float) -> None:
    """Checks a number that must be at least 0.

    Raises:
      ArgumentError: it is negative.
    """
    if not value >= 0:
        raise ArgumentError(f"{function}: {name} must not be negative, got {value}.")


def check_one_of(function: str, name: str, value: Any, allowed: Iterable[str]) -> None:
    """Checks a word that must be one of `allowed`.

    Raises:
      ArgumentError: it is a different word.
    """
    words = tuple(allowed)
    if value not in words:
        raise ArgumentError(f"{function}: {name} must be one of {', '.join(words)}, got {value!r}.")


def number(function: str, name: str, value: Any) -> Any:
    """Returns an argument that is a number.

    Raises:
      ArgumentTypeError: it is something else.
    """
    if not fits(value, float):
        raise ArgumentTypeError(f"{function}: {name} must be a number, got {shown(value)}.")
    return value


def tensor_of(function: str, name: str, value: Any) -> Tensor:
    """Returns an argument that is a tensor.

    Raises:
      ArgumentError: it is something else.
    """
    found: Tensor = value
    if not isinstance(value, TensorCore):
        raise ArgumentError(f"{function}: {name} must be a tensor, got {type(value).__name__}.", "Tensor(...) makes one.")
    return found


def listed(tensors: Tensors | Iterable[Tensors]) -> list[Tensors]:
    """Returns tensors, or a single one, as a list."""
    return [tensors] if isinstance(tensors, TensorCore) else list(tensors)


def saved_state(owner: object, state: Any, *keys: str) -> dict[str, Any]:
    """Returns a copy of load_state_dict's argument, after a check of its keys.

    Args:
      keys:  required keys

    Raises:
      ArgumentTypeError: it is not a dict.
      ArgumentError:     it lacks a key.
    """
    name = type(owner).__name__
    if not isinstance(state, Mapping):
        hint = "pg.load(path) reads one." if isinstance(state, (str, os.PathLike)) else None
        hint = "its state_dict()" if hasattr(state, "state_dict") else hint
        raise ArgumentTypeError(
            f"load_state_dict: {name} needs a dict as state_dict() returns it, got {shown(state)}.", hint
        )
    lacking = [key for key in keys if key not in state]
    if lacking:
        there = ", ".join(map(repr, islice(state, 4))) + ", ..." * (len(state) > 4)
        fact = f"load_state_dict: the state of {name} must have {lacking[0]!r}; this dict has {there or 'nothing'}."
        raise ArgumentError(fact, "give the part of the file that its state_dict() made.")
    return dict(state)


# ---- devices of operands ----
GOES_ALONG = "CPU"  # the device whose tensors may be moved to the others'


def meeting_device(function: str, first: TensorCore, *others: TensorCore) -> str | None:
    """Returns the device on which an operation on elements takes place.

    Raises:
      DeviceError: operands are on two devices, and those on the CPU are not all 0-d.
    """
    tensors = (first, *others)
    staying = [tensor for tensor in tensors if tensor.cell.device != GOES_ALONG or tensor.op.shape]
    start, *rest = staying if any(tensor.cell.device is not None for tensor in staying) else tensors
    return start.other_device(function, *rest)


def brought_to(function: str, tensor: TensorCore, *brought: TensorCore) -> str | None:
    """Returns the device of `tensor`, to which CPU tensors are copied: indices, or a number to fill in.

    Raises:
      DeviceError: an operand is on a third device, or `tensor` is on the CPU and an operand is not.
    """
    home = tensor.cell.device
    staying = [other for other in brought if home in (None, GOES_ALONG) or other.cell.device != GOES_ALONG]
    return tensor.other_device(function, *staying)


def storing_device(function: str, target: TensorCore, value: TensorCore) -> str | None:
    """Returns the target's device, to which 0-d values are copied.

    Raises:
      DeviceError: the value has axes and is on a different device.
    """
    return target.cell.device if target.cell.device and not value.op.shape else target.other_device(function, value)


def value_at(tensor: TensorCore, device: str | None) -> Op:
    """Returns a tensor's value as an operand on a device; constants are on all devices."""
    op = tensor.read()
    if device is None or tensor.cell.device in (None, device) or op.code is OpCode.CONST:
        return op
    return Op(OpCode.COPY, op.dtype, (op,), device)
