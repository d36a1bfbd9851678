"""How many bytes tensors hold, counted exactly: buffers, arenas, and nothing that is dead."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, DeviceError
from picograd.look import watch
from tests.helpers import forgotten


def held(nbytes_of: Callable[[], object]) -> int:
    """Returns how many more bytes are held after a call than before it."""
    gc.collect()
    before = pg.memory_allocated()
    kept = nbytes_of()
    after = pg.memory_allocated()
    del kept
    return after - before


def test_a_tensor_counts_its_own_bytes_until_it_dies(device: str) -> None:
    gc.collect()
    before = pg.memory_allocated()
    x = Tensor(np.zeros((3, 5), np.float32))
    assert pg.memory_allocated() == before + 60
    view = x.T[1:]
    assert pg.memory_allocated() == before + 60
    del x
    assert pg.memory_allocated() == before + 60
    del view
    assert pg.memory_allocated() == before


def test_a_result_counts_when_it_is_computed(device: str) -> None:
    x = Tensor(np.ones(10, np.float32))
    assert held(lambda: x + 1) == 0
    assert held(lambda: (x + 1).realize()) == 40


def test_the_peak_holds_what_was_alive_at_one_time(device: str) -> None:
    gc.collect()
    pg.reset_peak_memory_stats()
    before = pg.memory_allocated()
    for _ in range(5):
        Tensor(np.zeros(25, np.float32))
    assert pg.max_memory_allocated() == before + 100
    kept = [Tensor(np.zeros(25, np.float32)) for _ in range(5)]
    assert pg.max_memory_allocated() == before + 500
    kept.clear()
    assert pg.max_memory_allocated() == before + 500
    pg.reset_peak_memory_stats()
    assert pg.max_memory_allocated() == before


def test_the_arena_of_a_plan_counts_while_the_plan_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()  # plans of other tests, which would be let go with their memory while this one counts
    x = Tensor(np.ones((40, 40), np.float32))

    def plan(width: int) -> int:
        """Runs a plan with one temporary of (40, width) between two products; returns its peak, less its result."""
        weights = Tensor(np.ones((40, width), np.float32)), Tensor(np.ones((width, 40), np.float32))
        gc.collect()
        before = pg.memory_allocated()
        out = (x @ weights[0]) @ weights[1]
        pg.reset_peak_memory_stats()
        with watch() as counts:
            out.realize()
        assert counts.arena_nbytes == 160 * width
        assert pg.memory_allocated() == before + out.nbytes
        return pg.max_memory_allocated() - before - out.nbytes

    assert plan(16) == 160 * 16
    assert plan(32) == 160 * 32
    assert plan(16) == 160 * 16  # whatever ran before


def test_what_products_pack_counts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()  # lengths that other tests have had: a plan for any packs as much as the greatest needs
    a, b = Tensor(np.ones((300, 200), np.float32)), Tensor(np.ones((200, 250), np.float32))
    (a.T.contiguous().T @ b).realize()
    gc.collect()
    before = pg.memory_allocated()
    pg.reset_peak_memory_stats()
    assert pg.max_memory_allocated(scratch=True) == before
    out = (a @ b).realize()
    assert pg.max_memory_allocated() == before + out.nbytes
    assert before + out.nbytes + a.nbytes <= pg.max_memory_allocated(scratch=True) < before + out.nbytes + 2 * a.nbytes
    pg.reset_peak_memory_stats()
    assert pg.max_memory_allocated(scratch=True) == pg.max_memory_allocated() == before + out.nbytes


def test_a_device_that_does_not_tell_scratch_apart_counts_it_always() -> None:
    pg.reset_peak_memory_stats("NUMPY")
    x = Tensor(np.zeros(25, np.float32), device="NUMPY")
    assert pg.max_memory_allocated("NUMPY", scratch=True) == pg.max_memory_allocated("NUMPY") >= x.nbytes


def test_devices_are_counted_apart() -> None:
    before = pg.memory_allocated("NUMPY"), pg.memory_allocated("cpu")
    x = Tensor(np.zeros(25, np.float32), device="NUMPY")
    assert (pg.memory_allocated("NUMPY"), pg.memory_allocated("cpu")) == (before[0] + x.nbytes, before[1])


def test_a_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(DeviceError, match="ABACUS: this is not a device"):
        pg.memory_allocated("abacus")
    with pytest.raises(ArgumentError, match='device: needs a name such as "CPU", got 3'):
        pg.max_memory_allocated(3)  # type: ignore[arg-type]
