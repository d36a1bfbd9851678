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
from tests.helpers import forgotten

F = nn.functional


pytestmark = pytest.mark.usefixtures("alone")


class Setting:
    """A network of three layers, data, and an optimizer."""

    def __init__(self) -> None:
        pg.manual_seed(0)
        self.x, self.y = pg.rand(16, 10).realize(), pg.randint(0, 4, (16,)).realize()
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
    forgotten()
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


# ---- updates by hand ----
@pytest.mark.parametrize("by", ["data", "no_grad"])
def test_a_state_that_goes_on_while_parameters_are_updated_by_hand_is_computed_with_each_step(by: str) -> None:
    """Before, each step computed all states before it: another plan for each, and all old parameters stayed in memory."""

    def trained(through: bool) -> tuple[list[float], list[int]]:
        pg.manual_seed(0)
        cell, head = nn.RNNCell(3, 4), nn.Linear(4, 1)
        inputs, state = pg.rand(12, 2, 3), pg.zeros(2, 4)
        parameters = [*cell.parameters(), *head.parameters()]
        losses, planned = [], []
        for x in inputs.numpy():
            with watch() as counts:
                state = state.detach() if through else Tensor(state.detach().numpy())
                state = cell(Tensor(x), state)
                loss = (head(state) - 1.0).square().mean()
                for parameter in parameters:
                    parameter.grad = None
                loss.backward()
                for parameter in parameters:
                    assert parameter.grad is not None
                    if by == "data":
                        parameter.data.add_(parameter.grad, alpha=-0.1)
                    else:
                        with pg.no_grad():
                            parameter -= 0.1 * parameter.grad
                losses.append(loss.item())
            planned.append(counts.scheduled)
        return losses, planned

    losses, planned = trained(through=True)
    assert planned[4:] == [0] * 8
    np.testing.assert_allclose(losses, trained(through=False)[0], rtol=1e-6)


def test_gradients_through_a_result_from_before_an_update_by_hand_are_those_of_the_old_parameters() -> None:
    weight, x = pg.tensor([2.0, 3.0], requires_grad=True), pg.tensor([5.0, 7.0])
    for step in range(4):
        kept, old = (x * weight).square(), [2.0 + step, 3.0 + step]
        kept.sum().backward()
        with pg.no_grad():
            weight += 1.0
        assert weight.tolist() == [3.0 + step, 4.0 + step]
        weight.grad = None
        assert kept.tolist() == [25.0 * old[0] ** 2, 49.0 * old[1] ** 2]  # asked for: computed with the step from now on
        kept.sum().backward()
        assert weight.grad is not None and weight.grad.tolist() == [50.0 * old[0], 98.0 * old[1]]
        weight.grad = None
