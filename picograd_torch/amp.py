"""torch.amp by its name: mixed precision and loss scaling, also in autograd.Functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from picograd.control.structure import mapped
from picograd.dtype import DType
from picograd.engine.devices import device_named, why_not
from picograd.tensor.modes import Mode, autocast, precision_mode
from picograd.tensor.tensor import Tensor
from picograd_training.scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Returns whether this machine can use a device; all devices compute in 16 bits, too.

    >>> is_autocast_available("cpu")
    True
    """
    return why_not(device_named(device_type)) is None


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str = "cuda", cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorates the forward of an autograd.Function, so that its backward computes in the same precision.

    Args:
      fwd:          forward(context, *args)
      device_type:  has no effect: forward uses the precision in effect at its call
      cast_inputs:  under autocast, cast float arguments to this dtype and run forward without autocast

    >>> class Double(pg.autograd.Function):
    ...     @staticmethod
    ...     @pg.amp.custom_fwd(device_type="cpu", cast_inputs=pg.float32)
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @pg.amp.custom_bwd(device_type="cpu")
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> with pg.autocast("cpu"):
    ...     Double.apply(Tensor([1.0], dtype=pg.bfloat16))
    Tensor([2.])
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)
    forward = fwd

    @functools.wraps(forward)
    def wrapped(context: Any, *args: Any, **kwargs: Any) -> Any:
        context.precision = precision_mode.get()
        if cast_inputs is None or context.precision is None:
            return forward(context, *args, **kwargs)
        context.precision = None
        args, kwargs = mapped((args, kwargs), lambda one: one.to(cast_inputs) if one.dtype.is_float else one)
        with Mode(precision_mode, None):
            return forward(context, *args, **kwargs)

    return wrapped


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str = "cuda") -> Callable[..., Any]:
    """Decorates the backward of an autograd.Function whose forward uses custom_fwd: it has forward's precision.

    Args:
      bwd:          backward(context, *grads)
      device_type:  has no effect
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)
    backward = bwd

    @functools.wraps(backward)
    def wrapped(context: Any, *grads: Tensor) -> Any:
        with Mode(precision_mode, context.precision):
            return backward(context, *grads)

    return wrapped
