"""What functions of the standard give at zeros with a sign, infinities and NaN, on each device."""

from __future__ import annotations

import math

import numpy as np
import pytest

import picograd.array_api as xp

INF, NAN, PI = math.inf, math.nan, math.pi
ONE = [
    ("abs", -0.0, 0.0), ("abs", -INF, INF), ("acos", 2.0, NAN), ("acos", 1.0, 0.0), ("acosh", 0.5, NAN),
    ("acosh", INF, INF), ("asin", -0.0, -0.0), ("asin", -1.5, NAN), ("asinh", -0.0, -0.0), ("asinh", -INF, -INF),
    ("atan", INF, PI / 2), ("atan", -0.0, -0.0), ("atanh", 1.0, INF), ("atanh", -0.0, -0.0), ("atanh", 2.0, NAN),
    ("ceil", -0.5, -0.0), ("ceil", -INF, -INF), ("cos", INF, NAN), ("cosh", -INF, INF), ("exp", -INF, 0.0),
    ("expm1", -0.0, -0.0), ("expm1", -INF, -1.0), ("floor", -0.0, -0.0), ("log", 0.0, -INF), ("log", -1.0, NAN),
    ("log1p", -1.0, -INF), ("log1p", -0.0, -0.0), ("log2", 0.0, -INF), ("log10", INF, INF), ("reciprocal", -0.0, -INF),
    ("reciprocal", -INF, -0.0), ("round", -0.5, -0.0), ("round", 2.5, 2.0), ("sign", -0.0, 0.0), ("sign", NAN, NAN),
    ("sin", -0.0, -0.0), ("sin", INF, NAN), ("sinh", -0.0, -0.0), ("sqrt", -0.0, -0.0), ("sqrt", -1.0, NAN),
    ("tan", -0.0, -0.0), ("tanh", -INF, -1.0), ("trunc", -0.5, -0.0), ("signbit", -0.0, True), ("signbit", 0.0, False),
    ("isfinite", -INF, False), ("isnan", NAN, True),
]  # fmt: skip
TWO = [
    ("add", INF, -INF, NAN), ("add", -0.0, -0.0, -0.0), ("atan2", 0.0, -0.0, PI), ("atan2", -0.0, 0.0, -0.0),
    ("atan2", NAN, 0.0, NAN), ("atan2", INF, -INF, 3 * PI / 4), ("copysign", 1.0, -0.0, -1.0),
    ("copysign", NAN, -1.0, NAN), ("divide", 0.0, 0.0, NAN), ("divide", 1.0, -0.0, -INF),
    ("floor_divide", -0.0, -2.0, 0.0), ("floor_divide", 1.0, -INF, -0.0), ("floor_divide", INF, 2.0, INF),
    ("hypot", INF, NAN, INF), ("hypot", 3e200, 4e200, 5e200), ("logaddexp", -INF, -INF, -INF),
    ("logaddexp", INF, 0.0, INF), ("maximum", NAN, 1.0, NAN), ("minimum", 1.0, NAN, NAN), ("multiply", 0.0, INF, NAN),
    ("nextafter", 0.0, 1.0, 5e-324), ("nextafter", 1.0, NAN, NAN), ("pow", 1.0, NAN, 1.0), ("pow", NAN, 0.0, 1.0),
    ("pow", -0.0, -3.0, -INF), ("pow", -8.0, 1 / 3, NAN), ("remainder", 5.0, -INF, -INF), ("remainder", -0.0, 3.0, 0.0),
    ("remainder", 1.0, 0.0, NAN), ("subtract", INF, INF, NAN),
]  # fmt: skip


def same(result: xp.Array, wanted: float) -> bool:
    value = np.asarray(result)
    if math.isnan(wanted):
        return bool(np.isnan(value))
    return bool(np.isclose(value, wanted, rtol=1e-12, atol=0)) and np.signbit(value) == np.signbit(wanted)


@pytest.mark.req("C10")
@pytest.mark.parametrize(("name", "x", "wanted"), ONE, ids=str)
def test_one_operand(device, name, x, wanted):
    result = getattr(xp, name)(xp.asarray(x, dtype=xp.float64))
    assert result.item() is wanted if isinstance(wanted, bool) else same(result, wanted)


@pytest.mark.req("C10")
@pytest.mark.parametrize(("name", "x1", "x2", "wanted"), TWO, ids=str)
def test_two_operands(device, name, x1, x2, wanted):
    function, a, b = getattr(xp, name), xp.asarray(x1, dtype=xp.float64), xp.asarray(x2, dtype=xp.float64)
    assert same(function(a, b), wanted)
    assert same(function(a, x2), wanted) and same(function(x1, b), wanted)


def test_nan_wins_over_bounds(device):
    x = xp.asarray([1.0, NAN, 5.0])
    assert np.isnan(np.asarray(xp.clip(x, 2.0, NAN))).all()
    assert np.asarray(xp.clip(x, 2.0, 4.0)).tolist()[::2] == [2.0, 4.0]


def test_each_nan_is_distinct(device):
    x = xp.asarray([NAN, 1.0, NAN, 1.0])
    values, indices, inverse, counts = xp.unique_all(x)
    assert counts.tolist() == [2, 1, 1] and np.isnan(np.asarray(values)).tolist() == [False, True, True]
    assert indices.tolist() == [1, 0, 2] and inverse.tolist() == [1, 0, 2, 0]
