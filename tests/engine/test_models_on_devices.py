"""Models train on every device as on the CPU: perceptrons, convolutions, attention; in float32 and with 16 bits.

The sizes are small enough for the simulator; the same tests run on a GPU where there is one (tools/gpu_check.py).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from examples.micrograd_cuda import train
from picograd import Tensor, nn, optim
from picograd.nn import functional as F
from picograd.optim.optimizer import Optimizer
from picograd_programs.models.gpt import GPT, GPTConfig
from picograd_programs.models.pictures import PixelCNN
from tests.nn.test_training import test_micrograd_cudas_twenty_steps as twenty_steps
from tests.on_devices import device_params

DEVICES = device_params("C", "OPENCL", "CUDASIM", "CUDA", "PTX")
on_each = pytest.mark.parametrize("device", DEVICES)
# PoCL compiles the kernels of a transformer for a minute; it is tested operation by operation (test_portable_devices.py).
on_most = pytest.mark.parametrize("device", device_params("C", "CUDASIM", "CUDA", "PTX"))
Losses = list[float]


def steps(
    model: nn.Module, optimizer: Optimizer, loss_of: Callable[[], Tensor], count: int, scaler: pg.GradScaler | None = None
) -> Losses:
    """Returns the loss before each step."""
    scaler, losses = scaler or pg.GradScaler(enabled=False), []
    for _ in range(count):
        optimizer.zero_grad()
        loss = loss_of()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


def perceptron(device: str) -> Losses:
    """The headline: an MLP of 300 inputs, 300 and 300 hidden neurons, one output, on 100 rows."""
    pg.manual_seed(0)
    model, x, y = nn.MLP(300, [300, 300, 1]).to(device), Tensor.randn(100, 300).to(device), Tensor.randn(100, 1).to(device)
    return steps(model, optim.SGD(model.parameters(), lr=1e-3), lambda: ((model(x) - y) ** 2).mean(), 3)


def convolutions(device: str, dtype: pg.DType | None = None) -> Losses:
    pg.manual_seed(0)
    model = PixelCNN(side=12, channels=6).to(device)
    x, y = Tensor.randn(16, 144).to(device), (Tensor.arange(16) % 10).to(device)

    def loss() -> Tensor:
        with pg.autocast(device, dtype, enabled=dtype is not None):
            return F.cross_entropy(model(x), y)

    return steps(model, optim.AdamW(model.parameters(), lr=1e-2), loss, 4)


def transformer(device: str, dtype: pg.DType | None = None, scaler: pg.GradScaler | None = None) -> Losses:
    """A GPT whose sequences are long enough for the kernel of its attention."""
    pg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=17, block=32, layers=2, heads=2, width=32)).to(device)
    tokens = (Tensor.arange(2 * 33).reshape(2, 33) ** 2 % 17).to(device)

    def loss() -> Tensor:
        with pg.autocast(device, dtype, enabled=dtype is not None):
            logits = model(tokens[:, :-1])[0]
            return F.cross_entropy(logits.reshape(-1, 17), tokens[:, 1:].reshape(-1))

    return steps(model, optim.AdamW(model.parameters(), lr=1e-2), loss, 4, scaler)


@pytest.mark.variants(every=3)
@pytest.mark.req("B1")
@on_each
def test_micrograd_cudas_script_has_the_cpus_losses(device: str) -> None:
    assert train(device, steps=4, width=40) == pytest.approx(train("CPU", steps=4, width=40), rel=1e-4)


@pytest.mark.variants(every=3)
@pytest.mark.req("B2")
@on_each
def test_micrograd_cudas_twenty_steps(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", device)
    twenty_steps(by_hand=False, device=device)


OF_TWO_MATRICES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add, subtract, multiply": lambda a, b: (a + b) * a - b * 3,
    "divide": lambda a, b: a / (b.abs() + 0.5) + 1 / (a.abs() + 1),
    "power": lambda a, b: (a.abs() + 0.1) ** 1.5 + b**2,
    "exp, log": lambda a, b: a.exp() + (b.abs() + 0.1).log(),
    "sine, cosine, tangent": lambda a, b: a.sin() * b.cos() + a.tanh(),
    "root, sigmoid": lambda a, b: a.abs().sqrt() + b.sigmoid(),
    "relu, gelu": lambda a, b: a.relu() + F.gelu(b),
    "choice": lambda a, b: pg.where(a > b, a, b) + pg.minimum(a, b),
    "transpose": lambda a, b: a.T + b,
    "sums and means": lambda a, b: a.mean(0) + b.mean(1) + (a * b).sum() / a.numel(),
    "extrema": lambda a, b: a.amax(0) + b.amin(1),
    "softmax": lambda a, b: a.softmax(1) + b.log_softmax(0),
    "layer norm": lambda a, b: F.layer_norm(a, a.shape[1:]) * b,
    "running sum": lambda a, b: a.cumsum(1) / a.shape[1] + b,
    "product": lambda a, b: a @ b,
}


@pytest.mark.variants(every=13)
@pytest.mark.req("B3")
@on_each
@pytest.mark.parametrize("name", OF_TWO_MATRICES)
def test_operations_on_matrices_are_the_cpus(name: str, device: str, rng: np.random.Generator) -> None:
    """The mean absolute difference at 1000 x 1000; the simulator runs thread by thread and is given a hundredth of that."""
    side = 100 if device == "CUDASIM" else 1000
    arrays = [rng.uniform(-1, 1, (side, side)).astype(np.float32) for _ in range(2)]
    got, expected = (OF_TWO_MATRICES[name](*[Tensor(x, device=on) for x in arrays]).numpy() for on in (device, "CPU"))
    assert np.abs(got - expected).mean() < 1e-5


@pytest.mark.variants(first=8)
@pytest.mark.req("B3")
@on_each
def test_a_wide_perceptron_is_the_cpus(device: str) -> None:
    """The mean absolute difference of what a perceptron gives; of 1000 neurons a layer where the device is a real one."""
    width = 200 if device == "CUDASIM" else 1000

    def forward(on: str) -> np.ndarray:
        pg.manual_seed(0)
        model, x = nn.MLP(width, [width] * 4), Tensor.randn(width, width)
        with pg.no_grad():
            return model.to(on)(x.to(on)).numpy()

    assert np.abs(forward(device) - forward("CPU")).mean() < 1e-3


@pytest.mark.variants(every=3)
@pytest.mark.req("B4")
@on_each
def test_the_headline_has_the_cpus_losses(device: str) -> None:
    assert perceptron(device) == pytest.approx(perceptron("CPU"), rel=1e-5)  # sums of 300 float32 in another order


@pytest.mark.variants(first=8)
@pytest.mark.req("B8")
@on_most
@pytest.mark.parametrize("model", [convolutions, transformer])
def test_models_have_the_cpus_losses(model: Callable[[str], Losses], device: str) -> None:
    found = model(device)
    # Adam's first steps are as large whatever the gradient: a sum in another order moves the next loss by some 1e-5.
    assert found == pytest.approx(model("CPU"), rel=1e-3) and found[-1] < found[0]


# ---- 16 bits ----
@pytest.mark.variants(first=8)
@pytest.mark.req("C9")
@on_most
@pytest.mark.parametrize("model", [convolutions, transformer])
def test_autocast_trains_in_bfloat16(model: Callable[[str, pg.DType], Losses], device: str) -> None:
    found, full = model(device, pg.bfloat16), transformer("CPU") if model is transformer else convolutions("CPU")
    # Operands are rounded to 2^-8 of their value in each of some layers; a loss is a mean of many such errors.
    assert found == pytest.approx(full, rel=3e-2) and found[-1] < found[0]


@pytest.mark.variants(first=2)
@pytest.mark.req("C9")
@on_most
def test_losses_are_scaled_for_float16(device: str) -> None:
    """A scale beyond what float16 holds is halved, without a step, until gradients are finite; then the loss falls."""
    scaler = pg.GradScaler(init_scale=2.0**40)
    first = transformer(device, pg.float16, scaler)
    assert first[0] == first[1] == first[-1] and scaler.get_scale() == 2.0**36
    scaler = pg.GradScaler(init_scale=2.0**10)
    found = transformer(device, pg.float16, scaler)
    assert found == pytest.approx(transformer("CPU"), rel=1e-2) and found[-1] < found[0] and scaler.get_scale() == 2.0**10

