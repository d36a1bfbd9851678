"""Start values of a program are computed once, by the evaluator: nothing is compiled for it; bits are a kernel's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.interrupts import Latest
from picograd.look import watch
from picograd.tensor import first_values
from tests.helpers import forgotten


@pytest.fixture(autouse=True)
def nothing_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_values, "_met", Latest(1024))


def begun(make: Callable[[], list[Tensor]]) -> tuple[list[np.ndarray], int]:
    """Returns the values of tensors once an optimizer has them, and how many plans that took."""
    pg.manual_seed(7)
    with watch() as counts:
        tensors = make()
        optim.SGD(tensors, lr=0.1)
        return [tensor.detach().numpy() for tensor in tensors], counts.plans


@pytest.mark.req("G8")
def test_random_weights_take_no_plan_the_first_time_and_one_the_second(device: str) -> None:
    def make() -> list[Tensor]:
        return [*nn.Linear(5, 7).parameters(), *nn.Linear(5, 7).parameters(), *nn.Conv2d(2, 3, 3).parameters()]

    (first, none), (second, one) = begun(make), begun(make)
    assert (none, one) == (0, 1)
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "fill",
    [
        nn.init.uniform_, nn.init.normal_, nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.trunc_normal_,
        lambda weight: nn.init.uniform_(weight, -0.3, 0.7), lambda weight: nn.init.normal_(weight, 1.0, 0.02),
    ],
)  # fmt: skip
def test_the_bits_are_those_of_a_kernel(fill: Callable[[Tensor], Tensor], device: str) -> None:
    (first,), _ = begun(lambda: [fill(nn.Parameter(pg.empty(33, 65)))])
    (second,), _ = begun(lambda: [fill(nn.Parameter(pg.empty(33, 65)))])
    np.testing.assert_array_equal(first, second)


def test_what_is_large_or_not_rounded_in_one_way_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_values, "ELEMENTS_MAX", 100)
    assert begun(lambda: [nn.Parameter(pg.rand(10, 10))])[1] == 0
    assert begun(lambda: [nn.Parameter(pg.rand(10, 11))])[1] == 1
    assert begun(lambda: [nn.Parameter(pg.rand(7, 7)), nn.Parameter(pg.rand(7, 7)), nn.Parameter(pg.rand(7, 7))])[1] == 1
    assert begun(lambda: [nn.Parameter(pg.rand(4).exp())])[1] == 1
    assert begun(lambda: [nn.Parameter(pg.rand(4).sum())])[1] == 1
    assert begun(lambda: [nn.Parameter(pg.rand(4, dtype=pg.bfloat16))])[1] == 1


def test_a_first_backward_pass_finds_its_weights_drawn() -> None:
    """Without an optimizer: leaves are computed before the first plan that reads them."""
    pg.manual_seed(7)
    with watch() as counts:
        layer = nn.Linear(3, 2)
        layer(pg.ones(1, 3)).sum().backward()
        assert layer.weight.grad is not None
        layer.weight.grad.numpy()
    assert counts.plans == 1


def test_a_first_jitted_call_compiles_nothing_that_draws_weights() -> None:
    """Weights that a layer drew in place, a tensor that was drawn, and a constant, beside an argument that is a graph."""
    forgotten()

    def first_call() -> tuple[float, list[str]]:
        pg.manual_seed(7)
        layer, scale, shift = nn.Linear(5, 7), pg.rand(7), pg.ones(7)
        with watch() as counts:
            total = pg.jit(lambda x: (layer(x) * scale + shift).sum())(Tensor(np.ones((4, 5), np.float32)) + 1)
            return total.item(), counts.names

    (value, names), (again, more) = first_call(), first_call()
    assert value == again and names[0] == "elementwise_4_5"
    assert "elementwise_7" not in names and {"elementwise_7", "elementwise_4_5_and_2"} <= {*more}


def test_a_weight_that_needs_kernels_is_not_tried_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As sharpness-aware steps do: its value needs kernels, which one look at it says."""
    net, tried = pg.nn.Linear(3, 2), list[object]()
    optimizer = pg.optim.SGD(net.parameters(), lr=0.1)
    original = first_values.evaluated
    monkeypatch.setattr(first_values, "evaluated", lambda graphs: (tried.append(graphs), original(graphs))[1])
    for step in range(6):
        if step == 3:
            tried.clear()
        for _ in range(2):
            net.zero_grad()
            net(pg.ones(4, 3)).exp().mean().backward()
            with pg.no_grad():
                for parameter in net.parameters():
                    parameter.add_(parameter.grad / (1 + parameter.grad.norm()))
        optimizer.step()
    assert not tried


def test_a_long_graph_is_not_written_out_to_learn_that_it_needs_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the gradients that Langevin steps begin with."""
    x = pg.ones(4, 3, requires_grad=True)
    ((x @ pg.ones(3, 2)) ** 2).sum().backward()
    monkeypatch.setattr(first_values, "written_out", lambda graphs: pytest.fail("written out"))
    assert first_values.evaluated([x.grad.op]) is None
