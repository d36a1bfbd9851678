"""Lazy layers: they become ordinary ones at the first input, or when a state is loaded, and keep their tensors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg

# name: arguments, shape of the first input
LAYERS: dict[str, tuple[tuple[Any, ...], tuple[int, ...]]] = {
    "Linear": ((3,), (2, 5)),
    "Conv1d": ((4, 3), (2, 4, 6)),
    "Conv2d": ((4, 3, 2, 1), (2, 4, 6, 6)),
    "Conv3d": ((4, 3), (4, 4, 4, 4)),
    "ConvTranspose1d": ((4, 3), (4, 6)),
    "ConvTranspose2d": ((4, 3, 2), (2, 4, 5, 5)),
    "ConvTranspose3d": ((4, 3), (2, 4, 4, 4, 4)),
    "BatchNorm1d": ((), (5, 3)),
    "BatchNorm2d": ((), (5, 3, 2, 2)),
    "BatchNorm3d": ((1e-3,), (5, 3, 2, 2, 2)),
    "InstanceNorm1d": ((), (2, 3, 4)),
    "InstanceNorm2d": ((), (5, 3, 2, 2)),
    "InstanceNorm3d": ((), (2, 3, 2, 2, 2)),
}


@pytest.mark.req("C7")
@pytest.mark.parametrize("name", LAYERS)
def test_it_becomes_the_layer_that_pytorchs_becomes(name: str, rng: np.random.Generator) -> None:
    args, shape = LAYERS[name]
    theirs, ours = getattr(torch.nn, f"Lazy{name}")(*args), getattr(pg.nn, f"Lazy{name}")(*args)
    held = dict(ours.named_parameters())
    assert list(held) == [path for path, _ in theirs.named_parameters()]
    x = rng.standard_normal(shape).astype(np.float32)
    theirs(torch.tensor(x))
    ours(pg.Tensor(x))
    assert type(ours) is getattr(pg.nn, name) and repr(ours) == repr(theirs)
    assert all(held[path] is parameter for path, parameter in ours.named_parameters())
    assert {path: tuple(value.shape) for path, value in theirs.state_dict().items()} == {
        path: value.shape for path, value in ours.state_dict().items()
    }
    ours.load_state_dict(theirs.state_dict())
    y, reference = ours(pg.Tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), reference.detach().numpy(), rtol=1e-4, atol=1e-5)
    (y * y).sum().backward()
    assert all(parameter.grad.shape == parameter.shape for parameter in ours.parameters())


@pytest.mark.parametrize("name", LAYERS)
def test_a_state_says_how_many_features_there_are(name: str, rng: np.random.Generator) -> None:
    args, shape = LAYERS[name]
    known, fresh = (pg.nn.Sequential(getattr(pg.nn, f"Lazy{name}")(*args)) for _ in range(2))
    x = pg.Tensor(rng.standard_normal(shape))
    known(x.float())
    fresh.load_state_dict(known.state_dict())
    assert type(fresh[0]) is getattr(pg.nn, name)
    np.testing.assert_array_equal(fresh.eval()(x.float()).detach().numpy(), known.eval()(x.float()).detach().numpy())


def test_it_may_be_moved_and_given_to_an_optimizer_before() -> None:
    net = pg.nn.Sequential(pg.nn.LazyLinear(4), pg.nn.Tanh(), pg.nn.LazyLinear(1)).double()
    optimizer = pg.optim.SGD(net.parameters(), lr=0.01)
    x = pg.Tensor([[1.0, 2.0]], dtype=pg.float64)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = (net(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert net[0].weight.dtype is pg.float64 and losses[1] < losses[0]


def test_a_copy_learns_for_itself() -> None:
    layer = pg.nn.LazyLinear(2)
    other = copy.deepcopy(layer)
    layer(pg.Tensor.ones(1, 3)), other(pg.Tensor.ones(1, 5))
    assert layer.weight.shape == (2, 3) and other.weight.shape == (2, 5)
    assert repr(pg.nn.LazyLinear(2)) == "LazyLinear(out_features=2, bias=True, device=None, dtype=None)"


def test_an_input_without_a_batch_has_its_channels_in_front() -> None:
    layer = pg.nn.LazyInstanceNorm2d()
    assert layer(pg.Tensor.ones(3, 4, 5)).shape == (3, 4, 5) and layer.num_features == 3


def test_an_input_of_another_rank_is_refused_and_the_layer_waits_for_the_next() -> None:
    layer = pg.nn.LazyConv2d(2, 1)
    with pytest.raises(pg.ShapeError, match=r"LazyConv2d: input must have 3 or 4 axes, got shape \(5, 4\)"):
        layer(pg.Tensor.ones(5, 4))
    assert layer(pg.Tensor.ones(3, 4, 5)).shape == (2, 4, 5)
