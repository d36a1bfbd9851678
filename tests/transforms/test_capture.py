"""Replays: how much Python is left of a call, what memory they hold, and that calls do not see each other."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.tensor.cell import TakenBuffers
from picograd.transforms.buffer_reuse import COUNTS_TELL


def network(num_layers: int, width: int = 4) -> tuple[Callable[[Tensor, Tensor], Tensor], list[Tensor]]:
    """Returns an SGD step of a small network, and its parameters: two for each layer."""
    rng = np.random.default_rng(0)
    layers = [
        (
            Tensor(0.5 * rng.standard_normal((width, width)).astype(np.float32), requires_grad=True),
            Tensor(np.zeros(width, np.float32), requires_grad=True),
        )
        for _ in range(num_layers)
    ]
    params = [param for layer in layers for param in layer]
    optimizer = pg.optim.SGD(params, lr=0.05)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        for weight, bias in layers:
            x = (x @ weight.T + bias).tanh()
        loss = ((x - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, params


def batch(width: int = 4) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 8, width)).astype(np.float32)
    return Tensor(x), Tensor(y)


def calls_of(function: Callable[[], Any]) -> int:
    """Returns how many functions, Python's and C's, one call of a function calls on this thread."""
    count = 0

    def on_event(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(on_event)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def bytecodes_of(function: Callable[[], Any]) -> int:
    """Returns how many instructions of Python one call of a function takes on this thread."""
    count = 0

    def on_event(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def adam_step(num_layers: int) -> Callable[[], Tensor]:
    """Returns a jitted step of a network that trains on one batch; a layer has two parameters and four moments."""
    x, y = batch()
    model = pg.nn.Sequential(*[pg.nn.Linear(4, 4) for _ in range(num_layers)])
    optimizer = pg.optim.Adam(list(model.parameters()), lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    jitted = pg.jit(step)
    for _ in range(5):
        jitted()
    return jitted


@pytest.mark.req("G10")
def test_state_that_nobody_looks_at_costs_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    small, large = adam_step(1), adam_step(7)
    few, many = (min(calls_of(step) for _ in range(4)) for step in (small, large))
    assert abs(many - few) <= 4  # of 36 more cells
    assert few <= 100
    few, many = (min(bytecodes_of(step) for _ in range(4)) for step in (small, large))
    assert abs(many - few) <= 4


@pytest.mark.req("G10")
def test_a_call_and_an_argument_cost_few_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    found = {}
    for count in (2, 12):
        given = [Tensor([float(i)]) for i in range(count)]
        add = pg.jit(lambda *given: sum(given[1:], start=given[0]))
        for _ in range(4):
            add(*given)
        found[count] = min(bytecodes_of(lambda call=add, given=given: call(*given)) for _ in range(3))
    an_argument = (found[12] - found[2]) / 10
    assert an_argument <= 50
    assert found[2] - 2 * an_argument <= 410


@pytest.mark.req("G10")
def test_a_replay_calls_few_functions_for_each_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both the fixed part and the part for each parameter, in a list that guards look into, are bounded."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, y = batch()
    found = {}
    for num_layers in (3, 6, 12):
        jitted = pg.jit(network(num_layers)[0])
        for _ in range(6):
            jitted(x, y)
        found[num_layers] = min(calls_of(lambda call=jitted: call(x, y)) for _ in range(3))
    a_parameter = (found[12] - found[6]) / 12
    assert found[6] - found[3] <= 6 * a_parameter + 6  # linear, not quadratic
    assert a_parameter <= 3
    assert found[3] - 6 * a_parameter <= 90


def addresses(tensors: list[Tensor]) -> list[int]:
    """Returns where the values are; looking takes them back from a plan."""
    return [held[0].memory.address for held in [tensor.cell.held() for tensor in tensors] if held is not None]


@pytest.mark.skipif(not COUNTS_TELL, reason="this interpreter's reference counts tell nothing")
def test_state_stays_where_it_is_when_it_was_only_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, y = batch()
    step, params = network(2)
    plain, others = network(2)
    jitted = pg.jit(step)
    for _ in range(4):
        jitted(x, y)
        plain(x, y).item()
    before = addresses(params)
    kept = params[1].detach() * 1  # a graph that reads one of them
    expected = params[1].detach().numpy()
    for _ in range(3):
        jitted(x, y)
        plain(x, y).item()
    now = addresses(params)
    assert [a == b for a, b in zip(before, now)] == [True, False, True, True]
    assert (kept.numpy() == expected).all()
    for mine, other in zip(params, others):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not COUNTS_TELL, reason="this interpreter's reference counts tell nothing")
def test_functions_that_train_the_same_state_in_turn_hand_its_memory_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, y = batch()
    step, params = network(2)
    plain, others = network(2)
    functions = [pg.jit(step), pg.jit(lambda x, y: step(x, y) * 2.0)]
    held, places = [], []
    for turn in range(8):
        for function in functions:
            for _ in range(3):
                function(x, y)
                plain(x, y).item()
        if turn > 2:
            held.append(pg.memory_allocated())
            places.append(addresses(params))
    assert len(set(held)) == 1
    assert all(place == places[0] for place in places)
    for mine, other in zip(params, others):
        np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_replays_that_share_a_plan_each_run_it_on_their_own(device: str) -> None:
    """The fixed memory of one is not that of another, nor of a run outside jit."""

    def counter(start: float) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        state = Tensor([start, start]).realize()

        def count(x: Tensor) -> Tensor:
            state.assign(x - state)
            return state.sum() + x

        return state, count

    one, two, outside = counter(1.0), counter(2.0), counter(3.0)
    jitted = [pg.jit(one[1]), pg.jit(two[1])]
    expected = [1.0, 2.0, 3.0]
    for call in range(12):
        for which in (0, 1, 2, 0, 0, 1) if call > 3 else (0, 1, 2):
            given = Tensor([float(call), float(call)])
            function = outside[1] if which == 2 else jitted[which]
            found = function(given).tolist()
            expected[which] = call - expected[which]
            assert found == [2 * expected[which] + call] * 2
    assert [state.tolist() for state, _ in (one, two, outside)] == [[value] * 2 for value in expected]


@pytest.mark.parametrize("count", [3, 4, 9])
def test_arguments_beside_state_may_be_other_tensors_in_every_call(count: int, device: str) -> None:
    """They go to the plan one by one, or as runs of neighbours: the plan takes 0, then ... 3, 2, 1, then state, here."""
    state = Tensor([1.0, 2.0]).realize()
    value = np.array([1.0, 2.0], np.float32)

    @pg.jit
    def add(*given: Tensor) -> Tensor:
        first, *rest, last = given
        total = first
        for number, tensor in enumerate([*rest[::-1], *rest[:2]]):
            total = total * 2 + tensor * (number + 1)
        state.assign(state * last + total)
        return total - last

    for call in range(6):
        arrays = [np.array([call + i, 2 * i - call], np.float32) for i in range(count)]
        expected = arrays[0]
        rest = arrays[1:-1]
        for number, array in enumerate([*rest[::-1], *rest[:2]]):
            expected = expected * 2 + array * (number + 1)
        value = value * arrays[-1] + expected
        assert (add(*map(Tensor, arrays)).numpy() == expected - arrays[-1]).all()
    np.testing.assert_allclose(state.numpy(), value, rtol=1e-6)


def test_only_what_was_read_is_given_back(device: str) -> None:
    cells = [Tensor([float(i)]).realize().cell for i in range(3)]
    taken = TakenBuffers(cells, [(1,)] * 3)
    taken.take(range(3))
    assert not taken.out and None not in taken.buffers
    assert cells[1].op.arg[1] == (1,)
    assert taken.out == {1} and taken.buffers[1] is None
    cells[2].op = cells[1].op
    assert taken.out == {1, 2}
    taken.take([1])
    assert taken.out == {2} and taken.arranged is None
    taken.dissolve()
    assert taken.out == {0, 1, 2}
    assert [Tensor.from_op(cell.op, device).item() for cell in cells] == [0.0, 1.0, 1.0]


def test_state_of_a_function_that_is_gone_can_be_read_and_leaves_no_cycle(device: str) -> None:
    def counter() -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        state = Tensor([0.0]).realize()

        def add(x: Tensor) -> Tensor:
            state.add_(x)
            return x * 1

        return state, pg.jit(add)

    state, jitted = counter()
    for _ in range(4):
        jitted(Tensor([1.0]))
    gc.collect()
    gc.disable()
    try:
        del jitted
        assert state.item() == 4.0
        cell = weakref.ref(state.cell)
        del state
        assert cell() is None
    finally:
        gc.enable()


@pytest.mark.req("G8")
@pytest.mark.parametrize("is_jitted", [True, False])
def test_steps_hold_no_more_memory_than_the_first_ones(is_jitted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 updates in place: the versions that nobody reads any more are used again."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, y = batch()
    step, _ = network(2)
    function = pg.jit(step) if is_jitted else step
    loss = function(x, y)
    for _ in range(5):
        loss = function(x, y).realize()
    gc.collect()
    held = pg.memory_allocated()
    pg.reset_peak_memory_stats()
    function(x, y).realize()
    peak = pg.max_memory_allocated()
    seen = set()
    for _ in range(1000 if is_jitted else 100):
        loss = function(x, y).realize()
        seen.add(pg.memory_allocated())
    assert max(seen) <= held
    assert pg.max_memory_allocated() <= peak + loss.nbytes
    assert np.isfinite(loss.item())


def test_a_replay_holds_each_parameter_once_and_while_it_runs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the trace nor a tensor's own view of its storage keeps the value of a parameter before an update."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    gc.collect()
    before = pg.memory_allocated()
    weights = [Tensor(np.ones((64, 64), np.float32), requires_grad=True) for _ in range(4)]
    optimizer = pg.optim.SGD(weights, lr=0.5)

    @pg.jit
    def step() -> Tensor:
        loss = sum((weight.sum() for weight in weights), Tensor(0.0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        loss = step()
    gc.collect()
    whole = 4 * 64 * 64 * 4
    small = 4096  # the loss, the rate, constants and the arena for four sums
    assert whole <= pg.memory_allocated() - before <= whole + small
    pg.reset_peak_memory_stats()
    loss = step()
    assert pg.max_memory_allocated() - before <= 2 * whole + small
    assert loss.item() == 4 * 64 * 64 * (1 - 3 * 0.5)


def test_a_computed_result_does_not_hold_what_it_was_computed_from(device: str) -> None:
    gc.collect()
    before = pg.memory_allocated()
    x = Tensor(np.ones((100, 10), np.float32))
    total, row = x.sum(0).realize(), (x * 2)[3].realize()
    del x
    assert pg.memory_allocated() - before <= total.nbytes + 8000 // 2  # row is a view of x * 2
    del row
    assert pg.memory_allocated() - before == total.nbytes


def test_values_that_somebody_reads_survive_later_calls(device: str) -> None:
    """Each call's parameters are still read by a graph that is computed only after the last call."""
    x, y = batch()
    step, params = network(2)
    jitted = pg.jit(step)
    views = [p.detach() for p in params]
    losses, snapshots, expected = [], [], []
    for call in range(9):
        losses.append(jitted(x, y))
        if call != 5:  # after which every version but one has a reader
            snapshots.append([view * 1 for view in views])
            expected.append([view.numpy() for view in views])
    values = [loss.item() for loss in losses]
    jitted(x, y)
    for graphs, arrays in zip(snapshots, expected):
        for graph, array in zip(graphs, arrays):
            assert (graph.numpy() == array).all()
    assert [loss.item() for loss in losses] == values
    assert len(set(values)) == 9


