"""What the road costs in Python up to a plan that is there already: calls, for each operation, Op and parameter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd import Tensor, nn, optim
from picograd.engine.plan import template
from picograd.ir.op import Op, toposort
from picograd.tensor import growth
from picograd.tensor.hooks import LeafNumber
from tests.calls import PYTHON_AND_C, calls

pytestmark = pytest.mark.req("G8")


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(growth._Watch, "limit", 1 << 40)  # Ops of other tests that live on are not looked through
    monkeypatch.setattr(LeafNumber, "hooked", set())  # nor are leaves for hooks of other tests


def numbers(*shape: int, requires_grad: bool = False) -> Tensor:
    return Tensor(np.ones(shape, np.float32), requires_grad=requires_grad)


x, y, w, b = numbers(4, 8), numbers(4, 8), numbers(8, 8, requires_grad=True), numbers(8, requires_grad=True)
OPERATIONS: list[tuple[str, Callable[[], object], int]] = [
    ("x + y", lambda: x + y, 17),
    ("x * 0.5", lambda: x * 0.5, 17),
    ("1 - x", lambda: 1 - x, 17),
    ("x < y", lambda: x < y, 17),
    ("-x", lambda: -x, 14),
    ("exp", lambda: x.exp(), 14),
    ("x + b", lambda: x + b, 33),
    ("x @ w", lambda: x @ w, 28),
    ("sum", lambda: x.sum(), 22),
    ("reshape", lambda: x.reshape(8, 4), 28),
    ("T", lambda: x.T, 19),
]


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
    assert (large - small) / (num_large - num_small) <= 45
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
    assert (large - small) / (num_large - num_small) <= 10
    assert large / small <= 4.4


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
    assert calls(step) <= 3030
    (small, few), (large, many) = [(calls(step), count) for step, count in map(training, (4, 16))]
    assert (large - small) / (many - few) <= 400
