"""Layers that normalise: values, running statistics and state like PyTorch's; dropout of channels."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.nn import functional
from tests.helpers import same_value

SHAPES = {1: (4, 3, 5), 2: (4, 3, 2, 3), 3: (2, 3, 2, 2, 2)}


@pytest.mark.req("C7")
@pytest.mark.parametrize("name", ["BatchNorm", "InstanceNorm"])
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(
    "settings",
    [{}, {"affine": True, "track_running_stats": True}, {"momentum": 0.3, "affine": False, "track_running_stats": False}],
)
def test_running_statistics(name, axes, settings, rng):
    mine, other = (getattr(library, f"{name}{axes}d")(3, **settings) for library in (nn, torch.nn))
    assert list(mine.state_dict()) == list(other.state_dict())
    for mode in (True, True, False, True, False):
        mine.train(mode), other.train(mode)
        x = rng.standard_normal(SHAPES[axes]).astype(np.float32) * 2 + 1
        same_value(mine(Tensor(x)), other(torch.tensor(x)), rtol=1e-4, atol=1e-5)
    for key, value in other.state_dict().items():
        same_value(mine.state_dict()[key], value, rtol=1e-5, atol=1e-6)


def test_mean_over_all_batches(rng):
    mine, other = (library.BatchNorm1d(3, momentum=None) for library in (nn, torch.nn))
    for _ in range(4):
        x = rng.standard_normal((5, 3)).astype(np.float32)
        mine(Tensor(x)), other(torch.tensor(x))
    same_value(mine.running_mean, other.running_mean)
    same_value(mine.running_var, other.running_var)
    mine.reset_running_stats()
    assert mine.num_batches_tracked.item() == 0 and mine.running_var.tolist() == [1.0] * 3


@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_run_on_in_jit(momentum, rng):
    mine, other = (library.BatchNorm1d(3, momentum=momentum) for library in (nn, torch.nn))
    step = pg.jit(lambda x: mine(x))
    for _ in range(5):
        x = rng.standard_normal((6, 3)).astype(np.float32)
        same_value(step(Tensor(x)), other(torch.tensor(x)), rtol=1e-4, atol=1e-5)
    same_value(mine.running_var, other.running_var, rtol=1e-5)
    assert mine.num_batches_tracked.item() == 5


@pytest.mark.req("C7")
@pytest.mark.parametrize(
    ("name", "args", "shape"),
    [("LayerNorm", ((3, 4),), (2, 3, 4)), ("RMSNorm", (4,), (2, 3, 4)), ("RMSNorm", ((3, 4), 0.1), (2, 3, 4)),
     ("GroupNorm", (2, 4), (3, 4, 5)), ("GroupNorm", (4, 4, 1e-3, False), (3, 4)), ("LocalResponseNorm", (3,), (2, 5, 4))],
)  # fmt: skip
def test_other_norms(name, args, shape, rng):
    x = rng.standard_normal(shape).astype(np.float32)
    mine, other = (getattr(library, name)(*args) for library in (nn, torch.nn))
    same_value(mine(Tensor(x)), other(torch.tensor(x)), rtol=1e-4, atol=1e-5)
    assert list(mine.state_dict()) == list(other.state_dict())


def test_an_instance_without_a_batch(rng):
    x = rng.standard_normal((3, 4, 5)).astype(np.float32)
    same_value(nn.InstanceNorm2d(3)(Tensor(x)), torch.nn.InstanceNorm2d(3)(torch.tensor(x)), rtol=1e-4, atol=1e-5)


# ---- dropout ----
@pytest.mark.parametrize(("name", "shape"), [("1d", (50, 40, 3)), ("2d", (50, 40, 3, 2)), ("3d", (50, 40, 2, 1, 3))])
def test_channels_are_dropped_as_a_whole(name, shape, device):
    values = getattr(functional, f"dropout{name}")(Tensor.ones(*shape), 0.3).numpy().reshape(50, 40, -1)
    assert (values == values[:, :, :1]).all()
    assert set(np.unique(values)) == {np.float32(0.0), np.float32(1 / 0.7)}
    assert abs((values[:, :, 0] == 0).mean() - 0.3) < 0.04


def test_dropout2d_of_channels_without_places_is_dropout_and_says_so(device: str) -> None:
    with pytest.warns(UserWarning, match=r"dropout2d: \(50, 40\) has no channels to drop; use dropout.") as caught:
        values = functional.dropout2d(Tensor.ones(50, 40, device=device), 0.3).numpy()
    assert caught[0].filename == __file__
    assert set(values.ravel().tolist()) == {0.0, np.float32(1 / 0.7)} and 0.2 < (values == 0).mean() < 0.4


@pytest.mark.parametrize("name", ["alpha_dropout", "feature_alpha_dropout"])
def test_alpha_dropout_keeps_mean_and_variance(name, device):
    x = Tensor.randn(200, 100, 2)
    y = getattr(functional, name)(x, 0.2, training=True).numpy()
    assert abs(y.mean()) < 0.05 and abs(y.var() - 1) < 0.06
    assert len(np.unique(y[0])) > 50


def test_dropout_in_place(device):
    x = Tensor.ones(100)
    assert nn.Dropout(0.5, inplace=True)(x) is x and 0 < x.sum().item() < 200


ERRORS = [
    (lambda: nn.BatchNorm2d(3)(Tensor.ones(2, 3)), "BatchNorm2d: input must have 4 axes, got (2, 3)."),
    (lambda: nn.BatchNorm1d(3)(Tensor.ones(1, 3)),
     "batch_norm: in training a channel needs at least two values, got input (1, 3)."),
    (lambda: nn.BatchNorm1d(3)(Tensor.ones(2, 4)), "batch_norm: weight, bias and statistics must be (4,), got (3,)."),
    (lambda: nn.GroupNorm(3, 4), "GroupNorm: 4 channels do not split into 3 groups."),
    (lambda: functional.batch_norm(Tensor.ones(2, 3), None, None),
     "batch_norm: without training running_mean and running_var are needed, got None."),
    (lambda: functional.group_norm(Tensor([[1, 2]]), 1), "group_norm: needs a float, got int64 of shape (1, 2)."),
    (lambda: nn.Dropout2d(1.5), "Dropout2d: p must be a probability, got 1.5."),
    (lambda: functional.dropout1d(Tensor.ones(3)), "dropout1d: input must be (N, C, L) or (C, L), got (3,)."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), ERRORS)
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__


@pytest.mark.parametrize("name", ["BatchNorm1d", "InstanceNorm1d"])
@pytest.mark.parametrize("training", [True, False])
def test_statistics_that_are_no_longer_tracked(name, training):
    x, results = [[[1.0, 2.0], [3.0, 5.0], [4.0, 9.0]]], []
    for library in (pg, torch):
        layer = getattr(library.nn, name)(3, track_running_stats=True)
        layer.track_running_stats = False
        out = layer.train(training)(library.tensor(x)).flatten().tolist()
        results.append([*out, *layer.running_mean.tolist(), *layer.running_var.tolist(), int(layer.num_batches_tracked)])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-5)
