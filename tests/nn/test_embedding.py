"""Embeddings and bags of them against PyTorch's; bilinear maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as reference

import picograd as pg
from picograd import Tensor, nn
from picograd.nn import functional
from tests.helpers import same_as_torch, same_value

ROWS = np.array([[0, 4, 4], [1, 2, 0]])


@pytest.mark.req("C5")
@pytest.mark.parametrize("settings", [{"padding_idx": 0}, {"padding_idx": -1}, {"scale_grad_by_freq": True}])
def test_gradients_of_rows(settings, device, rng):
    weight = rng.standard_normal((5, 3)).astype(np.float32)
    same_as_torch(
        lambda w: functional.embedding(Tensor(ROWS), w, **settings), weight,
        reference=lambda w: reference.embedding(torch.tensor(ROWS), w, **settings),
    )  # fmt: skip


@pytest.mark.parametrize("norm_type", [2.0, 1.0])
def test_long_rows_are_made_shorter_in_place(norm_type, device, rng):
    weight = rng.standard_normal((5, 3)).astype(np.float32)
    mine, other = Tensor(weight, requires_grad=True), torch.tensor(weight, requires_grad=True)
    ours = functional.embedding(Tensor(ROWS), mine, max_norm=1.0, norm_type=norm_type)
    theirs = reference.embedding(torch.tensor(ROWS), other.clone().detach(), max_norm=1.0, norm_type=norm_type)
    same_value(ours, theirs)
    assert mine.detach()[3].tolist() == other[3].tolist()
    assert (mine.detach().numpy()[[0, 1, 2, 4]].__abs__() ** norm_type).sum(1).max() < 1.001


@pytest.mark.req("C7")
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding_idx", [None, 4])
def test_bags_that_are_rows(mode, padding_idx, device, rng):
    weight = rng.standard_normal((5, 3)).astype(np.float32)
    same_as_torch(
        lambda w: functional.embedding_bag(Tensor(ROWS), w, mode=mode, padding_idx=padding_idx), weight,
        reference=lambda w: reference.embedding_bag(torch.tensor(ROWS), w, mode=mode, padding_idx=padding_idx),
    )  # fmt: skip


@pytest.mark.req("C7")
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("last", [False, True])
def test_bags_one_after_the_other(mode, last, device, rng):
    weight, flat = rng.standard_normal((5, 3)).astype(np.float32), np.array([0, 4, 4, 1, 2])
    offsets = np.array([0, 2, 2, 3, *([5] if last else [])])
    settings = {"mode": mode, "include_last_offset": last, "padding_idx": 2}
    same_as_torch(
        lambda w: functional.embedding_bag(Tensor(flat), w, Tensor(offsets), **settings), weight,
        reference=lambda w: reference.embedding_bag(torch.tensor(flat), w, torch.tensor(offsets), **settings),
    )  # fmt: skip


def test_bags_of_another_number_each_time(rng):
    weight, flat = rng.standard_normal((5, 3)).astype(np.float32), np.arange(5)
    for count in (1, 2, 3, 4, 5, 4, 2):  # from the third on the formula is tried for many lengths, and needs a number
        bags = functional.embedding_bag(Tensor(flat), Tensor(weight), Tensor(np.arange(count)))
        same_value(bags, reference.embedding_bag(torch.tensor(flat), torch.tensor(weight), torch.arange(count)))


def test_factors_of_rows(device, rng):
    weight, factors = (rng.standard_normal(s).astype(np.float32) for s in ((5, 3), (2, 3)))
    same_as_torch(
        lambda w, f: functional.embedding_bag(Tensor(ROWS), w, mode="sum", per_sample_weights=f), weight, factors,
        reference=lambda w, f: reference.embedding_bag(torch.tensor(ROWS), w, mode="sum", per_sample_weights=f),
    )  # fmt: skip


def test_modules():
    layer = nn.Embedding(5, 3, padding_idx=1)
    assert layer.weight[1].tolist() == [0.0] * 3 and layer.weight.is_leaf
    fixed = nn.Embedding.from_pretrained(Tensor([[1.0], [2.0]]))
    assert list(fixed.state_dict()) == ["weight"] and not fixed.weight.requires_grad
    assert len(list(fixed.parameters())) == 1
    assert nn.EmbeddingBag(5, 3, mode="max")(Tensor(ROWS)).shape == (2, 3)
    bag = nn.EmbeddingBag.from_pretrained(Tensor([[1.0], [2.0]]), freeze=False, mode="sum", padding_idx=1)
    assert bag(Tensor([0, 1, 0]), Tensor([0, 2])).tolist() == [[1.0], [1.0]] and bag.weight.requires_grad
    assert not nn.EmbeddingBag.from_pretrained(Tensor([[1.0]])).weight.requires_grad
    whole = nn.Embedding.from_pretrained(Tensor([[1, 2], [3, 4]]))
    assert whole(Tensor([1])).tolist() == [[3, 4]] and not whole.weight.requires_grad


@pytest.mark.req("C7")
@pytest.mark.parametrize("lead", [(4,), (2, 3), ()])
def test_bilinear(lead, device, rng):
    shapes = ((*lead, 2), (*lead, 3), (5, 2, 3), (5,))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    same_as_torch(functional.bilinear, *arrays, reference=reference.bilinear)


ERRORS = [
    (lambda: functional.embedding(Tensor([0]), Tensor.ones(2, 3), 2), "embedding: padding_idx 2 is not one of 2 rows."),
    (lambda: functional.embedding_bag(Tensor([0]), Tensor.ones(2, 3)),
     "embedding_bag: input must be (B, L), or (N,) with offsets, got (1,)."),
    (lambda: functional.embedding_bag(Tensor([[0]]), Tensor.ones(2, 3), mode="product"),
     'embedding_bag: mode must be "sum", "mean" or "max", got \'product\'.'),
    (lambda: functional.bilinear(Tensor.ones(2, 3), Tensor.ones(2, 4), Tensor.ones(5, 3, 3)),
     "bilinear: inputs (2, 3) and (2, 4) do not fit weight (5, 3, 3), which is (N, K1, K2)."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), ERRORS)
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__
