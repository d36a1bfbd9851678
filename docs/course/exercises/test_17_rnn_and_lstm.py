"""Test of the exercise of chapter 17: a step of a GRU beside picograd's own."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest

import picograd as pg

B, D, H = 3, 4, 5
Step = Callable[[pg.Tensor, pg.Tensor], pg.Tensor]


@pytest.fixture
def cell() -> pg.nn.GRUCell:
    """A cell with random weights."""
    pg.manual_seed(1)
    return pg.nn.GRUCell(D, H)


def own_step(exercise: ModuleType, cell: pg.nn.GRUCell) -> Step:
    """Returns the step of the exercise, with the weights of a cell."""
    weights = cell.weight_ih.T, cell.weight_hh.T, cell.bias_ih, cell.bias_hh
    return lambda h, x: exercise.gru_step(h, x, *weights)


def test_a_step(exercise: ModuleType, cell: pg.nn.GRUCell) -> None:
    h, x = pg.randn(B, H), pg.randn(B, D)
    found = own_step(exercise, cell)(h, x).detach().numpy()
    wanted = cell(x, h).detach().numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg="the next state is another")


def test_gradients_of_ten_steps(exercise: ModuleType, cell: pg.nn.GRUCell) -> None:
    xs, found = pg.randn(10, B, D), []
    for step in (own_step(exercise, cell), lambda h, x: cell(x, h)):
        h = pg.zeros(B, H)
        for x in xs:
            h = step(h, x)
        found.append([each.numpy() for each in pg.grad((h * h).sum(), list(cell.parameters()))])
    for name, ours, expected in zip(("w", "u", "b", "d"), *found):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6, err_msg=f"the gradient of {name}")
