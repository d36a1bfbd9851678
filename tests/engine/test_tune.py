"""Tuning: times candidates only when asked to, remembers the winner, and changes no bits (G9)."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import Tensor
from picograd.codegen.opts import candidates
from picograd.engine import realize, tune
from picograd.engine.devices import compiler_for
from picograd.engine.watch import watch

pytestmark = pytest.mark.req("G9")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Returns a function that makes the next product as a new process would, with a cache of its own."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))

    def forget():
        monkeypatch.setattr(compiler_for("CPU"), "_made", {})
        monkeypatch.setattr(realize, "_plans", {})

    forget()
    return forget


def product(rng):
    a, b = (Tensor(rng.standard_normal((40, 40)).astype(np.float32)) for _ in range(2))
    return (a @ b).numpy()


def test_nothing_is_timed_unless_asked_for(fresh, rng):
    with watch() as counts:
        product(rng)
    assert counts.timed == 0


def test_the_winner_is_remembered_and_changes_no_bits(fresh, monkeypatch):
    expected = product(np.random.default_rng(0))
    fresh()
    monkeypatch.setenv("PICOGRAD_TUNE", "1")
    timed = []

    def third_wins(kernel, found, device, make):
        timed.extend(found)
        return [[2.0] * 9 if place != 2 else [1.0] * 9 for place in range(len(found))]

    monkeypatch.setattr(tune, "time_candidates", third_wins)
    for process in range(2):
        fresh()
        with watch() as counts:
            assert product(np.random.default_rng(0)).tobytes() == expected.tobytes()
        assert counts.timed == (len(timed) if process == 0 else 0)
    assert len(timed) >= 3
    (kernel,) = compiler_for("CPU")._made
    target = compiler_for("CPU").device.target
    remembered = tune.read_entry("tuning", name_of(kernel, target))
    assert remembered == str(candidates(kernel, target)[2]).encode()


def name_of(kernel, target):
    return tune.tuning_name(kernel, candidates(kernel, target), target)


def test_a_damaged_entry_is_timed_anew(fresh, monkeypatch, tmp_path, rng):
    monkeypatch.setenv("PICOGRAD_TUNE", "1")
    monkeypatch.setattr(tune, "time_candidates", lambda kernel, found, device, make: [[1.0] * 9 for _ in found])
    product(rng)
    (entry,) = (tmp_path / "tuning").glob("*/*")
    entry.write_bytes(entry.read_bytes()[:-3])
    fresh()
    with watch() as counts:
        product(rng)
    assert counts.timed > 0
    assert [path.name for path in (tmp_path / "tuning").glob("*/*")] == [entry.name]


def test_real_timing_runs_every_candidate(fresh, monkeypatch, rng):
    monkeypatch.setenv("PICOGRAD_TUNE", "1")
    monkeypatch.setattr(tune, "LEAST_SECONDS", 1e-5)
    expected = product(np.random.default_rng(0))
    (kernel,) = compiler_for("CPU")._made
    compiler = compiler_for("CPU")
    found = candidates(kernel, compiler.device.target)
    samples = tune.time_candidates(kernel, found, compiler.device, compiler.make)
    assert [len(sample) for sample in samples] == [tune.ROUNDS] * len(found)
    assert all(seconds > 0 for sample in samples for seconds in sample)
    assert product(np.random.default_rng(0)).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("other", "winner"),
    [
        ([0.5] * 9, 1),
        ([0.98] * 9, 0),  # within what another day may change
        ([0.5] * 7 + [1.5] * 2, 0),  # not faster in every round but one
        ([0.5] * 8 + [9.0], 1),
    ],
)
def test_the_best_guess_stays_unless_another_is_clearly_faster(other, winner):
    assert tune.winner_of([[1.0] * 9, other]) == winner
