"""The device PTX: its kernels mean what the evaluator means, and assemble for three generations of GPUs without spills.

Where there is a GPU they run on it (marked gpu). Everywhere their LLVM IR runs on this machine (tests/ptx_on_host.py): the
kernels are the same but for the last step, which LLVM's code generator, the driver and the GPU take.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.compile import hostcxx, nvptx
from picograd.compile.llvm import assembly
from picograd.engine import devices
from picograd.errors import DeviceError, IndexingError
from picograd.nn.functional import conv2d, layer_norm
from picograd.runtime import cuda_driver
from tests import ptx_on_host
from tests.engine.test_cuda_devices import EXPRESSIONS, recurrent, train
from tests.gpu_programs import check_matmul, check_row_sums, matmul, row_sums
from tests.null_gpu import null_gpu
from tests.ptx_assembler import assemble, needs_assembler

NO_GPU = cuda_driver.available()
HOST = ptx_on_host.TARGET.device
on_host = pytest.mark.skipif(not any(map(shutil.which, hostcxx.COMPILERS)), reason="no C++ compiler is on PATH")
DEVICES = [
    pytest.param(HOST, marks=on_host),
    pytest.param(
        "PTX", marks=[pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=f"there is no GPU: {NO_GPU}")]
    ),
]
MORE = {
    **EXPRESSIONS,
    "layer norm": lambda a, b: layer_norm(a, (70,)),
    "convolution": lambda a, b: conv2d(a.reshape(1, 4, 10, 70), b.reshape(8, 350)[:, :36].reshape(8, 4, 3, 3)),
    "order": lambda a, b: a.argsort(1) + b.sort(0)[1],
    "narrow floats": lambda a, b: (a.half() * b.half()).float() + (a.bfloat16() + 1).float(),
    "wide floats": lambda a, b: (a.double() % b.double()).sin().float(),
    "remainder": lambda a, b: (a * 1e6) % b + (a // b),
    "bools": lambda a, b: (a > b).all(1, keepdim=True) | (a < b).any(0),
    "small integers": lambda a, b: ((a * 9).to(pg.int8) // 2 % 5).float() + (b * 9).to(pg.uint8).cumsum(1),
    "extrema": lambda a, b: a.amax(1) - b.amin(1) + a.argmax(1),
    "products of doubles": lambda a, b: a.double().prod(1) + b.double().sum(1),
}


@pytest.fixture(autouse=True, scope="module")
def device_on_this_machine() -> Iterator[None]:
    devices.FACTORIES[HOST] = ptx_on_host.__name__
    yield
    del devices.FACTORIES[HOST]
    devices._compilers.pop(HOST, None)


# ---- what kernels mean ----
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MORE)
def test_expression_equals_the_evaluators(name: str, device: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((40, 70), np.float32) for _ in range(2))
    got, expected = (MORE[name](Tensor(a, device=d), Tensor(b, device=d)).numpy() for d in (device, "NUMPY"))
    # Sums of up to 2800 products differ by their order; nothing else here rounds more than a few times.
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [pg.float32, pg.float64], ids=str)
def test_the_remainder_is_exact(dtype: pg.DType, device: str, rng: np.random.Generator) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, 5e-324, 1e-40, np.inf, -np.inf, np.nan, 3e38, -7.5])
    near, far = rng.standard_normal(300), np.ldexp(rng.standard_normal(300), rng.integers(-120, 120, 300))
    values = np.concatenate([special, near, far]).astype(dtype.numpy)
    a, b = values[:, None], rng.permutation(np.concatenate([values[: len(special)], values[::5]]))[None]
    got = (Tensor(a, device=device) % Tensor(b, device=device)).numpy()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.remainder(a, b))


@pytest.mark.parametrize("device", DEVICES)
def test_memory_that_begins_anywhere_takes_the_other_body(device: str) -> None:
    whole = Tensor(np.arange(4097, dtype=np.float32), device=device).realize()
    rows = whole[1:].reshape(64, 64)
    np.testing.assert_array_equal((rows * 2 + rows.T).numpy(), (lambda r: r * 2 + r.T)(np.arange(1, 4097).reshape(64, 64)))


@pytest.mark.parametrize("device", DEVICES)
def test_a_permutation_is_the_same_on_every_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    for name in (device, "NUMPY"):
        monkeypatch.setenv("PICOGRAD_DEVICE", name)
        orders.append(pg.randperm(100, generator=pg.Generator(3)).tolist())
    assert orders[0] == orders[1] and sorted(orders[0]) == list(range(100))


@pytest.mark.parametrize("device", DEVICES)
def test_a_perceptron_trains_as_on_the_evaluator(device: str) -> None:
    losses = train(device)
    np.testing.assert_allclose(losses, train("NUMPY"), rtol=1e-5)  # float32 sums in another order, over three steps


@pytest.mark.parametrize("device", DEVICES)
def test_loops_and_calls_run_as_on_the_evaluator(device: str) -> None:
    for got, expected in zip(recurrent(device), recurrent("NUMPY")):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)  # float32 sums in another order, over five steps


@pytest.mark.parametrize("device", DEVICES)
def test_an_index_outside_is_reported(device: str) -> None:
    x = Tensor(np.arange(12.0, dtype=np.float32).reshape(4, 3), device=device)
    with pytest.raises(IndexingError, match=r"index 7 is out of bounds|7"):
        x[Tensor([1, 7, 2], device=device)].tolist()
    assert x[Tensor([1, 2], device=device)].tolist() == [[3, 4, 5], [6, 7, 8]]


@on_host
@pytest.mark.parametrize("order", ["forward", "backward", "shuffled"])
def test_shared_memory_and_barriers_work_in_any_order_of_threads(order: str) -> None:
    device = ptx_on_host.HostDevice(order, seed=1)
    load = ptx_on_host.make_compiler().backend
    sums, product = row_sums(7, 1000), matmul(64, 32, 48)
    check_row_sums(device, device.load(load.compile(load.render(sums, device.target), device.target)), 7, 1000)
    check_matmul(device, device.load(load.compile(load.render(product, device.target), device.target)), 64, 32, 48)


# ---- what they need ----
@needs_assembler
@pytest.mark.parametrize("major", [8, 9, 10])
def test_every_kernel_assembles_without_spills(major: int) -> None:
    """The kernels of all expressions and of a training, gradients and updates included, for three generations."""
    target = nvptx.gpu_target(major, 0, 48 * 1024)
    with null_gpu(target) as (device, made):
        for compute in MORE.values():
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
@pytest.mark.skipif(NO_GPU is None, reason="there is a GPU")
def test_a_tensor_on_a_gpu_that_is_not_there_says_so() -> None:
    with pytest.raises(DeviceError) as caught:
        Tensor([1.0], device="PTX").realize()
    assert caught.value.fact == NO_GPU and devices.usable()["PTX"] == NO_GPU


def test_llvm_without_the_target_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    nvptx.check_compiler.cache_clear()
    monkeypatch.setattr(nvptx, "has_target", lambda triple: False)
    assert devices.usable()["PTX"] == "PTX: the LLVM in this llvmlite has no NVPTX target."
    monkeypatch.undo()
    nvptx.check_compiler.cache_clear()
