"""State that a jitted function replaces and does not read: written where it lies, if nothing can then go wrong (G10)."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import IndexingError
from picograd.look import watch
from picograd.transforms import replay
from picograd.transforms.buffer_reuse import COUNTS_TELL
from tests.host_compilers import needs_compiler

pytestmark = pytest.mark.req("G10")
can_tell = pytest.mark.skipif(not COUNTS_TELL, reason="this interpreter's reference counts tell nothing")
ROWS, WIDTH = 48, 80
F = pg.nn.functional


def values(*shape: int, start: float = 0.0) -> Tensor:
    return Tensor(np.sin(np.arange(np.prod(shape)) + start).astype(np.float32).reshape(shape)).realize()


def address(tensor: Tensor) -> int:
    held = tensor.cell.held()
    assert held is not None
    return int(held[0].memory.address)


def peak_of(call: Callable[[], object]) -> int:
    """Returns the bytes that a call needs at its peak beyond what is held before."""
    gc.collect()
    before = pg.memory_allocated()
    pg.reset_peak_memory_stats()
    kept = call()
    del kept
    return pg.max_memory_allocated() - before


class Filled:
    """A cache, and a jitted function that writes all of it: products of rows of a table.

    checks_more:  whether something is checked after the cache is written
    """

    def __init__(self, checks_more: bool) -> None:
        self.table, self.first, self.second = values(10, 64), values(64, 64, start=1), values(64, WIDTH, start=2)
        self.cache = pg.zeros(ROWS, WIDTH).clone().realize()

        @pg.jit
        def fill(rows: Tensor, target: Tensor) -> Tensor:
            self.cache[:] = (self.table[rows] @ self.first).softmax(-1) @ self.second
            return F.cross_entropy(self.cache, target) if checks_more else (self.cache.sum(1) * target).sum()

        self.call = fill

    def holds_rows_of(self, number: int, cache: Tensor | None = None) -> bool:
        """Whether the cache, or what it was before, is what a call with these rows makes."""
        logits = self.table.numpy()[rows_of(number)] @ self.first.numpy()
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        expected = weights / weights.sum(-1, keepdims=True) @ self.second.numpy()
        return np.allclose((self.cache if cache is None else cache).numpy(), expected, rtol=1e-4, atol=1e-4)


def rows_of(number: int) -> np.ndarray:
    return (np.arange(ROWS) * 7 + number) % 10


def given(number: int) -> tuple[Tensor, Tensor]:
    return Tensor(rows_of(number).astype(np.int32)), Tensor(np.arange(ROWS, dtype=np.int32))


@can_tell
def test_what_is_replaced_whole_is_not_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, weight, cache = values(ROWS, 64), values(64, WIDTH, start=1), pg.zeros(ROWS, WIDTH).clone().realize()

    @pg.jit
    def fill(x: Tensor) -> Tensor:
        cache[:] = x @ weight
        return x.sum()

    for _ in range(4):
        fill(x)
    where = address(cache)
    fill(x)
    assert peak_of(lambda: fill(x)) < cache.nbytes // 4
    assert address(cache) == where
    np.testing.assert_allclose(cache.numpy(), x.numpy() @ weight.numpy(), rtol=1e-5, atol=1e-5)


@can_tell
def test_a_check_that_runs_before_lets_the_memory_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    filled = Filled(checks_more=False)
    for number in range(3):
        filled.call(*given(number))
    where = address(filled.cache)
    for number in range(3):
        filled.call(*given(number))
        assert address(filled.cache) == where and filled.holds_rows_of(number)


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("place", ["CPU", "NUMPY", pytest.param("CUDASIM", marks=needs_compiler)])
@pytest.mark.parametrize("wrong", ["rows", "target"])
def test_after_an_error_the_state_is_as_it_was(wrong: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CHECK that fails before the cache is written, and one that fails after it."""
    monkeypatch.setenv("PICOGRAD_DEVICE", place)
    filled = Filled(checks_more=wrong == "target")
    for number in range(4):
        filled.call(*given(number))
        rows, target = given(number + 1)
        bad = Tensor(np.full(ROWS, 99, np.int32))
        for _ in range(2):
            with pytest.raises(IndexingError):
                filled.call(*((bad, target) if wrong == "rows" else (rows, bad)))
        assert filled.holds_rows_of(number)


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("place", ["CPU", "NUMPY", pytest.param("CUDASIM", marks=needs_compiler)])
@pytest.mark.parametrize("num_products", [6, 7])
def test_temporaries_in_the_memory_of_replaced_state_wait_for_the_checks(
    num_products: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", place)
    table, cache = values(10, 64), pg.zeros(ROWS, 64).clone().realize()
    weights = [values(64, 64, start=1 + i) for i in range(num_products)]  # with one weight it would be a loop

    @pg.jit
    def fill(rows: Tensor) -> None:
        x = table[rows]
        for weight in weights:
            x = (x @ weight).tanh()
        cache[:] = x

    def expected(number: int) -> np.ndarray:
        x = table.numpy()[rows_of(number)]
        for weight in weights:
            x = np.tanh(x @ weight.numpy())
        return x

    for number in range(4):
        with watch() as counts:
            fill(given(number)[0])
        if num_products % 2 == 0 and place != "NUMPY":
            assert counts.arena_nbytes == cache.nbytes  # and the other half in the cache
        for _ in range(2):
            with pytest.raises(IndexingError):
                fill(Tensor(np.full(ROWS, 99, np.int32)))
        np.testing.assert_allclose(cache.numpy(), expected(number), rtol=1e-4, atol=1e-4)


def test_who_reads_the_old_value_keeps_it(device: str) -> None:
    filled = Filled(checks_more=False)
    for number in range(5):
        filled.call(*given(number))
        later, copy = filled.cache * 1.0, Tensor(filled.cache)  # a graph that is not computed yet; and another cell
        view = filled.cache[:]
        filled.call(*given(number + 1))
        assert filled.holds_rows_of(number, later) and filled.holds_rows_of(number, copy)
        assert filled.holds_rows_of(number + 1, view) and filled.holds_rows_of(number + 1)


def test_state_that_was_assigned_a_graph_is_replaced_without_computing_it(device: str) -> None:
    x, cache = values(ROWS, 64), pg.zeros(ROWS, 64).clone().realize()

    @pg.jit
    def fill(x: Tensor) -> None:
        cache[:] = x @ x.T @ x

    for _ in range(2):
        fill(x)
    for _ in range(3):
        cache.assign(cache + 1.0)
        with watch() as counts:
            fill(x)
        assert counts.plans == 1
    np.testing.assert_allclose(cache.numpy(), x.numpy() @ x.numpy().T @ x.numpy(), rtol=1e-4, atol=1e-4)


def test_state_that_was_moved_to_another_dtype_is_not_written_where_it_was(device: str) -> None:
    class Kept(pg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", pg.zeros(64, 64).clone().realize())

    kept, x = Kept(), values(64, 64)

    @pg.jit
    def fill(x: Tensor) -> None:
        kept.cache[:] = x @ x

    for dtype in (pg.float32, pg.float16, pg.float64):
        kept.to(dtype)
        add = pg.jit(lambda: kept.cache.add_(1.0).sum())
        for _ in range(4):  # after these only the cache knows its memory
            add()
        for _ in range(3):
            fill(x)
        assert kept.cache.dtype is dtype  # as without jit: assigning keeps the dtype
        rounded = 1e-3 if dtype is pg.float16 else 1e-4
        np.testing.assert_allclose(kept.cache.numpy(), x.numpy() @ x.numpy(), rtol=rounded, atol=rounded)


@can_tell
def test_two_functions_write_one_cache_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """One replaces it, as reading a prompt does; the other writes into it, as each further token does."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    cache, row = pg.zeros(ROWS, 64).clone().realize(), values(64)

    @pg.jit
    def fill(x: Tensor) -> None:
        cache[:] = x @ x.T @ x

    @pg.jit
    def add() -> Tensor:
        cache[1] = cache[1] + row
        return cache[:2].sum()

    x = values(ROWS, 64)
    for _ in range(4):
        fill(x)
        add()
    gc.collect()
    held, where, expected = pg.memory_allocated(), address(cache), x.numpy() @ x.numpy().T @ x.numpy()
    for _ in range(3):
        fill(x)
        assert peak_of(lambda: fill(x)) < cache.nbytes
        add()
        add()
    assert pg.memory_allocated() <= held and address(cache) == where
    expected[1] += row.numpy() * 2
    np.testing.assert_allclose(cache.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_donated_argument_and_replaced_state_do_not_share(device: str) -> None:
    cache, weight = pg.zeros(64, 64).clone().realize(), values(64, 64)

    def step(x: Tensor) -> Tensor:
        cache[:] = x @ weight
        return x * 2.0 + 1.0

    donating = pg.jit(step, donate=0)
    for number in range(6):
        x = values(64, 64, start=number)
        expected = x.numpy()
        out = donating(x)
        np.testing.assert_allclose(out.numpy(), expected * 2 + 1, rtol=1e-6)
        np.testing.assert_allclose(cache.numpy(), expected @ weight.numpy(), rtol=1e-4, atol=1e-4)


def test_two_states_written_the_same_value_hold_it_each(device: str) -> None:
    x, first, second = values(64, 64), pg.zeros(64, 64).clone().realize(), pg.zeros(64, 64).clone().realize()

    @pg.jit
    def fill(x: Tensor) -> Tensor:
        product = x @ x
        first[:], second[:] = product, product
        return product

    for number in range(5):
        x = values(64, 64, start=number)
        out = fill(x)
        first += 1.0
        second += 2.0
        np.testing.assert_allclose(first.numpy(), out.numpy() + 1, rtol=1e-6)
        np.testing.assert_allclose(second.numpy(), out.numpy() + 2, rtol=1e-6)


@can_tell
def test_an_interrupt_waits_until_replaced_state_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr("picograd.devices.cpu.runner.LONG_WORK", 1)
    width = 512
    cache, weight = pg.zeros(width, width).clone().realize(), values(width, width)

    @pg.jit
    def fill(x: Tensor) -> None:
        for _ in range(40):
            x = (x @ weight).softmax(-1)
        cache[:] = x @ weight

    xs = [values(width, width, start=number) for number in range(2)]
    results = []
    for number in (0, 1, 0, 1):
        fill(xs[number])
        results.append(cache.numpy())
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        fill(xs[0])  # the plan has taken the cache again
        timer = threading.Timer(0.02, signal.raise_signal, [signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            while True:
                fill(xs[1])
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    np.testing.assert_array_equal(cache.numpy(), results[1])


@can_tell
def test_an_interrupt_finds_all_state_new_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """One state is written over, another gets memory of its own, since a graph reads its old value."""
    first, second = (pg.zeros(8).clone().realize() for _ in range(2))

    @pg.jit
    def step(x: Tensor) -> None:
        first.add_(x)
        second.add_(x)

    one = Tensor([1.0])
    for _ in range(3):
        step(one)
    reader, ran = second + 10, replay.run

    def interrupted(*given: Any) -> None:
        ran(*given)
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(replay, "run", interrupted)
            step(one)
    finally:
        signal.signal(signal.SIGINT, before)
    assert first.tolist() == second.tolist() == [4.0] * 8
    assert reader.tolist() == [13.0] * 8
    step(one)
    assert first.tolist() == second.tolist() == [5.0] * 8
