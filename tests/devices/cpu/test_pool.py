"""Helpers of the CPU: how plans reach them, when they look for one, sleep and end."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from picograd.devices.cpu import pool as cpu_pool
from picograd.devices.cpu.pool import SPIN_NS_MAX, Crew, new_line, pool
from picograd.devices.cpu.walker import ASLEEP, IDLE, JOB, LOCK, NEXT_LINE, PLANS, SLEEPS, SPIN_NS, Walker
from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse
from picograd.record import replace
from tests.cpu_programs import F32, Array, buffer_of, device, make_runner, scale_add

SHORT, LONG = 1 << 16, 1 << 18  # elements: shared by those that are awake; worth to wake them
SECONDS = 30  # for what comes soon
OTHER = 1 << 20  # the address of another plan


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Sets the number of threads; no helper is there before, nor after."""
    pool.stop()
    yield lambda count: monkeypatch.setenv("PICOGRAD_THREADS", str(count))
    pool.stop()


def walker() -> Walker:
    return device()._walker


def view(buffer: Buffer) -> Array:
    return np.ctypeslib.as_array((ctypes.c_float * buffer.numel).from_address(buffer.memory.address))


class Twice:
    """A plan: out = x * 2 + 1."""

    def __init__(self, numel: int):
        uses = [BufferUse(F32, numel, "input", 0), BufferUse(F32, numel, "output", 0)]
        self.runner = make_runner([(scale_add(8, numel), (0, 1))], uses)
        self.x, self.out = (buffer_of(np.zeros(numel, np.float32), F32) for _ in range(2))

    def run(self, value: float) -> bool:
        """Runs it; True if the result is right, wherever chunks begin and end."""
        view(self.x)[:] = value
        self.runner([self.x], [self.out], {})
        result = view(self.out)
        return bool((result[::1024] == 2 * value + 1).all() and result[-1] == 2 * value + 1)


def wait_until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


# ---- when helpers look, sleep and wake ----
def test_after_a_plan_a_helper_sleeps(fresh: Callable[[int], None]) -> None:
    fresh(2)
    plan = Twice(LONG)
    assert plan.run(1.0)
    (line,) = pool.lines
    assert wait_until(lambda: line[JOB] == ASLEEP)
    slept, used = line[SLEEPS], time.process_time()
    time.sleep(1.0)
    assert line[SLEEPS] == slept
    assert time.process_time() - used < 0.1  # a helper that looked for plans would have used a second


def test_a_plan_wakes_who_sleeps_if_that_is_worth_it(fresh: Callable[[int], None]) -> None:
    fresh(2)
    short, long = Twice(SHORT), Twice(LONG)
    assert short.run(1.0)
    assert not pool.helpers  # a short plan starts nobody
    assert long.run(2.0)
    (line,) = pool.lines
    assert wait_until(lambda: line[JOB] == ASLEEP)
    slept, helped = line[SLEEPS], line[PLANS]
    assert short.run(3.0)
    assert (line[JOB], line[SLEEPS], line[PLANS]) == (ASLEEP, slept, helped)
    assert wait_until(lambda: long.run(4.0) and line[PLANS] > helped)


