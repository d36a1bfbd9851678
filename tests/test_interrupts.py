"""Ctrl-C waits for the end of what must not be half done, and ends the waiting for a device."""

from __future__ import annotations

import contextlib
import gc
import inspect
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import picograd as pg
from picograd import Tensor, interrupts
from picograd.device import chosen_device
from picograd.devices.opencl import device as opencl
from picograd.engine.devices import compiler_for
from picograd.interrupts import held_back, wait_until
from picograd.ir.op import _replacing
from picograd.tensor import anomaly, modes
from picograd.tensor.cell import changing
from tests.on_devices import device_params


def test_an_interrupt_comes_after_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), held_back():
        os.kill(os.getpid(), signal.SIGINT)
        done.append("all of it")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_one_nothing_happens() -> None:
    with held_back():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_error_passes_through() -> None:
    with pytest.raises(ValueError, match="wrong"), held_back():
        raise ValueError("wrong")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_no_handlers_to_change() -> None:
    found = []

    def work() -> None:
        with held_back():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


# ---- waiting for a device ----
def test_waiting_is_asking_until_it_is_so() -> None:
    answers = iter([False, False, True])
    wait_until(lambda: next(answers), spin_seconds=0)
    assert next(answers, "all were asked for") == "all were asked for"


def test_an_interrupt_ends_the_waiting() -> None:
    asked = []

    def never() -> bool:
        asked.append(1)
        if len(asked) == 3:
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(KeyboardInterrupt):
        wait_until(never)
    assert len(asked) == 3


