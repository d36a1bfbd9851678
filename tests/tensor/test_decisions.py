"""What is decided where PyTorch and mathematics disagree, or a call has two meanings; docstrings say the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import IndexingError, Tensor
from picograd.ir.op import toposort
from picograd.nn import functional as F

INF, NAN = math.inf, math.nan


@pytest.fixture(params=["CPU", "NUMPY"], autouse=True)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", request.param)


def gradients(function: Any, *values: Any) -> list[Any]:
    leaves = [Tensor(value, requires_grad=True) for value in values]
    return [grad.tolist() for grad in pg.autograd.grad(function(*leaves).sum(), leaves)]


def functional(x: Any) -> Any:
    return F if isinstance(x, Tensor) else torch.nn.functional


# ---- gradients ----
def test_the_divisor_of_a_remainder_has_the_whole_quotient_as_its_slope(rng: np.random.Generator) -> None:
    """1 % 0.1 is 0.0999..., for 0.1 goes into 1 nine times; 1 / 0.1 is 10."""
    a = np.concatenate([[1.0, 0.3], rng.integers(-300, 300, 300) / 10])
    b = np.concatenate([[0.1, 0.1], rng.integers(1, 30, 300) / 10 * rng.choice([-1, 1], 300)])
    theirs = torch.tensor(b, requires_grad=True)
    torch.remainder(torch.tensor(a), theirs).sum().backward()
    (mine,) = gradients(lambda divisor: Tensor(a) % divisor, b)
    assert mine == theirs.grad.tolist() and mine[0] == -9.0


def test_sinc_is_as_curved_at_0_as_beside_it() -> None:
    points = [0.0, -0.0, 1e-30, 0.01, 0.1, 0.149, 0.151]
    first = lambda x: pg.autograd.grad(x.sinc().sum(), [x], create_graph=True)[0]  # noqa: E731
    (second,) = gradients(first, np.array(points))
    x = np.maximum(np.pi * np.abs(points), 1e-3)
    exact = np.pi**2 * ((2 - x**2) * np.sin(x) - 2 * x * np.cos(x)) / x**3
    assert np.allclose(second, exact, rtol=1e-6) and second[0] == pytest.approx(-(np.pi**2) / 3, rel=1e-6)


def test_equal_infinities_share_the_gradient_of_logaddexp() -> None:
    for name in ("logaddexp", "logaddexp2"):
        mine = gradients(lambda a, b: getattr(a, name)(b), [-INF, INF, -INF, 2.0], [-INF, INF, 0.0, 2.0])  # noqa: B023
        assert mine == [[0.5, 0.5, 0.0, 0.5], [0.5, 0.5, 1.0, 0.5]]


def test_hypot_is_flat_at_0() -> None:
    mine = gradients(lambda a, b: a.hypot(b), [0.0, -0.0, 3.0, INF], [0.0, 0.0, 4.0, 1.0])
    assert np.allclose(mine, [[0.0, 0.0, 0.6, 1.0], [0.0, 0.0, 0.8, 0.0]])


def test_what_is_nan_has_the_gradient_of_an_extreme_that_is() -> None:
    x = [1.0, NAN, 2.0, NAN]
    for name in ("amax", "amin", "max", "min"):
        assert gradients(lambda t: getattr(t, name)(), x) == [[0.0, 0.5, 0.0, 0.5]], name  # noqa: B023
    assert gradients(lambda t: t.median(), x) == [[0.0, 0.5, 0.0, 0.5]]
    assert gradients(lambda t: t.cummax(0).values, x) == [[1.0, 2.0, 0.0, 1.0]]
    index = Tensor([0, 0, 1, 1])
    scattered = gradients(lambda t: Tensor([0.0, 5.0]).scatter_reduce(0, index, t, "amax"), x)
    assert scattered == [[0.0, 1.0, 0.0, 1.0]]


def test_a_detached_self_that_holds_the_extreme_shares_it() -> None:
    itself = (Tensor([1.0, 2.0], requires_grad=True) * 2.0).detach()
    call = lambda t: itself.scatter_reduce(0, Tensor([0, 0, 1]), t, "amax")  # noqa: E731
    assert gradients(call, [2.0, 2.0, 5.0]) == [[np.float32(1 / 3), np.float32(1 / 3), 1.0]]


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_updates_alone_share_where_self_is_left_out(reduce: str) -> None:
    """Updates that equal the start value share the gradient, too; a self that equals them does not (PyTorch counts it)."""
    end, index = {"amax": -INF, "amin": INF}[reduce], Tensor([0, 0, 1, 1, 2])
    call = lambda x, t: x.scatter_reduce(0, index, t, reduce, include_self=False) * Tensor([1.0, 2.0, 3.0, 4.0])  # noqa: E731
    updates = [end, end, end, 2.0, 5.0]
    assert gradients(call, [9.0, 9.0, 5.0, 9.0], updates) == [[0.0, 0.0, 0.0, 4.0], [0.5, 0.5, 0.0, 2.0, 3.0]]
    rows = lambda x, t: x.index_reduce(0, index, t, reduce, include_self=False)  # noqa: E731
    assert gradients(rows, [[9.0]] * 4, [[one] for one in updates])[1] == [[0.5], [0.5], [0.0], [1.0], [1.0]]


@pytest.mark.variants(every=2, first=1)
def test_second_derivatives_at_poles_are_the_limits() -> None:
    """The second derivative is NaN where both sides differ and the first derivative is NaN."""
    both_ends = [-1.0, 1.0]
    for function, points, expected in (
        (pg.asin, both_ends, [-INF, INF]), (pg.acos, both_ends, [INF, -INF]), (pg.acosh, [1.0], [-INF]),
        (pg.erfinv, [*both_ends, 2.0, NAN], [-INF, INF, NAN, NAN]),
        (pg.special.ndtri, [0.0, -0.0, 1.0, -1.0], [-INF, -INF, INF, NAN]),
        (pg.lgamma, [0.0, -0.0, -1.0], [INF, INF, NAN]), (lambda x: x.mvlgamma(2), [0.5], [INF]),
        (pg.i0, [INF, -INF, 800.0], [INF, INF, INF]), (pg.special.i1, [INF, -INF, 800.0], [INF, -INF, INF]),
        (pg.special.entr, [0.0, NAN], [-INF, NAN]),
    ):  # fmt: skip
        first = lambda x: pg.autograd.grad(function(x).sum(), [x], create_graph=True)[0]  # noqa: B023, E731
        assert np.array_equal(gradients(first, points)[0], expected, equal_nan=True), (function, points)
    assert gradients(pg.digamma, [-1.0, -2.0, 0.0]) == [[INF, INF, INF]]


def test_the_divergence_from_0_is_steep() -> None:
    """PyTorch's gradient is NaN."""
    assert gradients(lambda t: F.kl_div(Tensor([0.0, 0.0]), t, reduction="sum"), [0.0, 1.0]) == [[-INF, 1.0]]


