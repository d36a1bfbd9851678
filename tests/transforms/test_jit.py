"""jit: traced once, checked by a second trace, then replayed; honest or loud (G10)."""

from __future__ import annotations

from dataclasses import dataclass

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