def test_two_functions_that_update_the_same_state_take_turns(device: str) -> None:
    count = Tensor([0.0])

    def add(amount: float) -> Callable[[], Tensor]:
        def function() -> Tensor:
            before = count * 1
            count.assign(count + amount)
            return before

        return pg.jit(function)

    one, ten = add(1.0), add(10.0)
    seen = [function() for _ in range(6) for function in (one, one, ten)]
    assert [value.item() for value in seen] == [12.0 * i + offset for i in range(6) for offset in (0, 1, 2)]
    assert count.item() == 72.0


def test_threads_that_call_one_function_get_their_own_results(device: str) -> None:
    scale = Tensor([3.0])
    function = pg.jit(lambda x: (x * scale, x + 1))
    for _ in range(3):
        function(Tensor(np.zeros(100, np.float32)))
    wrong = []

    def work(number: int) -> None:
        x = Tensor(np.full(100, number, np.float32))
        for _ in range(50):
            first, second = function(x)
            if not ((first.numpy() == 3 * number).all() and (second.numpy() == number + 1).all()):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("reader", ["tensor", "function"])
@pytest.mark.req("G10")
def test_state_is_not_written_over_while_another_thread_reads_it(reader: str) -> None:
    state = Tensor.zeros(1 << 20).realize()

    @pg.jit
    def add(x: Tensor) -> Tensor:
        state.add_(x)
        return x * 1

    @pg.jit
    def differ() -> Tensor:
        return state.amax() - state.amin()

    for _ in range(2):
        add(Tensor(1.0))
        differ()
    torn = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            values = state.numpy() if reader == "tensor" else differ().numpy()
            if values.min() != values.max() if reader == "tensor" else values:
                torn.append(values)

    thread = threading.Thread(target=read)
    thread.start()
    for _ in range(200):
        add(Tensor(1.0))
    stop.set()
    thread.join()
    assert not torn
    assert (state.numpy() == 202).all()


def test_functions_that_write_each_others_inputs_do_not_wait_for_ever() -> None:
    one, two = Tensor.zeros(1 << 16).realize(), Tensor.zeros(1 << 16).realize()

    @pg.jit
    def first() -> Tensor:
        one.add_(1)
        return two[0] * 1

    @pg.jit
    def second() -> Tensor:
        two.add_(1)
        return one[0] * 1

    functions = (first, second)
    for function in functions * 2:
        function()
    threads = [threading.Thread(target=lambda f=f: [f() for _ in range(200)], daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    assert one[0].item() == two[0].item() == 202


def test_state_can_be_read_after_a_call_that_raised() -> None:
    state, table = Tensor.zeros(2000).realize(), Tensor([1.0, 2.0])

    @pg.jit
    def add(i: Tensor) -> Tensor:
        state.add_(table[i])
        return i * 1

    for _ in range(3):
        add(Tensor(0))
    with pytest.raises(IndexError):
        add(Tensor(5))
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(state[0].item()), daemon=True)
    thread.start()
    thread.join(timeout=60)
    assert seen == [3.0]
    add(Tensor(1))
    assert state[0].item() == 5.0
