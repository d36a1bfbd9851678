"""Transforms, constraints and transformed distributions against PyTorch's: values, inverses, Jacobians, shapes."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from tests.helpers import same_value

D, T = pg.distributions, torch.distributions
RNG = np.random.default_rng(0)
NUMBERS, MATRIX = np.array([0.25, 1.0, 3.0]), RNG.standard_normal((2, 3, 3))
# name: the transform, x
CASES: dict[str, tuple[Any, Any]] = {
    "affine": (lambda d, of: d.AffineTransform(of([0.5, 1.0, 2.0]), of(-2.0)), NUMBERS),
    "affine of vectors": (lambda d, of: d.AffineTransform(0.5, of([1.0, 2.0, 4.0]), event_dim=1), MATRIX),
    "exp": (lambda d, of: d.ExpTransform(), NUMBERS),
    "sigmoid": (lambda d, of: d.SigmoidTransform(), np.array([-800.0, 0.3, 800.0])),
    "tanh": (lambda d, of: d.TanhTransform(), NUMBERS),
    "softplus": (lambda d, of: d.SoftplusTransform(), NUMBERS),
    "power": (lambda d, of: d.PowerTransform(of([-1.5, 2.0, 0.5])), NUMBERS),
    "abs": (lambda d, of: d.AbsTransform(), -NUMBERS),
    "cumulative": (lambda d, of: d.CumulativeDistributionTransform(d.Normal(of(0.5), of(2.0))), NUMBERS),
    "softmax": (lambda d, of: d.SoftmaxTransform(), MATRIX),
    "stick breaking": (lambda d, of: d.StickBreakingTransform(), MATRIX),
    "lower cholesky": (lambda d, of: d.LowerCholeskyTransform(), MATRIX),
    "positive definite": (lambda d, of: d.PositiveDefiniteTransform(), MATRIX),
    "corr cholesky": (lambda d, of: d.CorrCholeskyTransform(), RNG.standard_normal((2, 6))),
    "corr cholesky of a pair": (lambda d, of: d.CorrCholeskyTransform(), RNG.standard_normal((2, 1))),
    "reshape": (lambda d, of: d.ReshapeTransform((3, 3), (9,)), MATRIX),
    "independent": (lambda d, of: d.IndependentTransform(d.SigmoidTransform(), 2), MATRIX),
    "inverse": (lambda d, of: d.IndependentTransform(d.ExpTransform(), 1).inv, np.abs(MATRIX)),
    "compose": (lambda d, of: d.ComposeTransform([d.SoftplusTransform(), d.PowerTransform(of(2.0))]), NUMBERS),
    "compose of axes": (
        lambda d, of: d.ComposeTransform([d.ExpTransform(), d.StickBreakingTransform(), d.AffineTransform(1.0, 2.0)]),
        MATRIX,
    ),
    "compose of nothing": (lambda d, of: d.ComposeTransform([]), NUMBERS),
    "cat": (lambda d, of: d.CatTransform([d.ExpTransform(), d.AffineTransform(1.0, of(3.0))], -1, [1, 2]), MATRIX),
    "cat of vectors": (
        lambda d, of: d.CatTransform([d.IndependentTransform(part(), 1) for part in (d.ExpTransform, d.TanhTransform)]),
        MATRIX[:, 0],
    ),
    "stack": (lambda d, of: d.StackTransform([d.ExpTransform(), d.TanhTransform(), d.identity_transform], -1), MATRIX),
    "stack of vectors": (lambda d, of: d.StackTransform([d.StickBreakingTransform()] * 2, 0), MATRIX[:, 0]),
}  # fmt: skip


class Theirs:
    """PyTorch's distributions and the transforms that its page does not name."""

    def __getattr__(self, name: str) -> Any:
        return getattr(T, name, None) or getattr(T.transforms, name)


@pytest.fixture(autouse=True)
def by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")  # no kernel is at stake


