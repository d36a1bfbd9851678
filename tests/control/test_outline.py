"""pg.outline and pg.checkpoint: the values and gradients of the plain function, in other graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import JitError
from picograd.ir.bodies import body_of
from picograd.ir.op import toposort
from picograd.ir.opcode import MOVEMENT, OpCode
from tests.control.graphs import merged_ops, of_code

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
    ops = merged_ops([loss, x.grad, *(p.grad for p in params)])
    assert len(of_code(OpCode.CALL, ops)) == 2 * LAYERS
    bodies = {body_of(call) for call in of_code(OpCode.CALL, ops)}
    assert len(bodies) == 2


def test_parameters_are_arguments_of_the_call() -> None:
    block = Block(WIDTH)
    y = pg.outline(block)(Tensor.zeros(2, WIDTH))
    (call,) = of_code(OpCode.CALL, toposort([y.op]))
    assert {p.op for p in block.parameters()} <= set(call.src)
    assert all(op.code is not OpCode.BUFFER for op in toposort(body_of(call).src))


def test_of_a_checkpoint_nothing_inside_is_kept() -> None:
    x = Tensor([[0.5, 1.0]], requires_grad=True)
    y = pg.checkpoint(lambda x: (x.exp() * 2).tanh().exp(), x)
    loss = (y * y).sum()
    loss.backward()
    ops = merged_ops([loss, x.grad])
    first, second = of_code(OpCode.CALL, ops)
    assert len(body_of(first).src) == 1  # the result, and no value of the inside
    read = {s.src[0] if s.code in MOVEMENT else s for s in second.src}
    assert not any(s.code is OpCode.OUTPUT and s.src[0] is first for s in read)
    again = [op.code for op in toposort(body_of(second).src)]
    assert OpCode.TANH in again and OpCode.EXP in again


def test_of_an_outlined_function_little_is_kept() -> None:
    x = Tensor([[0.5, 1.0]], requires_grad=True)
    y = pg.outline(lambda x: (x.exp() * 2).tanh() * 3)(x)
    (y * y).sum().backward()
    first, second = of_code(OpCode.CALL, merged_ops([y, x.grad]))
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
    with pytest.raises(JitError, match=r"outline: item\(\) asks for a value while <lambda> is traced"):
        pg.outline(lambda x: x * x.item())(Tensor([1.0]))
    step = pg.jit(lambda x: pg.checkpoint(lambda x: x * x.item(), x))
    with pytest.raises(JitError, match=r"checkpoint: item\(\) asks for a value while <lambda> is traced"):
        step(Tensor([1.0]))


def test_a_checkpoint_that_asks_for_a_value_is_called_as_it_is() -> None:
    class Scaled(pg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.factor = x.sum().item()
            return x * ctx.factor

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * ctx.factor * (grad.sum().item() / 2)

    def run(call: Any) -> Any:
        pg.manual_seed(0)
        x = Tensor([1.0, 3.0, 2.0, 1.0], requires_grad=True)
        y = call(lambda x: pg.nn.functional.dropout(Scaled.apply(x), 0.5) * (2 if x.sum() > 0 else 3), x)
        y.sum().backward()
        return y.tolist(), x.grad.tolist(), pg.rand(2).tolist()

    assert run(pg.checkpoint) == run(lambda function, x: function(x))
