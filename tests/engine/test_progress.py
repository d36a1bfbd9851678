"""The line on the terminal while something takes long: after a second, on a terminal, and never in a pipe."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import numpy as np
import pytest

from picograd import Tensor
from picograd import look as progress
from picograd.engine.compiler import Backend
from picograd.engine.devices import compiler_for
from picograd.ir.stages import Binary, Source
from picograd.look import WIPE, telling


class Terminal(io.StringIO):
    """A terminal, which says when it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.was_written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        count = super().write(text)
        self.was_written.set()
        return count


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes standard error a terminal of impatient people. NOTE: not as a fixture; pytest has its own after these."""
    found = Terminal()
    monkeypatch.delenv("PICOGRAD_QUIET", raising=False)
    monkeypatch.setattr("sys.stderr", found)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.001)
    return found


def test_a_line_says_what_is_going_on_and_is_wiped_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with telling(lambda: "3 of 7 kernels are compiled"):
        assert terminal.was_written.wait(30)
    assert terminal.getvalue().startswith(f"{WIPE}picograd: 3 of 7 kernels are compiled, 0 s")
    assert terminal.getvalue().endswith(WIPE)


def test_nothing_is_said_of_what_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 3600.0)
    with telling(lambda: "this is never said"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("reason", ["quiet", "pipe", "none"])
def test_nothing_is_said_where_nobody_wants_it(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_terminal(monkeypatch)
    if reason == "quiet":
        monkeypatch.setenv("PICOGRAD_QUIET", "1")
    else:
        monkeypatch.setattr("sys.stderr", io.StringIO() if reason == "pipe" else None)
    before = threading.active_count()
    with telling(lambda: "this is never said"):
        assert threading.active_count() == before


def test_an_error_passes_and_the_line_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    with pytest.raises(ValueError), telling(lambda: "something"):
        assert terminal.was_written.wait(30)
        raise ValueError
    assert terminal.getvalue().endswith(WIPE)


def test_kernels_that_are_compiled_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.setenv("PICOGRAD_THREADS", "1")
    compiler = compiler_for("CPU")
    usual: Callable[..., Binary] = compiler.backend.compile

    def patient(source: Source, target: object) -> Binary:
        terminal.was_written.clear()
        assert terminal.was_written.wait(30)
        return usual(source, target)

    monkeypatch.setattr(compiler, "backend", Backend(compiler.backend.render, patient))
    x = Tensor(np.ones((5, 4111), np.float32))
    (x.sum(1).sin() @ Tensor(np.ones((5, 3), np.float32))).realize()
    assert "kernels are compiled, 0 s" in terminal.getvalue()
