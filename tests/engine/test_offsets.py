"""Offsets that change from step to step: one plan for all of them, with the values of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn
from picograd.engine.lengths import regrouped
from picograd.look import watch

F = nn.functional


def plannings(step: Callable[[int], Any], numbers: range | list[int]) -> list[int]:
    """Returns how often each step is scheduled."""
    found = []
    for number in numbers:
        with watch() as counts:
            step(number)
        found.append(counts.scheduled)
    return found


def matrix(*shape: int) -> np.ndarray[Any, Any]:
    """Returns different numbers."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


READS: dict[str, Callable[[Any, int], Any]] = {
    "slice": lambda x, i: x[i : i + 5] * 2,
    "row": lambda x, i: x[i] + 1,
    "element": lambda x, i: x[i, 2] + 0,
    "negative row": lambda x, i: x[-1 - i] + 1,
    "step": lambda x, i: x[i : i + 9 : 3] * 2,
    "both axes": lambda x, i: x[i : i + 4, i % 5 : i % 5 + 3] * 2,
    "view of a view": lambda x, i: x[2:34][i : i + 6][1:4] * 2,
    "transposed": lambda x, i: x.T[1:5, i : i + 3] * 2,
    "reversed": lambda x, i: x[i : i + 4][:, ::1].reshape(-1)[5:9] * 2,
    "sum": lambda x, i: x[i : i + 8].sum(0),
    "two": lambda x, i: x[i : i + 3] * x[31 - i : 34 - i],
    "product": lambda x, i: x[i : i + 4] @ x[i + 1 : i + 5].T,
}


@pytest.mark.parametrize("name", READS)
def test_reads_are_planned_twice(name: str, device: str) -> None:
    data = matrix(40, 8)
    x = Tensor(data)
    read = READS[name]

    def step(i: int) -> None:
        np.testing.assert_allclose(read(x, i).numpy(), read(data, i), rtol=1e-4, atol=1e-5)

    assert sum(plannings(step, range(25))[3:]) == 0


def test_an_epoch_over_slices_is_planned_in_its_first_steps() -> None:
    x, y = Tensor(matrix(60, 6)), Tensor(np.arange(60) % 4)
    layer = nn.Linear(6, 4)
    optimizer = pg.optim.Adam(layer.parameters(), 1e-2)

    def step(i: int) -> None:
        loss = F.cross_entropy(layer(x[i : i + 5]), y[i : i + 5])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()

    assert sum(plannings(step, range(0, 60, 5))[2:]) == 0


def test_a_line_that_moves_in_one_form_moves_in_the_next() -> None:
    x, total = Tensor(matrix(60, 6)), None

    def step(i: int) -> None:
        nonlocal total
        part = x[i : i + 5].sum(0)
        total = part if total is None else total + part
        total = total.realize()

    assert plannings(step, range(0, 60, 5)) == [1, 1] + [0] * 10


ALIKE: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(),
    "rows": lambda x: x.sum(1),
    "columns": lambda x: x.sum(0),
    "softmax": lambda x: x.softmax(-1),
    "variance": lambda x: x.var(-1),
    "product": lambda x: x @ x.T,
    "scan": lambda x: x.cumsum(1),
    "convolution": lambda x: F.conv2d(x[None, None], x[None, None, :3, :3]),
}


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("axis", [0, 1])
def test_bits_are_those_of_a_jitted_function(name: str, axis: int) -> None:
    x, function = Tensor(matrix(45, 45)), ALIKE[name]
    for start in (0, 1, 2, 8):
        jitted = pg.jit(lambda x, start=start: function(x.narrow(axis, start, 37)))  # where an offset is a constant
        np.testing.assert_array_equal(function(x.narrow(axis, start, 37)).numpy(), jitted(x).numpy())


