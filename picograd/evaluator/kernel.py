"""Runs a Kernel: its nests' outputs are graphs over PARAMs, evaluated phase by phase.

In:    a Kernel, an array for each slot, values of symbolic integers
Out:   the arrays of "out" and "scratch" slots, written in place
Next:  picograd/evaluator/frame.py
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from picograd.errors import VerifyError
from picograd.evaluator.arrays import shape_value
from picograd.evaluator.elementwise import Array
from picograd.evaluator.graph import evaluate
from picograd.ir.dims import dim_value
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Kernel, Param


def prepare(params: Sequence[Param], arrays: Sequence[Array | None], variables: Mapping[str, int]) -> list[Array]:
    """Returns each slot's memory as a flat view; a scratch slot that is missing or None gets memory of its own.

    Raises:
      VerifyError: an array has another dtype, too few elements, or is not contiguous.
    """
    memories: list[Array] = []
    for slot, param in enumerate(params):
        given = arrays[slot] if slot < len(arrays) else None
        numel = dim_value(param.numel, variables)
        if given is None and param.role in ("scratch", "report"):
            given = unspecified(numel, param.dtype.numpy)
        if given is None or given.dtype != param.dtype.numpy or given.size < numel or not given.flags.c_contiguous:
            found = "nothing" if given is None else f"{given.dtype} {given.shape}"
            raise VerifyError(f"slot {slot} needs a contiguous {param.dtype} array of {numel} elements, got {found}.")
        memories.append(given.reshape(-1))
    return memories


def unspecified(numel: int, dtype: np.dtype[np.generic]) -> Array:
    """Returns memory whose content stands out when read before it is written: NaN or a large number."""
    memory = np.empty(numel, dtype)
    memory.view(np.uint8)[...] = 1 if dtype == np.bool_ else 0x7F
    if np.dtype(dtype).kind in "fV":
        memory[...] = np.nan
    return memory


def evaluate_kernel(kernel: Kernel, arrays: Sequence[Array | None], variables: Mapping[str, int] | None = None) -> None:
    """Does what `kernel` says: within a phase everything is read before anything is written.

    Args:
      arrays:     by slot, of the params' dtypes and at least their elements; None for scratch makes some
      variables:  values of the kernel's symbolic integers by name
    """
    known = dict(variables or {})
    memories = prepare(kernel.params, arrays, known)
    for phase in kernel.phases:
        outputs = [output for nest in phase for output in nest.outputs]
        values: dict[Op, Array] = {}
        for op in toposort([value for _, value in outputs]):
            if op.code is OpCode.PARAM:
                shape = shape_value(op.shape, known)
                values[op] = memories[op.arg[0]][: math.prod(shape)].reshape(shape)
        results = evaluate([value for _, value in outputs], values, known)
        for (slot, _), result in zip(outputs, results):
            if kernel.params[slot].role == "in":
                raise VerifyError(f"kernel {kernel.name} writes slot {slot}, which is an input.")
            memories[slot][: result.size] = result.reshape(-1)
