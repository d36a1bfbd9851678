"""Packed sequences: the same data, order and results as PyTorch's, and recurrent layers that take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils import rnn as theirs

from picograd import ArgumentError, Tensor, nn
from picograd.nn.utils import rnn as ours
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
        (lambda x: ours.unpad_sequence(x, [3]), "unpad_sequence: 1 lengths are given for 2 sequences."),
        (lambda x: nn.LSTM(3, 4, proj_size=4), "LSTM: proj_size 4 must be below hidden_size 4."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, fact) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(Tensor.zeros(3, 2, 1))
    assert caught.value.fact == fact
