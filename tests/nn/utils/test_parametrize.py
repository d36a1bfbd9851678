"""Weights that are computed from others: PyTorch's names, values, gradients and ways back."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.nn.utils import parametrizations as their_parametrizations
from torch.nn.utils import parametrize as their_parametrize

import picograd as pg
from picograd import ArgumentError, ShapeError, Tensor, nn, optim
from picograd.nn.utils import parametrizations, parametrize
from tests.helpers import same_value

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(2, 3, 4)
OLD, NEW = (nn.utils, torch.nn.utils), (parametrizations, their_parametrizations)


def trained(net, make, optimizer, steps: int = 3):
    """Returns what a net gives after some steps."""
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        net(make(X)).square().sum().backward()
        optimizer.step()
    return net.eval()(make(X)).detach()


@pytest.mark.variants
@pytest.mark.req("C7")
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("function", ["weight_norm", "spectral_norm"])
@pytest.mark.parametrize(("kind", "sizes"), [("Linear", (4, 3)), ("Conv1d", (3, 2, 2)), ("ConvTranspose1d", (3, 2, 2))])
def test_it_trains_as_in_pytorch(function, form, kind, sizes, device) -> None:
    other = getattr(form[1], function)(getattr(torch.nn, kind)(*sizes))
    mine = getattr(form[0], function)(getattr(nn, kind)(*sizes))
    assert list(mine.state_dict()) == list(other.state_dict())
    assert [name for name, _ in mine.named_parameters()] == [name for name, _ in other.named_parameters()]
    mine.load_state_dict(other.state_dict())
    a = trained(mine, Tensor, optim.SGD(mine.parameters(), lr=0.01))
    b = trained(other, torch.tensor, torch.optim.SGD(other.parameters(), lr=0.01))
    same_value(a, b, rtol=1e-5, atol=1e-5)
    again = copy.deepcopy(mine)
    same_value(again(Tensor(X)).detach(), b, rtol=1e-5, atol=1e-5)
    assert again.weight.tolist() == mine.weight.tolist() and list(again.parameters())[0] is not list(mine.parameters())[0]


@pytest.mark.req("C7")
def test_the_old_forms_are_taken_off_again(device) -> None:
    for put_on, take_off in (("weight_norm", "remove_weight_norm"), ("spectral_norm", "remove_spectral_norm")):
        net = getattr(nn.utils, put_on)(nn.Linear(4, 3))
        before = torch.tensor(net.eval()(Tensor(X)).tolist())
        net = getattr(nn.utils, take_off)(net)
        assert sorted(net.state_dict()) == ["bias", "weight"] and isinstance(net.weight, nn.Parameter)
        same_value(net(Tensor(X)).detach(), before, rtol=1e-6, atol=1e-6)
        assert "_forward_pre_hooks" not in vars(net)
        with pytest.raises(ArgumentError) as caught:
            getattr(nn.utils, take_off)(net)
        assert caught.value.fact == f"{take_off}: Linear.weight is a parameter of its own."


def written_for(library):
    class Symmetric(library.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, x):
            return x.triu()

    class Doubled(library.nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, x):
            return x / 2

    return Symmetric(), Doubled()


@pytest.mark.req("C7")
def test_modules_of_the_user_compute_a_weight(device) -> None:
    nets: list = []
    start = {name: tensor.numpy() for name, tensor in nn.Linear(3, 3).state_dict().items()}
    for library, module in ((pg, parametrize), (torch, their_parametrize)):
        net, (symmetric, doubled) = library.nn.Linear(3, 3), written_for(library)
        net.load_state_dict({name: library.tensor(array) for name, array in start.items()})
        module.register_parametrization(net, "weight", symmetric)
        module.register_parametrization(net, "weight", doubled)
        assert [module.is_parametrized(net, name) for name in (None, "weight", "bias")] == [True, True, False]
        with module.cached():
            assert net.weight is net.weight
        assert net.weight is not net.weight
        nets.append(net)
    mine, other = nets
    assert list(mine.state_dict()) == list(other.state_dict())
    same_value(mine.weight.detach(), other.weight, rtol=1e-6)
    new = np.array([[1, 2, 3], [2, 4, 5], [3, 5, 6]], np.float32)
    mine.weight, other.weight = Tensor(new), torch.tensor(new)
    same_value(mine.weight.detach(), other.weight, rtol=1e-6)
    mine = parametrize.remove_parametrizations(mine, "weight")
    other = their_parametrize.remove_parametrizations(other, "weight")
    assert list(mine.state_dict()) == list(other.state_dict()) and type(mine) is nn.Linear
    same_value(mine.weight.detach(), other.weight, rtol=1e-6)


def test_a_weight_is_computed_within_jit(device) -> None:
    net = parametrizations.weight_norm(nn.Linear(4, 3))
    twin = pickle.loads(pickle.dumps(net))
    optimizer, plain = optim.SGD(net.parameters(), lr=0.01), optim.SGD(twin.parameters(), lr=0.01)

    @pg.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        loss = step(Tensor(X))
        plain.zero_grad()
        expected = twin(Tensor(X)).square().sum()
        expected.backward()
        plain.step()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "fact"),
    [
        (lambda net: parametrizations.weight_norm(net, "w"), ArgumentError,
         "register_parametrization: Linear has no parameter 'w'."),
        (lambda net: parametrizations.spectral_norm(net, "w"), ArgumentError,
         "spectral_norm: Linear has no parameter 'w'."),
        (lambda net: parametrizations.spectral_norm(net, n_power_iterations=0), ArgumentError,
         "spectral_norm: n_power_iterations must be at least 1, got 0."),
        (lambda net: parametrize.register_parametrization(net, "weight", nn.Flatten(0)), ShapeError,
         "register_parametrization: gives (4,) for a parameter of shape (2, 2)."),
        (lambda net: parametrize.register_parametrization(NEW[0].weight_norm(net), "weight", nn.Flatten(0)), ShapeError,
         "register_parametrization: gives (4,) for a parameter of shape (2, 2)."),
        (lambda net: parametrize.remove_parametrizations(net, "weight"), ArgumentError,
         "remove_parametrizations: Linear.weight is not parametrized."),
        (lambda net: parametrize.remove_parametrizations(parametrizations.weight_norm(net), "weight", False), ArgumentError,
         "remove_parametrizations: weight has several originals: pass leave_parametrized=True."),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, fact) -> None:
    net = nn.Linear(2, 2)
    with pytest.raises(error) as caught:
        call(net)
    assert caught.value.fact == fact


@pytest.mark.req("C7")
@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d"])
def test_norms_are_fused_into_the_layer_before(kind, device, rng) -> None:
    conv, bn = getattr(nn, kind)(3, 4, 2), nn.BatchNorm2d(4)
    x = Tensor(rng.standard_normal((2, 3, 5, 5)).astype(np.float32))
    bn(conv(x))
    with pytest.raises(ArgumentError) as caught:
        nn.utils.fuse_conv_bn_eval(conv, bn)
    assert caught.value.fact == "fuse_conv_bn_eval: both layers must be in evaluation mode."
    fused = nn.utils.fuse_conv_bn_eval(conv.eval(), bn.eval(), transpose=kind == "ConvTranspose2d")
    same_value(fused(x).detach(), torch.tensor(bn(conv(x)).detach().numpy()), rtol=1e-4, atol=1e-5)


def test_a_buffer_stays_a_buffer_and_the_mode_is_the_modules() -> None:
    for make in (lambda: Upper(), lambda: Pair()):
        net = nn.Module().eval()
        net.register_buffer("held", Tensor.ones(2, 2))
        part = make()
        parametrize.register_parametrization(net, "held", part)
        assert not list(net.parameters()) and list(net.buffers()) and not part.training
        assert net.held.tolist() == [[1.0, 1.0], [0.0, 1.0]]
        parametrize.remove_parametrizations(net, "held")
        assert [name for name, _ in net.named_buffers()] == ["held"] and net.held.tolist() == [[1.0, 1.0], [0.0, 1.0]]


class Upper(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.triu()


class Pair(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (x + y).triu()

    def right_inverse(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x / 2, x / 2


class NoTensor(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (x,)


class NoInverse(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x

    def right_inverse(self, x: Tensor) -> None:
        return None


def test_parts_that_give_no_tensor_are_named() -> None:
    with pytest.raises(pg.ArgumentTypeError, match="must return a tensor, got tuple"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", NoTensor())
    with pytest.raises(pg.ArgumentTypeError, match="right_inverse must return tensors, got NoneType"):
        parametrize.register_parametrization(nn.Linear(2, 2), "weight", NoInverse())