def both(name: str) -> tuple[list[Any], list[Any]]:
    """Returns the transform and x in both libraries."""
    make, x = CASES[name]
    found = []
    for library, of in ((D, pg.tensor), (Theirs(), torch.tensor)):
        leaf = of(x, requires_grad=True)
        found.append([make(library, lambda value, of=of: of(value, dtype=leaf_dtype(of))), leaf])
    return found[0], found[1]


def leaf_dtype(of: Any) -> Any:
    return pg.float64 if of is pg.tensor else torch.float64


def gradients(values: list[Any], x: Any) -> Any:
    sum((value * value).sum() for value in values).backward()
    return x.grad


@pytest.mark.parametrize("name", CASES)
def test_transforms_are_pytorchs(name: str) -> None:
    (ours, x), (theirs, other) = both(name)
    results = []
    for transform, at in ((ours, x), (theirs, other)):
        y = transform(at)
        found = [y, transform.inv(y)]
        with contextlib.suppress(NotImplementedError):
            found.append(transform.log_abs_det_jacobian(at, y))
        shapes = [tuple(transform.forward_shape(at.shape)), tuple(transform.inverse_shape(y.shape)), transform.bijective]
        shapes += [transform.domain.event_dim, transform.codomain.event_dim]
        finite = [value for value in found if bool(value.isfinite().all())]
        results.append((found, shapes, gradients(finite, at) if name != "sigmoid" else at))
    assert results[0][1] == results[1][1]
    assert len(results[0][0]) == len(results[1][0])
    for mine, reference in zip((*results[0][0], results[0][2]), (*results[1][0], results[1][2])):
        same_value(mine.detach(), reference.detach(), rtol=1e-6)
    if ours.bijective and name not in ("sigmoid",):
        assert np.allclose(results[0][0][1].detach().numpy(), x.detach().numpy())
        same_value(ours.inv.log_abs_det_jacobian(y := ours(x), x).detach(), -ours.log_abs_det_jacobian(x, y).detach())
    assert ours.inv.inv is ours
    assert ours == CASES[name][0](D, lambda value: pg.tensor(value, dtype=pg.float64)) or name.startswith("cumul")


@pytest.mark.parametrize("name", ["stick breaking", "corr cholesky", "affine of vectors", "stack"])
def test_jacobians_are_those_of_their_derivatives(name: str) -> None:
    """log |det| of the matrix of derivatives, with the coordinates of y that are free."""
    transform, x = both(name)[0]
    x = x.detach()[0]
    jacobian = pg.func.jacrev(transform)(x).numpy()
    y = transform(x)
    if name == "corr cholesky":
        jacobian = jacobian[np.tril_indices(y.shape[-1], -1)]
    elif y.shape[-1] != x.shape[-1]:
        jacobian = jacobian[..., :-1, :] if jacobian.ndim == 2 else jacobian[..., :-1, :, :]
    size = x.numel()
    wanted = np.linalg.slogdet(jacobian.reshape(size, size))[1]
    same_value(transform.log_abs_det_jacobian(x, y).sum(), np.asarray(wanted), rtol=1e-9)


def test_a_cache_gives_the_very_x_back() -> None:
    x = pg.tensor([30.0])
    for cached in (D.TanhTransform(cache_size=1), D.TanhTransform().with_cache(), D.TanhTransform().inv.with_cache().inv):
        assert cached.inv(cached(x)) is x
        y = pg.tensor([0.5])
        assert cached(cached.inv(y)) is y
    assert D.TanhTransform().inv(D.TanhTransform()(x)).tolist() == [np.inf]
    chain = D.ComposeTransform([D.AffineTransform(0.0, 2.0), D.TanhTransform()], cache_size=1)
    assert chain.inv(chain(x)) is x
    normal = D.Normal(pg.zeros(5), 30.0)
    squashed = D.TransformedDistribution(normal, [D.TanhTransform(cache_size=1)])
    assert bool(squashed.log_prob(squashed.rsample()).isfinite().all())
    step = pg.jit(lambda: squashed.log_prob(squashed.rsample()))
    assert bool((step() * 1).isfinite().all()) and bool((step() * 1).isfinite().all())
    with pytest.raises(pg.ArgumentError, match="^TanhTransform: cache_size must be 0 or 1, got 2."):
        D.TanhTransform(cache_size=2)


