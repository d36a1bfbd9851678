"""Ctrl-C: the first is noted, the second interrupts, and afterwards it means what it meant before."""

from __future__ import annotations

import signal
import threading

import pytest

from picograd_programs.train.loop import Interrupt


def test_first_ctrl_c_is_only_noted() -> None:
    with Interrupt() as interrupt:
        assert not interrupt.asked
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked


def test_second_ctrl_c_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt), Interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


def test_afterwards_ctrl_c_means_what_it_did() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupt():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_nothing_is_changed() -> None:
    handlers = []

    def enter() -> None:
        with Interrupt():
            handlers.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert handlers == [before]
