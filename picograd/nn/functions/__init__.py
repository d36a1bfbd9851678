"""Functions of networks, by subject; `picograd.nn.functional` is the page that lists them.

`widened` marks those that an autocast block computes in 32 bits: losses, norms and softmax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from picograd import dtype as dtypes
from picograd.tensor.modes import precision_mode

P = ParamSpec("P")
R = TypeVar("R")


def widened(function: Callable[P, R]) -> Callable[P, R]:
    """Returns a function that takes tensors of 16-bit floats as float32 inside an autocast block."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        if precision_mode.get() is None:
            return function(*args, **kwargs)
        wide: Any = [_wide(arg) for arg in args]
        named: Any = {name: _wide(arg) for name, arg in kwargs.items()}
        return function(*wide, **named)

    return wrapped


def _wide(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    return value.to(dtypes.float32) if dtype is dtypes.bfloat16 or dtype is dtypes.float16 else value
