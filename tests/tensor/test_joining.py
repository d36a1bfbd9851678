"""Joins of many small pieces of data, as of the examples of a batch: values, gradients, and no plan for each batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.look import watch
from tests.helpers import same_value

LENGTHS = (3, 1, 4, 2, 5, 3)
JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda lib, x: lib.stack([x[i] for i in (4, 0, 2, 2, 5, 1)]),
    "elements": lambda lib, x: lib.stack([x[i, i % 3] for i in range(6)]),
    "columns in a new last axis": lambda lib, x: lib.stack([x[:, i % 3] for i in range(6)], -1),
    "lengths": lambda lib, x: lib.cat([x[:n] for n in LENGTHS]),
    "along columns": lambda lib, x: lib.cat([x[:, : n % 3 + 1] for n in LENGTHS], 1),
    "moved on": lambda lib, x: lib.cat([x[:n, 0].long() + 10 * n for n in LENGTHS]),
    "constants": lambda lib, x: lib.cat([lib.full((n,), n) for n in LENGTHS]),
    "two dtypes": lambda lib, x: lib.cat([x[:1].double(), *[x[:n] for n in LENGTHS]]),
    "none and one": lambda lib, x: lib.cat([x[:0], *[x[:n] for n in LENGTHS]]),
    "empty vector": lambda lib, x: lib.cat([lib.zeros(0), *[x[:n] for n in LENGTHS]]),
    "of a transpose": lambda lib, x: lib.cat([x.t()[:, :n] for n in LENGTHS], 1),
    "written to": lambda lib, x: lib.cat([x[:n].clone().mul_(2) for n in LENGTHS]),
}


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("name", JOINS)
def test_pieces_of_data_are_joined(name: str, jitted: bool, monkeypatch: pytest.MonkeyPatch, rng) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    data = (rng.standard_normal((6, 3)) * 9).astype(np.float32)
    join = JOINS[name]
    ours = pg.jit(lambda x: join(pg, x)) if jitted else lambda x: join(pg, x)
    x = pg.tensor(data)
    found = ours(x)
    x *= 0  # a later write is not seen
    same_value(found, join(torch, torch.tensor(data)))


def test_gradients_and_transforms_go_through_a_join(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    rows, data = rng.standard_normal((6, 3)).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float32)

    def joined(lib: Any, x: Any, rows: Any) -> Any:
        return (lib.stack([*[rows[i] for i in range(6)], x, x * 2]) ** 2).sum(0)

    ours, theirs = pg.tensor(data), torch.tensor(data)
    kept, others = pg.tensor(rows), torch.tensor(rows)
    same_value(pg.vmap(lambda x: joined(pg, x, kept))(ours), torch.vmap(lambda x: joined(torch, x, others))(theirs))
    slopes = torch.func.jacrev(lambda x: joined(torch, x, others))(theirs[0])
    same_value(pg.func.jacrev(lambda x: joined(pg, x, kept))(ours[0]), slopes)
    pieces = [pg.tensor(row, requires_grad=True) for row in rows]
    (pg.stack(pieces) * pg.arange(6).unsqueeze(1)).sum().backward()
    assert [piece.grad.tolist() for piece in pieces] == [[float(i)] * 3 for i in range(6)]


def test_batches_of_pieces_of_other_lengths_are_planned_once(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """Graphs of a batch as one graph: features, edges that are moved on, and the number of each node's graph."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    sizes = rng.integers(9, 13, 30)
    graphs = [(pg.rand(int(n), 4).realize(), pg.randint(0, int(n), (int(n) * 2,)).realize()) for n in sizes]
    layer = pg.nn.Linear(4, 3)
    optimizer, planned = pg.optim.SGD(layer.parameters(), lr=0.1), []
    for _ in range(16):
        features, edges, owners, offset = [], [], [], 0
        for i, number in enumerate(rng.integers(0, 30, 8)):
            x, edge = graphs[number]
            features.append(x)
            edges.append(edge + offset)
            owners.append(pg.full((len(x),), i, dtype=pg.int64))
            offset += len(x)
        with watch() as counts:
            x, edge, owner = pg.cat(features), pg.cat(edges), pg.cat(owners)
            sums = pg.zeros(8, 3).index_add(0, owner, layer(x + x[edge][: len(x)]))
            optimizer.zero_grad()
            sums.square().mean().backward()
            optimizer.step()
        planned.append(counts.scheduled)
    assert sum(planned[6:]) == 0, planned


