"""Reductions and running values: the rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.operations.table import Operation, Rng, Sample, reductions, sample


def over_axes(rng: Rng) -> list[Sample]:
    """Calls over no axis, one, several, from the end, and of what is empty."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    return [sample(x), sample(x, 1), sample(x, (0, -1)), sample(x, dim=-1, keepdim=True), sample(np.array(x[0, 0, 0]))]


def with_empty(rng: Rng) -> list[Sample]:
    """Those, and calls over no element."""
    empty = rng.uniform(-2.0, 2.0, (2, 0, 3))
    return [*over_axes(rng), sample(empty), sample(empty, 1), sample(empty, 0)]


def over_one_axis(rng: Rng) -> list[Sample]:
    """Calls along one axis, and of a number."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    return [sample(x, 1), sample(x, -1), sample(x[:, :0], 0), sample(np.array(x[0, 0, 0]), 0), sample(x[:, :, :1], 2)]


def one_or_all(rng: Rng) -> list[Sample]:
    """Calls along one axis or over all."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    return [sample(x), sample(x, 1), sample(x, -1, keepdim=True), sample(np.array(x[0, 0, 0]))]


def named_axes(rng: Rng) -> list[Sample]:
    """Calls whose arguments are all given by name."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    return [sample(x, dim=2), sample(x), sample(x, dim=0, keepdim=True)]


def with_corrections(rng: Rng) -> list[Sample]:
    """Calls of variances."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    ways: list[dict[str, Any]] = [{"correction": 0}, {"unbiased": False}, {"dim": (0, 2), "correction": 2}, {"dim": 1}]
    calls = [sample(x), *(sample(x, **kwargs) for kwargs in ways)]
    return [*calls, sample(x, False), sample(x, 1, False), sample(x, 1, True, True)]


def with_nan(rng: Rng) -> list[Sample]:
    """Calls on an array of which some elements are NaN."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    x[0, 1], x[2, 2, 2] = np.nan, np.nan
    return [sample(x), sample(x, 1), sample(x, (0, 2), keepdim=True), sample(x[1, 0])]


def with_ties(rng: Rng) -> list[Sample]:
    """Calls along one axis of small integers, many of them equal."""
    x = rng.integers(-2, 3, (3, 4, 5)).astype(np.float64)
    return [sample(x, 1), sample(x, -1), sample(np.array(1.5), 0)]


def norms(rng: Rng) -> list[Sample]:
    """Calls of every kind of p."""
    x = rng.uniform(0.2, 2.0, (3, 4, 5)) * rng.choice([-1.0, 1.0], (3, 4, 5))
    powers = (2, 1, 3, 0.5, -1, float("inf"), -float("inf"), 0)
    return [sample(x), *(sample(x, p, 1) for p in powers), sample(x, 2, (0, 2), True)]


def differences(rng: Rng) -> list[Sample]:
    """Calls of diff: again, along another axis, with what is joined before."""
    x = rng.uniform(-2.0, 2.0, (4, 5))
    return [sample(x), sample(x, 2), sample(x, 1, 0), sample(x, 9), sample(x, prepend=x[:, :1], append=x[:, :2])]


def renormed(rng: Rng) -> list[Sample]:
    """Calls of renorm on slices that are too long and such that are not."""
    x = rng.uniform(-1.0, 1.0, (4, 3)) * np.array([[0.1], [1.0], [3.0], [0.3]])
    return [sample(x, 2, 0, 1.0), sample(x, 1, 1, 2.0)]


def pairs(rng: Rng) -> list[Sample]:
    """Two arrays to measure the distance of."""
    a, b = rng.uniform(-2.0, 2.0, (2, 4, 5))
    return [sample(a, b), sample(a, b, 1), sample(a, b[0], 3), sample(a, b, float("inf"))]


def softmaxes(rng: Rng) -> list[Sample]:
    """Calls along one axis."""
    x = rng.uniform(-2.0, 2.0, (3, 4, 5))
    return [sample(x, 1), sample(x, -1), sample(x[:, :0], 2)]


OPERATIONS = [
    Operation("Tensor.sum", with_empty, dtypes="fiub", drawn=reductions()),
    Operation("Tensor.prod", one_or_all, dtypes="fiub"),
    Operation("Tensor.mean", over_axes, drawn=reductions()),
    Operation("Tensor.var", with_corrections),
    Operation("Tensor.std", with_corrections),
    Operation("var_mean", with_corrections, call=lambda x, *args, **kwargs: x.var_mean(*args, **kwargs)),
    Operation("std_mean", with_corrections, call=lambda x, *args, **kwargs: x.std_mean(*args, **kwargs)),
    Operation("Tensor.norm", norms),
    Operation("Tensor.dist", pairs, dtypes=""),
    Operation("Tensor.renorm", renormed, dtypes=""),
    Operation("Tensor.nansum", with_nan, dtypes="f"),
    Operation("Tensor.nanmean", with_nan, dtypes="f"),
    Operation("Tensor.count_nonzero", over_one_axis, dtypes="fiub", orders=0),
    # ---- extremes ----
    Operation("Tensor.amax", over_axes, dtypes="fiub", drawn=reductions()),
    Operation("Tensor.amin", over_axes, dtypes="fiub", drawn=reductions()),
    Operation("Tensor.aminmax", named_axes, dtypes="fiub"),
    Operation("Tensor.max", one_or_all, dtypes="fiu"),
    Operation("Tensor.min", one_or_all, dtypes="fiu"),
    Operation("Tensor.max", with_ties, variant="ties"),
    Operation("Tensor.min", with_ties, variant="ties"),
    Operation("Tensor.argmax", one_or_all, dtypes="fiu", orders=0),
    Operation("Tensor.argmin", one_or_all, dtypes="fiu", orders=0),
    # ---- truth ----
    Operation("Tensor.any", with_empty, dtypes="fiub", orders=0),
    Operation("Tensor.all", with_empty, dtypes="fiub", orders=0),
    # ---- exponentials ----
    Operation("Tensor.logsumexp", lambda rng: over_axes(rng)[1:4], dtypes="f"),
    Operation("Tensor.softmax", softmaxes, dtypes="f"),
    Operation("Tensor.log_softmax", softmaxes, dtypes="f"),
    # ---- running ----
    Operation("Tensor.cumsum", over_one_axis, dtypes="fiub"),
    Operation("Tensor.cumprod", over_one_axis, dtypes="fiub"),
    Operation("Tensor.cummax", with_ties, dtypes="fiub"),
    Operation("Tensor.cummin", with_ties, dtypes="fiub"),
    Operation("Tensor.logcumsumexp", over_one_axis, dtypes="f"),
    Operation("Tensor.diff", differences, dtypes="fib"),
]
