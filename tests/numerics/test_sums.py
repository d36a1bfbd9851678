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
from picograd.codegen.matmul import BLOCK_PRODUCTS
from picograd.codegen.reduce_cpu import BLOCK_ROWS_MIN
from picograd.tensor.core import realize
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


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("length", [700, 200_000])
def test_a_sum_has_an_error_that_grows_like_the_logarithm(name: str, distribution: str, length: int) -> None:
    check_sum(name, distribution, length, "CPU")


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("device", device_params("C", "CUDASIM"))
@pytest.mark.parametrize("name", SHAPES)
def test_so_it_has_on_other_devices(name: str, device: str) -> None:
    check_sum(name, "constants", 20_000, device)


@pytest.mark.variants(every=3)
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
    assert abs(tenths.sum().item() / 20_000 - 1) < 2e-7  # two ulp: lanes of a vector are sums of their own
    assert abs(tenths.mean().item() / 0.1 - 1) < 2e-7
    assert np.all(np.abs(tenths.view(-1, 10).mean(0).numpy() / 0.1 - 1) < 2e-7)
    many = Tensor(np.full(1 << 24, 0.1, np.float32))
    assert abs(many.sum().item() / (0.1 * (1 << 24)) - 1) < 2e-7  # two ulp; NumPy's and this one's


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("mean", [0.0, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("shape", [(8, 3000), (3000, 8), (300, 16), (7, 200_000)])
def test_a_variance_takes_the_mean_out_first(shape: tuple[int, int], mean: float) -> None:
    """Differences are exact then, and what the rounding of the mean has left of them is taken out, too."""
    axis = int(np.argmax(shape))
    array = (mean + rng.standard_normal(shape)).astype(np.float32)
    bound, x, wide = 4 * log2(shape[axis]) * ROUNDING, Tensor(array), array.astype(np.float64)
    for correction in (0, 1):
        exact = wide.var(axis, ddof=correction)
        assert np.allclose(x.var(axis, correction).numpy(), exact, rtol=bound, atol=0)
        assert np.allclose(x.std(axis, correction).numpy(), np.sqrt(exact), rtol=bound, atol=0)


@pytest.mark.parametrize("shape", [(65536, 10), (5000, 300), (300, 2000), (200, 20_000)])
def test_gradients_of_weights_of_a_norm_are_sums_of_runs_of_rows(shape: tuple[int, int]) -> None:
    """Columns are added up while rows are reduced for the gradient of x, BLOCK_ROWS_MIN one after the other."""
    rows, width = shape
    x, weight, bias = (Tensor(rng.random(dims).astype(np.float32)).requires_grad_() for dims in (shape, width, width))
    factors = Tensor(np.full(shape, 0.1, np.float32))
    (pg.nn.functional.layer_norm(x, (width,), weight, bias) * factors).sum().backward()
    assert x.grad is not None and bias.grad is not None
    realize([x.grad, bias.grad])
    exact = np.full(width, rows * np.float64(np.float32(0.1)))
    check(bias.grad.numpy(), exact, exact, BLOCK_ROWS_MIN + 4 * log2(rows))


NORMS: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "layer": (lambda x: pg.nn.functional.layer_norm(x, x.shape[-2:], eps=0.0), (2, 3)),
    "group": (lambda x: pg.nn.functional.group_norm(x, x.shape[1], eps=0.0), (2, 3)),
    "batch": (lambda x: pg.nn.functional.batch_norm(x, None, None, training=True, eps=1e-12), (0, 2, 3)),
    "instance": (lambda x: pg.nn.functional.instance_norm(x, eps=1e-12), (2, 3)),
}


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e5])
@pytest.mark.parametrize("name", NORMS)
def test_so_does_a_norm(name: str, mean: float) -> None:
    norm, axes = NORMS[name]
    array = (mean + rng.standard_normal((6, 5, 20, 31))).astype(np.float32)
    wide = array.astype(np.float64)
    expected = (wide - wide.mean(axes, keepdims=True)) / wide.std(axes, keepdims=True)
    bound = (4 * log2(array.size) + 1.01 * mean) * ROUNDING  # the mean is rounded once, to half an ulp, where n counts
    assert np.allclose(norm(Tensor(array)).numpy(), expected, rtol=4 * ROUNDING, atol=bound)


