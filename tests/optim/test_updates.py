"""Updates of a step, put together: each parameter's own formula, in the order of the step, or none of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.errors import IndexingError
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.look import watch
from picograd.optim import updates

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("Adam", {"lr": 0.1, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.2, "maximize": True}),
]


def leaf(library, array: np.ndarray):
    return library.tensor(array, requires_grad=True)


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_groups_of_many_shapes_and_settings_step_as_pytorchs_do(name, settings, rng) -> None:
    arrays = [rng.normal(size=shape).astype(np.float32) for shape in [(3, 2), (2,), (), (3, 2), (4,), (1, 1)]]

    def train(library) -> list[np.ndarray]:
        params = [leaf(library, array) for array in arrays]
        groups = [{"params": params[:3]}, {"params": params[3:5], "lr": 0.01}, {"params": params[5:]}]
        optimizer = getattr(library.optim, name)(groups, **settings)
        for step in range(4):
            optimizer.zero_grad()
            used = params if step != 2 else params[::2]  # the others have no gradient
            sum((p * p).sum() * (i + 1) for i, p in enumerate(used)).backward()
            optimizer.step()
        return [p.detach().numpy() for p in params]

    for ours, theirs in zip(train(pg), train(torch)):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def test_parameters_of_one_group_are_one_op(monkeypatch: pytest.MonkeyPatch) -> None:
    params = [leaf(pg, np.full(i + 1, 2.0, np.float32)) for i in range(5)]
    optimizer = pg.optim.Adam(params)
    sum((p * p).sum() for p in params).backward()
    made: list[Op] = []
    monkeypatch.setattr(updates, "record", made.append)
    with watch() as counts:
        optimizer.step()
    assert counts.plans == 1
    (formula,) = made
    assert formula.code is OpCode.FORMULA and len(formula.arg.kinds) == 3 * len(params)


def test_two_parameters_in_one_storage_are_updated_one_after_the_other() -> None:
    def train(library) -> list[float]:
        whole = leaf(library, np.array([1.0, 2.0, 3.0, 4.0], np.float32))
        same = whole.detach().requires_grad_()
        part = whole.detach()[1:3].requires_grad_()
        optimizer = library.optim.SGD([whole, same, part], lr=0.5)
        (whole.sum() + 3 * same.sum() + 5 * part.sum()).backward()
        optimizer.step()
        return whole.tolist()

    assert train(pg) == train(torch) == [-1.0, -2.5, -1.5, 2.0]


def test_memory_that_numpy_sees_is_written_where_it_lies() -> None:
    p, other = (leaf(pg, np.ones(size, np.float32)) for size in (3, 2))
    array = np.from_dlpack(p.detach())
    optimizer = pg.optim.Adam([other, p], lr=0.5)
    (p.sum() + other.sum()).backward()
    optimizer.step()
    np.testing.assert_allclose(array, 0.5, rtol=1e-6)
    np.testing.assert_allclose(other.tolist(), 0.5, rtol=1e-6)


def test_sixteen_bit_parameters_keep_their_dtype_beside_others() -> None:
    params = [leaf(pg, np.ones(3, np.float32)), Tensor([1.0, 2.0], dtype=pg.bfloat16, requires_grad=True)]
    optimizer = pg.optim.Adam(params, lr=0.25)
    for _ in range(2):
        optimizer.zero_grad()
        (params[0].sum() + params[1].float().sum()).backward()
        optimizer.step()
    assert [p.dtype for p in params] == [pg.float32, pg.bfloat16]
    np.testing.assert_allclose(params[0].tolist(), 0.5, rtol=1e-5)
    np.testing.assert_allclose(params[1].float().tolist(), [0.5, 1.5], rtol=1e-2)


def test_a_step_that_fails_has_written_nothing_and_the_next_one_goes_on() -> None:
    table, bias = leaf(pg, np.ones((4, 2), np.float32)), leaf(pg, np.zeros(2, np.float32))
    optimizer = pg.optim.Adam([table, bias], lr=0.5)
    index = Tensor([7])
    (table[index] + bias).sum().backward()
    with pytest.raises(IndexingError, match="7"):
        optimizer.step()
    assert table.tolist() == [[1.0, 1.0]] * 4 and bias.tolist() == [0.0, 0.0]
    assert optimizer.state[0]["step"].item() == 0
    optimizer.zero_grad()
    (table[Tensor([1])] + bias).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(bias.tolist(), [-0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(table.tolist()[1], [0.5, 0.5], rtol=1e-6)


def test_an_error_between_updates_leaves_none_for_the_next_step() -> None:
    p = leaf(pg, np.ones(2, np.float32))
    optimizer = pg.optim.SGD([p, leaf(pg, np.ones(2, np.float32))], lr=0.5)
    update, calls = optimizer._update, []

    def failing(*args) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise pg.errors.ArgumentError("no.")
        update(*args)

    optimizer._update = failing
    for parameter in optimizer.parameters():
        parameter.grad = Tensor([1.0, 1.0])
    with pytest.raises(pg.errors.ArgumentError):
        optimizer.step()
    assert p.tolist() == [1.0, 1.0]
    optimizer._update = update
    optimizer.step()
    assert p.tolist() == [0.5, 0.5]
