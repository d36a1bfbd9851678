"""Ctrl-C: held back while something must not be left half done, and heard while a device is waited for.

In:    nothing
Out:   `held_back`, `wait_until`
Used by: those who hand over memory, load code, or wait for a device; it imports nothing of picograd
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Module signal wraps them, to make enums of numbers and numbers of enums, which costs more than they do.
_handler_of, _set_handler = _signal.getsignal, _signal.signal
SPIN_SECONDS, PAUSE_SECONDS = 2e-3, 1e-4  # of asking again and again; then between two questions


class HeldBack:
    """A block until whose end an interrupt waits, except in `let_in`."""

    __slots__ = ("_usual", "_waiting", "_is_open")

    def __enter__(self) -> HeldBack:
        usual, self._usual, self._is_open = _handler_of(signal.SIGINT), None, False
        if callable(usual) and threading.current_thread() is threading.main_thread():
            self._waiting: list[tuple[int, FrameType | None]] = []
            _set_handler(signal.SIGINT, self._note)
            self._usual = usual
        return self

    def let_in(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function, which an interrupt ends at once; nothing of the block after it."""
        try:
            self._is_open = True
            return function(*args, **kwargs)
        finally:
            self._is_open = False  # NOTE: no call before this, where an interrupt might come

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_open and self._usual is not None:
            self._is_open = False
            self._usual(number, frame)
            self._is_open = True  # a handler of the user's that does not raise
        else:
            self._waiting.append((number, frame))

    def __exit__(self, *failure: object) -> None:
        usual = self._usual
        if usual is not None:
            _set_handler(signal.SIGINT, usual)
            if self._waiting:
                usual(*self._waiting[0])


def held_back() -> HeldBack:
    """Has an interrupt wait until the block ends. Other threads than the first are not interrupted anyway.

    A `finally` or `__exit__` is not enough where something must be put back: an interrupt may come at its first step, or
    between the change that it shall undo and the `try`.

    Cost: 1 us.
    """
    return HeldBack()


def wait_until(is_done: Callable[[], bool], spin_seconds: float = SPIN_SECONDS) -> None:
    """Asks until it is done. Ctrl-C ends the waiting, and nothing else: the work of a device goes on.

    Args:
      spin_seconds:  of asking again and again; few for a device that shares the host's processors
    """
    start = time.perf_counter()
    while not is_done():
        if time.perf_counter() - start > spin_seconds:
            time.sleep(PAUSE_SECONDS)
