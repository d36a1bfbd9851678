"""torch.library's operators: functions of tensors, with a gradient that is registered, or the derived one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from picograd.autograd import Function
from picograd.errors import ArgumentError

__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake"]

ops = SimpleNamespace()  # torch.ops: by namespace the operators
_all: dict[str, CustomOpDef] = {}


class CustomOpDef:
    """An operator: it is called as its function is.

    name:  namespace::name
    fn:    the function
    """

    def __init__(self, name: str, fn: Callable[..., Any]):
        self.name, self.fn = name, fn
        self.function: Any = None
        self._signature = inspect.signature(fn)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.function is None:
            return self.fn(*args, **kwargs)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return self.function.apply(*bound.arguments.values())

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """Gives the operator a gradient: backward(ctx, *grads); setup_context(ctx, inputs, output) keeps what it reads."""
        parts = {"forward": staticmethod(self.fn), "backward": staticmethod(backward)}
        parts["setup_context"] = staticmethod(setup_context or (lambda ctx, inputs, output: None))
        self.function = type(self.name, (Function,), parts)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Returns `fn`, the shapes of results, which are known here without it."""
        return fn

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """Returns `fn`, the function for one kind of device; what the operator was made of runs on all."""
        return fn if fn is not None else lambda given: given


def custom_op(name: str, fn: Callable[..., Any] | None = None, /, **kwargs: Any) -> Any:
    """Returns an operator, which torch.ops has too, or a decorator that makes one.

    >>> @custom_op("mine::double", mutates_args=())
    ... def double(x: Tensor) -> Tensor:
    ...     return x * 2
    >>> double(Tensor([1.0])), ops.mine.double(Tensor([2.0]))
    (Tensor([2.]), Tensor([4.]))
    """
    if fn is None:
        return lambda given: custom_op(name, given, **kwargs)
    space, _, own = name.partition("::")
    if not own:
        raise ArgumentError(f"custom_op: the name of an operator is namespace::name, got {name!r}.")
    made = _all[name] = CustomOpDef(name, fn)
    if not hasattr(ops, space):
        setattr(ops, space, SimpleNamespace())
    setattr(getattr(ops, space), own, made)
    return made


def register_autograd(op: Any, backward: Callable[..., Any], /, **kwargs: Any) -> None:
    """Gives an operator, or that of a name, a gradient (CustomOpDef.register_autograd)."""
    setup_context = kwargs.get("setup_context")
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_fake(op: Any, fn: Any = None, /, **kwargs: Any) -> Any:
    """Returns `fn`, or a decorator: shapes of results are known here without it."""
    return fn if fn is not None else lambda given: given


def _found(op: Any) -> CustomOpDef:
    """Returns the operator, or that of a name."""
    if not isinstance(op, CustomOpDef) and op not in _all:
        raise ArgumentError(f"register_autograd: there is no operator {op!r}; operators: {', '.join(_all) or 'none'}.")
    return op if isinstance(op, CustomOpDef) else _all[op]
