"""Tuning: times candidates only when asked to, remembers the winner, and changes no bits (G9)."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, road
from picograd.codegen.emit import candidates
from picograd.engine import choose as tune
from picograd.engine import realize
from picograd.engine.devices import compiler_for
from picograd.errors import JitError
from picograd.interrupts import Latest
from picograd.look import watch
from picograd.road import lower
from tests.host_compilers import kernels_asked_for

pytestmark = pytest.mark.req("G9")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Returns a function that makes the next product as a new process would, with a cache of its own."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))

    def forget():
        monkeypatch.setattr(compiler_for("CPU"), "_made", {})
        monkeypatch.setattr(compiler_for("CPU"), "entries", {})
        monkeypatch.setattr(compiler_for("CPU"), "_by_entry", {})
        monkeypatch.setattr(realize, "_plans", Latest(1024))
        monkeypatch.setattr(realize, "_scalars", type(realize._scalars)())  # products of other tests had other lengths
        monkeypatch.setattr(realize, "_families", type(realize._families)())

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
    timed, kernels = [], kernels_asked_for(monkeypatch)

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
    (kernel,) = kernels
    target = compiler_for("CPU").device.target
    remembered = tune.read_entry("tuning", name_of(kernel, target))
    assert remembered == str(candidates(kernel, target)[2]).encode()


def name_of(kernel, target):
    return tune.tuning_name(kernel, candidates(kernel, target), target)


def test_a_jitted_function_is_tuned_alone_where_it_asks_for_it(fresh, monkeypatch):
    monkeypatch.setattr(tune, "time_candidates", second_wins)
    lowered = []

    def noted(kernel, target, opts):
        lowered.append((kernel, opts))
        return lower(kernel, target, opts)

    monkeypatch.setattr(road, "lower", noted)

    def step(a, b):
        return (a @ b).tanh()

    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.standard_normal((40, 40)).astype(np.float32)) for _ in range(2))
    usual = pg.jit(step)
    expected = [usual(a, b).numpy().tobytes() for _ in range(3)][-1]
    with watch() as counts:
        tuned = pg.jit(tune=True)(step)
        assert [tuned(a, b).numpy().tobytes() for _ in range(3)] == [expected] * 3
    assert counts.timed >= 2
    (kernel,) = {kernel for kernel, opts in lowered}  # the product, with all that is made of it
    usual_opts, winner, *_ = candidates(kernel, compiler_for("CPU").device.target)
    assert [opts for _, opts in lowered] == [usual_opts, winner]
    with watch() as counts:  # what is not asked for is not timed, whatever was before
        assert pg.jit(lambda a, b: step(a, b))(a, b).numpy().tobytes() == expected
        assert step(a, b).numpy().tobytes() == expected
    assert counts.timed == 0


def second_wins(kernel, found, device, make):
    return [[2.0] * 9 if place != 1 else [1.0] * 9 for place in range(len(found))]


@pytest.mark.parametrize("kept", [True, False])
def test_a_second_process_times_nothing_and_takes_the_tuned_plan(fresh, monkeypatch, tmp_path, kept):
    monkeypatch.setattr(tune, "time_candidates", second_wins)
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")  # else every stage runs again
    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.standard_normal((40, 40)).astype(np.float32)).realize() for _ in range(2))
    results, stages = [], []
    for tuned in (True, False, True):  # what the usual plan keeps on disk is another entry
        fresh()
        with watch() as counts:
            results.append(pg.jit(lambda a, b: (a @ b).relu() @ b, tune=tuned)(a, b).numpy().tobytes())
        stages.append((counts.timed > 0, counts.scheduled))
        if not kept:
            shutil.rmtree(tmp_path / "plans")
    assert results == results[:1] * 3
    assert stages == [(True, 1), (False, 1), (False, 0 if kept else 1)]


def test_every_plan_is_tuned_and_kept_where_that_is_asked_of_all(fresh, monkeypatch):
    monkeypatch.setattr(tune, "time_candidates", second_wins)
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")
    monkeypatch.setenv("PICOGRAD_TUNE", "1")
    rng = np.random.default_rng(0)
    a, b = (Tensor(rng.standard_normal((40, 40)).astype(np.float32)).realize() for _ in range(2))
    stages = []
    for threads in "2", "2", "1":  # what is fastest on two may not be on one
        fresh()
        monkeypatch.setenv("PICOGRAD_THREADS", threads)
        with watch() as counts:
            ((a @ b).relu() @ b).realize()
        stages.append((counts.timed > 0, counts.scheduled))
    assert stages == [(True, 1), (False, 0), (True, 1)]


def test_a_kernel_with_one_way_is_not_made_again_for_a_tuned_function(fresh, monkeypatch):
    x = Tensor(np.ones((4, 5), np.float32)).realize()
    pg.jit(lambda x: (x * 2 + 1).sum(0))(x)
    with watch() as counts:
        pg.jit(lambda x: (x * 2 + 1).sum(0), tune=True)(x)
    assert (counts.lowered, counts.timed) == (0, 0)


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_whether_to_tune_is_true_or_false(value):
    with pytest.raises(JitError, match="tune must be True or False, got"):
        pg.jit(lambda x: x, tune=value)


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
    monkeypatch.setattr(tune, "SAMPLE_SECONDS_MIN", 1e-5)
    kernels = kernels_asked_for(monkeypatch)
    expected = product(np.random.default_rng(0))
    (kernel,), compiler = kernels, compiler_for("CPU")
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
