"""biject_to and transform_to: transforms from unconstrained numbers to a constraint, in a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import picograd_distributions.constraints as c
import picograd_distributions.transforms as t
from picograd.errors import ArgumentError
from picograd_distributions.base import NoFormulaError
from picograd_distributions.constraints import Constraint
from picograd_distributions.transforms import Transform

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """A table from constraints to transforms with that codomain.

    >>> D = pg.distributions
    >>> D.biject_to(D.constraints.positive)(Tensor(0.0))
    Tensor(1.)
    """

    def __init__(self) -> None:
        self.factories: dict[Any, Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Registers a function that makes the transform for a kind of constraints; without a function returns a decorator.

        Args:
          constraint:  an example of the kind, its class, or the function that makes it, such as constraints.greater_than
          factory:     constraint -> transform

        Raises:
          ArgumentError: constraint is something else.

        >>> D = pg.distributions
        >>> class Even(D.constraints.Constraint):
        ...     pass
        >>> made = D.transform_to.register(Even, lambda constraint: D.AffineTransform(0.0, 2.0))
        >>> D.transform_to(Even())
        AffineTransform(loc=0.0, scale=2.0, event_dim=0)
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        key = c.RULES.get(constraint, constraint)
        if isinstance(constraint, Constraint):
            key = _kind(constraint)
        elif key is constraint and not (isinstance(constraint, type) and issubclass(constraint, Constraint)):
            raise ArgumentError(f"register: constraint must be a constraint, or a class of them, got {constraint!r}.")
        self.factories[key] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        """Returns the transform from unconstrained numbers to a constraint.

        Raises:
          NoFormulaError: no transform is registered.
        """
        more = getattr(constraint, "reinterpreted_batch_ndims", 0)
        if more:
            return t.IndependentTransform(self(constraint.base_constraint), more)  # type: ignore[attr-defined]
        if (factory := self.factories.get(_kind(constraint))) is None:
            raise NoFormulaError(f"there is no transform from all numbers to values {constraint.words}.")
        return factory(constraint)


def _kind(constraint: Constraint) -> Any:
    """Returns the key of a constraint: its rule, or its class if it has none."""
    return getattr(constraint, "rule", type(constraint))


def _above(constraint: Any) -> Transform:
    low = constraint.lower_bound
    return t.ExpTransform() if _is(low, 0) else t.ComposeTransform([t.ExpTransform(), t.AffineTransform(low, 1.0)])


def _below(constraint: Any) -> Transform:
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(constraint.upper_bound, -1.0)])


def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if _is(low, 0) and _is(high, 1):
        return t.SigmoidTransform()
    return t.ComposeTransform([t.SigmoidTransform(), t.AffineTransform(low, high - low)])


def _is(bound: Any, number: int) -> bool:
    return isinstance(bound, int | float) and bound == number


def _cat(to: ConstraintRegistry, constraint: c.cat) -> Transform:
    return t.CatTransform([to(one) for one in constraint.cseq], constraint.dim, constraint.lengths)


def _stack(to: ConstraintRegistry, constraint: c.stack) -> Transform:
    return t.StackTransform([to(one) for one in constraint.cseq], constraint.dim)


OF_BOTH: tuple[tuple[Any, Factory], ...] = (
    (c.real, lambda constraint: t.identity_transform), (c.greater_than, _above), (c.greater_than_eq, _above),
    (c.less_than, _below), (c.interval, _between), (c.half_open_interval, _between),
    (c.success, lambda constraint: t.SigmoidTransform()), (c.corr_cholesky, lambda constraint: t.CorrCholeskyTransform()),
)  # fmt: skip
biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()
for registry in (biject_to, transform_to):
    for kind, made in OF_BOTH:
        registry.register(kind, made)
    registry.register(c.cat, partial(_cat, registry))
    registry.register(c.stack, partial(_stack, registry))
biject_to.register(c.simplex, lambda constraint: t.StickBreakingTransform())
transform_to.register(c.simplex, lambda constraint: t.SoftmaxTransform())
transform_to.register(c.lower_cholesky, lambda constraint: t.LowerCholeskyTransform())
for kind in (c.positive_definite, c.positive_semidefinite):
    transform_to.register(kind, lambda constraint: t.PositiveDefiniteTransform())
