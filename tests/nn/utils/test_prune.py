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


def _pruned_twice(lib: Any, net: Any) -> Any:
    by_name = prune if lib is pg else reference
    by_name.l1_unstructured(net, "weight", 0.3)
    return by_name.l1_unstructured(net, "weight", 0.3)


REPLACED: dict[str, Any] = {  # a weight is computed, or made a parameter again: what was trained goes on
    "pruned": _pruned_twice,
    "pruned and removed": lambda lib, net: (prune if lib is pg else reference).remove(_pruned_twice(lib, net), "weight"),
    "frozen, pruned": lambda lib, net: _pruned_twice(lib, net.requires_grad_(False)).requires_grad_(True),
    "spectral_norm": lambda lib, net: lib.nn.utils.parametrizations.spectral_norm(net, n_power_iterations=30),
    "spectral_norm, older": lambda lib, net: lib.nn.utils.spectral_norm(net, n_power_iterations=30),
}


@pytest.mark.parametrize("kind", REPLACED)
def test_an_optimizer_that_was_made_before_trains_the_weight_on(kind: str) -> None:
    torch.manual_seed(1)
    losses = []
    for lib, net in zip((pg, torch), twins()):
        optimizer = lib.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        REPLACED[kind](lib, net)
        for _ in range(4):
            optimizer.zero_grad()
            loss = (net(lib.ones(2, 5)) - 1).pow(2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[:4], losses[4:], rtol=1e-4)


def test_errors() -> None:
    net = nn.Linear(2, 2)
    for call, fact in (
        (lambda: prune.l1_unstructured(net, "wieght", 1), "prune: Linear has no parameter 'wieght'."),
        (lambda: prune.l1_unstructured(net, "weight", 1.5),
         "prune: amount must be a share in [0, 1] or a number of elements, got 1.5."),
        (lambda: prune.l1_unstructured(net, "weight", 5), "prune: amount 5 is more than the 4 elements left."),
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
