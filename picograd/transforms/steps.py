"""Many calls of one function as one LOOP: the steps of a training run without Python between them.

In:    a function, the number of steps, arguments whose Tensors are stacked along their first axis
Out:   what the function returned in each step, stacked
Called by: transforms/jit.py.    Next: picograd/transforms/containers.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from picograd.control.flow import Scan
from picograd.control.structure import put, take
from picograd.errors import JitError
from picograd.tensor.tensor import Tensor


def run_stacked(function: Callable[..., Any], steps: int, args: Any, kwargs: Any) -> Any:
    """Calls a function `steps` times, as one LOOP: call i gets row i of every Tensor; its results are stacked.

    What is no Tensor is the same in every call; Tensors made before are read and written as the calls do.

    Raises:
      JitError: a Tensor does not have a row for each call.
    """
    name = getattr(function, "__name__", "the function")
    given = take((args, kwargs), "arguments")
    for tensor, path in zip(given.tensors, given.names):
        if not tensor.shape or tensor.shape[0] != steps:
            raise JitError(
                f"jit: {name} makes {steps} steps at a time, and {path} has shape {tensor.shape}.",
                f"stack a row for each step: ({steps}, ...); what is the same in all steps can be a closure.",
            )

    @functools.wraps(function)
    def step(carry: tuple[()], rows: list[Tensor]) -> tuple[tuple[()], Any]:
        new_args, new_kwargs = put(given.container, rows)
        return carry, function(*new_args, **new_kwargs)

    return Scan("jit", step, take((), "carry"), take(list(given.tensors), "arguments")).run(steps, reverse=False)[1]
