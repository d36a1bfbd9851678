"""pg.outline, pg.checkpoint and pg.accumulate: the values and gradients of the plain function, in other graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine.plan import parametrize, template
from picograd.engine.realize import realized
from picograd.errors import ArgumentError, GradientError, JitError
from picograd.ir.bodies import body_of
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.rewrites.merge_bodies import merge_bodies

WIDTH, LAYERS = 6, 12


class Block(pg.nn.Module):
    """A residual layer with a normalisation."""

    def __init__(self, width: int):
        self.norm = pg.nn.LayerNorm(width)
        self.up = pg.nn.Linear(width, 2 * width)
        self.down = pg.nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.up(self.norm(x)).relu())


def plain(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def outlined(function: Callable[..., Any], *args: Any) -> Any:
    return pg.outline(function)(*args)


WAYS = {"outline": outlined, "checkpoint": pg.checkpoint}


def trained(way: Callable[..., Any], rng: np.random.Generator) -> tuple[Tensor, list[Tensor], Tensor]:
    """The loss of a stack of layers, its parameters and its input, with gradients."""
    pg.manual_seed(3)
    blocks = [Block(WIDTH) for _ in range(LAYERS)]
    x = Tensor(rng.standard_normal((4, WIDTH)).astype(np.float32), requires_grad=True)
    y = x
    for block in blocks:
        y = way(block, y)
    loss = (y * y).mean()
    loss.backward()
    return loss, [p for block in blocks for p in block.parameters()], x


def scheduled(tensors: list[Tensor]) -> list[Op]:
    roots = [tensor.op for tensor in tensors]
    return toposort(merge_bodies(parametrize(roots, template(roots, realized))))


def calls(ops: list[Op]) -> list[Op]:
    return [op for op in ops if op.code is OpCode.CALL]


@pytest.mark.parametrize("way", WAYS)
def test_values_and_gradients_are_those_of_the_plain_function(device: str, way: str) -> None:
    loss, params, x = trained(WAYS[way], np.random.default_rng(0))
    loss2, params2, x2 = trained(plain, np.random.default_rng(0))
    assert loss.item() == pytest.approx(loss2.item(), rel=1e-5)
    for mine, other in zip([x, *params], [x2, *params2]):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-4, atol=1e-6)  # float32, 12 layers


@pytest.mark.req("G6")
@pytest.mark.parametrize("way", WAYS)
def test_twelve_layers_share_one_body_forward_and_one_backward(way: str) -> None:
    loss, params, x = trained(WAYS[way], np.random.default_rng(0))
    ops = scheduled([loss, x.grad, *(p.grad for p in params)])
    assert len(calls(ops)) == 2 * LAYERS
    bodies = {body_of(call) for call in calls(ops)}
    assert len(bodies) == 2


def test_parameters_are_arguments_of_the_call() -> None:
    block = Block(WIDTH)
    y = pg.outline(block)(Tensor.zeros(2, WIDTH))
    (call,) = calls(toposort([y.op]))
    assert {p.op for p in block.parameters()} <= set(call.src)
    assert all(op.code is not OpCode.BUFFER for op in toposort(body_of(call).src))


def test_of_a_checkpoint_nothing_inside_is_kept() -> None:
    x = Tensor([[0.5, 1.0]], requires_grad=True)
    y = pg.checkpoint(lambda x: (x.exp() * 2).tanh().exp(), x)
    loss = (y * y).sum()
    loss.backward()
    ops = scheduled([loss, x.grad])
    first, second = calls(ops)
    assert len(body_of(first).src) == 1  # the result, and no value of the inside
    read = {s.src[0] if s.code in MOVEMENT else s for s in second.src}
    assert not any(s.code is OpCode.OUTPUT and s.src[0] is first for s in read)
    again = [op.code for op in toposort(body_of(second).src)]
    assert OpCode.TANH in again and OpCode.EXP in again


def test_of_an_outlined_function_little_is_kept() -> None:
    x = Tensor([[0.5, 1.0]], requires_grad=True)
    y = pg.outline(lambda x: (x.exp() * 2).tanh() * 3)(x)
    (y * y).sum().backward()
    first, second = calls(scheduled([y, x.grad]))
    kept = [op.code for op in body_of(first).src]
    assert kept == [OpCode.MUL, OpCode.EXP, OpCode.SUB]  # the result, e^x, and 1 - tanh^2
    assert OpCode.EXP not in {op.code for op in toposort(body_of(second).src)}


@pytest.mark.parametrize("way", WAYS)
def test_dropout_is_drawn_once(device: str, way: str) -> None:
    drop = pg.nn.Dropout(0.5)

    def grads(way: Callable[..., Any]) -> list[Any]:
        pg.manual_seed(5)
        x = Tensor(np.ones(64, np.float32), requires_grad=True)
        y = way(lambda x: drop(x) * x, x)
        y.sum().backward()
        return [y.tolist(), x.grad.tolist(), pg.rand(2).tolist()]

    assert grads(WAYS[way]) == grads(plain)


@pytest.mark.parametrize("way", WAYS)
def test_the_second_derivative_goes_through(device: str, way: str) -> None:
    x = Tensor(np.array([0.3, 0.7]), requires_grad=True)
    y = WAYS[way](lambda x: (x * x).sin() * x.exp(), x).sum()
    (first,) = pg.grad(y, [x], create_graph=True)
    (second,) = pg.grad(first.sum(), [x])
    plain_first = pg.grad(((x * x).sin() * x.exp()).sum(), [x], create_graph=True)[0]
    expected = pg.grad(plain_first.sum(), [x])[0]
    np.testing.assert_allclose(second.numpy(), expected.numpy(), rtol=1e-12)


def test_a_checkpoint_in_a_scan(device: str, rng: np.random.Generator) -> None:
    w = Tensor(rng.standard_normal((3, 3)), requires_grad=True)
    xs = Tensor(rng.standard_normal((5, 2, 3)))

    def grad(way: Callable[..., Any]) -> Tensor:
        step = lambda h, x: (way(lambda h: (h @ w + x).tanh().exp().log(), h), h)  # noqa: E731
        h, ys = pg.scan(step, Tensor(np.zeros((2, 3))), xs)
        return pg.grad((h * h).sum() + ys.sum(), [w])[0]

    np.testing.assert_allclose(grad(pg.checkpoint).numpy(), grad(plain).numpy(), rtol=1e-10)


def test_what_a_function_writes_is_written_once(device: str) -> None:
    count = Tensor([1.0])

    def function(x: Tensor) -> Tensor:
        with pg.no_grad():
            count.add_(1)
        return x * count

    x = Tensor([2.0], requires_grad=True)
    y = pg.checkpoint(function, x)
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist(), count.tolist()) == ([4.0], [2.0], [2.0])


def test_structures_and_plain_arguments_pass(device: str) -> None:
    def function(pair: dict[str, Tensor], power: int, *, shift: Tensor) -> Any:
        return [pair["a"] ** power + shift, {"same": pair["b"], "none": None}]

    first, rest = pg.outline(function)({"a": Tensor([2.0]), "b": Tensor([1.0])}, 3, shift=Tensor([0.5]))
    assert first.tolist() == [8.5] and rest["same"].tolist() == [1.0] and rest["none"] is None


def test_an_argument_written_in_place_is_refused() -> None:
    with pytest.raises(JitError, match=r"outline: <lambda> writes to its argument of shape \(1,\) in place\."):
        pg.outline(lambda x: x.add_(1))(Tensor([1.0]))


def test_a_value_asked_for_inside_is_refused() -> None:
    with pytest.raises(JitError, match=r"checkpoint: item\(\) asks for a value while <lambda> is traced"):
        pg.checkpoint(lambda x: x * x.item(), Tensor([1.0]))


# ---- accumulate ----
@pytest.mark.req("G6")
def test_accumulated_gradients_are_those_of_the_mean_loss(device: str, rng: np.random.Generator) -> None:
    model = pg.nn.MLP(3, [4, 1])
    xs = Tensor(rng.standard_normal((5, 8, 3)).astype(np.float32))
    targets = Tensor(rng.standard_normal((5, 8, 1)).astype(np.float32))

    def loss_of(x: Tensor, target: Tensor) -> Tensor:
        return ((model(x) - target) ** 2).mean()

    for times in (1, 2):  # a second call adds to what is there
        loss = pg.accumulate(loss_of, xs, targets)
        mine = [p.grad.numpy() for p in model.parameters()]
        whole = loss_of(xs.reshape(40, 3), targets.reshape(40, 1))
        reference = pg.grad(whole, list(model.parameters()))
        assert loss.item() == pytest.approx(whole.item(), rel=1e-5) and not loss.requires_grad
        for grad, other in zip(mine, reference):
            np.testing.assert_allclose(grad, times * other.numpy(), rtol=1e-4, atol=1e-6)


def test_accumulate_is_one_loop(rng: np.random.Generator) -> None:
    w = Tensor(rng.standard_normal((3, 2)), requires_grad=True)
    loss = pg.accumulate(lambda x: (x @ w).tanh().sum(), Tensor(rng.standard_normal((5, 8, 3))))
    ops = scheduled([loss, w.grad])
    assert len([op for op in ops if op.code is OpCode.LOOP]) == 1


def test_accumulate_needs_small_batches() -> None:
    with pytest.raises(ArgumentError, match=r"accumulate: needs small batches stacked along a first axis, at least one\."):
        pg.accumulate(lambda x: x.sum(), Tensor.zeros(0, 2))


def test_accumulate_needs_a_loss_that_is_a_tensor() -> None:
    with pytest.raises(GradientError, match=r"accumulate: <lambda> must return its loss, a scalar Tensor, got float\."):
        pg.accumulate(lambda x: 3.0, Tensor.ones(2, 2))  # type: ignore[arg-type, return-value]
