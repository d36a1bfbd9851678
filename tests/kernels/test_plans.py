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
from picograd.errors import GradientError, ShapeError
from picograd.look import watch
from tests.helpers import forgotten
from tests.host_compilers import empty_cache, needs_compiler
from tests.kernels.sources import SAXPY, rows, saxpy

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
    ({"block": lambda x: x.numel()}, "a block must have a fixed number of threads, got n"),
    ({"grid": lambda x: (1, x.shape[0])}, r"grid is \(1, n\); a symbolic length is along x alone"),
    ({"grid": lambda x: int(x.shape[0])}, "n is a symbolic length; a number is needed here.*\n.*hint: write it with"),
    ({"grid": lambda x: 1 if x.numel() < 5 else 2}, "n is a symbolic length"),
    ({"grid": lambda x: x.max().item()}, r"x.max is not available: the Tensor of shape \(n,\)"),
])  # fmt: skip
def test_what_needs_a_number_says_what_to_write(given: dict[str, Callable[..., Any]], said: str) -> None:
    inputs, same = lambda x: (x, x, 1.0, x.numel()), lambda x: x  # noqa: E731
    options = {"output": same, "inputs": inputs, "grid": 1, "meaning": same, **given}
    kernel, x = pg.kernel(SAXPY, **options), pg.ones(8)[: pg.Variable("n", 1, 8).bind(8)]
    with pytest.raises(ShapeError) as error:
        kernel(x)
    assert re.search(said, str(error.value), re.DOTALL), str(error.value)
    with pytest.raises(ShapeError, match="saxpy: lengths of a single launch must be numbers"):
        saxpy.check(x, x, 2.0)


SCALED = """__global__ void scaled(float *out, const float *x, const float *w, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = w[i] * x[i] * x[i];
}"""
scaled = pg.kernel(
    SCALED,
    output=lambda x, w: x,
    inputs=lambda x, w: (x, w, x.numel()),
    grid=lambda x, w: -(-x.numel() // 128),
    block=128,
    meaning=lambda x, w: w * x * x,
    gradient=lambda grad, x, w: (2 * scaled(x, grad * w) / x, grad * x * x),
)


@pytest.mark.parametrize("name", ["CUDASIM", "CPU"])
@pytest.mark.parametrize("kind", ["reverse", "second"])
def test_one_trace_serves_gradients_of_lengths_that_change(name: str, kind: str) -> None:
    def slopes(x: pg.Tensor, w: pg.Tensor) -> Any:
        return pg.grad(lambda x, w: (scaled(x, w) * w).sum(), argnums=(0, 1))(x, w)

    def twice(x: pg.Tensor, w: pg.Tensor) -> Any:
        return pg.grad(lambda x, w: (slopes(x, w)[0] * w).sum(), argnums=(0, 1))(x, w)

    step = pg.jit(slopes if kind == "reverse" else twice)
    with pg.device(name), pg.random.fork_rng():
        pg.manual_seed(5)
        lengths = (40, 40, 41, 41, 50, 51, 33, 47, 60, 34, 63)
        given = [(pg.rand(k) + 1, pg.rand(k) + 1) for k in lengths]
        with watch() as counts:
            found = [step(*pair) for pair in given]
        for (x, w), (dx, dw) in zip(given, found):
            expected = (2 * x * w * w, 2 * w * x * x) if kind == "reverse" else (2 * w**3, 6 * x * w * w)
            assert pg.allclose(dx, expected[0], rtol=1e-5) and pg.allclose(dw, expected[1], rtol=1e-5)
    assert counts.scheduled <= 4 < len(set(lengths))


@pytest.mark.parametrize("name", ["CUDASIM", "CPU"])
def test_a_variable_cuts_what_has_a_gradient(name: str) -> None:
    n = pg.Variable("n", 1, 200)
    step = pg.jit(lambda x, w, n: pg.grad(lambda x: scaled(x[:n], w[:n]).sum())(x))
    with pg.device(name), watch() as counts:
        x, w = pg.arange(200).float() + 1, pg.ones(200)
        for k in (5, 9, 200, 1):
            found = step(x, w, n.bind(k)).tolist()
            assert found == [2.0 * (i + 1) if i < k else 0.0 for i in range(200)]
    assert counts.scheduled <= 3


@pytest.mark.parametrize("name", ["CUDASIM", "CPU", "NUMPY"])
def test_a_kernel_of_one_example_is_launched_for_each(name: str) -> None:
    with pg.device(name), pg.random.fork_rng():
        pg.manual_seed(6)
        x, w, by = pg.rand(5, 300) + 1, pg.rand(300) + 1, pg.arange(5).float()
        of_rows = pg.vmap(scaled, in_dims=(0, None))
        assert pg.equal(of_rows(x, w), w * x * x) and pg.equal(pg.jit(of_rows)(x, w), w * x * x)
        assert pg.equal(pg.vmap(of_rows, in_dims=(0, None))(x[None], w)[0], w * x * x)
        assert of_rows(x[:0], w).shape == (0, 300)
        assert pg.equal(pg.vmap(saxpy)(x, x, by), by[:, None] * x + x)
        assert pg.equal(pg.vmap(saxpy, in_dims=(0, None, None))(x, w, 2.0), 2 * x + w)
        each = pg.vmap(rows)(x.reshape(5, 10, 30))  # two results
        assert [one.shape for one in each] == [(5, 10), (5, 10)] and pg.equal(each[0][3], rows(x[3].reshape(10, 30))[0])
        dx, dw = pg.vmap(pg.grad(lambda x, w: scaled(x, w).sum(), argnums=(0, 1)), in_dims=(0, None))(x, w)
        assert pg.allclose(dx, 2 * w * x) and pg.allclose(dw, x * x)
        dx, dw = pg.grad(lambda x, w: of_rows(x, w).sum(), argnums=(0, 1))(x, w)
        assert pg.allclose(dx, 2 * w * x) and pg.allclose(dw, (x * x).sum(0))
        slopes = pg.func.jacrev(pg.func.jacrev(lambda x: scaled(x, w[:4]).sum()))(x[0, :4])
        assert pg.allclose(slopes, pg.diag(2 * w[:4]))
        assert pg.allclose(pg.func.jacfwd(lambda x: scaled(x, w[:4]))(x[0, :4]), pg.diag(2 * w[:4] * x[0, :4]))
        n = pg.Variable("n", 1, 5)
        for k in (2, 5):
            assert of_rows(x[: n.bind(k)], w).tolist() == (w * x * x)[:k].tolist()
        cut = pg.vmap(lambda row, k: scaled(row[:k], w[:k]).sum(), in_dims=(0, None))
        assert pg.allclose(cut(x, pg.Variable("k", 1, 300).bind(7)), (w * x * x)[:, :7].sum(1))
        with pytest.raises(GradientError, match="the kernel saxpy has no gradient"):
            pg.grad(lambda x: pg.vmap(saxpy, in_dims=(0, 0, None))(x, x, 2.0).sum())(x)


def test_forward_mode_goes_through_a_gradient_of_tensors() -> None:
    square = pg.kernel(
        "__global__ void square(float *out, const float *x) { out[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }",
        output=lambda x: x, grid=1, block=lambda x: x.numel(), meaning=np.square, gradient=lambda grad, x: 2 * grad * x,
    )  # fmt: skip
    with pg.device("CUDASIM"):
        value, moved = pg.func.jvp(square, (pg.tensor([1.0, 3.0]),), (pg.tensor([1.0, 0.5]),))
    assert value.tolist() == [1.0, 9.0] and moved.tolist() == [2.0, 3.0]
