"""Results that a step of an optimizer finds alive: no part of its plan's form, and still there for who asks."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import GradientError
from picograd.look import watch

F = nn.functional


pytestmark = pytest.mark.usefixtures("alone")


class Setting:
    """A network of three layers, data, and an optimizer."""

    def __init__(self) -> None:
        pg.manual_seed(0)
        self.x, self.y = pg.rand(16, 10), pg.randint(0, 4, (16,))
        self.layers = [nn.Linear(10, 8), nn.Linear(8, 8), nn.Linear(8, 4)]
        self.optimizer = pg.optim.SGD([p for layer in self.layers for p in layer.parameters()], lr=0.1)

    def forward(self) -> list[Tensor]:
        """Returns what each layer makes."""
        found = [self.x]
        for layer in self.layers:
            found.append(layer(found[-1]).tanh())
        return found[1:]

    def step(self, loss: Tensor) -> None:
        """Updates the parameters."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


@pytest.fixture(name="setting")
def _setting() -> Setting:
    return Setting()


def test_the_plan_of_a_step_does_not_depend_on_living_results(setting: Setting) -> None:
    planned, kernels = [], []
    held: list[list[Tensor]] = []
    for number in range(8):
        with watch() as counts:
            results = setting.forward()
            held = [results[: number % 4], results[::-1]] if number % 2 else []
            loss = F.cross_entropy(results[-1], setting.y)
            if not held:
                del results
            setting.step(loss)
            loss.item()
        planned.append(counts.scheduled)
        kernels.append(counts.kernels)
    assert planned == [1] + [0] * 7
    assert len(set(kernels)) == 1
    assert held


def test_a_result_that_was_put_off_has_the_value_of_the_old_parameters(setting: Setting) -> None:
    results = setting.forward()
    before = [layer.weight.detach().numpy() for layer in setting.layers]
    expected = np.tanh(setting.x.numpy() @ before[0].T + setting.layers[0].bias.detach().numpy())
    setting.step(F.cross_entropy(results[-1], setting.y))
    assert not np.array_equal(setting.layers[0].weight.detach().numpy(), before[0])
    np.testing.assert_allclose(results[0].detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert results[0].requires_grad


def test_gradients_through_a_result_that_was_put_off_are_refused(setting: Setting) -> None:
    results = setting.forward()
    setting.step(F.cross_entropy(results[-1], setting.y))
    with pytest.raises(GradientError, match=r"computed before optimizer.step\(\) replaced"):
        results[1].sum().backward()


def test_a_result_that_was_put_off_can_be_written_in_place(setting: Setting) -> None:
    results = setting.forward()
    setting.step(F.cross_entropy(results[-1], setting.y))
    with pg.no_grad():
        results[0].zero_()
    assert results[0].abs().sum().item() == 0


def test_results_that_are_read_after_the_step_are_computed_with_it_from_then_on(setting: Setting) -> None:
    plans, planned = [], []
    for _ in range(4):
        with watch() as counts:
            logits = setting.forward()[-1]
            loss = F.cross_entropy(logits, setting.y)
            setting.step(loss)
            right = (logits.argmax(-1) == setting.y).sum()
            assert 0 <= right.item() <= 16
        plans.append(counts.kernels)
        planned.append(counts.scheduled)
    assert planned[2:] == [0, 0]
    assert plans[2] < plans[0], "the forward pass runs once"


def test_results_that_are_collected_keep_no_old_parameters(setting: Setting) -> None:
    old, collected = [], []
    for _ in range(5):
        logits = setting.forward()[-1]
        old.append(weakref.ref(setting.layers[0].weight.cell.held()[0]))  # type: ignore[index]
        setting.step(F.cross_entropy(logits, setting.y))
        collected.append(logits)
        del logits
    gc.collect()
    assert [reference() is None for reference in old[:4]] == [True] * 4
    values = [logits.detach().numpy() for logits in collected]
    assert all(np.isfinite(value).all() for value in values)


def test_two_optimizers_in_turn_plan_once() -> None:
    first, second = Setting(), Setting()
    planned = []
    for _ in range(4):
        with watch() as counts:
            for setting in (first, second):
                results = setting.forward()
                loss = F.cross_entropy(results[-1], setting.y)
                setting.step(loss)
                loss.item()
        planned.append(counts.scheduled)
    assert planned[1:] == [0, 0, 0]
    assert results


def test_the_second_step_needs_no_plan_of_its_own(monkeypatch):
    """Moments of equal shapes begin with equal zeros, in memory of their own: they differ from the first step on."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    net = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = pg.optim.Adam(net.parameters(), lr=0.1)
    moments = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
    assert len({moment.cell.held()[0] for moment in moments}) == len(moments) == 16
    found, x = [], Tensor(np.ones((3, 4), np.float32))
    for _ in range(3):
        with watch() as counts:
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            loss.item()
        found.append(counts.scheduled)
    assert found == [1, 0, 0]
