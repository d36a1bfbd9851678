"""torch.autograd.function: Function, its context, and the decorator of backwards that are differentiated once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from picograd.control.custom import Function, FunctionContext

__all__ = ["Function", "FunctionCtx", "once_differentiable"]
F = TypeVar("F", bound=Callable[..., object])

FunctionCtx = FunctionContext


def once_differentiable(fn: F) -> F:
    """Returns the backward `fn` unchanged: it consists of differentiable functions, so it can be differentiated again.

    >>> once_differentiable(abs) is abs
    True
    """
    return fn
