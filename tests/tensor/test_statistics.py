"""Reductions and running values at special places: NaN, ties, nothing to reduce, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import ArgumentError, DTypeError, ShapeError, Tensor
from tests.helpers import same_as_torch, same_value

NAN = np.array([[1.0, np.nan, 3.0, 2.0], [np.nan, 5.0, 4.0, 6.0]], np.float32)


@pytest.mark.req("C4")
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes_take_nan_and_the_last_of_equals(name: str, device: str) -> None:
    ties = (np.array([[2.0, 2.0, 1.0, 2.0]], np.float32), np.array([[True, False, True]]), np.array([[3, 3, 1]]))
    for array in (NAN, *ties):
        same_value(getattr(Tensor(array), name)(1), getattr(torch.tensor(array), name)(1))


@pytest.mark.req("C4")
@pytest.mark.parametrize("name", ["amax", "amin", "max", "min", "aminmax", "argmax", "argmin", "nansum", "nanmean"])
def test_nan_among_numbers(name: str, device: str) -> None:
    same_value(getattr(Tensor(NAN), name)(), getattr(torch.tensor(NAN), name)())
    same_value(getattr(Tensor(NAN), name)(dim=1), getattr(torch.tensor(NAN), name)(dim=1))


@pytest.mark.req("C4")
def test_logcumsumexp_keeps_small_numbers_beside_large_ones(device: str) -> None:
    x = np.array([-1000.0, 0.0, 1000.0, -np.inf, 1000.0], np.float32)
    same_as_torch(lambda t: t.logcumsumexp(0), x[[0, 1, 2, 4]])
    same_value(Tensor(x).logcumsumexp(0), torch.tensor(x).logcumsumexp(0))
    same_value(Tensor([-np.inf, -np.inf]).logcumsumexp(0), torch.tensor([-np.inf, -np.inf]).logcumsumexp(0))


@pytest.mark.variants(every=4)
@pytest.mark.req("C4")
@pytest.mark.parametrize("length", [1, 15, 16, 17, 257, 300])
def test_logcumsumexp_by_blocks(length: int, device: str) -> None:
    x = np.random.default_rng(length).standard_normal((2, length, 3)) * 4
    same_as_torch(lambda t: t.logcumsumexp(1), x)
    same_as_torch(lambda t: t.logcumsumexp(0), x)


@pytest.mark.req("C4")
@pytest.mark.parametrize("infinity", [np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 3, 16, 39])
def test_an_infinity_has_no_gradient_and_leaves_those_beside_it_alone(infinity: float, place: int, device: str) -> None:
    """PyTorch's own gradient of it may be NaN."""
    x = np.random.default_rng(0).standard_normal(40)
    x[place] = infinity
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    ours.logcumsumexp(0).sum().backward()
    theirs.logcumsumexp(0).sum().backward()
    assert ours.grad is not None and theirs.grad is not None
    theirs.grad[place] = 0.0
    assert theirs.grad.isfinite().all()
    same_value(ours.grad, theirs.grad)


@pytest.mark.req("C4")
@pytest.mark.parametrize("p", [1, 2, 3, 1.5, float("inf")])
def test_the_gradient_of_the_length_of_nothing_is_zero(p: float, device: str) -> None:
    same_as_torch(lambda t: t.norm(p, 1), np.array([[0.0, 0.0], [3.0, 4.0]]))


