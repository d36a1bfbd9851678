"""Ctrl-C that lets the step in progress end, so that no half-made update is ever saved.

In:    SIGINT
Out:   `Interrupt.asked`, which the training loop looks at between two steps
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While it is entered, the first Ctrl-C only sets `asked`; a second one raises KeyboardInterrupt as usual.

    asked:  True once Ctrl-C was pressed

    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: Any = None

    def __enter__(self) -> Interrupt:
        # Python lets only the main thread set handlers; elsewhere Ctrl-C keeps its usual meaning.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
