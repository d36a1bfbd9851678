"""Functions of Python as entries of a plan: called by the walker with the same words as a kernel.

In:    what a kernel takes, and a function on arrays
Out:   `HostCode`: its address, and what went wrong in a run
Called by: runtime/cpu/device.py, runtime/cpu/runner.py

Only the thread that leads a plan calls such an entry, which has one iteration: it is one of Python's own. Nothing may
leave the call but by memory: what a function refuses goes to its report, as with a CHECK, and any other error waits until
the runner asks for it. An interrupt waits, too, so that what the plan overwrites is whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from picograd.ir.checks import Refused
from picograd.ir.dims import dim_value
from picograd.ir.op import Op
from picograd.ir.stages import REPORT_WORDS, Param
from picograd.runtime.host_calls import Function, array_at

FAILED = -1  # in a report: the error waits in `failures`


class HostCode:
    """A function that plans can call.

    address:   of a function with the signature of a kernel
    failures:  errors that are no report, by the address of the report of the call
    """

    def __init__(self, params: Sequence[Param], variables: Sequence[Op], function: Function):
        """`params` are the arguments by slot; the last one is the report. `function` takes arrays of the others."""
        self.params, self.variables, self.function = tuple(params), tuple(variables), function
        self.failures: dict[int, BaseException] = {}
        self._callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(self._run)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _run(self, arguments: int, begin: int, end: int) -> None:
        """Runs once; `arguments` is the address of the words."""
        count = len(self.params) + len(self.variables)
        words = list((ctypes.c_int64 * count).from_address(arguments))
        report = words[len(self.params) - 1]
        interrupt: BaseException | None = None
        while True:
            try:
                self._call(words)
            except KeyboardInterrupt as error:  # NOTE: it would be lost here; all that was written is written again
                interrupt = error
                continue
            except Refused as refused:
                assert isinstance(refused.site, int), "a kernel knows its CHECKs by number"
                self._report(report, refused.site + 1, refused.value)
            except BaseException as error:
                self.failures[report] = error
                self._report(report, FAILED, 0)
            break
        if interrupt is not None:
            self.failures[report] = interrupt
            self._report(report, FAILED, 0)

    def _call(self, words: Sequence[int]) -> None:
        variables = {v.arg[0]: value for v, value in zip(self.variables, words[len(self.params) :])}
        arrays = [
            array_at(word, dim_value(param.numel, variables), param.dtype) for param, word in zip(self.params[:-1], words)
        ]
        self.function(arrays, variables)

    def _report(self, address: int, number: int, value: int) -> None:
        (ctypes.c_int64 * REPORT_WORDS).from_address(address)[:] = [number, value]
