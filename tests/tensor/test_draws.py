"""Random numbers of further distributions: their means, bounds, dtypes, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import ArgumentError, DTypeError, Generator, Tensor, dtypes
from picograd.nn.init import trunc_normal_

N = 20000
# name: (what fills, the mean of which function of it, that mean, its deviation for one number)
MEANS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any], float, float]] = {
    "bernoulli_": (lambda x: x.bernoulli_(0.3), lambda v: v, 0.3, 0.46),
    "bernoulli_ of a tensor": (lambda x: x.bernoulli_(Tensor.full((N,), 0.7)), lambda v: v, 0.7, 0.46),
    "exponential_": (lambda x: x.exponential_(2.0), lambda v: v, 0.5, 0.5),
    "exponential_ squared": (lambda x: x.exponential_(), np.square, 2.0, 4.5),
    "geometric_": (lambda x: x.geometric_(0.25), lambda v: v, 4.0, 3.5),
    "log_normal_": (lambda x: x.log_normal_(0.5, 0.25), np.log, 0.5, 0.25),
    "cauchy_": (lambda x: x.cauchy_(1.0, 2.0), lambda v: np.arctan((v - 1) / 2), 0.0, 0.91),
    "random_": (lambda x: x.random_(5), lambda v: v, 2.0, 1.42),
    "random_ between": (lambda x: x.random_(-3, 4), lambda v: v, 0.0, 2.0),
}


@pytest.mark.req("C1")
@pytest.mark.parametrize("name", MEANS)
def test_means(name: str, device: str) -> None:
    fill, function, mean, deviation = MEANS[name]
    x = Tensor.zeros(N)
    assert fill(x) is x
    assert abs(function(x.numpy()).mean() - mean) < 5 * deviation / np.sqrt(N)  # five deviations


def _below(x: np.ndarray) -> np.ndarray:
    """The part of the normal distribution below x."""
    return 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2))


def _between(low: float, high: float) -> Callable[[np.ndarray], np.ndarray]:
    ends = _below(np.array([low, high]))
    return lambda x: (_below(x) - ends[0]) / (ends[1] - ends[0])


# name: (what fills, the part of its distribution below x)
PARTS: dict[str, tuple[Callable[[Tensor, Generator], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "exponential_": (lambda x, g: x.exponential_(0.5, generator=g), lambda v: 1 - np.exp(-v / 2)),
    "log_normal_": (lambda x, g: x.log_normal_(0.5, 0.7, generator=g), lambda v: _below((np.log(v) - 0.5) / 0.7)),
    "cauchy_": (lambda x, g: x.cauchy_(0.5, 2.0, generator=g), lambda v: np.arctan((v - 0.5) / 2) / math.pi + 0.5),
    "trunc_normal_": (lambda x, g: trunc_normal_(x, generator=g), _between(-2, 2)),
    "trunc_normal_ of one side": (
        lambda x, g: trunc_normal_(x, 1.0, 2.0, -1.0, math.inf, generator=g), lambda v: _between(-1, math.inf)((v - 1) / 2),
    ),
    "trunc_normal_ of a low tail": (lambda x, g: trunc_normal_(x, 0, 1, -6, -4, generator=g), _between(-6, -4)),
    "trunc_normal_ of a high tail": (
        lambda x, g: trunc_normal_(x, 0, 1, 4, 9, generator=g), lambda v: 1 - _between(-9, -4)(-v),
    ),
    "trunc_normal_ far away": (
        lambda x, g: trunc_normal_(x, 0, 1, 15, 16, generator=g), lambda v: 1 - _between(-16, -15)(-v),
    ),
}  # fmt: skip


@pytest.mark.variants(every=3)
@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("name", PARTS)
def test_distributions(name: str, dtype: dtypes.DType) -> None:
    """Kolmogorov and Smirnov's distance: within what one seed in a thousand exceeds, and what rounding of numbers moves."""
    fill, part_below = PARTS[name]
    n = 50_000
    x = np.sort(fill(Tensor.zeros(n, dtype=dtype), Generator(7)).numpy().astype(np.float64))
    assert np.isfinite(x).all()
    below = part_below(x)
    distance = max((below - np.arange(n) / n).max(), (np.arange(1, n + 1) / n - below).max())
    # Numbers that round to one are a step of the density times their spacing: 16 near 16, where the density is 15.
    rounding = (below[1:] - below[:-1]).max() if dtype.is_narrow else 0.0
    assert distance < 1.95 / math.sqrt(n) + rounding


