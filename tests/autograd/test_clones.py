"""Gradients that are asked for at a clone, beside PyTorch: other uses of what it is a clone of do not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor

BASES: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda a: a,
    "result": lambda a: a * 2,
    "view": lambda a: (a * 2).reshape(3, 1).reshape(3),
}


def asked(lib: Any, x: Any) -> list[Any]:
    c = x.clone()
    return list(lib.autograd.grad((c * x).sum(), [c, x], retain_graph=True))


def asked_after_requires_grad(lib: Any, x: Any) -> list[Any]:
    c = x.clone().requires_grad_()
    (first,) = lib.autograd.grad((c * x**2).sum(), c, create_graph=True)
    return [first, *lib.autograd.grad((first * c).sum(), [x, c], retain_graph=True)]


def unused(lib: Any, x: Any) -> list[Any]:
    return list(lib.autograd.grad((x * x).sum(), [x.clone()], retain_graph=True, allow_unused=True))


def clone_of_a_clone(lib: Any, x: Any) -> list[Any]:
    c = x.clone()
    d = c.clone()
    return list(lib.autograd.grad((c * d * x).sum(), [x, c, d], retain_graph=True))


def written(lib: Any, x: Any) -> list[Any]:
    c = x.clone()
    c[0] = 5.0
    c.mul_(3)
    return list(lib.autograd.grad((c * x).sum(), [x, c], retain_graph=True))


def retained(lib: Any, x: Any) -> list[Any]:
    c = x.clone()
    y = (c * x).sum()
    c.retain_grad()
    y.backward(retain_graph=True)
    return [c.grad]


def hooked(lib: Any, x: Any) -> list[Any]:
    seen: list[Any] = []
    c = x.clone()
    c.register_hook(lambda grad: seen.append(grad.clone()))
    (c * x).sum().backward(retain_graph=True)
    return seen


def in_transforms(lib: Any, x: Any) -> list[Any]:
    def cubed(z: Any) -> Any:
        w = z.clone()
        return (w * w * z).sum()

    each = lib.func.vmap(lib.func.grad(cubed))(x.reshape(3, 1))
    return [lib.func.grad(cubed)(x), lib.func.jacrev(lib.func.grad(cubed))(x), each]


def inner_gradient_of_a_flow(lib: Any, x: Any) -> list[Any]:
    """A monotonic transform whose parameters depend on its argument: the derivative holds the parameters."""
    scale = (x * 0.1).exp()
    point = x.clone().requires_grad_()
    (slope,) = lib.autograd.grad((point * scale * 0.1).tanh().sum(), point, create_graph=True)
    return [slope, *lib.autograd.grad(slope.log().sum(), [x], retain_graph=True)]


CASES = (
    asked, asked_after_requires_grad, unused, clone_of_a_clone, written, retained, hooked, in_transforms,
    inner_gradient_of_a_flow,
)  # fmt: skip


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gradients_at_a_clone_are_those_of_pytorch(case: Callable[[Any, Any], list[Any]], base: str) -> None:
    mine, theirs = (case(lib, BASES[base](lib.tensor([1.0, 2.0, 3.0], requires_grad=True))) for lib in (pg, torch))
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs):
        assert one is None and other is None or np.allclose(one.detach().numpy(), other.detach().numpy(), 1e-5)


def test_a_clone_under_jit_has_a_gradient_of_its_own() -> None:
    @pg.jit
    def slope(x: Tensor) -> Tensor:
        y = x.detach().requires_grad_() * 2
        c = y.clone().requires_grad_()
        return pg.autograd.grad((c * y).sum(), c)[0]

    assert [slope(pg.tensor([1.0, n])).tolist() for n in (2.0, 3.0, 4.0)] == [[2.0, 4.0], [2.0, 6.0], [2.0, 8.0]]


def test_a_clone_of_a_result_is_no_leaf_and_collects_nothing() -> None:
    x = pg.ones(2, requires_grad=True)
    c = (x * 3).clone()
    assert c.requires_grad and not c.is_leaf
    c.sum().backward()
    assert c.grad is None and x.grad is not None and x.grad.tolist() == [3.0, 3.0]
    with pg.no_grad():
        assert not x.clone().requires_grad
