"""Draws of gammas and shares: their derivatives by the concentrations, against sums of integrals, PyTorch and moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.look import watch
from picograd_distributions.gamma_draws import log_gamma_slope, logit_share_slope

D, T = pg.distributions, torch.distributions
RNG = np.random.default_rng(3)
CONCENTRATIONS = np.repeat(np.logspace(-3, 4, 22), 4)
PAIRS = np.stack(np.meshgrid(np.logspace(-3, 4, 8), np.logspace(-3, 4, 8)), -1).reshape(-1, 2).repeat(2, 0)


def psi(x: Any) -> Any:
    return torch.digamma(torch.as_tensor(np.float64(x))).numpy()


def integral(function: Callable[[Any], Any], end: float) -> float:
    """Returns the integral from 0 to `end`: 30 places in each of 200 pieces, which grow from 1e-9 of it."""
    places, weights = np.polynomial.legendre.leggauss(30)
    edges = np.concatenate([[0], np.geomspace(1e-9 * end, end, 200)])
    low, width = edges[:-1, None], np.diff(edges)[:, None]
    return float((function(low + width * (places + 1) / 2) * weights * width / 2).sum())


def gamma_by_definition(a: float, x: float) -> float:
    """Returns -F_a / (x p(x)), with F_a the integral of p(t) (log t - psi(a)) below x, or its negative beyond."""
    delta = np.log(x) - psi(a)
    side = 1 if delta > 0 else -1
    end = np.log1p((60 + 60 * a) / x) + 3 if side > 0 else 60 / a + max(0, np.log(x)) + 3
    return integral(lambda v: np.exp(side * a * v - x * np.expm1(side * v)) * (v + side * delta), end)


def share_by_definition(a: float, b: float, x: float) -> float:
    """Returns the same of Beta(a, b), along the logit of t."""
    delta = np.log(x) - psi(a) + psi(a + b)
    side = 1 if delta > 0 else -1

    def integrand(v: Any) -> Any:
        grown = np.log1p(x * np.expm1(v)) if side < 0 else v + np.log(x + (1 - x) * np.exp(-v))
        return np.exp(a * v - (a + b) * grown) * np.abs(v - grown + delta)

    end = 60 / (b if side > 0 else a) + abs(np.log(x) - np.log1p(-x)) + 3
    return integral(lambda v: integrand(side * v) if side < 0 else integrand(v), end)


def slopes_of_gammas(dtype: Any) -> tuple[Any, Any, Any]:
    a = CONCENTRATIONS.astype(dtype)
    x = np.maximum(RNG.gamma(a), 1e-30).astype(dtype)
    return a, x, pg.Tensor.from_op(log_gamma_slope(pg.Tensor(a).read(), pg.Tensor(x).read())).numpy()


def slopes_of_shares(dtype: Any) -> tuple[Any, Any, Any, Any]:
    a, b = PAIRS.T.astype(dtype)
    x = np.clip(RNG.beta(a.astype(float), b.astype(float)), 1e-30, 1 - 2.0**-20).astype(dtype)
    return a, b, x, pg.Tensor.from_op(logit_share_slope(*(pg.Tensor(each).read() for each in (a, b, x)))).numpy()


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 3e-7)])
def test_slopes_of_gammas_are_those_of_the_definition(dtype: Any, rtol: float) -> None:
    a, x, found = slopes_of_gammas(dtype)
    assert found.dtype == dtype
    wanted = [gamma_by_definition(float(one), float(at)) for one, at in zip(a, x)]
    np.testing.assert_allclose(found, wanted, rtol=rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-10), (np.float32, 2e-6)])
def test_slopes_of_shares_are_those_of_the_definition(dtype: Any, rtol: float) -> None:
    """The difference psi(a + b) - psi(a) has lost digits where b is far below a: they are those of a / b."""
    a, b, x, found = slopes_of_shares(dtype)
    wanted = np.array([share_by_definition(float(one), float(two), float(at)) for one, two, at in zip(a, b, x)])
    off = np.abs(found / wanted - 1)
    lost = 4e-14 * np.maximum(1, a.astype(float) / b)
    assert np.all(off < rtol + lost), off.max()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_slopes_are_pytorchs_as_far_as_its_polynomials_reach(dtype: Any) -> None:
    """PyTorch's are right to 1e-3 for gammas and for shares in the middle; in corners to 5e-2, in float32 not at all."""
    a, x, found = slopes_of_gammas(dtype)
    theirs = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(x)).numpy()
    np.testing.assert_allclose(found * x, theirs, rtol=1e-3)
    a, b, x, found = slopes_of_shares(dtype)
    theirs = torch._dirichlet_grad(torch.tensor(x), torch.tensor(a), torch.tensor(a + b)).numpy()
    middle = (np.minimum(a, b) > 0.05) & (np.maximum(a, b) < 200)
    assert middle.sum() > 15
    np.testing.assert_allclose((found * x)[middle], theirs[middle], rtol=2e-3)
    if dtype is np.float64:
        np.testing.assert_allclose(found * x, theirs, rtol=6e-2)


