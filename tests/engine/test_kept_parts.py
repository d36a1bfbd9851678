"""Parts of graphs that one computation after the other reads: computed twice, then kept, as PyTorch keeps them at once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.engine import realize as engine
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import COSTLY, OpCode
from picograd.look import watch

ROWS, COLUMNS, BATCH = 400, 6, 16
PREPARED: dict[str, Callable] = {
    "standardized": lambda L, x: (x - x.mean(0)) / x.std(0),
    "between 0 and 1": lambda L, x: (x - x.amin(0)) / (x.amax(0) - x.amin(0)),
    "sorted": lambda L, x: x[x[:, 0].argsort()],
    "running": lambda L, x: x.cumsum(0),
    "projected": lambda L, x: x @ x[:COLUMNS].T,
    "whitened twice": lambda L, x: ((x - x.mean(0)) / x.std(0)) @ (x - x.mean(0)).T[:, :COLUMNS],
}


def steps(library, prepare: Callable, array: np.ndarray, names: list[list[str]] | None = None) -> list[float]:
    """Losses of an eager loop over batches of prepared data; the kernels of each step are added to `names`."""
    data = prepare(library, library.tensor(array))
    w = library.zeros(data.shape[1], 2, requires_grad=True)
    optimizer = library.optim.SGD([w], lr=0.01)
    losses = []
    for first in range(0, ROWS - BATCH, BATCH):
        with watch() as counts:
            loss = ((data[first : first + BATCH] @ w) - 1.0).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if names is not None:
            names.append(counts.names)
    return losses


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", PREPARED)
def test_prepared_data_are_prepared_twice_and_then_read(name: str, monkeypatch: pytest.MonkeyPatch, rng) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    array = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    names: list[list[str]] = []
    found = steps(pg, PREPARED[name], array, names)
    np.testing.assert_allclose(found, steps(torch, PREPARED[name], array), rtol=2e-4)
    plain: list[list[str]] = []
    steps(pg, lambda L, x: x, array, plain)
    assert {len(each) for each in names[3:]} == {len(plain[-1])}, "a batch costs what one of memory costs"


def test_an_order_is_drawn_once_for_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    pg.manual_seed(0)
    x = pg.randn(ROWS, COLUMNS).realize()
    for _ in range(3):
        shuffled = x[pg.randperm(ROWS)]
        with watch() as counts:
            rows = [shuffled[i : i + BATCH].numpy() for i in range(0, ROWS, BATCH)]
        assert sum("sort" in name for name in counts.names) <= 2
        np.testing.assert_array_equal(np.sort(np.concatenate(rows)[:, 0]), np.sort(x.numpy()[:, 0]))


def test_a_solution_on_the_host_that_several_values_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    matrix, rows = Tensor(np.eye(4, dtype=np.float32) * 2).realize(), Tensor(np.ones((5, 4), np.float32)).realize()
    solution = pg.linalg.solve(matrix, Tensor([1.0, 2.0, 3.0, 4.0]))
    with watch() as counts:
        assert [(solution * rows[i]).sum().item() for i in range(5)] == [5.0] * 5
    assert sum("solve" in name for name in counts.names) == 2, "once in the first plan, once to be kept"


def test_what_is_drawn_is_kept_from_the_third_graph_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    pg.manual_seed(0)
    draws: list[Callable] = [lambda: pg.randn(6, 4), lambda: pg.rand(6, 4), lambda: pg.randint(0, 9, (6, 4))]
    for draw in draws:
        data, values = draw(), []
        for number in range(5):
            values.append((data * 2).numpy())
            is_kept = data.op.code is OpCode.BUFFER or data.op.realized is not None
            assert is_kept is (number >= 2), number
        assert all(np.array_equal(value, 2 * data.numpy()) for value in values)


def test_what_nobody_holds_is_not_kept(device: str) -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    for i in range(4):
        row = (x - x.mean(0))[i % 3]
        mean = next(op for op in toposort([row.cell.op]) if op.code in COSTLY or getattr(op.arg, "is_costly", False))
        row.realize()
        assert mean.realized is None
        del row, mean


def test_only_the_last_of_several_parts_on_a_way_is_kept(device: str) -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).realize()
    total = x.cumsum(0)
    top = total @ x.T
    costly = [op for op in toposort([top.cell.op]) if op.code in COSTLY]
    for i in range(3):
        assert top[i].tolist() == (np.cumsum(x.numpy(), 0) @ x.numpy().T)[i].tolist()
    assert [op.realized is not None for op in costly] == [False, True]


def test_a_wrong_index_in_a_part_is_reported_each_time(device: str) -> None:
    table, index = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize(), Tensor([0, 5]).realize()
    picked = table[index].cumsum(0)
    for i in (0, 1, 0):
        with pytest.raises(pg.IndexingError, match="5"):
            picked[i].numpy()
    assert table.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_table_of_constants_is_part_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its values are nobody's memory: a plan of its own would compute them at each step, and keep none."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    table = pg.cumprod(1 - pg.linspace(0.0, 0.5, 50), dim=0)
    w = pg.ones(4, requires_grad=True)
    optimizer = pg.optim.SGD([w], lr=0.01)
    num_plans = []
    for _ in range(5):
        x = pg.randn(4)
        with watch() as counts:
            optimizer.zero_grad()
            ((x * w).sum() * table[7]).backward()
            optimizer.step()
        num_plans.append(counts.plans)
    assert num_plans[2:] == [1, 1, 1]


def test_a_network_runs_once_where_a_loss_and_then_an_accuracy_are_read(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """The first batch computes its result twice; where that was, it is kept from then on."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    net = pg.nn.Sequential(pg.nn.Linear(6, 8), pg.nn.ReLU(), pg.nn.Linear(8, 8), pg.nn.ReLU(), pg.nn.Linear(8, 3)).eval()
    pg.realize(net.parameters())
    products = []
    for _ in range(4):
        x, y = pg.tensor(rng.standard_normal((16, 6)).astype(np.float32)), pg.tensor(rng.integers(0, 3, 16))
        with watch() as counts, pg.no_grad():
            out = net(x)
            loss = pg.nn.functional.cross_entropy(out, y, reduction="sum").item()
            right = (out.argmax(1) == y).sum().item()
        expected = out.numpy()
        assert right == (expected.argmax(1) == y.numpy()).sum()
        np.testing.assert_allclose(loss, torch.nn.functional.cross_entropy(
            torch.tensor(expected), torch.tensor(y.numpy()), reduction="sum").item(), rtol=1e-5)  # fmt: skip
        products.append(sum("matmul" in name for name in counts.names))
    assert products[0] > products[-1] == products[-2] == 3, "of each layer one product"


