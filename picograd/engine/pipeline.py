"""Overlaps two halves of a job: Python begins the next one while other threads finish those begun before, then helps them.

In:    items, and what begins one
Out:   what finishing gives, in the order of the items
Called by: engine/compiler.py, devices/cpu/backend.py.    Next: picograd/engine/watch.py

It pays where the second half leaves Python alone, as LLVM and NVRTC do. Threads live as long as a call.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from picograd.forks import lock

Item = TypeVar("Item")
Result = TypeVar("Result")

TURN_SECONDS = 0.0002  # how long a thread that comes back from a compiler waits for Python at most
_running = lock()


def pipelined(
    items: Sequence[Item], begin: Callable[[Item], Callable[[], Result]], num_threads: int
) -> Iterable[Result]:
    """Returns begin(item)() for each item: `begin` runs here, what it returns on any thread.

    The error raised is that of the first item in order, as if one were done after the other. No thread is started
    for a single item, nor while another call has some: an item is then begun when its result is asked for.
    """
    if len(items) < 2 or num_threads < 1 or not _running.acquire(blocking=False):
        return (begin(item)() for item in items)
    try:
        with _quick_turns():
            return _overlapped(items, begin, num_threads)
    finally:
        _running.release()


def ahead(make: Callable[[], Result]) -> Callable[[], Result]:
    """Begins something on another thread; what is returned waits for it, and gives its result.

    Where that failed, or no thread is granted, it is done by the one that asks, who gets the error. A fork waits for it: a
    child has no such thread.
    """
    results: list[Result] = []

    def run() -> None:
        with suppress(Exception):
            results.append(make())

    thread = threading.Thread(target=run, name="picograd_ahead")
    started = _start([thread])
    if started and hasattr(os, "register_at_fork"):
        os.register_at_fork(before=thread.join)

    def result() -> Result:
        _wait_for(started)
        if not results:
            results.append(make())
        return results[0]

    return result


def _overlapped(
    items: Sequence[Item], begin: Callable[[Item], Callable[[], Result]], num_threads: int
) -> list[Result]:
    """Begins the items in order here while other threads finish them, then helps; raises the error of the first."""
    results: dict[int, Result] = {}
    errors: dict[int, Exception] = {}
    begun: SimpleQueue[tuple[int, Callable[[], Result]] | None] = SimpleQueue()

    def finish_all() -> None:
        while (job := begun.get()) is not None:
            number, finish = job
            try:
                results[number] = finish()
            except Exception as error:
                errors[number] = error

    names = [f"picograd_compile_{i}" for i in range(min(num_threads, len(items)))]
    threads = _start([threading.Thread(target=finish_all, name=name, daemon=True) for name in names])
    try:
        for number, item in enumerate(items):
            try:
                begun.put((number, begin(item)))
            except Exception as error:  # raised below, unless an item before it fails too
                errors[number] = error
            if errors:
                break
        begun.put(None)
        _tell_the_end(begun, threads)
        finish_all()  # what is left, beside the threads
        _wait_for(threads)
    except BaseException:  # an interrupt, which may come while the last are waited for
        _drop(begun)
        _tell_the_end(begun, threads)
        _wait_for(threads)
        raise
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(items))]


def _start(threads: Sequence[threading.Thread]) -> list[threading.Thread]:
    """Starts threads, and returns those that this process is granted."""
    started: list[threading.Thread] = []
    with suppress(RuntimeError):
        for thread in threads:
            thread.start()
            started.append(thread)
    return started


def _tell_the_end(jobs: SimpleQueue[Any], threads: Sequence[threading.Thread]) -> None:
    """Has each thread end when it comes here."""
    for _ in threads:
        jobs.put(None)


def _wait_for(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.join()


def _drop(jobs: SimpleQueue[Any]) -> None:
    """Takes out what nobody has begun to finish."""
    while not jobs.empty():
        with suppress(Empty):  # a thread was faster
            jobs.get_nowait()


@contextmanager
def _quick_turns() -> Iterator[None]:
    """Has threads take turns quickly: by default one waits 5 ms for Python after each call of a compiler."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN_SECONDS))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
