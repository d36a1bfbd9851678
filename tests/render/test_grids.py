"""About how much work a launch is: with symbolic lengths as much as with their greatest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import realize
from picograd.interrupts import Latest
from picograd.ir.op import greatest
from picograd.ir.stages import Plan

MOST = 4095
X, Y = pg.ones(MOST, 32).clone().realize(), pg.ones(MOST, 8).clone().realize()
FUNCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "elementwise": lambda x, y: x.relu(),
    "of few columns": lambda x, y: y[:, :3].exp(),
    "sum down": lambda x, y: x.sum(0),
    "sum along": lambda x, y: x.sum(1),
    "softmax": lambda x, y: x.softmax(0),
    "product over the length": lambda x, y: x.T @ y,
    "product": lambda x, y: x @ y[:32],
    "cumulative sum": lambda x, y: x.cumsum(0),
}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(realize, "_plans", Latest(1024))


def plan_of(tensor: Tensor) -> Plan:
    """Returns the plan of a tensor, which is computed."""
    realize._plans.clear()
    tensor.realize()
    (plan,) = [plan for plan in realize._plans.values() if isinstance(plan, Plan)]
    return plan


def work_of(plan: Plan) -> int:
    return sum(greatest(launch.grid) * launch.work for code in plan.executables for launch in code.launches)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_work_of_symbolic_lengths_is_about_that_of_the_greatest(name: str) -> None:
    function, n = FUNCTIONS[name], pg.Variable("n", 64, MOST)
    symbolic = work_of(plan_of(function(X[: n.bind(MOST)], Y[: n.bind(MOST)])))
    assert MOST * 3 <= symbolic <= 4 * work_of(plan_of(function(X, Y)))  # elements that the smallest of them reads


def test_a_plan_of_symbolic_lengths_is_long_only_where_these_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread leads a long plan, so that Ctrl-C works: that costs more than a short one does."""
    n, lengths = pg.Variable("n", 64, MOST), (64, MOST, 100)
    work = work_of(plan_of(X[: n.bind(64)].exp()))
    monkeypatch.setattr("picograd.devices.cpu.runner.LONG_WORK", work // 2)
    found = []
    realize._plans.clear()
    for length in lengths:
        X[: n.bind(length)].exp().realize()
        (plan,) = [plan for plan in realize._plans.values() if isinstance(plan, Plan)]
        found.append(plan.run.__self__._effort.is_long)  # type: ignore[attr-defined]
    assert found == [False, True, False]
