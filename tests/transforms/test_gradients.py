"""grad, value_and_grad, vjp, jvp, linearize: against torch.func, nested in any order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.tensor.unasked import leaf_tensors
from tests.helpers import mostly_evaluated, same_value

# PyTorch's forward mode compiles with its own deprecated torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    # transforms of f: R^3 -> R, from an implementation of grad, vmap and jvp
    "grad of grad": lambda g, f: g.grad(lambda x: g.grad(f)(x).sum()),
    "jvp of grad": lambda g, f: lambda x: g.jvp(g.grad(f), (x,), (x,))[1],
    "grad of jvp": lambda g, f: g.grad(lambda x: g.jvp(f, (x,), (x * x,))[1]),
    "jvp of jvp": lambda g, f: lambda x: g.jvp(lambda y: g.jvp(f, (y,), (x,))[1], (x,), (x,))[1],
    "vjp of grad": lambda g, f: lambda x: g.vjp(g.grad(f), x)[1](x)[0],
    "grad of vjp": lambda g, f: g.grad(lambda x: (g.vjp(f, x)[1](f(x))[0] ** 2).sum()),
    "jacfwd of jacrev": lambda g, f: g.jacfwd(g.jacrev(f)),
    "jacrev of jacfwd": lambda g, f: g.jacrev(g.jacfwd(f)),
    "hessian": lambda g, f: g.hessian(f),
    "third": lambda g, f: g.jacfwd(g.hessian(f)),
    "grad of vmap": lambda g, f: g.grad(lambda x: g.vmap(lambda y: f(y * x))(x.reshape(3, 1)).sum()),
    "vmap of grad": lambda g, f: lambda x: g.vmap(lambda y: g.grad(f)(y * x))(x.reshape(3, 1)),
    "vmap of hessian": lambda g, f: lambda x: g.vmap(lambda y: g.hessian(f)(y * x))(x.reshape(3, 1)),
    "jvp of vmap": lambda g, f: lambda x: g.jvp(lambda x: g.vmap(lambda y: f(y * x))(x.reshape(3, 1)), (x,), (x,))[1],
    "vmap of jvp": lambda g, f: lambda x: g.vmap(lambda y: g.jvp(f, (x * y,), (x,))[1])(x.reshape(3, 1)),
    "jacrev of vmap": lambda g, f: lambda x: g.jacrev(lambda x: g.vmap(lambda y: f(y * x))(x.reshape(3, 1)))(x),
}


def function_of(library: str) -> Callable[[Any], Any]:
    """f(x) = |tanh(W x) x1|^2 + exp(x0 x2)."""
    matrix = np.random.default_rng(1).standard_normal((4, 3))
    w = Tensor(matrix) if library == "pg" else torch.tensor(matrix)
    return lambda x: ((w @ x).tanh() * x[1]).pow(2).sum() + (x[0] * x[2]).exp()


@pytest.mark.req("A9")
@mostly_evaluated(every=3)
@pytest.mark.parametrize("name", ORDERS)
def test_transforms_nest_in_any_order(name: str, device: str) -> None:
    x = np.array([0.3, -0.7, 0.5])
    mine = ORDERS[name](pg, function_of("pg"))(Tensor(x))
    theirs = ORDERS[name](torch.func, function_of("torch"))(torch.tensor(x))
    assert not mine.requires_grad
    same_value(mine, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ORDERS)
def test_transforms_under_jit(name: str) -> None:
    x = Tensor(np.array([0.3, -0.7, 0.5]))
    whole = ORDERS[name](pg, function_of("pg"))
    expected, captured = whole(x).numpy(), pg.jit(lambda x: whole(x))
    for _ in range(3):
        np.testing.assert_allclose(captured(x).numpy(), expected, rtol=1e-12, atol=1e-14)


def test_a_jitted_function_has_gradients() -> None:
    inner = pg.jit(lambda x: (x * x).sum())
    x = Tensor([1.0, 2.0])
    for _ in range(3):
        assert pg.grad(lambda x: inner(x * 3))(x).tolist() == [18.0, 36.0]


# ---- arguments ----
def test_argnums_choose_the_arguments() -> None:
    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 5.0])
    function = lambda x, y, n: (x * y**n).sum()  # noqa: E731
    assert pg.grad(function)(x, y, 2).tolist() == [9.0, 25.0]
    assert pg.grad(function, 1)(x, y, 2).tolist() == [6.0, 20.0]
    both = pg.grad(function, argnums=(1, 0))(x, y, 2)
    assert [g.tolist() for g in both] == [[6.0, 20.0], [9.0, 25.0]]
    assert pg.grad(function, argnums=-2)(x, y, 2).tolist() == [6.0, 20.0]


@dataclass(frozen=True)
class Params:
    w: Tensor
    rest: tuple[Tensor, ...]


def test_arguments_may_be_containers() -> None:
    params = Params(Tensor([2.0]), (Tensor(3.0), Tensor([[4.0]])))
    value, grads = pg.value_and_grad(lambda p: (p.w * p.rest[0]).sum() + p.rest[1].sum() ** 2)(params)
    assert value.item() == 22.0
    assert isinstance(grads, Params)
    assert (grads.w.tolist(), grads.rest[0].item(), grads.rest[1].tolist()) == ([3.0], 2.0, [[8.0]])


def test_what_the_function_returns_beside() -> None:
    function = lambda x: ((x * x).sum(), {"double": x * 2})  # noqa: E731
    grads, aux = pg.grad(function, has_aux=True)(Tensor([3.0]))
    assert (grads.tolist(), aux["double"].tolist(), aux["double"].requires_grad) == ([6.0], [6.0], False)
    (value, aux), grads = pg.value_and_grad(function, has_aux=True)(Tensor([3.0]))
    assert (value.item(), aux["double"].tolist(), grads.tolist()) == (9.0, [6.0], [6.0])
    grads, (value, aux) = pg.func.grad_and_value(function, has_aux=True)(Tensor([3.0]))
    assert (value.item(), grads.tolist()) == (9.0, [6.0])
    out, moved, aux = pg.jvp(function, (Tensor([3.0]),), (Tensor([1.0]),), has_aux=True)
    assert (out.item(), moved.item(), aux["double"].tolist()) == (9.0, 6.0, [6.0])
    out, pull, aux = pg.vjp(function, Tensor([3.0]), has_aux=True)
    assert (out.item(), pull(Tensor(2.0))[0].tolist(), aux["double"].tolist()) == (9.0, [12.0], [6.0])


def test_the_same_tensor_as_a_closure_stays_where_it_is() -> None:
    x = Tensor(3.0)
    assert pg.grad(lambda y: y * x)(x).item() == 3.0
    assert pg.jvp(lambda y: y * x, (x,), (Tensor(1.0),))[1].item() == 3.0
    assert pg.grad(lambda x: pg.grad(lambda y: x * y)(x))(x).item() == 1.0  # perturbations do not mix


def test_an_argument_that_does_not_matter_has_gradient_zero() -> None:
    grads = pg.grad(lambda x, y: (x * 2).sum(), (0, 1))(Tensor([1.0]), Tensor([[1.0, 2.0]]))
    assert [g.tolist() for g in grads] == [[2.0], [[0.0, 0.0]]]
    assert pg.grad(lambda x: Tensor(1.0))(Tensor([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert pg.jvp(lambda x: Tensor(1.0), (Tensor(1.0),), (Tensor(1.0),))[1].item() == 0.0


def test_zero_size_and_scalar_arguments(device: str) -> None:
    assert pg.grad(lambda x: (x * x).sum())(Tensor(np.zeros((0, 3)))).shape == (0, 3)
    assert pg.grad(lambda x: x * x)(Tensor(2.0)).item() == 4.0
    assert pg.jacrev(lambda x: x * x)(Tensor(np.zeros((0,)))).shape == (0, 0)
    assert pg.hessian(lambda x: x**3)(Tensor(2.0)).item() == 12.0


def test_modes_around_and_inside() -> None:
    w = Tensor([2.0], requires_grad=True)
    function = lambda x: (x * w).sum()  # noqa: E731
    x = Tensor([3.0])
    assert pg.grad(function)(x).requires_grad  # it depends on w
    with pg.no_grad():
        found = pg.grad(function)(x)
        assert found.tolist() == [2.0] and not found.requires_grad
        assert not pg.value_and_grad(function)(x)[0].requires_grad
    y = Tensor([3.0], requires_grad=True)
    pg.grad(lambda x: (x**3).sum())(y).sum().backward()
    assert y.grad.tolist() == [18.0] and w.grad is None

    def stopped(x: Tensor) -> Tensor:
        with pg.no_grad():
            part = x * x
        return (part * x).sum()

    assert pg.grad(stopped)(x).tolist() == [9.0]
    assert pg.grad(lambda x: (x.detach() * x).sum())(x).tolist() == [3.0]


def test_values_may_be_asked_for_inside() -> None:
    """Nothing is traced: Python may look at values and go on accordingly."""

    def function(x: Tensor) -> Tensor:
        return (x * x).sum() if x.sum().item() > 0 else (-x).sum()

    assert pg.grad(function)(Tensor([1.0])).tolist() == [2.0]
    assert pg.grad(function)(Tensor([-1.0])).tolist() == [-1.0]


def test_a_function_may_write_to_its_argument_in_place() -> None:
    def function(x: Tensor) -> Tensor:
        x *= 2
        return (x * x).sum()

    x = Tensor([3.0])
    assert pg.grad(function)(x).tolist() == [24.0]
    assert x.tolist() == [3.0]


def test_modules_are_functions_of_their_parameters(rng: np.random.Generator) -> None:
    net, x = nn.MLP(3, [4, 1]), Tensor(rng.standard_normal((5, 3)).astype(np.float32))
    params = {name: p.detach() for name, p in net.named_parameters()}
    grads = pg.grad(lambda p: (pg.functional_call(net, p, (x,)) ** 2).sum())(params)
    (net(x) ** 2).sum().backward()
    for name, p in net.named_parameters():
        np.testing.assert_allclose(grads[name].numpy(), p.grad.numpy(), rtol=1e-5, atol=1e-6)


# ---- vjp, jvp, linearize ----
def test_vjp_and_jvp_are_transposes(rng: np.random.Generator, device: str) -> None:
    function = lambda x, y: {"a": (x @ y).tanh(), "b": [x.sum(0)]}  # noqa: E731
    x, y = (Tensor(rng.standard_normal(shape)) for shape in ((2, 3), (3, 4)))
    tangents = tuple(Tensor(rng.standard_normal(p.shape)) for p in (x, y))
    out, moved = pg.jvp(function, (x, y), tangents)
    value, pull = pg.vjp(function, x, y)
    v = {"a": Tensor(rng.standard_normal((2, 4))), "b": [Tensor(rng.standard_normal(3))]}
    left = sum((a * b).sum().item() for a, b in zip((v["a"], v["b"][0]), (moved["a"], moved["b"][0])))  # type: ignore[index]
    right = sum((a * b).sum().item() for a, b in zip(pull(v), tangents))
    assert left == pytest.approx(right, rel=1e-12)
    np.testing.assert_array_equal(out["a"].numpy(), value["a"].numpy())
    again, push = pg.linearize(function, x, y)
    np.testing.assert_allclose(push(*tangents)["a"].numpy(), moved["a"].numpy(), rtol=1e-12)
    assert again["b"][0].shape == (3,)


def test_pull_can_be_called_again_and_differentiated() -> None:
    x = Tensor([1.0, 2.0])
    _, pull = pg.vjp(lambda x: x**3, x)
    assert pull(Tensor([1.0, 0.0]))[0].tolist() == [3.0, 0.0]
    assert pull(Tensor([0.0, 1.0]))[0].tolist() == [0.0, 12.0]
    rows = pg.vmap(lambda v: pull(v)[0])(Tensor(np.eye(2, dtype=np.float32)))
    assert rows.tolist() == [[3.0, 0.0], [0.0, 12.0]]


def test_one_result_twice_and_integers_among_results() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y, y, x.argmax()

    out, pull = pg.vjp(function, Tensor([1.0, 3.0]))
    assert out[2].item() == 1
    assert pull((Tensor([1.0, 1.0]), Tensor([10.0, 0.0]), Tensor(5)))[0].tolist() == [22.0, 2.0]
    assert pg.jvp(function, (Tensor([1.0, 3.0]),), (Tensor([1.0, 1.0]),))[1][2].item() == 0


@pytest.mark.req("A5")
def test_the_cost_of_each_way_to_a_hessian_product(capsys: pytest.CaptureFixture[str]) -> None:
    """Operations of the value, of its gradient, and of a Hessian times a vector forward over reverse, and reverse twice."""
    x, v = Tensor(np.linspace(0.1, 0.4, 4)), Tensor(np.ones(4))

    def function(x: Tensor) -> Tensor:
        return (x.sin() * x.exp()).sum()

    ways = {
        "value": function(x),
        "forward": pg.jvp(function, (x,), (v,))[1],
        "reverse": pg.grad(function)(x),
        "forward over reverse": pg.hvp(function, x, v)[1],
        "reverse over reverse": pg.vhp(function, x, v)[1],
        "reverse over forward": pg.grad(lambda x: pg.jvp(function, (x,), (v,))[1])(x),
        "forward over forward": pg.jvp(lambda x: pg.jvp(function, (x,), (v,))[1], (x,), (v,))[1],
    }
    counts = {name: sum(pg.count_ops(tensor).values()) for name, tensor in ways.items()}
    for name, count in counts.items():
        print(f"{name:22} {count:4}")
    products = [ways[name].numpy() for name in ("forward over reverse", "reverse over reverse", "reverse over forward")]
    for product in products:
        np.testing.assert_allclose(product, products[0], rtol=1e-12)
    assert ways["forward over forward"].item() == pytest.approx(products[0].sum(), rel=1e-12)
    assert counts["value"] == 4
    assert counts["reverse"] <= 3 * counts["value"]
    assert counts["forward over reverse"] <= 3 * counts["reverse"] >= counts["reverse over reverse"] - 4
    assert "forward over reverse" in capsys.readouterr().out


# ---- the forms of one name ----
def test_grad_and_jvp_take_tensors_or_functions() -> None:
    x = Tensor(3.0, requires_grad=True)
    assert pg.grad(x * x, x)[0].item() == 6.0
    assert pg.grad(outputs=x * x, inputs=[x])[0].item() == 6.0
    assert pg.grad(func=lambda x: x * x)(x).item() == 6.0
    assert pg.jvp(x * x, x, Tensor(1.0)).item() == 6.0
    assert pg.func.grad(lambda x: x * x)(x).item() == 6.0
    assert pg.func.jvp(lambda x: x * x, (x,), (Tensor(1.0),))[1].item() == 6.0


def test_integers_in_the_dtype_of_the_primal() -> None:
    out, moved = pg.jvp(lambda x: x * x, (Tensor([2.0]).double(),), (Tensor([1]),))
    assert (moved.dtype, moved.tolist()) == (pg.dtypes.float64, [4.0])


def test_whatever_comes_to_a_gradient_that_was_used_up_it_stays_so(device: str) -> None:
    layer = nn.Linear(2, 1)
    optimizer = pg.optim.SGD(layer.parameters(), lr=0.1)
    x = Tensor([[1.0, 2.0]])

    @pg.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    @pg.jit
    def add(x: Tensor) -> Tensor:
        loss = layer(x).sum()
        loss.backward()
        return loss

    for _ in range(3):
        step(x)
    for _ in range(3):
        add(x)
    layer(x).sum().backward()
    for read in (lambda: layer.weight.grad, optimizer.step, lambda: nn.utils.clip_grad_norm_(layer.parameters(), 1.0)):
        with pytest.raises(pg.JitError, match="was used up in step"):
            read()
    optimizer.zero_grad()
    for _ in range(3):
        add(x)
    assert layer.bias.grad is not None and layer.bias.grad.tolist() == [3.0]


def adversaries(library: Any, freezes: bool) -> list[float]:
    """Losses of two networks that are trained in turns, each against the other, whose gradients nobody uses."""
    wrap = library.jit if library is pg else lambda function: function
    weights = np.random.default_rng(0).standard_normal((2, 3, 3)).astype(np.float32)
    critic, maker = (library.nn.Linear(3, 3, bias=False) for _ in range(2))
    for layer, weight in zip((critic, maker), weights):
        layer.load_state_dict({"weight": library.tensor(weight)})
    optimizers = [library.optim.SGD(layer.parameters(), lr=0.05, momentum=0.5) for layer in (critic, maker)]

    @wrap
    def judge(real: Any, noise: Any) -> Any:
        loss = (critic(maker(noise).detach()) - critic(real)).tanh().mean()
        optimizers[0].zero_grad()
        loss.backward()
        optimizers[0].step()
        return loss

    @wrap
    def make(noise: Any) -> Any:
        if freezes:
            critic.requires_grad_(False)
        loss = -critic(maker(noise)).tanh().mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        if freezes:
            critic.requires_grad_(True)
        return loss

    losses, rng = [], np.random.default_rng(1)
    for _ in range(5):
        real, noise, again = (library.tensor(rng.standard_normal((4, 3)).astype(np.float32)) for _ in range(3))
        losses += [judge(real, noise).item(), make(again).item()]
    return losses


@pytest.mark.parametrize("freezes", [False, True])
def test_networks_that_are_trained_against_each_other_are_jitted(freezes: bool, device: str) -> None:
    np.testing.assert_allclose(adversaries(pg, freezes), adversaries(torch, freezes), rtol=1e-4)


def test_a_leaf_that_was_frozen_is_the_same_leaf_again(device: str) -> None:
    """Its hooks are called, gradients of graphs from before come to it, and the table of leaves does not grow."""
    layer, scales = nn.Linear(2, 1, bias=False), []
    layer.weight.register_hook(lambda grad: scales.append(1) or 3 * grad)
    loss, size = layer(pg.ones(1, 2)).sum(), len(leaf_tensors.data)
    for _ in range(3):
        layer.requires_grad_(False)
        assert not layer(pg.ones(1, 2)).requires_grad
        layer.requires_grad_(True)
    assert pg.autograd.grad(loss, layer.weight)[0].tolist() == [[3.0, 3.0]]
    layer(pg.ones(1, 2)).sum().backward()
    assert layer.weight.grad.tolist() == [[3.0, 3.0]] and len(scales) == 2 and len(leaf_tensors.data) == size