def test_losses_of_infinite_distances_have_slopes() -> None:
    x = [INF, -INF, 0.5]
    for loss in (F.smooth_l1_loss, F.huber_loss):
        assert gradients(lambda t: loss(t, Tensor([0.0, 0.0, 0.0]), reduction="sum"), x) == [[1.0, -1.0, 0.5]]  # noqa: B023


def test_the_mean_of_rows_whose_weights_are_0_is_nan_with_smoothing_too() -> None:
    scores, labels, weight = Tensor([[1.0, 2.0], [3.0, 1.0]]), Tensor([0, 0]), Tensor([0.0, 1.0])
    for smoothing in (0.0, 0.1):
        assert math.isnan(F.cross_entropy(scores, labels, weight, label_smoothing=smoothing).item())


# ---- values ----
def test_a_least_common_multiple_wraps_around() -> None:
    a, b = [12, 127, 100, 4], [17, 2, 75, 6]
    expected = [int(np.int64(math.lcm(x, y)).astype(np.int8)) for x, y in zip(a, b)]
    assert Tensor(a, dtype=pg.int8).lcm(Tensor(b, dtype=pg.int8)).tolist() == expected == [-52, -2, 44, 12]


def test_the_pseudoinverse_of_a_symmetric_matrix_reads_its_lower_triangle(rng: np.random.Generator) -> None:
    a = rng.normal(size=(2, 4, 4))
    mine = pg.linalg.pinv(Tensor(a), hermitian=True).numpy()
    assert np.allclose(mine, torch.linalg.pinv(torch.tensor(a), hermitian=True).numpy())


def test_numbers_whose_squares_overflow_are_normalized_to_0() -> None:
    x = Tensor([[1e20, -1e20, 2e20, 0.0]])
    for function in (F.layer_norm, F.rms_norm):
        assert not function(x, (4,)).numpy().any()


