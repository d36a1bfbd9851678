"""Gradients and formulas that wait for their plan: equal to those made at once, and made by nobody whose plan is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.autodiff.gradient import gradients_later, written_out
from picograd.ir.host import host_call
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.look import watch
from picograd.nn import functional as F


def codes(op: Op) -> set[OpCode]:
    return {each.code for each in toposort([op])}


def leaf(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32), requires_grad=True)


def graph_of_grad(tensor: Tensor) -> Op:
    assert tensor.grad is not None
    return tensor.grad.cell.op


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a product": lambda w, x: (x @ w).relu().sum(),
    "a norm": lambda w, x: F.layer_norm(x @ w, (4,)).square().sum(),
    "of a batch": lambda w, x: (F.batch_norm(x @ w, None, None, training=True) ** 3).sum(),
    "classes": lambda w, x: F.cross_entropy(x @ w, Tensor([0, 1, 3])),
    "classes and probabilities": lambda w, x: F.nll_loss((x @ w).log_softmax(1), Tensor([0, 1, 3]), reduction="none").sum(),
    "views and writes": lambda w, x: (w[1:] * w[:-1]).sum() + w.T.reshape(-1)[3],
    "a part that is flat": lambda w, x: (w.floor() * w).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_for_later_have_the_bits_of_those_made_at_once(name: str) -> None:
    x = leaf(3, 5, seed=1).detach()
    values = []
    for create_graph in (False, True):
        w = leaf(5, 4)
        loss = LOSSES[name](w, x)
        loss.backward(create_graph=create_graph)
        assert (OpCode.GRADIENT in codes(graph_of_grad(w))) is not create_graph
        assert w.grad is not None
        values.append((loss.detach().numpy().tobytes(), w.grad.detach().numpy().tobytes()))
    assert values[0] == values[1]


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_that_are_returned_wait_for_their_plan_unless_they_are_differentiated(name: str) -> None:
    x, w = leaf(3, 5, seed=1).detach(), leaf(5, 4)
    later, now = (pg.autograd.grad(LOSSES[name](w, x), [w], create_graph=kept) for kept in (False, True))
    assert all(OpCode.GRADIENT in codes(grad.cell.op) for grad in later)
    assert not any(OpCode.GRADIENT in codes(grad.cell.op) for grad in now)
    for one, other in zip(later, now):
        assert not one.requires_grad
        np.testing.assert_array_equal(one.numpy(), other.detach().numpy())


def test_gradients_by_functions_of_the_host_wait_for_their_plan() -> None:
    for function in (pg.linalg.inv, pg.linalg.cholesky, pg.linalg.det, lambda a: pg.linalg.solve(a, a[0])):
        made = []
        for kept in (False, True):
            w = leaf(3, 3)
            function(w @ w.T + pg.eye(3)).sum().backward(create_graph=kept)
            assert w.grad is not None
            made.append(w.grad.detach().numpy())
        np.testing.assert_array_equal(*made)


class Clipped(pg.autograd.Function):
    """A square whose gradient is clipped."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return (2 * grad * ctx.saved_tensors[0]).clamp(-1, 1)


class ByHost(pg.autograd.Function):
    """The same, with values that are read, so that backward is called where the gradient is made."""

    @staticmethod
    def forward(ctx, x):
        ctx.values = x.detach().numpy()
        return pg.from_numpy(ctx.values**2)

    @staticmethod
    def backward(ctx, grad):
        return (2 * grad * pg.from_numpy(ctx.values)).clamp(-1, 1)


@pytest.mark.parametrize(
    "function", [Clipped.apply, pg.outline(lambda x: x.tanh() * x), ByHost.apply], ids=["own", "body", "host"]
)
def test_gradients_of_bodies_wait_for_their_plan_unless_a_function_is_called(function: Callable[[Tensor], Tensor]) -> None:
    made, x = [], leaf(3, 5, seed=1).detach()
    for kept in (False, True):
        w = leaf(5, 4)
        function(function(x @ w) * 0.3).sum().backward(create_graph=kept)
        if not kept:
            assert (OpCode.GRADIENT in codes(graph_of_grad(w))) is (function != ByHost.apply)
        assert w.grad is not None
        made.append(w.grad.detach().numpy())
    np.testing.assert_array_equal(*made)


def test_formulas_through_which_no_gradient_flows_stay_where_gradients_are_differentiated() -> None:
    w, noise = leaf(4), pg.randn(4)
    (first,) = pg.autograd.grad((w * w * noise).sum(), w, create_graph=True)
    assert noise.op.code is OpCode.FORMULA and noise.op in toposort([first.op])
    (second,) = pg.autograd.grad((first * noise).sum(), w)
    np.testing.assert_array_equal(second.numpy(), (2 * noise * noise).numpy())


