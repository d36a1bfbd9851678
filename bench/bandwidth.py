"""Kernels that memory limits, against the speed of a copy: picograd, and PyTorch in turns with it.

    python -m bench.bandwidth
    python -m bench.bandwidth --only softmax,layer_norm --threads 1 --rounds 15

In:    nothing
Out:   a row for each kernel: GB/s of the bytes that it must move, as a share of those of a copy; PyTorch's time over
       picograd's
Called by: nobody.    Next: bench/growth.py

Bytes that must move: each large operand once, each large result once. A copy is a C library's `memmove` of half the
array on each thread, into memory that was written before.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import tyro

from bench.driver import ROOT, bind_to_cores, environment

SIDE = 4096  # of the square arrays, 64 MiB each
TABLE, WIDTH, LOOKUPS = 50257, 768, 8192  # an embedding of GPT-2's
FRAMEWORKS = ("picograd", "torch")
ACCESS = 4.0 * SIDE * SIDE  # bytes of one square array


@dataclass(frozen=True)
class Case:
    """One kernel.

    nbytes:   that it must move
    shapes:   of its float32 operands; an integer n instead: (LOOKUPS,) row numbers below n
    compute:  of the framework's module, its nn.functional, and the operands
    is_pull:  time the gradient alone too: the last operand is the cotangent, the others are differentiated
    """

    nbytes: float
    shapes: tuple[Any, ...]
    compute: Callable[..., Any]
    is_pull: bool = False


SQUARE, ROW = (SIDE, SIDE), (SIDE,)
CASES: dict[str, Case] = {
    "scale": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: x * 2.0),
    "chain": Case(2 * ACCESS, (SQUARE, ROW, ROW), lambda m, F, x, a, b: F.relu(x * a + b)),
    "add": Case(3 * ACCESS, (SQUARE, SQUARE), lambda m, F, x, y: x + y),
    "exp": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: x.exp()),
    "tanh": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: x.tanh()),
    "gelu": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: F.gelu(x)),
    "sum": Case(ACCESS, (SQUARE,), lambda m, F, x: x.sum()),
    "sum of rows": Case(ACCESS, (SQUARE,), lambda m, F, x: x.sum(1)),
    "sum of columns": Case(ACCESS, (SQUARE,), lambda m, F, x: x.sum(0)),
    "transpose": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: x.T.contiguous()),
    "softmax": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: x.softmax(-1)),
    "softmax gradient": Case(3 * ACCESS, (SQUARE, SQUARE), lambda m, F, x: x.softmax(-1), is_pull=True),
    "layer norm": Case(2 * ACCESS, (SQUARE, ROW, ROW), lambda m, F, x, w, b: F.layer_norm(x, ROW, w, b)),
    "layer norm gradient": Case(
        3 * ACCESS, (SQUARE, ROW, ROW, SQUARE), lambda m, F, x, w, b: F.layer_norm(x, ROW, w, b), is_pull=True
    ),
    "rms norm": Case(2 * ACCESS, (SQUARE, ROW), lambda m, F, x, w: F.rms_norm(x, ROW, w)),
    "rms norm gradient": Case(
        3 * ACCESS, (SQUARE, ROW, SQUARE), lambda m, F, x, w: F.rms_norm(x, ROW, w), is_pull=True
    ),
    "cumulative sum": Case(2 * ACCESS, (SQUARE,), lambda m, F, x: x.cumsum(-1)),
    "sort": Case(2 * ACCESS, ((SIDE, 1024),), lambda m, F, x: x.sort(-1)[0]),
    "argmax": Case(ACCESS, (SQUARE,), lambda m, F, x: x.argmax(-1)),
    "embedding": Case(8.0 * LOOKUPS * WIDTH, ((TABLE, WIDTH), TABLE), lambda m, F, t, i: t[i]),
    "vector": Case(ACCESS, (SQUARE, ROW), lambda m, F, w, x: w @ x),
    "one row": Case(ACCESS, (SQUARE, (1, SIDE)), lambda m, F, w, x: x @ w.T),
}


# ---- one framework, in a process of its own ----
def _operand(shape: Any, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if isinstance(shape, int):
        return rng.integers(0, shape, LOOKUPS)
    return rng.standard_normal(shape, dtype=np.float32)


def _picograd(case: Case) -> Callable[[], Any]:
    """Returns a function that computes a case once and waits for it."""
    import picograd as pg

    def gradients(*operands: Any) -> Any:
        *primals, cotangent = operands
        return pg.vjp(lambda *args: case.compute(pg, pg.nn.functional, *args), *primals)[1](cotangent)

    rng = np.random.default_rng(0)
    operands = [pg.Tensor(_operand(shape, rng)).realize() for shape in case.shapes]
    step = pg.jit(gradients if case.is_pull else lambda *args: case.compute(pg, pg.nn.functional, *args))
    return lambda: step(*operands)


def _torch(case: Case) -> Callable[[], Any]:
    """The same in PyTorch."""
    import torch

    rng = np.random.default_rng(0)
    operands = [torch.from_numpy(_operand(shape, rng)) for shape in case.shapes]
    if not case.is_pull:
        return lambda: case.compute(torch, torch.nn.functional, *operands)
    *primals, cotangent = operands
    for primal in primals:
        primal.requires_grad_()
    return lambda: torch.autograd.grad(case.compute(torch, torch.nn.functional, *primals), primals, cotangent)


def serve(framework: str) -> None:
    """Answers each line of standard input, the name of a case, with the seconds of some calls of it."""
    make = {"picograd": _picograd, "torch": _torch}[framework]
    ready: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in ready:
            ready.clear()  # one case holds memory at a time
            ready[name] = make(CASES[name])
            for _ in range(3):
                ready[name]()
        print(json.dumps(_times(ready[name], 3)), flush=True)


def _times(step: Callable[[], Any], count: int) -> list[float]:
    samples = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        samples.append(time.perf_counter() - start)
    return samples


# ---- all of them in turns ----
class Copy:
    """Copies one square array to another, each thread a part of it."""

    def __init__(self, num_threads: int):
        self.source, self.target = np.ones(SQUARE, np.float32), np.ones(SQUARE, np.float32)
        self.pool, self.num_threads = ThreadPoolExecutor(num_threads), num_threads

    def run(self) -> None:
        part = self.source.nbytes // self.num_threads
        places = [(self.target.ctypes.data + i * part, self.source.ctypes.data + i * part) for i in range(self.num_threads)]
        list(self.pool.map(lambda place: ctypes.memmove(*place, part), places))


def measure(names: list[str], num_threads: int, num_rounds: int) -> dict[str, dict[str, list[float]]]:
    """Returns for each case the seconds of "copy" and of each framework, one median a round."""
    copy = Copy(num_threads)
    workers = {framework: _start(framework, num_threads) for framework in FRAMEWORKS}
    found: dict[str, dict[str, list[float]]] = {}
    try:
        for name in names:
            samples = found[name] = {kind: [] for kind in ("copy", *FRAMEWORKS)}
            for _ in range(num_rounds):
                samples["copy"].append(median(_times(copy.run, 3)))
                for framework, worker in workers.items():
                    assert worker.stdin is not None and worker.stdout is not None
                    worker.stdin.write(name + "\n")
                    samples[framework].append(median(json.loads(worker.stdout.readline())))
            print(row(name, samples), flush=True)
    finally:
        for worker in workers.values():
            worker.kill()
    return found


def _start(framework: str, num_threads: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", "-c", f"from bench.bandwidth import serve; serve({framework!r})"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, bufsize=1, cwd=ROOT, env=environment(num_threads)
    )  # fmt: skip


def row(name: str, samples: dict[str, list[float]]) -> str:
    """Returns the line of one case."""
    copy, own, peer = (median(samples[kind]) for kind in ("copy", *FRAMEWORKS))
    nbytes = CASES[name].nbytes
    share = nbytes / own / (2 * ACCESS / copy)
    return f"{name:22} {own * 1e3:8.2f} ms {nbytes / own / 1e9:6.1f} GB/s {share:5.2f} of a copy   torch {peer / own:5.2f}x"


@dataclass(frozen=True)
class Arguments:
    """Measures kernels that memory limits.

    only:     comma list of first words of names; all if empty
    threads:  for both frameworks and the copy
    rounds:   of samples, of which the median is shown
    """

    only: str = ""
    threads: int = 2
    rounds: int = 7


def main(arguments: Arguments) -> None:
    """Prints a row for each case."""
    bind_to_cores(arguments.threads)
    words = [word for word in arguments.only.split(",") if word]
    names = [name for name in CASES if not words or name.startswith(tuple(words))]
    measure(names, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
