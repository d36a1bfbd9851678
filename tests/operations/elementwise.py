"""Elementwise functions: the rows of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.operations.table import PAIRS, SHAPES, Operation, Rng, Sample, broadcasting, sample, uniform

WIDE, POSITIVE, UNIT, OVER_ONE = (-2.0, 2.0), (0.1, 3.0), (-0.9, 0.9), (1.1, 4.0)


def function(name: str, *domains: tuple[float, float], dtypes: str = "fiub", orders: int = 2, **given: Any) -> Operation:
    """A row of a function of each element of its operands."""
    return Operation(
        f"Tensor.{name}", uniform(*domains), dtypes=dtypes, orders=orders, drawn=broadcasting(*domains), **given
    )


def integers(low: int, high: int, operands: int = 2) -> Any:
    """Returns the samples of a function of int64 operands."""

    def samples(rng: Rng) -> list[Sample]:
        shapes: Any = PAIRS if operands == 2 else [(shape,) for shape in SHAPES]
        return [Sample(tuple(rng.integers(low, high, shape) for shape in call)) for call in shapes]

    return samples


def with_argument(domain: tuple[float, float], *args: Any, **kwargs: Any) -> Any:
    """Returns the samples of a function of one operand and given arguments."""
    return lambda rng: [sample(rng.uniform(*domain, shape), *args, **kwargs) for shape in SHAPES]


def bounds(rng: Rng) -> list[Sample]:
    """Calls of clamp: numbers, one of them, tensors."""
    x = rng.uniform(-2.0, 2.0, (4, 5))
    return [sample(x, -1, 1), sample(x, max=0), sample(x, min=-1), *(sample(rng.uniform(-2, 2, s), -1, 1) for s in SHAPES)]


def special(rng: Rng) -> list[Sample]:
    """Calls on NaN and infinities."""
    values = np.array([[0.0, -0.0, 1.5, np.nan], [np.inf, -np.inf, -2.0, 1e30]], np.float32)
    return [sample(values), sample(np.array(values[0, 3])), sample(np.zeros((0,), np.float32))]


def shifts(rng: Rng) -> list[Sample]:
    """Calls of a shift: counts below the width."""
    return [sample(rng.integers(-90, 90, a), rng.integers(0, 7, b)) for a, b in PAIRS]


def chosen(rng: Rng) -> list[Sample]:
    """Calls of where: condition, and two operands to choose from."""
    shapes = (((4, 5), (5,), (4, 1)), ((), (), ()), ((2, 0, 3), (3,), ()))
    draw = rng.uniform
    return [sample(np.asarray(draw(-1, 1, c) > 0), draw(-2, 2, a), draw(-2, 2, b)) for c, a, b in shapes]


def polygamma(rng: Rng) -> list[Sample]:
    """Calls of the first orders."""
    return [sample(rng.uniform(0.3, 4.0, shape), n) for shape, n in zip(SHAPES, (1, 0, 2, 3, 1))]


OPERATIONS = [
    # ---- exponentials, logarithms, powers ----
    *[function(name, WIDE) for name in ("exp", "exp2", "expm1", "sigmoid")],
    *[function(name, POSITIVE) for name in ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")],
    function("square", WIDE, dtypes="fiu"),
    function("pow", POSITIVE, WIDE, dtypes="f"),
    Operation("Tensor.pow", with_argument(POSITIVE, 3), dtypes="fiu", variant="constant"),
    function("float_power", POSITIVE, WIDE, dtypes="fiu"),
    function("logaddexp", WIDE, WIDE, dtypes="f"),
    function("logaddexp2", WIDE, WIDE, dtypes="f"),
    function("ldexp", WIDE, WIDE, dtypes="fiub"),
    # ---- trigonometry and its inverses ----
    *[function(name, WIDE) for name in ("sin", "cos", "sinh", "cosh", "tanh", "atan", "asinh", "sinc")],
    function("tan", (-1.2, 1.2)),
    *[function(name, UNIT) for name in ("asin", "acos", "atanh")],
    function("acosh", OVER_ONE, dtypes="f"),
    function("atan2", WIDE, WIDE),
    function("hypot", WIDE, WIDE, dtypes="f"),
    function("deg2rad", WIDE, dtypes="fiu"),
    function("rad2deg", WIDE, dtypes="fiu"),
    function("angle", WIDE, dtypes="fiu"),
    # ---- special functions ----
    function("erf", WIDE),
    function("erfc", WIDE),
    function("erfinv", UNIT),
    function("lgamma", POSITIVE),
    function("lgamma", (-1.9, -1.1), dtypes="f", variant="negative"),
    function("digamma", POSITIVE),
    function("digamma", (-1.9, -1.1), dtypes="f", variant="negative"),
    # PyTorch's trigamma has nine digits in float64
    Operation("Tensor.polygamma", polygamma, lambda x, n: torch.polygamma(n, x), dtypes="f", rtol=1e-4, is_single=True),
    Operation("Tensor.mvlgamma", with_argument(OVER_ONE, 2), dtypes="f"),
    function("i0", (-12.0, 12.0)),
    function("logit", (0.1, 0.9), dtypes="f"),
    Operation("Tensor.logit", with_argument((-0.5, 1.5), 0.2), dtypes="f", variant="eps"),
    function("xlogy", WIDE, POSITIVE),
    # ---- activations ----
    function("relu", WIDE, dtypes="fiu"),
    function("silu", WIDE, dtypes="f", torch="nn.functional.silu"),
    function("gelu", WIDE, dtypes="f", torch="nn.functional.gelu"),
    function("softplus", WIDE, dtypes="f", torch="nn.functional.softplus"),
    function("hardshrink", WIDE, dtypes="f"),
    # ---- rounding, parts, signs ----
    *[function(name, WIDE, dtypes="fiu", orders=1) for name in ("floor", "ceil", "trunc", "round", "sign", "sgn")],
    Operation("Tensor.round", with_argument(WIDE, decimals=2), dtypes="", orders=1, variant="decimals"),
    function("abs", WIDE, dtypes="fiu"),
    function("neg", WIDE, dtypes="fiu"),
    function("positive", WIDE, dtypes="fiu"),
    function("frac", WIDE, dtypes="f"),
    function("frexp", WIDE, dtypes="f", orders=0),
    function("signbit", WIDE, orders=0),
    function("copysign", WIDE, WIDE, orders=1),
    function("nextafter", WIDE, WIDE, dtypes="", orders=1, rtol=0, atol=0),
    function("heaviside", WIDE, WIDE, orders=0),
    Operation("Tensor.nan_to_num", special, orders=0, dtypes=""),
    *[
        Operation(f"Tensor.{name}", special, orders=0, dtypes="")
        for name in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal")
    ],
    # ---- arithmetic of two ----
    function("add", WIDE, WIDE),
    function("sub", WIDE, WIDE, dtypes="fiu"),
    function("mul", WIDE, WIDE),
    function("div", WIDE, POSITIVE),
    function("floor_divide", WIDE, (1.0, 3.0), dtypes="iu", orders=0),
    function("remainder", WIDE, (1.0, 3.0), dtypes="iu", orders=1),
    function("fmod", WIDE, (1.0, 3.0), dtypes="iu", orders=1),
    *[function(name, WIDE, WIDE) for name in ("maximum", "minimum", "fmax", "fmin")],
    Operation("Tensor.gcd", integers(-90, 90), dtypes="", orders=0),
    Operation("Tensor.lcm", integers(-90, 90), dtypes="", orders=0),
    # ---- choices ----
    Operation("Tensor.clamp", bounds, dtypes="fi"),
    Operation("Tensor.clamp_min", with_argument(WIDE, 0), dtypes="fiu"),
    Operation("Tensor.clamp_max", with_argument(WIDE, 0), dtypes="fi"),
    Operation("where", chosen, dtypes="fiub"),
    function("lerp", WIDE, WIDE, WIDE, dtypes="f"),
    function("addcmul", WIDE, WIDE, WIDE, dtypes="fiu"),
    function("addcdiv", WIDE, WIDE, POSITIVE, dtypes="f"),
    # ---- comparisons, truth, bits ----
    *[function(name, WIDE, WIDE, orders=0) for name in ("eq", "ne", "lt", "le", "gt", "ge")],
    function("isclose", WIDE, WIDE, orders=0),
    *[function(name, WIDE, WIDE, orders=0) for name in ("logical_and", "logical_or", "logical_xor")],
    function("logical_not", WIDE, orders=0),
    *[
        Operation(f"Tensor.{name}", integers(-90, 90), dtypes="", orders=0)
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor")
    ],
    Operation("Tensor.bitwise_not", integers(-90, 90, 1), dtypes="", orders=0),
    *[Operation(f"Tensor.{name}", shifts, dtypes="", orders=0) for name in ("bitwise_left_shift", "bitwise_right_shift")],
]
