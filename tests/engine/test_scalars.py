"""Numbers that change from step to step: compiled at most twice, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.look import watch


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def test_a_learning_rate_by_hand_is_compiled_at_most_twice() -> None:
    data = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    p, expected = Tensor(data, requires_grad=True), data.copy()
    made = []
    for step in range(8):
        rate = 0.47 - step / 30
        with watch() as counts:
            p.grad = None
            (p * p * 0.25).sum().backward()
            with pg.no_grad():
                p -= rate * p.grad
            p.realize()
        expected = expected - np.float32(rate) * (expected * np.float32(0.25) * 2)
        np.testing.assert_array_equal(p.detach().numpy(), expected)
        made.append(counts.scheduled)
    assert sum(made[:2]) <= 4 and made[2:] == [0] * 6


@pytest.mark.parametrize("values", [(2.0, 3.0, 0.5), (1.0, -0.0, 0.0), (float("inf"), float("nan"), 1.0)])
def test_the_bits_are_those_of_a_constant(values: tuple[float, ...]) -> None:
    x = Tensor(np.array([0.1, -3.0, 0.0, 7.5], np.float32))
    for value in values:
        made = ((x * value + value) / (value + 2)).numpy()
        with np.errstate(invalid="ignore"):
            f = np.float32
            expected = (np.array([0.1, -3.0, 0.0, 7.5], f) * f(value) + f(value)) / f(value + 2)
        np.testing.assert_array_equal(made, expected)
        assert np.array_equal(np.signbit(made), np.signbit(expected)) or np.isnan(expected).any()


def test_an_exponent_stays_a_constant() -> None:
    x = Tensor(np.array([1.5, 2.0], np.float32))
    for exponent in (2.0, 3.0, 0.5, 2.1):
        expected = np.power(np.array([1.5, 2.0]), exponent).astype(np.float32)
        np.testing.assert_allclose((x**exponent).numpy(), expected, rtol=1e-7)  # half a unit of the last place


def test_two_numbers_that_change_at_different_times() -> None:
    x = Tensor(np.arange(4, dtype=np.float32))
    for a, b in [(2.0, 3.0), (2.0, 4.0), (5.0, 4.0), (6.0, 7.0), (8.0, 9.0)]:
        with watch() as counts:
            assert (x * a + b).tolist() == [i * a + b for i in range(4)]
    assert counts.scheduled == 0


def test_equal_numbers_in_two_places_are_another_form() -> None:
    x = Tensor(np.arange(4, dtype=np.float32))
    for a, b in [(2.0, 3.0), (4.0, 4.0), (5.0, 6.0), (7.0, 7.0)]:
        assert (x * a + b).tolist() == [i * a + b for i in range(4)]


def test_integers_that_change_are_inputs_too() -> None:
    data = np.arange(12) % 5
    x = Tensor(data)
    made = []
    for k in range(6):
        with watch() as counts:
            assert (x == k).sum().item() == (data == k).sum()
            assert (x // (k + 1) + x % (k + 2)).tolist() == (data // (k + 1) + data % (k + 2)).tolist()
            assert pg.arange(k, k + 4).tolist() == list(range(k, k + 4))
            assert x[pg.arange(k, k + 4)].tolist() == data[k : k + 4].tolist()
        made.append(counts.scheduled)
    assert made[3:] == [0] * 3


def test_an_integer_that_is_an_index_is_checked() -> None:
    x = Tensor(np.arange(6))
    for k in (1, 2, 3, 5):
        assert x[pg.zeros(2, dtype=pg.int64) + k].tolist() == [k, k]
    with pytest.raises(IndexError, match="6 is out of range"):
        x[pg.zeros(2, dtype=pg.int64) + 6].realize()
