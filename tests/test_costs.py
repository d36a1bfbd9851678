"""What the road costs in Python up to a plan that is there already: calls, for each operation, Op and parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.engine import realize
from picograd.engine.plan import template
from picograd.ir.op import Op, toposort
from picograd.transforms.traced import TraceOfFunction
from tests.calls import PYTHON_AND_C, calls

pytestmark = pytest.mark.req("G8")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch, alone: None) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def numbers(*shape: int, requires_grad: bool = False) -> Tensor:
    return Tensor(np.ones(shape, np.float32), requires_grad=requires_grad)


x, y, w, b = numbers(4, 8), numbers(4, 8), numbers(8, 8, requires_grad=True), numbers(8, requires_grad=True)
labels, group = Tensor(np.arange(4)), optim.SGD([w], lr=0.1).param_groups[0]
OPERATIONS: list[tuple[str, Callable[[], object], int]] = [
    ("x + y", lambda: x + y, 14),
    ("x * 0.5", lambda: x * 0.5, 15),
    ("1 - x", lambda: 1 - x, 15),
    ("x < y", lambda: x < y, 14),
    ("-x", lambda: -x, 12),
    ("exp", lambda: x.exp(), 12),
    ("x + b", lambda: x + b, 27),
    ("x @ w", lambda: x @ w, 21),
    ("sum", lambda: x.sum(), 20),
    ("reshape", lambda: x.reshape(8, 4), 21),
    ("T", lambda: x.T, 17),
    ("x[:, 1]", lambda: x[:, 1], 30),
    ("w[index]", lambda: w[labels], 12),
    ("cat", lambda: pg.cat([x, y]), 25),
    ("cross_entropy", lambda: nn.functional.cross_entropy(x, labels), 45),
    ("a rate of a schedule", lambda: group.update(lr=0.5), 26),
]


@pytest.mark.variants(every=4)
@pytest.mark.parametrize(("spelled", "operation", "most"), OPERATIONS, ids=[o[0] for o in OPERATIONS])
def test_a_tensor_operation_calls_few_functions(spelled: str, operation: Callable[[], object], most: int) -> None:
    for _ in range(2):  # numbers, shapes and file names are new only once
        operation()
    assert calls(operation) <= most


def chain(num_ops: int) -> Tensor:
    """A loss of some num_ops Ops, of the kinds that networks have."""
    total = h = numbers(4, 8)
    for _ in range(num_ops // 10):
        h = (h @ w + b).relu() * 0.5 + h
        total = total + h.exp()
    return total.sum()


def test_the_cost_of_an_operation_does_not_grow_with_its_graph() -> None:
    chain(100)
    assert calls(lambda: chain(4000), PYTHON_AND_C) <= 4.1 * calls(lambda: chain(1000), PYTHON_AND_C)


def backward_cost(num_ops: int) -> tuple[int, int]:
    """Returns the calls of a backward pass, and how many Ops it went through."""
    loss = chain(num_ops)
    w.grad = b.grad = None
    return calls(loss.backward, PYTHON_AND_C), sum(op.needs_grad for op in toposort([loss.op]))


def test_the_gradient_costs_few_calls_an_op_however_many_there_are() -> None:
    backward_cost(100)
    (small, num_small), (large, num_large) = backward_cost(1000), backward_cost(4000)
    assert (large - small) / (num_large - num_small) <= 5
    assert large / small <= 4.4


def keying_cost(num_ops: int) -> tuple[int, int]:
    """Returns the calls it takes to find the form of a loss and its gradients, and how many Ops they are."""
    loss = chain(num_ops)
    w.grad = b.grad = None
    loss.backward()
    roots: list[Op] = [loss.op, w.grad.op, b.grad.op]  # type: ignore[attr-defined]
    return calls(lambda: template(roots), PYTHON_AND_C), len(toposort(roots))


def test_the_form_of_a_graph_costs_few_calls_an_op_however_many_there_are() -> None:
    (small, num_small), (large, num_large) = keying_cost(1000), keying_cost(4000)
    assert (large - small) / (num_large - num_small) <= 4
    assert large / small <= 4.4


def tracing_cost(num_state: int) -> int:
    """Returns the calls of a trace that reads so many tensors made before it."""
    state = [numbers(4).realize() for _ in range(num_state)]

    def read_all() -> None:
        with TraceOfFunction("step"):
            for each in state:
                each.exp()

    return calls(read_all, PYTHON_AND_C)


def test_a_tensor_of_state_costs_a_trace_few_calls_however_many_there_are() -> None:
    tracing_cost(10)
    assert tracing_cost(400) <= 4.1 * tracing_cost(100)


def training(num_layers: int) -> tuple[Callable[[], float], int]:
    """Returns a step of an MLP by Adam, outside jit, and its number of parameters."""
    layers = [layer for _ in range(num_layers) for layer in (nn.Linear(8, 8), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(8, 10))
    optimizer = optim.Adam(model.parameters())
    batch, labels = numbers(4, 8), Tensor(np.arange(4))

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(3):
        step()
    return step, 2 * num_layers + 2


def test_a_training_step_costs_few_calls_a_parameter() -> None:
    """An MLP with two hidden layers and Adam, from the forward pass to the loss on the host."""
    step, _ = training(2)
    assert calls(step) <= 945
    (small, few), (large, many) = [(calls(step), count) for step, count in map(training, (4, 16))]
    assert (large - small) / (many - few) <= 110


def test_an_action_of_a_policy_costs_few_calls() -> None:
    """examples/reinforce.py: a state comes from the host, and the number of an action goes back."""
    policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))

    def act(state: Tensor) -> Tensor:
        return nn.functional.softmax(policy(state), dim=1).multinomial(1)

    for choose, most in ((act, 155), (pg.jit(act), 65)):

        def action() -> float:
            with pg.no_grad():
                return choose(Tensor([[0.1, 0.2, 0.3, 0.4]])).item()  # noqa: B023

        for _ in range(4):
            action()
        assert calls(action) <= most


class AskedElsewhere(dict[Any, Any]):
    """Of every kind of values a line of another program was asked for again."""

    def get(self, kind: Any, default: Any = None) -> Any:
        return {(("elsewhere.py", 1),): None}


def test_values_that_other_lines_asked_for_again_cost_no_walk_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    step, _ = training(2)
    before = calls(step)
    monkeypatch.setattr(realize, "_computed_again", AskedElsewhere(some=None))
    assert calls(step) <= before + 45  # the kind of each costly value is asked


def test_a_step_of_a_length_that_was_there_before_costs_what_one_of_its_own_plan_does() -> None:
    """Three lengths share a plan, with 1 / n among its inputs; each of them is known as if it had one of its own."""
    model = nn.Linear(4, 2)
    optimizer = optim.Adam(model.parameters())
    episodes = [numbers(length, 4) for length in (40, 50, 60, 55)]

    def step(states: Tensor) -> None:
        optimizer.zero_grad()
        (model(states) / (states.std() + 1e-6)).log_softmax(1).mean().backward()
        optimizer.step()

    for _ in range(4):
        for states in episodes:
            step(states)
    own, *shared = [calls(lambda: step(states)) for states in episodes]  # noqa: B023
    assert max(shared) <= own + 138  # values of symbolic lengths, and grids; AVX2 has one value more than AVX-512
