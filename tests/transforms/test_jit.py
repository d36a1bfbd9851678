"""jit: traced once, checked by a second trace, then replayed; honest or loud (G10)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import picograd as pg
from picograd import JitError, Tensor

pytestmark = pytest.mark.req("G10")


def values(n: int, start: float = 0.0) -> Tensor:
    return Tensor(np.arange(n, dtype=np.float32) + np.float32(start))


def test_steps_equal_those_without_jit_bit_for_bit(device: str) -> None:
    def losses(wrap: bool) -> list[float]:
        pg.manual_seed(1)
        model = pg.nn.MLP(3, [8, 1])
        optimizer = pg.optim.Adam(model.parameters(), lr=0.05)

        def step(x: Tensor, y: Tensor) -> Tensor:
            loss = ((model(x) - y) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        run = pg.jit(step) if wrap else step
        x, y = values(12).reshape(4, 3) / 12, values(4).reshape(4, 1)
        return [run(x, y).item() for _ in range(5)]

    compiled, plain = losses(True), losses(False)
    # The jitted step may fuse what the other stores; what is stored is float32 either way.
    assert compiled == pytest.approx(plain, rel=1e-6)
    assert compiled[4] < compiled[0]


@dataclass
class Pair:
    first: Tensor
    second: Tensor


def test_arguments_in_containers_are_inputs(device: str) -> None:
    @pg.jit
    def total(items: list[Tensor], named: dict[str, Tensor], pair: Pair) -> Tensor:
        return items[0] + items[1] * 2 + named["x"] * 3 + pair.first * 4 + pair.second * 5

    for start in range(4):
        t = [values(2, start + i) for i in range(5)]
        expected = sum((i + 1) * t[i].numpy() for i in range(5))
        np.testing.assert_array_equal(total([t[0], t[1]], {"x": t[2]}, Pair(t[3], t[4])).numpy(), expected)


def test_results_keep_their_container_and_share_no_memory(device: str) -> None:
    @pg.jit
    def both(x: Tensor) -> dict[str, Tensor]:
        return {"double": x * 2, "same": x}

    results = [both(values(3, start)) for start in range(4)]
    for start, result in enumerate(results):
        np.testing.assert_array_equal(result["double"].numpy(), 2 * (np.arange(3) + start))
        np.testing.assert_array_equal(result["same"].numpy(), np.arange(3) + start)


def test_keywords_are_not_a_dict_that_is_passed(device: str) -> None:
    def function(*args: Any, **kwargs: Any) -> Tensor:
        return kwargs["a"] - args[0] if kwargs else args[0][0] * args[1]["a"]

    jitted = pg.jit(function)
    x, y = Tensor([2.0]), Tensor([5.0])
    for _ in range(3):
        assert jitted(x, a=y).item() == 3.0
        assert jitted((x,), {"a": y}).item() == 10.0


def test_the_same_tensor_passed_twice_is_two_arguments(device: str) -> None:
    @pg.jit
    def difference(a: Tensor, b: Tensor) -> Tensor:
        return a - b

    x = values(3)
    for _ in range(3):
        assert difference(x, x).tolist() == [0.0, 0.0, 0.0]
    assert difference(values(3, 5), x).tolist() == [5.0, 5.0, 5.0]


def test_another_shape_or_scalar_is_captured_anew(device: str) -> None:
    @pg.jit
    def scaled(x: Tensor, factor: float) -> Tensor:
        return (x * factor).sum()

    for n in (4, 4, 4, 3, 3, 4):
        for factor in (1.0, 2.5):
            assert scaled(values(n), factor).item() == np.arange(n).sum() * factor


def test_a_closure_that_changes_is_an_error(device: str) -> None:
    count = [0]

    @pg.jit
    def frozen(x: Tensor) -> Tensor:
        count[0] += 1
        return x + count[0]

    assert frozen(values(1)).item() == 1.0
    with pytest.raises(JitError, match="the second trace of frozen differs from the first"):
        frozen(values(1))


def test_item_inside_is_an_error_and_leaves_the_state_alone(device: str) -> None:
    state = values(2)

    @pg.jit
    def asks(x: Tensor) -> Tensor:
        state.assign(state + x)
        return x * state.sum().item()

    with pytest.raises(JitError, match=r"item\(\) asks for a value while asks is traced"):
        asks(values(2))
    assert state.tolist() == [0.0, 1.0]


def test_state_written_in_place_is_written_at_each_call(device: str) -> None:
    counter = Tensor([0.0, 0.0])

    @pg.jit
    def add(x: Tensor) -> Tensor:
        counter.assign(counter + x)
        return counter * 10

    for i in range(1, 6):
        assert add(Tensor([1.0, 2.0])).tolist() == [10.0 * i, 20.0 * i]
        assert counter.tolist() == [float(i), 2.0 * i]
    counter.assign(Tensor([0.0, 0.0]))
    assert add(Tensor([1.0, 2.0])).tolist() == [10.0, 20.0]


def test_a_graph_that_read_the_old_state_keeps_its_value(device: str) -> None:
    state = Tensor([1.0])

    @pg.jit
    def double() -> Tensor:
        state.assign(state * 2)
        return state + 0

    for _ in range(3):
        double()
    before = state + 0
    double()
    assert before.item() == 8.0
    assert state.item() == 16.0


def test_random_numbers_differ_from_call_to_call(device: str) -> None:
    @pg.jit
    def noise() -> Tensor:
        return Tensor.rand(4)

    drawn = [tuple(noise().tolist()) for _ in range(5)]
    assert len(set(drawn)) == 5


def test_a_learning_rate_that_changes_is_used(device: str) -> None:
    w = Tensor([0.0], requires_grad=True)
    optimizer = pg.optim.SGD([w], lr=1.0)

    @pg.jit
    def step() -> None:
        optimizer.zero_grad()
        (w * 1.0).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    assert w.item() == -3.0
    optimizer.lr = 0.5
    step()
    assert w.item() == -3.5


def test_a_jitted_function_inside_another_is_part_of_it(device: str) -> None:
    inner = pg.jit(lambda x: x + 1)
    outer = pg.jit(lambda x: inner(x) * 2)
    for start in range(3):
        assert outer(Tensor([float(start)])).item() == 2.0 * (start + 1)


def test_an_exception_inside_leaves_no_trace_behind(device: str) -> None:
    @pg.jit
    def fails(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails(values(2))
    assert (values(2) + 1).tolist() == [1.0, 2.0]


def test_an_argument_that_requires_grad_is_refused(device: str) -> None:
    with pytest.raises(JitError, match="requires grad"):
        pg.jit(lambda x: x * 2)(Tensor([1.0], requires_grad=True))


def test_a_numpy_array_is_refused(device: str) -> None:
    with pytest.raises(JitError, match="NumPy array"):
        pg.jit(lambda x: x * 2)(np.ones(2, np.float32))  # type: ignore[arg-type]


# ---- what Python says after the traces ----
def test_a_plain_value_that_changes_later_is_an_error(device: str) -> None:
    factor = 2.0
    scaled = pg.jit(lambda x: x * factor)
    assert [scaled(values(2)).tolist() for _ in range(3)] == [[0.0, 2.0]] * 3
    factor = 3.0
    with pytest.raises(JitError, match=r"since <lambda> was traced, factor was 2\.0 and is 3\.0"):
        scaled(values(2))
    factor = 2.0
    assert scaled(values(2)).tolist() == [0.0, 2.0]


def test_a_tensor_whose_name_means_another_one_later_is_an_error(device: str) -> None:
    total = Tensor([0.0])
    added = pg.jit(lambda x: total + x)
    for _ in range(3):
        added(values(1))
    total = added(values(1))
    with pytest.raises(JitError, match="total is another tensor"):
        added(values(1))


def test_an_attribute_that_the_function_reads_is_guarded_and_others_are_not(device: str) -> None:
    class Scaler:
        def __init__(self) -> None:
            self.rate, self.calls = 2.0, 0

        @pg.jit
        def scaled(self, x: Tensor) -> Tensor:
            return x * self.rate

    scaler = Scaler()
    for _ in range(4):
        assert scaler.scaled(values(2)).tolist() == [0.0, 2.0]
        scaler.calls += 1
    scaler.rate = 3.0
    with pytest.raises(JitError, match=r"self\.rate was 2\.0 and is 3\.0"):
        scaler.scaled(values(2))


def test_numbers_in_a_list_or_dict_are_guarded(device: str) -> None:
    settings = {"rate": 2.0}
    scaled = pg.jit(lambda x: x * settings["rate"])
    for _ in range(3):
        scaled(values(2))
    settings["rate"] = 3.0
    with pytest.raises(JitError, match="settings has changed"):
        scaled(values(2))


def test_what_changes_outside_before_the_second_call_without_a_difference_is_no_error(device: str) -> None:
    calls, traces = 0, Mock()

    @pg.jit
    def doubled(x: Tensor) -> Tensor:
        traces()
        return x * (2 if calls < 9 else 3)

    for _ in range(5):
        assert doubled(values(2)).tolist() == [0.0, 2.0]
        calls = min(calls + 1, 1)
    assert traces.call_count == 2
    calls = 7
    assert doubled(values(2)).tolist() == [0.0, 2.0]


def test_a_module_that_trains_or_not_is_captured_for_each(device: str) -> None:
    drop = pg.nn.Dropout(0.5)
    dropped = pg.jit(lambda x: drop(x))
    ones = Tensor.ones(64)
    for _ in range(3):
        assert set(dropped(ones).tolist()) == {0.0, 2.0}
    drop.eval()
    for _ in range(3):
        assert set(dropped(ones).tolist()) == {1.0}
    drop.train()
    assert set(dropped(ones).tolist()) == {0.0, 2.0}


def test_a_parameter_that_is_replaced_is_an_error(device: str) -> None:
    layer = pg.nn.Linear(2, 2)
    apply = pg.jit(lambda x: layer(x))
    for _ in range(3):
        apply(values(2))
    layer.weight = Tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    with pytest.raises(JitError, match=r"layer\.weight is another tensor"):
        apply(values(2))


# ---- what a function does besides returning ----
def test_an_argument_written_in_place_is_written_at_each_call(device: str) -> None:
    @pg.jit
    def add_to(total: Tensor, x: Tensor) -> Tensor:
        total += x
        return total * 2

    total = Tensor([0.0, 0.0])
    before = total + 0
    for call in range(1, 5):
        assert add_to(total, values(2)).tolist() == [0.0, 2.0 * call]
        assert total.tolist() == [0.0, float(call)]
    assert before.tolist() == [0.0, 0.0]


def test_a_view_written_in_place_writes_to_what_it_shows(device: str) -> None:
    @pg.jit
    def raise_all(x: Tensor) -> None:
        x += 1

    grid = Tensor([[0.0, 0.0], [0.0, 0.0]])
    for _ in range(4):
        raise_all(grid[0])
    assert grid.tolist() == [[4.0, 4.0], [0.0, 0.0]]


def test_a_written_tensor_that_comes_in_two_ways_is_an_error(device: str) -> None:
    state = Tensor([0.0])

    @pg.jit
    def bump(x: Tensor, y: Tensor) -> Tensor:
        x += 1
        return x + y

    with pytest.raises(JitError, match=r"bump writes to a tensor of shape \(1,\) that is passed in two ways"):
        bump(state, state)

    @pg.jit
    def bump_state(x: Tensor) -> Tensor:
        state.assign(state + 1)
        return x + state

    with pytest.raises(JitError, match="two ways"):
        bump_state(state)
    assert state.tolist() == [0.0]


def test_a_tensor_kept_beyond_the_call_is_an_error(device: str) -> None:
    losses = []

    @pg.jit
    def remembers(x: Tensor) -> Tensor:
        loss = x * 2
        losses.append(loss)
        return loss + 1

    with pytest.raises(JitError, match=r"remembers keeps a tensor of shape \(2,\) that it made"):
        remembers(values(2))


def test_a_container_changed_inside_is_an_error(device: str) -> None:
    @pg.jit
    def normalises(batch: dict[str, Tensor]) -> Tensor:
        batch["x"] = batch["x"] * 2
        return batch["x"]

    with pytest.raises(JitError, match="normalises changes a list or dict argument"):
        normalises({"x": values(2)})


def test_a_plain_result_that_differs_is_an_error(device: str) -> None:
    count = [0]

    @pg.jit
    def counts(x: Tensor) -> tuple[Tensor, int]:
        count[0] += 1
        return x * 2, count[0]

    assert counts(values(2))[1] == 1
    with pytest.raises(JitError, match="plain values are frozen"):
        counts(values(2))


# ---- containers and forms of arguments ----
@dataclass
class Batch:
    """Inputs and targets, with a plain setting."""

    x: Tensor
    y: Tensor
    scale: float


def test_tensors_in_dataclasses_nested_in_lists_are_inputs(device: str) -> None:
    @pg.jit
    def weighted(batches: list[Batch], more: dict[str, tuple[Tensor, ...]]) -> Batch:
        x = batches[0].x * batches[0].scale + batches[1].y + more["z"][1]
        return Batch(x, x * 2, 1.0)

    for n in range(5):
        batches = [Batch(values(2) + n, values(2), 3.0), Batch(values(2), values(2) * n, 1.0)]
        result = weighted(batches, {"z": (values(2), Tensor([5.0 * n, 0.0]))})
        expected = (np.arange(2) + n) * 3 + np.arange(2) * n + np.array([5.0 * n, 0])
        assert result.x.tolist() == expected.tolist()
        assert result.y.tolist() == (2 * expected).tolist()


def test_minus_zero_is_another_argument_than_zero(device: str) -> None:
    filled = pg.jit(lambda x, v: x * 0 + v)
    for _ in range(3):
        assert not np.signbit(filled(values(1), 0.0).numpy()).any()
    signed = pg.jit(lambda x, v: (x * 0 + 1) * v)
    for _ in range(3):
        assert not np.signbit(signed(values(1), 0.0).numpy()).any()
        assert np.signbit(signed(values(1), -0.0).numpy()).all()


def test_an_argument_that_may_change_unseen_is_refused(device: str) -> None:
    class Mutable:
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(JitError, match="got a Mutable, whose changes picograd cannot see"):
        pg.jit(lambda x, m: x * 2)(values(2), Mutable())


def test_an_output_that_is_an_input_or_another_output_shares_its_storage(device: str) -> None:
    @pg.jit
    def same(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return x, y, y

    for start in range(4):
        x = Tensor([float(start)])
        first, second, third = same(x)
        second += 1
        first += 10
        assert first is x
        assert (x.item(), second.item(), third.item()) == (start + 10.0, 2.0 * start + 1, 2.0 * start + 1)


def test_a_last_partial_batch_is_captured_by_itself(device: str) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = pg.optim.SGD([w], lr=0.5)

    def step(x: Tensor) -> Tensor:
        loss = (x * w).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    results = []
    for run in (step, pg.jit(step)):
        with pg.no_grad():
            w.assign([1.0, 2.0])
        sizes = (4, 4, 4, 3, 4, 4, 4, 3, 4, 3)
        results.append([run(values(2 * n).reshape(n, 2) / 8).item() for n in sizes] + w.tolist())
    assert results[0] == results[1]


def test_gradients_are_returned_and_p_grad_is_left_alone(device: str) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    @pg.jit
    def gradient(x: Tensor) -> Tensor:
        (gradient,) = pg.grad((x * w * w).sum(), [w])
        return gradient

    for n in range(1, 5):
        assert gradient(Tensor([float(n), 1.0])).tolist() == [2.0 * n, 4.0]
    assert w.grad is None


def test_an_exception_after_a_write_leaves_state_arguments_and_gradients_as_they_were(device: str) -> None:
    state, w = Tensor([1.0]), Tensor([1.0], requires_grad=True)
    (w * 3).sum().backward()

    @pg.jit
    def fails(x: Tensor) -> None:
        state.assign(state * 5)
        (w * 7).sum().backward()
        x += 1
        raise KeyError("late")

    x = Tensor([2.0])
    with pytest.raises(KeyError, match="late"):
        fails(x)
    assert (state.item(), x.item(), w.grad.item()) == (1.0, 2.0, 3.0)
    assert (x + state).item() == 3.0


def test_dropout_differs_by_call_and_equals_the_unjitted_stream(device: str) -> None:
    x = Tensor.ones(32)
    pg.manual_seed(3)
    plain = [pg.nn.functional.dropout(x, 0.5).tolist() for _ in range(4)]
    pg.manual_seed(3)
    dropped = pg.jit(lambda x: pg.nn.functional.dropout(x, 0.5))
    assert [dropped(x).tolist() for _ in range(4)] == plain
    assert len({tuple(row) for row in plain}) == 4


# ---- what is jitted may wrap a jitted function, or have attributes of any name ----
Function = Callable[..., Any]


def ten_times(function: Function) -> Function:
    @functools.wraps(function)
    def wrapped(x: Tensor) -> Any:
        return function(x) * 10

    return wrapped


AROUND: dict[str, Function] = {
    "vmap": lambda f: pg.vmap(f),
    "grad": lambda f: pg.func.grad(f),
    "jacrev": lambda f: pg.func.jacrev(f),
    "vmap of grad": lambda f: pg.vmap(pg.func.grad(f)),
    "a decorator": ten_times,
    "another jit": pg.jit,
}


@pytest.mark.parametrize("around", AROUND)
def test_a_jitted_function_may_stand_inside_of_what_is_jitted(around: str, device: str) -> None:
    x = values(6).reshape(2, 3)

    def total(x: Tensor) -> Tensor:
        return (x**2).sum()

    expected = AROUND[around](total)(x).numpy() if around != "another jit" else total(x).numpy()
    wrapped = pg.jit(AROUND[around](pg.jit(total)))
    for _ in range(3):
        np.testing.assert_array_equal(wrapped(x).numpy(), expected)


def test_of_two_jits_the_outer_one_says_how(device: str) -> None:
    stacked = pg.jit(pg.jit(lambda x: x.sum()), steps=2)
    for _ in range(3):
        np.testing.assert_array_equal(stacked(values(6).reshape(2, 3)).numpy(), [3.0, 12.0])


def test_what_is_jitted_may_have_attributes_of_any_name(device: str) -> None:
    class Network(pg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.function, self.steps, self.forms = pg.nn.ReLU(), 2, [1]

        def forward(self, x: Tensor) -> Tensor:
            return x - self.steps

    def doubled(x: Tensor) -> Tensor:
        return x * 2

    doubled.steps = 3  # type: ignore[attr-defined]
    network, twice = pg.jit(Network()), pg.jit(doubled)
    for _ in range(3):
        np.testing.assert_array_equal(network(values(3)).numpy(), [-2.0, -1.0, 0.0])
        np.testing.assert_array_equal(twice(values(3)).numpy(), [0.0, 2.0, 4.0])
