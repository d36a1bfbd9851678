"""Pruning, against PyTorch: the same masks, states and products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.prune as reference

import picograd as pg
from picograd import Tensor, nn
from picograd.nn.utils import prune
from tests.helpers import same_value


def twins() -> tuple[nn.Linear, torch.nn.Linear]:
    theirs = torch.nn.Linear(5, 4)
    ours = nn.Linear(5, 4)
    ours.load_state_dict({name: pg.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours, theirs


def same_state(ours: nn.Module, theirs: torch.nn.Module) -> None:
    assert sorted(ours.state_dict()) == sorted(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        same_value(ours.state_dict()[name], value)


CASES: dict[str, tuple[Any, ...]] = {
    "l1_unstructured": (0.3,), "ln_structured": (2, 2, 0), "identity": (), "custom_from_mask": (),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_weight_is_pruned_trained_pruned_again_and_made_one_parameter(name: str) -> None:
    torch.manual_seed(1)
    (ours, theirs), arguments = twins(), CASES[name]
    for turn in range(2):
        mask = (np.arange(20).reshape(4, 5) + turn) % 3 > 0
        more = [(pg.tensor(mask), torch.tensor(mask))] if name == "custom_from_mask" else []
        mine, other = ([*arguments, *(pair[i] for pair in more)] for i in (0, 1))
        if name == "ln_structured" and turn:
            mine = other = [1, 1, 1]
        getattr(prune, name)(ours, "weight", *mine)
        getattr(reference, name)(theirs, "weight", *other)
        same_state(ours, theirs)
        assert prune.is_pruned(ours) and reference.is_pruned(theirs)
        x = np.ones((2, 5), np.float32)
        (ours(pg.tensor(x)) ** 2).sum().backward()
        (theirs(torch.tensor(x)) ** 2).sum().backward()
        same_value(ours.weight_orig.grad, theirs.weight_orig.grad)
    prune.remove(ours, "weight")
    reference.remove(theirs, "weight")
    same_state(ours, theirs)
    assert not prune.is_pruned(ours) and [path for path, _ in ours.named_parameters()].count("weight") == 1


def test_several_weights_are_pruned_as_one_line() -> None:
    torch.manual_seed(2)
    ours, theirs = zip(twins(), twins())
    prune.global_unstructured([(one, "weight") for one in ours], prune.L1Unstructured, amount=0.4)
    reference.global_unstructured([(one, "weight") for one in theirs], reference.L1Unstructured, amount=0.4)
    for mine, other in zip(ours, theirs):
        same_state(mine, other)
    with pytest.raises(pg.ArgumentError, match="global_unstructured: LnStructured does not choose single elements."):
        prune.global_unstructured([(ours[0], "weight")], prune.LnStructured, amount=1, n=2)


def test_what_is_drawn_is_as_much_as_was_asked_of_what_is_left() -> None:
    net = nn.Linear(10, 10)
    for left in (60, 36):
        prune.random_unstructured(net, "weight", 0.4)
        assert int(net.weight_mask.sum()) == left
    net = prune.random_structured(nn.Conv2d(3, 6, 3), "weight", 0.5, dim=0)
    assert sorted(net.weight_mask.sum((1, 2, 3)).tolist()) == [0.0] * 3 + [27.0] * 3
    scores = pg.tensor([[3.0, 1.0, 2.0]])
    assert prune.l1_unstructured(nn.Linear(3, 1), "weight", 2, scores).weight_mask.tolist() == [[1.0, 0.0, 0.0]]


def test_errors() -> None:
    net = nn.Linear(2, 2)
    for call, fact in (
        (lambda: prune.l1_unstructured(net, "wieght", 1), "prune: Linear has no parameter 'wieght'."),
        (lambda: prune.l1_unstructured(net, "weight", 1.5),
         "prune: amount must be a share in [0, 1] or a number of elements, got 1.5."),
        (lambda: prune.l1_unstructured(net, "weight", 5), "prune: amount 5 is more than the 4 that are left."),
        (lambda: prune.remove(net, "weight"), "remove: 'weight' of Linear is not pruned."),
    ):  # fmt: skip
        with pytest.raises(pg.ArgumentError) as told:
            call()
        assert told.value.fact == fact
    assert not prune.is_pruned(net)


def test_a_users_method_gets_the_whole_weight_first() -> None:
    class OfRows(prune.BasePruningMethod):
        def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
            assert t.shape == default_mask.shape == (3, 4)
            return default_mask * (Tensor.arange(3) > 0).unsqueeze(1)

    net = nn.Linear(4, 3)
    OfRows.apply(net, "weight")
    assert (net.weight_mask.sum(1)).tolist() == [0.0, 4.0, 4.0]