@pytest.mark.req("C4")
@pytest.mark.parametrize("name", ["max", "min"])
def test_of_equals_the_first_has_the_gradient(name: str, device: str) -> None:
    x = np.array([[1.0, 3.0, 3.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    same_as_torch(lambda t: getattr(t, name)(1).values, x)
    same_as_torch(lambda t: getattr(t, name)(0, True).values, x)
    same_as_torch(lambda t: getattr(t, name)(), x)


@pytest.mark.req("C4")
def test_nothing_to_reduce(device: str) -> None:
    empty, theirs = Tensor.zeros(0, 3), torch.zeros(0, 3)
    for name in ("sum", "prod", "mean", "any", "all", "nansum", "count_nonzero", "var", "std", "norm", "logsumexp"):
        args = (0,) if name != "norm" else (2, 0)
        with warnings.catch_warnings(action="ignore"):  # PyTorch's, of degrees of freedom
            same_value(getattr(empty, name)(*args), getattr(theirs, name)(*args))
    same_value(empty.amax(1), theirs.amax(1))
    same_value(empty.cumsum(0), theirs.cumsum(0))
    for name in ("amax", "amin", "argmax", "aminmax", "max"):
        with pytest.raises(ShapeError):
            getattr(empty, name)()


@pytest.mark.req("C4")
def test_truth_of_bytes_is_bytes(device: str) -> None:
    x = np.array([[0, 2], [1, 3]], np.uint8)
    for name in ("any", "all"):
        same_value(getattr(Tensor(x), name)(), getattr(torch.tensor(x), name)())
        same_value(getattr(Tensor(x), name)(0), getattr(torch.tensor(x), name)(0))


@pytest.mark.req("C4")
def test_dtypes_of_results_may_be_named(device: str) -> None:
    x = np.array([1, 2, 3], np.int32)
    for name in ("sum", "prod", "mean", "nansum"):
        same_value(getattr(Tensor(x), name)(dtype=pg.float64), getattr(torch.tensor(x), name)(dtype=torch.float64))
    for name in ("cumsum", "cumprod"):
        same_value(getattr(Tensor(x), name)(0, dtype=pg.int16), getattr(torch.tensor(x), name)(0, dtype=torch.int16))
    same_value(Tensor(x).float().norm(dtype=pg.float64), torch.tensor(x).float().norm(dtype=torch.float64))


def test_questions_of_two_tensors(device: str) -> None:
    x = Tensor([1.0, 2.0, float("nan")])
    assert x.equal(x) is False and x[:2].equal(Tensor([1.0, 2.0])) is True and x.equal(x[:2]) is False
    assert x.allclose(x, equal_nan=True) is True and x.allclose(x) is False
    assert Tensor.zeros(0).equal(Tensor.zeros(0)) and not Tensor.zeros(0, 2).equal(Tensor.zeros(0))
    assert x.isclose(Tensor([1.0 + 1e-6, 2.1, float("nan")])).tolist() == [True, False, False]
    assert Tensor([100]).isclose(Tensor([101]), rtol=0.01).item() is True


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "cummax": (lambda: Tensor([1]).cummax(), ArgumentError, "cummax: give the axis, e.g. dim=-1."),
    "logcumsumexp": (lambda: Tensor([1.0]).logcumsumexp(), ArgumentError, "logcumsumexp: give the axis, e.g. dim=-1."),
    "diff": (lambda: Tensor(1).diff(), ShapeError, "diff: needs an axis, got a 0-d tensor."),
    "diff n": (lambda: Tensor([1]).diff(-1), ArgumentError, "diff: n must be at least 0, got -1."),
    "nanmean": (lambda: Tensor([1]).nanmean(), DTypeError, "nanmean: needs a float, got int64 of shape (1,)."),
    "norm": (lambda: Tensor([1.0]).norm("two"), ArgumentError, "norm: p must be a number, \"fro\" or \"nuc\", got 'two'."),
    "trapezoid": (
        lambda: pg.trapezoid(Tensor.ones(2, 3), Tensor.ones(2, 3, 1)), ShapeError,
        "trapezoid: x (2, 3, 1) needs one axis, or the shape of y (2, 3).",
    ),
    "max": (lambda: Tensor.ones(2, 0).max(1), ShapeError, "max: shape (2, 0) has no element along dim 1."),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_on_its_line(name: str) -> None:
    call, kind, fact = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__  # type: ignore[attr-defined]


@pytest.mark.req("C4")
@pytest.mark.parametrize("p", [2, 3, 1, float("inf"), "fro"])
def test_a_norm_of_narrow_floats_is_computed_wide(p: float | str) -> None:
    values = [300.0, -400.0]  # the square of 300 is no float16
    expected = torch.tensor(values, dtype=torch.float16).norm(p).item()
    assert Tensor(values).half().norm(p).item() == expected


@pytest.mark.parametrize("name", ["sort", "argsort", "mode", "max", "argmin", "median", "cumsum", "cummax", "diff", "sum"])
def test_two_names_of_one_argument_are_refused(name: str) -> None:
    args = (1,) if name == "diff" else ()
    with pytest.raises(ArgumentError, match=rf"^{name}: dim=0 and axis=1 are two names of one argument; give one\."):
        getattr(Tensor([[1.0, 2.0]]), name)(*args, dim=0, axis=1)
