"""Whole Jacobians and Hessians against torch.func: forms of arguments and results, chunks, and the number of Ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.ir.op import toposort
from tests.helpers import same_value

# PyTorch's forward mode compiles with its own deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


def both(make: Callable[[Any], Any], *arrays: np.ndarray[Any, Any]) -> None:
    """Compares a transform of pg and of torch.func on equal arguments."""
    mine = make(pg)(*map(Tensor, arrays))
    theirs = make(torch.func)(*map(torch.tensor, arrays))
    same_value(_flat(mine), _flat(theirs), rtol=1e-10, atol=1e-12)


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [part for key in sorted(value) for part in _flat(value[key])]
    return [part for item in value for part in _flat(item)] if isinstance(value, (tuple, list)) else [value]


@pytest.mark.req("A9")
@pytest.mark.parametrize("mode", ["jacrev", "jacfwd"])
def test_jacobians_of_several_arguments_and_results(mode: str, device: str, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((2, 3)), rng.standard_normal(3)
    both(lambda g: getattr(g, mode)(lambda x, y: (x * y).exp()), x, y)
    both(lambda g: getattr(g, mode)(lambda x, y: (x @ y).sin(), (0, 1)), x, y)
    both(lambda g: getattr(g, mode)(lambda x, y: {"b": x.sum(), "a": (y * y, x @ y)}, argnums=1), x, y)
    both(lambda g: getattr(g, mode)(lambda x, y: (x @ y, y.sum() * x[0, 0]), argnums=(1, 0)), x, y)


def test_both_modes_and_chunks_agree(rng: np.random.Generator) -> None:
    x = Tensor(rng.standard_normal((3, 2)))
    function = lambda x: x.softmax(0).T @ x  # noqa: E731
    rows = pg.jacrev(function)(x).numpy()
    assert rows.shape == (2, 2, 3, 2)
    np.testing.assert_allclose(pg.jacfwd(function)(x).numpy(), rows, rtol=1e-12, atol=1e-14)
    for size in (1, 3, 4, 9):
        np.testing.assert_allclose(pg.jacrev(function, chunk_size=size)(x).numpy(), rows, rtol=1e-12, atol=1e-14)


def test_aux_beside_a_jacobian() -> None:
    for mode in (pg.jacrev, pg.jacfwd):
        found, aux = mode(lambda x: (x * x, {"n": x + 1}), has_aux=True)(Tensor([3.0]))
        assert (found.tolist(), aux["n"].tolist(), aux["n"].requires_grad) == ([[6.0]], [4.0], False)


@pytest.mark.req("A9")
def test_hessians_are_pytorchs(device: str, rng: np.random.Generator) -> None:
    x, y = rng.standard_normal(3), rng.standard_normal(2)
    both(lambda g: g.hessian(lambda x, y: (x * x).sum() * (y.exp()).sum() + (x[:2] * y).sum() ** 3), x, y)
    both(lambda g: g.hessian(lambda x, y: ((x[:2] * y).sin()).sum(), (0, 1)), x, y)


def test_hessians_of_containers() -> None:
    params = {"w": Tensor([1.0, 2.0]), "b": Tensor(3.0)}
    found = pg.hessian(lambda p: (p["w"] ** 3).sum() * p["b"])(params)
    assert found["w"]["w"].tolist() == [[18.0, 0.0], [0.0, 36.0]]
    assert found["w"]["b"].tolist() == found["b"]["w"].tolist() == [3.0, 12.0]
    assert found["b"]["b"].item() == 0.0


@pytest.mark.parametrize("mode", ["jacrev", "jacfwd", "hessian"])
def test_the_number_of_ops_does_not_depend_on_that_of_rows(mode: str) -> None:
    function = lambda x: ((x * 2).tanh() ** 2).sum() if mode == "hessian" else (x * 2).tanh()  # noqa: E731
    counts = [len(toposort([getattr(pg, mode)(function)(Tensor(np.ones(n))).op])) for n in (2, 200)]
    assert counts[0] == counts[1]


@pytest.mark.req("A9")
def test_hessian_products_are_pytorchs(device: str, rng: np.random.Generator) -> None:
    x, v = rng.standard_normal(4), rng.standard_normal(4)
    function = lambda x: (x.exp() * x.sum()).sum()  # noqa: E731
    for name in ("hvp", "vhp"):
        mine = getattr(pg, name)(function, Tensor(x), Tensor(v))
        theirs = getattr(torch.autograd.functional, name)(function, torch.tensor(x), torch.tensor(v))
        same_value(mine, theirs, rtol=1e-10)
    two = lambda x, y: (x.exp() * y).sum()  # noqa: E731
    mine = pg.hvp(two, (Tensor(x), Tensor(v)), (Tensor(v), Tensor(x)))
    theirs = torch.autograd.functional.hvp(two, (torch.tensor(x), torch.tensor(v)), (torch.tensor(v), torch.tensor(x)))
    same_value(mine, theirs, rtol=1e-10)
    assert pg.hvp(lambda x: x**3, Tensor(2.0))[1].item() == 12.0


def test_a_jacobian_through_a_scan_and_a_call(rng: np.random.Generator) -> None:
    x = Tensor(rng.standard_normal((4, 2)))

    def function(x: Tensor) -> Tensor:
        step = pg.outline(lambda carry, row: (carry * row).sin() + row)
        return pg.scan(lambda carry, row: (step(carry, row), carry), x[0], x)[1]

    def unrolled(x: Tensor) -> Tensor:
        carry, rows = x[0], []
        for i in range(4):
            rows.append(carry)
            carry = (carry * x[i]).sin() + x[i]
        return pg.stack(rows)

    expected = pg.jacrev(unrolled)(x).numpy()
    for mode in (pg.jacrev, pg.jacfwd):
        np.testing.assert_allclose(mode(function)(x).numpy(), expected, rtol=1e-10, atol=1e-12)
    second = [pg.hessian(lambda x: f(x).sum())(x).numpy() for f in (function, unrolled)]  # noqa: B023
    np.testing.assert_allclose(second[0], second[1], rtol=1e-9, atol=1e-11)
