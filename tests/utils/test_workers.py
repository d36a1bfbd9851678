"""Worker processes of the loader, side by side with PyTorch's, and what becomes of them when something goes wrong."""

from __future__ import annotations

import copy
import multiprocessing.util
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import ArgumentError, WorkerError
from picograd.interrupts import finish_later
from picograd.utils import data
from tests.utils.test_data import plain

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="examples here are made in children of a fork")


class Examples:
    """Ten examples; `at` is called with the number of each."""

    def __init__(self, at: Callable[[int], Any] = int):
        self.at = at

    def __len__(self) -> int:
        return 10

    def __getitem__(self, number: int) -> Any:
        return np.full(2, self.at(number), np.float32), number


def counting(library: Any) -> Any:
    """Returns a data set of a library that is iterated over, by the workers in turns."""

    class Counting(library.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[int]:
            worker = library.get_worker_info()
            return iter(range(11) if worker is None else range(worker.id, 11, worker.num_workers))

    return Counting()


def passes(loader: Any, count: int = 1) -> list[Any]:
    return [[plain(batch) for batch in loader] for _ in range(count)]


SETTINGS: list[dict[str, Any]] = [
    {"batch_size": 3, "num_workers": 2},
    {"batch_size": 3, "num_workers": 3, "drop_last": True, "prefetch_factor": 1},
    {"batch_size": None, "num_workers": 2, "prefetch_factor": 4},
    {"batch_size": 4, "num_workers": 2, "persistent_workers": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=",".join)
def test_batches_of_workers_are_those_of_pytorch(settings: dict[str, Any]) -> None:
    without = {name: value for name, value in settings.items() if name in ("batch_size", "drop_last")}
    expected = passes(torch.utils.data.DataLoader(Examples(), **without))  # whose workers give the same, and take 2 s
    assert passes(data.DataLoader(Examples(), **settings), 2) == expected * 2


def test_workers_iterate_as_those_of_pytorch() -> None:
    mine, theirs = counting(data), counting(torch.utils.data)
    for settings in ({"batch_size": 2}, {"batch_size": None, "persistent_workers": True}):
        expected = passes(torch.utils.data.DataLoader(theirs, num_workers=2, **settings))  # type: ignore[arg-type]
        assert passes(data.DataLoader(mine, num_workers=2, **settings), 2) == expected * 2


def test_workers_know_who_they_are_and_draw_numbers_of_their_own() -> None:
    begun: dict[str, Any] = {}

    def told(number: int) -> list[Any]:
        info = data.get_worker_info()
        assert info is not None and info.dataset.at is told and begun == {"worker": info.id}
        drawn = [random.random(), float(np.random.rand()), pg.rand(1).item(), pg.randn(1).item()]
        return [info.id, info.num_workers, info.seed - info.id, pg.initial_seed() == info.seed, *drawn]

    class Told(Examples):
        def __getitem__(self, number: int) -> Any:
            return told(number)

    def init(number: int) -> None:
        begun["worker"] = number

    def rows() -> list[list[float]]:
        pg.manual_seed(3)
        loader = data.DataLoader(Told(told), batch_size=None, num_workers=2, worker_init_fn=init)
        return list(loader)[:4]

    found = rows()
    assert [row[:2] for row in found] == [[0, 2], [1, 2], [0, 2], [1, 2]]
    assert len({row[2] for row in found}) == 1 and all(row[3] for row in found)
    assert len({number for row in found for number in row[4:]}) == 16
    assert rows() == found and data.get_worker_info() is None


def test_workers_that_are_no_children_of_a_fork() -> None:
    dataset = data.TensorDataset(pg.arange(6))
    loader = data.DataLoader(dataset, batch_size=3, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for (batch,) in loader] == [[0, 1, 2], [3, 4, 5]]


def test_a_pass_begins_anew_with_workers_that_stay() -> None:
    loader = data.DataLoader(Examples(), batch_size=2, num_workers=2, persistent_workers=True)
    first = iter(loader)
    assert next(first)[1].tolist() == [0, 1]
    assert [numbers.tolist() for _, numbers in loader] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    with pytest.raises(ArgumentError, match="another pass with the same workers has started"):
        next(first)


def test_batches_as_they_come() -> None:
    def late(number: int) -> int:
        time.sleep(0.5 if number == 0 else 0.0)
        return number

    loader = data.DataLoader(Examples(late), batch_size=1, num_workers=2, in_order=False)
    numbers = [numbers.item() for _, numbers in loader]
    assert sorted(numbers) == [*range(10)] and numbers[0] != 0


# ---- what goes wrong ----
def raises(number: int) -> int:
    if number == 3:
        raise KeyError("no such example")
    return number


def test_an_error_of_a_worker_is_raised_with_its_traceback_and_the_pass_goes_on() -> None:
    batches = iter(data.DataLoader(Examples(raises), batch_size=2, num_workers=2))
    next(batches)
    with pytest.raises(KeyError, match="no such example") as caught:
        next(batches)
    told = str(caught.value.__cause__)
    assert all(part in told for part in ("in worker 1 of DataLoader:", "test_workers.py", "raise KeyError("))
    assert [numbers.tolist() for _, numbers in batches] == [[4, 5], [6, 7], [8, 9]]


def test_a_data_set_does_not_end_a_pass_by_stop_iteration() -> None:
    def ends(number: int) -> int:
        return next(iter([])) if number == 3 else number

    for num_workers in (0, 1):
        batches = iter(data.DataLoader(Examples(ends), batch_size=2, num_workers=num_workers))
        next(batches)
        with pytest.raises(ArgumentError, match="making an example raised StopIteration"):
            next(batches)


def test_an_error_that_cannot_be_sent_is_told_of() -> None:
    class Own(Exception):
        def __reduce__(self) -> Any:
            raise TypeError

    def fails(number: int) -> int:
        raise Own(number)

    with pytest.raises(WorkerError, match="worker 0 raised Own") as caught:
        next(iter(data.DataLoader(Examples(fails), num_workers=1)))
    assert "raise Own(number)" in str(caught.value.__cause__)


def test_a_batch_that_cannot_be_sent_is_told_of() -> None:
    loader = data.DataLoader([lambda: 1], batch_size=None, num_workers=1, collate_fn=lambda example: example)
    with pytest.raises((AttributeError, WorkerError, pickle.PicklingError)):
        next(iter(loader))


def test_an_error_of_the_function_that_prepares_a_worker() -> None:
    def init(number: int) -> None:
        raise ValueError(f"worker {number} cannot begin")

    with pytest.raises(ValueError, match="worker 0 cannot begin"):
        next(iter(data.DataLoader(Examples(), num_workers=1, worker_init_fn=init)))


ENDS: dict[str, tuple[Callable[[], Any], str]] = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by signal SIGKILL before its batch came"),
    "gone": (lambda: os._exit(3), "ended with exit code 3 before its batch came"),
}


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_worker_that_dies_is_told_of(end: str, stays: bool) -> None:
    ends, told = ENDS[end]
    alive = True

    def dies(number: int) -> int:
        if number == 4 and not alive:
            ends()
        return number

    alive = False
    loader = data.DataLoader(Examples(dies), batch_size=2, num_workers=2, persistent_workers=stays)
    with pytest.raises(WorkerError, match=told):
        list(loader)
    alive = True
    assert len(list(loader)) == 5  # by others


def test_a_batch_that_takes_too_long_is_told_of() -> None:
    loader = data.DataLoader(Examples(lambda number: time.sleep(60)), num_workers=1, timeout=0.2)
    with pytest.raises(WorkerError, match=r"no batch came within 0\.2 seconds"):
        list(loader)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"num_workers": -1}, "num_workers must be a number of processes, got -1"),
    ({"num_workers": 1, "timeout": -1}, "timeout must be a number of seconds"),
    ({"num_workers": 1, "prefetch_factor": 0}, "prefetch_factor must be positive, got 0"),
    ({"prefetch_factor": 2}, "prefetch_factor is a setting of workers, and num_workers is 0"),
    ({"persistent_workers": True}, "persistent_workers is a setting of workers"),
    ({"multiprocessing_context": "fork"}, "multiprocessing_context is a setting of workers"),
    ({"num_workers": 1, "multiprocessing_context": "thread"}, "one of fork, spawn, forkserver, got 'thread'"),
]


