"""The state of modules: saved, loaded, moved to other devices and dtypes.

In:    the parameters and buffers of a module
Out:   `ModuleState`, which Module extends
Next:  picograd/nn/hooks.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.tensor.autograd import no_grad
from picograd.tensor.build import cast
from picograd.tensor.cell import set_op
from picograd.tensor.tensor import Tensor


class IncompatibleKeys(NamedTuple):
    """What load_state_dict did not find, and what it did not know.

    missing_keys:     paths of the module that the given state lacks
    unexpected_keys:  paths of the given state that the module lacks

    >>> IncompatibleKeys(["bias"], []).missing_keys
    ['bias']
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


class ModuleState:
    """What a module does with all its tensors."""

    def _named_tensors(self, *kinds: str, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yields (path, tensor) of these kinds, parameter, buffer, temporary: module by module, parameters first."""
        raise NotImplementedError

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> dict[str, Tensor]:
        """Returns all parameters and buffers by path; the tensors share storage with the module.

        `prefix` stands before every path; `keep_vars`: the tensors themselves, with their gradients.

        >>> list(nn.MLP(2, [3, 1]).state_dict())
        ['layers.0.weight', 'layers.0.bias', 'layers.1.weight', 'layers.1.bias']
        """
        named = self._named_tensors("parameter", "buffer")
        return {prefix + name: tensor if keep_vars else tensor.detach() for name, tensor in named}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> IncompatibleKeys:
        """Stores tensors by path into the parameters and buffers, in place; returns what was missing and unknown.

        Tensors of other libraries and arrays will do.

        Raises:
          ArgumentError: paths are missing or unknown (unless strict is False).
          ShapeError:    a tensor has another shape than its place.
          DTypeError:    a value is neither a tensor nor an array.

        >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
        >>> b.load_state_dict(a.state_dict())
        IncompatibleKeys(missing_keys=[], unexpected_keys=[])
        >>> bool((a.weight == b.weight).all())
        True
        """
        own = self.state_dict()
        missing = [name for name in own if name not in state_dict]
        unknown = [name for name in state_dict if name not in own]
        if strict and (missing or unknown):
            raise ArgumentError(
                f"load_state_dict: missing: {_listed(missing)}; unknown: {_listed(unknown)}.",
                hint="strict=False loads what fits by name.",
            )
        given = {name: _as_tensor(name, value) for name, value in state_dict.items() if name in own}
        for name, tensor in given.items():
            if tensor.shape != own[name].shape:
                raise ShapeError(f"load_state_dict: {name} has shape {tensor.shape}, its place {own[name].shape}.")
        with no_grad():
            for name, tensor in given.items():
                own[name].assign(tensor.detach().to(own[name].device, own[name].dtype))
        return IncompatibleKeys(missing, unknown)

    # ---- moving ----
    def to(self, *targets: Any) -> Self:
        """Moves all parameters and buffers to a device, floats also to a dtype; the tensors stay the same objects.

        `targets`: the name of a device, a dtype, or both.

        >>> nn.Linear(2, 3).to(dtypes.float16).weight.dtype
        float16
        """
        seen: set[int] = set()
        for _, tensor in self._named_tensors("parameter", "buffer", "temporary"):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                _move(tensor, targets)
                if tensor.grad is not None:
                    _move(tensor.grad, targets)
        return self

    def half(self) -> Self:
        """Makes all floats of parameters and buffers float16; returns self.

        >>> nn.Linear(2, 3).half().weight.dtype
        float16
        """
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Makes all floats of parameters and buffers bfloat16; returns self.

        >>> nn.Linear(2, 3).bfloat16().weight.dtype
        bfloat16
        """
        return self.to(dtypes.bfloat16)

    def float(self) -> Self:
        """Makes all floats of parameters and buffers float32; returns self.

        >>> nn.Linear(2, 3).float().weight.dtype
        float32
        """
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Makes all floats of parameters and buffers float64; returns self.

        >>> nn.Linear(2, 3).double().weight.dtype
        float64
        """
        return self.to(dtypes.float64)

    def cpu(self) -> Self:
        """Moves all parameters and buffers to the CPU; returns self.

        >>> nn.Linear(2, 3).cpu().weight.device
        'CPU'
        """
        return self.to("CPU")

    def cuda(self) -> Self:
        """Moves all parameters and buffers to the GPU; returns self."""
        return self.to("CUDA")


def _move(tensor: Tensor, targets: tuple[Any, ...]) -> None:
    """Gives a tensor its value on another device or, of floats, in another dtype; the object stays."""
    value = tensor.detach()
    moved = value.to(*(target for target in targets if isinstance(target, str)))
    dtype = next((target for target in targets if target is not None and not isinstance(target, str)), tensor.dtype)
    if tensor.dtype.is_float:
        moved = moved.cast(dtype)
    if moved is not value:
        if tensor.steps and tensor.op.shape != tensor.cell.op.shape:
            raise ArgumentError(f"to: a parameter of shape {tensor.shape} is a view of other storage; clone it first.")
        tensor.cell.device = moved.cell.device
        set_op(tensor.cell, cast(moved.op, moved.dtype))


def _listed(names: list[str]) -> str:
    return (", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")) or "none"


def _as_tensor(name: str, value: Any) -> Tensor:
    """Returns what stands in a state as a Tensor."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value.detach().cpu()) if hasattr(value, "detach") else np.asarray(value)
    if array.dtype.kind not in "biufV":
        raise DTypeError(f"load_state_dict: {name} is a {type(value).__name__}, which is neither a tensor nor an array.")
    return Tensor(array)
