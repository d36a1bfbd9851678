"""Functions of Python as launches of a plan whose kernels run elsewhere.

In:    what a kernel takes, and a function on arrays
Out:   `HostFunction`; `load_host`; `array_at`
Called by: runtime/cuda/device.py, runtime/cuda/plan.py, runtime/opencl.py, runtime/cudasim/device.py
Next:  picograd/runtime/opencl.py
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.interrupts import held_back
from picograd.ir.checks import Refused
from picograd.ir.op import Op
from picograd.ir.stages import REPORT_WORDS, Executable, Launch, Param
from picograd.record import Record

Array = np.ndarray[Any, Any]
Function = Callable[[Sequence[Array], Mapping[str, int]], None]


class HostFunction(Record):
    """What a plan calls between its kernels.

    params:  what it takes, by slot; the last one is the report
    run:     (flat arrays of the others, values of symbolic integers by name): what it does
    """

    params: tuple[Param, ...]
    run: Function

    def __call__(self, arrays: Sequence[Array], variables: Mapping[str, int]) -> None:
        """Runs once, on flat arrays by slot. What it refuses goes to the report, as with a CHECK; an interrupt waits."""
        try:
            with held_back():
                self.run(arrays[:-1], variables)
        except Refused as refused:
            assert isinstance(refused.site, int), "a kernel knows its CHECKs by number"
            arrays[-1][:] = refused.site + 1, refused.value


def load_host(name: str, params: Sequence[Param], variables: Sequence[Op], work: int, run: Function) -> Executable:
    """Makes a function on arrays a launch; a report is added to its parameters."""
    function = HostFunction((*params, Param(dtypes.int64, REPORT_WORDS, "report")), run)
    return Executable(name, function.params, tuple(variables), (Launch(f"{name}_0", 1, 1, work),), (function,), None)


def array_at(address: int, numel: int, dtype: DType) -> Array:
    """Returns memory of this process as a flat array, without a copy."""
    raw = (ctypes.c_uint8 * (numel * dtype.itemsize)).from_address(address)
    array: Array = np.ctypeslib.as_array(raw).view(dtype.numpy)
    return array
