"""Eager training steps of the kinds that people write: planned in the first few, and never again."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from random import Random

import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.look import watch

F = nn.functional
Step = Callable[[int], Tensor]


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def trained(loss_of: Step, modules: list[nn.Module], kind: str = "Adam") -> Step:
    """Returns a step of an optimizer on what `loss_of` gives for its number."""
    optimizer = getattr(pg.optim, kind)([p for module in modules for p in module.parameters()], lr=1e-2)

    def step(number: int) -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(number)
        loss.backward()
        optimizer.step()
        return loss

    return step


def classifier() -> Step:
    """An epoch over slices, the logits read after the step."""
    x, y, layers = pg.rand(60, 6).realize(), pg.randint(0, 3, (60,)).realize(), [nn.Linear(6, 8), nn.Linear(8, 3)]
    held: list[Tensor] = []

    def loss_of(number: int) -> Tensor:
        start = 4 * number
        hidden = F.relu(layers[0](x[start : start + 4]))
        logits = layers[1](hidden)
        held[:] = hidden, logits
        return F.cross_entropy(logits, y[start : start + 4])

    return trained(loss_of, [*layers])


def auto_encoder() -> Step:
    """A VAE whose forward pass keeps all it makes."""
    x, encoder, decoder = pg.rand(60, 6).realize(), nn.Linear(6, 8), nn.Linear(4, 6)
    kept: dict[str, Tensor] = {}

    def loss_of(number: int) -> Tensor:
        batch = x[4 * number : 4 * number + 4]
        mean, log_var = encoder(batch).chunk(2, -1)
        z = mean + (log_var * 0.5).exp() * pg.randn(4, 4)
        made = decoder(z).sigmoid()
        kept.update(mean=mean, log_var=log_var, z=z, made=made)
        return F.binary_cross_entropy(made, batch) - 0.5 * (1 + log_var - mean.square() - log_var.exp()).mean()

    return trained(loss_of, [encoder, decoder])


def language_model() -> Step:
    """nanoGPT's own get_batch: slices at random places, stacked."""
    data, random = pg.randint(0, 9, (500,)).realize(), Random(0)
    table, head = nn.Embedding(9, 8), nn.Linear(8, 9)

    def loss_of(number: int) -> Tensor:
        places = random.sample(range(480), 5)
        x = pg.stack([data[i : i + 6] for i in places])
        y = pg.stack([data[i + 1 : i + 7] for i in places])
        q = table(x)
        seen = F.scaled_dot_product_attention(q, q, q, is_causal=True)
        return F.cross_entropy(head(seen).reshape(-1, 9), y.reshape(-1))

    return trained(loss_of, [table, head], "AdamW")


def convolutional() -> Step:
    """Images shifted and mirrored by numbers of Python's."""
    x, y, random = pg.rand(40, 1, 10, 10).realize(), pg.randint(0, 3, (40,)).realize(), Random(1)
    conv, norm, head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4 * 6 * 6, 3)

    def loss_of(number: int) -> Tensor:
        top, left = random.randrange(3), random.randrange(3)
        batch = x[number % 9 * 4 : number % 9 * 4 + 4, :, top : top + 8, left : left + 8]
        hidden = F.relu(norm(conv(batch)))
        return F.cross_entropy(head(hidden.flatten(1)), y[number % 9 * 4 : number % 9 * 4 + 4])

    return trained(loss_of, [conv, norm, head], "SGD")


def diffusion() -> Step:
    """Noise by a table that a number of Python's indexes, and a rate that decays."""
    x, table, net = pg.rand(60, 6).realize(), pg.linspace(0.1, 0.9, 50).realize(), nn.Linear(6, 6)

    def loss_of(number: int) -> Tensor:
        keep = table[number * 3]
        noise = pg.randn(4, 6)
        made = net(keep * x[number : number + 4] + (1 - keep) * noise)
        return (made - noise).square().mean() * (1 - number / 100)

    return trained(loss_of, [net])


def policy() -> Step:
    """Rewards discounted by hand, written element by element."""
    net, states = nn.Linear(4, 2), pg.rand(80, 4).realize()

    def loss_of(number: int) -> Tensor:
        returns = pg.zeros(5)
        for t in range(5):
            returns[t] = 0.9**t * (number + 0.37)
        scores = F.log_softmax(net(states[5 * number : 5 * number + 5]), -1)
        return -(scores[:, number % 2] * returns).mean()

    return trained(loss_of, [net])


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("program", [classifier, auto_encoder, language_model, convolutional, diffusion, policy])
def test_steps_are_planned_in_the_first_ones(program: Callable[[], Step]) -> None:
    step, planned = program(), []
    for number in range(12):
        with watch() as counts:
            loss = step(number)
            assert loss.item() == loss.item()
        planned.append(counts.scheduled)
    assert sum(planned[4:]) == 0, planned  # an offset that is drawn may change late


