"""Children forked beside threads that compute: they find locks free and nothing half done."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import picograd as pg
from picograd.interrupts import cached_property, lock, rlock, whole_at_fork
from picograd.loading import importing, load_late

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
NUM_FORKS, LIMIT_S = 8, 60.0


@pytest.fixture(autouse=True)
def threads_may_be_there() -> Iterator[None]:
    """Python 3.12 and later warn of a fork of a process with threads, which is what is tested."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
        yield


def forked(work: Callable[[], None]) -> int | None:
    """Runs a function in a child; returns its exit code, None where it hangs."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def in_a_thread(holds: Any, held: threading.Event, release: threading.Event) -> threading.Thread:
    def work() -> None:
        with holds:
            held.set()
            release.wait()

    thread = threading.Thread(target=work)
    thread.start()
    held.wait()
    return thread


@pytest.mark.parametrize("make", [lock, rlock])
def test_a_lock_that_a_thread_holds_is_free_in_a_child(make: Callable[[], threading.Lock]) -> None:
    made, held, release = make(), threading.Event(), threading.Event()
    thread = in_a_thread(made, held, release)

    def take() -> None:
        assert made.acquire(timeout=1.0)

    try:
        assert forked(take) == 0
    finally:
        release.set()
        thread.join()


def test_a_lock_that_the_forking_thread_holds_stays_its_own() -> None:
    made = rlock()
    with made:

        def release() -> None:
            made.release()

        assert forked(release) == 0


def test_a_fork_waits_for_who_must_not_be_found_in_the_middle() -> None:
    made, held, release, order = threading.RLock(), threading.Event(), threading.Event(), []
    whole_at_fork(made.acquire, made.release)
    thread = in_a_thread(made, held, release)

    def let_go() -> None:
        order.append("let go")
        release.set()

    timer = threading.Timer(0.05, let_go)
    timer.start()
    assert forked(lambda: None) == 0 and order == ["let go"]
    timer.join()
    thread.join()


def test_a_module_that_a_thread_loads_is_whole_in_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slowly_loaded.py").write_text("import time\nbegun.set()\ntime.sleep(0.1)\nvalue = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    begun = threading.Event()
    monkeypatch.setattr("builtins.begun", begun, raising=False)
    thread = threading.Thread(target=load_late, args=("slowly_loaded",))
    thread.start()
    begun.wait()

    def look() -> None:
        assert load_late("slowly_loaded").value == 3

    assert forked(look) == 0
    thread.join()
    assert importing.acquire(timeout=1.0)
    importing.release()
    del sys.modules["slowly_loaded"]


def test_an_attribute_that_a_thread_works_out_can_be_worked_out_in_a_child() -> None:
    begun, release = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def value(self) -> int:
            begun.set()
            release.wait(0 if in_child else LIMIT_S)
            return 3

    in_child, slow = False, Slow()
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    begun.wait()

    def look() -> None:
        nonlocal in_child
        in_child = True
        assert Slow().value == slow.value == 3

    assert forked(look) == 0
    release.set()
    thread.join()
    assert slow.value == 3 and isinstance(Slow.value, cached_property)


# ---- all of picograd ----
state = pg.zeros(4)


@pg.jit
def step(x: pg.Tensor) -> pg.Tensor:
    state.mul_(0.5).add_(x)
    return state.sum()


def computes(draw: random.Random) -> None:
    (pg.rand(20, 20) @ pg.rand(20, 20) + draw.random()).sum().item()


def compiles(draw: random.Random) -> None:
    (pg.ones(draw.randrange(2, 4000)) * draw.random()).exp().sum().item()


def traces(draw: random.Random) -> None:
    function, factor = pg.jit(lambda x: (x * factor + 1).sum()), draw.randrange(50)
    for _ in range(3):
        function(pg.ones(5))


def trains(draw: random.Random) -> None:
    step(pg.ones(4)).item()


def builds(draw: random.Random) -> None:
    for _ in range(20):
        (pg.ones(3) * draw.random()).exp()


WORK = (computes, compiles, traces, trains, builds)


@pytest.mark.filterwarnings("ignore::picograd.PlanningWarning")
def test_children_forked_beside_threads_that_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand with 1,000 forks: python -c "from tests import test_forks as t; t.beside_threads(1000, seed=1)"."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    assert beside_threads(NUM_FORKS, seed=7) == []


def beside_threads(num_forks: int, seed: int) -> list[int | None]:
    """Returns the exit codes of children that were not well, None for one that hung."""
    draw, stop, before = random.Random(seed), threading.Event(), sys.getswitchinterval()
    for _ in range(3):
        trains(draw)  # one thread at a time may trace

    def loop(work: Callable[[random.Random], None], own: random.Random) -> None:
        while not stop.is_set():
            work(own)

    def child() -> None:
        for work in draw.sample(WORK, 2):
            work(draw)
        assert (pg.ones(4) * 2).sum().item() == 8.0

    threads = [threading.Thread(target=loop, args=(work, random.Random(draw.random()))) for work in WORK]
    sys.setswitchinterval(1e-4)
    try:
        for thread in threads:
            thread.start()
        codes = []
        for _ in range(num_forks):
            time.sleep(draw.random() * 0.02)
            codes.append(forked(child))
        return [code for code in codes if code != 0]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)
