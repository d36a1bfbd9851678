"""Parameters and buffers: what a module takes a tensor for, and what isinstance says."""

from __future__ import annotations

import copy
import pickle
from typing import Any

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


def test_what_a_module_holds_is_read_and_replaced_by_name() -> None:
    found = []
    for lib in (pg, torch):
        net: Any = lib.nn.Sequential(lib.nn.Linear(2, 1, bias=False), lib.nn.BatchNorm1d(1))
        net[1].register_buffer("mean", lib.zeros(1), persistent=False)
        net[0]._parameters["weight"] = lib.nn.Parameter(lib.full((1, 2), 3.0))
        net[0]._parameters["scale"] = None
        net[1]._buffers["mean"] = lib.ones(1)
        net._modules["2"] = lib.nn.Tanh()
        del net._modules["0"]
        held = [sorted(part) for part in (net._modules, net[0]._parameters, net[0]._buffers)]
        names = sorted(net[0]._non_persistent_buffers_set), sorted(net.state_dict())
        found.append([held, net[0].mean.tolist(), names, len(net), net(lib.ones(2, 1)).shape == (2, 1)])
        layer: Any = lib.nn.Linear(1, 2, bias=False)
        layer._parameters["weight"] = layer.weight * 2  # a result, whose gradient goes to what it was made of
        found[-1] += ["weight" in layer._parameters, layer(lib.ones(1, 1)).requires_grad]
        layer._parameters = {"other": lib.nn.Parameter(lib.ones(1))}
        found[-1] += [[*dict(layer.named_parameters())], hasattr(layer, "weight"), len(layer._backward_hooks)]
        with pytest.raises(KeyError):
            layer._parameters["nothing"]
        with pytest.raises(KeyError):
            del layer._modules["nothing"]
    assert found[0] == found[1]
    with pytest.raises(AttributeError):  # the names are read from the module: a change would be lost
        pg.nn.BatchNorm1d(1)._non_persistent_buffers_set.add("mean")  # type: ignore[attr-defined]


def test_the_weight_of_a_layer_that_is_a_result_has_a_gradient() -> None:
    layer, scale = nn.Linear(1, 2, bias=False), pg.tensor(2.0, requires_grad=True)
    layer._parameters["weight"] = pg.ones(2, 1) * scale
    layer(pg.ones(1, 1)).sum().backward()
    assert scale.grad is not None and scale.grad.item() == 2


def test_a_module_may_have_attributes_and_methods_of_picograds_own_words() -> None:
    class Metric(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._computed = self._names = self._rules = None
            self.weight = nn.Parameter(pg.ones(1))

        def computed(self) -> Any:  # type: ignore[override]
            return self._computed

    metric = Metric()
    metric.other = pg.ones(1)
    assert metric.computed() is None and not hasattr(metric, "nothing") and len(list(metric.parameters())) == 1


@pytest.mark.parametrize("lib", [pg, torch], ids=["picograd", "torch"])
def test_a_registered_parameter_stays_one_where_a_frozen_one_is_assigned(lib: Any) -> None:
    net = lib.nn.Module()
    net.register_parameter("scale", lib.nn.Parameter(lib.ones(1)))
    held = net.scale
    net.scale.requires_grad_(False)
    net.scale = held
    other = lib.nn.Module()
    other.scale = held
    assert [name for name, _ in net.named_parameters()] == [name for name, _ in other.named_parameters()] == ["scale"]
    net.load_state_dict({"scale": lib.zeros(1)}, assign=True)
    assert [(name, p.requires_grad) for name, p in net.named_parameters()] == [("scale", False)]