def test_slices_of_random_offsets_are_stacked_by_one_plan() -> None:
    data = np.arange(1000)
    x, random = Tensor(data), Random(0)

    def step(_: int) -> None:
        places = random.sample(range(900), 6)
        both = pg.stack([x[i : i + 8] for i in places]), pg.stack([x[i + 1 : i + 9] for i in places])
        for number, made in enumerate(both):
            assert made.tolist() == [list(range(i + number, i + number + 8)) for i in places]

    assert sum(plannings(step, range(8))[3:]) == 0


def test_elements_are_read_and_written_by_one_plan() -> None:
    counts, expected, random = pg.zeros(9, 9, dtype=pg.int32), np.zeros((9, 9), np.int32), Random(0)

    def step(_: int) -> None:
        a, b = random.randrange(9), random.randrange(9)
        counts[a, b] += 1
        expected[a, b] += 1
        assert counts[a, b].item() == expected[a, b]

    assert sum(plannings(step, range(40))[5:]) == 0
    assert counts.tolist() == expected.tolist()


def test_a_loop_of_writes_that_nobody_reads_is_planned_at_first(device: str) -> None:
    counted, expected, random = pg.zeros(5, 5, dtype=pg.int32), np.zeros((5, 5), np.int32), Random(0)

    def step(_: int) -> None:
        for _ in range(40):
            a, b = random.randrange(5), random.randrange(5)
            counted[a, b] += 1
            expected[a, b] += 1

    assert sum(plannings(step, range(8))[4:]) == 0
    assert counted.tolist() == expected.tolist()


def test_a_loop_of_writes_to_much_memory_is_computed_many_at_once(device: str) -> None:
    data = matrix(40, 500)
    x = Tensor(data)
    with watch() as counts:
        for i in range(100):
            x[i % 40, i] *= 2.0
            data[i % 40, i] *= 2
    assert counts.plans <= 4
    np.testing.assert_array_equal(x.numpy(), data)


