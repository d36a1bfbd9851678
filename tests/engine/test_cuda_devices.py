"""Tensors on the simulator and on a GPU: the engine's CUDA road gives what the evaluator gives."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import Tensor
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda import driver as cuda_driver
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import TARGET, CudaSimDevice
from picograd.engine import devices
from picograd.engine.compiler import Backend, Compiler
from picograd.engine.devices import reason_of, usable
from picograd.errors import DeviceError
from picograd.record import replace
from tests.device_checks import Check, checks
from tests.null_gpu import null_gpu
from tests.on_devices import ALL_EXPRESSIONS, check_expression, device_params, train

DEVICES = device_params("CUDASIM", "CUDA")
# What this file runs each tool of a sanitizer runs too, and has less than a minute for it: tools/gpu_check.py.
NOT_ASKED = ("more", "remainder", "index outside", "memory that begins anywhere", "draws")


@pytest.mark.variants(every=7, first=4)
@pytest.mark.parametrize("check", checks(without=NOT_ASKED))
@pytest.mark.parametrize("device", DEVICES)
def test_it_computes_what_the_evaluator_does(
    device: str, check: Check, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(device, rng, monkeypatch)


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
@pytest.mark.parametrize("device", device_params("CUDASIM"))
def test_teams_without_shuffles_have_no_race(
    device: str, order: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What OPENCL runs, in the simulator, which finds races and divergent barriers."""
    simulator = CudaSimDevice(order, seed=1)
    monkeypatch.setattr(simulator, "target", replace(TARGET, has_shuffle=False, has_mma=False))
    monkeypatch.setitem(devices._compilers, device, Compiler(simulator, Backend(render, hostcxx.compile_source)))
    for name in ("softmax", "sum of long rows", "layer norm", "extrema"):
        check_expression(ALL_EXPRESSIONS[name], device, rng)


def test_kernels_of_training_compile_for_hopper_without_spills() -> None:
    hopper = replace(TARGET, device="CUDA", arch="sm_90a")
    with null_gpu(hopper) as (device, made):
        train(device, hidden=48)  # shapes no other test has made kernels for
    assert len(made) >= 5
    for source in made:
        for symbol, usage in nvrtc.resource_usage(source, hopper).items():
            assert usage.spill_nbytes == 0 and usage.stack_nbytes == 0, symbol


def test_a_tensor_on_a_gpu_that_is_not_there_says_so() -> None:
    reason = reason_of(cuda_driver.capability)
    if reason is None:
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError) as caught:
        Tensor([1.0], device="CUDA").realize()
    assert caught.value.fact == reason


def test_usable_devices_are_named_with_reasons() -> None:
    reasons = usable()
    assert reasons["CUDA"] == reason_of(cuda_driver.capability) and reasons["NUMPY"] is None
