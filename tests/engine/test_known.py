"""Graphs whose plan is known: what tells them apart, and what is left to forms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import realize
from picograd.engine.known import Known, Scalars, look_at
from picograd.interrupts import Latest
from picograd.ir.stages import Plan
from picograd.look import watch
from picograd.nn import functional as F
from tests.calls import calls


def held(*shape: int, dtype: pg.DType = pg.float32) -> Tensor:
    return Tensor(np.arange(np.prod(shape)).reshape(shape), dtype=dtype).realize()


A, B = held(3), held(6)[3:].contiguous().realize()
VIEW = held(6)[:3]
INDEX = Tensor([0, 2]).realize()
GRAPHS: dict[str, Callable[[], Tensor]] = {
    "an addition": lambda: A + B,
    "of one buffer twice": lambda: A + A,
    "of another operation": lambda: B - A,
    "integers": lambda: held(3, dtype=pg.int64) + held(3, dtype=pg.int64),
    "another shape": lambda: held(1, 3) + held(1, 3),
    "what is shared": lambda: (A + 1) * (A + 1),
    "what is not": lambda: (A + 1) * (B + 1),
    "a chain": lambda: ((A * 2).exp() + B).sum(),
    "of a view": lambda: VIEW + 1,
    "an index that may be outside": lambda: A[INDEX],
    "a body": lambda: pg.checkpoint(lambda x: x * 2, A),
    "a long one": lambda: sum((A * number for number in range(100)), A),
}


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch, alone: None) -> None:
    monkeypatch.setattr(realize, "_plans", Latest(1024))
    monkeypatch.setattr(realize, "_scalars", Scalars())  # of other tests: a number they have changed is an input


def test_each_graph_has_a_key_of_its_own_and_the_same_each_time() -> None:
    seen = {name: look_at([make().cell.op]) for name, make in GRAPHS.items()}
    assert len({each.key for each in seen.values() if each is not None}) == len(GRAPHS)
    for name, make in GRAPHS.items():
        again, before = look_at([make().cell.op]), seen[name]
        assert again is not None and before is not None and again.key == before.key


def test_known_plans_give_the_same_bits() -> None:
    first = {name: make().numpy() for name, make in GRAPHS.items()}
    assert (A - B).tolist() == [-value for value in (B - A).tolist()]
    for _ in range(3):
        for name, make in GRAPHS.items():
            value = make().numpy()
            assert value.dtype == first[name].dtype and value.tobytes() == first[name].tobytes(), name
    assert sum(isinstance(plan, Known) for plan in realize._plans.values()) >= len(GRAPHS) - 2


def test_numbers_and_offsets_are_no_part_of_a_key() -> None:
    x, weight = held(64), held(8)
    for numbers in ([0.0, 1, -2.0], [-0.0, 2, 3.0], [float("nan"), 1, 0.5], [0.0, 1, -0.0]):
        for k, number in enumerate(numbers):
            start = 8 * k + int(number == 0.5)
            expected = (x.numpy()[start : start + 8] * np.float32(number)) * weight.numpy() ** 2
            found = (x[start : start + 8] * number * weight**2).numpy()
            assert found.tobytes() == expected.tobytes(), number
    with watch() as counts:
        for k in range(20):
            (x[k : k + 8] * (k + 0.25) * weight**2).realize()
    assert (counts.plans, counts.scheduled) == (20, 0)
    assert (weight**3).tolist() == [float(i**3) for i in range(8)]  # an exponent is no input


def test_blocks_that_part_are_planned_anew() -> None:
    x = held(64)
    for a, b in [(0, 1), (3, 4), (9, 10), (9, 12), (0, 1), (5, 20)]:
        assert (x[a : a + 4] - x[b : b + 4]).tolist() == [float(a - b)] * 4


def test_several_graphs_at_once() -> None:
    for number in range(1, 5):
        x, y = A * number, B + number
        pg.realize([x, y, x * 2])
        assert (x.tolist(), y.tolist()) == ([0.0, number, 2.0 * number], [3.0 + number, 4.0 + number, 5.0 + number])


def test_a_graph_of_what_was_computed_reads_it() -> None:
    for _ in range(4):
        y = (A + 1).realize()
        with watch() as counts:
            assert (y * 2).tolist() == [2.0, 4.0, 6.0]
        assert counts.plans == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: A.to("NUMPY") + 1,  # a copy between devices
        lambda: held(8)[: pg.Variable("n", 1, 8).bind(3)] + 1,
        lambda: pg.ones(3) * 2,
    ],
    ids=["a copy", "a symbolic length", "constants alone"],
)
def test_what_only_forms_can_tell(make: Callable[[], Tensor]) -> None:
    expected = make().numpy()
    for _ in range(3):
        np.testing.assert_array_equal(make().numpy(), expected)
    seen = look_at([make().cell.op])
    assert seen is None or seen.key not in realize._plans


def test_symbolic_lengths_of_one_graph_differ() -> None:
    n, x = pg.Variable("n", 1, 8), held(8)
    for length in (3, 5, 3, 5, 8):
        assert (x[: n.bind(length)] * 1).sum().item() == sum(range(length))


def test_an_index_outside_is_told_each_time() -> None:
    for _ in range(4):
        with pytest.raises(pg.IndexingError, match="3"):
            A[Tensor([3])].numpy()
        assert A[Tensor([2])].tolist() == [2.0]


def test_gradients_of_a_small_graph() -> None:
    for number in range(4):
        w = Tensor([1.0, 2.0], requires_grad=True)
        F.relu(w * number).sum().backward()
        assert w.grad is not None and w.grad.tolist() == [float(number > 0) * number] * 2


def test_an_eager_value_costs_few_calls() -> None:
    x = Tensor([1.0]).realize()
    for _ in range(4):
        (x + 1).realize()
    assert calls(lambda: (x + 1).realize()) <= 60


def test_what_follows_from_a_length_and_a_number_is_that_of_both() -> None:
    """1 / n of a mean and a rate are inputs of one plan: none of them is taken for another."""
    data = np.arange(64, dtype=np.float32)
    x = Tensor(data).realize()
    for _ in range(2):
        for length, rate in [(40, 40.0), (50, 2.0), (60, 60.0), (55, 0.5), (60, 0.25), (60, 55.0), (55, 55.0), (40, 39.0)]:
            found = ((x[:length] - x[:length].mean()) * rate + x[:length].std()).numpy()
            expected = (data[:length] - data[:length].mean()) * np.float32(rate) + data[:length].std(ddof=1)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_graphs_that_come_to_be_one_are_known() -> None:
    """Adam's averages of two parameters that start alike and have one gradient, as an LSTM's biases have."""
    a, b, x = (held(4).requires_grad_() if i < 2 else held(4) for i in range(3))
    optimizer = pg.optim.Adam([a, b], lr=0.1)
    late = []
    for _ in range(6):
        optimizer.zero_grad()
        ((a + b) * x).sum().backward()
        with watch() as counts:
            optimizer.step()
        late.append(counts.scheduled)
        assert a.tolist() == b.tolist()
    assert late[3:] == [0, 0, 0] and all(isinstance(plan, (Known, Plan)) for plan in realize._plans.values())
    before = len(realize._plans)
    optimizer.zero_grad()
    ((a + b) * x).sum().backward()
    optimizer.step()
    assert len(realize._plans) == before


def test_blocks_of_equal_offsets_are_known_as_those_of_others() -> None:
    """A batch of pieces of a text, two of which may begin at one place: then both are one Op."""
    data = np.arange(300, dtype=np.float32)
    text, planned = Tensor(data).realize()[:290], []
    for starts in ([7, 7, 200], [3, 40, 100], [5, 80, 9], [8, 9, 10], [5, 50, 5], [0, 0, 0], [60, 61, 61], [9, 4, 9]):
        with watch() as counts:
            x = pg.stack([text[i : i + 8] for i in starts]) * 2
            y = pg.stack([text[i + 1 : i + 9] for i in starts])
            pg.realize([x, y])
        assert x.tolist() == [(data[i : i + 8] * 2).tolist() for i in starts]
        assert y.tolist() == [data[i + 1 : i + 9].tolist() for i in starts]
        planned.append(counts.scheduled)
    assert planned == [1] * 3 + [0] * 5


def test_blocks_of_a_tensor_that_needs_gradients_are_told_apart() -> None:
    x, w = held(20).requires_grad_(), held(4)
    for a, b in [(0, 4), (3, 3), (5, 9), (8, 8), (2, 2), (1, 7)]:
        x.grad = None
        (pg.stack([x[a : a + 4], x[b : b + 4]]) * w).sum().backward()
        expected = np.zeros(20, np.float32)
        for start in (a, b):
            expected[start : start + 4] += w.numpy()
        assert x.grad is not None and x.grad.tolist() == expected.tolist()


def test_a_walk_that_ends_at_a_computed_value_still_knows_the_places_of_all_ops() -> None:
    """A value to keep may be anywhere: without its place a graph had no short key, and was written out at each step."""
    weight, x = held(4).requires_grad_(), held(4)
    computed = (weight * x).tanh()
    computed.realize()  # the graph is walked to here, and in a second walk to the weight
    (computed * 2).sum().backward()
    aside = (x + 1).sin()
    assert weight.grad is not None
    seen = look_at([weight.grad.op, (computed.detach() * aside).op])
    assert seen is not None and seen.keeping([aside.op]) is not None and seen.ops[seen.number[aside.op]] is aside.op


COINCIDENCES: dict[str, Callable[[int, float], Tensor]] = {
    "count of a mean": lambda n, k: Tensor([[1.0, 2.0]] * n).mean(0) * k,
    "option of a function": lambda n, k: pg.nn.functional.softplus(Tensor([1.0, 2.0]), float(n)) * k,
    "count in a gradient": lambda n, k: _gradient(lambda x: ((x**2).mean(0) * k).sum(), Tensor([[1.0, 2.0]] * n)),
}


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x.requires_grad_()
    function(x).backward()
    assert x.grad is not None
    return x.grad[0]


@pytest.mark.parametrize("name", COINCIDENCES)
def test_a_number_that_equals_one_within_a_formula_by_chance_is_not_taken_for_it(name: str) -> None:
    """The number is free from the third value on; by then it was the other one each time."""
    for n, k in ((5, 5.0), (9, 9.0), (2, 2.0), (2, 0.5), (7, 7.0), (7, 3.0), (2, 7.0)):
        found = COINCIDENCES[name](n, k).numpy()
        ones = COINCIDENCES[name](n, 1.0).numpy()
        np.testing.assert_allclose(found, ones * k, rtol=1e-6)


def test_a_number_that_decides_the_graph_is_not_an_input_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient of x ** 0 is a zero, as its exponent is: a plan that fills a tensor with a number is not for x ** 4."""
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    for exponent, n, is_sum in (
        (0, 3, True), (1, 4, True), (0, 6, True), (1, 7, True), (0, 5, False), (4, 5, False), (5, 5, False), (3, 9, False),
    ):  # fmt: skip
        x, weights = np.linspace(0.5, 2, n, dtype=np.float32), np.arange(n, dtype=np.float32)
        leaf = Tensor(x).requires_grad_()
        power = leaf**exponent
        power.sum().backward() if is_sum else power.backward(Tensor(weights))
        assert leaf.grad is not None
        expected = (1 if is_sum else weights) * exponent * x ** max(exponent - 1, 0)
        np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["uint8", "int8", "int64", "float16", "bfloat16", "float64"])
def test_numbers_of_each_dtype_may_be_others(name: str) -> None:
    x = Tensor([1, 2], dtype=getattr(pg, name)).realize()
    for number in (1, 3, 127, 0, 100, 2):
        assert (x.sum() + number).item() == 3 + number
        assert (x.sum(dtype=x.dtype) * 0 + number).item() == number


def test_constants_of_one_form_and_of_other_dtypes_have_other_plans() -> None:
    """A comparison gives a bool whatever it compares: numbers that change are inputs of a plan, in their own dtype."""
    for name in ("float32", "float64", "float16", "int32", "int8"):
        dtype = getattr(pg, name)
        for value in (0, -0.0, 1, -2, 3.7, 100, *([float("nan"), float("inf")] if dtype.is_float else [])):
            number = Tensor.full((), dtype.scalar(value), dtype=dtype)
            assert number.isnan().item() is math.isnan(value), (name, value)
            assert number.logical_not().item() is (dtype.scalar(value) == 0), (name, value)
            assert (number < Tensor.full((), 2, dtype=dtype)).item() is (dtype.scalar(value) < 2), (name, value)
