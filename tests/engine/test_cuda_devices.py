"""Tensors on the simulator and on a GPU: the engine's CUDA road gives what the evaluator gives."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.compile import hostcxx, nvrtc
from picograd.engine.devices import usable
from picograd.errors import DeviceError
from picograd.ir.stages import Source
from picograd.nn import functional as F
from picograd.optim import SGD
from picograd.runtime import cuda_driver
from picograd.runtime.cudasim import TARGET

NO_GPU = cuda_driver.available()
DEVICES = [
    pytest.param(
        "CUDASIM",
        marks=pytest.mark.skipif(
            not any(map(shutil.which, hostcxx.COMPILERS)), reason="no C++ compiler is on PATH, and CUDASIM needs one"
        ),
    ),
    pytest.param(
        "CUDA", marks=[pytest.mark.gpu, pytest.mark.skipif(NO_GPU is not None, reason=f"there is no GPU: {NO_GPU}")]
    ),
]
EXPRESSIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elementwise": lambda a, b: (a * 2 + b).relu().exp(),
    "broadcast": lambda a, b: a + b[:1],
    "softmax": lambda a, b: a.softmax(-1),
    "sum of columns": lambda a, b: a.sum(0),
    "sum of long rows": lambda a, b: a.reshape(-1).expand(3, 40 * 70).sum(1),
    "matmul": lambda a, b: a @ b.T,
    "matmul in bfloat16": lambda a, b: (a.bfloat16() @ b.T.bfloat16()).float(),
    "gather": lambda a, b: a[Tensor([3, 0, 39], device=a.device)],
    "maximum of a transpose": lambda a, b: a.T.amax(1),
    "running sums": lambda a, b: a.cumsum(0) + b.cumsum(1),
    "inverses between kernels": lambda a, b: pg.linalg.inv((a.T @ a) + 1e3 * pg.eye(70, device=a.device)) @ b.T,
    "fourier": lambda a, b: pg.fft.rfft(a * b).real + 1,
    "two grids in one kernel": lambda a, b: a.sum() + b.exp().sum(),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression_equals_the_evaluators(name: str, device: str, rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal((40, 70), np.float32) for _ in range(2))
    compute = EXPRESSIONS[name]
    got, expected = (compute(Tensor(a, device=d), Tensor(b, device=d)).numpy() for d in (device, "NUMPY"))
    # Sums of up to 2800 products differ by their order; nothing else here rounds more than a few times.
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_a_permutation_is_the_same_on_every_device(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = []
    for name in (device, "NUMPY"):
        monkeypatch.setenv("PICOGRAD_DEVICE", name)
        pg.manual_seed(3)
        orders.append(Tensor.randperm(100).tolist())
    assert orders[0] == orders[1] and sorted(orders[0]) == list(range(100))


def train(device: str, hidden: int = 64) -> list[float]:
    """Three steps of a perceptron with one hidden layer, of the shape and loss of the MNIST one."""
    rng = np.random.default_rng(0)
    w1, w2 = (rng.standard_normal(shape).astype(np.float32) * 0.1 for shape in ((196, hidden), (hidden, 10)))
    weights = [Tensor(w, device=device, requires_grad=True) for w in (w1, np.zeros(hidden, np.float32), w2)]
    x = Tensor(rng.standard_normal((32, 196), np.float32), device=device)
    y = Tensor(rng.integers(0, 10, 32), device=device)
    optimizer, losses = SGD(weights, lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy((x @ weights[0] + weights[1]).relu() @ weights[2], y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    return losses


@pytest.mark.parametrize("device", DEVICES)
def test_a_perceptron_trains_as_on_the_evaluator(device: str) -> None:
    losses = train(device)
    np.testing.assert_allclose(losses, train("NUMPY"), rtol=1e-5)  # float32 sums in another order, over three steps
    assert losses[-1] < losses[0]


def recurrent(device: str) -> list[np.ndarray]:
    """Rows, last carry and gradients of a recurrence, whose last step comes first; with a checkpointed part."""
    rng = np.random.default_rng(1)
    h, w, xs = (
        Tensor(rng.standard_normal(shape).astype(np.float32), device=device, requires_grad=True)
        for shape in ((3, 8), (8, 8), (5, 3, 8))
    )
    last, rows = pg.scan(lambda c, x: ((c @ w * 0.3 + x).tanh(), (c * x).sum(1)), h, xs, reverse=True)
    (pg.checkpoint(lambda a: a.exp() * a, last).sum() + rows.sum()).backward()
    return [np.asarray(t.detach().numpy()) for t in (rows, last, h.grad, w.grad, xs.grad)]


@pytest.mark.parametrize("device", DEVICES)
def test_loops_and_calls_run_as_on_the_evaluator(device: str) -> None:
    for got, expected in zip(recurrent(device), recurrent("NUMPY")):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)  # float32 sums in another order, over five steps


@pytest.mark.skipif(not any(map(shutil.which, hostcxx.COMPILERS)), reason="no C++ compiler is on PATH")
def test_kernels_of_training_compile_for_hopper_without_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DUMP", str(tmp_path))
    train("CUDASIM", hidden=48)  # shapes no other test has made kernels for
    hopper = replace(TARGET, device="CUDA", arch="sm_90a")
    files = sorted(tmp_path.glob("*/source.cu"))
    assert len(files) >= 5
    for file in files:
        source = Source(file.parent.name, "cuda", file.read_text(), (), (), ())
        for symbol, usage in nvrtc.resource_usage(source, hopper).items():
            assert usage.spill_nbytes == 0 and usage.stack_nbytes == 0, symbol


@pytest.mark.skipif(NO_GPU is None, reason="there is a GPU")
def test_a_tensor_on_a_gpu_that_is_not_there_says_so() -> None:
    with pytest.raises(DeviceError) as caught:
        Tensor([1.0], device="CUDA").realize()
    assert caught.value.fact == NO_GPU


def test_usable_devices_are_named_with_reasons() -> None:
    reasons = usable()
    assert reasons["CUDA"] == NO_GPU and reasons["NUMPY"] is None
