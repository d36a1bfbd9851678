"""Shapes, triangles, diagonals and added products in place, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import GradientError, ShapeError, Tensor
from tests.helpers import same_value

CALLS: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = [
    ("squeeze_", (1, 3, 1), ()),
    ("squeeze_", (1, 3, 1), (-1,)),
    ("squeeze_", (1, 3, 1), (1,)),
    ("squeeze_", (), ()),
    ("unsqueeze_", (3,), (-1,)),
    ("unsqueeze_", (0, 2), (1,)),
    ("transpose_", (2, 3, 4), (0, -1)),
    ("swapdims_", (2, 3), (0, 1)),
    ("swapaxes_", (2, 3), (0, 1)),
    ("t_", (2, 3), ()),
    ("t_", (3,), ()),
    ("tril_", (3, 4), (1,)),
    ("triu_", (2, 3, 3), ()),
    ("fill_diagonal_", (2, 4), (7.0,)),
    ("fill_diagonal_", (7, 3), (7.0,)),
    ("fill_diagonal_", (7, 3), (7.0, True)),
    ("fill_diagonal_", (3, 7), (7.0, True)),
    ("fill_diagonal_", (3, 3, 3), (7.0,)),
    ("fill_diagonal_", (0, 3), (7.0,)),
]
ADDED: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("addmm_", (2, 3), (2, 4), (4, 3)),
    ("addmv_", (2,), (2, 4), (4,)),
    ("addr_", (2, 3), (2,), (3,)),
    ("addbmm_", (2, 3), (5, 2, 4), (5, 4, 3)),
    ("baddbmm_", (5, 2, 3), (5, 2, 4), (5, 4, 3)),
]


@pytest.mark.req("C2")
@pytest.mark.parametrize(("name", "shape", "args"), CALLS)
def test_it_becomes_what_pytorchs_becomes(
    name: str, shape: tuple[int, ...], args: tuple[Any, ...], device: str, rng: np.random.Generator
) -> None:
    values = rng.standard_normal(shape)
    leaf, other = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    x, y = leaf * 2, other * 2
    assert getattr(x, name)(*args) is x
    getattr(y, name)(*args)
    same_value(x, y)
    (x.exp() * x).sum().backward()
    (y.exp() * y).sum().backward()
    same_value(leaf.grad, other.grad)


@pytest.mark.req("C6")
@pytest.mark.parametrize(("name", "shape", "first", "second"), ADDED)
def test_products_are_added_in_place(
    name: str, shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...], rng: np.random.Generator
) -> None:
    arrays = [rng.standard_normal(each) for each in (shape, first, second)]
    x, *operands = map(Tensor, arrays)
    y, *theirs = map(torch.tensor, arrays)
    whole = x.flatten()
    assert getattr(x, name)(*operands, beta=0.5, alpha=2) is x
    getattr(y, name)(*theirs, beta=0.5, alpha=2)
    same_value(x, y)
    same_value(whole, y.flatten())


def test_a_tensor_of_another_shape_is_on_the_same_storage(device: str) -> None:
    x = Tensor([[1.0, 2.0, 3.0]])
    alias, row = x[:], x[0]
    x.t_()[1] = 7.0
    assert (x.shape, alias.tolist(), row.tolist()) == ((3, 1), [[1.0, 7.0, 3.0]], [1.0, 7.0, 3.0])
    alias.zero_()
    assert x.tolist() == [[0.0], [0.0], [0.0]]


def test_under_no_grad_it_stays_part_of_its_graph() -> None:
    leaf = Tensor([[1.0, 2.0]], requires_grad=True)
    x = leaf * 3
    with pg.no_grad():
        x.t_()
    x.sum().backward()
    assert x.shape == (2, 1) and leaf.grad.tolist() == [[3.0, 3.0]]


def test_a_captured_function_notices_another_shape() -> None:
    x = Tensor([[1.0, 2.0]])

    @pg.jit
    def product(y: Tensor) -> Tensor:
        return x * y

    assert product(Tensor([1.0, 1.0])).shape == product(Tensor([1.0, 1.0])).shape == (1, 2)
    x.t_()
    with pytest.raises(pg.JitError, match="x is another tensor"):
        product(Tensor([1.0, 1.0]))


TURNS: list[Callable[[Tensor], Tensor]] = [Tensor.t_, Tensor.squeeze_, lambda x: x.unsqueeze_(0)]


@pytest.mark.parametrize("turn", TURNS)
def test_what_collects_gradients_keeps_its_shape(turn: Callable[[Tensor], Tensor]) -> None:
    leaf = Tensor([[1.0, 2.0]], requires_grad=True)
    kept = leaf * 2
    kept.retain_grad()
    for x in (leaf, kept):
        with pytest.raises(GradientError, match="the shape .1, 2. of a tensor that collects gradients cannot change"):
            turn(x)
        with pg.no_grad(), pytest.raises(GradientError):
            turn(x)


def test_diagonals_of_other_shapes_are_refused() -> None:
    for shape in ((3,), (2, 3, 3)):
        with pytest.raises(ShapeError) as caught:
            Tensor.zeros(*shape).fill_diagonal_(1)
        assert caught.value.fact == f"fill_diagonal_: needs two axes, or more axes of equal length, got shape {shape}."
    with pytest.raises(pg.DTypeError, match="300 does not fit uint8"):
        Tensor.zeros(2, 2, dtype=pg.uint8).fill_diagonal_(300)
