"""The device PTX: its kernels mean what the evaluator means, and assemble for three generations of GPUs without spills.

Where there is a GPU they run on it (marked gpu). Everywhere their LLVM IR runs on this machine (tests/ptx_on_host.py): the
kernels are the same but for the last step, which LLVM's code generator, the driver and the GPU take.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from picograd import Tensor
from picograd.devices.compile_llvm import assembly
from picograd.devices.cuda import driver as cuda_driver
from picograd.devices.ptx import compile as nvptx
from picograd.engine import devices
from picograd.engine.devices import reason_of
from picograd.errors import DeviceError
from tests import ptx_on_host
from tests.device_checks import Check, checks
from tests.gpu_programs import check_matmul, check_row_sums, matmul, row_sums
from tests.host_compilers import needs_compiler
from tests.null_gpu import null_gpu
from tests.on_devices import ALL_EXPRESSIONS, device_params, recurrent, train
from tests.ptx_assembler import assemble, needs_assembler

HOST = ptx_on_host.TARGET.device
DEVICES = [pytest.param(HOST, marks=needs_compiler), *device_params("PTX")]


@pytest.fixture(autouse=True, scope="module")
def device_on_this_machine() -> Iterator[None]:
    devices.FACTORIES[HOST] = ptx_on_host.__name__
    yield
    del devices.FACTORIES[HOST]
    devices._compilers.pop(HOST, None)


# ---- what kernels mean ----
@pytest.mark.variants(every=13)
@pytest.mark.parametrize("check", checks())
@pytest.mark.parametrize("device", DEVICES)
def test_it_computes_what_the_evaluator_does(
    device: str, check: Check, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(device, rng, monkeypatch)


@needs_compiler
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_shared_memory_and_barriers_work_in_any_order_of_threads(order: str) -> None:
    device = ptx_on_host.HostDevice(order, seed=1)
    load = ptx_on_host.make_compiler().backend
    sums, product = row_sums(7, 1000), matmul(64, 32, 48)
    check_row_sums(device, device.load(load.compile(load.render(sums, device.target), device.target)), 7, 1000)
    check_matmul(device, device.load(load.compile(load.render(product, device.target), device.target)), 64, 32, 48)


# ---- what they need ----
@pytest.mark.variants(every=3)
@needs_assembler
@pytest.mark.parametrize("major", [8, 9, 10])
def test_every_kernel_assembles_without_spills(major: int) -> None:
    """The kernels of all expressions and of a training, gradients and updates included, for three generations."""
    target = nvptx.gpu_target(major, 0, 48 * 1024)
    with null_gpu(target) as (device, made):
        for compute in ALL_EXPRESSIONS.values():
            compute(*(Tensor(np.zeros((40, 70), np.float32), device=device) for _ in range(2))).realize()
        train(device)
        recurrent(device)
    assert len(made) >= 40
    for source in made:
        text = assembly(source, target)
        assert ".local" not in text
        for symbol, usage in assemble(text, target.arch).items():
            assert usage.spill_nbytes == 0, symbol
            assert usage.stack_nbytes == 0 or "call" in text, symbol  # the remainder of floats is a function


# ---- errors ----
def test_a_tensor_on_a_gpu_that_is_not_there_says_so() -> None:
    reason = reason_of(cuda_driver.capability)
    if reason is None:
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceError) as caught:
        Tensor([1.0], device="PTX").realize()
    said = reason.replace("CUDA", "PTX", 1)  # by the device that was asked for, not by the one whose runtime it is
    assert caught.value.fact == said == devices.usable()["PTX"] and caught.value.hint is not None


def test_llvm_without_the_target_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nvptx.check_compiler.cache_clear()
    monkeypatch.setattr(nvptx, "has_target", lambda triple: False)
    assert devices.usable()["PTX"] == "PTX: the LLVM in this llvmlite has no NVPTX target."
    monkeypatch.undo()
    nvptx.check_compiler.cache_clear()
