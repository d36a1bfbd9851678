"""Several Python threads build, differentiate and compute graphs at the same time, equal ones and different ones."""

from __future__ import annotations

import sys
import threading
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.dtype import float32
from picograd.engine import realize as realizing
from picograd.engine.known import Families, Scalars, look_at
from picograd.engine.plan import template
from picograd.engine.realize import realize
from picograd.interrupts import Latest
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from tests.threads import NUM_THREADS, in_threads


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def test_equal_ops_made_and_dropped_by_many_threads_are_one() -> None:
    ready = threading.Barrier(NUM_THREADS)
    made: list[list[Op]] = [[] for _ in range(NUM_THREADS)]

    def run(number: int) -> None:
        for step in range(1500):
            op = const(float(step % 7), float32)
            for _ in range(3):
                op = Op(OpCode.ADD, float32, (op, op))
            if step % 100 == 0:
                made[number].append(op)
                ready.wait()
                assert all(ops[-1] is op for ops in made)
                ready.wait()

    in_threads(run)


def train(seed: int, steps: int, width: int) -> list[float]:
    rng = np.random.default_rng(seed)
    x = Tensor(rng.normal(size=(4, width)).astype(np.float32))
    w = Tensor(rng.normal(size=(width, width)).astype(np.float32), requires_grad=True)
    b = Tensor(np.zeros(width, np.float32), requires_grad=True)
    optimizer = pg.optim.SGD([w, b], lr=0.05)
    losses = []
    for _ in range(steps):
        loss = ((x @ w + b).tanh() - 0.5).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("same", [True, False])
def test_networks_train_in_many_threads(same: bool) -> None:
    def of(number: int) -> tuple[int, int]:
        return (0, 5) if same else (number, 3 + number % 3)

    expected = [train(of(n)[0], 6, of(n)[1]) for n in range(NUM_THREADS)]
    found: list[list[float]] = [[] for _ in range(NUM_THREADS)]

    def run(number: int) -> None:
        for _ in range(2):
            found[number] = train(of(number)[0], 6, of(number)[1])

    in_threads(run)
    # What is computed together decides whether a sum over two axes runs along one or both, and so its last bits: half a
    # dozen roundings in each of six steps.
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_tables_make_room_while_threads_add_to_them() -> None:
    table: Latest[tuple[int, int], int] = Latest(4)

    def run(number: int) -> None:
        for step in range(3000):
            table.put((number, step), step)
            assert table.get((number, step), step) == step

    in_threads(run)
    assert len(table) == 4


def test_networks_train_in_many_threads_while_their_plans_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizing, "_plans", Latest(2))
    expected = [train(n, 3, 3 + n % 3) for n in range(NUM_THREADS)]
    found: list[list[float]] = [[] for _ in range(NUM_THREADS)]

    def run(number: int) -> None:
        found[number] = train(number, 3, 3 + number % 3)

    in_threads(run)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_what_one_thread_computes_takes_nothing_back_that_another_writes() -> None:
    """Computing anything computes what is pending everywhere; a write that comes meanwhile stays."""
    counters = [Tensor(np.zeros(3, np.float32)) for _ in range(NUM_THREADS)]

    def run(number: int) -> None:
        own = counters[number]
        for step in range(60):
            own += 1
            if step % 3 == number % 3:
                assert (own.numpy() == step + 1).all()

    in_threads(run)
    assert all((counter.numpy() == 60).all() for counter in counters)


def test_a_jitted_function_called_by_many_threads_loses_no_update() -> None:
    """A call reads the state that the one before it left, whoever made that."""
    total = Tensor(np.zeros(3, np.float32))

    @pg.jit
    def add(x: Tensor) -> Tensor:
        total.add_(x)
        return total.sum()

    in_threads(lambda number: [add(Tensor(np.ones(3, np.float32))) for _ in range(50)])
    np.testing.assert_array_equal(total.numpy(), [50.0 * NUM_THREADS] * 3)


def test_forms_of_changing_numbers_are_forgotten_while_threads_ask_for_them() -> None:
    scalars = Scalars(most_forms=4)
    x = Tensor(np.ones(2, np.float32)).realize().cell.op

    def run(number: int) -> None:
        for step in range(300):
            chain = Op(OpCode.MUL, float32, (x, Tensor.full((2,), step + 0.5).cell.op))
            for _ in range(1 + (step + number) % 12):
                chain = Op(OpCode.NEG, float32, (chain,))
            general = scalars.generalized(template([chain]), "CPU", lambda op: realize([op])[0])
            assert len(general.buffers) in (1, 2)

    in_threads(run)


def test_lengths_are_refused_when_no_other_thread_asks_for_them() -> None:
    families = Families()
    for length in (20, 30, 25):
        x = Tensor(np.ones(length, np.float32)).realize().cell.op
        seen = look_at([Op(OpCode.NEG, float32, (x,))])
        assert seen is not None
        _, varied = families.varied(seen)
    (family,) = families._known.values()
    refusing = threading.Thread(target=families.other_than, args=(varied, ()))
    with families._lock:
        refusing.start()
        refusing.join(0.05)
        assert family.lengths.solution is not None
    refusing.join()
    assert family.lengths.solution is None


def test_a_plan_that_another_thread_forgets_first_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that a loop carries: plans that do not keep it are forgotten, while others make room for theirs."""

    class Fading(Latest[Hashable, Any]):
        def get(self, key: Hashable, default: Any = None) -> Any:
            return super().pop(key, default) if sys._getframe(1).f_code.co_name == "_carried" else super().get(key, default)

    monkeypatch.setattr(realizing, "_plans", Fading(64))
    total, x = pg.zeros(4), Tensor(np.ones(4, np.float32)).realize()
    for _ in range(6):
        total = total * 0.5 + x
        assert (total.exp() * 2).numpy().shape == (4,)
    np.testing.assert_allclose(total.numpy(), 2 - 0.5**5)


def test_one_who_reads_beside_a_jitted_step_sees_one_version_after_the_other() -> None:
    """State is taken by the step: a reader takes it back, and what was read is never written over."""
    state = Tensor(np.zeros(4096, np.float32))
    other = Tensor(np.zeros(3, np.float32))
    done = threading.Event()

    @pg.jit
    def step() -> None:
        state.add_(1.0)
        other.add_(1.0)

    for _ in range(2):  # while it is traced, others would see the values of the trace
        step()

    def run(number: int) -> None:
        if number == 0:
            for _ in range(1498):
                step()
            done.set()
            return
        last = 0.0
        while not done.is_set():
            kept = (state if number % 2 else other).detach() * 1.0
            seen = kept.numpy()
            assert (seen == seen[0]).all() and seen[0] >= last
            last = float(seen[0])

    in_threads(run)
    np.testing.assert_array_equal(state.numpy(), np.full(4096, 1500.0, np.float32))


def test_threads_that_trace_at_once_leave_gradients_as_they_were() -> None:
    weight = pg.ones(3, requires_grad=True)
    (weight * 2).sum().backward()

    def trace(number: int) -> None:
        for factor in range(20):
            function = pg.jit(lambda x, factor=factor: (x * weight * (number + factor)).sum())
            assert [function(pg.ones(3)).item() for _ in range(3)] == [3.0 * (number + factor)] * 3

    in_threads(trace)
    assert weight.grad is not None and weight.grad.tolist() == [2.0, 2.0, 2.0]
