"""Kernels in picograd and in PyTorch, in turns: each framework in a process of its own, kept for the whole run.

In:    a table of cases, which a module has as CASES
Out:   `Case`; `measure`: seconds of each case in each framework, one median a round
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np

from bench.driver import ROOT, environment

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

FRAMEWORKS: dict[str, dict[str, str]] = {"picograd": {}, "torch": {}}  # what measures -> its environment variables


@dataclass(frozen=True)
class Rows:
    """An operand: `count` numbers of rows below `limit`."""

    count: int
    limit: int


@dataclass(frozen=True)
class Bytes:
    """An operand of int8, or uint8, of any value."""

    shape: tuple[int, ...]
    dtype: str = "int8"


@dataclass(frozen=True)
class Case:
    """One kernel, or a few.

    work:     bytes that it must move, or FLOPs
    shapes:   of its operands: float32, standard normal; or `Rows`, or `Bytes`
    compute:  of the framework's module, its nn.functional, and the operands
    is_pull:  time the gradient too: the last operand is the cotangent, the others are differentiated
    make:     instead of all that, makes a step of training from the framework's module and what compiles a function
    """

    work: float
    shapes: tuple[Any, ...] = ()
    compute: Callable[..., Any] = lambda *_: None
    is_pull: bool = False
    make: Callable[[Any, Compile], Callable[[], Any]] | None = None


# ---- one framework, in a process of its own ----
def _operand(shape: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if isinstance(shape, Rows):
        return rng.integers(0, shape.limit, shape.count)
    if isinstance(shape, Bytes):
        return rng.integers(0, 256, shape.shape).astype(np.uint8).view(shape.dtype)
    return rng.standard_normal(shape, dtype=np.float32)


def _picograd(case: Case, variant: str) -> Callable[[], Any]:
    """Returns a function that computes a case once and waits for it."""
    import picograd as pg

    if case.make is not None:
        return case.make(pg, as_written if variant == "eager" else pg.jit)

    def gradients(*operands: Any) -> Any:
        *primals, cotangent = operands
        return pg.vjp(lambda *args: case.compute(pg, pg.nn.functional, *args), *primals)[1](cotangent)

    rng = np.random.default_rng(0)
    operands = [pg.Tensor(_operand(shape, rng)).realize() for shape in case.shapes]
    step = pg.jit(gradients if case.is_pull else lambda *args: case.compute(pg, pg.nn.functional, *args))
    return lambda: step(*operands)


def _torch(case: Case, variant: str) -> Callable[[], Any]:
    """The same in PyTorch."""
    import torch

    if case.make is not None:
        return case.make(torch, torch.compile if variant == "torch.compile" else as_written)
    rng = np.random.default_rng(0)
    operands = [torch.from_numpy(_operand(shape, rng)) for shape in case.shapes]
    if not case.is_pull:
        return lambda: case.compute(torch, torch.nn.functional, *operands)
    *primals, cotangent = operands
    for primal in primals:
        primal.requires_grad_()
    return lambda: torch.autograd.grad(case.compute(torch, torch.nn.functional, *primals), primals, cotangent)


def as_written(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function as it is: nothing compiles it."""
    return function


def serve(module: str, variant: str) -> None:
    """Answers each line of standard input, the name of a case, with the seconds of some calls of it."""
    table, make = import_module(module).CASES, _torch if variant.startswith("torch") else _picograd
    ready: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready.clear()  # one case holds memory at a time
            ready[name] = make(table[name], variant)
            for _ in range(3):
                ready[name]()
        print(json.dumps(times(ready[name])), flush=True)


def times(step: Callable[[], Any]) -> list[float]:
    """Returns the seconds of each of some calls: three, and as many as 20 ms have time for."""
    samples: list[float] = []
    begin = time.perf_counter()
    while len(samples) < 3 or time.perf_counter() - begin < 0.02:
        start = time.perf_counter()
        step()
        samples.append(time.perf_counter() - start)
    return samples


# ---- all of them in turns ----
def measure(
    module: str, names: Sequence[str], num_threads: int, num_rounds: int, show: Callable[[str, Any], str],
    beside: Mapping[str, Callable[[], None]] | None = None, variants: Mapping[str, Mapping[str, str]] = FRAMEWORKS,
) -> None:  # fmt: skip
    """Prints for each case what `show` makes of its name and samples: those of each variant, and of what is `beside`.

    Args:
      variants: names, of which torch and torch.compile are PyTorch's, and the environment variables of each; "eager" is
                picograd without jit in steps of training
    """
    workers = {name: _start(module, name, num_threads, more) for name, more in variants.items()}
    try:
        for name in names:
            samples: dict[str, list[float]] = {kind: [] for kind in (*(beside or {}), *variants)}
            for _ in range(num_rounds):
                for kind, run in (beside or {}).items():
                    samples[kind].append(median(times(run)))
                for framework, worker in workers.items():
                    assert worker.stdin is not None and worker.stdout is not None
                    worker.stdin.write(name + "\n")
                    samples[framework].append(median(json.loads(worker.stdout.readline())))
            print(show(name, {kind: median(found) for kind, found in samples.items()}), flush=True)
    finally:
        for worker in workers.values():
            worker.kill()


def _start(module: str, framework: str, num_threads: int, variables: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", f"from bench.turns import serve; serve({module!r}, {framework!r})"]
    pipe = subprocess.PIPE
    env = environment(num_threads) | dict(variables)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=ROOT, env=env)


@dataclass(frozen=True)
class Arguments:
    """Measures kernels beside PyTorch's."""

    # Comma list; names that begin with one of these words are measured; all if empty.
    only: str = ""
    # Threads of both frameworks.
    threads: int = 2
    # Rounds of samples, in turns; the table has the medians.
    rounds: int = 7

    def names(self, table: Mapping[str, Case]) -> list[str]:
        """Returns the names that `only` selects."""
        words = [word for word in self.only.split(",") if word]
        return [name for name in table if not words or name.startswith(tuple(words))]