def test_wrong_shapes_are_told() -> None:
    for call, fact in (
        (lambda: D.CorrCholeskyTransform()(pg.zeros(4)), "4 elements are not a triangle below a diagonal."),
        (lambda: D.CorrCholeskyTransform().inverse_shape((2, 3)), "a matrix must be square, got shape \\(2, 3\\)."),
        (lambda: D.StickBreakingTransform().forward_shape(()), "needs 1 axes at least, got shape \\(\\)."),
        (lambda: D.ReshapeTransform((2,), (3,)), "differ in their numbers of elements."),
        (lambda: D.ReshapeTransform((2, 2), (4,))(pg.zeros(4, 1)), "the last axes must be \\(2, 2\\), got"),
        (lambda: D.CatTransform([D.ExpTransform()], 0, [2])(pg.zeros(3)), "axis 0 must be 2 long, got shape \\(3,\\)."),
        (lambda: D.StackTransform([D.ExpTransform()])(pg.zeros(3)), "axis 0 must be 1 long, got shape \\(3,\\)."),
        (lambda: D.CatTransform([D.ExpTransform()], 0, [2, 1]), "2 lengths for 1 transforms."),
        (lambda: D.IndependentTransform(D.ExpTransform(), 2)(pg.zeros(3)), "needs 2 axes at least"),
    ):  # fmt: skip
        with pytest.raises(pg.ShapeError, match=fact):
            call()