@pytest.mark.parametrize(
    ("numel", "jobs", "woken"),
    [
        (SHORT, [ASLEEP, ASLEEP, ASLEEP], []),
        (LONG, [ASLEEP, ASLEEP, ASLEEP], [0]),
        (LONG, [OTHER, ASLEEP, ASLEEP], [1]),
        (LONG, [IDLE, ASLEEP, OTHER], [1]),
        (LONG + LONG // 2, [ASLEEP, ASLEEP, ASLEEP], [0, 1]),
    ],
)
def test_a_plan_wakes_as_many_as_have_work_enough(
    numel: int, jobs: list[int], woken: list[int], fresh: Callable[[int], None]
) -> None:
    """Each helper that is woken must bring more than its way costs; all that are awake may help.

    Nobody serves the lines, so what was done to them stays: who sleeps and is woken has its lock released.
    """
    fresh(4)
    plan = Twice(numel)
    assert plan.run(1.0)
    pool.stop()
    lines = [new_line(0) for _ in jobs]
    for line, job, behind in zip(lines, jobs, [*lines[1:], None]):
        line[JOB], line[NEXT_LINE] = job, 0 if behind is None else behind.ctypes.data
    walker().walk(plan.runner._state_address, lines[0].ctypes.data)
    assert [i for i, line in enumerate(lines) if cpu_pool._acquire(int(line[LOCK]), 0)] == woken
    assert [int(line[JOB]) for line in lines] == [IDLE if i in woken else job for i, job in enumerate(jobs)]


def test_helpers_look_for_plans_only_where_each_thread_has_a_processor(
    fresh: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(2)
    monkeypatch.setattr(cpu_pool, "num_processors", lambda: 2.0)
    assert Twice(LONG).run(1.0)
    assert [line[SPIN_NS] for line in pool.lines] == [SPIN_NS_MAX]
    fresh(3)
    assert Twice(LONG).run(2.0)
    assert [line[SPIN_NS] for line in pool.lines] == [0, 0]
    assert pool.lines[0][NEXT_LINE] == pool.lines[1].ctypes.data


@pytest.mark.parametrize("spin_ns", [0, 1000 * SPIN_NS_MAX * SECONDS], ids=["asleep", "looking for a plan"])
def test_a_helper_that_is_dismissed_ends(spin_ns: int) -> None:
    line = new_line(spin_ns)
    thread = threading.Thread(target=walker().serve, args=(line.ctypes.data,), daemon=True)
    thread.start()
    assert spin_ns or wait_until(lambda: line[JOB] == ASLEEP)
    walker().dismiss(line.ctypes.data)
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert line[JOB] == IDLE


def test_a_pool_that_was_stopped_starts_again(fresh: Callable[[int], None]) -> None:
    fresh(3)
    plan = Twice(LONG)
    for value in range(20):
        assert plan.run(value)
        threads = pool.helpers
        assert len(threads) == 2
        pool.stop()
        assert not any(thread.is_alive() for thread in threads)
        assert not pool.helpers


# ---- what is posted is taken, or taken back ----
@pytest.mark.parametrize(
    ("job", "after", "is_woken"),
    [(IDLE, IDLE, False), (ASLEEP, IDLE, True), (OTHER, OTHER, False), (OTHER | 1, OTHER | 1, False)],
    ids=["idle", "asleep", "another plan is posted", "at work on another plan"],
)
def test_a_leader_takes_back_what_no_helper_took(
    job: int, after: int, is_woken: bool, fresh: Callable[[int], None]
) -> None:
    fresh(2)
    plan = Twice(LONG)
    assert plan.run(1.0)
    pool.stop()
    line = new_line(0)  # nobody serves it
    line[JOB] = job
    view(plan.out)[:] = 0
    walker().walk(plan.runner._state_address, line.ctypes.data)
    assert (view(plan.out) == 3.0).all()
    assert line[JOB] == after
    assert bool(cpu_pool._acquire(int(line[LOCK]), 0)) == is_woken


def test_a_leader_waits_for_a_helper_at_work(fresh: Callable[[int], None]) -> None:
    """Where a run returns, no helper is at its plan: its memory may go."""
    fresh(2)
    plan = Twice(LONG)
    for value in range(2000):
        assert plan.run(value)
        at_work = plan.runner._state_address | 1
        assert all(line[JOB] not in (at_work, at_work - 1) for line in pool.lines)


def test_helpers_are_shared_by_plans_of_many_threads(fresh: Callable[[int], None]) -> None:
    """10,000 plans of 4 threads; each has the helpers that are free, or none."""
    fresh(3)
    failures: list[Any] = []

    def work(plan: Twice, first: int) -> None:
        failures.extend(value for value in range(first, first + 2500) if not plan.run(value))

    plans = [Twice(LONG if number < 2 else SHORT) for number in range(4)]
    workers = [threading.Thread(target=work, args=(plan, 3000 * k)) for k, plan in enumerate(plans)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
    assert sum(line[PLANS] for line in pool.lines) > 0


# ---- failures, and the end ----
def test_a_process_that_ends_starts_no_helpers(fresh: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(2)
    plan = Twice(LONG)
    monkeypatch.setattr(pool, "_is_over", True)
    assert plan.run(1.0)
    assert not pool.helpers


def test_a_plan_whose_helpers_cannot_be_started_says_so(
    fresh: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Crew, count: int) -> None:
        raise RuntimeError("can't start new thread")

    fresh(2)
    plan = Twice(LONG)
    monkeypatch.setattr(Crew, "grow", refuse)
    for is_long in (False, True):  # a long plan has a leader of its own
        plan.runner._effort = replace(plan.runner._effort, is_long=is_long, is_short=not is_long)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            plan.run(1.0)
    monkeypatch.undo()
    assert plan.run(2.0)


@pytest.mark.parametrize("is_started", [False, True])
def test_ctrl_c_while_a_leader_is_started(
    is_started: bool, fresh: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that has begun is waited for; one that has not never will."""
    fresh(2)
    plan = Twice(LONG)
    assert plan.run(1.0)
    plan.runner._effort = replace(plan.runner._effort, is_long=True, is_short=False)
    leaders: list[threading.Thread] = []
    start = threading.Thread.start

    def start_and_raise(self: threading.Thread) -> None:
        leaders.append(self)
        if is_started:
            start(self)
        raise KeyboardInterrupt

    for value in range(2, 102):
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start_and_raise)
            with pytest.raises(KeyboardInterrupt):
                plan.run(value)
        before = view(plan.out).copy()
        if is_started:
            leaders[-1].join(SECONDS)
        assert (view(plan.out) == before).all()
    assert plan.run(1.0)
