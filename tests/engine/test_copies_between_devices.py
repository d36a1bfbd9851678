"""Tensors, modules and optimizers move between every two devices that are here; constants are made where a plan runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from tests.on_devices import device_params

# NOTE: CPU and NUMPY are there on every machine; why_not has no entry for the evaluator.
DEVICES = ["CPU", "NUMPY", *device_params("C", "CUDASIM", "OPENCL", "CUDA", "PTX")]
from_each = pytest.mark.parametrize("source", DEVICES)
to_each = pytest.mark.parametrize("target", DEVICES)
DTYPES = (
    "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2", "int8", "int16", "int32", "int64", "uint8",
    "uint16", "uint32", "uint64", "bool_",
)  # fmt: skip


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.variants(every=61)
@pytest.mark.req("B9")
@from_each
@to_each
@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_keeps_its_bits(name: str, source: str, target: str, rng: np.random.Generator) -> None:
    """Of any bits, NaNs among them: whole, turned, every second element, none, one; and back again."""
    dtype = getattr(pg.dtypes, name)
    raw = rng.integers(0, 2 if dtype.kind == "b" else 256, 24 * dtype.itemsize, np.uint8)
    array = raw.view(dtype.numpy).reshape(4, 6)
    x = Tensor(array, device=source)
    turned, flipped = (x.T[1:, ::2], array.T[1:, ::2]), (x.flip(1), array[:, ::-1])
    for view, expected in [(x, array), turned, flipped, (x[:0], array[:0]), (x[1, 2], array[1, 2])]:
        there = view.to(target)
        assert (there.device, there.dtype, there.shape) == (target, dtype, expected.shape)
        assert bits(there.numpy()) == bits(expected) == bits(there.to(source).numpy())


@pytest.mark.variants(every=7)
@from_each
@to_each
def test_gradients_flow_back(source: str, target: str) -> None:
    x = Tensor([1.0, 2.0, 3.0], device=source, requires_grad=True)
    y = (x.to(target) ** 3).to(source) * x
    (first,) = pg.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = pg.autograd.grad(first.sum(), x)
    assert first.device == second.device == source
    np.testing.assert_allclose(first.detach().numpy(), [4.0, 32.0, 108.0], rtol=1e-6)
    np.testing.assert_allclose(second.numpy(), [12.0, 48.0, 108.0], rtol=1e-6)
    x.to(target).sum().backward()
    assert x.grad is not None and x.grad.device == source and x.grad.tolist() == [1, 1, 1]


@pytest.mark.variants(every=7)
@from_each
@to_each
def test_a_copy_has_a_life_of_its_own(source: str, target: str) -> None:
    x = Tensor([1.0, 2.0], device=source)
    y = x.to(target, copy=True)
    x.add_(1)
    assert (x.tolist(), y.tolist()) == ([2, 3], [1, 2])
    y[0] = 9
    assert (x.tolist(), y.tolist()) == ([2, 3], [9, 2])
    assert x.copy_(y).device == source and x.tolist() == [9, 2]


@pytest.mark.variants(every=7)
@from_each
@to_each
def test_a_symbolic_length_stays_one(source: str, target: str) -> None:
    n, x = pg.Variable("n", 1, 8), Tensor(np.arange(8.0, dtype=np.float32), device=source)
    for length in (3, 5):
        y = x[: n.bind(length)].to(target) * 2
        assert y.device == target and y.numpy().tolist() == [2.0 * i for i in range(length)]


def train(devices: list[str], jitted: bool) -> tuple[list[float], nn.Module, optim.Optimizer]:
    """Returns the losses of steps on these devices, one after the other. The optimizer is made before the first move."""
    pg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    optimizer, losses, rng = optim.AdamW(model.parameters(), lr=1e-2), [], np.random.default_rng(0)
    inputs = rng.standard_normal((5, 6), np.float32)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x) + pg.arange(3, device=x.device) * 0.1, y)
        loss.backward()
        optimizer.step()
        return loss

    for before, device in zip([None, *devices], devices):
        if device != before:
            model.to(device)
            run = pg.jit(step) if jitted else step
        losses.append(run(Tensor(inputs, device=device), Tensor([0, 1, 2, 0, 1], device=device)).item())
    return losses, model, optimizer


@pytest.mark.variants(every=11)
@pytest.mark.req("B9")
@pytest.mark.parametrize("jitted", [False, True])
@to_each
def test_a_training_goes_on_where_its_module_goes(target: str, jitted: bool) -> None:
    losses, model, optimizer = train(["CPU", "CPU", "CPU", target, target, target], jitted)
    assert losses == pytest.approx(train(["CPU"] * 6, False)[0], rel=1e-4)  # a few float32 sums in another order
    state = [tensor for kept in optimizer.state.values() for tensor in kept.values()]
    assert {tensor.device for tensor in [*model.parameters(), *state]} == {target}


@pytest.mark.variants(every=3)
@to_each
def test_state_of_an_optimizer_is_loaded_on_another_device(target: str) -> None:
    def made(device: str) -> tuple[nn.Linear, optim.Adam]:
        pg.manual_seed(0)
        model = nn.Linear(3, 2).to(device)
        return model, optim.Adam(model.parameters(), lr=0.1)

    def step(model: nn.Linear, optimizer: optim.Adam) -> None:
        optimizer.zero_grad()
        (model(Tensor([[1.0, 2.0, 3.0]], device=model.weight.device)) ** 2).sum().backward()
        optimizer.step()

    first, second = made("CPU"), made(target)
    step(*first)
    second[0].load_state_dict(first[0].state_dict())
    second[1].load_state_dict(first[1].state_dict())
    step(*first), step(*second)
    assert second[0].weight.device == target
    np.testing.assert_allclose(second[0].weight.detach().numpy(), first[0].weight.detach().numpy(), rtol=1e-5)


@pytest.mark.variants(every=3)
@to_each
def test_a_jitted_function_makes_constants_where_it_runs(target: str) -> None:
    """With another default device: one plan, on the device of its arguments."""

    @pg.jit
    def f(x: Tensor) -> Tensor:
        mask = pg.ones(3, 3, device=x.device).tril()
        return (mask * x).sum(1) + pg.arange(3, device=x.device) + pg.zeros_like(x).contiguous()

    for i in range(3):
        out = f(Tensor([1.0, 2.0, 3.0], device=target) + i)
        assert out.device == target and out.tolist() == [1 + i, 4 + 2 * i, 8 + 3 * i]


def test_constants_of_a_jitted_function_meet_state_lengths_and_steps() -> None:
    """On a device that is not the default one: what was made before the call, a bound length, several steps in one call."""
    on, n = "NUMPY", pg.Variable("n", 1, 8)
    total = pg.zeros(3, device=on)
    count = pg.jit(lambda x: total.add_(x + pg.ones(3, device=on)) * 2)
    assert [count(pg.ones(3, device=on))[0].item() for _ in range(3)] == [4, 8, 12] and total.device == on
    length = pg.jit(lambda x: (x * pg.ones(x.shape[0], device=on)).sum())
    x = Tensor([0.0, 1, 2, 3, 4, 5, 6, 7], device=on)
    assert [length(x[: n.bind(i)]).item() for i in (3, 5, 4)] == [3, 10, 6]
    stacked = pg.jit(lambda x: (x + pg.ones(3, device=on)).sum(), steps=2)
    assert stacked(pg.ones(2, 3, device=on)).tolist() == [6, 6]
    assert pg.jit(lambda: pg.ones(3, device=on) * 2)().device == on


def test_a_jitted_function_copies_nothing_between_devices() -> None:
    with pytest.raises(pg.JitError) as caught:
        pg.jit(lambda x: (x * 2).to("NUMPY"))(Tensor([1.0, 2.0], device="CPU"))
    assert caught.value.fact == "jit: <lambda> copies a tensor of shape (2,) to NUMPY; a plan runs on one device."
    assert caught.value.hint == "copy what it takes before the call, and what it returns after it."
    assert caught.value.line is not None and caught.value.line.file == __file__
