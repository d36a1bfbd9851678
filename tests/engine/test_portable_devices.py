"""C and OPENCL: tensors on them give what the evaluator gives, and where they cannot be used they say why."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.devices.c import compile as hostc
from picograd.devices.opencl import device as opencl
from picograd.engine import devices
from picograd.errors import CompileError, DeviceError, OutOfMemoryError
from picograd.ir.stages import Binary, Launch
from picograd_lab.doctor import examine_devices
from tests.device_checks import Check, checks
from tests.host_compilers import needs_compiler
from tests.on_devices import device_params

DEVICES = device_params("C", "OPENCL")
on_each = pytest.mark.parametrize("device", DEVICES)


# ---- what kernels mean ----
@pytest.mark.variants(every=31)
@on_each
@pytest.mark.parametrize("check", checks(without=("tf32", "draws")))
def test_it_computes_what_the_evaluator_does(
    device: str, check: Check, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(device, rng, monkeypatch)


@pytest.mark.variants(every=2)
@on_each
def test_integers_wrap_and_narrow_floats_round_as_on_the_evaluator(device: str, rng: np.random.Generator) -> None:
    integers = rng.integers(-(1 << 63), (1 << 63) - 1, (3, 200))
    floats = (rng.standard_normal((3, 200)) * 10.0 ** rng.integers(-12, 12, (3, 200))).astype(np.float32)

    def compute(name: str) -> list[np.ndarray]:
        n, x = Tensor(integers, device=name), Tensor(floats, device=name)
        wrapped = [n * n + n, (n << 3) - n, n >> 70, n // 7, n % -5, n.int() * n.int(), n.to(pg.int8) * 3]
        rounded = [x.half().float(), x.bfloat16().float(), x.to(pg.int32), x.to(pg.uint8), x.double().half().float()]
        return [tensor.numpy() for tensor in (*wrapped, *rounded)]

    for got, expected in zip(compute(device), compute("NUMPY"), strict=True):
        np.testing.assert_array_equal(got, expected)


STEP = """
import sys
from picograd import Tensor
from picograd.look import watch
with watch() as counts:
    print((Tensor([1.0, 2.0], device=sys.argv[1]) * 3.25).tolist(), file=sys.stderr)
