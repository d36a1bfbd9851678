"""Collections of cyclic garbage are rare while plans are made, and as they were before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from picograd.engine.garbage import OBJECTS_MIN, few_collections


@pytest.fixture(autouse=True)
def threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_back_afterwards() -> None:
    with few_collections():
        assert gc.get_threshold() == (OBJECTS_MIN, 10, 10)
        with few_collections():
            assert gc.get_threshold() == (OBJECTS_MIN, 10, 10)
        assert gc.get_threshold() == (OBJECTS_MIN, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_the_threshold_is_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), few_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


def test_the_last_thread_puts_it_back() -> None:
    opened, may_end = threading.Event(), threading.Event()

    def other() -> None:
        with few_collections():
            opened.set()
            may_end.wait()

    thread = threading.Thread(target=other)
    with few_collections():
        thread.start()
        opened.wait()
    assert gc.get_threshold()[0] == OBJECTS_MIN
    may_end.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [0, 200_000])
def test_what_the_user_has_set_to_fewer_stays(own: int) -> None:
    gc.set_threshold(own, 10, 10)
    with few_collections():
        assert gc.get_threshold()[0] == own
    assert gc.get_threshold()[0] == own


def test_what_is_set_meanwhile_stays() -> None:
    with few_collections():
        gc.set_threshold(0)
    assert gc.get_threshold()[0] == 0