class ByHand(nn.Module):
    """A hidden layer with batch norm written out, as makemore has it: ones and zeros that are trained, or are state."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 8, bias=False), nn.Linear(8, 3)
        self.gain, self.bias = nn.Parameter(pg.ones(8)), nn.Parameter(pg.zeros(8))
        self.register_buffer("mean", pg.zeros(8))
        self.var = nn.Buffer(pg.ones(8))

    def forward(self, x: Tensor) -> Tensor:
        h = self.hidden(x)
        mean, var = h.mean(0), h.var(0)
        with pg.no_grad():
            self.mean += 0.1 * (mean - self.mean)
            self.var += 0.1 * (var - self.var)
        return self.head(F.relu(self.gain * (h - mean) / (var + 1e-5).sqrt() + self.bias))


def step_by_hand(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    loss = F.cross_entropy(net(x), y)
    for p in net.parameters():
        p.grad = None
    loss.backward()
    with pg.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
    return loss


def test_the_first_step_has_the_plan_of_those_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first values of a network, constants or drawn, are in memory before its first step."""
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    net, x, y = ByHand(), pg.rand(16, 6).realize(), pg.randint(0, 3, (16,)).realize()
    planned = []
    for _ in range(4):
        with watch() as counts:
            step_by_hand(net, x, y).item()
        planned.append(counts.scheduled)
    assert planned[0] <= 2 and planned[1:] == [0, 0, 0]  # what is drawn, and the step


NORMS: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: nn.BatchNorm1d(8),  # its running mean begins with the zeros of its bias
    "two batch norms": lambda: nn.Sequential(nn.BatchNorm1d(8), nn.BatchNorm1d(8)),
    "instance norm": lambda: nn.Sequential(
        nn.Unflatten(1, (4, 2)), nn.InstanceNorm1d(4, affine=True, track_running_stats=True), nn.Flatten()
    ),
    "group norm": lambda: nn.GroupNorm(2, 8),
    "layer norm": lambda: nn.LayerNorm(8),
}


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
@pytest.mark.parametrize("norm", NORMS)
def test_states_that_begin_equal_have_memory_of_their_own(norm: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running statistics, weights and moments begin with equal constants: in one memory, the first step would differ."""
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    x, y, net = pg.rand(16, 6).realize(), pg.randint(0, 3, (16,)).realize(), nn.Sequential(nn.Linear(6, 8), NORMS[norm]())
    step = trained(lambda number: F.cross_entropy(net(x), y), [net], kind)
    planned = []
    for number in range(4):
        with watch() as counts:
            step(number).item()
        planned.append(counts.scheduled)
    assert planned[1:] == [0, 0, 0]
    held = [t.cell.held()[0] for t in [*net.parameters(), *net.buffers()] if t.dtype is pg.float32]
    assert len({*held}) == len(held)


def test_equal_constants_that_are_trained_are_apart() -> None:
    """Zeros are one Op; each tensor that a program trains or writes to has values of its own all the same."""
    x, y = nn.Parameter(pg.zeros(5)), nn.Parameter(pg.zeros(5))
    constant, copy = pg.zeros(5), deepcopy(x)
    for _ in range(3):
        x.grad = y.grad = None
        ((x - 1).square().sum() + (y + 2).square().sum()).backward()
        with pg.no_grad():
            x -= 0.5 * x.grad
            y -= 0.5 * y.grad
    assert (x.tolist(), y.tolist()) == ([1.0] * 5, [-2.0] * 5)
    assert constant.tolist() == copy.tolist() == pg.zeros(5).tolist() == [0.0] * 5


def test_a_constant_that_is_written_over_is_not_stored() -> None:
    """A module that starts anew fills its state again; constants stay constants until something reads and changes them."""
    net = ByHand()
    net.var.fill_(2.0)
    before = net.var.cell.op
    assert before.realized is None and before.code.name == "EXPAND"
    net.var += pg.ones(8)
    assert net.var.tolist() == [3.0] * 8 and before.realized is not None