def test_a_loop_that_reads_a_number_computes_what_it_carries_once(monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """Conjugate gradients: whether to go on is read in each turn, and the vectors of the turn are those of the next."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    root = rng.standard_normal((96, 96)).astype(np.float32)
    matrix = pg.tensor(root @ root.T / 96 + np.eye(96, dtype=np.float32))
    products = []
    for _ in range(3):
        b = pg.tensor(rng.standard_normal(96).astype(np.float32))
        x, r, p = pg.zeros(96), b, b
        rs = r @ r
        with watch() as counts:
            for _ in range(8):
                along = matrix @ p
                step = rs / (p @ along)
                x, r = x + step * p, r - step * along
                new = r @ r
                if new.sqrt() < 1e-9:
                    break
                p, rs = r + (new / rs) * p, new
        products.append(sum("96_96" in name for name in counts.names))
        np.testing.assert_allclose((matrix @ x).numpy(), b.numpy(), atol=0.1)
    assert products[0] > products[1] == products[2] == 8


def clock(library: Any, w: Any, y: Any) -> Iterator[float]:
    """A time that is a tensor, of which each turn reads a function."""
    step = library.tensor(0.1)
    time = step * 0
    while True:
        time = time + step
        yield float((y * time).sum())


def average(library: Any, w: Any, y: Any) -> Iterator[float]:
    """A moving average of what each turn computes."""
    mean, row = library.zeros(2), library.zeros(2)
    while True:
        row = (row @ w).tanh() + y[0]
        mean = 0.9 * mean + 0.1 * row
        yield float(mean.square().sum())


def euler(library: Any, w: Any, y: Any) -> Iterator[float]:
    """Time and value of a differential equation; the step's length follows the error that is read."""
    time, step = library.tensor(0.0), library.tensor(0.1)
    while True:
        new = y + step * (y @ w).tanh() * time
        error = float((new - y).abs().max())
        time, y = time + step, new
        step = step * min(1.5, max(0.5, 0.1 / (error + 1e-3)))
        yield error


def accepted(library: Any, w: Any, y: Any) -> Iterator[float]:
    """A step that is taken where a tensor is true."""
    time, step = library.tensor(0.0), library.tensor(0.1)
    while True:
        new = y + step * (y @ w).tanh() * (time + 1)
        error = (new - y).abs().max()
        if bool(error <= 0.2):
            time, y = time + step, new
        step = step * library.minimum(library.maximum(0.1 / error, library.tensor(0.5)), library.tensor(1.5))
        yield float(step)


def heat(library: Any, w: Any, y: Any) -> Iterator[float]:
    """A simulation on a grid, of which each turn reads several places of the one before it."""
    grid = (y @ w).repeat(8, 10)
    while True:
        around = grid.roll(1, 0) + grid.roll(-1, 0) + grid.roll(1, 1) + grid.roll(-1, 1)
        grid = grid + 0.1 * (around - 4 * grid)
        yield float(grid.amax())


def window(library: Any, w: Any, y: Any) -> Iterator[float]:
    """The latest rows of a series, of which the oldest leaves."""
    rows = y
    for turn in itertools.count():
        rows = library.cat([rows[1:], y[turn % 5 :][:1] * 0.5])
        yield float((rows @ w).sum())


def frames(library: Any, w: Any, y: Any) -> Iterator[float]:
    """The latest rows, stacked anew."""
    rows = [*y]
    while True:
        rows = [*rows[1:], rows[0].flip(0)]
        yield float((library.stack(rows) @ w).abs().max())


def shuffled(library: Any, w: Any, y: Any) -> Iterator[float]:
    """Rows in an order that is applied again and again."""
    order = library.tensor([3, 0, 4, 1, 2])
    while True:
        y = y[order]
        yield float((y[0] @ w).sum())


def turned(library: Any, w: Any, y: Any) -> Iterator[float]:
    """Views of views, and nothing else."""
    while True:
        y = y.flip(0).T.reshape(5, 2)
        yield float((y @ w)[0].sum())


def attended(library: Any, w: Any, y: Any) -> Iterator[float]:
    """A result of an Op with several."""
    rows = y[None]
    while True:
        rows = library.nn.functional.scaled_dot_product_attention(rows, rows, rows)
        yield float(rows.abs().max())


def growing(library: Any, w: Any, y: Any) -> Iterator[float]:
    """Each turn adds a row."""
    while True:
        y = library.cat([y, y[-1:] * 0.5])[-4:]
        yield float(y.norm())


def fallen(library: Any, w: Any, y: Any) -> Iterator[float]:
    """A simulation that begins with constants, which are on no device."""
    place, speed = library.zeros(3), library.linspace(0.0, 1.0, 3)
    while True:
        speed = speed + 0.1
        place = place + speed * 0.1
        yield float((place * place).sum())


LOOPS = [clock, average, euler, accepted, heat, window, frames, shuffled, turned, attended, growing, fallen]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_value_that_a_loop_carries_is_kept(loop: Callable, monkeypatch: pytest.MonkeyPatch, rng) -> None:
    """Without it each turn's graph is longer than the one before it, and needs a plan of its own."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((2, 2), (5, 2))]
    expected = loop(torch, *map(torch.tensor, arrays))
    turns, planned, depths = loop(pg, *map(pg.tensor, arrays)), [], []
    for _ in range(24):
        with watch() as counts:
            assert next(turns) == pytest.approx(next(expected), rel=1e-4)
        planned.append(counts.scheduled)
        depths.append(counts.kernels)
    assert sum(planned) <= 14 and planned[9:] == [0] * 15
    assert len({*depths[9:]}) <= 2
    turns = loop(pg, *map(pg.tensor, arrays))
    with watch() as counts:
        for _ in range(24):
            next(turns)
    assert counts.scheduled <= 4, "a second loop has the plans of the first"


@pytest.mark.parametrize(
    "step",
    [
        lambda t: t + 0.1,
        lambda t: (t + 1).reshape(4, 5).T.reshape(-1),
        lambda t: (t * 0.5 + 1).cumsum(0) * 0.1,
        lambda t: (t + 1) / (t + 1).sum(),
        lambda t: (t + 1).where(t < 5, t),
        lambda t: (t + 1).roll(1),
        lambda t: pg.cat([(t + 1)[1:], t[:1]]),
        lambda t: pg.stack([t[::2] + 1, t[1::2]]).reshape(-1),
        lambda t: t.softmax(0).roll(3),
        lambda t: pg.nn.functional.pad((t + 1)[1:], (0, 1)),
    ],
)
def test_a_loop_that_reads_a_number_holds_the_last_value_alone(step: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is kept has a graph below it, with the value of the turn before: without care, each turn's stays."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    t, num_ops = pg.tensor([0.0] * 20), []
    for _ in range(40):
        t = step(t)
        (t * t).sin().sum().item()
        num_ops.append(len(Op.interned))
    assert num_ops[39] <= num_ops[19]


def test_a_large_value_and_one_with_a_gradient_are_not_kept_for_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setattr(engine, "CARRIED_NUMEL_MAX", 4)
    large, learned = pg.zeros(5).realize(), pg.zeros(3, requires_grad=True)
    for _ in range(5):
        large, learned = large + 1, learned + 1
        values = [large.op, learned.op]
        assert large.sum().item() > 0 and learned.sum().item() > 0
        assert [op.realized for op in values] == [None, None]


def test_lines_whose_values_are_computed_again_are_forgotten_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell of a notebook is lines of its own, which a process would keep for ever."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    table: dict[Any, Any] = {}
    monkeypatch.setattr(engine, "_computed_again", table)
    monkeypatch.setattr(engine, "LINES_AGAIN_MAX", 4)
    x, w, found = pg.randn(8, 16).realize(), pg.randn(16, 16).realize(), []
    for cell in range(7):
        given: dict[str, Any] = {"x": x, "w": w}
        exec(compile("y = (x @ w).tanh()\na = y.sum().item()\nb = y.max().item()", f"<cell {cell}>", "exec"), given)
        found.append((given["a"], given["b"]))
    assert [len(lines) for lines in table.values()] == [4]
    assert len({*found}) == 1


def test_what_is_known_of_a_mixture_of_experts_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its choices are read once for each expert: a value that is found again without a line to learn forgets no plan."""
    pg.manual_seed(0)
    experts = [pg.nn.Linear(4, 4) for _ in range(4)]
    gate, data = pg.nn.Linear(4, 4), pg.randn(3, 9, 4).realize()
    optimizer = pg.optim.SGD([*gate.parameters(), *(p for expert in experts for p in expert.parameters())], lr=0.01)

    def step(x: Tensor) -> None:
        weights, chosen = gate(x).softmax(-1).topk(2, -1)
        chosen_too = pg.ones_like(chosen).bool()
        out = pg.zeros_like(x)
        for number, expert in enumerate(experts):
            rows, places = pg.where((chosen == number) & chosen_too)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, places, None])
        optimizer.zero_grad()
        out.pow(2).mean().backward()
        optimizer.step()

    for turn in range(10):
        step(data[turn % 3])
    counted: list[Any] = []
    original = engine._compute_by_device
    monkeypatch.setattr(engine, "_compute_by_device", lambda *args: (counted.append(args), original(*args))[1])
    for turn in range(10, 16):
        step(data[turn % 3])
    assert not counted