def test_a_batch_of_rows_is_joined_without_a_plan(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """Three columns of a table, an element at a time, as a data set of tensors gives them."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    columns = [pg.arange(400).realize(), pg.rand(400).realize(), pg.rand(400, 2).realize()]
    data = [tuple(column[i] for column in columns) for i in range(400)]
    order = rng.permutation(400).tolist()
    with watch() as counts:
        batches = [*pg.utils.data.DataLoader(data, batch_size=100, sampler=order)]
    assert counts.plans == 0
    for i, column in enumerate(columns):
        same_value(pg.cat([batch[i] for batch in batches]), column.numpy()[order])


@pytest.mark.parametrize("shape", [(2, 0), (0, 0), (0, 3), (2, 0, 3), (2, 3)])
def test_many_pieces_are_joined_as_few_are_also_without_elements(shape: tuple[int, ...]) -> None:
    for num in (3, 6):
        pieces = [pg.Tensor(np.ones(shape, np.float32)) for _ in range(num)]
        for axis in range(len(shape)):
            same_value(pg.cat(pieces, axis), np.concatenate([np.ones(shape, np.float32)] * num, axis))
        for axis in range(len(shape) + 1):
            same_value(pg.stack(pieces, axis), np.stack([np.ones(shape, np.float32)] * num, axis))


def test_pieces_of_other_lengths_that_are_a_sum_from_memory_are_no_kernels(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    for _ in range(3):
        arrays = [rng.integers(0, 9, rng.integers(2, 20)) for _ in range(8)]
        pieces = [(pg.tensor(array) + 3 * i, torch.tensor(array) + 3 * i) for i, array in enumerate(arrays)]
        pieces += [(library.full((i,), i) for library in (pg, torch)) for i in range(1, 8)]  # type: ignore[misc]
        ours, theirs = zip(*pieces)
        with watch() as counts:
            found = pg.cat(ours)
            same_value(found, torch.cat(theirs))
        assert counts.kernels == 0


@pytest.mark.parametrize("as_rows", [False, True])
def test_blocks_of_drawn_batches_that_need_gradients_are_joined_without_a_plan(
    as_rows: bool, monkeypatch: pytest.MonkeyPatch, rng
) -> None:
    """Samples kept in a list, as for an energy model: else each pattern of batches among them would have a plan."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    data, factors = rng.standard_normal((3, 4, 2)).astype(np.float32), rng.standard_normal((6, 2)).astype(np.float32)
    batches = [pg.tensor(batch, requires_grad=True) for batch in data]
    kept = [sample for batch in batches for sample in (batch.unbind() if as_rows else batch.chunk(4))]
    for _ in range(8):
        drawn = rng.integers(0, 12, 6)
        with watch() as counts:
            joined = (pg.stack if as_rows else pg.cat)([kept[i] for i in drawn])
            same_value(joined.detach(), torch.tensor(data.reshape(12, 2)[drawn]))
        assert not counts.plans and joined.requires_grad
        for batch in batches:
            batch.grad = None
        (joined * pg.tensor(factors)).sum().backward()
        slopes = np.zeros((12, 2), np.float32)
        np.add.at(slopes, drawn, factors)
        for batch, slope in zip(batches, slopes.reshape(3, 4, 2)):
            np.testing.assert_allclose(0 if batch.grad is None else batch.grad.numpy(), slope, atol=1e-6)
