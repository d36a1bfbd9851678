"""Indexing, gathers and scatters, choices by masks: the rows of the table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.operations.movement import Args, Samples, drawn, on, several
from tests.operations.table import Array, Operation, Rng, Sample, sample

INDICES: tuple[Args, ...] = (
    (0,), (-1,), (slice(1, 3),), (slice(None, None, 2),), (Ellipsis, 0), (None, 1), (0, Ellipsis, None), (slice(3, 1),),
    (slice(None), slice(1, None, 2)), (0, 1, 2), (), ([0, 2],), ([0, 1], [1, 2]), (slice(None), [[0, 2]]),
    ([0, 1], slice(None), [2, 3]), ([[0], [1]], [0, 2]), (None, [-1, 0]), (slice(1, 3), [0, 1], slice(None, None, 2)),
    ([True, False, True, True],), (slice(None), [False, True, True], 0), (True,), (False, 0), (0, True, [1, 2]),
    ([[True] * 3] * 4,), (Ellipsis, [True, False, True, True, False]), ([0, 3], [False, True, True]), ([],),
)  # fmt: skip
REPEATED: tuple[Args, ...] = ((slice(None), [[0, 2], [1, 1]]), ([0, 0, 1],), ([1, 1], slice(None), [2, 2]))


def read(rng: Rng) -> list[Sample]:
    """Calls with every kind of index; some name a place twice."""
    return [*indexed(rng), *(sample(rng.uniform(-2.0, 2.0, (4, 3, 5)), index) for index in REPEATED)]


def indexed(rng: Rng) -> list[Sample]:
    """Calls with every kind of index: lists, arrays and masks, which are tensors then."""
    x = rng.uniform(-2.0, 2.0, (4, 3, 5))
    calls = [sample(x, index) for index in INDICES]
    arrays = [tuple(np.array(part) if isinstance(part, list) and part else part for part in i) for i in INDICES]
    return [*calls, *(sample(x, index) for index in arrays), sample(np.array(1.5), ()), sample(np.array(1.5), (None,))]


def written(rng: Rng, with_ones: bool = True) -> list[Sample]:
    """Calls of an assignment with a value of the shape that is shown, one that is repeated, and a number."""
    calls: list[Sample] = []
    for call in indexed(rng):
        x, index = call.args
        shape = x[index].shape if not _mixed(index) else torch.zeros(x.shape)[index].shape
        calls += [sample(x, index, rng.uniform(-2.0, 2.0, shape)), sample(x, index, 2.0)]
        calls += [sample(x, index, rng.uniform(-2.0, 2.0, shape[1:]))]
        calls += [sample(x, index, rng.uniform(-2.0, 2.0, (1, *shape)))] if with_ones else []
    return calls


def _mixed(index: Args) -> bool:
    """True where NumPy counts an int among the arrays, and PyTorch does not."""
    return any(isinstance(part, int) for part in index) and any(isinstance(part, (list, np.ndarray)) for part in index)


def assign(x: Any, index: Any, value: Any) -> Any:
    """Returns a copy of a tensor of either library after x[index] = value."""
    copy = x.clone()
    copy[index] = value
    return copy


def add_to(x: Any, index: Any, value: Any) -> Any:
    """Returns a copy of a tensor of either library after x[index] += value."""
    copy = x.clone()
    copy[index] += value
    return copy


def positions(x: Array, axis: int, shape: tuple[int, ...], rng: Rng, distinct: bool = False) -> Array:
    """Returns indices along an axis of x; distinct: no two of a row are equal."""
    if not distinct:
        return rng.integers(0, x.shape[axis], shape)
    order = np.argsort(rng.random(tuple(x.shape[a] if a == axis else n for a, n in enumerate(shape))), axis)
    return order[tuple(slice(n) for n in shape)]


SCATTERS: tuple[tuple[tuple[int, ...], int, tuple[int, ...]], ...] = (
    ((4, 5), 0, (4, 5)), ((4, 5), 1, (4, 3)), ((4, 5), -1, (2, 2)), ((3, 4, 2), 1, (2, 3, 2)), ((4,), 0, (0,)),
)  # fmt: skip


def with_source(distinct: bool, *rest: Any, extra: int = 0, **kwargs: Any) -> Samples:
    """Returns calls (x, dim, index, src, *rest) with shorter indices and, where `extra`, a longer source."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, dim, length in SCATTERS:
            x = rng.uniform(-2.0, 2.0, shape)
            index = positions(x, dim % len(shape), length, rng, distinct)
            calls.append(sample(x, dim, index, rng.uniform(-2, 2, tuple(n + extra for n in length)), *rest, **kwargs))
        number = np.array(1.5), 0, np.array(0), np.array(-0.5)
        return [*calls, sample(*number, *rest, **kwargs)]

    return samples


