"""Values that a program reads within a training step: wherever it does, the step computes as much, and the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import IndexingError
from picograd.look import Profiling, watch
from picograd.tensor import unasked
from picograd_lab.recorder import Recorder
from tests.helpers import forgotten

pytestmark = pytest.mark.usefixtures("alone")
F = nn.functional
CLASSES, MORE = 5, 1.1  # the norm of few parameters counts: a forward pass is a third
NUM_STEPS = 5


class Recurrent(nn.Module):
    """A loop, whose gradients are graphs at once."""

    def __init__(self) -> None:
        super().__init__()
        self.states, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.states(x.reshape(-1, 4, 6))[0][:, -1])


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, CLASSES))


def convolutional() -> nn.Module:
    layers = [nn.Unflatten(1, (1, 4, 6)), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(24, CLASSES))


class Training:
    """A network, its optimizer, and the values that it has read."""

    def __init__(self, make: Callable[[], nn.Module] = perceptron):
        pg.manual_seed(0)
        self.model, self.values = make(), list[float]()
        self.optimizer = pg.optim.Adam(self.model.parameters())

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(number)
        return Tensor(rng.standard_normal((32, 24)).astype(np.float32)), Tensor(rng.integers(0, CLASSES, 32))

    def loss(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        x, y = self.batch(number)
        logits = self.model(x)
        return F.cross_entropy(logits, y), logits, y

    def read(self, value: Tensor) -> None:
        self.values.append(value.item())

    def right(self, logits: Tensor, y: Tensor) -> None:
        self.read((logits.argmax(1) == y).float().mean())


# ---- orders of reading ----
def nothing(training: Training, number: int) -> None:
    loss, _, _ = training.loss(number)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


def after(training: Training, number: int) -> None:
    loss, _, _ = training.loss(number)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()
    training.read(loss)


def before(training: Training, number: int) -> None:
    loss, _, _ = training.loss(number)
    training.read(loss)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


def between(training: Training, number: int) -> None:
    loss, _, _ = training.loss(number)
    training.optimizer.zero_grad()
    loss.backward()
    training.read(loss)
    training.optimizer.step()


def accuracy_between(training: Training, number: int) -> None:
    loss, logits, y = training.loss(number)
    training.optimizer.zero_grad()
    loss.backward()
    training.right(logits, y)
    training.optimizer.step()


def accuracy_before(training: Training, number: int) -> None:
    loss, logits, y = training.loss(number)
    training.right(logits, y)
    training.optimizer.zero_grad()
    loss.backward()
    training.optimizer.step()


def norm_between(training: Training, number: int) -> None:
    loss, _, _ = training.loss(number)
    training.optimizer.zero_grad()
    loss.backward()
    training.read(nn.utils.clip_grad_norm_(training.model.parameters(), 1e9))
    training.optimizer.step()
    training.read(loss)


def both_between(training: Training, number: int) -> None:
    """A function gives a loss and an accuracy: nobody has the logits."""

    def results() -> tuple[Tensor, Tensor]:
        loss, logits, y = training.loss(number)
        return loss, (logits.argmax(1) == y).float().mean()

    loss, accuracy = results()
    training.optimizer.zero_grad()
    loss.backward()
    training.read(loss)
    training.read(accuracy)
    training.optimizer.step()


def everywhere(training: Training, number: int) -> None:
    loss, logits, y = training.loss(number)
    training.read(loss)
    training.optimizer.zero_grad()
    loss.backward()
    training.right(logits, y)
    training.read(nn.utils.clip_grad_norm_(training.model.parameters(), 1e9))
    training.optimizer.step()
    training.read(loss)
    training.read(logits.max())


def norm_of_scaled(training: Training, number: int) -> None:
    """The scaler knows only after gradients have been clipped that all are finite."""
    if not hasattr(training, "scaler"):
        training.scaler = pg.amp.GradScaler(init_scale=4.0)
    loss, _, _ = training.loss(number)
    training.optimizer.zero_grad()
    training.scaler.scale(loss).backward()
    training.scaler.unscale_(training.optimizer)
    training.read(nn.utils.clip_grad_norm_(training.model.parameters(), 1e9))
    training.scaler.step(training.optimizer)
    training.scaler.update()
    training.read(loss)


ORDERS = [both_between, before, norm_of_scaled, everywhere]
ORDERS += [after, between, accuracy_between, accuracy_before, norm_between]


class Work(NamedTuple):
    """The work of a warm step, the plans that all steps have made, and the parameters at their end."""

    flops: int
    planned: list[int]
    parameters: list[np.ndarray]
    values: list[float]


def work(make: Callable[[], nn.Module], step: Callable[[Training, int], None]) -> Work:
    """Makes some steps from the beginning, and measures the last one."""
    forgotten()
    unasked.asked_for.clear()
    unasked.followed.clear()
    training, planned = Training(make), []
    for number in range(NUM_STEPS):
        with watch() as counts:
            step(training, number)
        planned.append(counts.scheduled)
    recorder = Profiling.recorder = Recorder()
    try:
        step(training, NUM_STEPS)
        flops = sum(span.flops for span in recorder.spans)
    finally:
        Profiling.recorder = None
    return Work(flops, planned, [p.detach().numpy() for p in training.model.parameters()], training.values)


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")


@cache
def without_reading(make: Callable[[], nn.Module]) -> Work:
    return work(make, nothing)


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("make", [perceptron, Recurrent, convolutional])
def test_a_step_computes_as_much_wherever_values_are_read(
    make: Callable[[], nn.Module], order: Callable[[Training, int], None]
) -> None:
    expected, found = without_reading(make), work(make, order)
    assert found.flops <= MORE * expected.flops
    assert found.planned[2:] == [0] * (NUM_STEPS - 2)
    for ours, theirs in zip(found.parameters, expected.parameters):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_values_of_two_networks_in_turn_are_read_for_nothing() -> None:
    """As DCGAN does: the means of what the critic says, each between a backward() and the next step."""

    def adversaries(reads: bool) -> Callable[[Training, int], None]:
        def step(training: Training, number: int) -> None:
            if not hasattr(training, "critic"):
                training.critic = Training(lambda: nn.Sequential(nn.Linear(CLASSES, 32), nn.ReLU(), nn.Linear(32, 1)))
            critic, x = training.critic, training.batch(number)[0]
            critic.optimizer.zero_grad()
            said = critic.model(x[:, :CLASSES])
            real = F.softplus(-said).mean()
            real.backward()
            if reads:
                training.read(said.mean())
            drawn = training.model(x)
            said = critic.model(drawn.detach())
            fake = F.softplus(said).mean()
            fake.backward()
            if reads:
                training.read(said.mean())
            critic.optimizer.step()
            training.optimizer.zero_grad()
            said = critic.model(drawn)
            loss = F.softplus(-said).mean()
            loss.backward()
            if reads:
                training.read(said.mean())
            training.optimizer.step()
            training.values += [(real + fake).item(), loss.item()] if reads else []

        return step

    expected, found = work(perceptron, adversaries(reads=False)), work(perceptron, adversaries(reads=True))
    assert found.flops <= MORE * expected.flops and found.planned[2:] == [0] * (NUM_STEPS - 2)
    for ours, theirs in zip(found.parameters, expected.parameters):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def kernels(function: Callable[[], object]) -> int:
    with watch() as counts:
        function()
    return counts.kernels


# ---- gradients that were computed before backward() ----
def squares(weight: Tensor) -> Tensor:
    return (weight * weight).sum()


def learned() -> Tensor:
    """A weight whose loss was read, and differentiated after that: from now on its gradient comes with the loss."""
    weight = Tensor([1.0, 2.0], requires_grad=True)
    loss = squares(weight)
    loss.item()
    loss.backward()
    assert weight.grad is not None and weight.grad.tolist() == [2.0, 4.0]
    return Tensor([3.0, 4.0], requires_grad=True)


def test_a_gradient_that_comes_with_its_loss_adds_up_and_is_no_other_gradients_memory() -> None:
    weight = learned()
    loss = squares(weight)
    assert loss.item() == 25.0
    with pg.no_grad():
        weight += 1.0  # the gradient is that of the old values
    loss.backward()
    assert weight.grad is not None and kernels(weight.grad.tolist) == 0
    first = weight.grad
    with pg.no_grad():
        first *= 10.0
    loss.backward()
    assert weight.grad.tolist() == [66.0, 88.0]


def test_a_gradient_that_comes_with_its_loss_goes_through_a_hook_that_was_added_since() -> None:
    weight = learned()
    loss = squares(weight)
    loss.item()
    weight.register_hook(lambda grad: grad * 10)
    loss.backward(pg.tensor(1.0))
    assert weight.grad is not None and weight.grad.tolist() == [60.0, 80.0]
    weight.grad, loss = None, squares(weight)
    loss.item()
    (loss * 3).backward()
    assert weight.grad.tolist() == [180.0, 240.0]


def test_gradients_are_not_computed_again_and_again_for_a_loss_that_is_only_read() -> None:
    weight = learned()
    losses = [squares(weight * number) for number in range(1, 8)]
    counts = [len(unasked.prepared) for loss in losses if loss.item()]
    assert counts == [1, 2, 2, 2, 2, 2, 2]
    del losses[0], losses[0]
    assert len(unasked.prepared) == 0, "the memory went with the losses"


def test_a_loss_that_was_never_differentiated_computes_no_gradient() -> None:
    Tensor([1.0], requires_grad=True).sum().backward()
    weight = Tensor([1.0, 2.0], requires_grad=True)
    assert [squares(weight * number).item() for number in (1, 2, 3)] == [5.0, 20.0, 45.0]
    assert not unasked.prepared and not unasked.followed


# ---- gradients that wait ----
def test_optimizers_that_step_within_backward_compute_the_gradients_once() -> None:
    def step_with(number_of_layers: int) -> int:
        layers = [layer for _ in range(number_of_layers) for layer in (nn.Linear(8, 8, bias=False), nn.Tanh())]
        model, x = nn.Sequential(*layers), pg.ones(4, 8)
        optimizers = {p: pg.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(parameter: Tensor) -> None:
            optimizers[parameter].step()
            parameter.grad = None

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(update)
        model(x).sum().backward()
        return kernels(lambda: model(x).sum().backward())

    assert step_with(8) <= 2.5 * step_with(4)


def test_a_gradient_that_fails_is_no_failure_of_a_value_that_shares_work_with_it() -> None:
    weight, table = Tensor([[1.0, 2.0]], requires_grad=True), pg.ones(3)
    scores = weight.exp()
    loss = (scores * table[pg.tensor([7])]).sum()
    loss.backward()
    assert scores.argmax(1).tolist() == [1]
    with pytest.raises(IndexingError):
        loss.item()


def test_gradients_that_nobody_has_any_more_are_not_computed_with_a_value() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    scores = weight.exp()
    scores.square().sum().backward()
    alone = kernels(lambda: weight.detach().exp().max().item())
    weight.grad = None
    assert kernels(scores.max().item) == alone
    assert not unasked.waiting, "their graph is kept no longer"


def test_all_that_was_added_to_a_gradient_is_computed_with_the_first_value_that_shares_work_with_a_part() -> None:
    weight = Tensor([1.0, 2.0], requires_grad=True)
    losses = [squares(weight * number) for number in (1, 2)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == 5.0
    assert weight.grad is not None and kernels(weight.grad.tolist) == 0 and weight.grad.tolist() == [10.0, 20.0]
    assert kernels(losses[1].item) == 0


def test_a_value_of_another_network_leaves_gradients_alone() -> None:
    weight, other = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    squares(weight).backward()
    assert squares(other).item() == 5.0
    assert weight.grad is not None and kernels(weight.grad.tolist) > 0
