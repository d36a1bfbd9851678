"""Storage is written in place only as far as readers can tell: graphs built before keep the value they were built on."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest

import picograd as pg
from picograd import CompileError, Tensor
from picograd.engine.devices import compiler_for
from picograd.ir.opts import Opts
from picograd.ir.stages import Kernel
from picograd.look import watch


def test_a_graph_built_before_a_write_keeps_the_old_value(device: str) -> None:
    x = Tensor([1.0, 2.0])
    y = x + 1
    x += 1
    assert y.tolist() == [2.0, 3.0]
    assert x.tolist() == [2.0, 3.0]
    assert (y * x).tolist() == [4.0, 9.0]


def test_a_write_through_a_view_is_seen_by_all_views(device: str) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    row, column, before = x[0], x[:, 1], x * 1
    row += 10
    column *= 2
    assert x.tolist() == [[11.0, 24.0], [3.0, 8.0]]
    assert row.tolist() == [11.0, 24.0]
    assert before.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_many_writes_before_any_read_are_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor([0.0])
    seen = []
    for i in range(20):
        seen.append(x * 1)
        x += i
    with watch() as counts:
        pg.realize([x, *seen])
    assert counts.plans == 1
    assert x.item() == 190.0
    assert [s.item() for s in seen] == [sum(range(i)) for i in range(20)]


def test_the_loss_after_a_step_is_that_of_the_weights_before(device: str) -> None:
    w = Tensor([2.0], requires_grad=True)
    optimizer = pg.optim.SGD([w], lr=0.25)
    losses, predictions = [], []
    for _ in range(3):
        prediction = w * 3
        loss = (prediction * prediction).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        predictions.append(prediction.detach())
    # w -> w - 0.25 * 18 w = -3.5 w
    assert losses == [36.0, 36.0 * 12.25, 36.0 * 12.25**2]
    assert [p.item() for p in predictions] == [6.0, -21.0, 73.5]


def test_a_swap_of_two_tensors_reads_both_old_values(device: str) -> None:
    a, b = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    old = a * 1
    a.assign(b)
    b.assign(old)
    assert (a.tolist(), b.tolist()) == ([3.0, 4.0], [1.0, 2.0])


def test_a_tensor_assigned_to_its_own_transpose_reads_before_it_writes(device: str) -> None:
    data = np.arange(36.0, dtype=np.float32).reshape(6, 6)
    x = Tensor(data)
    x.assign(x.T)
    x[1:] = x[:-1]
    expected = data.T.copy()
    expected[1:] = expected[:-1].copy()
    assert (x.numpy() == expected).all()


def test_a_failed_plan_leaves_tensors_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = Tensor([3.0, 1.0, 2.0])
    x *= 2

    def fail(kernel: Kernel, opts: Opts) -> NoReturn:
        raise CompileError(f"{kernel.name} cannot be compiled.")

    with monkeypatch.context() as patch, pytest.raises(CompileError):
        patch.setattr(compiler_for("CPU"), "_begin", fail)
        patch.setattr(compiler_for("CPU"), "_made", {})
        pg.realize([x, (x * 3).sin()])
    assert x.tolist() == [6.0, 2.0, 4.0]