def with_slices(*rest: Any, distinct: bool = False, **kwargs: Any) -> Samples:
    """Returns calls (x, dim, index, source, *rest) with one index for each slice."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, dim, count in (((4, 5), 0, 3), ((4, 5), -1, 5), ((3, 4, 2), 1, 2), ((4,), 0, 0)):
            axis = dim % len(shape)
            x, source = (rng.uniform(-2, 2, (*shape[:axis], n, *shape[axis + 1 :])) for n in (shape[axis], count))
            index = rng.permutation(shape[axis])[:count] if distinct else rng.integers(0, shape[axis], count)
            calls.append(sample(x, dim, index, source, *rest, **kwargs))
        return calls

    return samples


def picks(low: int, high: int, *shape: int) -> Samples:
    """Returns a call on (3, 4) with an index array after the arguments of on()."""
    return lambda rng: [sample(rng.uniform(-2.0, 2.0, (3, 4)), rng.integers(low, high, shape))]


def masked(*rest: Any, counts: bool = False) -> Samples:
    """Returns calls with masks: of the same shape, repeated, without one True, of nothing; with as many values."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, mask_shape in (((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 4), (3, 1)), ((), ()), ((0, 2), (2,))):
            x, mask = rng.uniform(-2.0, 2.0, shape), rng.random(mask_shape) < 0.5
            source = (rng.uniform(-2.0, 2.0, (13,)),) if counts else ()
            calls.append(sample(x, np.array(mask), *source, *rest))
        return calls

    return samples


def gathers(rng: Rng) -> list[Sample]:
    calls = [call.args for call in with_source(False)(rng)]
    return [sample(x, dim, index) for x, dim, index, _ in calls]


def put_calls(rng: Rng) -> list[Sample]:
    x, source = rng.uniform(-2, 2, (4, 5)), rng.uniform(-2, 2, (3,))
    index = (np.array([0, 3, 1]), np.array([4, 4, 0]))
    return [
        sample(x, index, source), sample(x, index[:1], rng.uniform(-2, 2, (3, 5))), sample(x, (x > 0,), np.array(0.5)),
    ]  # fmt: skip


def put_added(rng: Rng) -> list[Sample]:
    x, index = rng.uniform(-2, 2, (4, 5)), (np.array([0, 0, 1]), np.array([4, 4, 0]))
    rows = sample(x, index[:1], rng.uniform(-2, 2, (5,)), accumulate=True)
    return [sample(x, index, rng.uniform(-2, 2, (3,)), True), rows]


def along_dim(rng: Rng) -> list[Sample]:
    x = rng.uniform(-2, 2, (3, 4))
    places = [(rng.integers(0, 4, (3, 2)), 1), (rng.integers(0, 4, (1, 2)), 1), (rng.integers(0, 3, (2, 1)), 0)]
    return [*(sample(x, *place) for place in places), sample(x, rng.integers(0, 12, (5,)))]


def repeats(rng: Rng) -> list[Sample]:
    x = rng.uniform(-2, 2, (3, 4))
    return [
        sample(x, np.array([2, 0, 1]), 0), sample(x, np.array([1, 2, 0, 3]), -1), sample(x, np.array([2]), 1),
        sample(x, np.array([0, 0, 0]), 0), sample(x, np.array([2, 0, 1]), 0, output_size=3),
    ]  # fmt: skip


def classes(rng: Rng) -> list[Sample]:
    x = rng.integers(0, 5, (3, 4))
    return [sample(x, 6), sample(x), sample(np.array(2), 3), sample(np.zeros((0, 2), np.int64), 3)]


def row(name: str, samples: Samples, **kwargs: Any) -> Operation:
    return Operation(f"Tensor.{name}", samples, torch=quiet(name), dtypes=kwargs.pop("dtypes", "fiub"), **kwargs)