def test_what_users_have_rules_for_and_what_has_none_is_not_put_off() -> None:
    x = leaf(3).op
    seeds = {x * x: const(1.0, x.dtype)}
    assert gradients_later(seeds, [x], [x, x * x]) is not None
    assert gradients_later(seeds, [], [x, x * x]) is None
    for code in (OpCode.COPY, OpCode.THREEFRY):
        assert gradients_later(seeds, [x], [x, Op(code, x.dtype, (x,)), x * x]) is None, code
    square = leaf(3, 3).op
    for name, is_put_off in (("inv", True), ("gammainc", False), ("gcd", False)):
        of_the_host = host_call(name, square.dtype, (square, square)[: 1 if name == "inv" else 2])
        later = gradients_later({square * square: x}, [square], [square, of_the_host, square * square])
        assert (later is not None) is is_put_off, name


def test_graphs_written_out_have_neither_gradients_nor_formulas() -> None:
    w, x = leaf(5, 4), leaf(3, 5)
    F.cross_entropy(F.layer_norm(x @ w, (4,)), Tensor([0, 1, 3])).backward()
    waiting = graph_of_grad(w)
    assert codes(waiting) >= {OpCode.GRADIENT, OpCode.FORMULA}
    (plain,) = written_out([waiting])
    assert not codes(plain) & {OpCode.GRADIENT, OpCode.FORMULA}
    assert (plain.dtype, plain.shape) == (waiting.dtype, waiting.shape)
    (same,) = written_out([plain])
    assert same is plain


def test_values_that_were_computed_are_read_and_differentiated_through() -> None:
    for _ in range(4):
        w, x = leaf(5, 4), leaf(3, 5)
        hidden = F.layer_norm(x @ w, (4,))
        before = hidden.detach().numpy()
        loss = (hidden * hidden).sum()
        assert loss.item() == pytest.approx((before**2).sum(), rel=1e-6)
        loss.backward()
        assert w.grad is not None and x.grad is not None
        other, same = leaf(5, 4), leaf(3, 5)
        (F.layer_norm(same @ other, (4,)) ** 2).sum().backward()
        assert other.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), other.grad.numpy(), atol=1e-6)


def first_gradient(loss: Tensor, w: Tensor, how: str) -> Tensor:
    if how == "returned":
        return pg.grad(loss, w)[0]
    loss.backward()
    found, w.grad = w.grad, None
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["returned", "collected"])
@pytest.mark.parametrize("again", ["returned", "collected"])
def test_a_gradient_that_waits_is_a_constant_of_other_losses(how: str, again: str) -> None:
    for _ in range(3):
        w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
        g = first_gradient((w * w).sum(), w, how)
        assert first_gradient((g * w).sum(), w, again).tolist() == [2.0, 4.0, 6.0]
        g = first_gradient((w**3).sum(), w, how)
        moved, bounded = (w - 0.5 * g) ** 2, g.where(g > 5, w) * w
        found = first_gradient(moved.sum() + (bounded / g.sum()).sum() + (g[1:] * w[:2]).sum(), w, again).numpy()
        at, first = w.detach().numpy(), 3 * w.detach().numpy() ** 2
        wanted = 2 * (at - 0.5 * first) + np.where(first > 5, first, 2 * at) / first.sum() + np.append(first[1:], 0)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_gradients_of_gradients_come_upon_no_formula() -> None:
    w, x = leaf(5, 4), leaf(3, 5)
    loss = F.cross_entropy(F.layer_norm(x @ w, (4,)), Tensor([0, 1, 3]))
    (first,) = pg.grad(loss, w, create_graph=True)
    (second,) = pg.grad(first.square().sum(), w)
    assert np.isfinite(second.numpy()).all() and second.abs().sum().item() > 0
    tangent = pg.func.jvp(lambda w: F.layer_norm(x @ w, (4,)), (w.detach(),), (pg.ones(5, 4),))[1]
    assert tangent.shape == (3, 4)


@pytest.mark.parametrize("function", [F.silu, lambda w: F.layer_norm(w, (4,)), lambda w: F.softmax(w, -1), Tensor.exp])
@pytest.mark.parametrize("how", ["plain", "hooked"])
def test_gradients_of_gradients_at_a_result_of_a_formula(function: Callable[[Tensor], Tensor], how: str) -> None:
    hidden = function(leaf(3, 4))
    if how == "hooked":
        hidden.register_hook(lambda g: g)
    (first,) = pg.grad((hidden**3).sum(), hidden, create_graph=True)
    for loss, more in ((first.sum(), 0.0), (first.sum() + hidden.sum(), 1.0)):
        (second,) = pg.grad(loss, hidden, retain_graph=True)
        np.testing.assert_allclose(second.numpy(), 6 * hidden.detach().numpy() + more, rtol=1e-5, atol=1e-6)