@pytest.mark.parametrize("device", device_params("OPENCL"))
def test_an_interrupt_while_opencl_is_waited_for_loses_nothing(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(is_done: object, spin: float) -> None:
        signal.raise_signal(signal.SIGINT)

    x = Tensor([1.0, 2.0], device=device)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(opencl, "wait_until", interrupted)
        (x * 3).tolist()
    assert (x * 3).tolist() == [3, 6] and x.add_(1).tolist() == [2, 3]


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("device", device_params("OPENCL", "CUDASIM"))
@pytest.mark.parametrize("is_replaced", [False, True])
def test_state_that_is_written_over_is_all_new_or_all_old(
    is_replaced: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt between two kernels of a step, the first of which has overwritten state: the step is done."""
    first, second = pg.zeros(3, device=device).realize(), pg.zeros(5, 7, device=device).realize()

    @pg.jit
    def step(x: Tensor) -> Tensor:
        first.copy_(x) if is_replaced else first.add_(x)
        second.add_(x.sum())
        return (second * first.sum()).cumsum(1)

    x = Tensor([1.0, 2.0, 3.0], device=device)
    for _ in range(3):
        step(x)
    opened, launched = compiler_for(device).device, []
    launch = opened._launch

    def interrupted(*args: object) -> None:
        launch(*args)
        launched.append(args)
        if len(launched) == 1:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(opened, "_launch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step(x)
    assert len(launched) > 1
    monkeypatch.undo()
    assert first.tolist() == ([1, 2, 3] if is_replaced else [4, 8, 12]) and second[0, 0].item() == 24
    step(x)
    assert second[0, 0].item() == 30


class OutOfTime(Exception):
    """The exception of a handler of SIGALRM, as programs with a limit of time have one."""


@pytest.mark.parametrize("kind", [OutOfTime, SystemExit, KeyboardInterrupt])
def test_what_a_handler_raises_in_a_long_plan_comes_when_no_thread_computes_it(kind: type[BaseException]) -> None:
    """Memory of a plan that still ran would be given to others."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise kind

    x = Tensor.rand(600, 600, device="CPU").realize()

    def work() -> None:
        product = x
        for _ in range(12):
            product = (product @ x) * 0.003
        product.sum().item()

    work()  # compiled
    start = time.perf_counter()
    work()
    took = time.perf_counter() - start
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(kind):
            signal.setitimer(signal.ITIMER_REAL, took / 4)
            for _ in range(100):
                work()
        assert [each.name for each in threading.enumerate() if each.name == "picograd-leader"] == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    work()


# ---- what is let in, and what waits ----
def test_what_is_let_in_is_ended_at_once_and_what_follows_is_not() -> None:
    done = []

    def work() -> None:
        done.append("begun")
        signal.raise_signal(signal.SIGINT)
        done.append("not reached")

    with pytest.raises(KeyboardInterrupt), held_back() as hold:
        try:
            hold.let_in(work)
        finally:
            signal.raise_signal(signal.SIGINT)
            done.append("put back")
    assert done == ["begun", "put back"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_does_not_raise_is_called_in_what_is_let_in_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with held_back() as hold:
            signal.raise_signal(signal.SIGINT)
            assert seen == []
            hold.let_in(lambda: [signal.raise_signal(signal.SIGINT) for _ in range(2)])
            assert len(seen) == 2
        assert len(seen) == 3
    finally:
        signal.signal(signal.SIGINT, before)


# ---- the ends of a block: a mode never stays on ----
MODULES = (modes, interrupts, sys.modules[pg.device.__module__], contextlib, anomaly, pg.random)
ENDS_OF_BLOCKS = {inspect.getfile(module) for module in MODULES}


def _usual_modes() -> tuple[Any, ...]:
    modes = pg.is_grad_enabled(), pg.is_autocast_enabled(), chosen_device(), pg.autograd.is_anomaly_enabled()
    return *modes, pg.initial_seed(), signal.getsignal(signal.SIGINT)


def _nested() -> None:
    with pg.no_grad(), pg.enable_grad():
        pass


def _one_block_twice() -> None:
    block = pg.no_grad()
    with block, block:
        pass


def _switched() -> None:
    with pg.set_grad_enabled(True):
        pass


def _lowered() -> None:
    with pg.autocast("cpu"):
        pass


def _on_a_device() -> None:
    with pg.device("numpy"):
        pass


def _looking() -> None:
    with pg.autograd.detect_anomaly():
        pass


def _with_other_numbers() -> None:
    with pg.random.fork_rng():
        pg.manual_seed(7)


def _raising() -> None:
    with pytest.raises(ValueError, match="wrong"), pg.no_grad():
        raise ValueError("wrong")


BLOCKS = [_nested, _one_block_twice, _switched, _lowered, _on_a_device, _looking, _with_other_numbers, _raising]


@pytest.mark.parametrize("block", BLOCKS)
def test_an_interrupt_at_any_step_of_the_ends_of_a_block_leaves_no_mode_on(block: Callable[[], None]) -> None:
    usual, number, stopped = _usual_modes(), 0, True
    while stopped:
        stopped, number = _interrupted_at(number, block), number + 1
        assert _usual_modes() == usual, f"after an interrupt at step {number}"
    assert number > 100


def _interrupted_at(number: int, block: Callable[[], None]) -> bool:
    """Raises an interrupt at a step, by its number, of the ends of blocks; returns whether there is such a step."""
    seen = itertools.count()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename not in ENDS_OF_BLOCKS:
            return None
        frame.f_trace_opcodes = True
        if next(seen) == number:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    try:
        sys.settrace(trace)
        block()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    is_raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert next(seen) <= number or not is_raised, f"the interrupt at step {number} is lost"
    return False


def test_an_interrupt_in_a_block_ends_it_at_once() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), pg.no_grad(), pg.autocast("cpu"):
        signal.raise_signal(signal.SIGINT)
        done.append("not reached")
    assert done == [] and pg.is_grad_enabled() and not pg.is_autocast_enabled()


def test_blocks_that_end_in_another_order_leave_the_usual_handler() -> None:
    for _ in range(3):
        first, second = pg.no_grad(), pg.autocast("cpu")
        first.__enter__()
        second.__enter__()
        first.__exit__()
        second.__exit__()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler and pg.is_grad_enabled()


def test_a_handler_that_does_not_raise_lets_a_block_begin_and_end() -> None:
    seen: list[int] = []
    before, number = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number)), 0
    try:
        while len(seen) == number:
            assert not _interrupted_at(number, _nested) and pg.is_grad_enabled()
            number += 1
    finally:
        signal.signal(signal.SIGINT, before)
    assert number > 100


def test_a_handler_that_is_set_in_a_block_stays() -> None:
    seen: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    try:
        with pg.no_grad():
            signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        signal.raise_signal(signal.SIGINT)
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


