"""`picograd.verify`: runs a function, and compares everything that the engine computes for it.

In:    a function or a module, and its arguments
Out:   a `Verdict`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.autograd import grad
from picograd.device import named
from picograd.engine.devices import EVALUATOR, check_usable
from picograd.errors import ArgumentTypeError
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import forget_captures
from picograd_lab.verify.modules import is_torch_module, verify_module
from picograd_lab.verify.verdict import Verdict
from picograd_lab.verify.watch import Watcher, watching


def verify(function: Callable[..., Any], *args: Any, against: Any = "numpy", **kwargs: Any) -> Verdict:
    """Runs a function and compares every kernel that it runs, on the kernel's own inputs, with its meaning.

    |found - meaning| <= 2 bound        (bound: the rounding error of each element, by a running error analysis)

    Forward, backward and update are compared alike: kernel by kernel, then each plan as a whole, its rewrites and its
    memory. Missing gradients of a returned tensor are computed, too.
    Jitted functions are traced again.

    Args:
      function:  any callable: a training step, a Module
      args:      its arguments; changes of them stay, as without verify
      against:   "numpy", picograd's evaluator; a device, which runs the same kernels; or PyTorch's module of the same
      weights, if `function` is a module: outputs and gradients are compared, layer by layer
      kwargs:    its keyword arguments

    Returns:   a Verdict, true if nothing deviates; it prints as a table, with the first deviation's Ops, the user's lines
    of code for them, and the smallest input that shows it

    Raises:
      ArgumentError: a profile or a verification is active; or modules have random dropout, which differs between them.
      DeviceError: the device is unknown, or this machine cannot use it.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], device="CPU")
    >>> print(verify(lambda: (x @ x).sum().item()).sentence())
    right: 2 kernels of 1 plans, 1 of 1 runs, held against the evaluator; nothing deviates
    """
    if is_torch_module(against):
        return verify_module(function, against, args, kwargs)
    watcher = Watcher(device_of(against))
    forget_captures()
    try:
        with watching(watcher):
            _gradients(function(*args, **kwargs), function, args)
    finally:
        forget_captures()
    if not watcher.verdict.runs:
        watcher.verdict.note("nothing was computed")
    return watcher.verdict


def device_of(against: object) -> str | None:
    """Returns the device to compare with; None for the evaluator.

    Raises:
      ArgumentTypeError: the value is not a device.
      DeviceError: the device is unknown, or this machine cannot use it.
    """
    if not isinstance(against, str):
        raise ArgumentTypeError(f'verify: against must be "numpy" or a device, got {type(against).__name__}.')
    name = str(named(against.upper()))
    check_usable(name)
    return None if name == EVALUATOR else name


def _gradients(result: Any, function: Any, args: tuple[Any, ...]) -> None:
    """Computes the returned tensors, and their gradients by a module's parameters and by the arguments."""
    tensors = [part for part in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(part, Tensor)]
    for tensor in tensors:
        tensor.realize()
    leaves = list(function.parameters()) if isinstance(function, Module) else []
    leaves += [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
    loss = sum((tensor.sum() for tensor in tensors if tensor.requires_grad), Tensor(0.0))
    if leaves and loss.requires_grad:
        for each in grad(loss, leaves, allow_unused=True):
            if each is not None:
                each.realize()
