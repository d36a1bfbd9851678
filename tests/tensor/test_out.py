"""out=: any public function stores its result in a tensor that is given, as PyTorch's do."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.public import plain
from tests.helpers import same_value

X = [[1.0, 5.0, 2.0], [3.0, 2.0, 4.0]]
# name: arguments after the tensor X, shapes and dtypes of out, an empty shape: one that takes the result's
CASES: dict[str, tuple[tuple[Any, ...], list[tuple[tuple[int, ...], str]]]] = {
    "add": ((1,), [((2, 3), "float32")]),
    "sub": ((2.5,), [((2, 3), "float64")]),
    "exp": ((), [((0,), "float32")]),
    "sum": ((1,), [((2,), "float32")]),
    "mean": ((0,), [((0,), "float64")]),
    "cumsum": ((1,), [((2, 3), "float32")]),
    "gt": ((2,), [((2, 3), "bool")]),
    "eq": ((2.0,), [((2, 3), "float32")]),
    "argmax": ((1,), [((2,), "int64")]),
    "max": ((1,), [((2,), "float32"), ((0,), "int64")]),
    "sort": ((1,), [((2, 3), "float32"), ((2, 3), "int64")]),
    "topk": ((2,), [((0,), "float32"), ((0,), "int64")]),
    "clamp": ((2, 3), [((2, 3), "float32")]),
    "tril": ((), [((2, 3), "float32")]),
}
MADE: dict[str, tuple[tuple[Any, ...], str]] = {
    "arange": ((5,), "float32"), "zeros": ((3,), "int32"), "ones": ((2, 2), "float64"), "full": (((3,), 2), "float32"),
    "linspace": ((0, 1, 4), "float64"), "eye": ((3,), "int64"), "logspace": ((0, 1, 3), "float32"),
}  # fmt: skip


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", CASES)
def test_a_result_is_stored_in_out_which_is_returned(name: str, device: str) -> None:
    arguments, kinds = CASES[name]
    ours = [pg.full(shape, 7).to(pg.dtypes.dtype_named(dtype)) for shape, dtype in kinds]
    theirs = [torch.full(shape, 7).to(getattr(torch, dtype)) for shape, dtype in kinds]
    views = [one.view(-1) for one in ours]
    several = len(kinds) > 1
    found = getattr(pg, name)(pg.tensor(X), *arguments, out=tuple(ours) if several else ours[0])
    getattr(torch, name)(torch.tensor(X), *arguments, out=tuple(theirs) if several else theirs[0])
    assert all(a is b for a, b in zip(found if several else [found], ours))
    for mine, other, view in zip(ours, theirs, views):
        same_value(mine, other)
        assert view.flatten().tolist() == mine.flatten().tolist()


@pytest.mark.parametrize("name", MADE)
def test_what_makes_tensors_makes_them_of_the_dtype_of_out(name: str) -> None:
    arguments, dtype = MADE[name]
    ours, theirs = pg.empty(0, dtype=pg.dtypes.dtype_named(dtype)), torch.empty(0, dtype=getattr(torch, dtype))
    assert getattr(pg, name)(*arguments, out=ours) is ours
    same_value(ours, getattr(torch, name)(*arguments, out=theirs))


def test_out_may_be_an_operand_a_view_and_nothing() -> None:
    x = pg.tensor(X)
    pg.mul(x, 2, out=x)
    pg.neg(x[0], out=x[1])
    assert x.tolist() == [[2.0, 10.0, 4.0], [-2.0, -10.0, -4.0]]
    assert pg.neg(x, out=None).tolist() == (-x).tolist() and pg.linalg.det(pg.eye(2), out=pg.zeros(())).item() == 1.0


def test_out_works_inside_jit() -> None:
    state = pg.zeros(3)
    double = pg.jit(lambda x: pg.mul(x, 2, out=state) + 0)
    for k in range(4):
        assert double(pg.full((3,), float(k))).tolist() == state.tolist() == [2.0 * k] * 3


def test_errors_of_out() -> None:
    x, y = pg.tensor([1.0, 2.0]), pg.zeros(2)
    with pytest.raises(pg.DTypeError) as told:
        pg.add(x, 1, out=pg.zeros(2, dtype=pg.int64))
    assert told.value.fact == "add: a result of dtype float32 does not fit in place into int64."
    with pytest.raises(pg.ShapeError) as shape:
        pg.add(x, 1, out=pg.zeros(3))
    assert shape.value.fact == "add: a result of shape (2,) does not fit into (3,)."
    with pytest.raises(pg.GradientError) as grad:
        pg.exp(x.clone().requires_grad_(), out=y)
    assert grad.value.fact == "exp: no gradient flows through out=, and the result of shape (2,) needs one."
    assert grad.value.hint == "y = exp(...), or with pg.no_grad(): around the call."
    with pg.no_grad():
        assert pg.exp(x.clone().requires_grad_(), out=y) is y
    with pytest.raises(pg.ArgumentTypeError) as kind:
        pg.add(x, 1, out=3)
    assert kind.value.fact == "add: out must be a tensor, or one for each result, got int 3."
    with pytest.raises(pg.ArgumentTypeError) as number:
        pg.max(pg.tensor(X), 1, out=y)
    assert number.value.fact == "max: returns 2 tensors, got 1 as out."


@pytest.mark.req("C3")
def test_every_function_of_pytorch_with_out_takes_it_here() -> None:
    """What is published takes it; these functions of PyTorch name it in their text."""
    for theirs, ours in ((torch, pg), (torch.linalg, pg.linalg), (torch.special, pg.special), (torch.fft, pg.fft)):
        names = [name for name in dir(theirs) if "out=" in (inspect.getdoc(getattr(theirs, name)) or "").split("\n\n")[0]]
        here = [name for name in names if hasattr(ours, name) and inspect.isroutine(getattr(ours, name))]
        assert len(here) > 10
        assert not [name for name in here if plain(getattr(ours, name)) is getattr(ours, name)]


# ---- NumPy's functions ----
def test_functions_of_numpy_take_tensors() -> None:
    x = pg.tensor(X)
    array = x.numpy()
    reductions = (np.mean, np.sum, np.max, np.min, np.prod, np.all, np.any, np.argmax)
    for function in (*reductions, np.exp, np.sqrt, np.negative, np.isfinite, np.rint, np.square):
        found = function(x)
        assert isinstance(found, pg.Tensor)
        np.testing.assert_allclose(found.numpy(), function(array), rtol=1e-6)
    assert np.mean(x, axis=1).tolist() == array.mean(axis=1).tolist()
    pairs = (np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum, np.arctan2, np.less, np.equal)
    for function in (*pairs, np.floor_divide):
        for lhs, rhs in ((x, array), (array, x), (x, 2.0), (np.float32(2), x)):
            found = function(lhs, rhs)
            assert isinstance(found, pg.Tensor)
            wanted = function(*(one.numpy() if isinstance(one, pg.Tensor) else one for one in (lhs, rhs)))
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5)
    w = pg.ones(2, requires_grad=True)
    np.exp(w).sum().backward()
    np.testing.assert_allclose(w.grad, np.exp(np.ones(2, np.float32)), rtol=1e-6)


def test_what_numpy_asks_and_no_tensor_answers() -> None:
    x = pg.ones(2)
    with pytest.raises(pg.ArgumentTypeError) as told:
        np.spacing(x)
    assert (told.value.fact, told.value.hint) == (
        "np.spacing: a tensor of shape (2,) has no such function.", "np.spacing(x.numpy())"
    )  # fmt: skip
    with pytest.raises(pg.ArgumentTypeError) as told:
        np.add(x, 1, where=np.array([True, False]))
    assert (told.value.fact, told.value.hint) == (
        "np.add: a tensor of shape (2,) has no such function with where=.", "x.numpy() in place of the tensor."
    )  # fmt: skip


def test_arrays_take_a_tensor_in_place() -> None:
    array = np.ones(2, np.float32)
    array += pg.tensor([1.0, 2.0])
    array[1:] *= pg.tensor([3.0])
    assert isinstance(array, np.ndarray) and array.tolist() == [2.0, 9.0]
    assert np.add(pg.ones(2), 1, out=(out := np.zeros(2))) is out and out.tolist() == [2.0, 2.0]
    with pytest.raises(pg.GradientError, match="that needs gradients would lose them"):
        array += pg.ones(2, requires_grad=True)


def test_errors_of_numpys_functions_name_the_users_line() -> None:
    with pytest.raises(pg.ArgumentTypeError) as caught:
        np.std(pg.ones(3))
    assert caught.value.line is not None and caught.value.line.file == __file__