print(counts.compiled, counts.disk_hits > 0)
"""


@pytest.mark.variants(every=2)
@on_each
def test_a_second_process_compiles_nothing(device: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PICOGRAD_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", STEP, device]
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True) for _ in range(2)
    )
    assert first.stderr == second.stderr == "[3.25, 6.5]\n"
    assert first.stdout.startswith("1 ")
    assert second.stdout == "0 True\n"


# ---- errors ----
@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hostc.compiler.cache_clear()
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    yield
    hostc.compiler.cache_clear()


def test_no_c_compiler_says_what_to_use_instead(no_compiler: None) -> None:
    with pytest.raises(CompileError) as caught:
        hostc.compiler()
    assert caught.value.fact == "C: needs a C compiler, and none of cc, gcc, clang is on PATH."
    assert caught.value.hint == "PICOGRAD_DEVICE=CPU"
    assert devices.why_not("C") == caught.value.fact


def test_the_doctor_says_what_to_do_about_each_device() -> None:
    missing = dict.fromkeys(devices.FACTORIES, "it is not here")
    hints = {finding.topic: finding.hint for finding in examine_devices(missing)}
    assert hints["device C"] == "install a C compiler (gcc or clang), or name it in CC"
    assert "pyopencl" in hints["device OPENCL"] or "picograd[opencl]" in hints["device OPENCL"]


def test_opencl_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl.library.cache_clear()
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError) as caught:
        opencl.library()
    monkeypatch.undo()
    assert caught.value.fact.startswith("OPENCL: pyopencl cannot be loaded (")
    assert caught.value.hint == 'pip install "picograd[opencl]"'


@pytest.mark.parametrize("device", device_params("OPENCL"))
def test_opencl_without_a_platform_says_what_to_install(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.library(), "get_platforms", list)
    monkeypatch.setattr(opencl, "_devices", opencl._devices.__wrapped__)
    assert devices.why_not("OPENCL") == "OPENCL: no platform has a device."
    with pytest.raises(DeviceError) as caught:
        opencl.first_device()
    assert caught.value.hint == (
        "install an OpenCL driver: that of the GPU, or PoCL (apt-get install pocl-opencl-icd)"
    )


@pytest.mark.parametrize("device", device_params("OPENCL"))
def test_opencl_that_is_out_of_memory_says_so(device: str) -> None:
    with pytest.raises(OutOfMemoryError, match=r"OPENCL: cannot allocate 1024\.0 TiB: .* are held"):
        devices.compiler_for(device).device.allocate(1 << 50)


class NoMemory:
    """Stands for a call of the driver, which takes memory when it is first used and finds none."""

    def __init__(self, code: int):
        self.code = code

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        cl = opencl.library()
        raise cl.MemoryError(cl._cl._ErrorRecord(msg="no memory", code=self.code, routine="clEnqueue"))


@pytest.mark.req("B6")
@pytest.mark.parametrize("device", device_params("OPENCL"))
@pytest.mark.parametrize("call", ["enqueue_nd_range_kernel", "enqueue_copy"])
def test_opencl_that_is_out_of_memory_later_says_so(call: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (Tensor([1.0, 2.0], device=device) + 1).realize()
    cl = opencl.library()
    for code in (cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE, cl.status_code.OUT_OF_HOST_MEMORY):
        with monkeypatch.context() as patch, pytest.raises(OutOfMemoryError) as caught:
            patch.setattr(cl, call, NoMemory(code))
            (x * 2).tolist()
        assert caught.value.fact.startswith("OPENCL: cannot allocate memory that it had promised (clEnqueue failed: ")
        assert " are held, one allocation is " in caught.value.fact and "pg.checkpoint" in str(caught.value.hint)
    with monkeypatch.context() as patch, pytest.raises(DeviceError, match="OUT_OF_RESOURCES"):
        patch.setattr(cl, call, NoMemory(cl.status_code.OUT_OF_RESOURCES))  # registers, say
        (x * 2).tolist()
    assert (x * 2).tolist() == [4, 6]


@pytest.mark.req("B6")
@pytest.mark.parametrize("device", device_params("OPENCL"))
def test_what_the_driver_refuses_is_an_error_and_the_device_goes_on(device: str) -> None:
    """A copy past the end of memory, and a kernel without its arguments, stand for all that a driver may say."""
    opened = devices.compiler_for(device).device
    memory = opened.allocate(4)
    with pytest.raises(DeviceError) as caught:
        opened.copy_in(memory, np.zeros(100, np.float32))
    assert caught.value.fact == (
        "OPENCL: a copy failed, or a kernel before it (clEnqueueWriteBuffer failed: INVALID_VALUE)."
    )
    assert caught.value.hint == "start this process again, or use PICOGRAD_DEVICE=CPU"
    with pytest.raises(DeviceError) as caught:
        opened.load(Binary("lost", b"no code", (), (), (Launch("lost_0", 1, 1, 1),)))
    assert caught.value.fact.startswith("OPENCL: kernel lost cannot be loaded (")
    assert (Tensor([1.0, 2.0], device=device) + 1).tolist() == [2, 3]


def test_a_driver_that_makes_denormal_floats_zero_is_warned_of() -> None:
    keeps, loses = (SimpleNamespace(name="a GPU", single_fp_config=bits) for bits in (0b111111, 0b111110))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opencl.warn_of_denormals(keeps)
    with pytest.warns(UserWarning, match="OPENCL: a GPU flushes float32 results below 1.2e-38 to zero"):
        opencl.warn_of_denormals(loses)


@needs_compiler
@pytest.mark.parametrize("dtype", [pg.bfloat16, pg.float16, pg.float32])
def test_a_product_of_every_other_element_on_the_simulator(dtype: pg.DType) -> None:
    """Copies in the background take pairs of bfloat16 only where these are neighbours in memory."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((64, 100), (100, 64)))
    x, w = (pg.Tensor(each, device="CUDASIM").cast(dtype).realize() for each in (a, b))
    for left, right, exact in (
        (x[:, ::2], w[:50], a[:, ::2] @ b[:50]),
        (x[:, :50], w[:50, ::2], a[:, :50] @ b[:50, ::2]),
        (x[::2, ::2], w[::2, ::2], a[::2, ::2] @ b[::2, ::2]),
    ):
        assert np.array_equal((left @ right).float().numpy(), exact)


@needs_compiler
def test_a_convolution_of_every_other_element_on_the_simulator() -> None:
    image, weight = (pg.rand(shape).realize() for shape in ((1, 8, 32, 64), (8, 8, 3, 3)))
    found = pg.nn.functional.conv2d(image.to("CUDASIM")[..., ::2], weight.to("CUDASIM"))
    assert np.allclose(found.numpy(), pg.nn.functional.conv2d(image[..., ::2], weight).numpy(), rtol=1e-4, atol=1e-4)
