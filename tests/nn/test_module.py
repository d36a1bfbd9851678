"""Modules: what they hold, their modes, and moving them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, dtypes, nn
from tests import typed_program


class Net(nn.Module):
    def __init__(self):
        self.first = nn.Linear(3, 4)
        self.blocks = [nn.Linear(4, 4, bias=False), nn.LayerNorm(4)]
        self.scale = Tensor([2.0], requires_grad=True)
        self.register_buffer("steps", Tensor([0]))
        self.note = Tensor([5.0])

    def forward(self, x):
        for block in (self.first, *self.blocks):
            x = block(x)
        return x * self.scale


def test_a_program_with_types_runs() -> None:
    assert typed_program.run() > 0


NAMES = ["scale", "first.weight", "first.bias", "blocks.0.weight", "blocks.1.weight", "blocks.1.bias"]


def test_parameters_by_name(device):
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert [name for name, _ in net.named_buffers()] == ["steps"]
    assert [name for name, _ in net.named_modules()] == ["", "first", "blocks.0", "blocks.1"]
    assert len(list(net.parameters())) == 6 and len(list(net.children())) == 3
    assert net(Tensor.ones(2, 3)).shape == (2, 4)


def test_a_shared_parameter_counts_once(device):
    net = Net()
    net.first.weight = net.blocks[0].weight
    assert len(list(net.parameters())) == 5
    assert set(net.state_dict()) == {*NAMES, "steps"}


def test_a_frozen_parameter_stays_one(device):
    net = Net().requires_grad_(False)
    assert len(list(net.parameters())) == 6
    assert not net(Tensor.ones(1, 3)).requires_grad


def test_modes(device):
    net = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2))
    assert net.training and net[0].training
    net.eval()
    assert not net.training and not net[0].training
    assert net[0](Tensor.ones(2)).tolist() == [1.0, 1.0]
    assert net.train()[0].training


@pytest.mark.req("B9")
def test_state_dict_goes_into_another_module(device):
    a, b = Net(), Net()
    x = Tensor(np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32))
    assert a(x).tolist() != b(x).tolist()
    b.load_state_dict(a.state_dict())
    assert a(x).tolist() == b(x).tolist()
    with pg.no_grad():
        a.scale += 1
    assert a(x).tolist() != b(x).tolist()


@pytest.mark.req("B9")
def test_deep_copies_are_independent(device):
    net = Net()
    twin = copy.deepcopy(net)
    x = Tensor.ones(1, 3)
    assert twin(x).tolist() == net(x).tolist()
    with pg.no_grad():
        twin.scale.zero_()
    assert twin(x).tolist() != net(x).tolist()
    assert [name for name, _ in twin.named_parameters()] == NAMES


def test_moving_to_another_dtype_keeps_the_objects(device):
    net = Net()
    before = list(net.parameters())
    net.to(dtypes.float64)
    assert all(a is b for a, b in zip(before, net.parameters()))
    assert {p.dtype for p in net.parameters()} == {dtypes.float64}
    assert net.steps.dtype is dtypes.int64
    assert all(p.requires_grad and p.is_leaf for p in net.parameters())
    assert net.to(device).scale.device == device


def test_gradients_are_forgotten_or_zeroed(device):
    net = Net()
    net(Tensor.ones(1, 3)).sum().backward()
    net.zero_grad(set_to_none=False)
    assert all(p.grad is not None and not p.grad.any().item() for p in net.parameters())
    net.zero_grad()
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


def test_apply_reaches_every_module(device):
    seen = []
    Net().apply(lambda module: seen.append(type(module).__name__))
    assert seen[-1] == "Net" and sorted(seen) == ["LayerNorm", "Linear", "Linear", "Net"]


def test_text(device):
    assert repr(nn.Sequential(nn.Linear(2, 3), nn.ReLU())) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n  (1): ReLU()\n)"
    )


def test_a_module_without_forward_says_so(device):
    with pytest.raises(NotImplementedError, match="has no method forward"):
        nn.Module()(1)


def test_a_state_dict_of_old_has_numbers_with_an_axis(device):
    norm = nn.BatchNorm1d(2)
    norm.load_state_dict({**norm.state_dict(), "num_batches_tracked": Tensor([3])})
    assert norm.num_batches_tracked.shape == () and norm.num_batches_tracked.item() == 3


@pytest.mark.parametrize("call", ["double", "half", "to"])
def test_parameters_and_buffers_that_are_views_move_as_others_do(call, device):
    """Slices of one storage, turned, expanded and reshaped ones; as in PyTorch each has storage of its own afterwards."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            line = pg.arange(6.0)
            self.first, self.second = nn.Parameter(line[:2]), nn.Parameter(line[1:4])
            self.turned = nn.Parameter(pg.arange(9.0).view(3, 3).t())
            self.register_buffer("mask", pg.tril(pg.ones(2, 2)).view(1, 1, 2, 2))
            self.register_buffer("places", pg.arange(4).expand((1, -1)))

    net = Net()
    before = {name: value.tolist() for name, value in net.state_dict().items()}
    parameters = list(net.parameters())
    net.to("NUMPY") if call == "to" else getattr(net, call)()
    assert {name: value.tolist() for name, value in net.state_dict().items()} == before
    assert all(a is b for a, b in zip(parameters, net.parameters()))
    assert all(p.is_leaf and p.requires_grad and isinstance(p, nn.Parameter) for p in parameters)
    optimizer = pg.optim.SGD(parameters, lr=0.5)
    sum((p * p).sum() for p in parameters).backward()
    optimizer.step()
    assert net.first.tolist() == [0.0, 0.0] and net.mask.tolist() == before["mask"]


