"""Memory for time: a part of the forward pass that the backward pass computes again.

In:    a function and its arguments
Out:   what it returns; of its inside nothing is kept for the backward pass
Next:  picograd/control/outline.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from picograd.autodiff.split import RECOMPUTE
from picograd.control.outline import called

P = ParamSpec("P")
R = TypeVar("R")


def checkpoint(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls a function whose inside the backward pass computes again instead of keeping it.

    Values and gradients are those of function(*args), random numbers inside are drawn once. Kept for the backward pass
    are the arguments and what else the function reads.

    Args:
      function:      or method, or Module
      args, kwargs:  Tensors, alone or in lists, tuples, dicts and dataclasses, and anything else that it takes

    Returns:   what the function returns

    Raises:
      JitError: a value is asked for inside, a tensor made inside is kept, or an argument is written in place.

    Cost:      the forward pass of the function twice.

    >>> x = Tensor([2.0], requires_grad=True)
    >>> checkpoint(lambda x: (x * x).exp().log(), x).sum().backward()
    >>> x.grad
    Tensor([4.])
    """
    return cast(R, called("checkpoint", function, args, kwargs, mark=RECOMPUTE))