def quiet(name: str) -> Callable[..., Any]:
    """Returns PyTorch's method without its warnings, of what is slow, in beta or to be spelled differently."""

    def method(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return getattr(x, name)(*args, **kwargs)

    return method


def put(rng: Rng) -> list[Sample]:
    x, twice = rng.uniform(-2, 2, (3, 4)), np.array([[1, -1], [1, 0]])
    added = sample(x, twice, rng.uniform(-2, 2, (2, 2)), True)
    return [sample(x, rng.permutation(12)[:5] - 6, rng.uniform(-2, 2, 5)), added]


def reductions(name: str, samples: Any, words: tuple[str, ...]) -> list[Operation]:
    """Returns a row for each reduction, with what is there and without."""
    return [
        row(name, samples(False, word, include_self=include_self), variant=word + " only" * (not include_self),
            dtypes="i" if word == "mean" else "fi", orders=2 if word in ("sum", "prod", "mean") else 1)
        for word in words for include_self in (True, False)
    ]  # fmt: skip


def diagonals(rng: Rng) -> list[Sample]:
    """Calls of fill_diagonal_: wide, tall with and without a second diagonal, of three equal axes."""
    tall = rng.uniform(-2.0, 2.0, (7, 3))
    wide, cube = rng.uniform(-2.0, 2.0, (3, 5)), rng.uniform(-2.0, 2.0, (3, 3, 3))
    return [sample(wide, 3), sample(tall, 2), sample(tall, 2, True), sample(cube, 1)]


def sliced(distinct: bool, *rest: Any, **kwargs: Any) -> Samples:
    return with_slices(*rest, distinct=distinct, **kwargs)


def basic(x: Array) -> st.SearchStrategy[Args]:
    """Any index without an array, of steps that PyTorch takes."""
    found = hnp.basic_indices(x.shape, allow_newaxis=True, max_dims=6)
    whole = found.map(lambda index: index if isinstance(index, tuple) else (index,))
    return whole.filter(lambda index: all(not isinstance(i, slice) or (i.step or 1) > 0 for i in index)).map(lambda i: (i,))


def in_place(name: str) -> Callable[..., Any]:
    """Returns a method of either library, on a copy."""

    def method(x: Any, *args: Any, **kwargs: Any) -> Any:
        copy = x.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = getattr(copy, name)(*args, **kwargs)
        assert result is copy
        return copy

    return method


def with_underscore(found: Operation) -> Operation:
    """Returns the row of the form that writes in place."""
    method = in_place(f"{found.name.removeprefix('Tensor.')}_")
    return replace(found, name=f"{found.name}_", call=method, torch=method)


ROWS = [
    row("__getitem__", read, drawn=drawn(basic, 1)),
    Operation("Tensor.__setitem__", written, call=assign, torch=assign, dtypes="fiub"),
    Operation("Tensor.__setitem__", lambda rng: written(rng, False), call=add_to, torch=add_to, dtypes="fi",
              variant="added"),
    row("gather", gathers),
    row("take", several(picks(-12, 12, 2, 3), picks(0, 12, 0), picks(0, 1))),
    row("take_along_dim", along_dim),
    row("index_select", lambda rng: [sample(*c.args[:3]) for c in with_slices()(rng)]),
    row("scatter", with_source(True, extra=0)),
    row("scatter", with_source(True, extra=1), orders=0, variant="longer source"),
    row("scatter", lambda rng: [sample(*c.args[:3], 1.0) for c in with_source(False)(rng)], variant="value"),
    row("scatter", with_source(False, reduce="add"), dtypes="fi", orders=0, variant="add"),
    row("scatter", with_source(False, reduce="multiply"), dtypes="fi", orders=0, variant="multiply"),
    row("scatter_add", with_source(False), dtypes="fiu"),
    *reductions("scatter_reduce", with_source, ("sum", "prod", "mean", "amax", "amin")),
    row("index_add", with_slices(), dtypes="fiu"),
    row("index_add", with_slices(alpha=2), dtypes="fiu", variant="alpha"),
    row("index_copy", with_slices(distinct=True)),
    row("index_fill", lambda rng: [sample(*c.args[:3], 1.0) for c in with_slices()(rng)]),
    row("index_fill", lambda rng: [sample(*c.args[:3], np.array(1.5)) for c in with_slices(distinct=True)(rng)],
        variant="tensor"),
    *reductions("index_reduce", sliced, ("prod", "mean", "amax", "amin")),
    row("index_put", put_calls),
    row("index_put", put_added, dtypes="fi", variant="added"),
    row("put", put, dtypes="fiu"),
    row("masked_fill", masked(1.0)),
    row("masked_fill", masked(np.array(0.5)), variant="tensor"),
    row("masked_scatter", masked(counts=True)),
    row("masked_select", masked()),
    row("nonzero", several(on((3, 4), ()), on((), ()), on((0, 2), ())), orders=0),
    row("nonzero_static", several(
        *(on(shape, {"size": n}) for shape in ((3, 4), (), (0, 2), (2, 3, 2)) for n in (0, 3, 20)),
        on((3, 4), {"size": 20, "fill_value": 7})), orders=0),
    row("nonzero", several(on((3, 4), {"as_tuple": True}), on((), {"as_tuple": True})), orders=0, variant="tuple"),
    row("argwhere", several(on((3, 4), ()), on((), ())), orders=0),
    Operation("Tensor.one_hot", classes, torch="nn.functional.one_hot", orders=0, also=("nn.functional.one_hot",)),
    row("repeat_interleave", repeats, variant="tensor"),
    Operation("Tensor.fill_diagonal_", diagonals, torch=in_place("fill_diagonal_"), call=in_place("fill_diagonal_"),
              dtypes="fiu"),
]  # fmt: skip
IN_PLACE = {
    f"Tensor.{name}" for name in (
        "scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_fill", "index_put", "index_reduce",
        "put", "masked_fill", "masked_scatter",
    )
}  # fmt: skip
OPERATIONS = [*ROWS, *(with_underscore(found) for found in ROWS if found.name in IN_PLACE)]
