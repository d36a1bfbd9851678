"""torch.library's operators: functions of tensors, with a registered or a derived gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from picograd import Tensor
from picograd.autograd import Function
from picograd.errors import ArgumentError, missing

__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake"]


class Operators(SimpleNamespace):
    """torch.ops: a namespace of users' operators for each of its names."""

    def __getattr__(self, name: str) -> Any:
        raise missing(name, "picograd.ops")


ops = Operators()
_all: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """An operator, called like its function.

    name:     namespace::name
    kernels:  a kind of device, cuda or cpu -> its function; None -> the function for others
    """

    def __init__(self, name: str, fn: Callable[..., Any], device_types: Any = None):
        self.name, self.kernels = name, dict.fromkeys(_kinds(device_types), fn)
        self.function: Any = None
        self._signature = inspect.signature(fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            return self._run(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.function.apply(*bound.arguments.values())

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function for the device of the first tensor; all devices except CUDA GPUs count as cpu."""
        place = next((arg.device.type for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)), "cpu")
        fn = self.kernels.get("cuda" if place == "cuda" else "cpu", self.kernels.get(None))
        if fn is None:
            there = ", ".join(str(kind) for kind in self.kernels)
            fact = f"{self.name}: the operator has functions for {there}, and none for tensors on {place}."
            raise ArgumentError(fact, hint=f'register_kernel("{place}") gives it one.')
        return fn(*args, **kwargs)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Sets the operator's gradient: backward(ctx, *grads); setup_context(ctx, inputs, output) keeps values for it."""
        parts = {"forward": staticmethod(self._run), "backward": staticmethod(backward)}
        parts["setup_context"] = staticmethod(setup_context or (lambda ctx, inputs, output: None))
        self.function = type(self.name, (Function,), parts)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Returns `fn`, which computes shapes of results; picograd does not need it."""
        return fn

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """Makes `fn` the function for one or several kinds of devices, and returns it; without `fn` it is a decorator."""
        if fn is None:
            return lambda given: self.register_kernel(device_types, given)
        self.kernels |= dict.fromkeys(_kinds(device_types), fn)
        return fn


def _kinds(device_types: Any) -> list[str | None]:
    """Returns the given kinds of devices: None, one, or several."""
    return [device_types] if device_types is None or isinstance(device_types, str) else [*device_types]


def custom_op(name: str, fn: Callable[..., Any] | None = None, /, *, device_types: Any = None, **kwargs: Any) -> Any:
    """Returns an operator, also registered in torch.ops, or a decorator that makes one.

    >>> @custom_op("mine::double", mutates_args=())
    ... def double(x: Tensor) -> Tensor:
    ...     return x * 2
    >>> double(Tensor([1.0])), ops.mine.double(Tensor([2.0]))
    (Tensor([2.]), Tensor([4.]))
    """
    if fn is None:
        return lambda given: custom_op(name, given, device_types=device_types)
    space, _, own = name.partition("::")
    if not own:
        raise ArgumentError(f"custom_op: the name of an operator is namespace::name, got {name!r}.")
    made = _all[name] = CustomOpDef(name, fn, device_types)
    if not hasattr(ops, space):
        setattr(ops, space, SimpleNamespace())
    setattr(getattr(ops, space), own, made)
    return made


def register_autograd(op: Any, backward: Callable[..., Any], /, **kwargs: Any) -> None:
    """Sets the gradient of an operator, or of one given by name (CustomOpDef.register_autograd)."""
    setup_context = kwargs.get("setup_context")
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_fake(op: Any, fn: Any = None, /, **kwargs: Any) -> Any:
    """Returns `fn`, or a decorator: shapes of results do not need it."""
    return fn if fn is not None else lambda given: given


def _found(op: Any) -> CustomOpDef:
    """Returns the operator, or the one with this name."""
    if not isinstance(op, CustomOpDef) and op not in _all:
        raise ArgumentError(f"register_autograd: there is no operator {op!r}; operators: {', '.join(_all) or 'none'}.")
    return op if isinstance(op, CustomOpDef) else _all[op]