class OfViews(nn.Module):
    """Buffers and parameters that are views of other memory, as programs make them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", pg.arange(4).expand((1, -1)))
        self.register_buffer("mask", pg.tril(pg.ones(2, 2)).view(1, 1, 2, 2))
        self.register_buffer("row", pg.arange(6).reshape(2, 3)[1])
        self.first = nn.Parameter(pg.arange(4.0)[:2])
        self.turned = nn.Parameter(pg.ones(2, 3).t())


@pytest.mark.parametrize("change", [
    lambda net: net, lambda net: net.double().float(), lambda net: net.to("numpy").to("cpu"), lambda net: net.half(),
    copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net)),
], ids=["as it is", "double", "device", "half", "copy", "pickle"])  # fmt: skip
def test_buffers_and_parameters_that_are_views(change: Callable[[OfViews], OfViews]) -> None:
    net = OfViews()
    before = {name: value.tolist() for name, value in net.state_dict().items()}
    net = change(net)
    assert {name: value.tolist() for name, value in net.state_dict().items()} == before
    net.load_state_dict({name: value * 2 for name, value in OfViews().state_dict().items()})
    assert {name: value.tolist() for name, value in net.state_dict().items()} == {
        name: (value * 2).tolist() for name, value in OfViews().state_dict().items()
    }
    assert [name for name, _ in net.named_parameters()] == ["first", "turned"]
    (net.first.sum() + net.turned.sum()).backward()
    assert net.first.grad is not None and net.first.grad.shape == (2,)


def test_one_element_that_stands_for_several_is_not_loaded_into() -> None:
    import torch

    for library, kind in ((torch, RuntimeError), (pg, pg.ShapeError)):
        net = library.nn.Module()
        net.register_buffer("repeated", library.ones(1).expand(3))
        with pytest.raises(kind):
            net.load_state_dict({"repeated": library.ones(3) * 2})
        net.double().load_state_dict({"repeated": library.arange(3)})  # now it has memory of its own
        assert net.repeated.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Tensor([[1.0]]), "a Tensor of shape (1, 1) and dtype float32"),
        (Tensor([[1.0]], requires_grad=True) * 2, "a Tensor of shape (1, 1) and dtype float32"),
        (np.ones((1, 1), np.float32), "an ndarray of shape (1, 1) and dtype float32"),
        (1.5, "float 1.5"),
    ],
)
def test_a_parameter_does_not_become_what_is_not_trained(value, said):
    net = nn.Linear(1, 1)
    with pytest.raises(pg.ArgumentTypeError) as caught:
        net.weight = value
    assert caught.value.fact == f"Linear.weight is a parameter; only an nn.Parameter or None can replace it, got {said}."
    net.weight, net.bias = nn.Parameter(Tensor([[2.0]])), None
    assert [name for name, _ in net.named_parameters()] == ["weight"]
    net.weight = Tensor([[3.0]], requires_grad=True)  # a leaf that is trained is a parameter
    assert net(Tensor([[1.0]])).item() == 3.0 and len(list(net.parameters())) == 1
    norm = nn.BatchNorm1d(1)
    norm.running_mean = Tensor([4.0])
    assert norm.state_dict()["running_mean"].tolist() == [4.0]


def test_what_modules_and_tensors_do_not_become() -> None:
    net, x = nn.Linear(2, 2), Tensor([1.0], requires_grad=True)
    x.register_hook(lambda grad: 3)

    def data() -> None:
        x.data = np.ones(1)

    for wrong, kind, fact in (
        (lambda: net.to(dtypes.int32), pg.DTypeError, "to: a module's dtype must be a float, got int32."),
        (lambda: net.to(int), pg.DTypeError, "to: a module's dtype must be a float, got <class 'int'>."),
        (lambda: net.add_module("next", 3), pg.ArgumentTypeError, "add_module: next must be a module or None, got int 3."),
        (lambda: net.register_buffer("mean", 3.0), pg.ArgumentTypeError,
         "register_buffer: mean must be a tensor or None, got float 3.0."),
        (lambda: x.sum().backward(), pg.ArgumentTypeError,
         "register_hook: a hook must return a tensor or None, got int 3."),
        (data, pg.ArgumentTypeError, "data: must be a tensor, got an ndarray of shape (1,) and dtype float64."),
    ):  # fmt: skip
        with pytest.raises(kind) as caught:
            wrong()
        assert caught.value.fact == fact
    assert net.weight.dtype is dtypes.float32 and not hasattr(net, "next") and x.data.tolist() == [1.0]


@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "torch"])
def test_modules_have_the_order_in_which_they_became_modules(library: Any) -> None:
    class Net(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.held = None, 3, [library.nn.Tanh()]
            self.third = library.nn.Linear(1, 1)
            self.second, self.held = library.nn.Linear(1, 2), library.nn.ModuleList(self.held)
            self.first, self.fourth = library.nn.ReLU(), library.nn.ReLU()
            self.second = None
            self.second = library.nn.Linear(1, 3)
            self.add_module("fifth", None)
            self.sixth = library.nn.ReLU()
            self.fifth = library.nn.Tanh()

    names = [name for name, _ in Net().named_children()]
    assert names == ["third", "second", "held", "first", "fourth", "fifth", "sixth"]
    assert [name for name, _ in Net().named_parameters()] == ["third.weight", "third.bias", "second.weight", "second.bias"]


@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "torch"])
def test_modules_that_an_attribute_names_have_its_name_and_place_though_a_list_holds_them_too(library: Any) -> None:
    class Net(library.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.every, self.pair = [], (library.nn.Linear(1, 1), library.nn.Tanh())
            self.norm = library.nn.LayerNorm(1)
            for i in range(2):
                layer = library.nn.Linear(1, 1, bias=False)
                self.add_module(f"layer{i}", layer)
                self.every.append(layer)
            self.below = library.nn.Sequential(*self.pair)

    names = ["norm.weight", "norm.bias", "layer0.weight", "layer1.weight", "below.0.weight", "below.0.bias"]
    assert [name for name, _ in Net().named_parameters()] == list(Net().state_dict()) == names
    assert [name for name, _ in Net().named_children()] == ["norm", "layer0", "layer1", "below"]


@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "torch"])
def test_a_mixin_beside_module_is_made_by_its_own_name_and_once(library: Any) -> None:
    made = []

    class Mixin:
        def __init__(self, base: Any = None, scale: float = 1.0) -> None:
            made.append(scale)
            self.base = base

    class Adapter(library.nn.Module, Mixin):  # type: ignore[misc, name-defined]
        def __init__(self, base: Any) -> None:
            super().__init__()
            Mixin.__init__(self, base, 2.0)

    adapter = Adapter(library.nn.Linear(1, 1))
    assert made == [2.0] and [name for name, _ in adapter.named_parameters()] == ["base.weight", "base.bias"]
    with pytest.raises(AttributeError):
        adapter.get_submodule("embeddings.words")
    with pytest.raises(TypeError):
        library.nn.Module(1)
