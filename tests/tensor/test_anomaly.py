"""A NaN is named with the operation that made it and the user's line, where PyTorch names one and in results as well."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import picograd as pg
from picograd import nn
from picograd.autograd import AnomalyError, detect_anomaly, is_anomaly_enabled, set_detect_anomaly


def leaf(of: Any, *numbers: float) -> Any:
    return of.tensor(numbers, requires_grad=True)


# Losses of which PyTorch says that a gradient is NaN, or that none is.
LOSSES: dict[str, Callable[[Any], Any]] = {
    "root of 0": lambda of: (leaf(of, 0.0, 4.0).sqrt() * 0.0).sum(),
    "logarithm not chosen": lambda of: of.where((x := leaf(of, 0.0, 1.0)) > 0, x.log(), 0.0).sum(),
    "norm of 0": lambda of: (leaf(of, 0.0, 0.0).pow(2).sum().sqrt() * 0.0).sum(),
    "power": lambda of: (leaf(of, 0.0, 1.0).pow(0.5) * 0.0).sum(),
    "root of what is positive": lambda of: leaf(of, 1.0, 4.0).sqrt().sum(),
    "infinite, not NaN": lambda of: leaf(of, 0.0, 4.0).sqrt().sum(),
    "quotient": lambda of: ((x := leaf(of, 0.0, 1.0)) / x.detach().clamp(min=1.0)).sum(),
    "norm by its function": lambda of: leaf(of, 0.0, 0.0).norm(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_named_where_pytorch_names_them(name: str, device: str) -> None:
    with torch.autograd.set_detect_anomaly(True):
        try:
            LOSSES[name](torch).backward()
            expected = False
        except RuntimeError:
            expected = True
    with detect_anomaly():
        loss = LOSSES[name](pg)
        try:
            loss.backward()
            found = False
        except AnomalyError as error:
            assert error.fact.startswith("detect_anomaly: the gradient of this line has the first NaN: ")
            found = True
    assert found == expected


def test_the_first_line_with_a_nan_is_named() -> None:
    x = pg.tensor([-1.0, 4.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AnomalyError) as caught:
        doubled = x * 2
        logs = doubled.log()
        logs.exp().mean().backward()
    _, place, hint = str(caught.value).split("\n")
    assert caught.value.fact == (
        "detect_anomaly: this line has the first NaN: LOG gives 1 of 2 elements, from operands of -2 to 8."
    )
    assert place.endswith("logs = doubled.log()")
    assert hint == "  hint: keep divisors and the operands of logarithms and roots away from 0: x.clamp(min=1e-6)."


def test_gradients_name_the_line_of_the_operation() -> None:
    x = pg.tensor([0.0, 4.0], requires_grad=True)
    with detect_anomaly(), pytest.raises(AnomalyError) as caught:
        roots = x.sqrt()
        pg.autograd.grad((roots * 0.0).sum(), x)
    assert str(caught.value).split("\n")[1].endswith("roots = x.sqrt()")


def test_steps_under_jit_run_without_it_and_several_results_are_named() -> None:
    network = nn.Linear(4, 4)

    @pg.jit
    def step(x: pg.Tensor) -> pg.Tensor:
        loss = nn.functional.scaled_dot_product_attention(network(x) * float("inf"), x, x).mean()
        loss.backward()
        return loss

    with detect_anomaly(), pytest.raises(AnomalyError, match="ATTENTION gives 24 of 24 elements") as caught:
        step(pg.full((1, 1, 6, 4), 2.0))
    assert "scaled_dot_product_attention(network(x)" in str(caught.value)


def test_data_with_a_nan_are_an_error_only_for_gradients() -> None:
    data, weight = pg.tensor([float("nan"), 1.0]), pg.tensor([1.0, 1.0], requires_grad=True)
    with detect_anomaly():
        assert data.sum().isnan().item()
        with pytest.raises(AnomalyError) as caught:
            (data * weight).sum().backward()
    assert caught.value.fact == "detect_anomaly: data of shape (2,) have a NaN, and a gradient is computed from them."


def test_infinity_is_found_where_it_is_looked_for() -> None:
    x = pg.tensor([1.0, 3.0], requires_grad=True)
    with detect_anomaly():
        (x * 1e30).square().sum().backward()
    masked = x.detach().masked_fill(pg.tensor([True, False]), -float("inf"))
    with detect_anomaly(check_inf=True):
        assert masked.softmax(0).tolist() == [0.0, 1.0]
        with pytest.raises(AnomalyError) as caught:
            large = x * 1e30
            squares = large.square()
            squares.log().sum().backward()
    assert caught.value.fact == (
        "detect_anomaly: this line has the first infinity: MUL gives 2 of 2 elements, from operands of 1e+30 to 3e+30 and"
        " 1e+30 to 3e+30."
    )
    assert str(caught.value).split("\n")[1].endswith("squares = large.square()")
    assert caught.value.hint is not None and caught.value.hint.startswith("numbers exceed their dtype")


def test_it_is_on_within_its_block_only() -> None:
    with detect_anomaly():
        with set_detect_anomaly(False):
            assert not is_anomaly_enabled()
        assert is_anomaly_enabled()
    with detect_anomaly(check_nan=False):
        assert not is_anomaly_enabled()
        assert pg.tensor([-1.0]).sqrt().isnan().item()
    try:
        set_detect_anomaly(True)
        with pytest.raises(AnomalyError):
            pg.tensor([-1.0]).sqrt().item()
    finally:
        set_detect_anomaly(False)
    assert not is_anomaly_enabled() and pg.tensor([-1.0]).sqrt().isnan().item()


class Spoilt(pg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: pg.Tensor) -> pg.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: pg.Tensor) -> pg.Tensor:
        return grad * float("nan")


def test_gradients_that_are_constants_are_looked_at() -> None:
    x, zeros = pg.tensor([1.0, 4.0], requires_grad=True), pg.zeros(2, requires_grad=True)
    losses = (lambda: Spoilt.apply(x).sum(), lambda: (zeros.sqrt() * 0.0).sum())
    ways = (lambda loss: loss.backward(), lambda loss: pg.autograd.grad(loss, [x, zeros], allow_unused=True))
    for make, differentiate in itertools.product(losses, ways):
        with detect_anomaly(), pytest.raises(AnomalyError, match="the gradient of this line"):
            differentiate(make())
    with detect_anomaly():
        assert pg.full((2,), float("nan")).isnan().all().item()  # a constant that the user wrote is data
