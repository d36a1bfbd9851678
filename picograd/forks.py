"""Forks: a child finds locks free, and nothing half done by a thread that only the parent has.

In:    locks; methods that give a value once
Out:   `lock`, `rlock`: free in a child;  `whole_at_fork`, `forks_wait`: a fork waits until one is free, or a block ends;
       `cached_property`, which has no lock
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Self, TypeVar, overload

from picograd.living import LivingSet

T = TypeVar("T")
_locks: LivingSet[Any] = LivingSet()


def lock() -> threading.Lock:
    """Returns a lock that a forked child finds free: for moments, and data that may be found at any step of a change."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """Returns a lock that one thread may take several times, and that a forked child finds free."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _free_locks() -> None:
    for made in _locks.living():
        is_own = getattr(made, "_is_owned", None)  # a thread that forks with one keeps it in the child
        if is_own is None or not is_own():
            made._at_fork_reinit()  # as the locks of Python's own modules do


def whole_at_fork(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Has forks wait until nobody else holds a lock: for what must not be found half done.

    For locks of modules that are loaded with picograd: a fork that waits releases what was named meanwhile, too. What was
    named last is taken first, so who holds one may wait for those that were named before it.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)


_idle = threading.Condition()
_num_busy = 0  # threads in such a block


@contextmanager
def forks_wait() -> Iterator[None]:
    """Has forks wait until the block ends, in which many threads may be at once: for libraries with locks of their own."""
    global _num_busy
    with _idle:
        _num_busy += 1
    try:
        yield
    finally:
        with _idle:
            _num_busy -= 1
            if not _num_busy:
                _idle.notify_all()


def _wait_until_idle() -> None:
    _idle.acquire()
    while _num_busy:
        _idle.wait()


whole_at_fork(_wait_until_idle, _idle.release)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


# ---- attributes ----
class cached_property(Generic[T]):
    """An attribute whose value a method gives once; two threads that ask at once may both work it out.

    That of functools has, up to Python 3.11, one lock for all objects of a class, which a thread holds while it works: a
    process forked at that moment would wait for it for ever.

    >>> class Square:
    ...     side = 3
    ...     @cached_property
    ...     def area(self) -> int:
    ...         print("worked out")
    ...         return self.side ** 2
    >>> square = Square()
    >>> square.area, square.area
    worked out
    (9, 9)
    """

    def __init__(self, function: Callable[[Any], T]):
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        value: T = self.function(instance)
        return instance.__dict__.setdefault(self.name, value)  # type: ignore[no-any-return]
