"""State of captured functions that is moved to another device, cast or replaced by one of another shape: captured anew."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

import picograd as pg
from picograd import Tensor, nn, optim


def trained(moves: dict[int, str], optimizer: type[optim.Optimizer], wrap: Callable) -> list[float]:
    """Returns the losses of steps of a layer that is moved before some of them."""
    model, place = nn.Linear(2, 1), "CPU"
    model.weight.data, model.bias.data = Tensor([[0.5, -1.0]]), Tensor([0.25])
    optimizer_of = optimizer(model.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer_of.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer_of.step()
        return loss

    run, losses = wrap(step), []
    for number in range(9):
        if number in moves:
            place = moves[number]
            model.to(place)
        losses.append(run(Tensor([[1.0, 2.0]], device=place)).item())
    return losses


@pytest.mark.parametrize("optimizer", [optim.SGD, optim.Adam])
@pytest.mark.parametrize(
    "moves", [{3: "NUMPY", 6: "CPU"}, {1: "NUMPY", 2: "CPU"}, {3: "NUMPY", 4: "CPU", 5: "NUMPY"}], ids=str
)
def test_a_model_that_is_moved_to_and_fro_trains_on(moves: dict[int, str], optimizer: type[optim.Optimizer]) -> None:
    expected = trained({}, optimizer, lambda step: step)
    assert trained(moves, optimizer, pg.jit) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_weights_of_another_dtype_or_shape_are_read_as_such(calls: int) -> None:
    weight = Tensor([1.0, 2.0])
    scaled, x = pg.jit(lambda x: x * weight), Tensor([3.0, 4.0])
    first = Tensor([1.0, 2.0])
    for value in (first, first.double(), Tensor([5.0]), Tensor([[2.0], [3.0]]), first):
        weight.data = value
        for _ in range(calls):
            result = scaled(x)
            assert result.tolist() == (x * value).tolist() and result.dtype == (x * value).dtype


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_state_that_is_written_over_may_be_cast(calls: int) -> None:
    total = Tensor([0.0, 0.5])

    @pg.jit
    def add(x: Tensor) -> Tensor:
        total.add_(x)
        return total + 0

    expected = [0.0, 0.5]
    for dtype in (pg.float32, pg.float16, pg.float64, pg.float32):
        total.data = total.to(dtype)
        for _ in range(calls):
            expected = [one + 1 for one in expected]
            assert add(Tensor([1.0, 1.0])).tolist() == expected and total.dtype == dtype


def test_weights_elsewhere_are_told(device: str) -> None:
    other = "NUMPY" if device == "CPU" else "CPU"
    model, x = nn.Linear(2, 1), Tensor([[1.0, 2.0]])
    run = pg.jit(lambda x: model(x))
    expected = [run(x).tolist() for _ in range(3)][-1]
    model.to(other)
    for _ in range(2):
        with pytest.raises(pg.DeviceError, match="operands are on two devices"):
            run(x)
    model.to(device)
    assert [run(x).tolist() for _ in range(3)] == [expected] * 3


def test_the_same_kind_of_value_is_no_other_capture() -> None:
    """As in training by hand: nothing is traced again."""
    weight, traces = Tensor([1.0, 2.0]), Mock()
    run = pg.jit(lambda x: (traces(), x * weight)[1])
    for number in range(6):
        weight.data = weight.data * 2
        assert run(Tensor([1.0, 1.0])).tolist() == [2.0 ** (number + 1), 2.0 ** (number + 2)]
    assert traces.call_count == 2
