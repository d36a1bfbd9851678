"""Test of the exercise of chapter 13: a kernel is right in any order of threads, coalesced, and without bank conflicts."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cudasim.device import ORDERS, CudaSimDevice
from picograd.engine.devices import why_not
from picograd.ir.stages import Launch, Param, Source
from picograd_lab.ladder.counts import compile_counted, take_counts
from picograd_lab.ladder.runnable import Runnable

SIDE, BLOCKS, THREADS = 64, 4, 256
pytestmark = pytest.mark.skipif(why_not("CUDASIM") is not None, reason="no C++ compiler is on PATH")


def run(text: str, order: str) -> tuple[Any, dict[str, int]]:
    """Runs a kernel on the numbers from 0 on; returns what it stored, and the counts."""
    params = Param(dtypes.float32, SIDE * SIDE, "in"), Param(dtypes.float32, SIDE * SIDE, "out")
    source = Source("transpose", "cuda", text, params, (), (Launch("transpose", BLOCKS, THREADS, 1),))
    device = CudaSimDevice(order)
    kernel = device.load(compile_counted(source))
    runnable = Runnable(device, kernel, [np.arange(SIDE * SIDE, dtype=np.float32)])
    runnable.run()
    return runnable.results()[0].reshape(SIDE, SIDE), take_counts(kernel)


@pytest.mark.parametrize("order", ORDERS)
def test_it_transposes_in_any_order_of_threads(exercise: ModuleType, order: str) -> None:
    expected = np.arange(SIDE * SIDE).reshape(SIDE, SIDE).T
    np.testing.assert_array_equal(run(exercise.KERNEL, order)[0], expected, err_msg="out[j, i] is not x[i, j]")


def test_reads_and_writes_are_coalesced_and_no_bank_is_asked_twice(exercise: ModuleType) -> None:
    counts = run(exercise.KERNEL, ORDERS[0])[1]
    fewest = SIDE * SIDE * 4 // 32  # sectors of 32 bytes
    assert counts["loaded_sectors"] == fewest, f"{counts['loaded_sectors']} sectors are read, {fewest} are enough"
    assert counts["stored_sectors"] == fewest, f"{counts['stored_sectors']} sectors are written, {fewest} are enough"
    assert counts["bank_conflicts"] == 0, f"{counts['bank_conflicts']} bank conflicts"
