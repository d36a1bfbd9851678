"""One function, run by several Python threads that take turns as often as they can."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

NUM_THREADS = 8
SWITCH_SECONDS = 1e-6


def in_threads(function: Callable[[int], object], num_threads: int = NUM_THREADS) -> None:
    """Runs function(number) in each of the threads, and raises the error of one of them."""
    errors: list[BaseException] = []
    ready, before = threading.Barrier(num_threads), sys.getswitchinterval()

    def run(number: int) -> None:
        try:
            ready.wait()
            function(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(num_threads)]
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]
