"""Branches and loops whose way values decide."""

from __future__ import annotations

import pytest

import picograd as pg


def both(x: pg.Tensor) -> pg.Tensor:
    return pg.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))


def test_cond_chooses_by_a_value_with_and_without_jit(device: str) -> None:
    fast = pg.jit(both)
    for values in ([1.0, 2.0], [-1.0, 0.5], [3.0, 3.0], [-3.0, 0.0]):
        x = pg.tensor(values, requires_grad=True)
        wanted = [v * 2 for v in values] if sum(values) > 0 else [v - 1 for v in values]
        assert both(x).tolist() == fast(x.detach()).tolist() == wanted
        both(x).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [2.0 if sum(values) > 0 else 1.0] * 2
    assert pg.vmap(both)(pg.tensor([[1.0, 1.0], [-1.0, -1.0]])).tolist() == [[2.0, 2.0], [-2.0, -2.0]]


def test_the_branch_that_is_not_chosen_spoils_no_gradient() -> None:
    def loss(x: pg.Tensor) -> pg.Tensor:
        yes, no = lambda of, n: of["x"][0] / of["x"][1] * n, lambda of, n: of["x"][0] ** 3 * n
        chosen: pg.Tensor = pg.cond(x[1] > 1, yes, no, ({"x": x}, 2))
        return chosen

    at = pg.tensor([2.0, 0.0])
    for take in (lambda f: f, pg.jit):
        assert take(pg.func.grad(loss))(at).tolist() == [24.0, 0.0]
        assert take(pg.func.grad(loss))(pg.tensor([2.0, 4.0])).tolist() == [0.5, -0.25]
    assert pg.func.hessian(loss)(at).tolist() == [[24.0, 0.0], [0.0, 0.0]]
    rows = pg.tensor([[2.0, 0.0], [2.0, 4.0]])
    assert pg.vmap(pg.func.grad(loss))(rows).tolist() == [[24.0, 0.0], [0.5, -0.25]]


def test_a_bool_calls_one_branch() -> None:
    assert pg.cond(True, lambda: 1, lambda: 1 / 0) == 1 and pg.cond(False, lambda a: 0, lambda a: a, [5]) == 5


def test_the_branches_return_one_form() -> None:
    with pytest.raises(pg.ShapeError) as told:
        pg.cond(pg.tensor(True), lambda: pg.ones(2), lambda: (pg.ones(2),))
    assert told.value.fact == (
        "cond: true_fn returns * of [((2,), float32)], false_fn (*,) of [((2,), float32)]."
    )
    with pytest.raises(pg.ArgumentError) as kind:
        pg.cond(pg.ones(2), lambda: 1, lambda: 2)
    assert kind.value.fact == "cond: pred must be a bool or a Tensor of one bool, got a Tensor of float32 of shape (2,)."


def test_while_loop_goes_on_while_the_condition_holds() -> None:
    i, x = pg.while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x * 2), (pg.tensor(0), pg.tensor([1.0, 3.0])))
    assert i.item() == 4 and x.tolist() == [16.0, 48.0]
    assert pg.while_loop(lambda n: n < 3, lambda n: n + 1, (0,)) == (3,)
    with pytest.raises(pg.ArgumentError, match="while_loop: body_fn takes 2 values and returns 1."):
        pg.while_loop(lambda a, b: True, lambda a, b: a, (1, 2))
    with pytest.raises(pg.JitError) as told:
        pg.jit(lambda x: pg.while_loop(lambda x: x < 3, lambda x: (x + 1,), (x,)))(pg.tensor(0))
    assert told.value.hint == "pg.scan(function, init, length=most), with pg.where for the steps after the last one."
