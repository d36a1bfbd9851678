"""Runs tests on several processes: forks of the one that has collected them, each of which takes a file at a time.

Importing and collecting are done once, before. Numbers of files are in a pipe, from which whichever process is free reads
the next one; the reports of a test are sent to the first process when it has ended, which prints and counts them.
A process that ends in the middle of a test has failed it, and another one runs what is left of its file. No device may be
opened while tests are collected, for a fork cannot use it: the mark `on` asks when a test begins (tests/on_devices.py).

Where no path is named there are as many processes as processors and one more, since one of them mostly waits, nine at most;
`-n N` says another number, `-n 0` runs all in the first process.
"""

from __future__ import annotations

import math
import os
import signal
import struct
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, pairwise
from mmap import mmap
from multiprocessing.connection import Pipe, wait
from traceback import format_exc
from typing import Any

import pytest

from picograd.config import num_processors

PROCESSES_MAX = 9
NUMBER = struct.Struct("i")
NONE = -1


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option -n. Small letters are pytest's own for `addoption`."""
    parser.getgroup("picograd")._addoption("-n", type=int, dest="processes", metavar="N", help="run on N processes")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Chooses the number of processes."""
    if config.option.processes is None:
        is_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.usepdb
        config.option.processes = min(PROCESSES_MAX, 1 + math.ceil(num_processors())) if is_all else 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Runs the files, those of most tests first; None, for pytest's own loop, where one process is enough."""
    files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
    count = min(session.config.option.processes, len(files))
    if count < 2 or session.testsfailed or session.config.option.collectonly:
        return None
    Processes(session, sorted(files, key=len, reverse=True), count).run()
    return True


class Processes:
    """Processes that run tests, as the first one sees them.

    queue:     where the numbers of files are read that no process has taken
    running:   the number of the test that each process runs, or NONE, in memory that all share
    children:  by the connection that reports come from, each process and its place in `running`
    ended:     the numbers of the tests that have ended
    """

    def __init__(self, session: pytest.Session, files: Sequence[list[pytest.Item]], count: int) -> None:
        self.session, self.files, self.items = session, files, list(chain(*files))
        self.queue, end = os.pipe()
        with open(end, "wb") as numbers:
            numbers.write(b"".join(map(NUMBER.pack, range(len(files)))))
        self.running = memoryview(mmap(-1, NUMBER.size * count)).cast("i")
        self.children: dict[Any, tuple[int, int]] = {}
        self.ended = set[int]()

    def run(self) -> None:
        """Runs all tests. Where this process is to stop, the others end."""
        self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # the same for all of them
        try:
            for place in range(len(self.running)):
                self.start(place, [])
            while self.children:
                for reports in wait(list(self.children)):
                    self.receive(reports)
                if self.session.shouldfail:
                    raise self.session.Failed(self.session.shouldfail)
                if self.session.shouldstop:
                    raise self.session.Interrupted(self.session.shouldstop)
            assert len(self.ended) == len(self.items), f"{len(self.items) - len(self.ended)} tests were not run"
        finally:
            for process, _ in self.children.values():
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)

    def start(self, place: int, first: Sequence[pytest.Item]) -> None:
        """Forks a process, which runs some tests before it takes files."""
        reports, end = Pipe(duplex=False)
        self.running[place] = NONE
        process = os.fork()
        if process == 0:
            Worker(self, place, end).run(first)
        end.close()
        self.children[reports] = process, place

    def receive(self, reports: Any) -> None:
        """Takes the reports of a test for this process's own; where there are none, a process has ended."""
        config = self.session.config
        try:
            number, received = reports.recv()
        except EOFError:
            process, place = self.children.pop(reports)
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            number = self.running[place]
            if number == NONE:
                return
            received = [_failed(self.items[number], f"The process of this test ended with status {status}.")]
            file = next(file for file in self.files if self.items[number] in file)
            self.start(place, file[file.index(self.items[number]) + 1 :])
        item = self.items[number]
        self.ended.add(number)
        config.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in received:
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            config.hook.pytest_runtest_logreport(report=report)
        config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


class Worker:
    """A fork that runs tests, with nothing to print on; a plugin of pytest's that sends what is reported of each."""

    def __init__(self, shared: Processes, place: int, reports: Any) -> None:
        self.shared, self.place, self.reports = shared, place, reports
        self.config, self.reported = shared.session.config, list[Any]()

    def run(self, first: Sequence[pytest.Item]) -> None:
        """Runs tests until none is left, or no more are to be run, and ends this process."""
        session, manager, running = self.shared.session, self.config.pluginmanager, self.shared.running
        numbers = {item: number for number, item in enumerate(self.shared.items)}
        try:
            manager.unregister(name="terminalreporter")
            manager.register(self)
            capture: Any = manager.getplugin("capturemanager")  # its files are all processes' own
            capture.stop_global_capturing()
            capture.start_global_capturing()
            for item, following in pairwise(chain(first, self._taken(), [None])):
                assert item is not None
                running[self.place] = numbers[item]
                self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                self.reports.send((numbers[item], self.reported))
                self.reported.clear()
                if session.shouldfail or session.shouldstop:
                    break
            running[self.place] = NONE
        except Exception:  # of pytest's own
            self.reports.send((running[self.place], [_failed(self.shared.items[running[self.place]], format_exc())]))
        finally:
            os._exit(0)

    def _taken(self) -> Iterator[pytest.Item]:
        """Yields the tests of files that no process has taken."""
        while number := os.read(self.shared.queue, NUMBER.size):
            yield from self.shared.files[NUMBER.unpack(number)[0]]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reported.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _failed(item: pytest.Item, said: str) -> dict[str, Any]:
    """Returns a report of a test that could make none."""
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
    return item.config.hook.pytest_report_to_serializable(config=item.config, report=report)
