"""picograd.autograd and picograd.autograd.functional against PyTorch's."""

from __future__ import annotations

import functools
import types
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


@pytest.mark.parametrize("name", CALLS)
def test_a_result_has_a_graph_where_it_is_asked_for(name: str) -> None:
    """Else a loss that uses a derivative as a number would have another gradient than in PyTorch."""

    def flags(result: Any) -> list[bool]:
        return sum(map(flags, result), []) if isinstance(result, tuple) else [result.requires_grad]

    for lib, functional in ((pg, pg_functional()), (torch, torch.autograd.functional)):
        asked = {**vars(functional)}
        for create_graph in (False, True):
            for one in ("jacobian", "hessian", "vjp", "jvp", "hvp", "vhp"):
                asked[one] = functools.partial(getattr(functional, one), create_graph=create_graph)
            x = lib.tensor([0.5, 1.5], dtype=lib.float64, requires_grad=True)
            v = lib.tensor([1.0, 2.0], dtype=lib.float64)
            if "forward" not in name:
                assert any(flags(CALLS[name](types.SimpleNamespace(**asked), x, v))) is create_graph


def test_the_hessian_of_one_element_has_no_axes_for_it() -> None:
    for lib, functional in ((pg, pg_functional()), (torch, torch.autograd.functional)):
        x = lib.tensor([0.5, 1.5])
        assert tuple(functional.hessian(lambda a: (a**3).sum().reshape(1, 1), x).shape) == (2, 2)
        with pytest.raises((pg.ShapeError, RuntimeError), match="one element|single element"):
            functional.hessian(lambda a: a**3, x)


def test_strict_refuses_what_does_not_depend_on_an_input() -> None:
    functional = pg_functional()
    x, v = Tensor([1.0, 2.0]), Tensor([1.0, 1.0])
    for call in (functional.jacobian, functional.vjp, functional.jvp):
        more = () if call is functional.jacobian else (v,)
        call(lambda a: a * 2, x, *more, strict=True)
        with pytest.raises(pg.ArgumentError, match=r"result of .* does not depend on input 0, and strict=True"):
            call(lambda a: v * 2, x, *more, strict=True)
        with pytest.raises(pg.ArgumentError, match="the derivative of .* does not depend on input 0"):
            call(lambda a: a * 2, x, *more, create_graph=True, strict=True)
    for call in (functional.hessian, functional.hvp, functional.vhp):
        more = () if call is functional.hessian else (v,)
        call(lambda a: (a**3).sum(), x, *more, strict=True)
        with pytest.raises(pg.ArgumentError, match="the derivative of .* does not depend on input 0"):
            call(lambda a: (a * 2).sum(), x, *more, strict=True)


def test_fill_with_a_tensor_hands_its_gradient_on() -> None:
    for lib in (pg, torch):
        value = lib.tensor(2.0, requires_grad=True)
        filled = lib.zeros(2, 3).fill_(value)
        (grad,) = lib.autograd.grad((filled * 2).sum() + lib.fill(lib.ones(4), value).sum(), value)
        assert filled.tolist() == [[2.0] * 3] * 2 and grad.item() == 16.0
        with pytest.raises((pg.ShapeError, RuntimeError)):
            lib.zeros(2).fill_(lib.ones(1, 1))


@pytest.mark.req("A7")
def test_backward_of_several(device: str) -> None:
    for library in (pg, torch):
        make = Tensor if library is pg else torch.tensor
        x = make([1.0, 2.0], requires_grad=True)
        library.autograd.backward([x.sum(), x * x], [None, make([1.0, 10.0])], retain_graph=True)
        assert x.grad.tolist() == [3.0, 41.0]
