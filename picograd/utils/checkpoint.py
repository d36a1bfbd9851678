"""`torch.utils.checkpoint` by its name: memory for time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd.control.outline import checkpoint as recomputed
from picograd.errors import ArgumentError
from picograd.nn.module import Module


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
    **kwargs: Any,
) -> Any:
    """Calls a function whose inside the backward pass computes again instead of keeping it, as `pg.checkpoint` does.

    Args:
      function:            or method, or Module
      args, kwargs:        its arguments
      use_reentrant:       changes nothing: a graph is never used up
      preserve_rng_state:  changes nothing: random numbers inside are drawn once, for both passes

    Returns:   the result of the function

    Raises:
      JitError: under jit or vmap the function cannot be traced.

    >>> x = Tensor([2.0], requires_grad=True)
    >>> utils.checkpoint.checkpoint(lambda x: (x * x).exp().log(), x, use_reentrant=False).sum().backward()
    >>> x.grad
    Tensor([4.])
    """
    return recomputed(function, *args, **kwargs)


def checkpoint_sequential(
    functions: Module | Sequence[Callable[[Any], Any]],
    segments: int,
    input: Any,  # noqa: A002
    use_reentrant: bool | None = None,
    preserve_rng_state: bool = True,
) -> Any:
    """Calls functions one after the other, in segments; only the last keeps its intermediate values for backward.

    Args:
      functions:           a Sequential, or functions of one argument
      segments:            how many parts of about the same number of functions to make
      input:               argument of the first
      use_reentrant, preserve_rng_state:  see checkpoint

    Raises:
      ArgumentError: there are not as many functions as segments.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    >>> utils.checkpoint.checkpoint_sequential(net, 2, Tensor.ones(3, 2)).shape
    (3, 1)
    """
    steps = [module for _, module in functions._held_modules()] if isinstance(functions, Module) else list(functions)
    if not 1 <= segments <= len(steps):
        raise ArgumentError(f"checkpoint_sequential: {len(steps)} functions cannot be split into {segments} segments.")
    length = len(steps) // segments
    for number in range(segments - 1):
        part = steps[number * length : (number + 1) * length]
        input = checkpoint(_in_turn(part), input, preserve_rng_state=preserve_rng_state)  # noqa: A001
    return _in_turn(steps[(segments - 1) * length :])(input)


def get_device_states(*args: Any) -> tuple[list[int], list[Any]]:
    """Returns the GPUs of tensors and the states of their generators: none, since one generator draws for every device.

    Args:
      *args: tensors, on any devices.

    >>> utils.checkpoint.get_device_states(Tensor([1.0]))
    ([], [])
    """
    return [], []


def set_device_states(devices: Sequence[int], states: Sequence[Any]) -> None:
    """Gives generators of GPUs their states back: pg.set_rng_state does it for all devices.

    Raises:
      ArgumentError: there is one to give back.

    >>> utils.checkpoint.set_device_states([], [])
    """
    if len(devices) or len(states):
        raise ArgumentError("set_device_states: one generator draws for every device.", hint="pg.set_rng_state(state)")


def _in_turn(functions: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Returns the function that calls all of these, each with the result of the one before."""

    def run(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return run
