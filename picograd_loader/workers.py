"""Worker processes of a loader: each receives tasks and sends batches back.

Each worker has a connection of its own, so a failing worker does not block others: one whose connection ends before its
batch has arrived is dead. A worker ends when its connection does. Two threads of a worker read and write the connection, so
that neither side waits for the other to read.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import _children  # type: ignore[attr-defined]
from queue import SimpleQueue
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, WorkerError
from picograd.interrupts import AtDeath, held_back, later
from picograd.tensor.generator import manual_seed
from picograd_loader.fetch import Fetch, WorkerInfo, become_worker

WAIT_SECONDS = 5.0  # for a worker to end, and between a worker's checks whether its parent is alive
BATCH, ERROR, END = "batch", "error", "end of the data"


class WorkerTraceback(Exception):
    """The traceback of an error in a worker: the cause of the error in the loader's process."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


# ---- in a worker ----
def work(connection: Connection, fetch: Fetch, info: WorkerInfo, init: Callable[[int], None] | None) -> None:
    """Makes batches until the connection ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process handles interrupts, and ends this one
    os.environ["PICOGRAD_THREADS"] = "1"  # workers share the processors
    become_worker(info)
    manual_seed(info.seed)
    random.seed(info.seed)
    np.random.seed(info.seed % 2**32)
    tasks: SimpleQueue[Any] = SimpleQueue()
    done: SimpleQueue[bytes | None] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, tasks, os.getppid()), daemon=True).start()
    writer = threading.Thread(target=_write, args=(connection, done), daemon=True)
    writer.start()
    begun, failure = None, None
    try:
        if init is not None:
            init(info.id)
    except Exception as error:
        failure = _failure(error)
    stream: Iterator[Any] = iter(())
    while (task := tasks.get()) is not None:
        pass_number, number, numbers = task
        answer = failure
        if answer is None:
            try:
                if numbers is None and pass_number != begun:
                    begun, stream = pass_number, fetch.stream()
                batch = next(stream, END) if numbers is None else fetch.of(numbers)
                answer = (END, None) if batch is END else (BATCH, batch)
            except Exception as error:
                answer = _failure(error)
        failure = None
        done.put(_packed((pass_number, number, *answer)))
    done.put(None)
    writer.join()


def _failure(error: Exception) -> tuple[str, Any]:
    """Returns an error in a form that can be sent: itself, if it can be pickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error)).rstrip("\n") + "\n"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return ERROR, (None, type(error).__name__, text)
    return ERROR, (error, type(error).__name__, text)


