"""A failure belongs to the tensor that fails: what shares its plan without having been asked for is computed without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.engine import realize
from picograd.look import watch

BEYOND = Tensor([0, 1, 2, 9])  # of which 9 is no row


class Network:
    """A layer with data and an optimizer."""

    def __init__(self) -> None:
        self.layer = nn.Linear(3, 2)
        self.optimizer = pg.optim.SGD(self.layer.parameters(), lr=0.1)
        self.x = pg.ones(4, 3)

    def loss(self) -> Tensor:
        """Returns a loss, for which nothing is computed yet."""
        return self.layer(self.x).square().mean()

    def step(self) -> float:
        """Updates the parameters; returns the loss."""
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def _row_beyond(network: Network) -> Tensor:
    return network.layer(network.x)[BEYOND].sum()


def _row_beyond_in_a_body(network: Network) -> Tensor:
    return pg.utils.checkpoint.checkpoint(lambda x: network.layer(x)[BEYOND].sum(), network.x)


def _singular(network: Network) -> Tensor:
    return pg.linalg.inv(network.layer.weight[:, :2] * 0).sum()


def _too_large(network: Network) -> Tensor:
    long = pg.ones(1 << 22) * network.layer.weight[0, 0]
    return (long[:, None] * long[None, :]).cumsum(0)[-1, :3].sum()


FAILING = [_row_beyond, _row_beyond_in_a_body, _singular, _too_large]
ERRORS = (IndexError, ValueError, MemoryError)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    pg.manual_seed(0)


@pytest.mark.parametrize("failing", FAILING)
def test_steps_of_other_networks_go_on(failing: Callable[[Network], Tensor]) -> None:
    good, twin, bad = Network(), Network(), Network()
    twin.layer.load_state_dict(good.layer.state_dict())
    expected = [twin.step() for _ in range(3)]
    loss = failing(bad)
    loss.backward()
    assert [good.step() for _ in range(3)] == expected
    before = bad.layer.weight.detach().numpy()
    for ask in [bad.optimizer.step, bad.optimizer.step, bad.layer.weight.grad.numpy, loss.item]:  # type: ignore[union-attr]
        with pytest.raises(ERRORS) as raised:
            ask()
        assert raised.type is pg.OutOfMemoryError or "test_compute.py" in str(raised.value)
    assert np.array_equal(bad.layer.weight.detach().numpy(), before)
    losses = [bad.step() for _ in range(3)]  # zero_grad() lets go of it
    assert losses == sorted(losses, reverse=True)


def test_a_loss_is_read_where_its_gradient_fails() -> None:
    weight = Tensor(np.eye(2, dtype=np.float32), requires_grad=True)
    loss = weight.sum()
    (loss + pg.linalg.inv(weight * 0).sum()).backward()
    loss.backward()
    assert loss.item() == 2
    with pytest.raises(pg.LinAlgError, match=r"singular.*\n  at test_compute.py"):
        weight.grad.tolist()


def test_a_gradient_that_is_added_to_another_fails_alone() -> None:
    good, bad = Network(), Network()
    bad.step()
    held = bad.layer.weight.grad
    before = held.numpy()  # type: ignore[union-attr]
    _row_beyond(bad).backward()
    assert good.step() > good.step()
    with pytest.raises(IndexError):
        bad.optimizer.step()
    assert np.array_equal(held.numpy(), before)  # type: ignore[union-attr]  # the addition has not happened
    bad.optimizer.zero_grad(set_to_none=False)
    bad.optimizer.step()


def test_what_fails_is_tried_once_beside_others() -> None:
    good, bad = Network(), Network()
    good.step(), good.step()
    _row_beyond(bad).backward()
    runs, planned = [], []
    for _ in range(4):
        with watch() as counts:
            good.step()
        runs.append(counts.kernels)
        planned.append(counts.scheduled)
    assert planned[1:] == [0, 0, 0] and planned[0] <= 1
    assert runs[1:] == [runs[1]] * 3


def test_a_jitted_step_goes_on_beside_a_gradient_that_fails() -> None:
    good, bad = Network(), Network()
    step = pg.jit(lambda x: _stepped(good, x))
    _row_beyond(bad).backward()
    losses = [step(good.x).item() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    with pytest.raises(IndexError, match="9 is out of range"):
        bad.optimizer.step()
    failing = pg.jit(lambda x: _stepped(bad, x[BEYOND]))
    for _ in range(3):
        with pytest.raises(IndexError, match="9 is out of range"):
            failing(bad.x)
    assert good.step() < losses[-1]


def _stepped(network: Network, x: Tensor) -> Tensor:
    network.optimizer.zero_grad()
    loss = network.layer(x).square().mean()
    loss.backward()
    network.optimizer.step()
    return loss


def test_a_result_that_was_put_off_and_fails_stops_no_step() -> None:
    network = Network()
    kept = network.layer(network.x)[BEYOND]
    losses = [network.step() for _ in range(4)]
    assert losses == sorted(losses, reverse=True)
    for _ in range(2):
        with pytest.raises(IndexError, match="9 is out of range"):
            kept.tolist()
    assert network.step() < losses[-1]


def test_a_first_value_that_fails_is_told_to_who_reads_it() -> None:
    start = pg.randn(4, 3)[BEYOND].requires_grad_()
    start.sum().backward()
    assert (Tensor([1.0]) + 1).tolist() == [2]
    with pytest.raises(IndexError, match="9 is out of range"):
        start.tolist()


@pytest.mark.parametrize("is_gradient", [False, True])
def test_a_plan_is_found_beside_values_that_are_set_to_zero(is_gradient: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros belong to no device: graphs with them would be made into a form each time."""
    by_form = list[object]()
    original = realize._compute_by_device
    monkeypatch.setattr(realize, "_compute_by_device", lambda *args: (by_form.append(args), original(*args))[1])
    x, weight = pg.ones(4, 3).requires_grad_(), pg.tensor(np.arange(9, dtype=np.float32).reshape(3, 3) / 9)
    total, expected = pg.zeros(4, 3), np.ones((4, 3), np.float32)
    for turn in range(8):
        x.data.mul_(0.5)
        expected = expected / 2
        if is_gradient:
            ((x @ weight) ** 2).sum().backward()
            x.data.add_(-0.1 * x.grad.data)
            expected = expected - np.float32(0.2) * (expected @ weight.numpy()) @ weight.numpy().T
            x.grad.zero_()
        total.zero_()
        by_form.clear()
        assert x.sum().item() == pytest.approx(expected.sum(), rel=1e-5)
        assert turn < 4 or not by_form
        assert not total.any() and (not is_gradient or not x.grad.any())
        total.add_(1)
