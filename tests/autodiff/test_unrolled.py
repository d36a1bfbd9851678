"""Long recurrences of a Python loop: rolled into LOOPs, with the values and gradients of the steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.autodiff import unrolled
from picograd.engine import realize
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.look import Counts, watch
from picograd.tensor.compute import NextLook, plain_cells
from tests.helpers import forgotten

STEPS = 20


def loops_of(tensors: Sequence[Any]) -> list[Op]:
    """Returns the LOOPs that take the place of steps, those of gradients, and a layer's of one step, left out."""
    graphs, _ = unrolled.rolled([tensor.cell.op for tensor in tensors])
    return [op for op in toposort(graphs) if op.code is OpCode.LOOP and op.arg[2] > 1]


def given(*shape: int) -> Any:
    rng = np.random.default_rng(len(shape) + sum(shape))
    return pg.Tensor(rng.standard_normal(shape).astype(np.float32) * 0.5).realize()


def leaf(*shape: int) -> Any:
    return given(*shape).requires_grad_()


def lstm() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    cell, head = pg.nn.LSTMCell(3, 4), pg.nn.Linear(4, 1)
    x, h, c, out = leaf(2, STEPS, 3), pg.zeros(2, 4), pg.zeros(2, 4), []
    for t in range(STEPS):
        h, c = cell(x[:, t], (h, c))
        out.append(head(h))
    return [pg.cat(out, dim=1), h, c], [x, *cell.parameters(), *head.parameters()]


def gru_of_pieces() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    cell, x, h = pg.nn.GRUCell(3, 4), leaf(2, STEPS, 3), leaf(2, 4)
    begin, out = h, []
    for piece in x.split(1, dim=1):
        h = cell(piece.squeeze(1), h)
        out.append(h)
    return [pg.stack(out, 1), out[3]], [x, begin, *cell.parameters()]


def backwards() -> tuple[list[Any], list[Any]]:
    w, x, h = leaf(4, 4), leaf(STEPS, 2, 4), pg.zeros(2, 4)
    for t in reversed(range(STEPS)):
        h = (h @ w + x[t]).tanh()
    return [h], [w, x]


def two_layers_and_losses() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    first, second = pg.nn.RNNCell(3, 4), pg.nn.RNNCell(4, 4)
    x, y, a, b = given(2, STEPS, 3), given(2, STEPS, 4), pg.zeros(2, 4), pg.zeros(2, 4)
    loss: Any = 0
    for t in range(STEPS):
        a = first(x[:, t], a)
        b = second(a, b)
        loss = loss + ((b - y[:, t]) ** 2).mean()
    return [loss / STEPS], [*first.parameters(), *second.parameters()]


def loss_from_the_first() -> tuple[list[Any], list[Any]]:
    w, x, h, loss = leaf(4, 4), given(STEPS, 2, 4), pg.zeros(2, 4), None
    for t in range(STEPS):
        h = (x[t] + h @ w).tanh()
        loss = h.mean() if loss is None else loss * 0.9 + h.mean()
    return [loss], [w]


def encoder_and_decoder() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    encoder, decoder, x = pg.nn.RNNCell(3, 4), pg.nn.RNNCell(4, 4), given(2, STEPS, 3)
    h, seen, out = pg.zeros(2, 4), [], []
    for t in range(STEPS):
        h = encoder(x[:, t], h)
        seen.append(h)
    every = pg.stack(seen, 1)
    for _ in range(STEPS):
        weights = (every @ h.unsqueeze(2)).softmax(1)
        h = decoder((weights * every).sum(1), h)
        out.append(h)
    return [pg.stack(out, 1)], [*encoder.parameters(), *decoder.parameters()]


def goes_on_from_its_output() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    cell, head, x, h, out = pg.nn.RNNCell(1, 4), pg.nn.Linear(4, 1), given(2, STEPS), pg.zeros(2, 4), []
    for t in range(STEPS):
        h = cell(x[:, t : t + 1], h)
        y = head(h)
        out.append(y)
    for _ in range(STEPS):
        h = cell(y, h)
        y = head(h)
        out.append(y)
    return [pg.cat(out, 1)], [*cell.parameters(), *head.parameters()]


def ode_with_times() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    f, x, dt = pg.nn.Sequential(pg.nn.Linear(3, 8), pg.nn.Tanh(), pg.nn.Linear(8, 2)), leaf(2, 2), 0.05
    begin = x
    for i in range(STEPS):
        x = x + dt * f(pg.cat([x, pg.full((2, 1), i * dt)], 1))
    return [x], [begin, *f.parameters()]


