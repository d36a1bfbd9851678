"""How exact each function of real numbers is: bounds in ulp of its float32 result, and where they are measured.

An ulp is the distance to the next float. The reference is PyTorch in float64, whose own error does not show in float32.
Bounds above 2 have their reason beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from picograd import Tensor

Array = np.ndarray[Any, Any]
EVERYWHERE = (-3.4e38, 3.4e38)


@dataclass(frozen=True)
class Accuracy:
    """A function of one or two numbers.

    name:       of the method, of Tensor and of PyTorch's
    ulp:        bound on the error of a float32 result
    domain:     where samples are dense
    within:     arguments outside give no bound (a zero nearby, where a fraction of an ulp of the argument is many)
    second:     domain of the second operand
    not_theirs: arguments where PyTorch gives NaN instead of the limit
    """

    name: str
    ulp: float
    domain: tuple[float, float] = (-20.0, 20.0)
    within: Callable[[Array], Array] | None = None
    second: tuple[float, float] | None = None
    not_theirs: tuple[float, ...] = ()


def away_from(*zeros: float, by: float = 0.05) -> Callable[[Array], Array]:
    """Returns where arguments are farther than `by` from each zero of a function."""
    return lambda x: np.all([np.abs(x - zero) > by for zero in zeros], axis=0)


# Composed of functions of up to 1.6 ulp each (codegen/passes/functions.py, trigonometry.py) and a few roundings.
FUNCTIONS = [
    Accuracy("exp", 0.9), Accuracy("exp2", 0.9), Accuracy("expm1", 2.0), Accuracy("log", 0.9, (0.0, 20.0)),
    Accuracy("log2", 1.1, (0.0, 20.0)), Accuracy("log10", 2.1, (0.0, 20.0)), Accuracy("log1p", 2.6, (-1.0, 20.0)),
    Accuracy("sqrt", 0.5, (0.0, 20.0)), Accuracy("rsqrt", 1.5, (0.0, 20.0)), Accuracy("reciprocal", 0.5),
    Accuracy("sin", 1.6), Accuracy("cos", 1.6), Accuracy("tan", 3.5), Accuracy("asin", 3.5, (-1.0, 1.0)),
    Accuracy("acos", 3.5, (-1.0, 1.0)), Accuracy("atan", 2.0), Accuracy("sinh", 3.5), Accuracy("cosh", 3.0),
    Accuracy("tanh", 1.6), Accuracy("asinh", 3.5), Accuracy("acosh", 3.5, (1.0, 20.0)),
    Accuracy("atanh", 3.0, (-1.0, 1.0)), Accuracy("erf", 1.6), Accuracy("erfc", 0.6),
    Accuracy("erfinv", 0.6, (-1.0, 1.0)), Accuracy("deg2rad", 1.0), Accuracy("rad2deg", 1.0),
    Accuracy("logit", 2.5, (0.0, 1.0)),
    # near its zeros the reference has few digits
    Accuracy("sinc", 3.5, within=lambda x: (np.abs(x) < 1e3) & (np.abs(x - np.round(x)) > 1e-3)),
    # the exponential of -x is held below overflow: beyond it 6e-39 stands for less
    Accuracy("sigmoid", 2.5, within=lambda x: x > -87),
    # computed in float64, but for 1 and 2, where the logarithm is 0, and zeros between the poles
    Accuracy("lgamma", 0.6, within=lambda x: (x > 0) & (x != 1) & (x != 2)),
    Accuracy("digamma", 0.6), Accuracy("i0", 0.6, not_theirs=(np.inf, -np.inf)),
    Accuracy("atan2", 2.5, second=(-20.0, 20.0)), Accuracy("hypot", 2.0, second=(-20.0, 20.0)),
    Accuracy("pow", 0.6, (0.0, 4.0), second=(-20.0, 20.0)),
    Accuracy("div", 0.5, second=(-20.0, 20.0)), Accuracy("fmod", 0.0, second=(-20.0, 20.0)),
    Accuracy("remainder", 0.5, second=(-20.0, 20.0)), Accuracy("xlogy", 2.0, second=(0.0, 20.0)),
    # of one sign: where both are small the sum of the two is near 0
    Accuracy("logaddexp", 3.0, (0.0, 20.0), second=(0.0, 20.0), within=lambda x: x > 0),
]  # fmt: skip
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38,
     -3.4028235e38, 1e-20, -1e-20], np.float32,
)  # fmt: skip


def samples(row: Accuracy, rng: np.random.Generator, count: int = 60_000) -> list[Array]:
    """Returns operands: every magnitude, densely over the domain, and what is special; two in all pairs."""
    domains = [row.domain] + ([row.second] if row.second else [])
    special = np.meshgrid(*([SPECIAL] * len(domains)))
    operands = []
    for domain, rare in zip(domains, special):
        anything = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
        dense = rng.uniform(*domain, count).astype(np.float32)
        near = (dense * np.float32(2.0) ** -rng.integers(1, 40, count).astype(np.float32)).astype(np.float32)
        operands.append(np.concatenate([anything, dense, near, rare.ravel()]))
    return operands


@dataclass(frozen=True)
class Measured:
    """What was found: the worst error in ulp, and the operands that have it; those whose special value differs."""

    ulp: float
    worst: tuple[float, ...]
    different: list[tuple[float, ...]]


def measure(row: Accuracy, rng: np.random.Generator) -> Measured:
    """Compares a function with PyTorch's in float64, rounded where it is infinite, NaN or a zero with a sign."""
    operands = samples(row, rng)
    found = getattr(Tensor(operands[0]), row.name)(*map(Tensor, operands[1:])).numpy()
    wide = [torch.tensor(x.astype(np.float64)) for x in operands]
    exact = getattr(wide[0], row.name)(*wide[1:]).numpy()
    with np.errstate(all="ignore"):
        rounded = exact.astype(np.float32)
        size = np.maximum(np.spacing(np.abs(rounded)).astype(np.float64), 2.0**-149)
        error = np.abs(found.astype(np.float64) - exact) / size
    ordinary = np.isfinite(rounded) & np.isfinite(found)
    edge = (np.isinf(rounded) != np.isinf(found)) & (np.abs(exact) > 3.4028e38) & ~np.isnan(found)  # an ulp is an ulp
    same = (np.isnan(rounded) & np.isnan(found)) | (rounded == found)
    different = ~ordinary & ~edge & ~same & ~np.isin(operands[0], row.not_theirs)
    error[~ordinary] = 0.0
    if row.within is not None:
        error[~row.within(operands[0].astype(np.float64))] = 0.0
    at = int(error.argmax())
    return Measured(
        float(error[at]),
        tuple(float(x[at]) for x in operands),
        [tuple(float(x[i]) for x in operands) for i in np.flatnonzero(different)[:5]],
    )
