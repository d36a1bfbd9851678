"""Kernels of small forms, made as for a GPU; nothing runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import picograd as pg
from picograd import Tensor
from picograd.devices.cudasim.device import TARGET
from picograd.engine.plan import parametrize, template
from picograd.ir.stages import Kernel
from picograd.road import schedule_graphs

Form = Callable[[], Tensor | tuple[Tensor, ...]]


def held(*shape: int, dtype: pg.DType = pg.float32) -> Tensor:
    """Returns a tensor in memory, other memory for each."""
    return Tensor(np.random.default_rng().standard_normal(shape).astype(np.float32), device="NUMPY").cast(dtype).realize()


def kernels_of(form: Form) -> list[Kernel]:
    """Returns the kernels of a form."""
    made = form()
    roots = [tensor.op for tensor in (made if isinstance(made, tuple) else (made,))]
    schedule = schedule_graphs(parametrize(roots, template(roots)), TARGET)
    return [item.kernel for item in schedule.kernel_items()]


def kernel_of(form: Form) -> Kernel:
    """Returns the only kernel of a form."""
    (kernel,) = kernels_of(form)
    return kernel


def product_kernel_of(form: Form) -> Kernel:
    """Returns the first kernel of a form that is a product; others may stand beside it."""
    return next(kernel for kernel in kernels_of(form) if kernel.name.startswith("matmul"))