# ---- interrupts at any instant: none is lost, and none leaves anything half done ----
class Work:
    """Something that takes some ms, and a look at whether everything is as it was."""

    def run(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError


class Graphs(Work):
    """Graphs are built and dropped."""

    def run(self) -> None:
        x = pg.ones(4)
        for _ in range(40):
            y = (x * 2 + 1).exp().sum() + x.mean()
            del y

    def check(self) -> None:
        assert (pg.ones(4) * 2 + 1).sum().item() == 12.0


class Eager(Work):
    """Gradients are computed, and a parameter is updated: all or nothing of a step."""

    def __init__(self) -> None:
        self.net, self.x = pg.nn.Linear(3, 2), pg.ones(4, 3)
        self.optimizer = pg.optim.Adam(self.net.parameters())
        self.run()

    def run(self) -> None:
        for _ in range(3):
            self.optimizer.zero_grad()
            self.net(self.x).square().mean().backward()
            self.optimizer.step()

    def check(self) -> None:
        steps = [kept["step"].item() for kept in self.optimizer.state_dict()["state"].values()]
        assert len(set(steps)) == 1 and pg.is_grad_enabled()


class Writes(Work):
    """Elements are written in place."""

    def __init__(self) -> None:
        self.x = pg.zeros(8)

    def run(self) -> None:
        for i in range(8):
            self.x[i] += 1
        self.x.tolist()

    def check(self) -> None:
        values = self.x.tolist()
        assert values == sorted(values, reverse=True)  # each run goes through all of them in order


class Captured(Work):
    """A captured step writes two tensors and a count."""

    def __init__(self) -> None:
        self.count, self.sum = pg.tensor(0), pg.zeros(3)
        self.step = pg.jit(self._step)
        self.run()

    def _step(self) -> None:
        self.count.add_(1)
        self.sum.add_(1.0)

    def run(self) -> None:
        for _ in range(30):
            self.step()

    def check(self) -> None:
        assert self.sum.tolist() == [float(self.count.item())] * 3


class Traced(Work):
    """A function is traced, which puts gradients aside."""

    def __init__(self) -> None:
        self.weight = pg.ones(3, requires_grad=True)
        self.weight.sum().backward()

    def run(self) -> None:
        function = pg.jit(lambda x: (x * self.weight).sum())
        for _ in range(2):
            function(pg.ones(3))

    def check(self) -> None:
        assert self.weight.grad is not None and self.weight.grad.tolist() == [1.0, 1.0, 1.0]
        assert pg.rand(2).shape == (2,) and pg.is_grad_enabled()


class Saved(Work):
    """A file is written again and again."""

    def __init__(self) -> None:
        self.folder, self.state = tempfile.TemporaryDirectory(), {"x": pg.arange(100)}
        self.run()

    def run(self) -> None:
        pg.save(self.state, f"{self.folder.name}/state")

    def check(self) -> None:
        assert (pg.load(f"{self.folder.name}/state")["x"] == self.state["x"]).all().item()


WORKS: list[type[Work]] = [Graphs, Eager, Writes, Captured, Traced, Saved]


@pytest.fixture
def silent_collections() -> Iterator[None]:
    """Nothing in Python runs at a garbage collection, where an interrupt is dropped: Hypothesis measures them all."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = callbacks


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
@pytest.mark.parametrize("kind", WORKS, ids=lambda kind: kind.__name__)
def test_interrupts_at_any_instant(kind: type[Work], silent_collections: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand, 10,000 tries: python -c "from tests import test_interrupts as t; t.interrupted(t.Graphs(), 10000, 1)"."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    dropped: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)
    gc.collect()  # garbage of other tests may have finalizers in Python, which drop an interrupt
    arrived = interrupted(kind(), tries=40, seed=3)
    assert [each for each in dropped if each.exc_type is KeyboardInterrupt] == []
    assert arrived == 40
    for held in (changing, _replacing):  # by this thread, which could take it again
        with ThreadPoolExecutor(1) as other:
            assert other.submit(held.acquire, timeout=1.0).result()
            other.submit(held.release).result()


def interrupted(work: Work, tries: int, seed: int) -> int:
    """Returns how many of the interrupts at random instants arrived; looks at what each of them left."""
    draw, arrived = random.Random(seed), 0
    work.run()
    start = time.perf_counter()
    work.run()
    took = time.perf_counter() - start
    before = signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        for _ in range(tries):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + draw.random() * took)
                while signal.getitimer(signal.ITIMER_REAL)[0]:
                    work.run()
                time.sleep(1.0)  # until it comes: a busy machine may deliver it late
            except KeyboardInterrupt:
                arrived += 1
            work.check()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return arrived
