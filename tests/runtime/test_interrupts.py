"""Ctrl-C waits for the end of what must not be half done, and ends the waiting for a device."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine.devices import compiler_for
from picograd.runtime import opencl
from picograd.runtime.interrupts import held_back, wait_until
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
    wait_until(lambda: next(answers), spin=0)
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
