"""Packed sequences: the same data, order and results as PyTorch's, and recurrent layers that take them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as theirs

import picograd as pg
from picograd import ArgumentError, JitError, Tensor, nn, optim
from picograd.look import watch
from picograd.nn.utils import rnn as ours
from picograd.nn.utils.rnn import packed_like
from tests.helpers import same_value

LENGTHS = [2, 5, 1, 4]


def same_packed(mine: Any, other: Any) -> None:
    for name in ("data", "batch_sizes", "sorted_indices", "unsorted_indices"):
        a, b = getattr(mine, name), getattr(other, name)
        assert (a is None) == (b is None), name
        if a is not None:
            same_value(a.detach(), b)


@pytest.mark.req("C7")
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [LENGTHS, [5, 4, 4, 1]])
def test_packing_and_back(lengths, batch_first, device, rng) -> None:
    x = rng.standard_normal((4, 5, 3) if batch_first else (5, 4, 3)).astype(np.float32)
    is_sorted = lengths == sorted(lengths, reverse=True)
    mine = ours.pack_padded_sequence(Tensor(x), Tensor(lengths), batch_first, is_sorted)
    other = theirs.pack_padded_sequence(torch.tensor(x), torch.tensor(lengths), batch_first, is_sorted)
    same_packed(mine, other)
    for options in ({}, {"batch_first": True}, {"padding_value": -1.0, "total_length": 7}):
        for a, b in zip(ours.pad_packed_sequence(mine, **options), theirs.pad_packed_sequence(other, **options)):
            same_value(a, b)
    for a, b in zip(ours.unpack_sequence(mine), theirs.unpack_sequence(other), strict=True):
        same_value(a, b)


@pytest.mark.req("C7")
def test_lists_of_sequences(device, rng) -> None:
    arrays = [rng.standard_normal((length, 2)).astype(np.float32) for length in LENGTHS]
    mine, other = [Tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    for options in ({}, {"batch_first": True, "padding_value": 2.0}, {"padding_side": "left"}):
        same_value(ours.pad_sequence(mine, **options), theirs.pad_sequence(other, **options))
    same_packed(ours.pack_sequence(mine, enforce_sorted=False), theirs.pack_sequence(other, enforce_sorted=False))


KINDS = ("float32", "float16", "int32", "int64", "uint8", "bool")


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_sequences_are_padded_in_the_dtype_of_the_first(first: str, second: str) -> None:
    def sequences(lib: Any) -> list[Any]:
        dtypes = getattr(lib, first), getattr(lib, second)
        return [lib.tensor(numbers).to(dtype) for numbers, dtype in zip(([1.0, 2.75, 3.0], [4.75, 5.0]), dtypes)]

    for options in ({"batch_first": True}, {"padding_value": 1.5}):
        same_value(ours.pad_sequence(sequences(pg), **options), theirs.pad_sequence(sequences(torch), **options))
        mine, other = ours.pack_sequence(sequences(pg)), theirs.pack_sequence(sequences(torch))
        same_value(mine.data, other.data)
        for a, b in zip(ours.pad_packed_sequence(mine, **options), theirs.pad_packed_sequence(other, **options)):
            same_value(a, b)


@pytest.mark.variants(every=4)
@pytest.mark.req("C7")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("LSTM", {"num_layers": 2, "bidirectional": True}),
        ("LSTM", {"proj_size": 2, "bidirectional": True, "num_layers": 2}),
        ("GRU", {"bidirectional": True}),
        ("RNN", {"nonlinearity": "relu", "bias": False}),
    ],
)
@pytest.mark.parametrize("with_state", [False, True])
def test_recurrent_layers_take_packed_sequences(name, settings, with_state, device, rng) -> None:
    other = getattr(torch.nn, name)(3, 4, **settings)
    mine = getattr(nn, name)(3, 4, **settings)
    assert list(mine.state_dict()) == list(other.state_dict())
    mine.load_state_dict(other.state_dict())
    x = rng.standard_normal((5, 4, 3)).astype(np.float32)
    places = settings.get("num_layers", 1) * (1 + settings.get("bidirectional", False))
    widths = [settings.get("proj_size", 4), 4][: 1 + (name == "LSTM")]
    states = [rng.standard_normal((places, 4, width)).astype(np.float32) for width in widths]
    found = []
    for layer, library, make in ((mine, ours, Tensor), (other, theirs, torch.tensor)):
        data = make(x).requires_grad_()
        hx = [make(state) for state in states] if with_state else None
        hx = hx if hx is None or name == "LSTM" else hx[0]
        output, last = layer(library.pack_padded_sequence(data, LENGTHS, enforce_sorted=False), hx)
        y, _ = library.pad_packed_sequence(output)
        ends = last if name == "LSTM" else (last,)
        (y.square().sum() + sum((end * end * end).sum() for end in ends)).backward()
        weights = [p.grad for _, p in sorted(layer.named_parameters())]
        found.append([y.detach(), *(end.detach() for end in ends), data.grad, *weights])
    for a, b in zip(*found, strict=True):
        same_value(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda x: ours.pack_padded_sequence(x, [1, 3]), "pack_padded_sequence: lengths [1, 3] must fall."),
        (lambda x: ours.pack_padded_sequence(x, [3, 0]),
         "pack_padded_sequence: lengths [3, 0] must be 2 numbers from 1 to 3."),
        (lambda x: ours.pack_padded_sequence(x, [3]), "pack_padded_sequence: lengths [3] must be 2 numbers from 1 to 3."),
        (lambda x: ours.pad_packed_sequence(ours.pack_padded_sequence(x, [3, 1]), total_length=2),
         "pad_packed_sequence: total_length 2 is below the longest, 3."),
        (lambda x: ours.pad_sequence([]), "pad_sequence: got no sequences."),
        (lambda x: ours.pad_sequence([x], padding_side="up"),
         "pad_sequence: padding_side must be \"left\" or \"right\", got 'up'."),
        (lambda x: ours.unpad_sequence(x, [3]), "unpad_sequence: got 1 lengths for 2 sequences."),
        (lambda x: ours.PackedSequence(Tensor.zeros(3), Tensor([1, 2])),
         "PackedSequence: batch_sizes [1, 2] must not rise, and add up to 3 rows of data."),
        (lambda x: ours.PackedSequence(Tensor.zeros(3), Tensor([2, 1]), Tensor([1, 1])),
         "PackedSequence: sorted_indices [1, 1] must hold each of 0 to 1 once."),
        (lambda x: nn.LSTM(3, 4, proj_size=4), "LSTM: proj_size 4 must be below hidden_size 4."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, fact) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(Tensor.zeros(3, 2, 1))
    assert caught.value.fact == fact


# ---- one plan for all lengths ----
B, T = 4, 6
DRAWS = [[6, 2, 5, 1], [6, 6, 6, 6], [1, 6, 3, 2], [2, 1, 6, 6]]


class Reader(nn.Module):
    """Reads packed sequences in two layers and both directions, and what it read as a padded batch again."""

    def __init__(self, name: str = "LSTM", **settings: Any):
        super().__init__()
        self.layer = getattr(nn, name)(3, 4, num_layers=2, bidirectional=True, batch_first=True, **settings)
        self.head = nn.Linear(2 * (settings.get("proj_size", 0) or 4), 2)

    def forward(self, x, lengths, library=ours):
        packed = library.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = self.layer(packed)
        y, _ = library.pad_packed_sequence(y, batch_first=True)
        last = last[0] if isinstance(last, tuple) else last
        return self.head(y).square().sum() + (last * last * last).sum()


def losses_and_weights(run, model, makes, draws=DRAWS) -> list[Any]:
    """Trains a model on a batch of each of the lengths; returns the losses and its weights."""
    x = np.random.default_rng(0).standard_normal((len(draws), B, T, 3)).astype(np.float32)
    losses = [run(makes(batch), lengths) for batch, lengths in zip(x, draws)]
    return losses + [p.detach() for _, p in sorted(model.named_parameters())]


def pytorchs(model: Reader, name: str, **settings: Any) -> list[Any]:
    """Returns what the same training under PyTorch gives, from the weights that `model` has."""
    layer = getattr(torch.nn, name)(3, 4, num_layers=2, bidirectional=True, batch_first=True, **settings)
    other = torch.nn.ModuleDict({"layer": layer, "head": torch.nn.Linear(model.head.in_features, 2)})
    other.load_state_dict({key: torch.tensor(value.numpy()) for key, value in model.state_dict().items()})
    optimizer = torch.optim.SGD(other.parameters(), lr=1e-3)

    def step(x, lengths):
        optimizer.zero_grad()
        loss = Reader.forward(other, x, torch.tensor(lengths), theirs)
        loss.backward()
        optimizer.step()
        return loss.item()

    other.__dict__.update(layer=layer)
    return losses_and_weights(step, other, torch.tensor)


@pytest.mark.variants(every=16)
@pytest.mark.parametrize(
    ("name", "settings"), [("LSTM", {}), ("LSTM", {"proj_size": 2}), ("GRU", {}), ("RNN", {"nonlinearity": "relu"})]
)
@pytest.mark.parametrize("is_jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("lengths_are", [tuple, Tensor], ids=["numbers", "tensor"])
def test_training_is_planned_once_whatever_the_lengths(lengths_are, is_jitted, name, settings) -> None:
    gc.collect()  # parameters of other tests, whose gradients would be computed with the first that are asked for
    model = Reader(name, **settings)
    expected = pytorchs(model, name, **settings)
    optimizer = optim.SGD(model.parameters(), lr=1e-3)

    def train(x, lengths):
        optimizer.zero_grad()
        loss = model(x, lengths)
        loss.backward()
        optimizer.step()
        return loss

    step = pg.jit(train) if is_jitted else train
    planned = []

    def run(x, lengths):
        with watch() as counts:
            loss = step(x, lengths_are(lengths)).item()
        planned.append((counts.scheduled, counts.compiled))
        return loss

    found = losses_and_weights(run, model, Tensor)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)
    settled = 1 if is_jitted else 2  # the gradients of the first eager step are there before its second
    assert planned[settled:] == [(0, 0)] * (len(DRAWS) - settled)
    assert sum(scheduled for scheduled, _ in planned) <= settled


def test_packed_sequences_go_into_a_jitted_function_and_come_out_in_one_capture() -> None:
    layer = nn.GRU(3, 4, batch_first=True)
    step = pg.jit(layer.forward)
    x = Tensor(np.random.default_rng(0).standard_normal((B, T, 3)).astype(np.float32))
    for lengths in DRAWS:
        packed = ours.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        (found, last), (expected, end) = step(packed), layer(packed)
        same_packed(found, expected)
        same_value(last, end.detach())
    assert step.num_captures == 1


def test_data_may_be_taken_out_and_put_back(rng) -> None:
    """As for an embedding of what is packed; Python lengths are known inside a jitted function, too."""
    x, lengths = rng.standard_normal((B, T, 3)).astype(np.float32), [2, 5, 5, 1]

    def function(library, x):
        packed = library.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        doubled = packed._replace(data=packed.data * 2)
        return library.pad_packed_sequence(doubled, batch_first=True)[0], doubled.data, packed.batch_sizes

    def unpacked(x):
        data, sizes, *orders = ours.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return ours.pad_packed_sequence(ours.PackedSequence(data * 2, sizes, *orders), batch_first=True)[0]

    expected = function(theirs, torch.tensor(x))
    for run in (function, pg.jit(function)):
        same_value(run(ours, Tensor(x)), expected)
    same_value(unpacked(Tensor(x)), expected[0])


def test_packed_rows_of_another_sort_keep_their_order(rng) -> None:
    """Equal lengths may be packed in any order."""
    x, sizes, order = rng.standard_normal((7, 2)).astype(np.float32), [3, 3, 1], [1, 2, 0]
    found = []
    for library, make in ((ours, Tensor), (theirs, torch.tensor)):
        packed = library.PackedSequence(make(x), make(sizes), make(order), make(np.argsort(order)))
        found.append([packed.data, *library.pad_packed_sequence(packed), *library.unpack_sequence(packed)])
    for a, b in zip(*found, strict=True):
        same_value(a, b)
    mine = ours.PackedSequence(Tensor(x), Tensor(sizes), Tensor(order))
    same_value(packed_like(mine.padded, mine).data, torch.tensor(x))


def test_padding_reaches_nothing(rng) -> None:
    layer = nn.LSTM(3, 4)
    x = rng.standard_normal((T, B, 3)).astype(np.float32)
    lengths = [2, 5, 1, 4]
    results = []
    for filler in (0.0, np.nan):
        for b, length in enumerate(lengths):
            x[length:, b] = filler
        layer.zero_grad()
        data = Tensor(x).requires_grad_()
        y, (h, _) = layer(ours.pack_padded_sequence(data, lengths, enforce_sorted=False))
        (h.sum() + ours.pad_packed_sequence(y)[0].square().sum()).backward()
        results.append([h.detach(), data.grad, layer.weight_ih_l0.grad, layer.weight_hh_l0.grad])
    for a, b in zip(*results, strict=True):
        assert np.array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    ("function", "lengths", "fact"),
    [
        (lambda x, n: ours.pack_padded_sequence(x, n).padded, [3, 4],
         "pack_padded_sequence: lengths must be 2 numbers from 1 to 3."),
        (lambda x, n: ours.pack_padded_sequence(x, n).padded, [0, 3],
         "pack_padded_sequence: lengths must be 2 numbers from 1 to 3."),
        (lambda x, n: ours.pack_padded_sequence(x, n).padded, [1, 3], "pack_padded_sequence: lengths must fall."),
        (lambda x, n: ours.pad_packed_sequence(ours.pack_padded_sequence(x, n))[0], [2, 1],
         "pad_packed_sequence: in a traced function one sequence must have all 3 steps that were packed."),
        (lambda x, n: ours.pad_packed_sequence(ours.pack_padded_sequence(x, n), total_length=2)[0], [3, 1],
         "pad_packed_sequence: total_length 2 is below the longest."),
    ],
)  # fmt: skip
def test_lengths_that_are_an_input_are_looked_at_when_the_plan_runs(function, lengths, fact) -> None:
    step = pg.jit(function)
    step(Tensor.zeros(3, 2, 1), Tensor([3, 2]) if "below" not in fact else Tensor([2, 2]))
    with pytest.raises(ArgumentError) as caught:
        step(Tensor.zeros(3, 2, 1), Tensor(lengths))
    assert caught.value.fact == fact


def test_what_depends_on_lengths_that_are_an_input_is_refused() -> None:
    step = pg.jit(lambda x, n: ours.pack_padded_sequence(x, n).data)
    with pytest.raises(JitError) as caught:
        step(Tensor.zeros(3, 2, 1), Tensor([3, 2]))
    assert caught.value.fact == (
        "jit: data depends on the lengths of a packed sequence, an input of the traced function."
    )


def test_data_of_any_lengths_are_padded_without_a_plan(device: str) -> None:
    words = [pg.tensor([1, 2, 3]), pg.tensor([4]), pg.tensor([5, 6])]
    for some in (words, words[1:], words[::-1]):
        with watch() as counts:
            padded = ours.pad_sequence(some, batch_first=True, padding_value=-1)
            left = ours.pad_sequence(some, batch_first=True, padding_side="left")
        assert counts.plans == 0 and padded.device == device and padded.dtype == pg.int64
        longest = max(map(len, some))
        assert padded.tolist() == [x.tolist() + [-1] * (longest - len(x)) for x in some]
        assert left.tolist() == [[0] * (longest - len(x)) + x.tolist() for x in some]


def test_padded_data_is_padded_in_a_jit_from_its_arguments() -> None:
    pad = pg.jit(lambda x, y: ours.pad_sequence([x, y]))
    for k in range(4):
        assert pad(pg.tensor([k, 2]), pg.tensor([3])).tolist() == [[k, 3], [2, 0]]


@pytest.mark.req("C7")
def test_a_packed_sequence_has_the_casts_and_moves_of_a_tensor() -> None:
    rows = [np.array([[1.5], [2.5]], np.float32), np.array([[3.5]], np.float32)]
    mine, torchs = ours.pack_sequence([Tensor(x) for x in rows]), theirs.pack_sequence([torch.tensor(x) for x in rows])
    for name in ["float", "double", "half", "int", "short", "char", "byte", "long", "cpu"]:
        cast, expected = getattr(mine, name)(), getattr(torchs, name)()
        assert str(expected.data.dtype) == f"torch.{cast.data.dtype}" and cast.data.tolist() == expected.data.tolist()
        assert cast.batch_sizes.tolist() == [2, 1]
    assert not mine.is_cuda and not mine.is_pinned() and mine.pin_memory() is mine
