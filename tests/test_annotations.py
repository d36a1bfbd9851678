"""What fits an annotation, and what errors call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, ParamSpec

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim, utils
from picograd.annotations import described, fits, shown
from picograd.dtype import DType
from picograd.public import signature_of

P = ParamSpec("P")
FITTING: list[tuple[Any, Any]] = [
    (1, int), (np.int64(1), int), (True, int), (1, float), (np.float32(1.5), float), (None, int | None), ("x", str),
    ((1, 2), Sequence[int]), ([1, 2], tuple[int, int]), (np.ones(2), Sequence[float]), (iter([1]), Iterable[int]),
    ({"a": 1}, Mapping[str, int]), (len, Callable[..., Any]), ("mean", Literal["mean", "sum"]), (object(), Any),
    (Tensor(1.0), Tensor | float), (nn.Linear(1, 1), nn.Module), (1, P.args),
]  # fmt: skip
OTHERS: list[tuple[Any, Any]] = [
    (1.5, int), ("1", float), (None, int), (Tensor(1.0), float), (1, str), ("ab", Sequence[int]), (b"ab", Sequence[int]),
    ([1, "x"], Sequence[int]), ((1,), tuple[int, int]), (Tensor(1.0), Iterable[Tensor]), ({"a": "x"}, Mapping[str, int]),
    (1, Callable[..., Any]), ("max", Literal["mean", "sum"]), (1.0, Tensor), (object(), int | str | None),
]  # fmt: skip


@pytest.mark.parametrize(("value", "wanted"), FITTING)
def test_what_fits(value: Any, wanted: Any) -> None:
    assert fits(value, wanted)


@pytest.mark.parametrize(("value", "wanted"), OTHERS)
def test_what_does_not_fit(value: Any, wanted: Any) -> None:
    assert not fits(value, wanted)


def test_annotations_in_words() -> None:
    assert described(int | Sequence[int] | None) == "an int, a sequence of ints or None"
    assert described(bool | int | float | Tensor) == "a number or a tensor"
    assert described(Sequence[int | Tensor]) == "a sequence of ints or tensors"
    assert described(tuple[float, float]) == "2 numbers"
    assert described(Mapping[str, nn.Module]) == "a dict of modules"
    assert described(Iterable[Any]) == "an iterable"
    assert described(Callable[..., Any] | DType) == "a function or a dtype"
    assert described(Literal["mean", "sum"]) == "'mean' or 'sum'"


def test_no_argument_is_called_by_the_base_of_tensor() -> None:
    public = [value for value in vars(pg).values() if inspect.isfunction(value) and value.__module__.startswith("picograd")]
    said = {function.__name__: [described(kind) for kind in signature_of(function)[1].values()] for function in public}
    assert len(said) > 300
    assert said["realize"][0] == "an iterable of tensors"
    assert not [name for name, words in said.items() if any("Core" in word for word in words)]


def test_values_in_words() -> None:
    assert shown(None) == "None"
    assert shown(1.5) == "float 1.5"
    assert shown([1, "x", object()]) == "list [1, 'x', object]"
    assert shown(tuple(range(9))) == "tuple (0, 1, 2, 3, 4, ...)"
    assert shown(Tensor.zeros(2, 3)) == "a Tensor of shape (2, 3) and dtype float32"
    assert shown(np.ones(2)) == "an ndarray of shape (2,) and dtype float64"
    assert shown(int) == "class int"


def test_schedules_and_samplers_print_as_the_call_that_makes_them() -> None:
    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
    sampler = utils.data.RandomSampler(range(99), num_samples=3)
    made = [
        (optim.lr_scheduler.StepLR(optimizer, 3), "StepLR(optimizer=SGD, step_size=3, gamma=0.1, last_epoch=0)"),
        (sampler, "RandomSampler(data_source=range, replacement=False, generator=None)"),
        (utils.data.BatchSampler(sampler, 2, True), "BatchSampler(sampler=RandomSampler, batch_size=2, drop_last=True)"),
        (utils.data.Subset(["a"], [0]), "Subset(dataset=['a'], indices=[0])"),
        (utils.data.TensorDataset(Tensor([1.0])), "TensorDataset(tensors=tuple of 1)"),
    ]
    assert [repr(value) for value, _ in made] == [text for _, text in made]
    loader = repr(utils.data.DataLoader(range(5), batch_size=2))
    assert loader.startswith("DataLoader(dataset=range, batch_size=2, ") and "collate_fn=default_collate" in loader