@pytest.mark.req("C1")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16], ids=str)
@pytest.mark.parametrize("replacement", [True, False])
def test_classes_have_their_weights(dtype: dtypes.DType, replacement: bool) -> None:
    """Also where there are so many that float16 holds neither their sum nor what is between two of their sums."""
    n = 70_000
    weights = np.where(np.arange(n) % 7 == 0, 4.0, 1.0)
    drawn = Tensor(weights, dtype=dtype).multinomial(14_000, replacement, generator=Generator(7)).numpy()
    assert replacement or len(set(drawn.tolist())) == 14_000
    first = drawn[:3000]  # without replacement: before much is gone
    _fits(first // 7000, np.full(10, 0.1))
    _fits((first % 7 == 0).astype(np.int64), np.array([0.6, 0.4]))


@pytest.mark.req("C1")
def test_a_class_of_little_weight_is_drawn_as_often_as_it_says() -> None:
    weights = Tensor([1.0, 2.0**-16, 0.0]).expand(400, 3)
    drawn = weights.multinomial(5000, True, generator=Generator(7)).numpy()
    assert abs((drawn == 1).sum() - 2e6 / 2**16) < 5 * math.sqrt(2e6 / 2**16) and drawn.max() == 1


@pytest.mark.req("C1")
def test_bounds_of_random_are_those_of_the_dtype(device: str) -> None:
    assert Tensor.zeros(N, dtype=dtypes.uint8).random_().numpy().max() == 255
    assert Tensor.zeros(N, dtype=dtypes.float16).random_().numpy().max() <= 2048
    assert set(Tensor.zeros(200).random_(2).numpy()) == {0.0, 1.0}
    assert Tensor.zeros(200, dtype=dtypes.int64).random_().numpy().min() >= 0


@pytest.mark.req("C1")
def test_normal_takes_tensors_and_numbers(device: str) -> None:
    mean, std = Tensor.full((N, 1), 3.0), Tensor([0.5, 2.0])
    x = pg.normal(mean, std).numpy()
    assert x.shape == (N, 2) and np.allclose(x.mean(0), 3.0, atol=0.1) and np.allclose(x.std(0), [0.5, 2.0], rtol=0.1)
    assert pg.normal(Tensor([1.0, 2.0]), 0.0).tolist() == [1.0, 2.0]
    assert pg.normal(1.0, 0.0, (2, 2)).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(ArgumentError) as caught:
        pg.normal(0.0, 1.0)
    assert caught.value.fact == "normal: mean and std are numbers, so size is needed, e.g. size=(3,)."


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "bernoulli_": (
        lambda: Tensor.zeros(2).bernoulli_(1.5), ArgumentError, "bernoulli_: p must be a probability, got 1.5.",
    ),
    "exponential_": (
        lambda: Tensor.zeros(2).exponential_(0), ArgumentError, "exponential_: lambd must be positive, got 0.",
    ),
    "exponential_ of integers": (
        lambda: Tensor([1, 2]).exponential_(), DTypeError,
        "exponential_: needs a float, got int64 of shape (2,).",
    ),
    "geometric_": (
        lambda: Tensor.zeros(2).geometric_(0), ArgumentError, "geometric_: p must be in (0, 1], got 0.",
    ),
    "log_normal_": (
        lambda: Tensor.zeros(2).log_normal_(0, -1), ArgumentError, "log_normal_: std must be positive, got -1.",
    ),
    "cauchy_": (lambda: Tensor.zeros(2).cauchy_(0, 0), ArgumentError, "cauchy_: sigma must be positive, got 0."),
    "cauchy_ of NaN": (
        lambda: Tensor.zeros(2).cauchy_(0, math.nan), ArgumentError, "cauchy_: sigma must be positive, got nan.",
    ),
    "normal_ of NaN": (
        lambda: Tensor.zeros(2).normal_(0, math.nan), ArgumentError, "normal_: std must not be negative, got nan.",
    ),
    "trunc_normal_": (
        lambda: trunc_normal_(Tensor.zeros(2), 0, 1, 2, -2), ArgumentError,
        "trunc_normal_: a must be at most b, got 2 and -2.",
    ),
    "trunc_normal_ of integers": (
        lambda: trunc_normal_(Tensor([1, 2])), DTypeError, "trunc_normal_: needs a float, got int64 of shape (2,).",
    ),
    "multinomial of nothing": (
        lambda: Tensor.zeros(0).multinomial(1, True), ArgumentError,
        "multinomial: 1 samples cannot be drawn with replacement from 0 classes.",
    ),
    "random_": (
        lambda: Tensor.zeros(2).random_(5, 5), ArgumentError,
        "random_: no integer is at least 5 and below 5.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_on_its_line(name: str) -> None:
    call, kind, fact = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__  # type: ignore[attr-defined]


def _fits(counts: np.ndarray, weights: np.ndarray) -> None:
    """Checks that the counts of a sample are those of a distribution, by its chi-squared statistic."""
    seen = np.bincount(counts.astype(np.int64), minlength=len(weights))[: len(weights)]
    expected = weights * len(counts)
    likely = expected > 10
    statistic = ((seen - expected)[likely] ** 2 / expected[likely]).sum()
    assert statistic < likely.sum() + 5 * np.sqrt(2 * likely.sum())


@pytest.mark.parametrize("rate", [0.3, 4.0, 60.0])
def test_poisson_counts_have_their_probabilities(rate: float, device: str) -> None:
    counts = pg.poisson(Tensor.full((20000,), rate), generator=pg.Generator(3)).numpy()
    k = np.arange(150)
    _fits(counts, np.exp(k * np.log(rate) - rate - np.array([math.lgamma(n + 1) for n in k])))
    assert counts.dtype == np.float32


@pytest.mark.variants(first=1)
def test_large_rates_are_nearly_normal() -> None:
    counts = pg.poisson(Tensor.full((2000,), 1e7, dtype=pg.float64), generator=pg.Generator(3)).numpy()
    assert abs(counts.mean() - 1e7) < 5 * np.sqrt(1e7 / 2000) and abs(counts.std() / np.sqrt(1e7) - 1) < 0.08


@pytest.mark.parametrize(("count", "prob"), [(1.0, 0.3), (10.0, 0.8), (300.0, 0.05)])
def test_binomial_counts_have_their_probabilities(count: float, prob: float, device: str) -> None:
    counts = pg.binomial(Tensor.full((20000,), count), Tensor(prob), generator=pg.Generator(5)).numpy()
    k = np.arange(int(count) + 1)
    weights = np.array([math.comb(int(count), n) for n in k], float) * prob**k * (1 - prob) ** (count - k)
    _fits(counts, weights)


def test_counts_repeat_with_their_seed_and_need_floats() -> None:
    rates = Tensor([[0.5, 3.0], [20.0, 0.0]])
    first, again = (pg.poisson(rates, generator=pg.Generator(1)).tolist() for _ in range(2))
    assert first == again and first[1][1] == 0
    with pytest.raises(pg.DTypeError, match="poisson: needs floats, got int64"):
        pg.poisson(Tensor([1]))