def test_the_float_beside_another_moves_with_it() -> None:
    x, y = [0.0, 1.0, -2.5, INF, -1e-45], [1.0, 0.0, -3.0, 0.0, 0.0]
    assert gradients(lambda a, b: a.nextafter(b) + b * 0, x, y)[0] == [1.0, 1.0, 1.0, 0.0, 0.0]
    expected = np.nextafter(np.float32(x), np.float32(y))
    assert Tensor(x, requires_grad=True).nextafter(Tensor(y)).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_made_of_several_steps_is_rounded_once_in_16_bits(dtype: str, rng: np.random.Generator) -> None:
    """PyTorch rounds the quotient before it is rounded down."""
    exact = [torch.tensor(rng.standard_normal((3, 130)) * 9).to(getattr(torch, dtype)).double() for _ in range(3)]
    half_a_unit = {"float16": 2**-11, "bfloat16": 2**-8}[dtype]
    for call in (
        lambda x, y, z: x.lerp(y, 0.3), lambda x, y, z: x.lerp(y, z), lambda x, y, z: x.addcmul(y, z, value=0.3),
        lambda x, y, z: x.addcdiv(y, z, value=0.3), lambda x, y, z: x.round(decimals=1), lambda x, y, z: x // y,
        lambda x, y, z: x.log_softmax(1), lambda x, y, z: x.logsumexp(1),
        lambda x, y, z: functional(x).layer_norm(x, (130,), y[0], z[0]),
        lambda x, y, z: functional(x).group_norm(x, 13, y[0], z[0]),
        lambda x, y, z: functional(x).rms_norm(x, (130,), y[0]),
        lambda x, y, z: functional(x).batch_norm(x, y[0], z[0].abs(), z[1], y[1]),
        lambda x, y, z: functional(x).batch_norm(x, None, None, z[1], y[1], training=True),
    ):  # fmt: skip
        wide, narrow = call(*exact), call(*[Tensor(t.numpy()).to(getattr(pg, dtype)) for t in exact])
        assert narrow.dtype is getattr(pg, dtype)
        np.testing.assert_allclose(narrow.double().numpy(), wide.numpy(), rtol=1.01 * half_a_unit, atol=1e-6)


def test_powers_of_two_do_not_overflow_on_the_way() -> None:
    x, n = np.float32([1e-30, 0.75, 3e38, 1e-40, 0.0]), [200, 2, -250, 140, 400]
    assert Tensor(x).ldexp(Tensor(n)).tolist() == np.ldexp(x, n).tolist()
    assert Tensor([1.5], dtype=pg.float64).ldexp(Tensor([1000])).tolist() == [math.ldexp(1.5, 1000)]
    assert Tensor([1.5], dtype=pg.float16).ldexp(Tensor([2], dtype=pg.int8)).dtype is pg.float16


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_nearest_elements_by_a_factor(axes: int) -> None:
    """In PyTorch pictures alone are doubled exactly; the gradient is that of these values, where PyTorch's is another."""
    line, factors = [0.0, 1.0], (1.0,) * (axes - 1) + (2.3,)
    call = lambda x: F.interpolate(x.reshape(*[1] * (axes + 1), 2), scale_factor=factors).flatten()  # noqa: E731
    theirs = torch.nn.functional.interpolate(torch.tensor(line).reshape(*[1] * (axes + 1), 2), scale_factor=factors)
    mine = call(Tensor(line)).tolist()
    assert mine == theirs.flatten().tolist() == ([0.0, 0.0, 1.0, 1.0] if axes == 2 else [0.0, 0.0, 0.0, 1.0])
    assert gradients(call, line) == [[float(mine.count(value)) for value in line]]


def test_a_place_that_is_nan_is_outside() -> None:
    picture, grid = Tensor([[[[1.0, 2.0]]]]), np.float32([[[[NAN, 0.0], [1.0, 0.0], [INF, 0.0]]]])
    for mode, padding, expected in (
        ("nearest", "zeros", [0.0, 0.0, 0.0]), ("bilinear", "border", [1.0, 2.0, 2.0]),
        ("nearest", "border", [1.0, 2.0, 2.0]), ("bilinear", "reflection", [1.0, 2.0, 1.0]),
    ):  # fmt: skip
        assert F.grid_sample(picture, Tensor(grid), mode, padding, align_corners=False).flatten().tolist() == expected
    border = lambda g: F.grid_sample(picture, g, "bilinear", "border", align_corners=False)  # noqa: E731
    assert gradients(border, grid) == [[[[[0.0, 0.0]] * 3]]]


def test_a_reduction_over_no_axes_reduces_nothing() -> None:
    x = Tensor([[1.0, -2.0]])
    assert all(getattr(x, name)(dim=()).tolist() == x.tolist() for name in ("sum", "mean", "amax", "amin", "nansum"))
    assert torch.tensor([[True, False]]).any(dim=()).shape == (1, 2)  # PyTorch takes all axes in sum, none in any


