"""Order, ranks, searches, counts and sets: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from tests.operations.movement import Args, Samples, axes, drawn, on, several
from tests.operations.table import Array, Operation, Rng, Sample, floats, sample

NAN = float("nan")


def row(name: str, samples: Samples, **kwargs: Any) -> Operation:
    return Operation(f"Tensor.{name}", samples, **kwargs)


def values(name: str) -> Callable[..., Any]:
    """Returns a function of either library without the places of the values: which of equals is named is not said."""

    def function(x: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(x, name)(*args, **kwargs)
        return found.values if isinstance(found, tuple) else found

    return function


def values_row(name: str, samples: Samples, **kwargs: Any) -> Operation:
    return row(name, samples, call=values(name), torch=values(name), variant="values", **kwargs)


def with_nan(*calls: Args) -> Samples:
    """Returns calls on numbers among which are NaNs: a row with several, one with one, and one with none."""

    def samples(rng: Rng) -> list[Sample]:
        x = rng.uniform(-2.0, 2.0, (4, 5))
        x[0, :3] = x[1, 2] = NAN
        return [sample(x, *call) for call in calls]

    return samples


def ties(*calls: Args, high: int = 3, shape: tuple[int, ...] = (4, 6)) -> Samples:
    """Returns calls on few different whole numbers."""
    return lambda rng: [sample(rng.integers(0, high, shape).astype(np.float64), *call) for call in calls]


def ordered(rng: Rng, *shape: int) -> Array:
    return np.sort(rng.integers(-4, 5, shape).astype(np.float64))


def searches(**kwargs: Any) -> Samples:
    """Returns searches in a vector and in rows, for numbers, equal values, and nothing."""

    def samples(rng: Rng) -> list[Sample]:
        line, wanted = ordered(rng, 7), rng.integers(-5, 6, (3, 4)).astype(np.float64)
        rows = ordered(rng, 3, 6)
        return [
            sample(line, wanted, **kwargs), sample(rows, wanted, **kwargs), sample(line, 2.0, **kwargs),
            sample(line[:0], wanted, **kwargs), sample(line, wanted[:0], **kwargs), sample(line[:1], wanted, **kwargs),
        ]  # fmt: skip

    return samples


def unsorted_search(rng: Rng) -> list[Sample]:
    x = rng.uniform(-2.0, 2.0, (3, 6))
    return [sample(x, rng.uniform(-2.0, 2.0, (3, 4)), sorter=np.argsort(x))]


def into_buckets(**kwargs: Any) -> Samples:
    return lambda rng: [
        sample(rng.integers(-5, 6, shape).astype(np.float64), ordered(rng, count), **kwargs)
        for shape, count in (((3, 4), 7), ((), 3), ((0, 2), 3), ((4,), 0))
    ]


def in_order(name: str) -> Callable[..., Any]:
    """Returns a function of PyTorch that is given tensors in the order of their memory: it warns, or fails, of others."""

    def function(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = with_tensors(args), with_tensors(kwargs)
        return getattr(torch, name)(*args, **kwargs)

    return function


def with_tensors(value: Any) -> Any:
    """Returns arguments with each tensor of PyTorch made contiguous."""
    if isinstance(value, torch.Tensor):
        return value.contiguous()
    if isinstance(value, dict):
        return {name: with_tensors(part) for name, part in value.items()}
    return tuple(map(with_tensors, value)) if isinstance(value, tuple) else value


def sequences(x: Array) -> st.SearchStrategy[Args]:
    length = st.integers(0, 9)
    return length.flatmap(lambda n: floats((n,), (-2.0, 2.0))).map(lambda line: (np.sort(line),))


def tests(rng: Rng) -> list[Sample]:
    x, among = (rng.integers(0, 9, shape).astype(np.float64) for shape in ((4, 5), (2, 3)))
    return [
        sample(x, among), sample(x, among, invert=True), sample(x, among[:0]), sample(x[:0], among), sample(x[0], 3.0),
    ]  # fmt: skip


def repeated_rows(*calls: dict[str, Any]) -> Samples:
    return lambda rng: [sample(rng.integers(0, 2, (7, 3)).astype(np.float64), **call) for call in calls]


def dims(x: Array) -> st.SearchStrategy[Args]:
    return axes(x).map(lambda axis: (axis,))


def histograms(rng: Rng) -> list[Sample]:
    x, edges = rng.uniform(-2.0, 2.0, (4, 5)), np.array([-1.5, -0.5, 0.25, 1.0])
    weight = rng.uniform(0.0, 2.0, (4, 5))
    return [
        sample(x, 4), sample(x, 3, range=(-1.0, 1.5)), sample(x, edges), sample(x, 5, weight=weight),
        sample(x, edges, weight=weight, density=True), sample(x, 3, density=True),
    ]  # fmt: skip


def counts(rng: Rng) -> list[Sample]:
    x = rng.integers(0, 9, (20,))
    weights = rng.uniform(0, 2, (20,))
    return [sample(x), sample(x, minlength=12), sample(x[:0]), sample(x[:0], minlength=2), sample(x, weights)]


ALL_ONCE: tuple[dict[str, Any], ...] = (
    {}, {"return_inverse": True}, {"return_counts": True}, {"return_inverse": True, "return_counts": True},
)  # fmt: skip
BY_ROWS = ({"dim": 0}, {"dim": 0, **ALL_ONCE[-1]}, {"dim": 1}, {"dim": -1, "return_counts": True})
STABLE = ({"stable": True}, {"dim": 0, "stable": True}, {"dim": -1, "descending": True, "stable": True})
SOME = np.array([0.1, 0.5, 1.0])
QUANTILES: tuple[Args, ...] = ((0.3,), (0.7, 1), (0.0, 0, True), (SOME, -1), (SOME[:1], None, True))

ORDER = [
    row("sort", several(on((4, 5), *STABLE), on((), ()), on((0, 2), ()), ties((), (0,))), dtypes="fiu"),
    row("sort", with_nan((), (0, True)), variant="nan", orders=0),
    row("argsort", several(on((4, 5), *STABLE), on((), ()), on((3, 0), ())), dtypes="fiu", orders=0),
    row("msort", several(on((4, 5), ()), on((3,), ())), dtypes="fiu"),
    row("topk", on((4, 5), (2,), (3, 0), (1, -1, False), (0,), (5, 1))),
    values_row("topk", several(on((4, 5), (2,), (3, 0, False)), ties((2,))), dtypes="iu", orders=0),
    row("kthvalue", several(on((4, 5), (1,), (4, 0), (5, -1, True)), on((), (1,)))),
    values_row("kthvalue", several(on((4, 5), (2,)), ties((3,))), dtypes="iu", orders=0),
    row("median", several(on((4, 5), (), (0,), (1, True), (-1,)), on((), (), (0,)), on((7,), ()), ties(()))),
    values_row("median", several(ties((1,), ()), with_nan((), (1,), (0,))), dtypes="iu", orders=0),
    row("nanmedian", several(on((4, 5), (), (0,), (1, True)), with_nan((), (1,)))),
    values_row("nanmedian", several(ties((1,), ()), with_nan((1,))), dtypes="iu", orders=0),
    row("mode", several(ties((), (0,), (1, True)), on((5,), ()), on((), ())), dtypes="iu"),
    row("quantile", on((4, 5), *QUANTILES), dtypes="", rtol=1e-4),
    *(row("quantile", on((4, 5), {"q": 0.37, "dim": 0, "interpolation": word}), dtypes="", variant=word)
      for word in ("lower", "higher", "midpoint", "nearest")),
    row("quantile", with_nan((0.4, 1), (0.4,)), dtypes="", orders=0, variant="nan"),
    row("nanquantile", several(on((4, 5), *QUANTILES), with_nan((0.4, 1), (0.4,), (0.9, 0))), dtypes="", rtol=1e-4),
]  # fmt: skip
LOOKED_UP = [
    row("searchsorted", searches(), torch=in_order("searchsorted"), dtypes="fiu", orders=0),
    row("searchsorted", searches(right=True), torch=in_order("searchsorted"), dtypes="i", orders=0, variant="right"),
    row("searchsorted", searches(side="right", out_int32=True), torch=in_order("searchsorted"), orders=0, variant="int32"),
    row("searchsorted", unsorted_search, torch=in_order("searchsorted"), orders=0, variant="sorter"),
    row("bucketize", into_buckets(), torch=in_order("bucketize"), dtypes="fi", orders=0, drawn=drawn(sequences)),
    row("bucketize", into_buckets(right=True, out_int32=True), torch=in_order("bucketize"), orders=0, variant="right"),
    row("isin", tests, torch=in_order("isin"), dtypes="fiu", orders=0),
]
COUNTED = [
    Operation("Tensor.bincount", counts, orders=0),
    row("histc", several(on((4, 5), (5, -1, 1.5), (3,)), ties((4,), high=1), on((0,), (2,))), dtypes="", orders=0),
    row("histogram", histograms, dtypes="", orders=0, rtol=1e-4),
]
ONCE = [
    row("unique", several(on((0,), ()), on((), ())), dtypes="fiub", orders=0, variant="empty"),
    row("unique", repeated_rows(*ALL_ONCE), dtypes="fiub", orders=0),
    row("unique", repeated_rows(*BY_ROWS), dtypes="fiu", orders=0, variant="dim"),
    row("unique_consecutive", repeated_rows(*ALL_ONCE), dtypes="fiub", orders=0),
    row("unique_consecutive", repeated_rows(*BY_ROWS), dtypes="fiu", orders=0, variant="dim"),
]
OPERATIONS = [*ORDER, *LOOKED_UP, *COUNTED, *ONCE]
