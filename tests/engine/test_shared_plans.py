"""Plans that several threads run, that Ctrl-C meets half-way, and whose process is forked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picograd import Tensor
from picograd.devices.cudasim import device as cudasim
from picograd.devices.cudasim.device import CudaSimDevice
from picograd.devices.opencl.device import OpenClDevice
from tests.on_devices import check_interrupt, check_threads, device_params

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("device", device_params("CPU", "C", "OPENCL", "CUDASIM", "CUDA", "PTX"))
def test_threads_that_run_one_plan_do_not_see_each_other(device: str) -> None:
    check_threads(device)


@pytest.mark.variants(every=2, first=1)
@pytest.mark.parametrize("device", device_params("OPENCL", "CUDASIM"))
def test_an_interrupt_waits_until_state_is_written(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: dict[str, Any] = {"OPENCL": OpenClDevice, "CUDASIM": CudaSimDevice}
    check_interrupt(device, owners[device], "_launch", monkeypatch)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("device", device_params("OPENCL"))
def test_a_forked_process_is_told_that_the_driver_is_not_its_own(device: str) -> None:
    code = """
import os
from picograd import Tensor
from picograd.errors import DeviceError
x = Tensor([1.0, 2.0]).realize()
child = os.fork()
if child == 0:
    told = 0
    for work in lambda: Tensor([3.0]).realize(), lambda: (x + 7).realize(), x.numpy:
        try:
            work()
        except DeviceError as error:
            told += "forked" in str(error)
    os._exit(40 + told)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (x + 7).tolist())
"""
    environment = {**os.environ, "PICOGRAD_DEVICE": device, "PYTHONPATH": str(ROOT), "PICOGRAD_CACHE": "off"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "43 [8.0, 9.0]\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("device", device_params("OPENCL"))
@pytest.mark.parametrize("asked", ["pg.Device.usable", "pg.zeros(1, device='nowhere')"])
def test_a_forked_process_is_told_where_the_driver_was_only_asked_for_devices(device: str, asked: str) -> None:
    code = f"""
import os
import picograd as pg
try:
    {asked}
except pg.DeviceError:
    pass
child = os.fork()
if child == 0:
    try:
        pg.zeros(1, device={device!r})
    except pg.DeviceError as error:
        os._exit(40 + ("forked" in error.fact) + ({device!r} not in error.usable))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), pg.ones(1, device={device!r}).tolist())
"""
    command, environment = [sys.executable, "-c", code], {**os.environ, "PYTHONPATH": str(ROOT), "PICOGRAD_CACHE": "off"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "42 [1.0]\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("device", device_params("CUDASIM"))
def test_a_fork_while_another_thread_runs_a_kernel(device: str) -> None:
    """The child has no such thread, and nobody who would let go of what it holds."""
    x = Tensor(np.ones(3, np.float32), device=device)
    (x * 3).realize()
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with cudasim._running:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if (x * 3).tolist() == [3.0] * 3 else 1)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
