"""Kernels that memory limits, against the speed of a copy: picograd, and PyTorch in turns with it.

    python -m bench.bandwidth
    python -m bench.bandwidth --only softmax,layer_norm --threads 1 --rounds 15

In:    nothing
Out:   a row for each kernel: GB/s of the bytes that it must move, as a share of those of a copy; PyTorch's time over
       picograd's

Bytes that must move: each large operand once, each large result once. A copy is a C library's `memmove` of half the
array on each thread, into memory that was written before.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
import tyro

from bench.driver import bind_to_cores
from bench.turns import Arguments, Bytes, Case, Rows, measure

SIDE = 4096  # of the square arrays, 64 MiB each
TABLE, WIDTH, LOOKUPS = 50257, 768, 8192  # an embedding of GPT-2's
ACCESS = 4.0 * SIDE * SIDE  # bytes of one square array
MILLION, MANY = 1_000_000, (64, 10_000)  # elements of one row that is put in order, and of several
WIDE, GROUP = 8192, 128  # of a weight of small integers, and how many have one scale


SQUARE, ROW = (SIDE, SIDE), (SIDE,)
PACKED = (Bytes((WIDE, WIDE // 2), "uint8"), (WIDE, WIDE // GROUP, 1))
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
    "sort, one row": Case(8.0 * MILLION, ((MILLION,),), lambda m, F, x: x.sort(-1)[0]),
    "sort, one row, int64": Case(16.0 * MILLION, (Rows(MILLION, 1 << 30),), lambda m, F, x: x.sort(-1)[0]),
    "sort, 64 rows": Case(8.0 * prod(MANY), (MANY,), lambda m, F, x: x.sort(-1)[0]),
    "top 10, one row": Case(4.0 * MILLION, ((MILLION,),), lambda m, F, x: x.topk(10)[0]),
    "top 10, one row, int64": Case(8.0 * MILLION, (Rows(MILLION, 1 << 30),), lambda m, F, x: x.topk(10)[0]),
    "top 500, 64 rows": Case(4.0 * prod(MANY), (MANY,), lambda m, F, x: x.topk(500)[0]),
    "k-th, one row": Case(4.0 * MILLION, ((MILLION,),), lambda m, F, x: x.kthvalue(MILLION // 3)[0]),
    "median, one row": Case(4.0 * MILLION, ((MILLION,),), lambda m, F, x: x.median(-1)[0]),
    "median, one row, int64": Case(8.0 * MILLION, (Rows(MILLION, 1 << 30),), lambda m, F, x: x.median(-1)[0]),
    "median, 64 rows": Case(4.0 * prod(MANY), (MANY,), lambda m, F, x: x.median(-1)[0]),
    "quantile, one row": Case(4.0 * MILLION, ((MILLION,),), lambda m, F, x: x.quantile(0.3)),
    "unique": Case(8.0 * MILLION, make=lambda m, _: distinct(m, np.float32)),
    "unique, int64": Case(16.0 * MILLION, make=lambda m, _: distinct(m, np.int64)),
    "argmax": Case(ACCESS, (SQUARE,), lambda m, F, x: x.argmax(-1)),
    "embedding": Case(8.0 * LOOKUPS * WIDTH, ((TABLE, WIDTH), Rows(LOOKUPS, TABLE)), lambda m, F, t, i: t[i]),
    "vector": Case(ACCESS, (SQUARE, ROW), lambda m, F, w, x: w @ x),
    "one row": Case(ACCESS, (SQUARE, (1, SIDE)), lambda m, F, w, x: x @ w.T),
    "one row, int8": Case(
        ACCESS, (Bytes((WIDE, WIDE)), (WIDE, 1), (1, WIDE)), lambda m, F, q, scale, x: x @ (q.float() * scale).T
    ),
    "one row, int4": Case(ACCESS / 2, (*PACKED, (1, WIDE)), lambda m, F, p, scale, x: x @ four_bits(m, p, scale).T),
    "eight rows": Case(ACCESS, (SQUARE, (8, SIDE)), lambda m, F, w, x: x @ w.T),
    "eight rows, int8": Case(
        ACCESS, (Bytes((WIDE, WIDE)), (WIDE, 1), (8, WIDE)), lambda m, F, q, scale, x: x @ (q.float() * scale).T
    ),
    "eight rows, int4": Case(ACCESS / 2, (*PACKED, (8, WIDE)), lambda m, F, p, scale, x: x @ four_bits(m, p, scale).T),
}


def distinct(m: Any, dtype: Any) -> Any:
    """Returns a step that finds every number once, with how often and where it came: its number is read on the host."""
    x = m.tensor(np.random.default_rng(0).integers(0, 1 << 30, MILLION).astype(dtype))
    return lambda: [found.sum().item() for found in m.unique(x, return_inverse=True, return_counts=True)]


def four_bits(m: Any, p: Any, scale: Any) -> Any:
    """Returns a weight whose elements are side by side in bytes, two in each, with a scale for each group of them."""
    q = m.stack([p & 15, p >> 4], -1).reshape(WIDE, -1, GROUP)
    return ((q.float() - 8) * scale).reshape(WIDE, WIDE)


class Copy:
    """Copies one square array to another, each thread a part of it."""

    def __init__(self, num_threads: int):
        self.source, self.target = np.ones(SQUARE, np.float32), np.ones(SQUARE, np.float32)
        self.pool, self.num_threads = ThreadPoolExecutor(num_threads), num_threads

    def run(self) -> None:
        part = self.source.nbytes // self.num_threads
        places = [(self.target.ctypes.data + i * part, self.source.ctypes.data + i * part) for i in range(self.num_threads)]
        list(self.pool.map(lambda place: ctypes.memmove(*place, part), places))


def row(name: str, seconds: dict[str, float]) -> str:
    """Returns the line of one case."""
    nbytes, own = CASES[name].work, seconds["picograd"]
    share = nbytes / own / (2 * ACCESS / seconds["copy"])
    rate = f"{nbytes / own / 1e9:6.1f} GB/s {share:5.2f} of a copy"
    return f"{name:22} {own * 1e3:8.2f} ms {rate}   torch {seconds['torch'] / own:5.2f}x"


def main(arguments: Arguments) -> None:
    """Prints a row for each case."""
    bind_to_cores(arguments.threads)
    copy = Copy(arguments.threads)
    names = arguments.names(CASES)
    measure("bench.bandwidth", names, arguments.threads, arguments.rounds, row, {"copy": copy.run})


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.bandwidth"))
