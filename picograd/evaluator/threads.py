"""Runs the threads of a block side by side: from barrier to barrier, and warps from shuffle to shuffle.

In:    threads as generators, which yield the number of a barrier or a `Swap`
Out:   `run_threads`; `Swap`
Called by: evaluator/program.py.    Next: picograd/evaluator/mma.py
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any

from picograd.errors import VerifyError
from picograd.ir.statements import WARP_THREADS
from picograd.record import Record

END = -1  # what a thread that is done waits at


class Swap(Record):
    """What a thread gives at a Shuffle or an Mma; it gets its number in the warp, and what all threads of that give.

    number:  of the statement
    """

    number: int
    value: Any


Waiting = int | Swap
Thread = Generator[Waiting, Any, None]


def run_threads(name: str, threads: Mapping[int, Thread]) -> Iterator[int]:
    """Runs threads, by number and in the order given, each to its next barrier; yields which one that is.

    Args:
      name: of the program, for errors

    Raises:
      VerifyError: threads of a block wait at different barriers, or those of a warp at different places.
    """
    warps: dict[int, dict[int, Thread]] = {}
    for number, thread in threads.items():
        warps.setdefault(number // WARP_THREADS, {})[number] = thread
    while threads:
        reached = {place for warp in warps.values() for place in _run_warp(name, warp)}
        if len(reached) > 1:
            raise _apart(name, "block", reached)
        (barrier,) = reached
        if barrier == END:
            return
        yield barrier


def _run_warp(name: str, warp: Mapping[int, Thread]) -> set[int]:
    """Runs a warp from Shuffle to Shuffle, until its threads wait at barriers or have ended; returns where they do."""
    answers: dict[int, Any] = dict.fromkeys(warp)
    while True:
        reached = {number: _resume(thread, answers[number]) for number, thread in warp.items()}
        swaps = {number: each for number, each in reached.items() if isinstance(each, Swap)}
        places = {each.number if isinstance(each, Swap) else each for each in reached.values()}
        if not swaps:
            return places
        if len(places) > 1:
            raise _apart(name, "warp", places)
        if len(swaps) < WARP_THREADS:
            raise VerifyError(f"program {name}: a warp has {len(swaps)} threads, and what it does together needs all.")
        given = [swaps[number].value for number in sorted(swaps)]
        answers = {number: (number % WARP_THREADS, given) for number in warp}


def _resume(thread: Thread, answer: Any) -> Waiting:
    try:
        return thread.send(answer)
    except StopIteration:
        return END


def _apart(name: str, what: str, places: set[int]) -> VerifyError:
    kind = "shuffle" if what == "warp" else "barrier"
    shown = sorted("the end" if place == END else f"{kind} {place}" for place in places)
    return VerifyError(f"program {name}: threads of a {what} wait at {' and '.join(shown)}.")