def runge_kutta() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    f, x, dt = pg.nn.Linear(2, 2), leaf(2, 2), 0.1
    begin, path = x, [x]
    for _ in range(STEPS):
        a = f(x)
        b = f(x + dt / 2 * a)
        c = f(x + dt / 2 * b)
        x = x + dt / 6 * (a + 2 * b + 2 * c + f(x + dt * c))
        path.append(x)
    return [pg.stack(path)], [begin, *f.parameters()]


def wave() -> tuple[list[Any], list[Any]]:
    before, now = leaf(8), leaf(8)
    leaves = [before, now]
    for _ in range(STEPS):
        before, now = now, 2 * now - before + 0.1 * (now.roll(1, 0) - 2 * now + now.roll(-1, 0))
    return [now, before], leaves


def list_of_inputs() -> tuple[list[Any], list[Any]]:
    w, h, xs = leaf(4, 4), pg.zeros(2, 4), [given(2, 4) * (i + 1) for i in range(STEPS)]
    pg.realize(xs)
    for x in xs:
        h = (x + h @ w).tanh()
    return [h], [w]


def characters() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    emb, cell, tokens = pg.nn.Embedding(7, 3), pg.nn.RNNCell(3, 4), pg.Tensor([[i % 7, 3 * i % 7] for i in range(STEPS)])
    h, out = None, []
    for t in range(STEPS):
        h = cell(emb(tokens[t]), h)
        out.append(h)
    return [pg.stack(out)], [*emb.parameters(), *cell.parameters()]


def with_noise() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(3)
    w, h = leaf(4, 4), given(2, 4)
    for _ in range(STEPS):
        h = pg.nn.functional.dropout((h @ w).tanh(), 0.3)
    return [h], [w]


def keeps_a_gradient() -> tuple[list[Any], list[Any]]:
    w, h = leaf(4, 4), given(2, 4)
    for t in range(STEPS):
        h = (h @ w).tanh()
        if t == 4:
            h.retain_grad()
            kept = h
    return [h], [w, kept]


def feeds_back_its_choice() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    emb, gru, head, h = pg.nn.Embedding(7, 3), pg.nn.GRU(7, 4, batch_first=True), pg.nn.Linear(4, 7), leaf(1, 2, 4)
    begin, token, out = h, pg.zeros(2, 1, dtype=pg.int64), []
    for _ in range(STEPS):
        y, h = gru(pg.cat([emb(token), h.permute(1, 0, 2)], 2), h)
        out.append(head(y))
        token = out[-1].topk(1)[1].squeeze(-1).detach()
    return [pg.cat(out, 1)], [begin, *emb.parameters(), *gru.parameters(), *head.parameters()]


def log_probabilities_in_a_list() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    net, states, saved = pg.nn.Sequential(pg.nn.Linear(3, 8), pg.nn.Tanh(), pg.nn.Linear(8, 4)), given(STEPS, 3), []
    for t in range(STEPS):
        choices = pg.distributions.Categorical(logits=net(states[t]))
        saved.append(choices.log_prob(pg.tensor(t * 7 % 4)))
    returns = pg.arange(STEPS, dtype=pg.float32) / STEPS
    return [-(pg.stack(saved) * returns).sum(), saved[3]], [*net.parameters()]


def two_heads_in_lists() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    body, first, second = pg.nn.Linear(3, 8), pg.nn.Linear(8, 2), pg.nn.Linear(8, 1)
    data, a, b = given(STEPS, 2, 3), [], []
    for t in range(STEPS):
        h = body(data[t]).relu()
        a.append(first(h).softmax(-1))
        b.append(second(h) * (1 + t))
    return [pg.cat(a, 1), pg.stack(b, 1)], [*body.parameters(), *first.parameters(), *second.parameters()]


def list_with_another_first() -> tuple[list[Any], list[Any]]:
    w, data = leaf(3, 3), given(STEPS, 2, 3)
    return [pg.cat([leaf(1, 3), *[(data[t] @ w).tanh() for t in range(STEPS)]])], [w]


def list_that_keeps_a_gradient() -> tuple[list[Any], list[Any]]:
    w, data = leaf(3, 3), given(STEPS, 2, 3)
    rows = []
    for t in range(STEPS):
        rows.append((data[t] @ w).tanh())
        if t == 5:
            rows[5].retain_grad()
    return [pg.stack(rows)], [w, rows[5]]


