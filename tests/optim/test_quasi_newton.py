"""L-BFGS: the same steps as PyTorch's, with and without a search along the line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import picograd as pg
from picograd import ArgumentError, Tensor, optim
from picograd.look import watch
from tests.helpers import same_value

SETTINGS: list[dict[str, Any]] = [
    {"max_iter": 4, "lr": 0.5},
    {"max_iter": 10, "lr": 0.1, "history_size": 2},
    {"max_iter": 5, "line_search_fn": "strong_wolfe"},
    {"max_iter": 20, "line_search_fn": "strong_wolfe", "history_size": 3},
    {"max_iter": 20, "lr": 0.7, "line_search_fn": "strong_wolfe", "max_eval": 9, "tolerance_change": 1e-3},
]


def closure_of(optimizer: Any, parts: list[Any]) -> Any:
    """Returns what computes Rosenbrock's function of all parameters and its gradients."""

    def closure() -> Any:
        optimizer.zero_grad()
        a, b = parts
        first, second = ((1 - w[:-1]) ** 2 + 20 * (w[1:] - w[:-1] ** 2) ** 2 for w in (a, b.flatten()))
        loss = first.sum() + second.sum() + (a[0] * b[0, 0]) ** 2
        loss.backward()
        return loss

    return closure


def starts(library: Any) -> list[Any]:
    values = ([-1.2, 1.0, 0.5], [[0.3, -0.4], [1.5, 0.7]])
    return [library.tensor(value, dtype=library.float64).requires_grad_() for value in values]


@pytest.mark.req("C8")
@pytest.mark.parametrize("settings", SETTINGS)
def test_it_goes_the_way_of_pytorchs(settings: dict[str, Any]) -> None:
    found = []
    for library in (pg, torch):
        parts = starts(library)
        optimizer = library.optim.LBFGS(parts, **settings)
        losses = [optimizer.step(closure_of(optimizer, parts)).item() for _ in range(3)]
        state = optimizer.state_dict()["state"][0]
        found.append((losses, state["func_evals"], state["n_iter"], parts))
    (losses, *counts, ours), (expected, *their_counts, theirs) = found
    assert losses == pytest.approx(expected, rel=1e-6) and counts == their_counts
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-5, atol=1e-7)


@pytest.mark.req("B9")
def test_it_goes_on_from_its_own_state_and_from_pytorchs() -> None:
    parts, theirs = starts(pg), starts(torch)
    optimizer, other = optim.LBFGS(parts, lr=0.1, max_iter=4), torch.optim.LBFGS(theirs, lr=0.1, max_iter=4)
    optimizer.step(closure_of(optimizer, parts))
    other.step(closure_of(other, theirs))
    twins = [copy.deepcopy(parts), copy.deepcopy(parts)]
    again = [optim.LBFGS(twin, lr=1.0, max_iter=1) for twin in twins]
    again[0].load_state_dict(optimizer.state_dict())
    again[1].load_state_dict(other.state_dict())
    optimizer.step(closure_of(optimizer, parts))
    for twin, its in zip(twins, again):
        its.step(closure_of(its, twin))
        for a, b in zip(twin, parts):
            same_value(a.detach(), torch.tensor(b.detach().numpy()), rtol=1e-6)


def test_it_finds_the_least_of_a_parabola(device: str) -> None:
    w = Tensor([3.0, -2.0], requires_grad=True)
    optimizer = optim.LBFGS([w], line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = ((w - Tensor([1.0, 2.0])) ** 2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 20.0 and w.tolist() == pytest.approx([1.0, 2.0], abs=1e-5)


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda w: optim.LBFGS([w], line_search_fn="wolfe"),
         "LBFGS: line_search_fn must be \"strong_wolfe\" or None, got 'wolfe'."),
        (lambda w: optim.LBFGS([{"params": [w]}, {"params": []}]), "LBFGS: takes one group of parameters, got 2."),
        (lambda w: optim.LBFGS([w]).step(), "LBFGS: step() needs a closure that computes the loss and its gradients."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(make: Any, fact: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        make(Tensor([1.0], requires_grad=True))
    assert caught.value.fact == fact


def test_a_first_step_without_slope_moves_nothing() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.LBFGS([w], tolerance_grad=-1.0)
    assert optimizer.step(lambda: Tensor([10.0])).item() == 10.0 and w.tolist() == [1.0, 2.0]


def end_of_steps(search: str | None, returned: Callable[[Tensor], Any]) -> tuple[float, Any]:
    w = Tensor([3.0, -2.0], requires_grad=True)
    optimizer = optim.LBFGS([w], max_iter=4, line_search_fn=search)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = ((w - Tensor([1.0, 2.0])) ** 4).sum()
        loss.backward()
        return returned(loss)

    return float(optimizer.step(closure)), w.tolist()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_closure_may_return_a_number(search: str | None) -> None:
    assert end_of_steps(search, Tensor.item) == end_of_steps(search, lambda loss: loss)


def test_pairs_have_a_plan_for_each_doubling_of_their_number_and_four_an_iteration() -> None:
    x = Tensor([0.3, -0.7, 1.1], requires_grad=True)
    optimizer = optim.LBFGS([x], lr=0.05, max_iter=4, tolerance_grad=0, tolerance_change=0)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x) ** 2).sum()
        loss.backward()
        return loss

    scheduled, plans = [], []
    for _ in range(10):
        with watch() as counts:
            optimizer.step(closure)
        scheduled.append(counts.scheduled)
        plans.append(counts.plans)
    assert optimizer.state[0]["num_pairs"] == 39 and optimizer.state[0]["ro"].shape == (64,)
    assert plans[-1] <= 4 * 4 + 1
    assert [i for i, count in enumerate(scheduled) if count] == [0, 1, 2, 4, 8], "of 1, 2, 4, 8, 16, 32 and 64 pairs"
    saved = optimizer.state_dict()["state"][0]
    assert len(saved["old_dirs"]) == len(saved["old_stps"]) == len(saved["ro"]) == 39
    assert "num_pairs" not in saved and saved["old_dirs"][0].shape == (3,)
