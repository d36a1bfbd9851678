"""Kernels that no code is generated for: the evaluator runs them, called by the plan.

In:    a Kernel of one HOST nest, a Device
Out:   Executable
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from picograd.errors import UnsupportedOp
from picograd.evaluator import evaluate_kernel
from picograd.ir.backend import Device, HostDevice
from picograd.ir.lines import line_of
from picograd.ir.op import greatest
from picograd.ir.stages import Executable, Kernel, NestKind
from picograd.look import look

HOST_ENTRY = "kernel "  # what the text of a kernel begins with


def runs_on_host(kernel: Kernel) -> bool:
    """True for a kernel of a function of the host."""
    return any(nest.kind is NestKind.HOST for phase in kernel.phases for nest in phase)


def load_host(kernel: Kernel, device: Device) -> Executable:
    """Returns callable code of a kernel of a function of the host.

    Raises:
      UnsupportedOp: plans of this device cannot call the host.
    """
    value = kernel.phases[0][0].outputs[0][1]
    if not isinstance(device, HostDevice):
        raise UnsupportedOp(
            f"{value.arg.name}: plans of {device.name} cannot call a function of the host.",
            'x.to("CPU") moves a tensor to a device whose plans can.',
            line_of(value),
        )
    look("kernel", kernel)

    def run(arrays: Sequence[np.ndarray[Any, Any]], variables: Mapping[str, int]) -> None:
        evaluate_kernel(kernel, arrays, variables)

    numel = sum(greatest(param.numel) for param in kernel.params)
    rows = max((greatest(s.shape[-1]) for s in value.src if s.shape), default=1)
    return device.load_host(kernel.name, kernel.params, kernel.variables, max(1, numel * rows), run)
