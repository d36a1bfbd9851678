"""Modules that hold modules or parameters, against PyTorch's."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

import picograd as pg
from picograd import Tensor, nn


def layers(library):
    return [library.Linear(2, 3), library.Tanh(), library.Linear(3, 2), library.Identity()]


@pytest.mark.req("C7")
def test_sequential_slices_and_changes():
    mine, other = nn.Sequential(*layers(nn)), torch.nn.Sequential(*layers(torch.nn))
    assert list(mine[1:].state_dict()) == list(other[1:].state_dict())
    for net, library in ((mine, nn), (other, torch.nn)):
        net.append(library.Linear(2, 1))
        net.insert(1, library.ReLU())
        del net[2]
        net.pop(-2)
        net[0] = library.Linear(2, 3, bias=False)
    assert list(mine.state_dict()) == list(other.state_dict())
    assert [type(layer).__name__ for layer in mine] == [type(layer).__name__ for layer in other]
    assert mine(Tensor.ones(1, 2)).shape == (1, 1) and mine[-1] is mine[len(mine) - 1]


def test_sequential_by_name():
    named = {"first": nn.Linear(2, 3), "second": nn.Tanh()}
    net = nn.Sequential(named)
    assert list(net.state_dict()) == ["first.weight", "first.bias"] and net[1] is net.second
    assert net(Tensor.ones(1, 2)).shape == (1, 3)


def test_module_list():
    held = nn.ModuleList(layers(nn)).extend([nn.Tanh()])
    held.insert(0, nn.Identity())
    assert len(held) == 6 and isinstance(held[1:3], nn.ModuleList) and len(held[1:3]) == 2
    assert list(held.state_dict()) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    assert [name for name, _ in held.named_children()] == list("012345")


def test_module_dict():
    held = nn.ModuleDict({"a": nn.Linear(2, 3)})
    held["b"] = nn.Tanh()
    held["a"] = nn.Linear(3, 2)
    assert list(held) == ["a", "b"] and "b" in held and held["a"].weight.shape == (2, 3)
    del held["b"]
    assert list(held.keys()) == ["a"] and list(held.state_dict()) == ["a.weight", "a.bias"]
    held.clear()
    assert not len(held) and not held.state_dict()


def test_parameters_in_lists_and_dicts():
    class Net(nn.Module):
        def __init__(self):
            self.several = nn.ParameterList([Tensor([1.0]), Tensor([2.0])])
            self.named = nn.ParameterDict({"scale": Tensor([3.0])})

        def forward(self, x):
            return x * self.several[0] + self.several[-1] + self.named["scale"]

    net = Net()
    assert [name for name, _ in net.named_parameters()] == ["several.0", "several.1", "named.scale"]
    net(Tensor([1.0])).backward(Tensor([1.0]))
    assert all(parameter.grad is not None for parameter in net.parameters())
    net.several.append(Tensor([4.0]))
    assert len(list(net.parameters())) == 4


@pytest.mark.req("C7")
@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_lists_and_dicts_of_parameters_hold_each_other(library):
    one = Tensor([1.0]) if library is nn else torch.tensor([1.0])
    outer, inner = library.ParameterList, library.ParameterDict
    held = outer([outer([one, one * 2]), inner({"a": one, "b": outer([one])}), one, library.Linear(1, 1), 7, None])
    paths = {"0.0", "0.1", "1.a", "1.b.0", "2", "3.weight", "3.bias"}
    assert {name for name, _ in held.named_parameters()} == paths == {*held.state_dict()}
    assert held[4] == 7 and held[5] is None and len(held) == 6
    held[2] = one * 3
    held.append(library.ModuleList([outer([one])]))
    held[1]["c"] = library.ModuleDict({"d": inner({"e": one})})
    assert {name for name, _ in held.named_parameters()} == paths | {"6.0.0", "1.c.d.e"}
    other = library.ModuleList([library.Identity(), outer([one]), inner({"a": one})])
    assert {name for name, _ in other.named_parameters()} == {"1.0", "2.a"}
    loaded = {name: value * 0 + 5 for name, value in held.state_dict().items()}
    held.load_state_dict(loaded)
    assert held[1]["b"][0].item() == 5.0
    assert "ParameterList" in repr(held) and "Linear(" in repr(held)


@pytest.mark.req("C7")
def test_a_container_changed_after_a_capture_is_noticed():
    net = nn.Sequential(nn.Identity())

    @pg.jit
    def run(x):
        return net(x)

    for _ in range(3):
        assert run(Tensor([1.0])).tolist() == [1.0]
    net.append(nn.Threshold(2.0, 5.0))
    with pytest.raises(pg.JitError, match="net._names was"):
        run(Tensor([1.0]))


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        (lambda: nn.ModuleList([nn.Tanh()])[1], "ModuleList: index 1 is out of range for 1 items."),
        (lambda: nn.ModuleDict()["a"], "ModuleDict: there is no 'a' among its 0 parts."),
        (lambda: nn.ModuleDict({"forward": nn.Tanh()}), "ModuleDict: 'forward' is taken, dotted or not a str."),
        (lambda: nn.ModuleDict([nn.Tanh()]),
         "ModuleDict: modules must be a dict of modules, an iterable of tuples of a str and a module or None, "
         "got list [Tanh]."),
        (lambda: nn.ModuleDict(iter([nn.Tanh()])), "ModuleDict: takes a dict or pairs (name, part), got Tanh."),
        (lambda: nn.ParameterDict(Tensor([1])),
         "ParameterDict: takes a dict or pairs (name, part), got a Tensor of shape (1,) and dtype int64."),
    ],
)  # fmt: skip
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_lists_add_and_dicts_take_pairs(library):
    first, second, third, _ = layers(library)
    held = library.ModuleList([first])
    held += [second]
    assert list(held) == [first, second] and list(held + [third]) == [first, second, third] and len(held) == 2
    assert [*(library.Sequential(first) + library.Sequential(second))] == [first, second]
    named = library.ModuleDict([("a", first)])
    named.update([("b", second)])
    named.update(library.ModuleDict({"a": third}))
    assert list(named.items()) == [("a", third), ("b", second)]
    parameters = library.ParameterDict([("w", first.weight)])
    parameters.update([("b", first.bias)])
    assert list(parameters) == ["w", "b"]


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_a_sequential_is_multiplied(library: Any) -> None:
    first, second, _, _ = layers(library)
    net = library.Sequential(first, second)
    assert [*(net * 2)] == [*(2 * net)] == [first, second] * 2 and len(net) == 2
    assert [name for name, _ in (net * 2).named_children()] == ["0", "1"] and len([*(net * 2).children()]) == 2
    assert [*(net * 2).state_dict()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert "(3): Tanh()" in repr(net * 2)
    same = net
    net *= 3
    assert net is same and [*net] == [first, second] * 3 and [*(net * True)] == [*net]
    for count, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("2", TypeError)):
        with pytest.raises(error):
            net * count


@pytest.mark.parametrize("lib", [pg, torch], ids=["picograd", "torch"])
def test_a_parameter_in_the_place_of_a_module_is_no_part(lib: Any) -> None:
    weight = lib.nn.Parameter(lib.ones(1))
    named = lib.nn.ModuleDict({"x": lib.nn.ReLU(), "y": lib.nn.Linear(1, 1)})
    named.y = weight
    assert len(named) == 1 and [*named] == ["x"] and "y" not in named
    assert [name for name, _ in named.named_parameters()] == ["y"] and named.y is weight
    for kind in (lib.nn.Sequential, lambda *parts: lib.nn.ModuleList(parts)):
        listed = kind(lib.nn.ReLU(), lib.nn.Linear(1, 1))
        setattr(listed, "1", weight)
        assert len(listed) == 1 and [name for name, _ in listed.named_parameters()] == ["1"]


WITHOUT: dict[str, Any] = {
    "Linear": lambda nn: nn.Linear(2, 2, bias=False),
    "Bilinear": lambda nn: nn.Bilinear(2, 2, 2, bias=False),
    "Conv2d": lambda nn: nn.Conv2d(1, 1, 1, bias=False),
    "ConvTranspose1d": lambda nn: nn.ConvTranspose1d(1, 1, 1, bias=False),
    "LayerNorm": lambda nn: nn.LayerNorm(3, elementwise_affine=False),
    "LayerNorm without bias": lambda nn: nn.LayerNorm(3, bias=False),
    "RMSNorm": lambda nn: nn.RMSNorm(3, elementwise_affine=False),
    "GroupNorm": lambda nn: nn.GroupNorm(1, 3, affine=False),
    "BatchNorm1d": lambda nn: nn.BatchNorm1d(3, affine=False, track_running_stats=False),
    "InstanceNorm2d": lambda nn: nn.InstanceNorm2d(3),
    "MultiheadAttention": lambda nn: nn.MultiheadAttention(4, 2, bias=False),
    "LSTMCell": lambda nn: nn.LSTMCell(2, 2, bias=False),
    "LSTM": lambda nn: nn.LSTM(2, 2, bias=False),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_a_parameter_that_is_left_out_has_a_name(name: str) -> None:
    mine, other = WITHOUT[name](nn), WITHOUT[name](torch.nn)
    for held in ("_parameters", "_buffers"):
        mine_held, other_held = getattr(mine, held), getattr(other, held)
        assert [(key, value is None) for key, value in mine_held.items()] == [
            (key, value is None) for key, value in other_held.items()
        ]
    assert [*mine.state_dict()] == [*other.state_dict()]
    assert [key for key, _ in mine.named_parameters()] == [key for key, _ in other.named_parameters()]


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_a_module_under_two_names(library):
    first, second, *_ = layers(library)
    net = library.Sequential(first, first)
    assert len(list(net.parameters())) == 2
    every = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [name for name, _ in net.named_parameters(remove_duplicate=False)] == every
    net.add_module("0", second)  # another in its place
    assert list(net) == [second, first]


@pytest.mark.parametrize("kind", [dict, OrderedDict, list])
def test_parameters_of_a_dict_have_pytorchs_order(kind: Any) -> None:
    orders = []
    for library in (pg, torch):
        pairs = [(name, library.zeros(1)) for name in ("b", "a", "c")]
        held = library.nn.ParameterDict(kind(pairs))
        held.update(kind([("d", library.zeros(1)), ("aa", library.zeros(1))]))
        orders.append([[name for name, _ in held.named_parameters()], list(held), list(library.nn.ParameterDict(held))])
    assert orders[0] == orders[1]


def test_none_is_in_the_place_of_a_module() -> None:
    for lib in (nn, torch.nn):
        net: Any = lib.ModuleList([lib.Linear(1, 2), None])
        net.append(None)
        assert len(net) == 3 and net[1] is net[2] is None
        assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias"]


@pytest.mark.parametrize("library", [nn, torch.nn], ids=["picograd", "torch"])
def test_a_module_set_by_name_is_a_part_of_its_container(library: Any) -> None:
    class Stem(library.Sequential):
        def __init__(self) -> None:
            super().__init__(library.Linear(2, 3))
            self.names = ["of", "the", "user"]
            self.add_module("act", library.ReLU())
            self.last = library.Linear(3, 1)
            self.last = library.Linear(3, 4)

    stem = Stem()
    ones = library.Parameter(library.Linear(1, 2).weight.detach().reshape(1, 2) * 0 + 1)
    assert len(stem) == 3 and [name for name, _ in stem.named_children()] == ["0", "act", "last"]
    assert tuple(stem(ones).shape) == (1, 4)
    del stem.act
    assert len(stem) == 2 and tuple(stem(ones).shape) == (1, 4) and stem[-1] is stem.last
    parts = library.ModuleList()
    parts.add_module("first", library.ReLU())
    parts.append(library.Tanh())
    assert [type(part).__name__ for part in parts] == ["ReLU", "Tanh"]
    named = library.ModuleDict({"a": library.ReLU()})
    named.b = library.Tanh()
    assert list(named) == ["a", "b"] and type(named["b"]).__name__ == "Tanh"
    held = library.ParameterList([ones])
    held.other = library.Parameter(ones.detach())
    assert len(held) == 1 and [name for name, _ in held.named_parameters()] == ["0", "other"]


def test_an_empty_dict_of_modules_calls_nothing_that_a_subclass_has_in_its_place() -> None:
    """torchmetrics' collections have an update of their own, which takes predictions and targets."""
    for base in (nn.ModuleDict, nn.ParameterDict, torch.nn.ModuleDict):

        class Collection(base):  # type: ignore[misc, valid-type]
            def update(self, *args: Any, **kwargs: Any) -> None:
                raise AssertionError("called")

        assert len(Collection()) == 0