def test_the_logarithm_of_the_density_at_nan_is_nan() -> None:
    pareto = pg.distributions.Pareto(1.0, 2.0, validate_args=False)
    assert math.isnan(pareto.log_prob(Tensor(NAN)).item()) and math.isnan(pareto.cdf(Tensor(NAN)).item())


# ---- calls ----
@pytest.mark.parametrize("name", ["expand", "view", "reshape", "permute", "broadcast_to"])
def test_a_view_of_the_same_shape_is_another_tensor(name: str) -> None:
    """Its shape and whether it has a gradient are its own."""
    x = pg.ones(2, 3)
    view = getattr(x, name)((0, 1) if name == "permute" else (2, 3))
    view.unsqueeze_(0).requires_grad_()
    assert (x.shape, x.requires_grad) == ((2, 3), False)
    with pg.no_grad():
        view.zero_()
    assert x.sum().item() == 0.0


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "logcumsumexp", "sum", "amax", "softmax", "sort"])
def test_a_number_has_no_axis_1(name: str) -> None:
    with pytest.raises(IndexingError, match="axis 1 is out of range for shape"):
        getattr(Tensor(1.0), name)(1)
    getattr(Tensor(1.0), name)(0), getattr(Tensor(1.0), name)(-1)


@pytest.mark.parametrize("index", [[[0, 1], [2, 3]], [[0], 1], [(0, 1)], [[True, False]]])
def test_a_list_of_lists_has_two_meanings(index: Any) -> None:
    x = Tensor.arange(16).reshape(4, 4)
    with pytest.raises(IndexingError) as error:
        x[index]
    assert "one index per axis in PyTorch, and a single index array in NumPy" in str(error.value)
    assert "x[pg.tensor(rows)] for a single index array, x[tuple(rows)] for one index per axis" in str(error.value)
    rows = [[0, 1], [2, 3]]
    assert x[Tensor(rows)].shape == (2, 2, 4) and x[tuple(rows)].tolist() == [2, 7]


# ---- writes ----
def test_a_write_through_the_view_of_a_transpose_reaches_the_tensor() -> None:
    x = Tensor([[0.0, 1.0], [2.0, 3.0]])
    x.t().view(4)[1] = 9.0
    x.t().reshape(4)[0] = 7.0
    assert x.tolist() == [[0.0, 1.0], [9.0, 3.0]]


def test_what_overlaps_what_is_written_is_read_before() -> None:
    x = Tensor([[0.0, 1.0], [2.0, 3.0]])
    x.add_(x.t())
    y = Tensor([1.0, 2.0, 3.0, 4.0])
    y[1:].add_(y[:-1])
    assert x.tolist() == [[0.0, 3.0], [3.0, 6.0]] and y.tolist() == [1.0, 3.0, 5.0, 7.0]


CHANGES: dict[str, Callable[[Any], Any]] = {  # of a result, where no gradients are recorded
    "no_grad": lambda y: _under_no_grad(lambda: y.mul_(3)),
    "no_grad, a block": lambda y: _under_no_grad(lambda: y[:, 1].fill_(0)),
    "data": lambda y: y.data.clamp_(-1, 1),
    "data, twice": lambda y: y.data.add_(1).mul_(0.5),
    "data, a row": lambda y: y.data[0].neg_(),
    "data is assigned": lambda y: setattr(y, "data", y.data.sign()),
    "minus infinity": lambda y: y.data.masked_fill_(y.data > 1, float("-inf")),
    "detach": lambda y: y.detach().zero_(),
}


def _under_no_grad(change: Callable[[], Any]) -> None:
    with pg.no_grad():
        change()


@pytest.mark.parametrize("name", CHANGES)
def test_a_result_that_is_changed_without_gradients_keeps_its_history(name: str) -> None:
    found = []
    for lib in (torch, pg):
        x = lib.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]], requires_grad=True)
        y = x * 2
        other = y * y
        with torch.no_grad():
            CHANGES[name](y)
        assert y.requires_grad and not y.is_leaf
        (y.softmax(1) * lib.tensor([1.0, 2.0, 3.0])).sum().backward()
        found.append([array.detach().numpy() for array in (y, x.grad)])
        if lib is pg:
            other.sum().backward()  # of the value that was there
            np.testing.assert_allclose(x.grad.numpy() - found[1][1], 8 * x.detach().numpy(), rtol=1e-5)
    for theirs, ours in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_result_that_is_changed_in_a_loop_holds_no_earlier_values() -> None:
    y = Tensor([1.0, 2.0], requires_grad=True) * 2
    for _ in range(4):
        y.data.add_(1)
    first = len(toposort([y.op]))
    for _ in range(4):
        y.data.add_(1)
        y.realize()
    assert len(toposort([y.op])) <= first and y.tolist() == [10.0, 12.0]
