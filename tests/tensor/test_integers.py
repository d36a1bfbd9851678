"""NumPy's integers and tensors of one integer in the place of Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.nn import functional as F
from picograd.tensor.build import is_integer

x = pg.arange(24.0).reshape(4, 6)
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "ones": lambda two, four: pg.ones(two, (1, four)[1]),
    "zeros, a list": lambda two, four: pg.zeros([two, four]),
    "full": lambda two, four: pg.full((two,), 1.5),
    "rand": lambda two, four: pg.rand(two, 3) * 0,
    "eye": lambda two, four: pg.eye(four),
    "new_zeros": lambda two, four: x.new_zeros(two, 3),
    "randint, its end": lambda two, four: pg.randint(0, two, (2, 3)) * 0,
    "randperm": lambda two, four: pg.randperm(four) * 0,
    "reshape": lambda two, four: x.reshape(two, -1),
    "view": lambda two, four: x.view(four, 6),
    "expand": lambda two, four: pg.ones(1, 3).expand(two, -1),
    "broadcast_to": lambda two, four: pg.broadcast_to(pg.ones(1, 3), (two, 3)),
    "repeat": lambda two, four: x.repeat(two, 1),
    "tile": lambda two, four: x.tile((two, 1)),
    "unflatten": lambda two, four: x.unflatten(1, (two, 3)),
    "split": lambda two, four: x.split(two)[1],
    "roll": lambda two, four: x.roll(two, two - two),
    "pad": lambda two, four: x.pad((two, four)),
    "sum": lambda two, four: x.sum(two - 1),
    "cumsum": lambda two, four: x.cumsum(two - 1),
    "cat": lambda two, four: pg.cat([x, x], two - 1),
    "transpose": lambda two, four: x.transpose(two - 2, two - 1),
    "movedim": lambda two, four: x.movedim(two - 1, two - 2),
    "interpolate": lambda two, four: F.interpolate(x[None], size=four),
    "avg_pool1d": lambda two, four: F.avg_pool1d(x[None], two),
    "adaptive_avg_pool1d": lambda two, four: F.adaptive_avg_pool1d(x[None], two),
    "pixel_shuffle": lambda two, four: F.pixel_shuffle(pg.ones(1, 4, 2, 2), two),
    "arange": lambda two, four: pg.arange(two, four + two, two),
    "arange, of none": lambda two, four: pg.arange(four),
    "matrix_power": lambda two, four: x[:, :4].matrix_power(two),
    "tensordot": lambda two, four: pg.tensordot(x, x, dims=([two - 1], [two - 1])),
    "conv1d": lambda two, four: F.conv1d(pg.ones(1, 2, 5), pg.ones(2, 1, 2), stride=two, groups=two),
    "fftfreq": lambda two, four: pg.fft.fftfreq(four),
    "vander": lambda two, four: pg.linalg.vander(pg.arange(3.0), N=four),
}


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.array, pg.tensor])
@pytest.mark.parametrize("name", CALLS)
def test_an_integer_of_any_kind_is_one(name: str, kind: Callable[[int], Any]) -> None:
    call = CALLS[name]
    found, expected = call(kind(2), kind(4)), call(2, 4)
    assert found.shape == expected.shape and all(type(length) is int for length in found.shape)
    assert found.dtype == expected.dtype and found.tolist() == expected.tolist()


@pytest.mark.parametrize("kind", [int, np.int64])
def test_layers_are_as_wide_as_a_product_of_numpy_says(kind: Callable[[Any], Any]) -> None:
    width = kind(np.prod((2, 3)))
    layer = pg.nn.Sequential(pg.nn.Linear(width, 4), pg.nn.LayerNorm(width - 2), pg.nn.Conv1d(width - 5, width, width // 2))
    assert [p.shape for p in layer.parameters()] == [(4, 6), (4,), (4,), (4,), (6, 1, 3), (6,)]
    assert pg.nn.Embedding(width, width).weight.shape == (6, 6)


@pytest.mark.parametrize("wrong", [2.0, np.float64(2), np.array(2.0), Tensor(2.0), Tensor([2, 2]), "2", None])
@pytest.mark.parametrize(
    "call",
    [
        lambda n: pg.ones(n, 3),
        lambda n: x.reshape(n, 12),
        lambda n: x.roll(n, 0),
        lambda n: x.sum((n,)),
        lambda n: F.avg_pool1d(x[None], (n,)),
    ],
)
def test_what_is_no_integer_is_refused(call: Callable[[Any], Any], wrong: Any) -> None:
    with pytest.raises(pg.PicogradError):
        call(wrong)


def test_of_tensors_without_axes_those_of_integers_are_one() -> None:
    assert all(map(is_integer, (2, True, np.uint8(2), np.array(2), Tensor(2))))
    wrong = (2.0, np.float64(2), np.bool_(True), np.array(2.0), Tensor(2.0), Tensor(True), Tensor([2]))
    assert not any(map(is_integer, wrong))


def test_the_least_number_of_randint_is_0_where_the_end_has_its_name() -> None:
    assert pg.randint(high=3, size=(50,)).unique().tolist() == [0, 1, 2]
    assert pg.randint_like(x, high=1).sum() == 0


def test_lengths_of_shapes_that_broadcast_are_not_negative() -> None:
    assert pg.broadcast_shapes((2, 1), np.int64(3)) == (2, 3)
    with pytest.raises(pg.ShapeError):
        pg.broadcast_shapes((-1, 2), (1, 2))


def test_an_axis_is_flipped_once() -> None:
    for axes in ((0, 0), (1, -1)):
        with pytest.raises(pg.PicogradError, match="name one axis twice"):
            x.flip(axes)
    assert x.flip(()).tolist() == x.tolist()


def test_drawn_numbers_take_the_dtypes_of_python() -> None:
    drawn = [pg.rand(2, dtype=float), pg.randn(2, dtype=float), pg.rand_like(x, dtype=float)]
    drawn.append(pg.normal(0.0, 1.0, (2,), dtype=float))
    assert [each.dtype for each in drawn] == [pg.float64] * 4  # type: ignore[comparison-overlap]
    assert pg.randperm(2, dtype=int).dtype == pg.randint(3, (2,), dtype=int).dtype == pg.int64


@pytest.mark.parametrize("name", ["sum", "softmax", "argmax", "flip", "cumsum", "sort", "unbind", "unsqueeze"])
def test_a_flag_is_no_axis(name: str) -> None:
    with pytest.raises(pg.ArgumentError, match="an axis must be an int, got True"):
        getattr(x, name)(True)
