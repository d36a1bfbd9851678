"""picograd.autograd and picograd.autograd.functional against PyTorch's."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from tests.helpers import same_value

# PyTorch's forward mode compiles with its own deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
CALLS = {
    "jacobian": (lambda f, x, v: f.jacobian(lambda a: a.exp() * a.sum(), x)),
    "jacobian forward": (lambda f, x, v: forward_jacobian(f)(lambda a: a.exp() * a.sum(), x, strategy="forward-mode")),
    "jacobian of two": (lambda f, x, v: f.jacobian(lambda a, b: (a * b, a.sum()), (x, v))),
    "hessian": (lambda f, x, v: f.hessian(lambda a: (a.exp() * a.sum()).sum(), x)),
    "hessian of two": (lambda f, x, v: f.hessian(lambda a, b: (a.exp() * b * b).sum(), (x, v))),
    "vjp": (lambda f, x, v: f.vjp(lambda a: a.exp() * a.sum(), x, v)),
    "vjp of a scalar": (lambda f, x, v: f.vjp(lambda a: (a * a).sum(), x)),
    "jvp": (lambda f, x, v: f.jvp(lambda a: a.exp() * a.sum(), x, v)),
    "jvp of two": (lambda f, x, v: f.jvp(lambda a, b: a * b, (x, v), (v, x))),
    "hvp": (lambda f, x, v: f.hvp(lambda a: (a.exp() * a.sum()).sum(), x, v)),
    "vhp": (lambda f, x, v: f.vhp(lambda a: (a.exp() * a.sum()).sum(), x, v)),
}


def pg_functional() -> Any:
    return pg.autograd.functional


def forward_jacobian(library: Any) -> Any:
    """PyTorch has it only where it is told to use vmap."""
    return library.jacobian if library is pg_functional() else functools.partial(library.jacobian, vectorize=True)


@pytest.mark.variants(every=4)
@pytest.mark.req("A9")
@pytest.mark.parametrize("name", CALLS)
def test_at_a_point(name: str, device: str, rng: np.random.Generator) -> None:
    x, v = rng.standard_normal(3), rng.standard_normal(3)
    mine = CALLS[name](pg_functional(), Tensor(x), Tensor(v))
    theirs = CALLS[name](torch.autograd.functional, torch.tensor(x), torch.tensor(v))
    same_value(mine, theirs, rtol=1e-10, atol=1e-12)


def test_a_missing_vector_and_an_unknown_strategy() -> None:
    with pytest.raises(pg.ArgumentError, match="vjp: v may be left out only where there is one element"):
        pg.autograd.functional.vjp(lambda x: x * x, Tensor([1.0, 2.0]))
    with pytest.raises(pg.ArgumentError, match="strategy must be reverse-mode or forward-mode, got 'both'"):
        pg.autograd.functional.jacobian(lambda x: x, Tensor([1.0]), strategy="both")
    assert pg.autograd.functional.jvp(lambda x: x * x, Tensor(3.0))[1].item() == 6.0


@pytest.mark.req("A7")
def test_backward_of_several(device: str) -> None:
    for library in (pg, torch):
        make = Tensor if library is pg else torch.tensor
        x = make([1.0, 2.0], requires_grad=True)
        library.autograd.backward([x.sum(), x * x], [None, make([1.0, 10.0])], retain_graph=True)
        assert x.grad.tolist() == [3.0, 41.0]
