"""Elements of small tensors in host memory, read and written one after the other, as a table that a loop fills is."""

from __future__ import annotations

import math
import random

import pytest
import torch

import picograd as pg
from picograd.look import watch

ON_ELEMENTS = {
    "a * b + c": lambda v: v[0] * v[1] + v[2],
    "(a - b) * c - d * e": lambda v: (v[0] - v[1]) * v[2] - v[3] * v[4],
    "a + 3 b - c": lambda v: v[0] + v[1] * 3 - v[2],
    "-a": lambda v: -v[0],
    "a / b": lambda v: v[0] / v[1],
    "a + 1 < b": lambda v: v[0] + 1 < v[1] * 2,
    "a == b": lambda v: v[3] == v[3] * 1,
    "a != b": lambda v: v[3] != v[2],
    "the least": lambda v: min(v[0] + 1, v[1], v[2] - v[3]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", ON_ELEMENTS)
def test_arithmetic_of_elements_in_host_memory_runs_nothing(name: str, dtype: str, monkeypatch, rng) -> None:
    """Few operations that IEEE 754 rounds in one way: the bits are a kernel's, and PyTorch's."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    for _ in range(20):
        numbers = rng.standard_normal(6) * 10.0 ** rng.integers(-3, 4, 6)
        array = rng.integers(-(2**62), 2**62, 6) if dtype == "int64" else numbers.astype(dtype)
        found = ON_ELEMENTS[name](pg.tensor(array))
        with watch() as counts:
            value = found.item()
        assert counts.plans == (dtype == "int64" and name == "a / b")
        computed = pg.tensor(array)[pg.arange(6)]  # not in memory yet
        assert value == ON_ELEMENTS[name](computed).item() == ON_ELEMENTS[name](torch.tensor(array)).item()


def test_numbers_beyond_the_range_of_a_dtype_are_as_a_kernel_has_them(monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, i = pg.tensor([1.0, 0.0, 3e38]), pg.tensor([2**63 - 1, 1])
    assert (x[0] / x[1]).item() == math.inf and math.isnan((x[1] / x[1]).item()) and (x[2] + x[2]).item() == math.inf
    assert (i[0] + i[1]).item() == -(2**63) == (i[0] * 1 + i[1]).item()


def test_writes_to_chosen_elements_of_host_memory_run_nothing(monkeypatch) -> None:
    """A table that a loop fills: each way in which the places of several writes meet would be a form of its own."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    draws = random.Random(0)
    table, expected = pg.zeros(4, 5).realize(), torch.zeros(4, 5)
    row, before = table[1], table * 1
    with watch() as counts:
        for _ in range(60):
            i, j, k = draws.randrange(4), draws.randrange(5), draws.randrange(4)
            for each in (table, expected):
                each[i, j] += 1
                each[k, j] = each[i, j] * 0.5 - each[k, 0]
                each.T[j, i] = 3
    assert counts.plans == 0 and table.tolist() == expected.tolist() and row.tolist() == expected[1].tolist()
    assert before.tolist() == [[0.0] * 5] * 4, "a graph keeps what it reads"


@pytest.mark.parametrize("kind", ["with a gradient", "large", "of a graph", "of a leaf"])
def test_other_writes_to_elements_are_computed(kind: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = pg.zeros(2000 if kind == "large" else 3).realize()
    if kind == "with a gradient":
        w = pg.tensor(2.0, requires_grad=True)
        x[1] = w * 3
        x.sum().backward()
        assert x.tolist() == [0.0, 6.0, 0.0] and w.grad.item() == 3.0
    elif kind == "large":
        x[7] = 5.0
        assert x[7].item() == 5.0 and x.sum().item() == 5.0
    elif kind == "of a graph":
        y = x.exp()
        y[0] = 9.0
        assert y.tolist() == [9.0, 1.0, 1.0]
    else:
        x.requires_grad_()
        with pytest.raises(pg.GradientError):
            x[0] = 1.0
        with pg.no_grad():
            x[0] = 1.0
        (x * 2).sum().backward()
        assert x.tolist() == [1.0, 0.0, 0.0] and x.grad.tolist() == [2.0, 2.0, 2.0] and x.is_leaf


@pytest.mark.parametrize("copied", [lambda x: x.T, lambda x: x[1:], lambda x: x[1], lambda x: x.T.reshape(-1), lambda x: x])
def test_elements_of_a_copy_of_a_view_have_its_own_places(copied, monkeypatch) -> None:
    """A copy that is not computed yet is a graph on the memory of another shape and order: no write may go there."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    results = []
    for library in (pg, torch):
        x = library.arange(6.0).reshape(2, 3) * 1
        assert x.tolist()
        y = copied(x).clone()
        y[(0, 1)[-y.ndim :]] = 50
        y[..., -1:].fill_(7)
        results.append((x.tolist(), y.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("view", [lambda x: x[1, 2], lambda x: x.T, lambda x: x[1:]], ids=["element", "transpose", "row"])
def test_a_view_whose_value_is_kept_elsewhere_is_written_in_the_storage(view, monkeypatch) -> None:
    """A copy of a view that has been computed has the same Op as the view, which then has memory of its own."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    results = []
    for library in (pg, torch):
        x = library.arange(6.0).reshape(2, 3) * 1
        assert x.tolist()
        y = view(x)
        copied = y.clone()
        if library is pg:
            copied.realize()
        y[(0, 1)[: y.ndim]] = 50
        results.append((x.tolist(), copied.tolist(), y.tolist()))
    assert results[0] == results[1]
