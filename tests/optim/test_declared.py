"""A formula is one: in one plan of all parameters, written tensor by tensor, and in a graph that jit keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, optim
from picograd.optim.declared import Declared

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"momentum": 0.9, "dampening": 0.5}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("AdamW", {}),
    ("Adamax", {}), ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}), ("RAdam", {"betas": (0.9, 0.5)}),
    ("LAMB", {"weight_decay": 0.1}), ("ASGD", {"t0": 2.0}), ("Lion", {"weight_decay": 0.1}), ("Rprop", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.1}), ("Adadelta", {}),
    ("RMSprop", {"momentum": 0.5, "centered": True, "maximize": True}), ("Muon", {}), ("Adafactor", {"weight_decay": 0.1}),
]  # fmt: skip
STARTS = [np.random.default_rng(rows).normal(size=(rows, 4)).astype(np.float32) for rows in (3, 2, 1)]


def trained(name: str, settings: dict[str, Any], wrap: Callable[[Any], Any], is_shared: bool) -> tuple[list[Any], Any]:
    """Returns the parameters, the last of 16 bits, after four steps, and the state.

    is_shared: NumPy sees the memory of the others, which is then written where it lies
    """
    params = [Tensor(start, requires_grad=True) for start in STARTS[:2]]
    params.append(Tensor(STARTS[2], dtype=pg.bfloat16, requires_grad=True))
    seen = [np.from_dlpack(p.detach()) for p in params[:2]] if is_shared else []
    optimizer = getattr(optim, name)(params, lr=0.05, **settings)

    def step(factor: Tensor) -> None:
        optimizer.zero_grad()
        sum((p.float() * p.float() * factor).sum() for p in params).backward()
        optimizer.step()

    step = wrap(step)
    for i in range(4):
        step(Tensor(0.5 + i))
    for array, p in zip(seen, params):
        np.testing.assert_array_equal(array, p.detach().numpy())
    return [p.detach().float().numpy() for p in params], optimizer.state_dict()["state"]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_a_step_is_the_same_however_it_is_made(name: str, settings: dict[str, Any]) -> None:
    expected, state = trained(name, settings, lambda step: step, False)
    assert all(np.isfinite(value).all() for value in expected) and not np.array_equal(expected[0], STARTS[0])
    for wrap, is_shared in ((lambda step: step, True), (pg.jit, False)):
        found, kept = trained(name, settings, wrap, is_shared)
        for ours, theirs in zip(found, expected):
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=1e-6)
        assert [{*one} - {"is_first"} for one in kept.values()] == [{*one} for one in state.values()]


def test_every_optimizer_is_tried() -> None:
    kinds = {kind.__name__ for kind in vars(optim).values() if isinstance(kind, type) and issubclass(kind, Declared)}
    assert kinds == {name for name, _ in SETTINGS}


@pytest.mark.parametrize("casts", [0, 2])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", sorted({name for name, _ in SETTINGS}))
def test_state_follows_a_module_that_is_cast_after_some_steps(name: str, jit: bool, casts: int) -> None:
    layer = pg.nn.Linear(4, 3)
    layer.load_state_dict({"weight": Tensor(STARTS[0]), "bias": Tensor(STARTS[0][:, 0])})
    optimizer = getattr(optim, name)([layer.weight], lr=0.05)
    kept = getattr(optim, name)([Tensor(STARTS[0], dtype=pg.float64, requires_grad=True)], lr=0.05)

    def step() -> None:
        for each in (optimizer, kept):
            each.zero_grad()
            (each.param_groups[0]["params"][0] ** 2).sum().backward()
            each.step()

    wrapped = pg.jit(step) if jit else step
    for number in range(4):
        if number == casts:
            layer.double()
        wrapped()
    state = optimizer.state_dict()["state"].get(0, {})
    assert all(value.dtype == pg.float64 for value in state.values() if isinstance(value, Tensor))
    expected = kept.param_groups[0]["params"][0].detach().numpy()
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, rtol=0, atol=1e-6 if casts else 1e-14)
