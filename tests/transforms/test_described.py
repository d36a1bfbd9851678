"""Captures of one function that differ in lengths, offsets and numbers: one plan, with the results of no jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn, optim
from picograd.engine import realize
from picograd.engine.compiler import Compiler
from picograd.engine.devices import compiler_for
from picograd.engine.lengths import Lengths, bucket
from picograd.look import watch
from tests.helpers import forgotten, in_full

F = nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:jit.* has been captured for")
LENGTHS = (20, 23, 31, 16, 28, 9, 50, 31, 3, 20, 77)
BUCKETS = len({tuple(bucket(n)) for n in LENGTHS})


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    monkeypatch.setenv("PICOGRAD_CACHE", "")
    forgotten()


def drawn(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)).realize()


def bits(results: Any) -> list[bytes]:
    return [x.numpy().tobytes() for x in (results if isinstance(results, list | tuple) else [results])]


def down(n: int) -> list[Tensor]:
    return [drawn(n, 6)]


def updated(x: Tensor, y: Tensor) -> Tensor:
    y += x.sum(1)
    return y * 2


TABLE, INDEX = drawn(100, 5), Tensor([1, 2]).realize()
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[[int], list[Any]]]] = {
    "elementwise": (lambda x: x.tanh() * 2 + 1, down),
    "mean and deviation": (lambda x: ((x - x.mean()) / x.std(), x.mean(0)), down),
    "softmax": (lambda x: x.softmax(-1), lambda n: [drawn(6, n)]),
    "product": (lambda a, b: (a @ b).relu(), lambda n: [drawn(6, n), drawn(n, 5)]),
    "joined": (lambda x: pg.cat([x, x[:2]]).exp(), down),
    "a view": (lambda x: x[1:], down),
    "positions": (lambda x: x * pg.arange(len(x))[:, None], down),
    "rows of a table": (lambda x: TABLE[pg.arange(len(x))] + x[:, :1], down),
    "numbers and offsets": (lambda x, k: TABLE[k : k + 4] * (k / 8) + x.sum(), lambda n: [drawn(n, 6), n]),
    "in place": (updated, lambda n: [drawn(n, 6), drawn(n)]),
    "scan": (lambda x: pg.scan(lambda h, row: (h * row, h), pg.ones(6), x), down),
}


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_few_plans_and_the_results_of_no_jit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, make = FUNCTIONS[name]
    jitted, found, planned = pg.jit(function), [], []
    for n in LENGTHS:
        with watch() as counts:
            found.append([bits(jitted(*make(n))) for _ in range(4)])
        planned.append(counts.scheduled)
    assert sum(planned) <= 2 + BUCKETS and planned[3:5] == [0, 0], planned
    monkeypatch.setattr(Lengths, "sizes", lambda *_: None)
    forgotten()
    for n, each in zip(LENGTHS, found):
        assert each == [bits(function(*make(n)))] * 4, n


def test_replays_of_many_lengths_take_turns() -> None:
    jitted, kept = pg.jit(lambda x: (x * 2, x.sum(0))), []
    for _ in range(4):
        for n in (20, 23, 31, 16, 28):
            x = drawn(n, 6)
            kept.append((x, *jitted(x)))
    for x, twice, total in kept:
        assert bits((twice, total)) == bits((x * 2, x.sum(0)))


@in_full
def test_training_on_episodes_of_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    def trained(jit: bool) -> tuple[list[bytes], list[bytes], int]:
        forgotten()
        pg.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = optim.Adam(model.parameters(), lr=1e-2)

        def step(states: Tensor, returns: Tensor) -> Tensor:
            good = (returns - returns.mean()) / (returns.std() + 1e-6)
            loss = -(F.log_softmax(model(states), dim=1)[pg.arange(len(states)), 0] * good).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        call = pg.jit(step) if jit else step
        # Lengths that come again show that the function may be traced for any: the next new one makes a plan.
        losses = [call(drawn(n, 4), drawn(n)) for n in (*LENGTHS, *LENGTHS, 24)]
        with watch() as counts:
            losses += [call(drawn(n, 4), drawn(n)) for n in (*LENGTHS, 25, 18)]
        return bits([p.detach() for p in model.parameters()]), bits(losses), counts.scheduled

    parameters, losses, planned = trained(jit=True)
    assert parameters == trained(jit=False)[0] and planned == 0
    monkeypatch.setattr(Lengths, "sizes", lambda *_: None)
    assert (parameters, losses) == trained(jit=True)[:2]


def test_donated_arguments() -> None:
    add = pg.jit(lambda total, x: total + x, donate="total")
    for n in LENGTHS:
        total = drawn(n, 6)
        for number in range(3):
            total = add(total, drawn(n, 6))
            assert bits(total) == bits(sum([drawn(n, 6)] * (number + 1), drawn(n, 6)))


def test_many_steps_in_one_call() -> None:
    total = pg.zeros(()).clone().realize()

    def step(x: Tensor) -> Tensor:
        total.add_(x.sum())
        return x * 2

    jitted, expected = pg.jit(step, steps=3), np.float32(0)
    for n in (5, 6, 7, 4, 5, 3):
        assert (jitted(pg.ones(3, n).clone()) == 2).all().item()
        expected += np.float32(3 * n)
        assert total.item() == expected


def test_symbolic_integers_of_the_user_beside_lengths_that_change() -> None:
    n, jitted, planned = pg.Variable("length0", 1, 16), pg.jit(lambda x, y: (x.sum(1) + y[:, None], x * 2)), []
    data = drawn(4, 16)
    for rows in (5, 6, 7, 4):
        for length in (3, 9, 16, 1):
            y = drawn(rows)
            with watch() as counts:
                found, twice = jitted(data[:, : n.bind(length)], y)
            assert bits(found) == bits(data[:, :length].sum(1) + y[:, None])
            assert bits(twice) == bits(data[:, :length] * 2)
            planned.append(counts.scheduled)
    assert sum(planned[-4:]) == 0, planned


def test_an_error_has_the_length_of_the_call() -> None:
    jitted = pg.jit(lambda x, i: x[i])
    for n in (5, 6, 7, 4, 6, 7):
        assert bits(jitted(drawn(n), Tensor([n - 1]))) == bits(drawn(n)[n - 1 :])
        with pytest.raises(IndexError, match=f"{n} is out of range for axis 0 of length {n}"):
            jitted(drawn(n), Tensor([n]))


def test_what_needs_a_number_has_a_plan_for_each_length() -> None:
    w, jitted = drawn(3, 2, 3), pg.jit(lambda x, w: F.conv1d(x, w))
    for n in (5, 6, 7, 8):
        assert bits(jitted(drawn(1, 2, n), w)) == bits(F.conv1d(drawn(1, 2, n), w))


def test_a_tuned_function_has_a_plan_for_each_length() -> None:
    jitted, planned = pg.jit(lambda x: x.exp(), tune=True), []
    for n in (5, 6, 7, 4):
        with watch() as counts:
            jitted(drawn(n))
        planned.append(counts.scheduled)
    assert planned == [1] * 4


def test_another_process_finds_the_plan_of_many_lengths(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path))
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")  # or every stage would run again
    own, work = compiler_for("CPU"), []
    for _ in range(2):
        forgotten()
        compiler = Compiler(own.device, own.backend)  # knows no kernel yet, as that of another process
        monkeypatch.setattr(realize, "compiler_for", lambda _, compiler=compiler: compiler)
        jitted = pg.jit(lambda x: (x.exp().sum(0), x.cumsum(0)))
        with watch() as counts:
            for n in LENGTHS:
                jitted(drawn(n, 6))
        work.append((counts.scheduled, counts.compiled))
    assert work[0] > (0, 0) and work[1] == (0, 0)
