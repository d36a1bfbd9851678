"""Graphs of 100,000 Ops: built, differentiated, planned and run without recursion, in work linear in their Ops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.devices.cpu.plan import lay_out
from picograd.engine.plan import parametrize, template
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE
from picograd.ir.spec import verify_kernel
from picograd.ir.stages import Executable, Kernel, Launch, Schedule
from picograd.ir.text import format_graph
from picograd.road import schedule_graphs
from picograd.schedule.create import KERNEL_OPS_MAX, KERNEL_VALUES_MAX
from tests.calls import PYTHON_AND_C, calls

Roots = tuple[list[Tensor], Tensor]  # results, and what the first is differentiated by


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def chain(num_ops: int) -> Roots:
    """y = (y / 2)^2 + 1 and so on: nothing of it folds, and its values and slopes stay near 1."""
    x = y = Tensor(np.linspace(1, 2, 8, dtype=np.float32), requires_grad=True)
    half = Tensor(np.full(8, 0.5, np.float32))
    for _ in range(num_ops // 4):
        z = y * half
        y = z * z + 1
    return [y], x


def wide(num_ops: int) -> Roots:
    """Many small values added up pair by pair."""
    x = Tensor(np.ones(4, np.float32), requires_grad=True)
    parts = [x * float(i) for i in range(num_ops // 2)]
    while len(parts) > 1:
        paired = [a + b for a, b in zip(parts[::2], parts[1::2])]
        parts = paired + (parts[-1:] if len(parts) % 2 else [])
    return [parts[0]], x


def layers(num_ops: int) -> Roots:
    """Products and relus, one after the other."""
    x = y = Tensor(np.ones((4, 4), np.float32), requires_grad=True)
    weights = [Tensor(np.roll(np.eye(4, dtype=np.float32), i, 0)) for i in range(4)]
    for i in range(num_ops // 5):
        y = (y @ weights[i % 4]).relu()
    return [y], x


def rows(num_ops: int) -> Roots:
    """Softmaxes of a residual stream."""
    x = y = Tensor(np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4), requires_grad=True)
    for _ in range(num_ops // 12):
        y = x + y.softmax(-1)
    return [y], x


def parameters(num_ops: int) -> Roots:
    """What an optimizer computes for many parameters of one shape."""
    x = Tensor(np.ones(4, np.float32), requires_grad=True)
    many = [Tensor(np.full(4, i, np.float32)) for i in range(num_ops // 8)]
    return [(m * 0.5 + x) / ((m * m).sqrt() + 1) for m in many], x


GRAPHS = (chain, wide, layers, rows, parameters)


def work(function: Callable[[], object]) -> int:
    """Returns how many functions, Python's and C's, are called."""
    return calls(function, PYTHON_AND_C)


def graph_of(make: Callable[[int], Roots], num_ops: int) -> list[Op]:
    results, x = make(num_ops)
    results[0].sum().backward()
    assert x.grad is not None
    return written_out([x.grad.op, *(y.op for y in results)])


def plan_of(ops: list[Op]) -> Schedule:
    """Everything between a graph and its run but the compiling of kernels."""
    schedule = schedule_graphs(parametrize(ops, template(ops)))
    for item in schedule.items:
        verify_kernel(item.kernel, after="create_schedule")
    lay_out(schedule, [compiled(item.kernel) for item in schedule.items], gate=0, num_threads=2)
    return schedule


def compiled(kernel: Kernel) -> Executable:
    return Executable(kernel.name, kernel.params, kernel.variables, (Launch("f", 1, 1, 1),), (0,))


@pytest.mark.variants(every=5)
@pytest.mark.req("A7", "G8")
@pytest.mark.parametrize("make", GRAPHS)
def test_work_grows_as_the_graph_does(
    make: Callable[[int], Roots], monkeypatch: pytest.MonkeyPatch, alone: None
) -> None:
    monkeypatch.setenv("PICOGRAD_VERIFY", "1")
    small, large = 600, 2400
    graph_of(make, small)  # what is counted is not what happens once in a process
    build = [work(lambda n=n: graph_of(make, n)) for n in (small, large)]  # type: ignore[misc]
    assert build[1] <= 4.6 * build[0]
    graphs = [graph_of(make, n) for n in (small, large)]
    plan = [work(lambda ops=ops: plan_of(ops)) for ops in graphs]  # type: ignore[misc]
    assert plan[1] <= 4.6 * plan[0]
    text = [work(lambda ops=ops: format_graph(ops)) for ops in graphs]  # type: ignore[misc]
    assert text[1] <= 4.6 * text[0]


@pytest.mark.variants(every=3)
@pytest.mark.req("G8")
@pytest.mark.parametrize(("make", "most"), [(chain, 16), (layers, 10), (rows, 24), (parameters, 4)])
def test_many_equal_kernels_are_few_distinct_ones(make: Callable[[int], Roots], most: int) -> None:
    schedules = [plan_of(graph_of(make, num_ops)) for num_ops in (1000, 2500)]
    distinct = [{item.kernel for item in schedule.items} for schedule in schedules]
    assert len(distinct[1]) <= most
    assert len(schedules[1].items) >= 2 * len(schedules[0].items)


@pytest.mark.variants(every=3)
@pytest.mark.req("G8")
@pytest.mark.parametrize("make", GRAPHS)
def test_kernels_stay_short(make: Callable[[int], Roots]) -> None:
    for item in plan_of(graph_of(make, 2000)).items:
        values = [value for phase in item.kernel.phases for nest in phase for _, value in nest.outputs]
        assert len(values) <= 2 * KERNEL_VALUES_MAX  # a nest may be asked for some of its values later, by a backward pass
        assert len([op for op in toposort(values) if op.code in ELEMENTWISE]) <= KERNEL_OPS_MAX


@pytest.mark.variants(first=1)
@pytest.mark.req("A7")
@pytest.mark.filterwarnings("ignore:a result of shape")  # that so long a graph is kept is mentioned
def test_100_000_ops_forward_and_backward_are_right() -> None:
    (y,), x = chain(80_000)
    y.sum().backward()
    assert x.grad is not None
    assert len(toposort(written_out([y.op, x.grad.op]))) >= 100_000
    value = np.linspace(1, 2, 8, dtype=np.float32)
    slope = np.ones(8, np.float32)
    for _ in range(80_000 // 4):
        half = value * np.float32(0.5)
        value, slope = half * half + np.float32(1), slope * half
    np.testing.assert_allclose(y.detach().numpy(), value, rtol=1e-5)
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-2, atol=1e-6)  # a product of 20,000 rounded factors


def test_a_chain_of_200_000_ops_is_let_go_without_recursion() -> None:
    before = len(Op.interned)
    op = Tensor([1.0]).op
    for _ in range(100_000):
        op = -(op * op)
    del op
    assert len(Op.interned) <= before + 10