def test_gradients_of_given_draws_are_pytorchs() -> None:
    """Both libraries' whole backward of Dirichlet and Gamma, of the same draws."""
    a = RNG.uniform(0.2, 30, (4, 3))
    grad = RNG.standard_normal((4, 3))
    ours = pg.tensor(a, requires_grad=True)
    drawn = D.Dirichlet(ours).rsample()
    drawn.backward(pg.tensor(grad))
    leaf = torch.tensor(a, requires_grad=True)
    given = [torch.tensor(drawn.detach().numpy()), leaf, torch.tensor(grad)]
    wanted = torch.distributions.dirichlet._Dirichlet_backward(*given)
    np.testing.assert_allclose(ours.grad.numpy(), wanted.detach().numpy(), rtol=1e-3, atol=1e-6)
    ours.grad = None
    drawn = D.Gamma(ours, 2.0).rsample()
    drawn.backward(pg.tensor(grad))
    wanted = torch._standard_gamma_grad(torch.tensor(a), torch.tensor(drawn.detach().numpy() * 2)).numpy() / 2 * grad
    np.testing.assert_allclose(ours.grad.numpy(), wanted, rtol=5e-4)


MEANS: dict[str, Callable[[Any], tuple[Any, Any]]] = {  # a distribution of a number, and an expectation's argument
    "Gamma": lambda a: (D.Gamma(a, 2.0), lambda x: x), "Chi2": lambda a: (D.Chi2(a), lambda x: x),
    "InverseGamma": lambda a: (D.InverseGamma(a + 4, 2.0), lambda x: x),
    "Beta": lambda a: (D.Beta(a, 2.0), lambda x: x),
    "Dirichlet": lambda a: (D.Dirichlet(pg.stack([a, a * 0 + 0.5, a * 0 + 2])), lambda x: x[..., 0]),
    "StudentT": lambda a: (D.StudentT(a + 6, 0.5, 1.5), lambda x: (x - 0.5) ** 2),
    "FisherSnedecor": lambda a: (D.FisherSnedecor(a + 2, a + 12), lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("start", [0.3, 3.0])
def test_gradients_of_draws_average_to_that_of_the_expectation(name: str, start: float) -> None:
    """The mean of 4,000 gradients is within 4.5 of its deviations, of fixed seeds."""
    pg.manual_seed(8)
    each = pg.tensor(np.full(4000, start), requires_grad=True)
    one = pg.tensor(start, dtype=pg.float64, requires_grad=True)
    distribution, _ = MEANS[name](one)
    wanted = distribution.variance if name == "StudentT" else distribution.mean
    (wanted if wanted.ndim == 0 else wanted[0]).backward()
    drawing, value = MEANS[name](each) if name != "Dirichlet" else (
        D.Dirichlet(pg.stack([each, each * 0 + 0.5, each * 0 + 2], -1)), lambda x: x[..., 0]
    )  # fmt: skip
    assert drawing.has_rsample
    value(drawing.rsample()).sum().backward()
    found = each.grad.numpy()
    assert abs(found.mean() - one.grad.item()) < 4.5 * found.std() / 4000**0.5


def test_gradients_of_draws_are_taken_in_jit_and_vmap() -> None:
    a = pg.tensor([0.2, 1.0, 5.0, 300.0], dtype=pg.float64)

    def loss(a: pg.Tensor) -> pg.Tensor:
        return D.Gamma(a, 1.0).rsample().log().sum() + D.Dirichlet(a).rsample().square().sum()

    grad = pg.func.grad(loss)
    pg.manual_seed(5)
    wanted = grad(a).numpy()
    for run in (pg.jit(grad), lambda a: pg.vmap(grad, randomness="same")(a[None])[0]):
        pg.manual_seed(5)
        np.testing.assert_allclose(run(a).numpy(), wanted, rtol=1e-9)
    many = pg.vmap(grad, randomness="different")(pg.stack([a, a]))
    assert not np.allclose(many[0].numpy(), many[1].numpy())


def test_the_second_derivative_is_that_of_the_first() -> None:
    """By differences of step 1e-5 along a, of the quantile: x moves by its own derivative."""
    a, x = (np.array(each) for each in ([0.3, 2.5, 40.0, 0.01], [0.2, 3.0, 35.0, 0.5]))

    def slope(a: Any, x: Any) -> Any:
        return log_gamma_slope(pg.Tensor(a).read(), pg.Tensor(x).read())

    step = 1e-5 * a
    rate = pg.Tensor.from_op(slope(a, x)).numpy()
    ends = [pg.Tensor.from_op(slope(a + s, x * np.exp(rate * s))).numpy() for s in (step, -step)]
    wanted = (ends[0] - ends[1]) / (2 * step)
    at, drawn = pg.tensor(a, requires_grad=True), pg.tensor(x, requires_grad=True)
    total = pg.Tensor.from_op(log_gamma_slope(at.read(), drawn.read())).sum()
    by_a, by_x = pg.autograd.grad(total, (at, drawn))
    np.testing.assert_allclose((by_a + by_x * drawn * pg.tensor(rate)).detach().numpy(), wanted, rtol=1e-5)


def test_small_concentrations_have_shares_where_all_gammas_are_zero() -> None:
    pg.manual_seed(0)
    drawn = D.Beta(pg.full((4000,), 1e-3), 1e-3).sample().numpy()
    assert abs((drawn > 0.5).mean() - 0.5) < 4.5 * 0.5 / 4000**0.5
    assert ((drawn > 1e-6) & (drawn < 1 - 1e-6)).mean() < 0.05  # by the density: 0.028


def test_a_draw_costs_no_derivative_that_nobody_asks_for() -> None:
    counts = []
    for a in (pg.ones(1000), pg.ones(1000, requires_grad=True)):
        draw = pg.jit(lambda a=a: D.Gamma(a, 1.0, validate_args=False).rsample().detach())
        draw().tolist()
        with watch() as seen:
            draw().tolist()
        counts.append(seen.kernels)
    assert counts[0] == counts[1] <= 4