TRANSFORMED: dict[str, Any] = {
    "log normal of vectors": lambda d, of: (d.Normal(of(NUMBERS), 1.0), [d.IndependentTransform(d.ExpTransform(), 1)]),
    "shares of normals": lambda d, of: (d.Normal(of(MATRIX), 2.0), [d.StickBreakingTransform()]),
    "matrix": lambda d, of: (d.Independent(d.Normal(of(MATRIX), 2.0), 2), [d.ReshapeTransform((3, 3), (9,))]),
    "broadcast": lambda d, of: (d.Normal(0.0, 1.0), [d.AffineTransform(of(NUMBERS), of(NUMBERS))]),
    "correlations": lambda d, of: (d.Normal(of(MATRIX[0]), 1.0), [d.CorrCholeskyTransform()]),
    "falling": lambda d, of: (d.Uniform(of(NUMBERS), of(NUMBERS) + 1), [d.AffineTransform(0.0, -2.0), d.ExpTransform()]),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_distributions_are_pytorchs(name: str) -> None:
    results = []
    for library, of in ((D, pg.tensor), (Theirs(), torch.tensor)):
        base, parts = TRANSFORMED[name](library, of)
        made = library.TransformedDistribution(base, parts)
        whole = library.ComposeTransform(parts)
        start = made.base_dist.mean if name != "correlations" else of(MATRIX[0] * 0.5)
        value = whole(start * 1.1)
        found = [made.log_prob(value.detach())]
        if not tuple(made.event_shape):
            found += [made.cdf(value), made.icdf(of(0.3) + 0 * value)]
        wide = made.expand((4, *made.batch_shape))
        shapes = [tuple(each) for each in (made.batch_shape, made.event_shape, wide.batch_shape, wide.event_shape)]
        shapes += [tuple(made.sample((5,)).shape), tuple(wide.rsample((5,)).shape), made.has_rsample]
        shapes += [made.support.event_dim, bool(made.support.check(made.sample((5,))).all())]
        results.append((found, shapes))
    assert results[0][1] == results[1][1]
    for mine, reference in zip(results[0][0], results[1][0]):
        same_value(mine.detach().double(), reference.detach().double(), rtol=2e-6)


REGISTERED = {
    "real": lambda c: c.real, "positive": lambda c: c.positive, "nonnegative": lambda c: c.nonnegative,
    "greater_than": lambda c: c.greater_than(2.0), "less_than": lambda c: c.less_than(2.0),
    "unit_interval": lambda c: c.unit_interval, "interval": lambda c: c.interval(-1.0, 3.0),
    "half_open_interval": lambda c: c.half_open_interval(-1.0, 3.0), "simplex": lambda c: c.simplex,
    "real_vector": lambda c: c.real_vector, "vectors above 0": lambda c: c.independent(c.positive, 1),
    "lower_cholesky": lambda c: c.lower_cholesky, "positive_definite": lambda c: c.positive_definite,
    "positive_semidefinite": lambda c: c.positive_semidefinite, "corr_cholesky": lambda c: c.corr_cholesky,
    "cat": lambda c: c.cat([c.positive, c.unit_interval], -1, [1, 2]), "stack": lambda c: c.stack([c.positive] * 3, -1),
}  # fmt: skip


@pytest.mark.parametrize("name", REGISTERED)
@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
def test_registered_transforms_are_pytorchs(name: str, registry: str) -> None:
    x = MATRIX
    mine, other = REGISTERED[name](D.constraints), REGISTERED[name](T.constraints)
    try:
        theirs = getattr(T, registry)(other)
    except NotImplementedError:
        with pytest.raises(NotImplementedError, match="there is no transform from all numbers to values"):
            getattr(D, registry)(mine)
        return
    ours = getattr(D, registry)(mine)
    y = ours(pg.tensor(x))
    same_value(y, theirs(torch.tensor(x)))
    assert bool(mine.check(y).all()) and ours.bijective == theirs.bijective
    assert ours.codomain.event_dim == mine.event_dim or name in ("cat", "stack")


def test_constraints_of_parts_and_matrices_are_pytorchs() -> None:
    rows = np.array([[[1.0, 0], [0.6, 0.8]], [[1, 0], [0.5, 0.5]], [[1, 0.2], [0.2, 1]], [[1, 2], [2, 1]]])
    for name in ("corr_cholesky", "lower_triangular", "positive_semidefinite", "square", "symmetric", "positive_definite"):
        ours, theirs = getattr(D.constraints, name), getattr(T.constraints, name)
        values = rows[2:] if "definite" in name else rows
        assert ours.check(pg.tensor(values)).tolist() == theirs.check(torch.tensor(values)).tolist(), name
    numbers = np.array([[-1.0, 0.5, 2.0], [1.0, 0.5, 0.5]])
    for make in (
        lambda c: c.cat([c.positive, c.unit_interval], -1, [1, 2]),
        lambda c: c.stack([c.positive, c.unit_interval, c.real], 1),
        lambda c: c.independent(c.stack([c.positive, c.unit_interval, c.real], -1), 1),
        lambda c: c.MixtureSameFamilyConstraint(c.positive),
    ):  # fmt: skip
        ours, theirs = make(D.constraints), make(T.constraints)
        assert ours.is_discrete == theirs.is_discrete
        assert ours.check(pg.tensor(numbers)).tolist() == theirs.check(torch.tensor(numbers)).tolist()
    assert D.constraints.is_dependent(D.constraints.dependent) and not D.constraints.is_dependent(D.constraints.real)
    with pytest.raises(pg.ArgumentError, match="depends on other values"):
        D.constraints.dependent(event_dim=1).check(pg.zeros(2))


def test_a_constraint_of_ones_own_is_registered() -> None:
    class Even(D.constraints.Constraint):
        pass

    with pytest.raises(NotImplementedError):
        D.biject_to(Even())

    @D.biject_to.register(Even)
    def made(constraint: Any) -> Any:
        return D.AffineTransform(0.0, 2.0)

    assert D.biject_to(Even()) == D.AffineTransform(0.0, 2.0) != D.AffineTransform(0.0, 3.0)
    with pytest.raises(pg.ArgumentError, match="^register: constraint must be a constraint, or a class of them, got 3."):
        D.biject_to.register(3, made)