@pytest.mark.parametrize(("settings", "told"), WRONG, ids=[told for _, told in WRONG])
def test_settings_of_workers_that_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        data.DataLoader(Examples(), **settings)


# ---- the end of workers ----
def test_workers_of_a_pass_that_is_left_end() -> None:
    batches = iter(data.DataLoader(Examples(), num_workers=2))
    next(batches)
    processes = list(batches._workers.processes.processes)  # type: ignore[attr-defined]
    del batches
    finish_later()  # as the next allocation does
    assert [process.exitcode for process in processes] == [0, 0]


def test_a_loader_whose_workers_stay_can_be_copied_and_pickled() -> None:
    loader = data.DataLoader(range(4), batch_size=2, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 2
    for other in (copy.deepcopy(loader), copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert [batch.tolist() for batch in other] == [[0, 1], [2, 3]]


def test_a_pass_does_not_go_on_in_a_child() -> None:
    batches = iter(data.DataLoader(range(40), num_workers=1))
    next(batches)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            multiprocessing.util._exit_function()  # type: ignore[attr-defined]  # as at exit, which leaves them alone
            list(batches)
        except WorkerError as error:
            code = 7 if "the process that forked" in error.fact else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(list(batches)) == 39


AT_EXIT = """
from picograd.utils import data

if __name__ == "__main__":
    kept = data.DataLoader(range(100), num_workers=2, persistent_workers=True)
    begun = iter(data.DataLoader(range(100), num_workers=2))
    print(next(iter(kept)).item(), next(begun).item())
"""


def test_nothing_is_printed_at_exit_where_workers_are_left() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0\n", "")
