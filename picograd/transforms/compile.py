"""`compile`: jit by the name and with the arguments that PyTorch has for it.

In:    a function of Tensors, or a module
Out:   a callable that runs one plan
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from picograd.errors import ArgumentError
from picograd.transforms.jit import jit

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")  # PyTorch's


def compile(  # noqa: A001
    model: Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "picograd",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Callable[..., Any]:
    """Captures a function of Tensors, or a module, as one plan: pg.jit under PyTorch's name; a decorator, too.

    A result has no graph, so that the function to compile is the whole training step: forward, backward() and
    optimizer.step(). Around a module alone it serves for evaluation; attributes of the module are those of the result.

    Args:
      model:      a function or a module
      fullgraph:  has no effect: a function is one graph, or an error says why not
      dynamic:    has no effect: from the third length on one plan serves many
      backend:    has no effect
      mode:       one of MODES; the two of "max-autotune" are pg.jit with tune=True, the others have no effect
      options:    has no effect
      disable:    returns `model` itself

    Raises:
      ArgumentError: `mode` is none of MODES.
      JitError: `model` is no function of Tensors, or cannot be captured.

    >>> @pg.compile
    ... def double(x):
    ...     return x * 2
    >>> double(pg.Tensor([1.0]))
    Tensor([2.])
    >>> net = pg.compile(nn.Linear(2, 3), mode="max-autotune")
    >>> net(pg.ones(1, 2)).shape, net.out_features
    ((1, 3), 3)
    """
    if disable:
        return (lambda model: model) if model is None else model
    if mode is not None and mode not in MODES:
        raise ArgumentError(f"compile: mode must be one of {', '.join(MODES)}, got {mode!r}.")
    tune = mode is not None and mode.startswith("max-autotune")
    return functools.partial(jit, tune=tune) if model is None else jit(model, tune=tune)
