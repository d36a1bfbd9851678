"""Averages of models against PyTorch: parameters, buffers, the schedule, statistics found anew."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.errors import ArgumentError

ARGUMENTS: dict[str, Any] = {
    "mean": lambda swa: {},
    "mean and buffers": lambda swa: {"use_buffers": True},
    "moving": lambda swa: {"avg_fn": swa.get_ema_avg_fn(0.7)},
    "moving, all at once": lambda swa: {"multi_avg_fn": swa.get_ema_multi_avg_fn(0.7), "use_buffers": True},
    "mean, all at once": lambda swa: {"multi_avg_fn": swa.get_swa_multi_avg_fn()},
    "own": lambda swa: {"avg_fn": lambda averaged, current, count: averaged * count + current},
}


def net_of(library: Any) -> Any:
    return library.nn.Sequential(library.nn.Linear(3, 2), library.nn.BatchNorm1d(2))


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_averages_are_those_of_pytorch(kind: str, rng: np.random.Generator) -> None:
    theirs, ours = net_of(torch), net_of(pg)
    averaged = torch.optim.swa_utils.AveragedModel(theirs, **ARGUMENTS[kind](torch.optim.swa_utils))
    mine = pg.optim.swa_utils.AveragedModel(ours, **ARGUMENTS[kind](pg.optim.swa_utils))
    assert list(mine.state_dict()) == list(averaged.state_dict())
    for _ in range(3):
        shapes = {name: tuple(value.shape) for name, value in theirs.state_dict().items()}
        state = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        state["1.num_batches_tracked"] = np.array(4)
        theirs.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
        ours.load_state_dict(state)
        averaged.update_parameters(theirs)
        mine.update_parameters(ours)
    for name, value in averaged.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(
        mine.eval()(pg.Tensor(np.abs(x))).isnan().numpy(), averaged.eval()(torch.tensor(np.abs(x))).isnan().numpy()
    )


def test_an_average_may_be_part_of_a_jitted_step() -> None:
    net = pg.nn.Linear(2, 1)
    mine = pg.optim.swa_utils.AveragedModel(net, avg_fn=pg.optim.swa_utils.get_ema_avg_fn(0.5))
    optimizer = pg.optim.SGD(net.parameters(), lr=0.1)

    @pg.jit
    def step(x: pg.Tensor) -> pg.Tensor:
        optimizer.zero_grad()
        loss = net(x).sum()
        loss.backward()
        optimizer.step()
        mine.update_parameters(net)
        return loss

    expected = None
    for _ in range(3):
        step(pg.Tensor([[1.0, 2.0]]))
        current = net.weight.detach().numpy()
        expected = current if expected is None else 0.5 * expected + 0.5 * current
    np.testing.assert_allclose(mine.module.weight.detach().numpy(), expected, rtol=1e-6)
    assert mine.n_averaged.item() == 3


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 1, 4])
def test_rates_are_those_of_pytorch(strategy: str, epochs: int) -> None:
    found = []
    for library in (torch, pg):
        groups = [{"params": [library.ones(1).requires_grad_()], "lr": 1.0}, {"params": [library.ones(1).requires_grad_()]}]
        optimizer = library.optim.SGD(groups, lr=0.3)
        schedule = library.optim.swa_utils.SWALR(optimizer, [0.1, 0.5], epochs, strategy)
        rates = []
        for _ in range(7):
            optimizer.step()
            schedule.step()
            rates.append([float(group["lr"]) for group in optimizer.param_groups])
        found.append(rates)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


def test_statistics_are_found_anew(rng: np.random.Generator) -> None:
    theirs, ours = net_of(torch), net_of(pg)
    ours.load_state_dict(theirs.state_dict())
    ours[0].eval()
    batches = [rng.standard_normal((5, 3)).astype(np.float32) for _ in range(3)]
    torch.optim.swa_utils.update_bn([(torch.tensor(batch), 0) for batch in batches], theirs)
    pg.optim.swa_utils.update_bn([(pg.Tensor(batch), 0) for batch in batches], ours, "cpu")
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name].numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    assert ours[1].momentum == 0.1 and ours[1].training and not ours[0].training
    before = copy.deepcopy(ours[0])
    pg.optim.swa_utils.update_bn([], before)  # a model without such layers is not run
    assert not before.training


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda swa, optimizer: swa.SWALR(optimizer, 0.1, anneal_strategy="log"), 'must be "cos" or "linear"'),
        (lambda swa, optimizer: swa.SWALR(optimizer, 0.1, anneal_epochs=-1), "must be a number of epochs, got -1"),
        (lambda swa, optimizer: swa.SWALR(optimizer, [0.1, 0.2]), "swa_lr has 2 values for 1 groups"),
        (lambda swa, optimizer: swa.get_ema_avg_fn(1.5), "decay must be in 0..1, got 1.5"),
        (lambda swa, _: swa.AveragedModel(pg.nn.Tanh(), avg_fn=min, multi_avg_fn=min), "one of avg_fn and multi"),
    ],
)
def test_refusals(call: Any, words: str) -> None:
    optimizer = pg.optim.SGD([pg.Tensor([1.0], requires_grad=True)], lr=0.1)
    with pytest.raises(ArgumentError, match=words):
        call(pg.optim.swa_utils, optimizer)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"avg_fn": pg.optim.swa_utils.get_ema_avg_fn(0.5)},
        {"multi_avg_fn": pg.optim.swa_utils.get_ema_multi_avg_fn(0.5)},
    ],
)
def test_an_averaged_model_is_pickled(settings: dict[str, Any]) -> None:
    net = pg.nn.Linear(1, 1)
    averaged = pg.optim.swa_utils.AveragedModel(net, **settings)
    averaged.update_parameters(net)
    again = pickle.loads(pickle.dumps(averaged))
    with pg.no_grad():
        net.weight.add_(1.0)
    for each in (averaged, again):
        each.update_parameters(net)
    assert again.module.weight.item() == averaged.module.weight.item() != net.weight.item()
