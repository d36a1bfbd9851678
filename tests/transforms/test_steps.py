"""jit(steps=k): many steps in one launch give what the same steps give one after the other, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.look import watch

STEPS = 7


@pytest.fixture(params=["CPU", "NUMPY"], autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PICOGRAD_DEVICE", request.param)
    return str(request.param)


def training(optimizer: str, dropout: float = 0.0) -> tuple[nn.Module, Callable[..., Any]]:
    pg.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))
    chosen = {
        "sgd": lambda p: pg.optim.SGD(p, lr=0.1, momentum=0.9),
        "adamw": lambda p: pg.optim.AdamW(p, lr=0.01),
    }[optimizer](list(model.parameters()))

    def step(x: Tensor, labels: Tensor) -> dict[str, Any]:
        chosen.zero_grad()
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
        chosen.step()
        return {"loss": loss, "right": (logits.argmax(1) == labels).sum(), "nothing": None}

    return model, step


def batches() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(STEPS, 5, 6)).astype(np.float32), rng.integers(0, 3, (STEPS, 5))


@pytest.mark.req("G10")
@pytest.mark.parametrize(("optimizer", "dropout"), [("sgd", 0.0), ("adamw", 0.0), ("adamw", 0.5)])
def test_a_training_run_equals_its_steps_one_by_one(optimizer: str, dropout: float) -> None:
    xs, labels = batches()
    model, step = training(optimizer, dropout)
    one = pg.jit(step)
    singles = [[one(Tensor(x), Tensor(y)) for x, y in zip(xs, labels)] for _ in range(3)]
    expected = [parameter.detach().numpy() for parameter in model.parameters()]
    model, step = training(optimizer, dropout)
    many = pg.jit(step, steps=STEPS)
    together = [many(Tensor(xs), Tensor(labels)) for _ in range(3)]
    for single, whole in zip(singles, together):
        assert whole["nothing"] is None
        for key in ("loss", "right"):
            assert np.array_equal(whole[key].numpy(), np.array([s[key].numpy() for s in single]))
    for parameter, before in zip(model.parameters(), expected):
        assert np.array_equal(parameter.detach().numpy(), before)


def test_all_steps_are_one_plan(device: str) -> None:
    xs, labels = batches()
    many = pg.jit(training("sgd")[1], steps=STEPS)
    for _ in range(2):
        many(Tensor(xs), Tensor(labels))
    with watch() as counts:
        many(Tensor(xs), Tensor(labels))
    assert counts.plans == 1 and counts.compiled == 0


def test_plain_arguments_are_the_same_in_every_step_and_keywords_are_stacked() -> None:
    total = Tensor(0.0)

    @pg.jit(steps=3)
    def add(x: Tensor, factor: float, *, more: Tensor) -> Tensor:
        total.add_(x * factor + more)
        return total * 1

    for _ in range(3):
        total.assign(Tensor(0.0))
        sums = add(Tensor([1.0, 2.0, 3.0]), 2.0, more=Tensor([10.0, 20.0, 30.0]))
        assert sums.tolist() == [12.0, 36.0, 72.0] and total.item() == 72.0


def test_steps_inside_another_jit() -> None:
    double = pg.jit(lambda x: x * 2, steps=2)
    outer = pg.jit(lambda x: double(x).sum())
    assert [outer(Tensor([[1.0], [2.0]])).item() for _ in range(3)] == [6.0] * 3


def test_a_tensor_without_a_row_for_each_step_is_refused() -> None:
    add = pg.jit(lambda x, y: x + y, steps=3)
    with pytest.raises(pg.JitError) as error:
        add(Tensor([1.0, 2.0, 3.0]), Tensor([1.0, 2.0]))
    assert "makes 3 steps at a time, and arguments[0][1] has shape (2,)." in str(error.value)
    assert "stack a row for each step: (3, ...)" in str(error.value)


@pytest.mark.parametrize("steps", [0, -1, 2.0, True])
def test_the_number_of_steps_is_checked(steps: Any) -> None:
    with pytest.raises(pg.JitError, match="steps must be an int of at least 1"):
        pg.jit(lambda x: x, steps=steps)


def test_a_plain_result_is_refused() -> None:
    with pytest.raises(pg.ArgumentError, match="which is not a Tensor"):
        pg.jit(lambda x: (x, 3), steps=2)(Tensor([1.0, 2.0]))


@pytest.mark.parametrize("writes", [False, True])
def test_a_gradient_that_the_last_step_leaves_is_asked_for_in_vain(writes: bool) -> None:
    layer = nn.Linear(2, 1)
    optimizer = pg.optim.SGD(layer.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (layer(x) ** 2).mean()
        loss.backward()
        if writes:
            optimizer.step()
        return loss

    several = pg.jit(step, steps=2)
    for _ in range(4):
        several(Tensor([[[1.0, 2.0]], [[3.0, 4.0]]]))
    with pytest.raises(pg.JitError, match="the gradient of layer.weight was used up in step, which makes several steps"):
        _ = layer.weight.grad
    optimizer.zero_grad()
    assert layer.weight.grad is None