def test_hooks_see_gradients_on_the_way() -> None:
    w = leaf(3, 4)
    hidden = F.layer_norm(w, (4,))
    seen: list[Tensor] = []
    hidden.register_hook(seen.append)
    hidden.retain_grad()
    (hidden * 3).sum().backward()
    assert hidden.grad is not None and hidden.grad.tolist() == seen[0].tolist() == [[3.0] * 4] * 3


def test_a_result_that_got_a_hook_after_its_use_has_a_gradient() -> None:
    for create_graph in (False, True):
        w = leaf(3, 4)
        hidden = w * 2
        loss = (hidden * hidden).mean()
        hidden.register_hook(lambda g: g * 10)
        by_hidden, by_w = pg.grad(loss, [hidden, w], create_graph=create_graph)
        np.testing.assert_allclose(by_hidden.detach().numpy(), 10 * hidden.detach().numpy() / 6, rtol=1e-6)
        np.testing.assert_allclose(by_w.detach().numpy(), 2 * by_hidden.detach().numpy(), rtol=1e-6)
        copy = w.clone()
        loss = (copy * 3 + w).sum()
        copy.register_hook(lambda g: g)
        by_w, by_copy = pg.grad(loss, [w, copy])  # a clone is a place of its own, with or without a hook
        assert by_w.tolist() == [[4.0] * 4] * 3 and by_copy.tolist() == [[3.0] * 4] * 3


def test_a_leaf_that_no_gradient_reaches_gets_none() -> None:
    w, unused = leaf(3, 4), leaf(3, 4)
    F.layer_norm(w, (4,)).sum().backward()
    assert w.grad is not None and unused.grad is None
    with pytest.raises(pg.GradientError, match="does not depend|do not depend"):
        pg.grad(F.layer_norm(w, (4,)).sum(), unused)


def test_inputs_chooses_leaves() -> None:
    w, x = leaf(5, 4), leaf(3, 5)
    (x @ w).sum().backward(inputs=[w])
    assert w.grad is not None and x.grad is None


def test_gradients_add_up_over_batches() -> None:
    w = leaf(5, 4)
    total = np.zeros((5, 4), np.float32)
    for seed in range(4):
        x = leaf(3, 5, seed=seed).detach()
        (x @ w).sum().backward()
        total += x.numpy().sum(0)[:, None]
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), total, rtol=1e-5)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.SGD(p, lr=0.1),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
        lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
        lambda p: optim.AdamW(p, lr=0.1),
    ],
    ids=["SGD", "nesterov", "dampening", "amsgrad", "AdamW"],
)
def test_eager_steps_equal_jitted_ones_and_make_no_graphs(make: Callable[[list[Tensor]], optim.Optimizer]) -> None:
    """But for rounding: a plan of a whole step computes other values again, and a product in a sum is rounded once there.

    Every gradient is far from 0: of a bias before a batch norm Adam would make steps of what rounding left.
    """

    def run(jits: bool) -> tuple[list[np.ndarray], int]:
        pg.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 4))
        optimizer = make(list(model.parameters()))

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        call = pg.jit(step) if jits else step
        losses, late = [], 0
        for i in range(6):
            x, y = leaf(16, 5, seed=i).detach(), Tensor(np.arange(16) % 4)
            x.realize(), y.realize()
            with watch() as counts:
                losses.append(call(x, y).detach().numpy())
            late += counts.scheduled if i >= 3 else 0
        return losses + [p.detach().numpy().copy() for p in model.parameters()], late

    (eager, late), (jitted, _) = run(False), run(True)
    assert late == 0
    for ours, theirs in zip(eager, jitted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-7)


def test_an_eager_step_whose_plan_is_known_makes_few_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4))
    optimizer = optim.AdamW(model.parameters())
    x, y = leaf(16, 5).detach().realize(), Tensor(np.arange(16) % 4).realize()

    def step() -> None:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(4):
        step()
    made: list[OpCode] = []
    new = Op.__new__
    monkeypatch.setattr(Op, "__new__", lambda cls, code, *args: made.append(code) or new(cls, code, *args))
    step()
    assert len(made) <= 70, len(made)  # and 24 of formulas and gradients
