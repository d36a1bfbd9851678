"""Layers against PyTorch with the same weights, and their start values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from picograd import Tensor, nn
from picograd.nn import init
from tests.helpers import same_value


def with_weights_of(ours: nn.Module, theirs: torch.nn.Module) -> nn.Module:
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours


PAIRS = [
    (lambda m: m.Linear(4, 3), (2, 4)),
    (lambda m: m.Linear(4, 3, bias=False), (4,)),
    (lambda m: m.LayerNorm(4), (2, 3, 4)),
    (lambda m: m.LayerNorm((3, 4), eps=1e-3), (2, 3, 4)),
    (lambda m: m.LayerNorm(4, elementwise_affine=False), (2, 4)),
    (lambda m: m.LayerNorm(4, bias=False), (2, 4)),
    (lambda m: m.Sequential(m.Linear(4, 5), m.Tanh(), m.Linear(5, 2), m.Sigmoid()), (3, 4)),
    (lambda m: m.ReLU(), (5,)),
    (lambda m: m.GELU(), (5,)),
    (lambda m: m.GELU("tanh"), (5,)),
    (lambda m: m.SiLU(), (5,)),
]


@pytest.mark.req("C7")
@pytest.mark.parametrize(("make", "shape"), PAIRS)
def test_layers(make, shape, device, rng):
    theirs = make(torch.nn)
    ours = with_weights_of(make(nn), theirs)
    x = rng.standard_normal(shape).astype(np.float32)
    mine, other = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    result, expected = ours(mine), theirs(other)
    same_value(result, expected)
    (result * result).sum().backward()
    (expected * expected).sum().backward()
    same_value(mine.grad, other.grad, 1e-4, 1e-5)
    for name, parameter in theirs.named_parameters():
        same_value(dict(ours.named_parameters())[name].grad, parameter.grad, 1e-4, 1e-5)


@pytest.mark.req("C7")
def test_embedding(device):
    theirs = torch.nn.Embedding(5, 3)
    ours = with_weights_of(nn.Embedding(5, 3), theirs)
    rows = np.array([[0, 4], [4, 1]])
    same_value(ours(Tensor(rows)), theirs(torch.tensor(rows)))


@pytest.mark.req("C7")
def test_start_values_of_linear_and_embedding(device):
    layer = nn.Linear(100, 200)
    for parameter in (layer.weight, layer.bias):
        values = parameter.detach().numpy()
        assert -0.1 <= values.min() < -0.09 and 0.09 < values.max() <= 0.1
    table = nn.Embedding(100, 50).weight.detach().numpy()
    assert abs(table.mean()) < 0.07 and abs(table.std() - 1) < 0.05


@pytest.mark.req("C7")
@pytest.mark.parametrize(
    ("function", "low", "high", "deviation"),
    [
        (init.kaiming_uniform_, -math.sqrt(6 / 100), math.sqrt(6 / 100), math.sqrt(2 / 100)),
        (init.kaiming_normal_, None, None, math.sqrt(2 / 100)),
        (init.xavier_uniform_, -math.sqrt(6 / 300), math.sqrt(6 / 300), math.sqrt(2 / 300)),
        (init.xavier_normal_, None, None, math.sqrt(2 / 300)),
        (init.trunc_normal_, -2.0, 2.0, 0.8796),
    ],
)
def test_start_values(function, low, high, deviation, device):
    weight = Tensor.zeros(200, 100, requires_grad=True)
    assert function(weight) is weight and weight.is_leaf and weight.requires_grad
    values = weight.detach().numpy()
    assert abs(values.std() / deviation - 1) < 0.03
    assert abs(values.mean()) < 0.03 * max(1, deviation)
    if low is not None:
        assert low <= values.min() < 0.95 * low and 0.95 * high < values.max() <= high


def test_truncated_normals_have_the_right_shape_inside(device):
    from statistics import NormalDist

    values = np.sort(init.trunc_normal_(Tensor.zeros(4000)).numpy())
    normal = NormalDist()
    inside = normal.cdf(2.0) - normal.cdf(-2.0)
    expected = [normal.inv_cdf(normal.cdf(-2.0) + inside * (i + 0.5) / 4000) for i in range(4000)]
    np.testing.assert_allclose(values[100:-100], expected[100:-100], atol=0.15)


def test_gains():
    for name in ("linear", "tanh", "relu", "sigmoid", "selu", "leaky_relu"):
        assert init.calculate_gain(name) == pytest.approx(torch.nn.init.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.2) == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", 0.2))


@pytest.mark.req("A3")
def test_mlp_has_337_parameters():
    assert sum(p.numel() for p in nn.MLP(2, [16, 16, 1]).parameters()) == 337


def test_containers(device):
    layers = nn.ModuleList([nn.Linear(2, 2)])
    layers.append(nn.Linear(2, 1)).extend([nn.ReLU()])
    assert len(layers) == 3 and isinstance(layers[-1], nn.ReLU)
    assert [name for name, _ in layers.named_parameters()] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    chain = nn.Sequential(nn.Linear(2, 2), Tensor.tanh)
    assert len(chain) == 2 and chain(Tensor.ones(2)).shape == (2,)
