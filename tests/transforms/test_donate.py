"""Donated arguments: their memory becomes that of results, nobody reads them afterwards, and results are the same (G10)."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import ArgumentError, JitError, Tensor
from picograd.transforms.buffer_reuse import COUNTS_TELL

pytestmark = pytest.mark.req("G10")
N = 1 << 16
can_tell = pytest.mark.skipif(not COUNTS_TELL, reason="this interpreter's reference counts tell nothing")


def values(count: int, start: float = 0.0) -> Tensor:
    return Tensor((np.arange(count, dtype=np.float32) + np.float32(start)) / count)


def peak_of(call: Callable[[], Tensor]) -> tuple[int, Tensor]:
    """Returns the bytes that a call needs at its peak beyond what is held before, and what it returns."""
    gc.collect()
    before = pg.memory_allocated()
    pg.reset_peak_memory_stats()
    result = call()
    return pg.max_memory_allocated() - before, result


@can_tell
def test_the_memory_of_a_donated_argument_is_that_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    added = pg.jit(lambda total, x: total + x * 2, donate=0)
    kept = pg.jit(lambda total, x: total + x * 2)
    total, x, other = values(N), values(N, 1), values(N)
    for _ in range(3):
        total, other = added(total, x), kept(other, x)
    needed, total = peak_of(lambda: added(total, x))
    assert needed == 0
    needed, other = peak_of(lambda: kept(other, x))
    assert needed == 4 * N
    np.testing.assert_array_equal(total.numpy(), other.numpy())


def address(tensor: Tensor) -> int:
    held = tensor.cell.held()
    assert held is not None
    return int(held[0].memory.address)


@can_tell
def test_a_matrix_updated_by_a_product_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles at the edges of every size store each element once."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    for k, m, n in [(7, 5, 3), (16, 16, 16), (33, 65, 17), (64, 129, 100), (3, 200, 96)]:
        update = pg.jit(lambda w, x, g: w - 0.5 * (x.T @ g), donate="w")
        x, g = values(k * m).reshape(k, m), values(k * n, 2).reshape(k, n)
        w = values(m * n).reshape(m, n).contiguous()
        expected = w.numpy()
        for _ in range(4):
            w = update(w, x, g)
            expected = expected - np.float32(0.5) * (x.numpy().T @ g.numpy())
        before = address(w)
        w = update(w, x, g)
        assert address(w) == before or 4 * m * n < 4096
        expected = expected - np.float32(0.5) * (x.numpy().T @ g.numpy())
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_results_with_and_without_donating_are_the_same(device: str) -> None:
    def adam(p: Tensor, m: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        m, v = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
        return p - 0.1 * m / (v.sqrt() + 1e-3), m, v

    def reversed_sum(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x.flip(0) + y, x * 2, y + 1

    def rows(x: Tensor) -> tuple[Tensor, ...]:
        y = (x @ x).tanh()
        return y @ y, y.sum()

    def softmax(x: Tensor) -> tuple[Tensor, ...]:
        return (x.softmax(-1),)

    cases: list[tuple[Callable[..., tuple[Tensor, ...]], list[tuple[int, ...]]]] = [
        (adam, [(1000,)] * 4), (reversed_sum, [(5000,)] * 2), (rows, [(40, 40)]), (softmax, [(33, 70)]),
    ]  # fmt: skip
    for function, shapes in cases:
        plain, donating = pg.jit(function), pg.jit(function, donate=range(len(shapes)))
        for call in range(5):
            arrays = [np.sin(np.arange(np.prod(s)) + call + i).astype(np.float32).reshape(s) for i, s in enumerate(shapes)]
            expected = plain(*[Tensor(array) for array in arrays])
            for a, b in zip(expected, donating(*[Tensor(array) for array in arrays])):
                np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_what_somebody_still_reads_is_left_alone(device: str) -> None:
    step = pg.jit(lambda x: x + 1, donate=0)
    for _ in range(4):
        x = values(N)
        later = x * 3  # a graph that reads x
        copy = Tensor(x)
        step(x)
        np.testing.assert_array_equal(later.numpy(), values(N).numpy() * np.float32(3))
        np.testing.assert_array_equal(copy.numpy(), values(N).numpy())


def test_reading_a_donated_tensor_is_an_error_that_says_to_whom_it_went(device: str) -> None:
    @pg.jit(donate="x")
    def doubled(x: Tensor, y: Tensor) -> Tensor:
        return x * 2 + y

    for _ in range(3):
        x, y = values(4), values(4)
        view = x[1:]
        doubled(x, y)
        uses: list[Callable[[], object]] = [
            lambda x=x: x.numpy(), lambda x=x: x + 1, lambda x=x: x.shape, lambda view=view: view.tolist(),
            lambda x=x: x.assign(values(4)), lambda x=x, y=y: doubled(x, y), lambda x=x: repr(x),
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(
                JitError, match="this tensor was donated to doubled, whose results may be stored over it"
            ) as e:
                use()
            assert e.value.line is not None and e.value.line.file == __file__
        assert y.tolist() == values(4).tolist()


def test_tensors_in_containers_and_keywords_are_donated(device: str) -> None:
    @pg.jit(donate=("state",))
    def step(x: Tensor, state: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
        return {"a": [t + x for t in state["a"]]}

    state = {"a": [values(3), values(3, 1)]}
    for call in range(4):
        before = state
        state = step(values(3), state) if call % 2 else step(values(3), state=state)
        with pytest.raises(JitError, match="donated to step"):
            before["a"][1].tolist()
    np.testing.assert_allclose(state["a"][1].numpy(), values(3, 1).numpy() + 4 * values(3).numpy())


def test_an_argument_that_is_returned_moves_on(device: str) -> None:
    same = pg.jit(lambda x, y: (x, x + y), donate=0)
    for _ in range(4):
        x, total = same(values(8), values(8, 1))
        assert x.tolist() == values(8).tolist()
        np.testing.assert_allclose(total.numpy(), values(8).numpy() + values(8, 1).numpy())


def test_what_cannot_be_donated_is_an_error(device: str) -> None:
    x, state = values(4), values(4)
    twice = pg.jit(lambda a, b: a + b, donate=0)
    with pytest.raises(JitError, match=r"a donated argument of <lambda>, of shape \(4,\), is passed in two ways"):
        twice(x, x)
    with pytest.raises(JitError, match="is passed in two ways"):
        pg.jit(lambda a: a + state, donate=0)(state)
    with pytest.raises(JitError, match="a donated argument of <lambda> is a view of another tensor"):
        pg.jit(lambda a: a + 1, donate=0)(x[1:])

    @pg.jit(donate=0)
    def writes(a: Tensor) -> None:
        a += 1

    with pytest.raises(JitError, match=r"writes writes in place to a donated argument of shape \(4,\)"):
        writes(x)
    assert (x + state).tolist() == (values(4) * 2).tolist()


def test_a_parameter_that_is_not_there_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"jit: donate=2: add has the parameters 0 x, 1 y\."):

        @pg.jit(donate=(0, 2))
        def add(x: Tensor, y: Tensor) -> Tensor:
            return x + y


@pytest.mark.parametrize("donate", [None, 1.5])
def test_what_names_no_parameter_is_refused(donate: Any) -> None:
    with pytest.raises(ArgumentError, match=rf"jit: donate must be positions or names of parameters, got {donate}\."):
        pg.jit(lambda x: x, donate=donate)


@can_tell
def test_state_that_is_mixed_with_an_argument_of_its_shape_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    mean, x = values(N), values(N, 1)

    @pg.jit
    def average(x: Tensor) -> None:
        mean.assign(x * 0.1 + mean * 0.9)

    expected = mean.numpy()
    for _ in range(4):
        average(x)
        expected = x.numpy() * np.float32(0.1) + expected * np.float32(0.9)
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-6)
    assert peak_of(lambda: average(x) or mean)[0] == 0