def test_a_loop_of_writes_with_an_index_that_is_wrong_keeps_those_before_it(device: str) -> None:
    x, places = pg.zeros(6).realize(), Tensor([1, 5, 9, 2]).realize()
    with pytest.raises(IndexError, match="9 is out of range"):
        for i in range(60):
            x[places[min(i // 15, 3)]] += 1
    x.tolist()


def test_shifts_are_offsets(device: str) -> None:
    data = matrix(9, 5)
    x = Tensor(data)

    def step(i: int) -> None:
        np.testing.assert_array_equal(x.roll((i, -2 * i), (0, 1)).numpy(), np.roll(data, (i, -2 * i), (0, 1)))

    assert sum(plannings(step, range(12))[4:]) == 0


def test_iterating_over_rows_is_planned_twice() -> None:
    data = matrix(30, 4)
    made = []
    for row in Tensor(data):
        with watch() as counts:
            np.testing.assert_allclose((row * 2).numpy(), data[len(made)] * 2)
        made.append(counts.scheduled)
    assert sum(made[2:]) == 0


def test_offsets_and_numbers_that_change_together() -> None:
    data = matrix(30, 4)
    x = Tensor(data)

    def step(i: int) -> None:
        np.testing.assert_allclose((x[i : i + 3] * (i + 0.5)).numpy(), data[i : i + 3] * np.float32(i + 0.5))

    assert plannings(step, range(12))[2:] == [0] * 10


def test_a_symbolic_integer_of_the_user_keeps_its_name() -> None:
    data = matrix(30, 4)
    x, n = Tensor(data), pg.Variable("offset1", 1, 8)

    def step(i: int) -> None:
        k = 1 + i % 8
        np.testing.assert_allclose(x[i : i + 8][: n.bind(k)].sum(0).numpy(), data[i : i + k].sum(0), rtol=1e-4)

    assert sum(plannings(step, range(20))[3:]) == 0


def test_groups_are_offsets_that_have_moved_alike() -> None:
    first = [(0, 0), (0, 3), (0, 3), (0, 9), (1, 0)]
    groups = regrouped((0, 0, 0, 0, 0), first, [(0, 1), (0, 4), (0, 3), (0, 5), (1, 1)])
    assert groups == (1, 1, 0, 2, 3)
    assert regrouped(groups, first, [(0, 1), (0, 4), (0, 3), (0, 10), (1, 1)]) == (1, 1, 0, 2, 3)
    assert regrouped(groups, first, [(0, 1), (0, 5), (0, 3), (0, 9), (1, 0)]) == (1, 2, 0, 3, 4)


# ---- random programs ----
class Programs:
    """Random reads of views and writes through them, of two arrays and of tensors that hold the same numbers."""

    def __init__(self, seed: int, device: str) -> None:
        self.random = Random(seed)
        self.arrays = [matrix(12, 6), matrix(12, 6) + 1]
        self.tensors = [Tensor(array, device=device) for array in self.arrays]

    def views(self, steps: list[Any]) -> list[tuple[Any, Any]]:
        """Returns the same view of both arrays and of both tensors."""
        found: list[tuple[Any, Any]] = list(zip(self.arrays, self.tensors))
        for step in steps:
            found = [(step(array), step(tensor)) for array, tensor in found]
        return found

    def form(self) -> list[str]:
        """Returns the kinds of steps of one program, and what it does."""
        kinds = ["cut", "cut", "row", "step", "turn", "flat"]
        ends = ["read", "write", "add", "copy", "scale", "both"]
        return [*self.random.choices(kinds, k=self.random.randint(1, 3)), self.random.choice(ends)]

    def run(self, form: list[str]) -> None:
        """Runs one program of a form with offsets of its own."""
        steps: list[Any] = []
        shape: tuple[int, ...] = (12, 6)
        for kind in form[:-1]:
            step, shape = self.step(kind, shape)
            steps.append(step)
        (a, x), (b, y) = self.views(steps)
        number = np.float32(self.random.randint(1, 4))
        if form[-1] == "write":
            a[...], x[...] = number, float(number)
        elif form[-1] == "add":
            a += b
            x += y
        elif form[-1] == "copy":
            a[...] = b[...]
            x[...] = y
        elif form[-1] == "scale":
            a *= np.float32(0.5)
            x *= 0.5
        elif form[-1] == "both":
            before, (c, z) = x * 1, self.views([])[0]
            expected = a.copy()
            c[2:4], z[2:4] = number, float(number)
            np.testing.assert_array_equal(before.numpy(), expected)
        np.testing.assert_array_equal((x * 2).numpy(), a * 2)

    def step(self, kind: str, shape: tuple[int, ...]) -> tuple[Callable[[Any], Any], tuple[int, ...]]:
        """Returns a step of a view and the shape behind it; lengths depend on the form alone."""
        length = shape[0]
        if kind == "cut" and length > 2:
            held = length // 2
            start = self.random.randint(0, length - held)
            stop = start + held
            cut = slice(start, stop)
            if self.random.random() < 0.5 and stop != length:
                cut = slice(start - length, stop - length)
            return lambda x: x[cut], (held, *shape[1:])
        if kind == "row" and len(shape) > 1:
            row = self.random.randint(-length, length - 1)
            return lambda x: x[row], shape[1:]
        if kind == "step" and length > 4:
            start = self.random.randint(0, length - 4)
            return lambda x: x[start : start + 4 : 2], (2, *shape[1:])
        if kind == "turn" and len(shape) > 1:
            return lambda x: x.T, shape[::-1]
        return lambda x: x, shape


@pytest.mark.parametrize("seed", range(6))
def test_random_views_and_writes_have_numpys_values(seed: int, device: str) -> None:
    programs = Programs(seed, device)
    for _ in range(4):
        form = programs.form()
        for _ in range(4):
            programs.run(form)
    for array, tensor in zip(programs.arrays, programs.tensors):
        np.testing.assert_array_equal(tensor.numpy(), array)
