"""What tuning chose against the usual choice: each in a fresh process, in turns, the tuned one with winners from the disk.

    python -m bench.tuning
    python -m bench.tuning --only 256,1000 --threads 1 --rounds 15

In:    nothing
Out:   a row for each product: the time of the usual choice, and that of the remembered winner over it

A winner that is slower when it is timed again was chosen by noise; `engine/choose.py` wants one to be clearly faster first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any

import tyro

from bench.driver import bind_to_cores
from bench.turns import Arguments, Case, measure

SHAPES = [  # m, k, n
    (256, 256, 256), (509, 509, 509), (1000, 1000, 1000), (768, 128, 512), (768, 512, 128), (512, 768, 128),
    (32, 784, 256), (100, 300, 300), (2048, 64, 2048),
]  # fmt: skip


def _product(is_turned: tuple[bool, bool]) -> Callable[..., Any]:
    def compute(m: Any, F: Any, a: Any, b: Any) -> Any:
        return (a.T if is_turned[0] else a) @ (b.T if is_turned[1] else b)

    return compute


def _cases() -> dict[str, Case]:
    found = {}
    for m, k, n in SHAPES:
        for turned in ((False, False), (False, True), (True, False)):
            shapes = ((k, m) if turned[0] else (m, k)), ((n, k) if turned[1] else (k, n))
            name = f"{m}x{k} @ {k}x{n} {''.join('NT'[side] for side in turned)}"
            found[name] = Case(2.0 * m * k * n, shapes, _product(turned))
    return found


CASES = _cases()
VARIANTS = {"picograd": {}, "tuned": {"PICOGRAD_TUNE": "1"}}


def row(name: str, seconds: dict[str, float]) -> str:
    """Returns the line of one product."""
    usual = seconds["picograd"]
    rate = CASES[name].work / usual / 1e9
    return f"{name:28} {usual * 1e6:10.1f} us {rate:7.1f} GFLOP/s   tuned {seconds['tuned'] / usual:5.2f} of it"


def main(arguments: Arguments) -> None:
    """Tunes each product in one process, and prints a row for it from two fresh ones."""
    bind_to_cores(arguments.threads)
    names = arguments.names(CASES)
    with TemporaryDirectory() as cache:
        os.environ["PICOGRAD_CACHE"] = cache
        for rounds, show in ((1, lambda name, _: f"{name}: candidates timed"), (arguments.rounds, row)):
            measure("bench.tuning", names, arguments.threads, rounds, show, variants=VARIANTS)


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.tuning"))
