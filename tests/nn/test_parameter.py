"""Parameters and buffers: what a module takes a tensor for, and what isinstance says."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

import picograd as pg
from picograd import ArgumentError, Tensor, nn


@pytest.mark.req("C7")
@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "pytorch"])
def test_a_frozen_parameter_is_among_the_parameters(library) -> None:
    class Net(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = library.nn.Parameter(library.ones(2), requires_grad=False)
            self.shift = library.nn.Parameter(library.zeros(2))
            self.mean = library.nn.Buffer(library.zeros(1))
            self.last = library.nn.Buffer(library.zeros(1), persistent=False)
            self.note = library.zeros(1)

    for net in (Net(), copy.deepcopy(Net())):
        assert [(name, p.requires_grad) for name, p in net.named_parameters()] == [("scale", False), ("shift", True)]
        assert [name for name, _ in net.named_buffers()] == ["mean", "last"]
        assert list(net.state_dict()) == ["scale", "shift", "mean"]
        assert isinstance(net.scale, library.nn.Parameter) and isinstance(net.shift, library.nn.Parameter)
        assert isinstance(net.mean, library.nn.Buffer) and not isinstance(net.mean, library.nn.Parameter)
        assert not isinstance(net.note, library.nn.Parameter) and not isinstance(net.shift * 2, library.nn.Parameter)
        assert not isinstance(net.shift.detach(), library.nn.Parameter) and not isinstance(3.0, library.nn.Parameter)


def test_a_parameter_stays_one_when_it_is_frozen_copied_or_pickled() -> None:
    weight = nn.Linear(2, 3).requires_grad_(False).weight
    assert all(isinstance(p, nn.Parameter) for p in (weight, copy.copy(weight), copy.deepcopy(weight)))
    again = pickle.loads(pickle.dumps(weight))
    assert isinstance(again, nn.Parameter) and not again.requires_grad


def test_what_is_no_tensor_is_refused() -> None:
    for kind in (nn.Parameter, nn.Buffer):
        with pytest.raises(ArgumentError) as caught:
            kind([1.0])
        assert caught.value.fact == f"{kind.__name__}: data must be a tensor, got list."
    assert nn.Parameter().shape == (0,) and Tensor([1.0]) is not nn.Parameter(Tensor([1.0]))
