"""Small graphs whose plan is known: what tells them apart, and what is left to forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import realize
from picograd.engine.known import MOST_OPS, Known, look_at
from picograd.engine.watch import watch
from picograd.nn import functional as F
from tests.calls import calls


def held(*shape: int, dtype: pg.DType = pg.float32) -> Tensor:
    return Tensor(np.arange(np.prod(shape)).reshape(shape), dtype=dtype).realize()


A, B = held(3), held(6)[3:].contiguous().realize()
VIEW = held(6)[:3]
GRAPHS: dict[str, Callable[[], Tensor]] = {
    "an addition": lambda: A + B,
    "of one buffer twice": lambda: A + A,
    "of another operation": lambda: B - A,
    "0.0": lambda: A * 0.0,
    "-0.0": lambda: A * -0.0,
    "integers": lambda: held(3, dtype=pg.int64) + held(3, dtype=pg.int64),
    "another shape": lambda: held(1, 3) + held(1, 3),
    "what is shared": lambda: (A + 1) * (A + 1),
    "what is not": lambda: (A + 1) * (B + 1),
    "a chain": lambda: ((A * 2).exp() + B).sum(),
    "of a view": lambda: VIEW + 1,
}


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realize, "_plans", {})


def test_each_graph_has_a_key_of_its_own_and_the_same_each_time() -> None:
    seen = {name: look_at(make().cell.op) for name, make in GRAPHS.items()}
    assert len({each.key for each in seen.values() if each is not None}) == len(GRAPHS)
    for name, make in GRAPHS.items():
        again, before = look_at(make().cell.op), seen[name]
        assert again is not None and before is not None and again.key == before.key


def test_known_plans_give_the_same_bits() -> None:
    first = {name: make().numpy() for name, make in GRAPHS.items()}
    assert (A - B).tolist() == [-value for value in (B - A).tolist()]
    for _ in range(3):
        for name, make in GRAPHS.items():
            value = make().numpy()
            assert value.dtype == first[name].dtype and value.tobytes() == first[name].tobytes(), name
    assert sum(isinstance(plan, Known) for plan in realize._plans.values()) >= len(GRAPHS) - 2


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
        lambda: A[Tensor([0, 2])],  # an index that may be outside
        lambda: held(8)[: pg.Variable("n", 1, 8).bind(3)] + 1,
        lambda: pg.checkpoint(lambda x: x * 2, A),
        lambda: pg.ones(3) * 2,
        lambda: sum((A * number for number in range(MOST_OPS)), A),
    ],
    ids=["a copy", "a check", "a symbolic length", "a body", "constants alone", "a long one"],
)
def test_what_only_forms_can_tell(make: Callable[[], Tensor]) -> None:
    expected = make().numpy()
    for _ in range(3):
        np.testing.assert_array_equal(make().numpy(), expected)
    seen = look_at(make().cell.op)
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
    assert calls(lambda: (x + 1).realize()) <= 62