def sum_of_losses() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    cell, head, x, y, h = pg.nn.GRUCell(3, 4), pg.nn.Linear(4, 5), given(STEPS, 2, 3), given(STEPS, 2, 5), pg.zeros(2, 4)
    loss: Any = 0
    for t in range(STEPS):
        h = cell(x[t], h)
        loss = loss + pg.nn.functional.mse_loss(head(h), y[t])
    return [loss / STEPS], [*cell.parameters(), *head.parameters()]


def rows_that_are_written() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    cell, x, h, out = pg.nn.GRUCell(3, 4), given(STEPS, 2, 3), pg.zeros(2, 4), pg.zeros(STEPS + 1, 2, 4)
    columns = pg.zeros(2, STEPS, 4)
    for t in range(STEPS):
        h = cell(x[t], h)
        out[t + 1] = h
        columns[:, t] = h * 2
    return [out, columns], [*cell.parameters()]


def rows_written_twice() -> tuple[list[Any], list[Any]]:
    w, x, out = leaf(3, 3), given(STEPS, 2, 3), given(STEPS, 2, 3)
    for t in range(STEPS):
        out[t] = (x[t] @ w).tanh()
    out[3] = out[3] + out[4]
    return [out], [w]


def rows_that_follow_rows() -> tuple[list[Any], list[Any]]:
    w, out = leaf(3, 3), pg.zeros(STEPS + 1, 2, 3)
    out[0] = given(2, 3)
    for t in range(STEPS):
        out[t + 1] = (out[t] @ w).tanh()
    return [out], [w]


def list_that_grows() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    cell, x, h, out = pg.nn.GRUCell(3, 4), given(STEPS, 2, 3), pg.zeros(2, 4), pg.zeros(0, 2, 4)
    for t in range(STEPS):
        h = cell(x[t], h)
        out = pg.cat([out, h.unsqueeze(0)])
    return [out], [*cell.parameters()]


def advantages_backwards() -> tuple[list[Any], list[Any]]:
    pg.manual_seed(0)
    value, x, rewards = pg.nn.Linear(3, 1), given(STEPS, 2, 3), given(STEPS, 2)
    values, advantage, found = value(x).squeeze(-1), pg.zeros(2), []
    for t in reversed(range(STEPS)):
        following = values[t + 1].detach() if t + 1 < STEPS else pg.zeros(2)
        advantage = rewards[t] + 0.9 * following - values[t] + 0.8 * advantage
        found.append(advantage)
    return [pg.stack(found[::-1])], [*value.parameters()]


def filter_with_inverses() -> tuple[list[Any], list[Any]]:
    a, seen, mean, spread, loss = leaf(3, 3), given(STEPS, 3), pg.zeros(3), pg.ones(3).diag(), pg.zeros(())
    for t in range(STEPS):
        mean, spread = a @ mean, a @ spread @ a.T + pg.ones(3).diag() * 0.1
        gain = spread @ pg.linalg.inv(spread + pg.ones(3).diag())
        off = seen[t] - mean
        mean, spread, loss = mean + gain @ off, spread - gain @ spread, loss + off @ off
    return [mean, loss / STEPS], [a]


def norms_in_a_list() -> tuple[list[Any], list[Any]]:
    """The formula of a running mean takes its momentum as a number."""
    pg.manual_seed(0)
    net = pg.nn.Sequential(pg.nn.Linear(3, 4, bias=False), pg.nn.BatchNorm1d(4))
    data, factor = given(STEPS, 5, 3), given(STEPS, 5, 4)
    out = [net(data[t]) * factor[t] for t in range(STEPS)]
    return [pg.stack(out), net[1].running_mean, net[1].running_var], [*net.parameters()]


PROGRAMS: list[tuple[Callable[[], tuple[list[Any], list[Any]]], int]] = [
    (lstm, 1), (gru_of_pieces, 1), (backwards, 1), (two_layers_and_losses, 2), (loss_from_the_first, 2),
    (encoder_and_decoder, 2), (goes_on_from_its_output, 2), (ode_with_times, 1), (runge_kutta, 1), (wave, 1),
    (list_of_inputs, 1), (characters, 1), (with_noise, 1), (keeps_a_gradient, 2),
    (feeds_back_its_choice, 1), (log_probabilities_in_a_list, 1), (two_heads_in_lists, 1), (list_with_another_first, 1),
    (list_that_keeps_a_gradient, 1), (sum_of_losses, 2), (norms_in_a_list, 3), (rows_that_are_written, 1),
    (rows_written_twice, 1), (rows_that_follow_rows, 1), (list_that_grows, 1), (advantages_backwards, 1),
    (filter_with_inverses, 2),
]  # fmt: skip


