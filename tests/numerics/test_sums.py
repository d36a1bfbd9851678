"""Sums, products and what is made of them have errors that grow like log n, on every device, for any number of threads.

A total gets RUN_STEPS = 8 numbers, then is one of 8 that the next one gets: 8 log8(n) = 8/3 log2(n) roundings along the way
of a number, and one more for each time that vectors and threads join by halves: 4 log2(n) in all. Each rounding is at most
half an ulp of a part of the sum, which is at most the sum of magnitudes. A product has BLOCK_PRODUCTS more.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log2

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.codegen.tile import BLOCK_PRODUCTS
from tests.on_devices import device_params

ROUNDING = 2.0**-24  # of float32, relative
rng = np.random.default_rng(0)

DISTRIBUTIONS: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
    "constants": lambda shape: np.full(shape, 0.1),
    "positive": lambda shape: rng.random(shape),
    "large mean": lambda shape: 1e4 + rng.standard_normal(shape),
    "alternating": lambda shape: np.resize([1.0, -1.0], shape) * rng.random(shape),
    "mixed magnitudes": lambda shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape),
}

# name -> shape of an input of n numbers, and the axes of its sum
SHAPES: dict[str, tuple[Callable[[int], tuple[int, ...]], tuple[int, ...]]] = {
    "all": (lambda n: (n,), (0,)),
    "rows": (lambda n: (3, n), (1,)),
    "columns": (lambda n: (n, 20), (0,)),
    "few columns": (lambda n: (n, 3), (0,)),
    "outer and inner": (lambda n: (n // 7, 5, 7), (0, 2)),
}


def check(found: np.ndarray, exact: np.ndarray, magnitudes: np.ndarray, num_roundings: float) -> None:
    error = np.max(np.abs(found - exact) / np.maximum(magnitudes, 1e-300))
    assert error <= num_roundings * ROUNDING, f"{error / ROUNDING:.1f} roundings, {num_roundings:.0f} allowed"


def check_sum(name: str, distribution: str, length: int, device: str) -> None:
    shape, axes = SHAPES[name]
    array = DISTRIBUTIONS[distribution](shape(length)).astype(np.float32)
    exact, magnitudes = (np.sum(x.astype(np.float64), axes) for x in (array, np.abs(array)))
    total = Tensor(array, device=device).sum(axes)
    check(total.numpy(), exact, magnitudes, 4 * log2(length))
    count = array.size // total.numel()
    check(Tensor(array, device=device).mean(axes).numpy(), exact / count, magnitudes / count, 4 * log2(length) + 1)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("length", [700, 200_000])
def test_a_sum_has_an_error_that_grows_like_the_logarithm(name: str, distribution: str, length: int) -> None:
    check_sum(name, distribution, length, "CPU")


@pytest.mark.parametrize("device", device_params("C", "CUDASIM"))
@pytest.mark.parametrize("name", SHAPES)
def test_so_it_has_on_other_devices(name: str, device: str) -> None:
    check_sum(name, "constants", 20_000, device)


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("depth", [500, 20_000])
def test_a_product_adds_up_blocks(rows: int, depth: int) -> None:
    for distribution in ("constants", "positive", "alternating"):
        a, b = (DISTRIBUTIONS[distribution](shape).astype(np.float32) for shape in ((rows, depth), (depth, 33)))
        exact, magnitudes = (x.astype(np.float64) @ y.astype(np.float64) for x, y in ((a, b), (np.abs(a), np.abs(b))))
        for rhs in (Tensor(b), Tensor(np.ascontiguousarray(b.T)).T):
            check((Tensor(a) @ rhs).numpy(), exact, magnitudes, BLOCK_PRODUCTS + 4 * log2(depth))


def test_two_hundred_thousand_tenths_are_twenty_thousand() -> None:
    tenths = Tensor(np.full(200_000, 0.1, np.float32))
    assert abs(tenths.sum().item() / 20_000 - 1) < 1e-7
    assert abs(tenths.mean().item() / 0.1 - 1) < 1e-7
    assert np.all(np.abs(tenths.view(-1, 10).mean(0).numpy() / 0.1 - 1) < 2e-7)
    many = Tensor(np.full(1 << 24, 0.1, np.float32))
    assert abs(many.sum().item() / (0.1 * (1 << 24)) - 1) < 2e-7  # two ulp; NumPy's and this one's


@pytest.mark.parametrize("mean", [1e4, 1e5])
@pytest.mark.parametrize("shape", [(8, 3000), (3000, 8)])
def test_a_variance_takes_the_mean_out_first(shape: tuple[int, int], mean: float) -> None:
    """The mean's error, an ulp of it or two, is squared: of a variance of 1 it is less than 4 log2(n) roundings."""
    axis = int(np.argmax(shape))
    array = (mean + rng.standard_normal(shape)).astype(np.float32)
    wide = array.astype(np.float64)
    exact, x = wide.var(axis), Tensor(array)
    bound = 4 * log2(3000) * ROUNDING + (mean * 4 * ROUNDING) ** 2
    assert np.allclose(x.var(axis, correction=0).numpy(), exact, rtol=bound, atol=0)
    normed = (x - x.mean(axis, keepdim=True)) / x.std(axis, correction=0, keepdim=True)
    expected = (wide - wide.mean(axis, keepdims=True)) / wide.std(axis, keepdims=True)
    assert np.allclose(normed.numpy(), expected, rtol=1e-5, atol=4 * mean * ROUNDING)
    if axis == 1:
        layer = pg.nn.functional.layer_norm(x, (3000,), eps=0.0)
        assert np.allclose(layer.numpy(), expected, rtol=1e-5, atol=4 * mean * ROUNDING)
