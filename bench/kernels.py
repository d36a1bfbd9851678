"""Times what one kernel costs before it runs: fusion, lowering, LLVM, loading. picograd only.

    python -m bench.kernels

In:    nothing
Out:   one line of JSON: [name, kind, seconds for each shape, number of kernels] for each expression
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import tyro

from bench.driver import ROOT, environment

LIMIT_S = 120.0
ROWS = (24, 40, 56)  # a kernel for each: shapes of their own give kernels of their own
WIDTH = 48


@dataclass
class KernelTimes:
    """One expression.

    kind:        "small" or "matmul"
    samples_s:   seconds from the finished graph to loaded code, for each of its kernels; one sample for each shape
    num_kernels: that it takes
    """

    name: str
    kind: str
    samples_s: list[float]
    num_kernels: int = 1

    @property
    def median_s(self) -> float:
        return median(self.samples_s)


def measure(num_threads: int) -> list[KernelTimes]:
    """Returns the times of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.kernels"],
        cwd=ROOT,
        env=environment(num_threads),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    return [KernelTimes(*row) for row in json.loads(done.stdout.splitlines()[-1])]


def _expressions(pg: Any) -> dict[str, tuple[str, Callable[[Any, Any, Any], Any]]]:
    """Functions of x (R, 48), w (48, 48), labels (R,); each is one kernel, or one and what it cannot be fused with."""
    F = pg.nn.functional
    return {
        "relu": ("small", lambda x, w, labels: x.relu()),
        "where": ("small", lambda x, w, labels: pg.where(x > 0.0, x, w[0])),
        "x * 2 + 1": ("small", lambda x, w, labels: x * 2.0 + 1.0),
        "(x + y) * z": ("small", lambda x, w, labels: (x + w[0]) * w[1]),
        "gelu": ("small", lambda x, w, labels: F.gelu(x)),
        "sum of all": ("small", lambda x, w, labels: x.sum()),
        "sum of columns": ("small", lambda x, w, labels: x.sum(0)),
        "mean of columns": ("small", lambda x, w, labels: x.mean(0)),
        "max of rows": ("small", lambda x, w, labels: x.amax(1)),
        "softmax": ("small", lambda x, w, labels: x.softmax(-1)),
        "layer norm": ("small", lambda x, w, labels: F.layer_norm(x, (WIDTH,))),
        "cross-entropy": ("small", lambda x, w, labels: F.cross_entropy(x, labels)),
        "embedding": ("small", lambda x, w, labels: x[labels]),
        "x @ w": ("matmul", lambda x, w, labels: x @ w),
        "x @ w.T + b": ("matmul", lambda x, w, labels: x @ w.T + w[0]),
        "x.T @ x": ("matmul", lambda x, w, labels: x.T @ x),
        "gelu(x @ w.T + b)": ("matmul", lambda x, w, labels: F.gelu(x @ w.T + w[0])),
        "x[i] @ w.T": ("matmul", lambda x, w, labels: x[labels] @ w.T),
    }


def kernel_times() -> list[tuple[str, str, list[float], int]]:
    """Returns the fields of KernelTimes; LLVM has been started by a kernel that does not count."""
    import picograd as pg
    from picograd.engine.plan import template
    from picograd.engine.realize import find_plan
    from picograd.look import watch

    rng = np.random.default_rng(0)
    (pg.Tensor(rng.standard_normal((3, 5))) @ pg.Tensor(rng.standard_normal((5, 7)))).realize()
    found = []
    w = pg.Tensor(rng.standard_normal((WIDTH, WIDTH), dtype=np.float32)).realize()
    for name, (kind, expression) in _expressions(pg).items():
        samples = []
        for rows in ROWS:
            x = pg.Tensor(rng.standard_normal((rows, WIDTH), dtype=np.float32)).realize()
            labels = pg.Tensor(rng.integers(0, ROWS[0], rows).astype(np.int32)).realize()
            roots = [expression(x, w, labels).op]
            with watch() as counts:
                start = time.perf_counter()
                find_plan(roots, template(roots), "CPU")
                samples.append((time.perf_counter() - start) / counts.compiled)
        found.append((name, kind, samples, counts.compiled))
    return found


def main() -> None:
    """Prints the compile times of kernels as JSON; all other output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ["PICOGRAD_CACHE"] = "off"  # nothing is found, and nothing is kept
    print(json.dumps(kernel_times()), file=answers, flush=True)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m bench.kernels")
