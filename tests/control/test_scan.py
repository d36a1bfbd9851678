"""pg.scan: the same as a Python loop, forward and backward, with state, inside jit and inside itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, JitError, ShapeError
from picograd.ir.bodies import body_of
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from tests.control.graphs import merged_ops, of_code

STEPS, BATCH, INPUTS, WIDTH = 20, 3, 4, 5


class Weights(NamedTuple):
    """Of an LSTM, and its first state."""

    x: Any
    h: Any
    b: Any
    h0: Any
    c0: Any
    xs: Any


def weights(rng: np.random.Generator) -> Weights:
    shapes = (INPUTS, 4 * WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH,), (BATCH, WIDTH), (BATCH, WIDTH), (STEPS, BATCH, INPUTS)
    return Weights(*[rng.standard_normal(shape) * 0.4 for shape in shapes])


def lstm(state: Any, x: Any, w: Weights) -> tuple[Any, Any]:
    """One step, for tensors of either library."""
    h, c = state
    gates = x @ w.x + h @ w.h + w.b
    i, f, g, o = [gates[:, k * WIDTH : (k + 1) * WIDTH] for k in range(4)]
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    return (h, c), h


def unrolled(step: Callable[[Any, Any], Any], carry: Any, xs: Any, stack: Callable[[Any], Any]) -> tuple[Any, Any]:
    rows = []
    for t in range(xs.shape[0]):
        carry, y = step(carry, xs[t])
        rows.append(y)
    return carry, stack(rows)


# ---- values and gradients ----
@pytest.mark.req("G6")
def test_an_lstm_and_its_gradients_are_those_of_the_unrolled_one_in_pytorch(device: str, rng: np.random.Generator) -> None:
    arrays = weights(rng)
    ours = Weights(*[Tensor(a, requires_grad=True) for a in arrays])
    theirs = Weights(*[torch.tensor(a, requires_grad=True) for a in arrays])
    (h, c), ys = pg.scan(lambda s, x: lstm(s, x, ours), (ours.h0, ours.c0), ours.xs)
    ((ys * ys).sum() + h.sum() + (c * c * c).sum()).backward()
    (h2, c2), ys2 = unrolled(lambda s, x: lstm(s, x, theirs), (theirs.h0, theirs.c0), theirs.xs, torch.stack)
    ((ys2 * ys2).sum() + h2.sum() + (c2 * c2 * c2).sum()).backward()
    np.testing.assert_allclose(ys.detach().numpy(), ys2.detach().numpy(), rtol=1e-12, atol=1e-13)  # float64, 20 steps
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_forward_and_backward_are_a_loop_each_and_weight_gradients_one_product(rng: np.random.Generator) -> None:
    w = Weights(*[Tensor(a, requires_grad=True) for a in weights(rng)])
    (_, _), ys = pg.scan(lambda s, x: lstm(s, x, w), (w.h0, w.c0), w.xs)
    loss = (ys * ys).sum()
    loss.backward()
    ops = merged_ops([loss, w.x.grad, w.h.grad, w.b.grad])
    loops = of_code(OpCode.LOOP, ops)
    assert len(loops) == 2
    assert len(of_code(OpCode.MATMUL, ops)) == 2  # x^T dz and h^T dz over all steps
    backward = toposort(body_of(loops[1]).src)
    assert len(of_code(OpCode.MATMUL, backward)) == 1  # dz h^T: only the gradient of the carry is needed at each step
    assert [len(of_code(OpCode.MATMUL, toposort(body_of(loops[0]).src)))] == [2]


def test_what_the_backward_loop_reads_of_the_forward_one_is_small(rng: np.random.Generator) -> None:
    """Of a tanh RNN that gives h at each step: nothing further but what was carried in."""
    w = Tensor(rng.standard_normal((WIDTH, WIDTH)), requires_grad=True)

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = (h @ w + x).tanh()
        return h, h

    _, ys = pg.scan(step, Tensor(np.zeros((BATCH, WIDTH))), Tensor(rng.standard_normal((STEPS, BATCH, WIDTH))))
    loss = ys.sum()
    loss.backward()
    forward = of_code(OpCode.LOOP, merged_ops([loss, w.grad]))[0]
    body, num_carry, _ = forward.arg
    assert len(body.src) - num_carry == 2


def test_gradients_of_rows_and_of_the_last_carry_that_nobody_uses_cost_nothing(device: str) -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    total, squares = pg.scan(lambda s, x: (s + x, x * x), Tensor(0.0), x)
    squares.sum().backward()
    assert x.grad is not None
    carried = [body_of(op).src[: op.arg[1]] for op in of_code(OpCode.LOOP, merged_ops([x.grad]))]
    assert carried == [()]  # the sum is not run, forward or backward
    assert x.grad.tolist() == [2.0, 4.0, 6.0]
    x.grad = None
    total.backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_the_second_derivative_is_that_of_a_central_difference(device: str) -> None:
    def first(value: float) -> Tensor:
        w = Tensor(np.array([[value, 0.1], [0.2, -0.3]]), requires_grad=True)
        xs = Tensor(np.linspace(-1, 1, 12).reshape(6, 1, 2))
        _, ys = pg.scan(lambda h, x: ((h @ w + x).tanh(), h), Tensor(np.zeros((1, 2))), xs)
        (grad,) = pg.grad((ys * ys).sum(), [w], create_graph=True)
        (again,) = pg.grad(grad[0, 0], [w])
        return Tensor([grad[0, 0].item(), again[0, 0].item()], dtype=pg.float64)

    step = 1e-5
    difference = (first(0.5 + step)[0] - first(0.5 - step)[0]).item() / (2 * step)
    assert first(0.5)[1].item() == pytest.approx(difference, rel=1e-7)


def test_jvp_runs_forward_through_a_scan(device: str) -> None:
    x = Tensor(np.array(0.7), requires_grad=True)
    last, _ = pg.scan(lambda h, _: (h.sin() * x, None), x * 1.0, length=5)
    (grad,) = pg.grad(last, [x])
    assert pg.jvp(last, [x], [Tensor(np.array(2.0))]).item() == pytest.approx(2 * grad.item(), rel=1e-12)


def test_reverse_begins_with_the_last_row(device: str, rng: np.random.Generator) -> None:
    xs = Tensor(rng.standard_normal((7, 2)), requires_grad=True)
    last, ys = pg.scan(lambda s, x: (s * 0.5 + x, s * x), Tensor(np.zeros(2)), xs, reverse=True)
    other = Tensor(xs.detach().numpy(), requires_grad=True)
    last2, ys2 = pg.scan(lambda s, x: (s * 0.5 + x, s * x), Tensor(np.zeros(2)), other.flip(0))
    np.testing.assert_allclose(ys.detach().numpy(), ys2.detach().flip(0).numpy())
    (ys.sum() + (last * last).sum()).backward()
    (ys2.sum() + (last2 * last2).sum()).backward()
    np.testing.assert_allclose(xs.grad.numpy(), other.grad.numpy(), rtol=1e-12)


def test_rows_that_are_turned_around_within_keep_their_order(device: str, rng: np.random.Generator) -> None:
    data, weight = rng.standard_normal((5, 3)), Tensor(np.array([1.0, 2.0, 4.0]))
    xs = Tensor(data, requires_grad=True)
    last, _ = pg.scan(lambda s, x: (s + (x * x * x * weight).sum(), None), Tensor(np.array(0.0)), xs.flip(1))
    last.backward()
    np.testing.assert_allclose(xs.grad.numpy(), 3 * data**2 * [4.0, 2.0, 1.0], rtol=1e-12)


def test_containers_keep_their_form(device: str) -> None:
    def step(carry: dict[str, Any], x: tuple[Tensor, Tensor]) -> tuple[Any, Any]:
        return {"sum": carry["sum"] + x[0], "pair": [x[1], carry["pair"][0]]}, {"product": x[0] * x[1], "none": None}

    init = {"sum": Tensor(0), "pair": [Tensor(1.0), Tensor(2.0)]}
    last, ys = pg.scan(step, init, (Tensor([1, 2, 3]), Tensor([4.0, 5.0, 6.0])))
    assert last["sum"].item() == 6 and [t.item() for t in last["pair"]] == [6.0, 5.0]
    assert ys["none"] is None and ys["product"].tolist() == [4.0, 10.0, 18.0]


def test_a_scan_of_no_steps_returns_its_carry(device: str) -> None:
    last, ys = pg.scan(lambda s, x: (s + x, s), Tensor([1.0]), Tensor.zeros(0, 1))
    assert last.tolist() == [1.0] and ys.shape == (0, 1)


def test_detach_inside_stops_the_gradient(device: str) -> None:
    x = Tensor([2.0, 3.0], requires_grad=True)
    last, ys = pg.scan(lambda s, x: (s.detach() * x, s.detach()), Tensor(1.0), x)
    assert not ys.requires_grad
    last.backward()
    assert x.grad.tolist() == [0.0, 2.0]


def test_what_does_not_change_is_computed_outside(rng: np.random.Generator) -> None:
    w = Tensor(rng.standard_normal((4, 4)).astype(np.float32))
    last, _ = pg.scan(lambda s, x: (s @ w.exp().T + x, None), Tensor.zeros(1, 4), Tensor.zeros(6, 1, 4))
    (loop,) = of_code(OpCode.LOOP, merged_ops([last]))
    codes = {op.code for op in toposort(body_of(loop).src)}
    assert OpCode.EXP not in codes and OpCode.PERMUTE in codes  # a view costs nothing inside


# ---- in each other ----
def test_a_scan_in_a_scan_is_two_loops_in_python(device: str, rng: np.random.Generator) -> None:
    def of(xs: Any, w: Any, stack: Callable[[Any], Any], scan: Callable[..., Any]) -> Any:
        def inner(h: Any, x: Any) -> tuple[Any, Any]:
            h = (h * w + x).tanh()
            return h, h * x

        def outer(h: Any, rows: Any) -> tuple[Any, Any]:
            return scan(inner, h, rows, stack)

        last, ys = scan(outer, xs[0, 0] * 0, xs, stack)
        return (ys * ys).sum() + last.sum()

    arrays = rng.standard_normal((4, 3, 2)), rng.standard_normal(2)
    ours = [Tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    loss = of(*ours, None, lambda f, init, xs, _: pg.scan(f, init, xs))  # type: ignore[arg-type]
    reference = of(*theirs, torch.stack, unrolled)
    loss.backward()
    reference.backward()
    assert len(of_code(OpCode.LOOP, merged_ops([loss, *(t.grad for t in ours)]))) == 2
    assert loss.item() == pytest.approx(reference.item(), rel=1e-12)
    for mine, other in zip(ours, theirs):
        np.testing.assert_allclose(mine.grad.numpy(), other.grad.numpy(), rtol=1e-10)


def test_a_scan_inside_jit_gives_the_same(device: str, rng: np.random.Generator) -> None:
    w = Tensor(rng.standard_normal((2, 2)), requires_grad=True)

    def loss_of(xs: Tensor) -> Tensor:
        _, ys = pg.scan(lambda h, x: ((h @ w + x).tanh(), h), Tensor.zeros(1, 2, dtype=pg.float64), xs)
        return (ys * ys).sum()

    def grad_of(xs: Tensor) -> Tensor:
        return pg.grad(loss_of(xs), [w])[0]

    captured = pg.jit(grad_of)
    for _ in range(4):
        xs = Tensor(rng.standard_normal((5, 1, 2)))
        np.testing.assert_allclose(captured(xs).numpy(), grad_of(xs).numpy(), rtol=1e-12)


# ---- state ----
def test_random_numbers_are_those_of_a_python_loop(device: str) -> None:
    _, ys = pg.scan(lambda s, _: (s, (pg.rand(2), pg.rand(3))), None, length=4)
    after = pg.rand(2)
    pg.manual_seed(0)
    rows = [(pg.rand(2), pg.rand(3)) for _ in range(4)]
    assert ys[0].tolist() == [a.tolist() for a, _ in rows]
    assert ys[1].tolist() == [b.tolist() for _, b in rows]
    assert after.tolist() == pg.rand(2).tolist()


def test_dropout_differs_from_step_to_step_and_equals_the_unrolled_one(device: str, rng: np.random.Generator) -> None:
    xs = rng.standard_normal((4, 50)).astype(np.float32)
    ours, other = Tensor(xs, requires_grad=True), Tensor(xs, requires_grad=True)
    drop = pg.nn.Dropout(0.5)
    _, ys = pg.scan(lambda s, x: (s, drop(x)), None, ours)
    (ys * ys).sum().backward()
    pg.manual_seed(0)
    rows = pg.stack([drop(other[t]) for t in range(4)])
    (rows * rows).sum().backward()
    assert ys.tolist() == rows.tolist()
    assert ours.grad.tolist() == other.grad.tolist()
    assert len({tuple((row == 0).tolist()) for row in ys.detach()}) == 4


def test_running_statistics_are_carried(device: str, rng: np.random.Generator) -> None:
    xs = rng.standard_normal((4, 8, 3)).astype(np.float32)
    means = [Tensor.zeros(3), Tensor.zeros(3)]
    inputs = [Tensor(xs, requires_grad=True), Tensor(xs, requires_grad=True)]

    def normed(x: Tensor, running: Tensor) -> Tensor:
        mean = x.mean(0)
        with pg.no_grad():
            running.copy_(running * 0.9 + mean * 0.1)
        return x - mean + running

    _, ys = pg.scan(lambda s, x: (s, normed(x, means[0])), None, inputs[0])
    rows = pg.stack([normed(inputs[1][t], means[1]) for t in range(4)])
    (ys * ys).sum().backward()
    (rows * rows).sum().backward()
    assert not means[0].requires_grad
    for mine, other in ((means[0], means[1]), (ys.detach(), rows.detach()), (inputs[0].grad, inputs[1].grad)):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.req("G6")
@pytest.mark.parametrize("zero", ["before", "after"])
def test_whole_training_steps_are_a_scan(device: str, rng: np.random.Generator, zero: str) -> None:
    xs = Tensor(rng.standard_normal((6, 8, 3)).astype(np.float32))
    results = []
    for scanned in (True, False):
        pg.manual_seed(1)
        model = pg.nn.MLP(3, [4, 1])
        optimizer = pg.optim.Adam(model.parameters(), lr=0.1)

        def step(carry: None, x: Tensor, model: Any = model, optimizer: Any = optimizer) -> tuple[None, Tensor]:
            if zero == "before":
                optimizer.zero_grad()
            loss = (model(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            if zero == "after":
                optimizer.zero_grad()
            return None, loss.detach()

        losses = pg.scan(step, None, xs)[1] if scanned else unrolled(step, None, xs, pg.stack)[1]
        results.append([losses, *(p.detach() for p in model.parameters())])
        assert not scanned or all(p.grad is None for p in model.parameters())
    for mine, other in zip(*results):
        np.testing.assert_allclose(mine.numpy(), other.numpy(), rtol=2e-5, atol=1e-6)  # sums in another order, 6 steps


def test_gradients_that_steps_add_up_stay_in_grad(device: str) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    def step(carry: None, x: Tensor) -> tuple[None, None]:
        (w * x).sum().backward()
        return None, None

    pg.scan(step, None, Tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert w.grad is not None and w.grad.tolist() == [4.0, 6.0]
    pg.scan(step, None, Tensor([[1.0, 1.0]]))
    assert w.grad.tolist() == [5.0, 7.0]


def test_a_write_in_place_is_seen_after_the_loop(device: str) -> None:
    count, view = Tensor([0.0, 10.0]), None
    view = count[1:]

    def step(carry: None, x: Tensor) -> tuple[None, Tensor]:
        view.add_(x)
        return None, count.sum()

    _, sums = pg.scan(step, None, Tensor([1.0, 2.0]))
    assert sums.tolist() == [11.0, 13.0] and count.tolist() == [0.0, 13.0]


# ---- errors ----
def fails(error: type[Exception], text: str, function: Callable[[], Any]) -> None:
    with pytest.raises(error) as raised:
        function()
    lines = [line for line in str(raised.value).splitlines() if not line.startswith("  at ")]
    assert "\n".join(lines) == text


def test_a_carry_of_another_shape_is_named() -> None:
    def grow(h: Any, x: Tensor) -> tuple[Any, None]:
        return (h[0], pg.cat([h[1], x])), None

    fails(
        ShapeError,
        "scan: carry[1] is float32 of shape (2,) before a step of grow, float32 of shape (3,) after it.\n"
        "  hint: init must have the shape that grow returns.",
        lambda: pg.scan(grow, (Tensor(1.0), Tensor([1.0, 2.0])), Tensor.zeros(5, 1)),
    )


def test_a_carry_of_another_dtype_is_named() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, None]:
        return h + x, None

    fails(
        ShapeError,
        "scan: carry is int64 of shape () before a step of step, float32 of shape () after it.\n"
        "  hint: return carry.cast(dtypes.int64), or begin with dtypes.float32.",
        lambda: pg.scan(step, Tensor(0), Tensor([1.0])),
    )


def test_a_carry_of_another_form_is_named() -> None:
    def step(h: Any, x: Any) -> tuple[Any, None]:
        return [h[0]], None

    fails(
        ShapeError,
        "scan: step got a carry of the form (*, {'c': *}) and returned [*].\n  hint: return a carry of the form of init.",
        lambda: pg.scan(step, (Tensor(0), {"c": Tensor(1)}), length=2),
    )


def test_lengths_that_differ_are_named() -> None:
    def step(h: Any, x: Any) -> tuple[Any, None]:
        return h, None

    fails(
        ArgumentError,
        "scan: lengths differ: xs[0] says 2 steps, xs[1] of shape (3, 4) has 3 rows.",
        lambda: pg.scan(step, None, (Tensor.zeros(2), Tensor.zeros(3, 4))),
    )
    fails(
        ArgumentError,
        "scan: lengths differ: length says 5 steps, xs of shape (2,) has 2 rows.",
        lambda: pg.scan(step, None, Tensor.zeros(2), length=5),
    )
    fails(
        ArgumentError,
        "scan: the number of steps is unknown: give xs or length.\n  hint: length=10",
        lambda: pg.scan(step, None),
    )
    fails(
        ArgumentError,
        "scan: xs of shape () has no axis of steps.\n  hint: pass xs.reshape(1).",
        lambda: pg.scan(step, None, Tensor(1.0)),
    )


def test_a_number_as_carry_is_refused() -> None:
    fails(
        ArgumentError,
        "scan: carry['n'] is 3, which is not a Tensor.\n"
        "  hint: wrap it in Tensor(...), or let the function read it as a closure.",
        lambda: pg.scan(lambda h, x: (h, None), {"n": 3}, length=2),
    )


def test_a_value_asked_for_inside_is_refused() -> None:
    def step(h: Tensor, x: Tensor) -> tuple[Tensor, None]:
        return h * x.item(), None

    fails(
        JitError,
        "scan: item() asks for a value while step is traced; there is none yet.\n"
        "  hint: return the tensor and read it outside.",
        lambda: pg.scan(step, Tensor(0.0), Tensor([1.0])),
    )


def test_a_tensor_that_is_kept_is_refused() -> None:
    kept = []

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, None]:
        kept.append(h + x)
        return h, None

    fails(
        JitError,
        "scan: step keeps a tensor of shape () that it made; each step makes a new one.\n"
        "  hint: return it, or write it in place to a Tensor made before.",
        lambda: pg.scan(step, Tensor(0.0), Tensor([1.0])),
    )


def test_a_step_that_returns_no_pair_is_refused() -> None:
    def step(h: Tensor, x: Tensor) -> Any:
        return h + x

    fails(
        ArgumentError,
        "scan: step must return (carry, y), got Tensor.\n  hint: return carry, None    if a step has no result.",
        lambda: pg.scan(step, Tensor(0.0), Tensor([1.0])),
    )


def test_an_error_inside_leaves_tensors_as_they_were(device: str) -> None:
    count = Tensor([1.0])

    def step(h: Tensor, x: Tensor) -> tuple[Tensor, None]:
        count.add_(x)
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        pg.scan(step, Tensor(0.0), Tensor([1.0]))
    assert count.tolist() == [1.0] and (count + 1).tolist() == [2.0]


# ---- found by random programs (tests/fuzz/test_control.py) ----
def test_a_carry_that_no_step_reads_has_gradients(device: str) -> None:
    x = Tensor([2.0, 3.0], requires_grad=True)
    last, _ = pg.scan(lambda s, x: (x * x, None), Tensor(0.0), x)
    last.backward()
    assert x.grad.tolist() == [0.0, 6.0]


def test_a_step_may_return_what_a_loop_or_call_in_it_only_passes_on(device: str) -> None:
    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        c, passed = pg.outline(lambda a, b: (a + 1.0, b))(c, x)
        (same, total), _ = pg.scan(lambda s, _: ((s[0], s[1] * 2.0), None), (passed, c), length=3)
        return total, same

    last, ys = pg.scan(step, Tensor([1.0, 2.0]), Tensor([[3.0, 4.0], [5.0, 6.0]]))
    assert last.tolist() == [136.0, 200.0] and ys.tolist() == [[3.0, 4.0], [5.0, 6.0]]


def test_gradients_of_the_first_carry_flow_through_no_steps(device: str) -> None:
    x = Tensor([2.0], requires_grad=True)
    last, ys = pg.scan(lambda s, row: (row, row), x * 3.0, Tensor.zeros(0, 1))
    last.sum().backward()
    assert x.grad.tolist() == [3.0] and ys.shape == (0, 1)


@pytest.mark.parametrize("transform", ["scan", "outline"])
def test_an_argument_that_is_written_in_place_as_a_closure_is_refused(transform: str, device: str) -> None:
    state = pg.zeros(2).clone().realize()

    def step(x: Tensor, row: Any = None) -> tuple[Tensor, Tensor]:
        state.add_(1.0)
        return x * 2.0, x

    with pytest.raises(JitError, match=r"step writes in place to a tensor of shape \(2,\) that it is also given"):
        if transform == "scan":
            pg.scan(step, state[:2], length=2)
        else:
            pg.outline(step)(state)
    assert pg.checkpoint(step, state)[0].tolist() == [2.0, 2.0] and state.tolist() == [1.0, 1.0]  # called as it is


@pytest.mark.parametrize("wrap", ["plain", "outline", "checkpoint"])
def test_state_that_begins_to_need_gradients_in_a_step_has_them_in_the_next(wrap: str, device: str) -> None:
    """state becomes s - a in the first step; what a call in the second step gives of it depends on a."""

    def of(scan: bool) -> Tensor:
        a, state = Tensor([0.5, -0.25], requires_grad=True), Tensor([1.0, 2.0])

        def body(x: Tensor) -> Tensor:
            before = state * 0.5
            state.add_(-x)
            return before

        def step(carry: Tensor, _: None) -> tuple[Tensor, None]:
            if wrap == "plain":
                return body(a), None
            return (pg.outline(body)(a) if wrap == "outline" else pg.checkpoint(body, a)), None

        last = pg.scan(step, pg.zeros(2), length=3)[0] if scan else [step(a, None)[0] for _ in range(3)][-1]
        return pg.grad(last.sum(), [a])[0]

    assert of(scan=True).tolist() == of(scan=False).tolist() == [-1.0, -1.0]


def test_forward_mode_through_a_loop_of_which_nothing_changes(device: str) -> None:
    x = Tensor([2.0], requires_grad=True)
    _, ys = pg.scan(lambda c, row: (c, row * 0.0 if c is None else pg.ones(1)), x * 1.0, x.expand(3, 1))
    assert pg.jvp(ys.sum() + (x * x).sum(), [x], [Tensor([1.0])]).item() == 4.0
    _, flat = pg.scan(lambda c, row: (None, row.detach()), None, x.expand(3, 1))
    assert pg.jvp(flat.sum() + (x * x).sum(), [x], [Tensor([1.0])]).item() == 4.0
