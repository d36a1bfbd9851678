"""Data sets, samplers and the loader, side by side with PyTorch's."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import ArgumentError, IndexingError, ShapeError, Tensor
from picograd.look import watch
from picograd.utils import data

Example = namedtuple("Example", "x label")


def plain(value: Any) -> Any:
    """Returns a batch of either library with lists for tensors, which are named by their dtype."""
    if isinstance(value, Tensor | torch.Tensor):
        return str(value.dtype).removeprefix("torch."), value.tolist()
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(*map(plain, value)) if hasattr(value, "_fields") else [plain(item) for item in value]
    return value


def batches(library: Any, dataset: Any, **settings: Any) -> list[Any]:
    return [plain(batch) for batch in library.DataLoader(dataset, **settings)]


EXAMPLES: dict[str, list[Any]] = {
    "numbers": [1, 2, 3, 4, 5],
    "floats": [0.1, 0.2, 0.3],
    "bools": [True, False, True],
    "NumPy's numbers": [np.float32(1), np.float32(2)],
    "arrays": [np.arange(3, dtype=np.int32) + i for i in range(5)],
    "pairs": [(np.ones(2, np.float32) * i, i) for i in range(5)],
    "dicts": [{"x": i, "name": f"number {i}", "inside": [i, i * 0.5]} for i in range(5)],
    "named": [Example(np.float64(i), i) for i in range(3)],
    "texts": ["a", "bc", "d"],
}


@pytest.mark.parametrize("settings", [{}, {"batch_size": 2}, {"batch_size": 2, "drop_last": True}, {"batch_size": None}])
@pytest.mark.parametrize("kind", EXAMPLES)
def test_batches_are_those_of_pytorch(kind: str, settings: dict[str, Any]) -> None:
    examples = EXAMPLES[kind]
    assert batches(data, examples, **settings) == batches(torch.utils.data, examples, **settings)
    assert len(data.DataLoader(examples, **settings)) == len(torch.utils.data.DataLoader(examples, **settings))


@pytest.mark.parametrize("settings", [{"batch_size": 3}, {"batch_size": 3, "drop_last": True}, {"batch_size": None}])
def test_tensors_are_batched_as_pytorch_does(settings: dict[str, Any], device: str) -> None:
    x, y = np.arange(14, dtype=np.float32).reshape(7, 2), np.arange(7)
    mine = data.TensorDataset(pg.tensor(x), pg.tensor(y))
    other = torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y))
    assert batches(data, mine, **settings) == batches(torch.utils.data, other, **settings)
    half, other_half = data.Subset(mine, [5, 1, 3, 0]), torch.utils.data.Subset(other, [5, 1, 3, 0])
    assert batches(data, half, **settings) == batches(torch.utils.data, other_half, **settings)
    assert plain(mine[-1]) == plain(other[-1]) and len(mine) == len(other)


def test_a_batch_of_tensors_is_one_gather_each(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = data.TensorDataset(pg.arange(6), pg.arange(6))
    monkeypatch.setattr(data.TensorDataset, "__getitem__", None)  # nobody asks for single examples
    assert [batch[0].tolist() for batch in data.DataLoader(rows, batch_size=4)] == [[0, 1, 2, 3], [4, 5]]


def test_a_collate_function_gets_the_examples() -> None:
    rows = data.TensorDataset(pg.arange(4))
    found = list(data.DataLoader(rows, batch_size=3, collate_fn=lambda batch: [x.item() for (x,) in batch]))
    assert found == [[0, 1, 2], [3]]


def test_shuffled_examples_are_each_seen_once_and_in_another_order_each_time() -> None:
    loader = data.DataLoader(range(64), batch_size=10, shuffle=True, generator=pg.Generator(1))
    first, second = ([n for batch in loader for n in batch.tolist()] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(64)) and first != second
    again = data.DataLoader(range(64), batch_size=10, shuffle=True, generator=pg.Generator(1))
    assert [n for batch in again for n in batch.tolist()] == first


def test_samplers() -> None:
    assert list(data.SequentialSampler("abcd")) == [0, 1, 2, 3]
    assert sorted(data.RandomSampler("abcd", num_samples=8)) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(list(data.RandomSampler("abcd", num_samples=6))) == len(data.RandomSampler("abcd", num_samples=6)) == 6
    drawn = list(data.RandomSampler("abcd", replacement=True, num_samples=200, generator=pg.Generator(3)))
    assert set(drawn) == {0, 1, 2, 3} and len(drawn) == 200
    assert sorted(data.SubsetRandomSampler([7, 3, 5])) == [3, 5, 7]
    weighted = list(data.WeightedRandomSampler([0.0, 3.0, 1.0], 400, generator=pg.Generator(3)))
    assert weighted.count(0) == 0 and 250 < weighted.count(1) < 350
    assert sorted(data.WeightedRandomSampler([1.0, 3.0, 1.0], 3, replacement=False)) == [0, 1, 2]
    for settings in ({"batch_size": 2, "drop_last": True}, {"batch_size": 2, "drop_last": False}):
        mine, other = data.BatchSampler(range(5), **settings), torch.utils.data.BatchSampler(range(5), **settings)
        assert list(mine) == list(other) and len(mine) == len(other)
    loader = data.DataLoader(range(5), batch_sampler=[[4, 0], [1]])
    assert [batch.tolist() for batch in loader] == [[4, 0], [1]] and len(loader) == 2


class Count(data.IterableDataset):
    def __init__(self, end: int):
        self.end = end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.end))

    def __len__(self) -> int:
        return self.end


def test_what_comes_one_after_the_other() -> None:
    assert [batch.tolist() for batch in data.DataLoader(Count(5), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert [batch.tolist() for batch in data.DataLoader(Count(5), batch_size=2, drop_last=True)] == [[0, 1], [2, 3]]
    assert list(data.DataLoader(Count(2), batch_size=None)) == [0, 1]
    assert list(Count(2) + Count(1)) == [0, 1, 0] and len(Count(2) + Count(1)) == 3
    for settings in ({"batch_size": 2}, {"batch_size": 2, "drop_last": True}, {"batch_size": None}):
        loader = data.DataLoader(Count(5), **settings)  # type: ignore[arg-type]
        assert len(loader) == len(list(loader))


def test_data_sets_of_data_sets() -> None:
    both = data.TensorDataset(pg.arange(2)) + data.TensorDataset(pg.arange(3))
    assert [both[i][0].item() for i in (0, 1, 2, 4, -1, -5)] == [0, 1, 0, 2, 2, 0]
    with pytest.raises(IndexingError, match="ConcatDataset: there is no example 5 of 5."):
        both[5]
    assert data.StackDataset([1, 2], "ab")[1] == (2, "b") and len(data.StackDataset(x=[1], y=[2])) == 1
    assert data.Subset("abcd", [3, 1])[1] == "b"


@pytest.mark.parametrize("lengths", [[7, 3], [0.75, 0.25], [0.5, 0.3, 0.2], [1.0], [10, 0]])
def test_parts_of_a_data_set(lengths: list[Any]) -> None:
    parts = data.random_split(range(10), lengths, generator=pg.Generator(1))
    assert [len(part) for part in parts] == [len(part) for part in torch.utils.data.random_split(range(10), lengths)]
    assert sorted(part[i] for part in parts for i in range(len(part))) == list(range(10))


WRONG = [
    (lambda: data.DataLoader([1], batch_size=0), ArgumentError, "batch_size must be a positive integer or None, got 0"),
    (lambda: data.DataLoader([1], shuffle=True, sampler=[0]), ArgumentError, "give one of shuffle=True and a sampler"),
    (lambda: data.DataLoader(Count(1), shuffle=True), ArgumentError, "an IterableDataset defines its order"),
    (lambda: data.DataLoader([1], batch_size=2, batch_sampler=[[0]]), ArgumentError, "a batch_sampler excludes batch_size"),
    (lambda: data.DataLoader([1], batch_size=None, drop_last=True), ArgumentError, "batch_size=None makes none"),
    (lambda: data.TensorDataset(), ArgumentError, "needs at least one tensor"),
    (lambda: data.TensorDataset(pg.ones(2), pg.ones(3)), ShapeError, r"\(2,\), \(3,\) have no common number of rows"),
    (lambda: data.StackDataset([1], [1, 2]), ArgumentError, r"lengths \[1, 2\]"),
    (lambda: data.StackDataset([1], x=[1]), ArgumentError, "all of them with names or all without"),
    (lambda: data.ConcatDataset([]), ArgumentError, "needs at least one data set"),
    (lambda: data.ConcatDataset([[1], 2]), ArgumentError, "ConcatDataset: a data set must have a length, got int 2"),
    (lambda: data.random_split(range(3), [1, 1]), ArgumentError, r"\[1, 1\] must not be .* to the 3 examples"),
    (lambda: data.random_split(range(3), [4, -1]), ArgumentError, r"\[4, -1\] must not be negative"),
    (lambda: data.default_collate([np.ones(2), np.ones(3)]), ShapeError, r"shapes \(2,\), \(3,\) make no batch"),
    (lambda: data.default_collate([[1], [1, 2]]), ShapeError, r"sequences of lengths \[1, 2\] make no batch"),
    (lambda: data.default_collate([object()]), pg.ArgumentTypeError, "makes batches of tensors, arrays, numbers"),
    (lambda: data.WeightedRandomSampler([1.0], 0), ArgumentError, "num_samples must be at least 1, got 0"),
    (lambda: data.RandomSampler([1], num_samples=0), ArgumentError, "num_samples must be at least 1, got 0"),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_what_is_wrong_is_said(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_network_trains_on_a_loader() -> None:
    pg.manual_seed(1)
    x = pg.randn(96, 4)
    rows = data.TensorDataset(x, (x.sum(1) > 0).long())
    net = pg.nn.Linear(4, 2)
    optimizer = pg.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(5):
        for features, labels in data.DataLoader(rows, batch_size=32, shuffle=True):
            loss = pg.nn.functional.cross_entropy(net(features), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert loss.item() < 0.35


def test_examples_that_were_changed_at_random_make_no_plan_for_each_combination() -> None:
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    x = Tensor(rows)

    def scheduled(numbers: list[int], flips: list[bool]) -> int:
        with watch() as counts:
            batch = data.default_collate([x[i].flip(0) if flip else x[i] * 1 for i, flip in zip(numbers, flips)])
            assert batch.tolist() == [rows[i, :: -1 if flip else 1].tolist() for i, flip in zip(numbers, flips)]
        return counts.scheduled

    assert scheduled([0, 1, 2, 3, 4, 5], [True, False, False, True, True, False]) > 0
    assert scheduled([3, 5, 1, 2, 0, 4], [True, True, False, True, False, False]) == 0
    assert scheduled([4, 2, 7, 6, 1, 3], [False] * 6) == scheduled([2, 6, 7, 0, 3, 5], [True] * 6) == 0


def test_examples_that_were_only_moved_are_copied_by_the_host() -> None:
    rows = np.arange(48.0, dtype=np.float32).reshape(3, 4, 4)
    x = Tensor(rows, device="CPU").realize()
    moved = [x[0].pad((1, 1))[:, :4], x[1].flip(1), x[2].T]
    with watch() as counts:
        batch = data.default_collate(moved)
    assert counts.plans == 0 and (batch.dtype, batch.device) == (x.dtype, x.device)
    expected = [np.pad(rows[0], ((0, 0), (1, 1)))[:, :4], rows[1][:, ::-1], rows[2].T]
    np.testing.assert_array_equal(batch.numpy(), np.stack(expected))


def test_rows_of_one_tensor_are_collated_in_one_plan() -> None:
    rows = np.arange(24, dtype=np.float32).reshape(8, 3)
    x = Tensor(rows)
    with watch() as counts:
        assert data.default_collate([x[5], x[0], x[7]]).tolist() == rows[[5, 0, 7]].tolist()
    assert counts.plans == 1


class Words(data.Dataset):
    """Words of different lengths, each written into zeros."""

    def __init__(self, count: int) -> None:
        self.lengths = [2 + number * number % 5 % 3 for number in range(count)]

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        letters = pg.arange(1, 1 + self.lengths[number])
        x, y = pg.zeros(6, dtype=pg.int64), pg.zeros(6, dtype=pg.int64)
        x[1 : 1 + len(letters)] = letters
        y[: len(letters)] = letters
        y[len(letters) + 1 :] = -1
        return x, y


@pytest.mark.parametrize("kind", ["numbers", "stream"])
def test_examples_written_in_place_make_no_plan_for_each_mixture_in_a_batch(kind: str) -> None:
    """Writes that are pending join the next plan: before, that was one of the whole batch, another for each batch."""
    words = Words(40)

    class Stream(data.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return (words[number] for number in range(40))

    dataset = words if kind == "numbers" else Stream()
    with watch() as counts:
        batches = [(x.tolist(), y.tolist()) for x, y in data.DataLoader(dataset, batch_size=8)]
    assert counts.scheduled <= 2 * len({*words.lengths})
    assert batches[0][0][:2] == [[0, 1, 2, 0, 0, 0], [0, 1, 2, 3, 0, 0]]
    assert batches[0][1][:2] == [[1, 2, 0, -1, -1, -1], [1, 2, 3, 0, -1, -1]]


def test_classes_take_the_types_that_programs_write() -> None:
    class Squares(data.Dataset[int]):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            return index * index

    loader: data.DataLoader[int] = data.DataLoader(Squares(), batch_size=3)  # type: ignore[type-arg]
    assert [batch.tolist() for batch in loader] == [[0, 1, 4]]
    assert issubclass(data.IterableDataset[int].__origin__, data.Dataset) and data.Sampler[int].__origin__ is data.Sampler
