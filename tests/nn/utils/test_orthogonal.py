"""Weights that stay orthogonal, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import nn
from picograd.nn.utils.parametrizations import orthogonal
from tests.helpers import same_value


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)], ids=str)
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
def test_a_weight_and_its_gradient_are_pytorchs(kind: str, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    rows, columns = shape
    ours, theirs = nn.Linear(columns, rows, dtype=pg.float64), torch.nn.Linear(columns, rows, dtype=torch.float64)
    orthogonal(ours, orthogonal_map=kind)
    torch.nn.utils.parametrizations.orthogonal(theirs, orthogonal_map=kind)
    one = np.eye(min(shape))
    weight = ours.weight.detach().numpy()
    np.testing.assert_allclose(weight.T @ weight if rows >= columns else weight @ weight.T, one, atol=1e-12)
    values = np.linspace(-1.0, 1.0, rows * columns).reshape(rows, columns)
    np.fill_diagonal(values, -1.0)
    theirs.parametrizations.weight[0].base.copy_(torch.tensor(ours.parametrizations.weight[0].base.numpy()))
    with torch.no_grad(), pg.no_grad():
        ours.parametrizations.weight.original.copy_(pg.tensor(values))
        theirs.parametrizations.weight.original.copy_(torch.tensor(values))
    same_value(ours.weight.detach(), theirs.weight.detach())
    (ours.weight * pg.tensor(values)).sum().backward()
    (theirs.weight * torch.tensor(values)).sum().backward()
    same_value(ours.parametrizations.weight.original.grad, theirs.parametrizations.weight.original.grad)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)], ids=str)
def test_without_trivialization_the_reflections_are_those_of_the_weight(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    theirs = torch.nn.Linear(shape[1], shape[0])
    ours = nn.Linear(shape[1], shape[0])
    ours.load_state_dict({name: pg.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    orthogonal(ours, orthogonal_map="householder", use_trivialization=False)
    torch.nn.utils.parametrizations.orthogonal(theirs, orthogonal_map="householder", use_trivialization=False)
    same_value(ours.weight.detach(), theirs.weight.detach())


def test_an_orthogonal_weight_stays_what_it_is_and_training_keeps_it_so() -> None:
    net = nn.Linear(3, 3)
    turn = pg.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    net.weight.data = turn
    orthogonal(net)
    same_value(net.weight.detach(), torch.tensor(turn.numpy()))
    optimizer = pg.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        (net(pg.ones(2, 3)) - pg.arange(3)).square().sum().backward()
        optimizer.step()
    weight = net.weight.detach()
    assert not np.allclose(weight.numpy(), turn.numpy()) and np.allclose((weight @ weight.T).numpy(), np.eye(3), atol=1e-5)


def test_errors() -> None:
    with pytest.raises(pg.ArgumentError, match="orthogonal_map must be one of matrix_exp, cayley, householder, got 'qr'"):
        orthogonal(nn.Linear(2, 2), orthogonal_map="qr")
    with pytest.raises(pg.ArgumentError, match="orthogonal: cayley without use_trivialization has no inverse"):
        orthogonal(nn.Linear(2, 2), orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(pg.ShapeError, match=r"orthogonal: needs a matrix or a stack of matrices, got shape \(2,\)"):
        orthogonal(nn.Linear(2, 2), "bias")
