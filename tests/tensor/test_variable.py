"""Symbolic integers: positions and lengths whose values kernels do not depend on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ShapeError
from picograd.look import watch
from tests.helpers import same_value


def table(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.req("G4")
def test_sums_and_multiples_know_value_and_bounds() -> None:
    n, m = pg.Variable("n", 1, 8).bind(3), pg.Variable("m", 0, 4).bind(2)
    values = [n + 1, 1 + n, n - 1, 5 - n, 2 * n, n * m, n + m, n - n]
    assert [length.value for length in values] == [4, 4, 2, 2, 6, 6, 5, 0]
    assert (n + m).bounds == (1, 12) and (2 * n - 1).bounds == (1, 15)
    assert [repr(n), repr(n + 1), repr(2 * (n - 1))] == ["n=3", "n + 1 = 4", "2 * (n - 1) = 4"]


@pytest.mark.req("G4")
def test_indices_and_ends_of_slices_may_be_symbolic(device: str) -> None:
    data, n = table(5, 9), pg.Variable("n", 0, 6)
    x, made = Tensor(data).realize(), []
    for k in (0, 3, 6, 1):
        i = n.bind(k)
        with watch() as counts:
            same_value(x[:, i] * 2, data[:, k] * 2)
            same_value(x[1:3, i : i + 2] * 2, data[1:3, k : k + 2] * 2)
            same_value(x[:, i + 1 :] * 2, data[:, k + 1 :] * 2)
            same_value(x[:, 1 : i + 1].sum(1), data[:, 1 : k + 1].sum(1))
            same_value(x[:, i:-2].exp(), np.exp(data[:, k:-2]))
        made.append(counts.lowered)
    assert made[1:] == [0, 0, 0]


@pytest.mark.req("G4")
def test_writes_at_symbolic_positions_replace_that_part_only(device: str) -> None:
    n, expected = pg.Variable("n", 0, 6), table(2, 9, 3)
    x, made = Tensor(expected.copy()).realize(), []
    for k in (4, 0, 6, 5):
        i, row, block = n.bind(k), table(2, 3) + k, table(2, 2, 3) - k
        with watch() as counts:
            x[:, i] = Tensor(row)
            x[:, i + 1 : i + 3] = Tensor(block)
            x[0, i] += 1
            expected[:, k], expected[:, k + 1 : k + 3] = row, block
            expected[0, k] += 1
            same_value(x, expected)
        made.append(counts.lowered)
    assert made[1:] == [0, 0, 0]


@pytest.mark.req("G4")
def test_gradients_flow_through_symbolic_slices(device: str) -> None:
    n = pg.Variable("n", 1, 6)
    for k in (1, 4, 6):
        x = Tensor(table(3, 7), requires_grad=True)
        (x[:, n.bind(k) : n.bind(k) + 1] * 3).sum().backward()
        expected = np.zeros((3, 7), np.float32)
        expected[:, k] = 3
        same_value(x.grad, expected)


@pytest.mark.req("G4")
@pytest.mark.parametrize("rows", [1, 5])
def test_attention_over_a_symbolic_length_is_right_at_every_length(rows: int, device: str) -> None:
    """Products, softmax and sums at all edges of vectors and tiles, by one plan."""
    most = 70
    k, v, q = table(2, 3, most, 16), table(2, 3, most, 16) + 1, table(2, 3, rows, 16)
    keys, values, queries, n = Tensor(k).realize(), Tensor(v).realize(), Tensor(q).realize(), pg.Variable("n", 1, most)
    lowered = []
    for length in range(1, most + 1):
        seen = slice(0, n.bind(length))
        with watch() as counts:
            out = (queries @ keys[:, :, seen].transpose(-1, -2) * 0.25).softmax(-1) @ values[:, :, seen]
            scores = np.exp(q @ k[:, :, :length].swapaxes(-1, -2) * 0.25)
            expected = scores / scores.sum(-1, keepdims=True) @ v[:, :, :length]
            # float32 sums of at most 70 terms of size 1.
            same_value(out, expected, atol=1e-5)
        lowered.append(counts.lowered)
    assert not any(lowered[1:])


@pytest.mark.parametrize("name", ["p0", "v1", "r1", "args", "begin", "int", "n"])
def test_a_name_may_be_one_that_programs_use(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x, n = Tensor(table(5)), pg.Variable(name, 1, 5)
    for length in (2, 3):
        same_value((x[: n.bind(length)] * 2).sum(), 2 * table(5)[:length].sum(), atol=1e-6)


@pytest.mark.parametrize("name", ["", "a b", "a-b", "0", "r3.at", "é"])
def test_a_name_is_an_identifier(name: str) -> None:
    with pytest.raises(pg.ArgumentError, match="Variable: a name has only letters, digits and _"):
        pg.Variable(name, 1, 8)


@pytest.mark.req("G4")
def test_positions_outside_an_axis_are_refused() -> None:
    x, n = Tensor(table(5, 8)), pg.Variable("n", 0, 9)
    with pytest.raises(pg.IndexingError, match="index: n \\+ 1 = 6 is longer than an axis of length 5"):
        x[n.bind(5)]
    with pytest.raises(pg.IndexingError, match="n - 1 = -1 is before the start of axis 1 in shape \\(5, 8\\)"):
        x[:, n.bind(0) - 1]
    with pytest.raises(pg.IndexingError, match="n=2 is before 3, the start of the slice of axis 0"):
        x[3 : n.bind(2)]
    with pytest.raises(pg.IndexingError, match="a slice to a symbolic length has step 1"):
        x[: n.bind(4) : 2]
    assert x[n.bind(4)].shape == (8,)


@pytest.mark.req("G4")
def test_one_name_has_one_value_in_a_graph() -> None:
    x, n = Tensor(table(8)), pg.Variable("n", 1, 8)
    with pytest.raises(pg.ArgumentError, match="n is bound to 3 and to 4 in tensors that are computed together"):
        (x[: n.bind(3)].sum() + x[: n.bind(4)].sum()).item()


def test_a_number_of_elements_that_depends_on_a_variable_is_none() -> None:
    x = Tensor(table(4, 2))[: pg.Variable("n", 1, 4).bind(3)]
    for count in (x.numel, lambda: x.nbytes, lambda: len(x)):
        with pytest.raises(ShapeError, match="symbolic length"):
            count()


@pytest.mark.parametrize("use", [
    lambda n: pg.arange(5) > n, lambda n: pg.arange(5) == n, lambda n: n + 0.5, lambda n: 7 // n, lambda n: n == 30,
    lambda n: n < 31, lambda n: n >= 2, lambda n: {n: 1}, lambda n: n in (3, 4),
])  # fmt: skip
def test_a_symbolic_integer_is_no_operand_and_the_error_says_what_is(use: Callable[[Any], Any]) -> None:
    with pytest.raises(pg.ShapeError) as caught:
        use(pg.Variable("n", 1, 200).bind(30))
    assert "is a symbolic integer, any value of n" in caught.value.fact
    assert caught.value.hint == (
        "pg.arange(n + 1)[n] is a tensor that holds it for every value; n.value is its number for now, and a plan is then "
        "made for each value."
    )


def test_a_tensor_holds_a_symbolic_integer() -> None:
    """As the hint says: a window of 20 positions beside a cache, one plan for all."""

    @pg.jit
    def seen(n: Any) -> Any:
        position = pg.arange(n + 1)[n]
        return (pg.arange(256)[: n + 1] > position - 20).sum(), pg.ones(2) + position

    variable = pg.Variable("n", 1, 200)
    for number in (5, 30, 100):
        count, moved = seen(variable.bind(number))
        assert (count.item(), moved.tolist()) == (min(20, number + 1), [number + 1.0] * 2)


def test_symbolic_integers_are_pickled_and_copied() -> None:
    n = pg.Variable("n", 1, 8)
    for twin in (copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))):
        assert twin(n).op is n.op
        length = twin(2 * n.bind(3) - 1)
        assert length == 2 * n.bind(3) - 1 and length.value == 5
        assert pg.ones(8)[: twin(n.bind(3))].sum().item() == 3.0


def test_a_graph_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="a graph cannot be pickled"):
        pickle.dumps((pg.rand(2) * 2).op)


def test_a_variable_without_a_value_says_so() -> None:
    with pytest.raises(pg.IndexingError) as caught:
        pg.ones(8)[: pg.Variable("n", 1, 8)]
    assert caught.value.fact == "index: slice(None, Variable('n', 1, 8), None) needs ints and a step other than 0."
    assert caught.value.hint == "n.bind(3) gives it a value."
