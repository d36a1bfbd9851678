"""Parameters and buffers: tensors that say how a module is to hold them.

In:    a shape, or a tensor
Out:   `new_parameter`, `Parameter`, `Buffer`
Next:  picograd/nn/functions/precision.py
"""

from __future__ import annotations

from typing import Any

from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.tensor.tensor import Tensor

__all__ = ["Buffer", "Parameter"]


def new_parameter(shape: tuple[int, ...], device: str | None, dtype: DType | None) -> Tensor:
    """Returns zeros that require grad."""
    return Tensor.zeros(shape, dtype=dtype, device=device, requires_grad=True)


class _ParameterType(type):
    """Says what is a parameter: what was made one, what a module holds as one, and every leaf that requires grad."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if not isinstance(instance, Tensor):
            return False
        return getattr(instance, "_role", None) == "parameter" or (instance.requires_grad and instance.is_leaf)


class Parameter(Tensor, metaclass=_ParameterType):
    """A leaf on the storage of `data` that a module trains when it gets it as an attribute.

    What is made is a Tensor like any other; isinstance(p, Parameter) also holds for a leaf that requires grad, since
    modules take it as one.

    Args:
      data:           floats; None: no elements
      requires_grad:  False: frozen, but among a module's parameters all the same

    >>> scale = nn.Parameter(Tensor([1.0]), requires_grad=False)
    >>> net = nn.Identity()
    >>> net.scale = scale
    >>> isinstance(scale, nn.Parameter), len(list(net.parameters()))
    (True, 1)
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Tensor:  # type: ignore[misc]
        if data is not None and not isinstance(data, Tensor):
            raise ArgumentError(f"Parameter: data must be a tensor, got {type(data).__name__}.", hint="Tensor(data)")
        leaf = (Tensor([]) if data is None else data).detach()
        leaf._role = "parameter"
        return leaf.requires_grad_() if requires_grad else leaf


class _BufferType(type):
    """Says what is a buffer: what was made one, or is held as one."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and getattr(instance, "_role", None) in ("buffer", "temporary")


class Buffer(Tensor, metaclass=_BufferType):
    """A tensor on the storage of `data` that is state of a module, and not trained, when it gets it as an attribute.

    Args:
      data:        None: no elements
      persistent:  False: it is not saved

    >>> net = nn.Identity()
    >>> net.mean = nn.Buffer(Tensor([0.0]))
    >>> list(net.state_dict())
    ['mean']
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Tensor:  # type: ignore[misc]
        if data is not None and not isinstance(data, Tensor):
            raise ArgumentError(f"Buffer: data must be a tensor, got {type(data).__name__}.", hint="Tensor(data)")
        held = (Tensor([]) if data is None else data).detach()
        held._role = "buffer" if persistent else "temporary"
        return held
