"""Kernels are compiled while Python writes the next ones: same order, same errors, no thread left behind (issue 3.5)."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import compiler as pipeline
from picograd.engine.compiler import Backend, ahead, pipelined
from picograd.engine.devices import compiler_for
from picograd.errors import CompileError
from picograd.ir.stages import Binary, Source


def squared(item: int) -> Callable[[], int]:
    return lambda: item * item


def failing_at(*numbers: int) -> Callable[[int], int]:
    def check(item: int) -> int:
        if item in numbers:
            raise ValueError(f"item {item}")
        return item

    return check


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    assert list(pipelined(range(7), squared, threads)) == [0, 1, 4, 9, 16, 25, 36]
    assert list(pipelined([], squared, threads)) == []


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize(("begins", "finishes", "first"), [((2,), (4,), 2), ((4,), (2,), 2), ((), (5, 3), 3)])
def test_the_error_is_that_of_the_first_item(
    threads: int, begins: tuple[int, ...], finishes: tuple[int, ...], first: int
) -> None:
    check, finish = failing_at(*begins), failing_at(*finishes)

    def begin(item: int) -> Callable[[], int]:
        check(item)
        return lambda: finish(item)

    with pytest.raises(ValueError, match=f"item {first}"):
        list(pipelined(range(7), begin, threads))


def test_the_second_half_runs_while_the_next_item_begins() -> None:
    second_began = threading.Event()

    def begin(item: int) -> Callable[[], bool]:
        if item == 1:
            second_began.set()
        return lambda: second_began.wait(30)  # the first item waits for the second to begin

    assert list(pipelined(range(2), begin, 1)) == [True, True]


def test_who_begins_the_items_helps_to_finish_them() -> None:
    together = threading.Barrier(2, timeout=30)
    assert sorted(pipelined(range(2), lambda _: together.wait, 1)) == [0, 1]  # each waits for the other


def test_no_thread_and_no_setting_is_left_behind() -> None:
    turn, before = sys.getswitchinterval(), threading.active_count()
    pipelined(range(5), squared, 3)
    with pytest.raises(ValueError):
        pipelined(range(5), lambda item: squared(failing_at(3)(item)), 3)
    assert threading.active_count() == before
    assert sys.getswitchinterval() == turn


def test_an_interrupt_drops_what_nobody_has_begun_to_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, finished = threading.Event(), []
    drop = pipeline._drop

    def begin(item: int) -> Callable[[], None]:
        if item == 3:
            raise KeyboardInterrupt
        return lambda: finished.append(item) if item or dropped.wait(30) else None

    monkeypatch.setattr(pipeline, "_drop", lambda jobs: (drop(jobs), dropped.set()))
    with pytest.raises(KeyboardInterrupt):
        pipelined(range(5), begin, 1)
    assert finished in ([], [0])  # the first, if the thread had it already


def test_a_call_beside_another_starts_no_threads() -> None:
    def begin(item: int) -> Callable[[], list[int]]:
        return lambda: sorted(pipelined(range(2), lambda _: together.wait, 3))

    together = threading.Barrier(2, timeout=30)
    assert list(pipelined(range(1), begin, 3)) == [[0, 1]]  # the only call has threads, of which each waits for another
    own = pipelined(range(2), lambda _: lambda: list(pipelined(range(2), who_runs, 1)), 1)
    assert all(first == second for first, second in own)


def who_runs(_: int) -> Callable[[], int]:
    return threading.get_ident


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_forked_meanwhile_has_threads_of_its_own() -> None:
    def begin(item: int) -> Callable[[], int]:
        if item == 1:
            child = os.fork()
            if child == 0:
                os._exit(0 if list(pipelined(range(3), squared, 2)) == [0, 1, 4] else 1)
            assert os.waitpid(child, 0)[1] == 0
        return squared(item)

    assert list(pipelined(range(3), begin, 1)) == [0, 1, 4]


@pytest.mark.req("B6")
def test_of_many_kernels_that_fail_the_first_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.setenv("PICOGRAD_THREADS", "3")
    compiler = compiler_for("CPU")
    compile_source = compiler.backend.compile

    def reject_reductions(source: Source, target: object) -> Binary:
        if source.name.startswith("reduce"):
            raise CompileError(f"{source.name} is rejected.")
        return compile_source(source, target)

    monkeypatch.setattr(compiler, "backend", Backend(compiler.backend.render, reject_reductions))
    x = Tensor(np.ones((5, 4099), np.float32))
    first = (x * 2).sum(1)  # the first that fails
    y = (x.T @ x).sin()
    second = y.max(0).values
    with pytest.raises(CompileError, match=r"reduce_5_4099 is rejected[^$]*the first that fails"):
        pg.realize([y, first, second])


def test_an_interrupt_while_the_last_are_waited_for_drops_what_nobody_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, finished = threading.Event(), []
    drop, end = pipeline._drop, pipeline._tell_the_end

    def interrupted(jobs: object, threads: object) -> None:
        monkeypatch.setattr(pipeline, "_tell_the_end", end)
        raise KeyboardInterrupt

    def begin(item: int) -> Callable[[], None]:
        return lambda: finished.append(item) if item or dropped.wait(30) else None

    monkeypatch.setattr(pipeline, "_tell_the_end", interrupted)
    monkeypatch.setattr(pipeline, "_drop", lambda jobs: (drop(jobs), dropped.set()))
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        pipelined(range(5), begin, 1)
    assert finished in ([], [0])
    assert threading.active_count() == before


# ---- one thing ahead of time ----
def test_what_is_made_ahead_is_made_once_beside_the_one_that_asks() -> None:
    begun, goes_on = threading.Event(), threading.Event()
    made: list[int] = []

    def make() -> int:
        begun.set()
        goes_on.wait(10)
        made.append(threading.get_ident())
        return 3

    ask = ahead(make)
    assert begun.wait(10) and not made
    goes_on.set()
    assert [ask(), ask()] == [3, 3]
    assert len(made) == 1 and made[0] != threading.get_ident()


def test_who_asks_gets_the_error_of_what_is_made_ahead() -> None:
    def fail() -> int:
        raise CompileError("llvm: no")

    ask = ahead(fail)
    with pytest.raises(CompileError, match="llvm: no"):
        ask()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_waits_for_what_is_made_ahead() -> None:
    parent = os.getpid()

    def make() -> bool:
        time.sleep(0.05)
        return os.getpid() == parent

    ask = ahead(make)
    child = os.fork()
    if child == 0:
        os._exit(0 if ask() else 1)
    assert os.waitpid(child, 0)[1] == 0
