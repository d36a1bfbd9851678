"""Threads that help to run plans: parked in Python, working in native code.

In:    jobs: a native function and its arguments
Out:   nothing; what a job computes is in memory
Called by: picograd/runtime/cpu_runner.py.    Next: picograd/runtime/cpu_memory.py

A thread waits on a queue and calls native code, which releases the interpreter's lock. After a fork the child has
no threads but its own: the pool belongs to a process and is made anew where it is first needed.
"""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class ThreadPool:
    """Threads of one process, started when first needed."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def post(self, job: Job, times: int = 1, most_waiting: int | None = None, at_least: int = 0) -> None:
        """Has `job` run by `times` threads, soon.

        most_waiting:  while that many jobs wait in the queue this one is dropped
        at_least:      threads there shall be
        """
        if len(self._threads) < max(times, at_least) or self._pid != os.getpid():
            self._start(max(times, at_least))
        for _ in range(times):
            if most_waiting is None or self._jobs.qsize() < most_waiting:
                self._jobs.put(job)

    def _start(self, count: int) -> None:
        with self._lock:
            if self._pid != os.getpid():
                self._jobs, self._threads, self._pid = queue.SimpleQueue(), [], os.getpid()
            while len(self._threads) < count:
                name = f"picograd-{len(self._threads)}"
                thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()

    def stop(self) -> None:
        """Ends the threads of this process; a later job starts new ones."""
        if self._pid != os.getpid():
            return
        with self._lock:
            threads, self._threads = self._threads, []
            for _ in threads:
                self._jobs.put(None)
        for thread in threads:
            thread.join(timeout=1.0)

    def after_fork(self) -> None:
        """Forgets a lock that a thread of the parent may have held."""
        self._lock = threading.Lock()


def _serve(jobs: queue.SimpleQueue[Job | None]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        try:
            job()
        except Exception as error:  # a job that fails must not cost a thread; whoever posted it sees no result
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, None)))


pool = ThreadPool()
atexit.register(pool.stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=pool.after_fork)
