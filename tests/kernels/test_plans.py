"""Kernels of a user's own within plans: kept on disk, for lengths and numbers that change, and in forward mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd.engine.devices import compiler_for
from picograd.errors import ShapeError, UnsupportedOp
from picograd.look import watch
from tests.helpers import forgotten
from tests.host_compilers import empty_cache, needs_compiler
from tests.kernels.sources import SAXPY, gelu, rows, saxpy

pytestmark = needs_compiler


@pytest.mark.parametrize("name", ["CUDASIM", "CPU"])
def test_a_plan_is_found_on_disk(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", empty_cache(tmp_path))
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")  # with checks every stage runs again

    def computed() -> float:
        x = pg.arange(77).float()
        return float((saxpy(x + 1, x, 2.0).sum() * rows(x.reshape(11, 7))[0].sum()).item())

    with pg.device(name):
        first = computed()
        forgotten()  # as another process has
        monkeypatch.setattr(compiler_for(name), "_made", {})
        with watch() as counts:
            assert computed() == first
    kept = name == "CUDASIM"  # on a processor the meaning runs, a function of this process
    assert (counts.scheduled == 0 and counts.compiled == 0) == kept


def test_a_number_that_changes_is_an_input() -> None:
    forgotten()
    with pg.device("CUDASIM"):
        x = pg.arange(91).float()
        with watch() as counts:
            assert [saxpy(x, x, a)[2].item() for a in (1.5, 2.5, 3.5, -1.0)] == [5.0, 7.0, 9.0, 0.0]
        assert counts.scheduled - 1 <= 2  # with the number written out, and with it as an input; the element is a view


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("name", ["CPU", "CUDASIM", "NUMPY"])
def test_lengths_may_be_symbolic(name: str) -> None:
    n, step = pg.Variable("n", 1, 600), pg.jit(lambda x, n: rows(x[:n] + 1)[0].sum())
    with pg.device(name):
        x, y, table = pg.arange(600).float(), pg.ones(600), pg.arange(600).float().reshape(60, 10)
        for k in (5, 300, 600):
            length = n.bind(k)
            assert saxpy(x[:length], y[:length], 2.0)[:length].sum().item() == (2 * x[:k] + 1).sum().item()
        m = pg.Variable("m", 1, 60)
        for k in (5, 7, 60, 1):
            assert step(table, m.bind(k)).item() == (table[:k] + 1).sum().item()


NUMBER = "void number(float *out, const float *x, long long n) { out[0] = x[0] + n; }"
ON_A_GPU = NUMBER.replace("void", "__global__ void", 1)


@pytest.mark.parametrize(("name", "text"), [("CPU", NUMBER), ("CUDASIM", NUMBER), ("CUDASIM", ON_A_GPU)])
def test_a_number_may_be_computed(name: str, text: str) -> None:
    options = {"output": lambda *_: ((1,), pg.float32)} | ({"grid": 1, "block": 1} if text == ON_A_GPU else {})
    with pg.device(name):
        x, n, a, b = pg.arange(9).float(), pg.Variable("n", 1, 9), pg.tensor(2).realize(), pg.tensor(5).realize()
        number, least = pg.kernel(text, **options), (pg.tensor(1) * n.bind(7)).minimum(4)
        assert [number(x, each).item() for each in (a, a + b, a * n.bind(3), least)] == [2, 7, 6, 4]
        counted = pg.kernel(text, inputs=lambda x: (x, x.numel() // np.int64(4) + (-x.numel() + 3) % 5), **options)
        assert [counted(x[: n.bind(k)]).item() for k in (3, 4, 9)] == [0, 5, 6]


@pytest.mark.parametrize("name", ["CUDASIM", "NUMPY"])
def test_a_meaning_is_given_each_number_with_its_sign(name: str) -> None:
    text = "void both(float *out, float a, float b) { out[0] = a, out[1] = b; }"
    both = pg.kernel(text, output=lambda a, b: ((2,), pg.float32), meaning=lambda a, b: np.array([a, b], np.float32))
    with pg.device(name):
        assert np.signbit(both(0.0, -0.0).numpy()).tolist() == [False, True]


def test_one_trace_serves_lengths_that_change() -> None:
    step = pg.jit(lambda x: rows(x + 1)[0])
    with pg.device("CUDASIM"):
        table = pg.arange(600).float().reshape(60, 10)
        parts = [table[:k].contiguous() for k in (40, 40, 41, 41, 50, 51, 33, 47, 60, 34)]
        expected = [(part + 1).sum(1).tolist() for part in parts]
        with watch() as counts:
            found = [step(part) for part in parts]
            planned = counts.scheduled
        assert [value.tolist() for value in found] == expected
    assert planned < len({len(part) for part in parts})


@pytest.mark.parametrize(("given", "said"), [
    ({"block": lambda x: x.numel()}, "a block has a fixed number of threads, got n"),
    ({"grid": lambda x: (1, x.shape[0])}, r"grid is \(1, n\); a symbolic length is along x alone"),
    ({"grid": lambda x: int(x.shape[0])}, "n is a symbolic length, and a number is needed here.*\n.*hint: write it with"),
    ({"grid": lambda x: 1 if x.numel() < 5 else 2}, "n is a symbolic length"),
    ({"grid": lambda x: x.max().item()}, r"x.max is asked of a Tensor of shape \(n,\)"),
])  # fmt: skip
def test_what_needs_a_number_says_what_to_write(given: dict[str, Callable[..., Any]], said: str) -> None:
    inputs, same = lambda x: (x, x, 1.0, x.numel()), lambda x: x  # noqa: E731
    options = {"output": same, "inputs": inputs, "grid": 1, "meaning": same, **given}
    kernel, x = pg.kernel(SAXPY, **options), pg.ones(8)[: pg.Variable("n", 1, 8).bind(8)]
    with pytest.raises(ShapeError) as error:
        kernel(x)
    assert re.search(said, str(error.value), re.DOTALL), str(error.value)
    with pytest.raises(ShapeError, match="saxpy: one launch has lengths that are numbers"):
        saxpy.check(x, x, 2.0)


def test_a_traced_gradient_needs_numbers() -> None:
    said = r"gelu: a kernel with a gradient is traced for lengths that are numbers(.|\n)*no_grad"
    with pytest.raises(UnsupportedOp, match=said):
        pg.jit(lambda x, n: gelu(x[:n]).sum())(pg.ones(8), pg.Variable("n", 1, 8).bind(5))


def test_forward_mode_goes_through_a_gradient_of_tensors() -> None:
    square = pg.kernel(
        "__global__ void square(float *out, const float *x) { out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }",
        output=lambda x: x, grid=1, block=lambda x: x.numel(), meaning=np.square, gradient=lambda grad, x: 2 * grad * x,
    )  # fmt: skip
    with pg.device("CUDASIM"):
        value, moved = pg.func.jvp(square, (pg.tensor([1.0, 3.0]),), (pg.tensor([1.0, 0.5]),))
    assert value.tolist() == [1.0, 9.0] and moved.tolist() == [2.0, 3.0]