def values(program: Callable[[], tuple[list[Any], list[Any]]]) -> tuple[list[Any], int]:
    """Returns results and gradients of a program, and how many LOOPs they are computed by."""
    results, leaves = program()
    sum((result * result).sum() for result in results).backward()
    every = [*results, *[each.grad for each in leaves]]
    count = len(loops_of(every))
    pg.realize(every)
    return [tensor.detach().numpy() for tensor in every], count


@pytest.mark.parametrize(("program", "count"), PROGRAMS, ids=[program.__name__ for program, _ in PROGRAMS])
def test_a_loop_has_the_values_of_its_steps(
    program: Callable[[], tuple[list[Any], list[Any]]], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pg.device("NUMPY"):
        found, num_loops = values(program)
        monkeypatch.setattr(unrolled, "STEPS_MIN", 10**9)
        wanted, none = values(program)
    assert none == 0
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
    assert num_loops == count


def test_a_result_that_is_read_of_the_last_step_alone_is_a_result_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    pg.manual_seed(0)
    lstm, x = pg.nn.LSTM(3, 3, batch_first=True), given(2, 1, 3)

    def last_states() -> Any:
        y = x
        for _ in range(STEPS):
            y, (_, cell) = lstm(y)
        return pg.cat([y.squeeze(1), cell.squeeze(0)])

    with pg.device("NUMPY"), pg.no_grad():
        (loop,), found = loops_of([last_states()]), last_states().numpy()
        monkeypatch.setattr(unrolled, "STEPS_MIN", 10**9)
        np.testing.assert_allclose(found, last_states().numpy(), rtol=2e-6)
    assert loop.arg[2] >= STEPS - 1


def horner(x: Any, terms: int) -> Any:
    total = x * 0.0
    for k in range(terms):
        total = total * x + 1.0 / (k + 1)
    return total


def test_a_formula_is_written_out_and_a_long_one_is_a_loop() -> None:
    """A LOOP of Horner's rule would pass over memory for each term; a kernel does once."""
    x = given(64)
    assert not loops_of([horner(x, 24)]) and len(loops_of([horner(x, 300)])) == 1
    for function in (pg.erfc, pg.erfinv, pg.special.i0, pg.special.erfcx):
        assert not loops_of([function(x)])
        forgotten()
        with watch() as counts:
            function(x).realize()
        assert counts.scheduled == 1
    recurrence, rows = x.clone(), given(20, 64)
    for k in range(20):  # of as few instructions, but a row of memory in each step
        recurrence = recurrence * 0.5 + rows[k]
    assert len(loops_of([recurrence])) == 1


def trained(cell: Any, num_steps: int, lib: Any, weights: Sequence[np.ndarray[Any, Any]]) -> list[float]:
    """Returns the losses of three steps of a training over time."""
    x = lib.from_numpy(np.linspace(-1, 1, 2 * 64 * 3, dtype=np.float32).reshape(2, 64, 3))[:, :num_steps]
    with lib.no_grad():
        for parameter, value in zip(cell.parameters(), weights):
            parameter.copy_(lib.from_numpy(value))
    optimizer, losses = lib.optim.SGD(cell.parameters(), lr=0.5), []
    for _ in range(3):
        h, c, out = lib.zeros(2, 4), lib.zeros(2, 4), []
        for t in range(num_steps):
            h, c = cell(x[:, t], (h, c))
            out.append(h)
        loss = ((lib.stack(out, 1) - 0.5) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def counted(num_steps: int) -> tuple[Counts, list[float]]:
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((16, 3), (16, 4), (16,), (16,))]
    forgotten()
    with watch() as counts:
        losses = trained(pg.nn.LSTMCell(3, 4), num_steps, pg, weights)
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(losses, trained(torch.nn.LSTMCell(3, 4), num_steps, torch, weights), rtol=2e-6)
    return counts, losses


def test_more_steps_need_no_more_plans_and_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    few, many = counted(20)[0], counted(60)[0]
    assert (many.plans, many.kernels, many.scheduled) == (few.plans, few.kernels, few.scheduled)
    assert many.lowered <= few.kernels  # those of few steps may be on disk


def test_a_prediction_without_gradients_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()
    w, x = given(4, 4), given(2, 4)

    def simulated(num_steps: int) -> Any:
        y = x
        for _ in range(num_steps):
            y = y + 0.01 * (y @ w).tanh()
        return y.tolist()

    with watch() as first, pg.no_grad():
        value = simulated(100)
    with watch() as second, pg.no_grad():
        assert simulated(100) == value
    assert first.scheduled == 1 and first.kernels <= 5 and second.scheduled == 0
    y = x.numpy().astype(np.float64)
    for _ in range(100):
        y = y + 0.01 * np.tanh(y @ w.numpy().astype(np.float64))
    np.testing.assert_allclose(np.array(value), y, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:a value of shape")
@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_a_prediction_that_is_computed_in_parts_plans_each_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(NextLook, "depth", 200)
    forgotten()
    pg.manual_seed(0)
    cell, x = getattr(pg.nn, kind)(3, 4), given(2, 60, 3)
    pg.realize(cell.parameters())
    plain_cells.clear()  # those of other tests

    @pg.no_grad()
    def predicted() -> Any:
        unused, state, out = pg.zeros(2, 4), None, []
        for t in range(60):
            state = cell(x[:, t], state)
            out.append(state[0] if kind == "LSTMCell" else state)
        return (pg.stack(out, 1) + 0 * unused.unsqueeze(1)).tolist()

    value = predicted()
    monkeypatch.setattr(realize, "_compute_by_device", None)  # every part is found by the short key of its graphs
    with watch() as again:
        assert predicted() == value
    assert again.plans > 1 and again.scheduled == 0


@pytest.mark.parametrize("backwards", [False, True])
def test_the_plan_of_a_loop_is_found_wherever_its_steps_begin(backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()
    w, x, start = given(4, 4), given(2, 60, 4), given(2, 4)

    @pg.no_grad()
    def state_after(begin: int, lib: Any, w: Any, x: Any, h: Any) -> Any:
        for t in reversed(range(8)) if backwards else range(8):
            h = lib.tanh(h @ w + x[:, begin + t])
        return h

    def checked(begin: int) -> None:
        found = state_after(begin, pg, w, x, start).numpy()
        wanted = state_after(begin, np, w.numpy(), x.numpy(), start.numpy())
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)

    for begin in (0, 8, 16):
        checked(begin)
    monkeypatch.setattr(realize, "_compute_by_device", None)
    for begin in (24, 31, 52):
        checked(begin)


def test_few_steps_are_a_loop_where_each_has_a_product() -> None:
    x, w = given(2, 4), leaf(4, 4)
    products, cheap = x, x
    for _ in range(2 * unrolled.STEPS_MIN):
        products, cheap = (products @ w).tanh(), (cheap * 0.5 + 1).tanh()
    (loop,) = loops_of([products])
    assert loop.arg[2] >= unrolled.STEPS_MIN and loops_of([cheap]) == []


def loop_in_a_step(kind: str, num_steps: int) -> tuple[Callable[[Any], Any], Any]:
    """Returns a training step over a Python loop, and its argument."""
    pg.manual_seed(0)
    cell, head, x = getattr(pg.nn, kind)(3, 4), pg.nn.Linear(4, 1), given(2, num_steps, 3)
    optimizer = pg.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        state, out = None, []
        for t in range(num_steps):
            state = cell(x[:, t], state)
            out.append(head(state[0] if kind == "LSTMCell" else state))
        loss = ((pg.cat(out, 1) - 0.5) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, x


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
def test_jit_rolls_loops_as_an_eager_step_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()
    counts = {}
    for num_steps in (20, 60):
        eager, x = loop_in_a_step(kind, num_steps)
        jitted = pg.jit(loop_in_a_step(kind, num_steps)[0])
        losses = [eager(x).item() for _ in range(4)]
        with watch() as counts[num_steps]:
            first = jitted(x).item()
        assert [first, *[jitted(x).item() for _ in range(3)]] == pytest.approx(losses, rel=1e-6)
    assert counts[60].kernels == counts[20].kernels <= 45 and counts[60].scheduled == counts[20].scheduled


@pytest.mark.parametrize("made", [leaf, given])
def test_layers_of_one_form_are_no_steps(made: Callable[..., Any]) -> None:
    x, weights = made(2, 4), [made(4, 4) for _ in range(STEPS)]
    for w in weights:
        x = pg.nn.functional.linear(x, w).relu()
    assert loops_of([x.sum()]) == []


def test_steps_among_which_one_differs_are_no_loop_of_all() -> None:
    x, w = given(2, 4), leaf(4, 4)
    for t in range(2 * STEPS + 5):
        x = (x @ w).relu() if t == STEPS + 5 else (x @ w).tanh()
    counts = sorted(op.arg[2] for op in loops_of([x]))
    assert len(counts) == 2 and counts[0] >= STEPS - 2 and sum(counts) <= 2 * STEPS + 4


def gates_cut_by_hand(library: Any, xs: Any, w: Any, u: Any, b: Any) -> Any:
    h = library.zeros(2, 3)
    for x in xs:
        (r1, z1, n1), (r2, z2, n2) = (x @ w + b).split(3, dim=1), (h @ u).split(3, dim=1)
        r, z = (r1 + r2).sigmoid(), (z1 + z2).sigmoid()
        h = (1 - z) * (n1 + r * n2).tanh() + z * h
    return (h * h).sum()


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("count", [10, 11, 16, 21, 27])
def test_an_element_that_is_written_in_nested_loops_is_where_it_belongs(count: int, adds: bool) -> None:
    """Writes to one row are steps of a loop; the one that goes on in the next row is none of them."""
    shown = np.arange(60, dtype=np.float32).reshape(6, 10)
    written = pg.Tensor(shown).clone()
    for row, column in [(row, column) for row in range(6) for column in (3, 5, 7, 1, 9)][:count]:
        if adds:
            written[row, pg.Tensor(column)] += 0.5
            shown[row, column] += 0.5
        else:
            written[row, pg.Tensor(column)] = -7.0
            shown[row, column] = -7.0
    np.testing.assert_array_equal(written.numpy(), shown)


def test_parts_of_gates_stay_in_a_body_and_the_plan_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block of the graph is in the body of the loop, where it has no offset that could move."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    forgotten()
    weights, plans = [leaf(4, 9), leaf(3, 9), leaf(9)], []
    theirs = [torch.tensor(each.detach().numpy(), requires_grad=True) for each in weights]
    for seed in range(4):
        xs = np.random.default_rng(seed).standard_normal((10, 2, 4)).astype(np.float32)
        with watch() as counts:
            found = pg.grad(gates_cut_by_hand(pg, pg.Tensor(xs), *weights), weights)
            values = [each.numpy() for each in found]
        plans.append(counts.scheduled)
        for ours, expected in zip(values, torch.autograd.grad(gates_cut_by_hand(torch, torch.tensor(xs), *theirs), theirs)):
            np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-6)
    assert plans[2:] == [0, 0]


def test_a_graph_of_other_lengths_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    search = unrolled._one_loop
    monkeypatch.setattr(unrolled, "_one_loop", lambda *args: searched.append(1) or search(*args))
    forgotten()
    unrolled._without_loops.clear()
    kinds = ("sin", "cos", "exp", "tanh")
    for length in (70, 80, 95):
        x = given(length, 3)
        for i in range(40):
            x = getattr(x * (i + 2), kinds[i * i * i % 7 % 4])() + x.sum(i % 2, keepdim=True) * (i % 3)
        unrolled.rolled([x.op])
    assert len(searched) == 1


# ---- of another number of steps each time ----
def steps_of(program: Callable[[], tuple[list[Any], list[Any]]], num_steps: int, rolls: bool) -> tuple[list[Any], Counts]:
    """Returns results and gradients of a program of so many steps, and counts; with LOOPs, or step by step."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setitem(globals(), "STEPS", num_steps)
        changed.setattr(unrolled, "STEPS_MIN", unrolled.STEPS_MIN if rolls else 10**9)
        results, leaves = program()
        with watch() as counts:
            sum((result * result).sum() for result in results).backward()
            every = [*results, *[each.grad for each in leaves]]
            pg.realize(every)
    return [tensor.detach().numpy() for tensor in every], counts


OF_ANY_LENGTH = [program for program, _ in PROGRAMS if program is not encoder_and_decoder]  # its steps read all others


@pytest.mark.parametrize("program", OF_ANY_LENGTH, ids=[program.__name__ for program in OF_ANY_LENGTH])
def test_another_number_of_steps_needs_no_plan(
    program: Callable[[], tuple[list[Any], list[Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    forgotten()
    plans = {}
    for num_steps in (20, 23, 27, 30, 25, 21):
        found, counts = steps_of(program, num_steps, rolls=True)
        plans[num_steps] = counts.scheduled
        with pg.device("NUMPY"):
            wanted, _ = steps_of(program, num_steps, rolls=False)
        for a, b in zip(found, wanted):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6 + 1e-5 * np.abs(b).max())
    assert [plans[n] for n in (30, 25, 21)] == [0, 0, 0]