def _packed(message: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # a batch that cannot be sent
        return pickle.dumps((*message[:2], *_failure(error)))


def _read(connection: Connection, tasks: SimpleQueue[Any], parent: int) -> None:
    """Reads tasks until the connection ends; then the worker has some time to end by itself."""
    with contextlib.suppress(EOFError, OSError):
        while os.getppid() == parent:
            if connection.poll(WAIT_SECONDS):
                tasks.put(pickle.loads(connection.recv_bytes()))
    tasks.put(None)
    time.sleep(WAIT_SECONDS)
    os._exit(1)


def _write(connection: Connection, done: SimpleQueue[bytes | None]) -> None:
    with contextlib.suppress(OSError):  # the connection has ended
        while (message := done.get()) is not None:
            connection.send_bytes(message)


# ---- in the process of the loader ----
class Workers:
    """Processes that make batches; they end with this object.

    Args:
      fetch:    makes a batch
      count:    number of processes
      seed:     seed of the first process; others get the following numbers
      init:     called in each process with its number, or None
      context:  start method: a name or a context of module multiprocessing; None: its default
    """

    def __init__(self, fetch: Fetch, count: int, seed: int, init: Callable[[int], None] | None, context: Any):
        self.processes = _Processes()
        self.passes = 0  # number of passes begun
        self._end = AtDeath(later.append, self.processes.close)
        chosen = multiprocessing.get_context(context) if context is None or isinstance(context, str) else context
        for number in range(count):
            info = WorkerInfo(number, count, seed + number, fetch.dataset)
            self.processes.start(chosen, (fetch, info, init))

    def __len__(self) -> int:
        return len(self.processes.connections)


class _Processes:
    """Processes with their connections."""

    def __init__(self) -> None:
        self.processes: list[Any] = []
        self.connections: list[Connection] = []
        self.is_inherited = False  # in a child, which inherits its parent's objects
        _all.add(self)  # until they are closed: the garbage collector would close connections once more

    def start(self, context: Any, arguments: tuple[Any, ...]) -> None:
        """Starts one more worker."""
        with held_back(), warnings.catch_warnings():
            # Python 3.12 and later warn of every fork of a process with threads; see picograd/interrupts.py.
            warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
            own, other = context.Pipe()
            process = context.Process(target=work, args=(other, *arguments), daemon=True, name="picograd-worker")
            self.connections.append(own)  # first, so that the child can close it
            process.start()
            other.close()
            self.processes.append(process)
            del other  # here, since connections have a finalizer in Python

    def send(self, worker: int, task: tuple[int, int, Any]) -> None:
        """Sends a worker a task.

        Raises:
          WorkerError: it has died.
        """
        self._check()
        try:
            self.connections[worker].send_bytes(pickle.dumps(task))
        except OSError:
            raise self.death(worker) from None

    def received(self, hold: held_back, timeout: float | None) -> list[Any]:
        """Waits for messages; returns those that have arrived, or [] after `timeout` seconds.

        Raises:
          WorkerError: a worker has died.
        """
        self._check()
        sources: dict[Any, int] = {connection: number for number, connection in enumerate(self.connections)}
        sources.update({process.sentinel: number for number, process in enumerate(self.processes)})
        ready = {sources[source] for source in hold.let_in(wait, list(sources), timeout)}
        found = []
        for worker in sorted(ready):
            try:
                if self.connections[worker].poll():
                    found.append(pickle.loads(self.connections[worker].recv_bytes()))
                    continue
            except (EOFError, OSError):
                pass
            raise self.death(worker)
        return found

    def _check(self) -> None:
        if self.is_inherited:
            raise WorkerError("DataLoader: its workers belong to the process that forked this one.")
        if not self.connections:
            raise WorkerError("DataLoader: its workers have ended; start another pass.")

    def death(self, worker: int) -> WorkerError:
        """Returns the error that describes how a worker ended; ends the others."""
        process = self.processes[worker]
        process.join(WAIT_SECONDS)
        code = process.exitcode
        how = "closed its connection" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was killed by signal {signal.Signals(-code).name}"
        self.close(patience=0.0)
        hint = None
        if code == -signal.SIGKILL:
            hint = "the system kills processes where memory is short: use fewer workers, or a smaller prefetch_factor."
        return WorkerError(f"DataLoader: worker {worker} (process {process.pid}) {how} before its batch came.", hint)

    def close(self, patience: float = WAIT_SECONDS) -> None:
        """Ends the workers; one that does not end within these seconds is terminated."""
        with held_back() as hold:
            while self.connections:
                self.connections.pop().close()
            until = time.monotonic() + patience
            while self.processes:
                hold.let_in(self.processes[-1].join, max(0.0, until - time.monotonic()))
                if self.processes[-1].exitcode is None:
                    self.processes[-1].terminate()
                    self.processes[-1].join()
                self.processes.pop()
        _all.discard(self)


_all: set[_Processes] = set()


def _let_go() -> None:
    """Makes a child drop its parent's workers: each ends when the other end of its connection is closed."""
    for inherited in _all:
        for connection in inherited.connections:
            connection.close()
        _children.difference_update(inherited.processes)  # else module multiprocessing would end them with this process
        inherited.processes, inherited.connections, inherited.is_inherited = [], [], True
    _all.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


class Pass:
    """The batches of one pass over the data, made by workers.

    Args:
      workers:   the workers
      tasks:     indices of the examples of each batch; None: workers iterate over their data sets
      ahead:     number of batches that each worker may have in progress
      timeout:   seconds to wait for a batch; 0: without limit
      in_order:  give batches in the order of tasks; else as they arrive
      stays:     keep the workers for another pass
    """

    def __init__(
        self, workers: Workers, tasks: Iterator[Any] | None, ahead: int, timeout: float, in_order: bool, stays: bool
    ) -> None:
        workers.passes += 1
        self._workers, self._number, self._tasks = workers, workers.passes, tasks
        self._timeout, self._in_order, self._stays = timeout, in_order, stays
        self._begun = 0  # number of tasks sent
        self._left: dict[int, int] = {}  # tasks whose batch has not been given, with their workers
        self._come: dict[int, tuple[str, Any]] = {}
        self._active = dict.fromkeys(range(len(workers)))  # in the order of their next task
        for _ in range(ahead * len(workers)):
            self._begin()

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Any:
        if self._number != self._workers.passes:
            raise ArgumentError("DataLoader: another pass with the same workers has started.")
        with held_back() as hold:  # else half of a message might be read
            while self._left:
                number = next(iter(self._left if self._in_order else [*self._come, -1]))
                if number not in self._come:
                    self._receive(hold)
                    continue
                worker, (kind, value) = self._left.pop(number), self._come.pop(number)
                if kind == END:
                    self._active.pop(worker, None)
                self._begin()
                if kind == BATCH:
                    return value
                if kind == ERROR:
                    self._raise(worker, *value)
            if not self._stays:
                self._workers.processes.close()
        raise StopIteration

    def _begin(self) -> None:
        """Sends the next worker the next task."""
        if not self._active:
            return
        numbers = None
        if self._tasks is not None:
            try:
                numbers = next(self._tasks)
            except StopIteration:
                return
        worker = next(iter(self._active))
        self._active[worker] = self._active.pop(worker)  # after the others
        self._workers.processes.send(worker, (self._number, self._begun, numbers))
        self._left[self._begun] = worker
        self._begun += 1

    def _receive(self, hold: held_back) -> None:
        """Waits for batches.

        Raises:
          WorkerError: a worker has died, or no batch arrived in time.
        """
        messages = self._workers.processes.received(hold, self._timeout or None)
        if not messages:
            self._workers.processes.close(patience=0.0)
            fact = f"DataLoader: no batch came within {self._timeout:g} seconds."
            raise WorkerError(fact, "use a longer timeout, or 0 for no limit.")
        for pass_number, number, *answer in messages:
            if pass_number == self._number:
                self._come[number] = (answer[0], answer[1])

    @staticmethod
    def _raise(worker: int, error: Exception | None, name: str, text: str) -> None:
        if error is None:
            error = WorkerError(f"DataLoader: worker {worker} raised {name}; its traceback is above.")
        raise error from WorkerTraceback(f"in worker {worker} of DataLoader:\n{text}")


