"""`picograd.verify`: a function is run, and all that the engine computes for it is compared.

In:    a function or a module, and its arguments
Out:   a `Verdict`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from picograd.autograd import grad
from picograd.device import named
from picograd.engine.devices import EVALUATOR, check_usable
from picograd.errors import ArgumentError, ArgumentTypeError
from picograd.look import Profiling
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import forget_captures
from picograd_lab.verify.modules import is_torch_module, verify_module
from picograd_lab.verify.verdict import Verdict
from picograd_lab.verify.watch import Watcher, watching


def verify(function: Callable[..., Any], *args: Any, against: Any = "numpy", **kwargs: Any) -> Verdict:
    """Runs a function and compares every kernel that it runs, on the kernel's own inputs, with what it should give.

    |found - meaning| <= 2 bound        (bound: what rounding may do to each element, by a running error analysis)

    What the function computes is compared, forward, backward and update alike: kernel by kernel, then each plan as a whole,
    its rewrites and its memory. Gradients of a returned tensor that has none yet are computed, too.
    Jitted functions are traced again.

    Args:
      function:  anything that can be called: a step of a training, a Module
      args:      its arguments; what it changes stays changed, as without verify
      against:   "numpy", the evaluator of picograd; a device, which runs the same kernels; or PyTorch's module of the
                 same weights, where `function` is a module: outputs and gradients are compared, layer by layer
      kwargs:    its keyword arguments

    Returns:   a Verdict, true where nothing deviates; it prints as a table, and of the first that deviates with its Ops,
               the lines that made them and the smallest input that shows it

    Raises:
      ArgumentError: a profile is being made, or a verification; a module drops elements, each time others.
      DeviceError: there is no such device, or this machine cannot use it.

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], device="CPU")
    >>> print(verify(lambda: (x @ x).sum().item()).sentence())
    right: 2 kernels of 1 plans, 1 of 1 runs, held against the evaluator; nothing deviates
    """
    if Profiling.recorder is not None:
        raise ArgumentError("verify: a profile is being made, or a verification; they do not nest.")
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
    """Returns the device to compare with, None for the evaluator.

    Raises:
      ArgumentTypeError: it is not a device.
      DeviceError: there is no such device, or this machine cannot use it.
    """
    if not isinstance(against, str):
        raise ArgumentTypeError(f'verify: against must be "numpy" or a device, got {type(against).__name__}.')
    name = str(named(against.upper()))
    check_usable(name)
    return None if name == EVALUATOR else name


def _gradients(result: Any, function: Any, args: tuple[Any, ...]) -> None:
    """Computes what was returned, and its gradients by a module's parameters and by the arguments."""
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
