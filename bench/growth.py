"""Measures indexing, sorting and searching at n, 10 n and 100 n elements, beside PyTorch.

    python -m bench.growth                      10,000, 100,000 and 1,000,000 elements
    python -m bench.growth --sizes 1000 10000   others
    python -m bench.growth --only sort,topk

In:    picograd, and PyTorch where it is installed
Out:   a table on the screen: milliseconds, best of some calls, and the ratio to the column before

From column to column linear costs grow tenfold, n log n some 12-fold, a mask of n x n a hundredfold. Tests count the
elements of all intermediates instead: tests/tensor/test_linear_costs.py.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import picograd as pg

REPEATS = 5
# of n values, the same in order, n places among them, n truths
CALLS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "cumsum": lambda x, s, i, m: x.cumsum(0),
    "x[places]": lambda x, s, i, m: x[i],
    "x[mask]": lambda x, s, i, m: x[m],
    "scatter_add": lambda x, s, i, m: x.scatter_add(0, i, x),
    "bincount": lambda x, s, i, m: i.bincount(),
    "sort": lambda x, s, i, m: x.sort()[0],
    "topk": lambda x, s, i, m: x.topk(10)[0],
    "median": lambda x, s, i, m: x.median(),
    "unique": lambda x, s, i, m: i.unique(),
    "searchsorted": lambda x, s, i, m: s.searchsorted(x) if isinstance(x, pg.Tensor) else _torch().searchsorted(s, x),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser("python -m bench.growth", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="numbers of elements")
    parser.add_argument("--only", default="", help="comma list of rows; all if empty")
    parser.add_argument("--alone", action="store_true", help="measure picograd without PyTorch")
    arguments = parser.parse_args()
    names = arguments.only.split(",") if arguments.only else list(CALLS)
    libraries = ["picograd", *(["torch"] if find_spec("torch") and not arguments.alone else [])]
    table = Table(title="best of some calls, ms; in brackets: times that of the column before")
    table.add_column("")
    for library in libraries:
        for size in arguments.sizes:
            table.add_column(f"{library} {size:,}", justify="right")
    for name in names:
        table.add_row(escape(name), *(cell for library in libraries for cell in row(name, library, arguments.sizes)))
    Console(width=160).print(table)


def row(name: str, library: str, sizes: list[int]) -> list[str]:
    """Returns the cells of one function in one library."""
    taken = [best_ms(CALLS[name], operands(library, size)) for size in sizes]
    return [f"{ms:.2f}" + (f" (x{ms / before:.0f})" if before else "") for ms, before in zip(taken, [0.0, *taken])]


def operands(library: str, count: int) -> tuple[Any, Any, Any, Any]:
    """Returns values, the same in order, places and truths as tensors of one library."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(count).astype(np.float32)
    arrays = (x, np.sort(x), rng.integers(0, count, count), rng.random(count) < 0.5)
    if library == "torch":
        return tuple(map(_torch().tensor, arrays))  # type: ignore[return-value]
    return tuple(pg.Tensor(array).realize() for array in arrays)  # type: ignore[return-value]


def best_ms(call: Callable[..., Any], given: tuple[Any, ...]) -> float:
    """Returns the least time of some calls, after one that compiles."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        found = call(*given)
        if isinstance(found, pg.Tensor):
            found.realize()
        times.append(time.perf_counter() - start)
    return min(times[1:]) * 1e3


def _torch() -> Any:
    import torch

    return torch


if __name__ == "__main__":
    main()