@pytest.mark.parametrize("mean", [0.0, 1e5])
def test_gradients_of_a_norm_are_as_exact_as_the_mean(mean: float) -> None:
    factors = rng.standard_normal((40, 300)).astype(np.float32)
    array = (mean + rng.standard_normal((40, 300))).astype(np.float32)
    gradients = []
    for dtype in (np.float32, np.float64):
        x = Tensor(array.astype(dtype), requires_grad=True)
        (pg.nn.functional.layer_norm(x, (300,), eps=0.0) * Tensor(factors.astype(dtype))).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad.numpy())
    assert np.allclose(*gradients, rtol=1e-6, atol=1e-6 + 4 * mean * ROUNDING)


def test_equal_elements_have_no_variance_and_no_gradient() -> None:
    x = Tensor(np.full((4, 1000), 0.1, np.float32), requires_grad=True)
    x.std(1).sum().backward()
    assert x.grad is not None
    assert x.var(1).tolist() == [0.0] * 4
    assert x.grad.tolist() == [[0.0] * 1000] * 4


def test_a_deviation_may_be_a_float16_where_the_variance_is_none() -> None:
    array = (1000 * rng.standard_normal((4, 100))).astype(np.float16)
    assert np.allclose(Tensor(array).std(1).numpy(), array.astype(np.float64).std(1, ddof=1), rtol=2.0**-11)


@pytest.mark.parametrize("scale", [1e20, 1e-23, 1e-30])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_deviation_is_right_where_its_squares_are_no_floats_of_its_dtype(name: str, scale: float) -> None:
    x = Tensor([scale, -scale, 2 * scale], dtype=getattr(pg, name), requires_grad=True)
    x.std().backward()
    wide = x.double().detach().numpy()
    bound = {"float32": 2.0**-22, "bfloat16": 2.0**-8}[name]
    assert np.allclose(x.std().item(), wide.std(ddof=1), rtol=bound, atol=0)
    assert np.allclose(x.grad.double().numpy(), (wide - wide.mean()) / (2 * wide.std(ddof=1)), rtol=2 * bound, atol=0)


CONVOLUTIONS = {  # images, input and output channels, length of a side, taps of a side
    "many channels": (5, 512, 32, 8, 3),
    "few positions": (9, 600, 64, 4, 1),
    "many taps": (3, 40, 32, 14, 7),
    "a weight of many positions": (40, 16, 32, 28, 3),
}


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_adds_up_blocks_in_one_order_for_an_image_alone_or_among_others(name: str) -> None:
    images, channels, out, side, taps = CONVOLUTIONS[name]
    x = Tensor(np.full((images, channels, side, side), 0.1, np.float32)).requires_grad_()
    weight = Tensor(np.full((out, channels, taps, taps), 0.1, np.float32)).requires_grad_()

    def convolve(x: Tensor) -> Tensor:
        return pg.nn.functional.conv2d(x, weight, padding=taps // 2)

    convolve(x).sum().backward()
    assert x.grad is not None and weight.grad is not None
    tenth, middle = np.float64(np.float32(0.1)), side // 2
    found = [convolve(x).detach().numpy(), x.grad.numpy()]
    for values, exact in zip(found, (channels * taps**2 * tenth**2, out * taps**2 * tenth)):
        check(values[:, :, middle, middle], np.array(exact), np.array(exact), BLOCK_PRODUCTS + 4 * log2(channels * taps**2))
    exact = np.array(images * side * side * tenth)
    check(weight.grad.numpy()[:, :, taps // 2, taps // 2], exact, exact, BLOCK_PRODUCTS + 4 * log2(images * side * side))
    drawn = Tensor(rng.random(x.shape).astype(np.float32))
    together = convolve(drawn).detach().numpy()
    assert np.array_equal(convolve(drawn[:1]).detach().numpy(), together[:1])
    assert np.array_equal(convolve(drawn[1:3]).detach().numpy(), together[1:3])


@pytest.mark.parametrize("mean", [1e4, 1e5])
@pytest.mark.parametrize("weights", [False, True])
def test_a_covariance_does_not_feel_the_rounding_of_a_large_mean(mean: float, weights: bool) -> None:
    array = (mean + rng.standard_normal((4, 1000))).astype(np.float32)
    given = np.arange(1000) % 3 + 1 if weights else None
    exact = np.cov(array.astype(np.float64), fweights=given)
    found = pg.cov(Tensor(array), fweights=None if given is None else Tensor(given)).numpy()
    assert np.max(np.abs(found - exact)) < 1e-6
    if not weights:
        assert np.max(np.abs(pg.corrcoef(Tensor(array)).numpy() - np.corrcoef(array.astype(np.float64)))) < 1e-6
