"""Ctrl-C: held back while something must not be left half done, and heard while a device is waited for.

In:    nothing
Out:   `held_back`, `Ends`, `whole_context`, `wait_until`
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager
from types import CodeType, FrameType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
# Module signal wraps them, to make enums of numbers and numbers of enums, which costs more than they do.
_handler_of, _set_handler = _signal.getsignal, _signal.signal
SPIN_SECONDS, PAUSE_SECONDS = 2e-3, 1e-4  # of asking again and again; then between two questions


class held_back:  # noqa: N801  # as it is called
    """Has an interrupt wait until the block ends, except in `let_in`. Other threads than the first are never interrupted.

    A `finally` or `__exit__` is not enough where something must be put back: an interrupt may come at its first step, or
    between the change that it shall undo and the `try`.

    Cost: 1 us.
    """

    __slots__ = ("_usual", "_waiting", "_is_open")

    def __enter__(self) -> held_back:
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


class Ends:
    """The two ends of a `with` block, which no interrupt cuts; one that comes in the block ends that at once.

    The block's __enter__ calls this object `ends`, calls begin(), and last tells an interrupt that waits: `if ends.waiting:
    ends.tell()`. Its __exit__ calls it `ends`, too, and comes to over() last. Not even the first step of that is cut.

    waiting:  interrupts that came at one of the ends

    Cost: 3 us a block.
    """

    __slots__ = ("waiting", "_enter", "_leave", "_usual", "_is_over")

    def begin(self, enter: CodeType, leave: CodeType) -> None:
        """Has an interrupt wait from here on where it comes in the code of __enter__ or of __exit__."""
        self._enter, self._leave, self._is_over = enter, leave, False
        self.waiting: list[tuple[int, FrameType | None]] = []
        self._usual = _handler_of(signal.SIGINT)
        try:
            if callable(self._usual):
                _set_handler(signal.SIGINT, self._hear)
        except ValueError:  # another thread than the first: it is not interrupted
            self._usual = None

    def _hear(self, number: int, frame: FrameType | None) -> None:
        here = frame
        while here is not None and not self._is_end(here):
            here = here.f_back
        if here is not None:
            self.waiting.append((number, frame))
        else:
            self._usual(number, frame)

    def _is_end(self, frame: FrameType) -> bool:
        # At the first step of __exit__ no block is named yet: it is the newest one's, and so of the block that hears.
        default = {self._enter: None, self._leave: self}
        return frame.f_code in default and frame.f_locals.get("ends", default[frame.f_code]) is self

    def tell(self) -> None:
        """Lets through what waits."""
        self._usual(*self.waiting.pop())

    def over(self) -> None:
        """Lets interrupts through again, and first what waits."""
        self._is_over, usual = True, self._usual
        if not callable(usual):
            return
        if _handler_of(signal.SIGINT) == self._hear:  # and not that of a block that began in this one and goes on
            while isinstance(outer := getattr(usual, "__self__", None), Ends) and outer._is_over:
                usual = outer._usual
            try:
                _set_handler(signal.SIGINT, usual)
            except ValueError:  # the block ends in another thread than it began in
                return
        if self.waiting:
            usual(*self.waiting[0])


class WholeContext(ContextDecorator, Generic[R]):
    """A context of contextlib's whose ends no interrupt cuts: what it puts back is put back."""

    def __init__(self, make: Callable[[], AbstractContextManager[R]]):
        self._make = make
        self._blocks: list[tuple[AbstractContextManager[R], Ends]] = []  # that have begun

    def __enter__(self) -> R:
        ends = Ends()
        ends.begin(WholeContext.__enter__.__code__, WholeContext.__exit__.__code__)
        try:
            context = self._make()
            result = context.__enter__()
            self._blocks.append((context, ends))
        except BaseException:
            ends.over()
            raise
        if ends.waiting:
            try:
                ends.tell()
            except BaseException:
                self.__exit__(*sys.exc_info())
                raise
        return result

    def __exit__(self, *error: Any) -> bool | None:
        context, ends = self._blocks.pop()
        try:
            return context.__exit__(*error)
        finally:
            ends.over()


def whole_context(function: Callable[P, Iterator[R]]) -> Callable[P, WholeContext[R]]:
    """Makes a context of a generator, as contextlib.contextmanager does; no interrupt cuts its ends."""
    make = contextmanager(function)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> WholeContext[R]:
        return WholeContext(functools.partial(make, *args, **kwargs))

    return call


def wait_until(is_done: Callable[[], bool], spin_seconds: float = SPIN_SECONDS) -> None:
    """Asks until it is done. Ctrl-C ends the waiting, and nothing else: the work of a device goes on.

    Args:
      spin_seconds:  of asking again and again; few for a device that shares the host's processors
    """
    start = time.perf_counter()
    while not is_done():
        if time.perf_counter() - start > spin_seconds:
            time.sleep(PAUSE_SECONDS)
