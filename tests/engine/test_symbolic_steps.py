"""A loop whose number of steps only a run tells: on each device, with gradients, with none, with another one each time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.devices import launches
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Runner, Schedule
from tests.fake_driver import TENSORS, build, run_on
from tests.on_devices import device_params

Array = np.ndarray[Any, Any]
DEVICES = device_params("CPU", "CUDASIM", "OPENCL", "CUDA", "PTX")
MOST = 9


def recurrence(h: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = (h @ w + x).tanh()
    return h, h * 2


def expected(x: Array, w: Array, start: Array) -> tuple[Array, Array, Array]:
    """Returns the last state, the sum of all states doubled, and the gradient of the sum of both by w, in float64."""
    h, total, by_w = start.astype(np.float64), np.zeros_like(start, np.float64), np.zeros_like(w, np.float64)
    states = [h]
    for row in x:
        states.append(np.tanh(states[-1] @ w.astype(np.float64) + row))
        total += 2 * states[-1]
    grad = np.ones_like(h)
    for before, after in list(zip(states, states[1:]))[::-1]:
        inner = (grad + 2) * (1 - after**2)
        by_w += np.outer(before, inner)
        grad = inner @ w.T
    return states[-1], total, by_w


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("device", DEVICES)
def test_a_scan_of_a_symbolic_number_of_steps_and_its_gradient(device: str, rng: np.random.Generator) -> None:
    rows, matrix = rng.standard_normal((MOST, 3), np.float32), rng.standard_normal((3, 3), np.float32) / 2
    start = rng.standard_normal(3, np.float32)
    x, w, h = (Tensor(array, device=device).realize() for array in (rows, matrix, start))
    w.requires_grad_()

    @pg.jit
    def run(n: int) -> tuple[Tensor, Tensor, Tensor]:
        last, states = pg.scan(lambda h, x: recurrence(h, x, w), h, x[:n])
        (grad,) = pg.autograd.grad(last.sum() + states.sum(), [w])
        return last, states.sum(0), grad

    n = pg.Variable("n", 0, MOST)
    for steps in (4, 5, 5, 5, 1, 0, MOST, 4, 0, 2):
        found = run(n.bind(steps))
        for value, right in zip(found, expected(rows[:steps], matrix, start), strict=True):
            # 9 steps of 4 roundings each, of states below 1 whose gradients grow by less than 2 a step
            np.testing.assert_allclose(value.numpy(), right, atol=3e-5)


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("device", DEVICES)
def test_loops_in_loops_from_the_end_and_over_what_is_stacked(device: str, rng: np.random.Generator) -> None:
    values = rng.integers(-3, 4, (MOST, 5)).astype(np.float32)
    x, start = (Tensor(array, device=device).realize() for array in (values, np.zeros(5, np.float32)))

    @pg.jit
    def run(n: int) -> tuple[Tensor, Tensor]:
        def outer(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            inner, _ = pg.scan(lambda t, other: (t + other * row, t), total, x[:n])
            return inner, inner * 1

        last, stacked = pg.scan(outer, start, x[:n], reverse=True)
        return last, stacked.sum(0)

    n = pg.Variable("n", 0, MOST)
    for steps in (3, 0, 1, MOST, 3):
        rows = values[:steps]
        each = [row * rows.sum(0) for row in rows[::-1]]
        sums = np.cumsum(each, axis=0) if each else np.zeros((0, 5))
        last, total = run(n.bind(steps))
        np.testing.assert_array_equal(last.numpy(), sums[-1] if steps else np.zeros(5))
        np.testing.assert_array_equal(total.numpy(), sums.sum(0))


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("device", DEVICES)
def test_rows_of_a_symbolic_length_are_side_by_side(device: str, rng: np.random.Generator) -> None:
    values = rng.integers(-3, 4, (4, MOST)).astype(np.float32)
    x, start = (Tensor(array, device=device).realize() for array in (values, np.zeros((), np.float32)))

    @pg.jit
    def run(n: int) -> tuple[Tensor, Tensor]:
        def step(total: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            return total + row.sum(), row * 2 + total

        last, stacked = pg.scan(step, start, (x[:, :n] + 1).contiguous(), reverse=True)
        return last, stacked.sum(1)

    n = pg.Variable("n", 1, MOST)
    for length in (3, 1, MOST, 3, 5):
        rows = values[:, :length] + 1
        before = np.cumsum([0, *rows.sum(1)[::-1]])[:-1][::-1]
        last, sums = run(n.bind(length))
        assert last.item() == rows.sum()
        np.testing.assert_array_equal(sums.numpy(), (rows * 2 + before[:, None]).sum(1))


def test_a_graph_for_each_number_of_steps(tmp_path: Path) -> None:
    """Plans of CUDA: the launches follow the number of steps, first kernel by kernel, then as graphs."""
    build(tmp_path)
    code = """
import ctypes
graphs = ctypes.CDLL("libcuda.so.1").fake_driver_graph_launches
x = pg.Tensor(np.arange(24, dtype=np.float32).reshape(8, 3), device="CUDA").realize()
start = pg.Tensor(np.zeros(3, np.float32), device="CUDA").realize()
@pg.jit
def run(n):
    return pg.scan(lambda h, x: (h * 0.5 + x, h), start, x[:n])[0]
n = pg.Variable("n", 0, 8)
for steps in (3, 6, 3, 6, 3, 0, 8, 0, 8):
    before = graphs()
    h = np.zeros(3, np.float32)
    for row in np.arange(24, dtype=np.float32).reshape(8, 3)[:steps]:
        h = h * np.float32(0.5) + row
    print(steps, (run(n.bind(steps)).numpy() == h).all(), graphs() - before)
"""
    lines = run_on(tmp_path, TENSORS + code).splitlines()
    assert [line.split()[1] for line in lines] == ["True"] * 9
    assert [line.split()[2] for line in lines[2:5]] == ["1", "1", "1"] and lines[-1].split()[2] == "1"


def test_runners_of_the_last_numbers_of_steps_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def make(variables: dict[str, int]) -> Callable[..., None]:
        made.append(variables["n"])
        return lambda *arguments: None

    n = Op(OpCode.VARIABLE, pg.int64, (), ("n", 0, 100))
    monkeypatch.setattr(launches, "symbolic_lengths", lambda schedule: [n])
    runner: Runner = launches.runner_by_steps(Schedule((), (), (), (), 0), make)  # type: ignore[arg-type]
    for steps in [*range(8), 0, 8, 0, 1]:
        runner([], [], {"n": steps})
    assert made == [*range(9), 1]  # 8 of them are kept; of these 1 was not asked for the longest time

