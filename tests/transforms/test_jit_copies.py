"""Copies and pickles of jitted functions, and of models that hold one: each runs its own function on its own weights."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import picograd as pg
from picograd import Tensor, nn


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


TWINS = pytest.mark.parametrize("twin", [copy.deepcopy, pickled], ids=["copy", "pickle"])


@pg.jit
def doubled(x: Tensor) -> Tensor:
    return x * 2


def tripled(x: Tensor) -> Tensor:
    return x * 3


class HoldsOne(nn.Module):
    """A model whose constructor jits a method of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)
        self.fast = pg.jit(self.forward, tune=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class IsOne(nn.Module):
    """A model with a jitted method."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1, bias=False)

    @pg.jit
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

    fast = nn.Module.__call__


def used(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    for _ in range(3):
        function(pg.ones(1, 2))
    return function


@TWINS
def test_functions(twin: Callable[[Any], Any]) -> None:
    assert twin(used(doubled)) is doubled  # as any function of a module
    original = used(pg.jit(tripled))
    again = twin(original)
    assert again is not original and again(pg.ones(2)).tolist() == [3.0, 3.0]
    donating = pg.jit(tripled, donate="x")
    assert twin(donating).donate == donating.donate  # type: ignore[attr-defined]


def test_a_function_inside_a_function() -> None:
    factor = pg.tensor(2.0)
    inside = used(pg.jit(lambda x: x * factor))
    again = copy.deepcopy(inside)
    assert again is not inside and again(pg.ones(2)).tolist() == [2.0, 2.0]
    factor.zero_()  # state that a closure holds is copied with it
    assert again(pg.ones(2)).tolist() == [2.0, 2.0] and inside(pg.ones(2)).tolist() == [0.0, 0.0]
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):  # as Python says of any such function
        pickle.dumps(inside)


@TWINS
@pytest.mark.parametrize("kind", [HoldsOne, IsOne])
def test_models(kind: Callable[[], Any], twin: Callable[[Any], Any]) -> None:
    model, x = kind(), pg.ones(1, 2)
    before = used(model.fast)(x).item()
    other = twin(model)
    assert [other.fast(x).item() for _ in range(3)] == [before] * 3
    with pg.no_grad():
        other.layer.weight.zero_()
    assert (other.fast(x).item(), model.fast(x).item()) == (0.0, before)


@TWINS
def test_a_model_that_is_jitted(twin: Callable[[Any], Any]) -> None:
    model, x = pg.jit(nn.Linear(2, 1)), pg.ones(1, 2)
    other = twin(used(model))
    before = model(x).item()
    with pg.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert (other(x).item(), model(x).item()) == (0.0, before)


def reads_itself(net: Any) -> Callable[..., Any]:
    return lambda x: net.layer(x)


def reads_a_layer(net: Any) -> Callable[..., Any]:
    layer = net.layer
    return lambda x: layer(x)


def calls_another(net: Any) -> Callable[..., Any]:
    layers = [net.layer]

    def inner(x: Tensor) -> Tensor:
        return layers[0](x)

    jitted = pg.jit(inner)
    return lambda x, inner=inner: (inner(x) + jitted(x)) / 2


def of_another_function(net: Any) -> Callable[..., Any]:
    return pg.vmap(lambda row: net.layer(row))


def of_a_part(net: Any) -> Callable[..., Any]:
    return functools.partial(lambda model, x: model.layer(x), net)


CLOSURES = (reads_itself, reads_a_layer, calls_another, of_another_function, of_a_part)


@pytest.mark.parametrize("make", CLOSURES)
def test_a_model_whose_forward_is_jitted_by_a_closure(make: Callable[..., Any]) -> None:
    model, x = nn.Module(), pg.ones(1, 2)
    model.layer = model.again = nn.Linear(2, 1, bias=False)
    model.forward = used(pg.jit(make(model)))  # type: ignore[method-assign]
    before = model(x).item()
    other = copy.deepcopy(model)
    assert other.layer is other.again and [other(x).item() for _ in range(3)] == [before] * 3
    with pg.no_grad():
        other.layer.weight.zero_()  # type: ignore[operator, union-attr]
    assert (other(x).item(), model(x).item()) == (0.0, before)
