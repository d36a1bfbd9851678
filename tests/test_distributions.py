"""Distributions against PyTorch's: densities, moments, divergences and their gradients; draws by their moments."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.look import watch
from tests.calls import calls
from tests.helpers import same_value

D, T = pg.distributions, torch.distributions
A, B = np.array([0.5, 1.5, 2.0]), np.array([0.7, 1.0, 3.0])
P = np.array([0.2, 0.5, 0.9])
ROWS = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]])
# name: parameters, values
CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "Normal": ({"loc": A, "scale": B}, np.array([[-1.0], [2.0]])),
    "LogNormal": ({"loc": A, "scale": B}, np.array([[0.5], [2.0]])),
    "HalfNormal": ({"scale": B}, np.array([[0.5], [2.0]])),
    "Uniform": ({"low": -A, "high": B}, np.array([[-0.4], [0.6]])),
    "Exponential": ({"rate": B}, np.array([[0.5], [2.0]])),
    "Laplace": ({"loc": A, "scale": B}, np.array([[-1.0], [2.5]])),
    "Cauchy": ({"loc": A, "scale": B}, np.array([[-1.0], [2.5]])),
    "HalfCauchy": ({"scale": B}, np.array([[0.5], [2.0]])),
    "Gumbel": ({"loc": A, "scale": B}, np.array([[-1.0], [2.5]])),
    "Pareto": ({"scale": A, "alpha": B + 2.5}, np.array([[2.5], [4.0]])),
    "Weibull": ({"scale": A, "concentration": B}, np.array([[0.5], [2.0]])),
    "Bernoulli": ({"probs": P}, np.array([[0.0], [1.0]])),
    "Geometric": ({"probs": P}, np.array([[0.0], [3.0]])),
    "Binomial": ({"total_count": np.array([3.0, 4.0, 5.0]), "probs": P}, np.array([[0.0], [3.0]])),
    "Poisson": ({"rate": B}, np.array([[0.0], [3.0]])),
    "NegativeBinomial": ({"total_count": np.array([3.0, 4.5, 1.0]), "probs": P}, np.array([[0.0], [3.0]])),
    "Gamma": ({"concentration": B, "rate": A}, np.array([[0.5], [2.0]])),
    "Chi2": ({"df": B + 1}, np.array([[0.5], [2.0]])),
    "InverseGamma": ({"concentration": B + 2.5, "rate": A}, np.array([[0.5], [2.0]])),
    "Beta": ({"concentration1": B, "concentration0": A + 1}, np.array([[0.2], [0.7]])),
    "Dirichlet": ({"concentration": ROWS * 4 + 0.8}, np.array([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])),
    "StudentT": ({"df": B + 4, "loc": A, "scale": B}, np.array([[-1.0], [2.5]])),
    "FisherSnedecor": ({"df1": B + 2.5, "df2": A + 8}, np.array([[0.5], [2.5]])),
    "Categorical": ({"probs": ROWS}, np.array([2, 0])),
    "OneHotCategorical": ({"probs": ROWS}, np.eye(3)[[2, 0]]),
    "Multinomial": ({"total_count": 4, "probs": ROWS}, np.array([[1.0, 1.0, 2.0], [4.0, 0.0, 0.0]])),
    "Kumaraswamy": ({"concentration1": B + 0.5, "concentration0": A + 1}, np.array([[0.2], [0.7]])),
    "GeneralizedPareto": (  # in float32, for PyTorch compares k with a float32
        {"loc": A.astype("f4"), "scale": B.astype("f4"), "concentration": np.array([0.3, -0.4, 0.1], "f4")},
        np.array([[2.1], [3.0]], "f4"),
    ),
    "ContinuousBernoulli": ({"probs": np.array([0.2, 0.50001, 0.9])}, np.array([[0.2], [0.7]])),
    "VonMises": ({"loc": A, "concentration": B}, np.array([[-1.0], [2.5]])),
    "LogisticNormal": ({"loc": ROWS, "scale": ROWS + 0.5}, np.array([[0.2, 0.3, 0.4, 0.1]])),
    "LowRankMultivariateNormal": ({"loc": A, "cov_factor": ROWS.T.copy(), "cov_diag": B}, np.array([[1.0, 0.0, 2.0]])),
    "LKJCholesky": ({"dim": 3, "concentration": A}, np.array([[[1.0, 0, 0], [0.6, 0.8, 0], [0.48, 0.64, 0.6]]])),
    "Wishart": ({"df": B + 4, "scale_tril": np.tril(np.ones((3, 3))) / 9 + np.diag(B) / 4}, np.eye(3) * 2 + 0.5),
    "MultivariateNormal": ({"loc": A, "scale_tril": np.tril(np.ones((3, 3))) + np.diag(B)}, np.array([[1.0, 0.0, 2.0]])),
}  # fmt: skip
LOGITS: dict[str, tuple[dict[str, Any], Any]] = {
    f"{name} of logits": ({"logits" if key == "probs" else key: np.log(value) if key == "probs" else value
                           for key, value in given.items()}, values)
    for name, (given, values) in CASES.items() if "probs" in given
}  # fmt: skip
ALL = CASES | LOGITS


@pytest.fixture(autouse=True)
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")  # no kernel is at stake


def both(name: str) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """Returns the distribution in both libraries, and its parameters."""
    mine, other = ({key: leaf(of, value) for key, value in ALL[name][0].items()} for of in (pg.tensor, torch.tensor))
    kind = name.split()[0]
    return getattr(D, kind)(**mine), getattr(T, kind)(**other, validate_args=False), mine, other


def leaf(of: Any, value: Any) -> Any:
    return of(value, requires_grad=True) if isinstance(value, np.ndarray) else value


def has(distribution: Any, name: str) -> bool:
    try:
        value = getattr(distribution, name)
        value() if callable(value) else None
    except (NotImplementedError, AttributeError, pg.ArgumentError):
        return False
    return True


@pytest.mark.parametrize("name", ALL)
def test_a_distribution_and_its_gradients_are_pytorchs(name: str) -> None:
    ours, theirs, mine, other = both(name)
    assert (ours.batch_shape, ours.event_shape) == (tuple(theirs.batch_shape), tuple(theirs.event_shape))
    pairs = [(ours.log_prob(pg.tensor(ALL[name][1])), theirs.log_prob(torch.tensor(ALL[name][1])))]
    for asked in ("mean", "variance", "stddev", "mode", "entropy", "perplexity"):
        here = has(ours, asked)
        assert has(theirs, asked) or not here, asked
        if here and (name, asked) != ("Kumaraswamy", "mode"):  # PyTorch's is NaN where there is one
            found = [getattr(one, asked) for one in (ours, theirs)]
            found = [one() if callable(one) else one for one in found]
            pairs.append(tuple(one.detach() for one in found) if asked == "mode" else tuple(found))
    for asked, at in (("cdf", ALL[name][1]), ("icdf", np.array([[0.2], [0.7]]))):
        try:
            wanted = getattr(theirs, asked)(torch.tensor(at))
        except NotImplementedError:
            continue
        here = getattr(ours, asked)(pg.tensor(at))
        by_order = name in ("Gamma", "Chi2", "InverseGamma")  # for which it has no gradient
        pairs.append((here.detach(), wanted.detach()) if by_order else (here, wanted))
    sums: list[Any] = [0.0, 0.0]
    for pair in pairs:
        same_value(pair[0].detach(), pair[1].detach(), rtol=2e-5)
        for i, one in enumerate(pair):
            if one.requires_grad and bool(one.isfinite().all()):
                sums[i] = sums[i] + (one * one).sum()
    for one in sums:
        one.backward()
    for key in mine:
        if isinstance(mine[key], pg.Tensor):
            grads = [one[key].grad if key != "scale_tril" else one[key].grad.tril() for one in (mine, other)]
            same_value(*grads, rtol=1e-4)


# Means of 4,000 draws are not near, or are others: test_draws_of_angles_shares_and_matrices...
FAR = (
    "Cauchy", "HalfCauchy", "LogNormal", "FisherSnedecor", "VonMises", "LogisticNormal", "LKJCholesky", "Wishart",
    "GeneralizedPareto",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in ALL if name not in FAR])
def test_draws_have_the_moments_that_the_formulas_say(name: str) -> None:
    pg.manual_seed(4)
    distribution, theirs, _, _ = both(name)
    drawn = distribution.sample((4000,))
    assert drawn.shape == tuple(theirs.sample((4000,)).shape) and not drawn.requires_grad
    assert distribution.sample().shape == distribution.batch_shape + distribution.event_shape
    if name.startswith("Categorical"):
        drawn, wanted = pg.nn.functional.one_hot(drawn, 3).double(), distribution.probs
        spread = (wanted * (1 - wanted)).sqrt()
    else:
        wanted, spread = distribution.mean, distribution.stddev
    off = (drawn.mean(0) - wanted).abs() / (spread / 4000**0.5)
    assert float(off.max()) < 4.5


def test_draws_of_angles_shares_and_matrices_follow_their_formulas() -> None:
    """Means within 4.5 deviations of 4,000 draws, distances of distribution functions within 1.95 / sqrt(4,000)."""
    pg.manual_seed(6)
    for k in (1e-7, 0.3, 4.0, 1e4):
        angles = D.VonMises(pg.full((4000,), 1.0).double(), k)
        drawn = angles.sample()
        found, wanted = (drawn - 1).cos(), 1 - angles.variance[0]
        assert abs(float(found.mean() - wanted)) < 4.5 * float(found.std()) / 4000**0.5
        assert abs(float((drawn - 1).sin().mean())) < 4.5 * float((drawn - 1).sin().std()) / 4000**0.5 + 1e-12
        assert float(drawn.min()) >= -np.pi and float(drawn.max()) < np.pi
    wishart, _, _, _ = both("Wishart")
    drawn = wishart.sample((4000,))
    off = (drawn.mean(0) - wishart.mean).abs() / (wishart.stddev / 4000**0.5)
    assert float(off.max()) < 4.5 and wishart.rsample((2,)).requires_grad
    excess = both("GeneralizedPareto")[0]
    for values in (1 - excess.cdf(excess.sample((4000,))).detach().numpy().T, *correlations()):
        distance = np.abs(np.sort(values, -1) - np.arange(4000) / 4000).max()
        assert distance < 1.95 / 4000**0.5


def correlations() -> list[Any]:
    """Returns for each correlation of a matrix of LKJ the part of its distribution below it: (r + 1) / 2 is of a Beta."""
    eta, size = 1.5, 4
    lower = D.LKJCholesky(size, eta).sample((4000,))
    assert bool(D.constraints.corr_cholesky.check(lower).all())
    matrices = (lower @ lower.mT).numpy().astype(np.float64)
    shares = pg.tensor(np.stack([(matrices[:, i, j] + 1) / 2 for i in range(size) for j in range(i)]))
    width = eta - 1 + size / 2
    grid = np.linspace(0, 1, 20001)
    density = (grid * (1 - grid)) ** (width - 1)
    below = np.cumsum(density) / density.sum()
    return list(np.interp(shares.numpy(), grid, below))


def test_gradients_flow_through_draws_where_they_can() -> None:
    loc = pg.zeros(3, requires_grad=True)
    draw = D.Normal(loc, 2.0).rsample((5,))
    draw.sum().backward()
    assert loc.grad is not None and loc.grad.tolist() == [5.0] * 3
    with pytest.raises(pg.ArgumentError) as told:
        D.Poisson(2.0).rsample()
    assert told.value.fact == "rsample: no gradient flows through a draw of Poisson."
    assert told.value.hint == "(distribution.log_prob(distribution.sample()) * reward).mean() has one."


PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Normal": ({"loc": A, "scale": B}, {"loc": B, "scale": A}), "Laplace": ({"loc": A, "scale": B}, {"loc": B, "scale": A}),
    "LogNormal": ({"loc": A, "scale": B}, {"loc": B, "scale": A}), "HalfNormal": ({"scale": A}, {"scale": B}),
    "Exponential": ({"rate": A}, {"rate": B}), "Gumbel": ({"loc": A, "scale": B}, {"loc": B, "scale": A}),
    "Cauchy": ({"loc": A, "scale": B}, {"loc": B, "scale": A}),
    "Uniform": ({"low": -A, "high": B}, {"low": -A - 1, "high": np.array([1.0, 0.5, 4.0])}),
    "Bernoulli": ({"probs": P}, {"probs": P[::-1].copy()}), "Geometric": ({"probs": P}, {"probs": P[::-1].copy()}),
    "Binomial": ({"total_count": np.array(3.0), "probs": P}, {"total_count": np.array(3.0), "probs": P[::-1].copy()}),
    "Poisson": ({"rate": A}, {"rate": B}), "Categorical": ({"probs": ROWS}, {"probs": ROWS[::-1].copy()}),
    "OneHotCategorical": ({"probs": ROWS}, {"logits": ROWS}),
    "Gamma": ({"concentration": A, "rate": B}, {"concentration": B, "rate": A}),
    "Beta": ({"concentration1": A, "concentration0": B}, {"concentration1": B, "concentration0": B}),
    "Dirichlet": ({"concentration": ROWS}, {"concentration": ROWS + 1}), "Chi2": ({"df": A}, {"df": B}),
    "MultivariateNormal": ({"loc": A, "scale_tril": np.diag(B)}, {"loc": B, "covariance_matrix": np.eye(3) + 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_divergences_are_pytorchs(name: str) -> None:
    found = []
    for library, of in ((D, pg.tensor), (T, torch.tensor)):
        p, q = (getattr(library, name)(**{key: of(value) for key, value in given.items()}) for given in PAIRS[name])
        found.append(library.kl_divergence(p, q))
    same_value(*found)


# Each pair of families that PyTorch has a formula for, with uniform distributions in and around [0, 1].
UNIFORM = [(-A, B * 1.1), (P / 3, 0.5 + P / 3), (-A, B + 2)]
FORMULAS = sorted({(p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY})


@pytest.mark.parametrize("pair", [pair for pair in FORMULAS if {*pair} <= CASES.keys()], ids=" ".join)
def test_divergences_of_two_families_are_pytorchs(pair: tuple[str, str]) -> None:
    for low, high in UNIFORM if "Uniform" in pair else UNIFORM[:1]:
        found = []
        for library, of in ((D, pg.tensor), (T, torch.tensor)):
            p, q = (
                made(library, of, name, {"low": low, "high": high} if name == "Uniform" else given, validate_args=False)
                for name, given in zip(pair, different(pair))
            )
            found.append(library.kl_divergence(p, q))
        same_value(*found, rtol=2e-5)


def different(pair: tuple[str, str]) -> list[dict[str, Any]]:
    """Returns parameters of both, of one family others for the second."""
    p, q = (CASES[name][0] for name in pair)
    if pair[0] != pair[1] or "total_count" in p:
        return [p, q]
    return [p, {key: value[::-1].copy() if value.ndim == 1 else value for key, value in q.items()}]


@pytest.mark.parametrize("name", CASES)
def test_every_public_name_of_pytorchs_class_is_here(name: str) -> None:
    """Attributes, flags, arguments and constraints; what has a value in PyTorch has one here."""
    ours, theirs = both(name)[:2]
    assert {n for n in dir(type(theirs)) if n[0] != "_"} <= {n for n in (*dir(type(ours)), *vars(ours)) if n[0] != "_"}
    assert {*signature(type(theirs)).parameters} <= {*signature(type(ours)).parameters}
    assert ours.arg_constraints.keys() == theirs.arg_constraints.keys()
    assert (ours.has_rsample, ours.has_enumerate_support) == (theirs.has_rsample, theirs.has_enumerate_support)
    assert ours.support.event_dim == theirs.support.event_dim
    for asked in ("entropy", "enumerate_support", "mean", "mode", "variance", "stddev"):
        assert has(ours, asked) == has(theirs, asked), asked


def test_every_public_name_of_pytorchs_pages_is_here() -> None:
    assert {n for n in T.__all__ if not hasattr(D, n)} == {"ExponentialFamily"}
    for page in ("constraints", "transforms", "utils"):
        assert not [n for n in getattr(T, page).__all__ if not hasattr(getattr(D, page), n)]
    assert not [n for n in dir(T.transforms.Transform) if n[0] != "_" and not hasattr(D.Transform, n)]


def test_every_pair_of_pytorchs_has_a_formula() -> None:
    from picograd_distributions.divergence import FORMULAS as ours

    mine = {(p.__name__, q.__name__) for p, q in ours}
    assert {*FORMULAS} - mine == {("ExponentialFamily", "ExponentialFamily")}


def test_several_numbers_as_one_event_and_functions_of_draws() -> None:
    for library, of in ((D, pg.tensor), (T, torch.tensor)):
        base = library.Independent(library.Normal(of(ROWS), 1.0), 1)
        other = library.Independent(library.Normal(of(ROWS) * 0, 2.0), 1)
        squashed = library.TransformedDistribution(
            library.Normal(of(A), of(B)), [library.AffineTransform(of(0.5), of(2.0)), library.TanhTransform()]
        )
        results = [base.log_prob(of(ROWS) + 1), base.entropy(), library.kl_divergence(base, other),
                   squashed.log_prob(of([[-0.5], [0.25]])), squashed.base_dist.mean]  # fmt: skip
        exp = library.TransformedDistribution(library.Normal(of(A), of(B)), library.ExpTransform())
        results += [exp.log_prob(of([[0.5], [2.0]])), exp.cdf(of([[0.5], [2.0]]))]
        assert tuple(base.event_shape) == (3,) and tuple(base.expand((4, 2)).batch_shape) == (4, 2)
        if library is D:
            ours = results
    for mine, theirs in zip(ours, results):
        same_value(mine.double(), theirs.double())


TRANSFORMS = {
    "affine": lambda D, of: D.AffineTransform(of(0.5), of(-2.0)),
    "exp": lambda D, of: D.ExpTransform(),
    "sigmoid": lambda D, of: D.SigmoidTransform(),
    "tanh": lambda D, of: D.TanhTransform(),
    "softplus": lambda D, of: D.SoftplusTransform(),
    "power": lambda D, of: D.PowerTransform(of(-1.5)),
    "cumulative": lambda D, of: D.CumulativeDistributionTransform(D.Normal(of(0.5), of(2.0))),
    "one after the other": lambda D, of: D.ComposeTransform([D.SoftplusTransform(), D.PowerTransform(of(2.0))]),
    "none": lambda D, of: D.ComposeTransform([]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_and_their_inverses_and_slopes(name: str) -> None:
    results = []
    for library, of in ((D, pg.tensor), (T, torch.tensor)):
        transform, x = TRANSFORMS[name](library, of), of([0.25, 1.0, 3.0])
        y = transform(x)
        results.append([y, transform.inv(y), transform.log_abs_det_jacobian(x, y) + 0 * x])
    for mine, theirs in zip(*results):
        same_value(mine, theirs)


def test_a_policy_gradient_inside_jit() -> None:
    logits = pg.zeros(4, requires_grad=True)
    optimizer = pg.optim.SGD([logits], lr=1.0)

    @pg.jit
    def step() -> pg.Tensor:
        policy = D.Categorical(logits=logits)
        action = policy.sample((64,))
        reward = (action == 2).float()
        loss = -(policy.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return reward.mean()

    pg.manual_seed(0)
    rewards = [step().item() for _ in range(40)]
    assert rewards[-1] > 0.9 > rewards[0]


def test_errors_and_text() -> None:
    for call, fact in (
        (lambda: D.Bernoulli(), "Bernoulli: give one of probs and logits."),
        (lambda: D.Categorical(pg.tensor(1.0)), "Categorical: needs an axis of classes, got a tensor without axes."),
        (lambda: D.Cauchy(0.0, 1.0).perplexity and D.Multinomial(2, pg.ones(2)).mode,
         "mode: Multinomial has no formula for it."),
        (lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.Poisson(1.0)),
         "kl_divergence: there is no formula for Normal and Poisson."),
    ):  # fmt: skip
        with pytest.raises(pg.ArgumentError) as told:
            call()
        assert told.value.fact == fact
        assert isinstance(told.value, NotImplementedError) == ("no formula" in fact)
    assert repr(D.Normal(0.0, pg.ones(3))) == "Normal(loc: shape (3,), scale: shape (3,))"
    assert repr(D.Normal(0.0, 2.0)) == "Normal(loc: 0.0, scale: 2.0)"


MADE_OF_CLASSES = {
    "mixture of numbers": lambda d, of: d.MixtureSameFamily(
        d.Categorical(logits=of(ROWS)), d.Normal(of(ROWS * 3), of(ROWS + 0.5))
    ),
    "mixture of vectors": lambda d, of: d.MixtureSameFamily(
        d.Categorical(of(P)), d.Independent(d.Laplace(of(ROWS.T.copy()), of(ROWS.T + 0.3)), 1)
    ),
    "relaxed bit": lambda d, of: d.RelaxedBernoulli(of(np.array(0.7)), logits=of(A)),
    "relaxed class": lambda d, of: d.RelaxedOneHotCategorical(of(np.array(0.7)), probs=of(ROWS)),
}
VALUES = {
    "mixture of numbers": np.array([0.3, -1.0]), "mixture of vectors": np.array([0.2, -0.4]),
    "relaxed bit": np.array([0.1, 0.5, 0.95]), "relaxed class": np.array([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]),
}  # fmt: skip


@pytest.mark.parametrize("name", MADE_OF_CLASSES)
def test_mixtures_and_relaxed_draws_are_pytorchs(name: str) -> None:
    found = []
    for library, tensor in ((D, pg.tensor), (T, torch.tensor)):
        leaves: list[Any] = []

        def of(array: Any, tensor: Any = tensor, leaves: list[Any] = leaves) -> Any:
            leaves.append(tensor(array, requires_grad=True))
            return leaves[-1]

        made = MADE_OF_CLASSES[name](library, of)
        results = [made.log_prob(tensor(VALUES[name]))]
        if name.startswith("mixture"):
            results += [made.mean, made.variance, *([made.cdf(tensor(VALUES[name]))] if not made.event_shape else [])]
            results.append(made.expand((3, *made.batch_shape)).log_prob(tensor(VALUES[name])))
        sum((one * one).sum() for one in results).backward()
        shapes = [tuple(made.batch_shape), tuple(made.event_shape), tuple(made.sample((5, 4)).shape), made.has_rsample]
        found.append((results, [leaf.grad for leaf in leaves], shapes))
    (ours, mine, shapes), (theirs, other, their_shapes) = found
    assert shapes == their_shapes
    for one, reference in zip([*ours, *mine], [*theirs, *other]):
        same_value(one.detach(), reference.detach(), rtol=1e-4)


def test_draws_of_mixtures_and_relaxed_ones_follow_their_formulas() -> None:
    pg.manual_seed(2)
    mixture = MADE_OF_CLASSES["mixture of vectors"](D, pg.tensor)
    off = (mixture.sample((4000,)).mean(0) - mixture.mean) / (mixture.stddev / 4000**0.5)
    assert float(off.abs().max()) < 4.5
    relaxed = D.RelaxedBernoulli(0.1, pg.tensor(P)).sample((4000,))  # P(x > 1/2) is the probability, at any temperature
    assert float(((relaxed > 0.5).float().mean(0) - pg.tensor(P)).abs().max()) < 0.04
    classes = D.RelaxedOneHotCategorical(0.1, pg.tensor(ROWS)).sample((4000,)).argmax(-1)
    assert float((pg.nn.functional.one_hot(classes, 3).float().mean(0) - pg.tensor(ROWS)).abs().max()) < 0.04


def test_no_gradient_flows_from_a_sample() -> None:
    for name in ALL:
        assert not both(name)[0].sample((2,)).requires_grad, name


def test_draws_of_gammas_are_distributed_as_the_formula_says() -> None:
    pg.manual_seed(1)
    for a in (0.1, 0.7, 1.0, 3.0, 40.0):
        drawn = D.Gamma(pg.tensor(a, dtype=pg.float64), 2.0).sample((4000,))
        below = torch.special.gammainc(torch.tensor(a, dtype=torch.float64), 2.0 * torch.tensor(drawn.numpy()))
        distance = (below.sort().values - torch.arange(4000) / 4000).abs().max().item()
        assert distance < 1.95 / 4000**0.5  # Kolmogorov, Smirnov: exceeded once in 1,000


# ---- what parameters and values may be ----
WRONG: dict[str, Any] = {  # a parameter that is wrong, of the distributions that have one of this name
    "scale": -1.0, "rate": -0.5, "alpha": 0.0, "concentration": -1.0, "concentration1": 0.0, "concentration0": -2.0,
    "df": -1.0, "df1": 0.0, "df2": -3.0, "loc": np.nan, "high": -9.0, "probs": 1.5, "logits": np.nan,
}  # fmt: skip
OUTSIDE: dict[str, float] = {
    "LogNormal": -1.0, "HalfNormal": -0.5, "Uniform": 7.0, "Exponential": -1.0, "HalfCauchy": -1.0, "Pareto": 0.1,
    "Weibull": -1.0, "Bernoulli": 0.5, "Geometric": -1.0, "Binomial": 9.0, "Poisson": 1.5, "NegativeBinomial": -1.0,
    "Gamma": -1.0, "Chi2": -1.0, "InverseGamma": -1.0, "Beta": 1.5, "Categorical": 3.0, "Normal": np.nan, "Cauchy": np.nan,
    "StudentT": np.nan, "FisherSnedecor": -1.0, "Laplace": np.nan, "Gumbel": np.nan,
}  # fmt: skip


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")  # whose memory the host knows


def made(library: Any, of: Any, name: str, given: dict[str, Any], **more: Any) -> Any:
    values = {key: of(value) if isinstance(value, np.ndarray) else value for key, value in given.items()}
    return getattr(library, name)(**values, **more)


@pytest.mark.usefixtures("on_the_cpu")
def test_wrong_parameters_are_told_at_once_as_by_pytorch() -> None:
    tried = 0
    for name, (given, _) in ALL.items():
        kind = name.split()[0]
        assert {*made(D, pg.tensor, kind, given).parameters} >= {*given} - {"total_count", "dim"}, name
        for key in given.keys() & WRONG.keys():
            wrong = {**given, key: np.array(given[key])}
            wrong[key].flat[-1] = WRONG[key] if kind not in ("Categorical", "OneHotCategorical", "Multinomial") else -1.0
            if key == "logits":
                wrong[key].flat[-1] = np.nan
            if (kind, key) in (("ContinuousBernoulli", "probs"), ("GeneralizedPareto", "concentration")):
                continue  # PyTorch takes the first, and the second may be negative
            for library, of in ((D, pg.tensor), (T, torch.tensor)):
                with pytest.raises(ValueError):
                    made(library, of, kind, wrong)
            made(D, pg.tensor, kind, wrong, validate_args=False)
            with pytest.raises(pg.ArgumentError, match=rf"^{kind}: {key} must be .*, got .*\n  at test_distributions.py"):
                made(D, pg.tensor, kind, wrong)
            tried += 1
    assert tried > 35


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("name", OUTSIDE)
def test_values_outside_of_the_support_are_told_as_by_pytorch(name: str) -> None:
    for library, of in ((D, pg.tensor), (T, torch.tensor)):
        distribution = made(library, of, name, CASES[name][0])
        values = np.broadcast_to(CASES[name][1], (2, *distribution.batch_shape)).astype(np.float64)
        distribution.log_prob(of(values))
        values = values.copy()
        values[-1, -1] = OUTSIDE[name]
        with pytest.raises(ValueError):
            distribution.log_prob(of(values))
    made(D, pg.tensor, name, CASES[name][0], validate_args=False).log_prob(pg.tensor(values))
    with pytest.raises(pg.ArgumentError, match=rf"^{name}: value must be .*, got "):
        made(D, pg.tensor, name, CASES[name][0]).log_prob(pg.tensor(values))


MATRICES = np.array([[[2.0, 0], [1, 1]], [[2, 1], [1, 1]], [[1, 2], [2, 1]], [[1, 0], [3, -1]]])
NUMBERS = np.array([-1.0, -0.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.inf, -np.inf, np.nan])
VECTORS = np.array([[0.5, 0.5], [1.0, 0.0], [0.0, 0.0], [2.0, 1.0], [-0.5, 1.5], [1.0, 1.0], [0.25, 0.7]])
CONSTRAINTS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("real", (), NUMBERS), ("positive", (), NUMBERS), ("nonnegative", (), NUMBERS), ("unit_interval", (), NUMBERS),
    ("boolean", (), NUMBERS), ("nonnegative_integer", (), NUMBERS[:-3]), ("positive_integer", (), NUMBERS[:-3]),
    ("greater_than", (0.5,), NUMBERS), ("greater_than_eq", (0.5,), NUMBERS), ("less_than", (0.5,), NUMBERS),
    ("interval", (0.0, 1.5), NUMBERS), ("half_open_interval", (0.0, 1.5), NUMBERS), ("integer_interval", (0, 2), NUMBERS),
    ("simplex", (), VECTORS), ("one_hot", (), VECTORS), ("real_vector", (), VECTORS), ("multinomial", (2,), VECTORS[1:4]),
    ("lower_cholesky", (), MATRICES), ("symmetric", (), MATRICES), ("positive_definite", (), MATRICES[1:3]),
]  # fmt: skip


def test_constraints_are_pytorchs() -> None:
    for name, bounds, values in CONSTRAINTS:
        ours, theirs = getattr(D.constraints, name), getattr(T.constraints, name)
        ours, theirs = (ours(*bounds), theirs(*bounds)) if bounds else (ours, theirs)
        assert (ours.event_dim, ours.is_discrete) == (theirs.event_dim, theirs.is_discrete), name
        assert ours.check(pg.tensor(values)).tolist() == theirs.check(torch.tensor(values)).tolist(), name


def of_network(numbers: list[float]) -> pg.Tensor:
    """Returns numbers that are still to be computed."""
    return pg.tensor(numbers) * 1


@pytest.mark.usefixtures("on_the_cpu")
def test_validate_args_checks_what_is_still_to_be_computed() -> None:
    assert D.Normal(0.0, of_network([1.0, -2.5])).log_prob(of_network([0.0, 0.0])).isnan().tolist() == [False, True]
    for call in (lambda x: D.Normal(0.0, x, validate_args=True).log_prob(x), lambda x: D.Normal(0.0, x, True).entropy(),
                 lambda x: D.Normal(0.0, x, True).sample((2,))):  # fmt: skip
        for run in (call, pg.jit(call), pg.vmap(call, randomness="different")):
            with pytest.raises(pg.ArgumentError) as told:
                run(of_network([1.0, -2.5])).tolist()
            assert told.value.fact == "Normal: scale must be above 0, got -2.5."
            assert told.value.hint == "validate_args=False leaves it unchecked."
            assert "test_distributions.py" in str(told.value)
    for result, fact in (
        (lambda: D.Categorical(of_network([2.0, -1.0]), validate_args=True).sample(),
         "Categorical: probs must be not negative, with a sum above 0, one is not."),
        (lambda: D.Uniform(0.0, of_network([1.0]), validate_args=True).log_prob(of_network([2.0])),
         "Uniform: value must be from 0 to its bound, got 2.0."),
        (lambda: D.Categorical(pg.tensor([0.5, 0.5]), validate_args=True).log_prob(pg.tensor([1, 7]) + 0),
         "Categorical: value must be an integer from 0 to 1, got 7.0."),
        (lambda: D.Normal(of_network([float("nan")]).double(), 1.0, validate_args=True).sample(),
         "Normal: loc must be a number, got nan."),
    ):  # fmt: skip
        with pytest.raises(pg.ArgumentError) as told:
            result().tolist()
        assert told.value.fact == fact


@pytest.mark.usefixtures("on_the_cpu")
def test_the_default_can_be_set_and_a_class_of_ones_own_checks_its_parameters() -> None:
    class Even(D.constraints.Constraint):
        words, is_discrete = "even", True

        def check(self, value: pg.Tensor) -> pg.Tensor:
            return value % 2 == 0

    class Mine(D.Distribution):
        arg_constraints = {"width": D.constraints.positive, "count": Even()}  # noqa: RUF012

        def __init__(self, width: pg.Tensor, count: pg.Tensor, validate_args: bool | None = None):
            self.width, self.count = width, count
            super().__init__(width.shape, validate_args=validate_args)

    assert Mine(pg.ones(2), pg.ones(2)).expand((3, 2)).width.shape == (3, 2)
    with pytest.raises(pg.ArgumentError, match="^Mine: width must be above 0, got 0.0."):
        Mine(pg.zeros(2), pg.ones(2))
    with pytest.raises(pg.ArgumentError, match="^Mine: count must be even, one is not."):
        Mine(pg.ones(2), pg.ones(2), validate_args=True).count.tolist()
    for value, scale in ((False, -1.0), (None, 1.0), (True, 1.0)):
        D.Distribution.set_default_validate_args(value)
        try:
            assert D.Normal(0.0, of_network([scale])).scale.item() == scale
        finally:
            D.Distribution.set_default_validate_args(None)
    with pytest.raises(pg.ArgumentError):
        D.Normal(0.0, -1.0)


@pytest.mark.usefixtures("on_the_cpu")
def test_no_step_plans_or_launches_anything_for_a_check() -> None:
    def counted(validate_args: bool | None) -> list[tuple[int, int]]:
        pg.manual_seed(0)
        body, spread, x = pg.nn.Linear(4, 2), pg.zeros(2, requires_grad=True), pg.rand(8, 4).realize()
        optimizer, found = pg.optim.SGD([*body.parameters(), spread], lr=0.1), []
        for _ in range(3):
            with watch() as counts:
                policy = D.Normal(body(x), spread.exp(), validate_args=validate_args)
                loss = -policy.log_prob(policy.sample()).mean() + D.kl_divergence(policy, D.Normal(0.0, 1.0)).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                loss.item()
            found.append((counts.scheduled, counts.kernels))
        return found[1:]

    for _ in range(2):  # until the plans are known, whatever has run before
        counted(None), counted(False)
    assert counted(None) == counted(False)


def test_supports_and_entropies_of_counts_are_pytorchs() -> None:
    for name in ("Bernoulli", "Binomial"):
        given = {"probs": P} | ({"total_count": 3} if name == "Binomial" else {})
        ours = getattr(D, name)(**{key: pg.tensor(v) if np.ndim(v) else v for key, v in given.items()})
        theirs = getattr(T, name)(**{key: torch.tensor(v) if np.ndim(v) else v for key, v in given.items()})
        for expand in (True, False):
            assert ours.enumerate_support(expand).tolist() == theirs.enumerate_support(expand).tolist()
        assert ours.entropy().tolist() == pytest.approx(theirs.entropy().tolist(), rel=1e-12)
    ours, theirs = D.Multinomial(4, pg.tensor(ROWS)), T.Multinomial(4, torch.tensor(ROWS))
    # NOTE: PyTorch adds in float32; summed over all outcomes the first is 1.91104247392464, ours to 14 digits.
    assert ours.entropy().tolist() == pytest.approx(theirs.entropy().tolist(), rel=1e-7)
    for refused in (ours, D.Binomial(pg.tensor([1.0, 2.0]), 0.5), D.Normal(0.0, 1.0)):
        with pytest.raises(pg.ArgumentError, match="enumerate_support: "):
            refused.enumerate_support()


# ---- distributions of one's own, and what PyTorch's test file of distributions asks ----
def of_own(D: Any) -> Any:
    """Returns a distribution as users of PyTorch write them."""

    class Triangular(D.Distribution):  # type: ignore[misc]
        arg_constraints = {"low": D.constraints.real, "width": D.constraints.positive}
        has_rsample = True

        def __init__(self, low: Any, width: Any, validate_args: Any = None):
            self.low, self.width = D.utils.broadcast_all(low, width)
            super().__init__(self.low.shape, validate_args=validate_args)

        def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
            new = self._get_checked_instance(Triangular, _instance)
            new.low, new.width = self.low.expand(batch_shape), self.width.expand(batch_shape)
            super(Triangular, new).__init__(batch_shape, validate_args=False)
            new._validate_args = self._validate_args
            return new

        @D.utils.lazy_property
        def high(self) -> Any:
            return self.low + self.width

        @property
        def mean(self) -> Any:
            return (self.low + self.high) / 2

        def log_prob(self, value: Any) -> Any:
            return -(value - self.low).abs() - self.width.log()

    return Triangular


def test_a_distribution_written_for_pytorch_runs() -> None:
    for library, of in ((D, pg.tensor), (T, torch.tensor)):
        made = of_own(library)(of([0.0, 1.0]), 2.0).expand((3, 2))
        assert tuple(made._batch_shape) == (3, 2) and tuple(made._event_shape) == () and made.high is made.high
        assert tuple(made._extended_shape((4,))) == (4, 3, 2)
        results = [made.mean, made.log_prob(of([0.5, 0.5]))]
        if library is D:
            ours = results
    for mine, theirs in zip(ours, results):
        same_value(mine, theirs)

    class Other(D.Normal):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(0.0, 1.0)

    with pytest.raises(NotImplementedError, match="Other defines its constructor, so it must define expand"):
        Other()._get_checked_instance(D.Normal)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_helpers_of_distributions_are_pytorchs(shape: tuple[int, ...]) -> None:
    given, rng = np.array([[0.0, 0.25, 0.75], [1.0, 0.0, 0.0]]), np.random.default_rng(0)
    for binary in (False, True):
        same_value(D.utils.probs_to_logits(pg.tensor(given), binary), T.utils.probs_to_logits(torch.tensor(given), binary))
        same_value(D.utils.logits_to_probs(pg.tensor(given), binary), T.utils.logits_to_probs(torch.tensor(given), binary))
    assert D.utils.euler_constant == T.utils.euler_constant
    for n in (1, 2, 5):
        for diagonal in range(-n, n):
            full = rng.standard_normal((*shape, n, n))
            cut = D.utils.tril_matrix_to_vec(pg.tensor(full), diagonal)
            same_value(cut, T.utils.tril_matrix_to_vec(torch.tensor(full), diagonal))
            if diagonal < n - 1:  # at the last one a smaller matrix may have as many elements
                same_value(
                    D.utils.vec_to_tril_matrix(cut, diagonal),
                    T.utils.vec_to_tril_matrix(torch.tensor(cut.numpy()), diagonal),
                )
    with pytest.raises(pg.errors.ShapeError, match="no square matrix has 4 elements up to diagonal 0"):
        D.utils.vec_to_tril_matrix(pg.zeros(4))
    with pytest.raises(pg.errors.ShapeError, match="diag must be from -2 to 1, got 2"):
        D.utils.tril_matrix_to_vec(pg.zeros(2, 2), 2)
    with pytest.raises(ValueError, match="tensors and numbers, got 'a'"):
        D.utils.broadcast_all("a", 1.0)


@pytest.mark.parametrize(
    "name", [name for name in CASES if np.ndim(CASES[name][1]) == 2 and np.shape(CASES[name][1])[1] == 1]
)
def test_a_number_is_a_value(name: str) -> None:
    made = both(name)[0]
    number = float(CASES[name][1][1, 0])
    for asked in ("log_prob", "cdf", "icdf"):
        argument = 0.25 if asked == "icdf" else number
        if has_formula(made, asked, argument):
            same_value(getattr(made, asked)(argument), getattr(made, asked)(pg.tensor(argument, dtype=pg.float64)))


def has_formula(made: Any, asked: str, argument: float) -> bool:
    try:
        getattr(made, asked)(pg.tensor(argument, dtype=pg.float64))
    except NotImplementedError:
        return False
    return True


def test_a_relaxed_choice_repeats_to_a_longer_batch() -> None:
    made = D.RelaxedOneHotCategorical(pg.tensor(0.5), pg.tensor(ROWS)).expand((4, 2))
    drawn = made.sample((5,))
    assert tuple(drawn.shape) == (5, 4, 2, 3) and tuple(made.log_prob(drawn).shape) == (5, 4, 2)


def test_different_numbers_of_trials_have_no_list_of_values() -> None:
    with pytest.raises(NotImplementedError, match="total_count is 3 to 5"):
        D.Binomial(pg.tensor([3.0, 5.0]), 0.5).entropy()


def test_no_share_is_one_or_zero() -> None:
    drawn = D.Beta(pg.full((1000,), 0.01), 0.01).sample().numpy()
    assert drawn.min() > 0 and drawn.max() < 1 and drawn.max() > 0.99


def test_a_subclass_fills_the_instance_of_its_expand_and_may_have_shapes_of_its_own() -> None:
    found = []
    for lib in (pg, torch):
        distributions = lib.distributions

        class Scaled(distributions.Independent):  # type: ignore[misc, name-defined]
            """Independent normal numbers, as libraries of flows define them."""

            def __init__(self, loc: Any, scale: Any) -> None:
                super().__init__(distributions.Normal(loc, scale), 1)  # noqa: B023
                self.name = "scaled"

            def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
                new = self._get_checked_instance(Scaled, _instance)  # noqa: B023
                new.name = f"{self.name} {batch_shape}"
                return super().expand(batch_shape, new)

        class Joint(distributions.Distribution):  # type: ignore[misc, name-defined]
            def __init__(self, first: Any, second: Any) -> None:
                super().__init__(validate_args=False)
                self.first, self.second = first, second

            @property
            def batch_shape(self) -> Any:
                return lib.broadcast_shapes(self.first.batch_shape, self.second.batch_shape)  # noqa: B023

            @property
            def event_shape(self) -> Any:
                return lib.Size([self.first.event_shape.numel() + self.second.event_shape.numel()])  # noqa: B023

            def log_prob(self, value: Any) -> Any:
                cut = self.first.event_shape.numel()
                return self.first.log_prob(value[..., :cut]) + self.second.log_prob(value[..., cut:])

        base = Scaled(lib.zeros(3), lib.ones(3))
        wide = base.expand((4,))
        joint = Joint(base.expand((2,)), Scaled(lib.ones(2), lib.ones(2)))
        wide._batch_shape = (4,)
        found.append([
            type(wide).__name__, tuple(wide.batch_shape), tuple(wide.event_shape), wide.name, base.name,
            wide.log_prob(lib.ones(4, 3)).tolist(), tuple(joint.batch_shape), tuple(joint.event_shape),
            joint.log_prob(lib.ones(5)).tolist(),
        ])  # fmt: skip
    assert found[0][:5] == found[1][:5] and found[0][6:8] == found[1][6:8]
    assert np.allclose(found[0][5], found[1][5]) and np.allclose(found[0][8], found[1][8])


def test_an_action_and_its_log_probability_cost_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of an episode: 852 calls of Python before the distribution's formulas were an Op each."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    weights, draw = pg.tensor([[1.0, 2.0, 3.0]], requires_grad=True).realize(), 0

    def act() -> None:
        nonlocal draw
        policy = D.Categorical(weights.softmax(-1))
        action = policy.sample()
        policy.log_prob(action)
        draw += int(action.item())

    for _ in range(5):
        act()
    assert calls(act) <= 360
