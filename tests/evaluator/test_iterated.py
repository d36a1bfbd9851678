"""Functions that the host computes until they converge: against PyTorch's, to the digits of those, and by identities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.evaluator.host import BESSEL, ITERATED
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_parts_of_gamma_for_orders_of_all_sizes(name: str, rng: np.random.Generator) -> None:
    a = 10.0 ** rng.uniform(-6, 10, 400)
    beside, away = a + rng.standard_normal(400) * np.sqrt(a), a * 10.0 ** rng.uniform(-1, 1, 400)
    x = np.abs(np.where(rng.uniform(size=400) < 0.5, beside, away))
    found = getattr(pg.special, name)(pg.Tensor(a), pg.Tensor(x)).numpy()
    known = getattr(torch.special, name)(torch.tensor(a), torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, known, rtol=1e-6, atol=1e-9)  # PyTorch's has nine digits


def test_both_parts_add_up_to_one(rng: np.random.Generator) -> None:
    a, x = (pg.Tensor(10.0 ** rng.uniform(-3, 9, 200)) for _ in range(2))
    np.testing.assert_allclose((a.igamma(x) + a.igammac(x)).numpy(), np.ones(200), rtol=1e-13)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_a_common_divisor_is_one_call_of_the_host(dtype: str) -> None:
    """Special values beside PyTorch's, and a graph that is no longer for a wider dtype."""
    info = np.iinfo(dtype)
    values = np.array([0, 1, 2, 12, 89, 55, info.max, info.max - 1, info.min + 1, info.min // 2, -(info.min // 4)], dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(values, values))
    divisor = pg.Tensor(a).gcd(pg.Tensor(b))
    codes = [op.code for op in toposort([divisor.read()])]
    assert codes.count(OpCode.CUSTOM) == 1 and OpCode.MOD not in codes
    np.testing.assert_array_equal(divisor.numpy(), torch.gcd(torch.tensor(a), torch.tensor(b)).numpy())
    multiple = pg.Tensor(a).lcm(pg.Tensor(b))
    assert len(toposort([multiple.read()])) < 40
    known = torch.lcm(torch.tensor(a), torch.tensor(b))  # of one that overflows, PyTorch's has no sign
    np.testing.assert_array_equal(np.abs(multiple.numpy()), np.abs(known.numpy()))
    least = pg.Tensor(np.array([info.min], dtype))
    assert least.gcd(info.max).item() == math.gcd(int(info.min), int(info.max))  # PyTorch's is -1 for signed ones


@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions_are_pytorchs(name: str) -> None:
    x = np.concatenate([np.linspace(-30, 60, 181), 10.0 ** np.arange(-12, 5)])
    x = x if name.startswith(("airy", "bessel_j")) else x[x > 0]
    with np.errstate(all="ignore"):
        found, known = BESSEL[name](x), getattr(torch.special, name)(torch.tensor(x)).numpy()
    usual = x < 50 if name == "airy_ai" else np.ones_like(x, bool)  # PyTorch's is 0 where it is not yet
    np.testing.assert_allclose(found[usual], known[usual], rtol=1e-6, atol=1e-6)


def test_bessel_functions_have_the_digits_of_float64() -> None:
    x = np.concatenate([np.linspace(0.1, 60, 300), 10.0 ** np.arange(-6, 6)])
    found = {name: function(x) for name, function in BESSEL.items() if name != "airy_ai"}
    cross = found["bessel_j1"] * found["bessel_y0"] - found["bessel_j0"] * found["bessel_y1"]
    np.testing.assert_allclose(cross * np.pi * x / 2, np.ones_like(x), rtol=1e-12)
    i0, i1 = (function(pg.Tensor(x)).numpy() for function in (pg.special.i0e, pg.special.i1e))
    cross = i0 * found["scaled_modified_bessel_k1"] + i1 * found["scaled_modified_bessel_k0"]
    np.testing.assert_allclose(cross * x, np.ones_like(x), rtol=1e-12)


def test_airys_function_solves_its_equation() -> None:
    x, step = np.linspace(-14, 6, 401), 1e-3
    before, here, after = (BESSEL["airy_ai"](x + shift) for shift in (-step, 0.0, step))
    np.testing.assert_allclose((before - 2 * here + after) / step**2, x * here, atol=2e-5)


def test_bessel_functions_at_their_ends() -> None:
    ends = np.array([0.0, np.inf, np.nan])
    with np.errstate(all="ignore"):
        for name, expected in {
            "bessel_j0": (1, 0, np.nan), "bessel_j1": (0, 0, np.nan), "bessel_y0": (-np.inf, 0, np.nan),
            "bessel_y1": (-np.inf, 0, np.nan), "modified_bessel_k0": (np.inf, 0, np.nan),
            "scaled_modified_bessel_k1": (np.inf, 0, np.nan), "airy_ai": (0.3550280538878172, 0, np.nan),
        }.items():  # fmt: skip
            np.testing.assert_allclose(BESSEL[name](ends), expected, atol=1e-12, err_msg=name)
        assert np.isnan(BESSEL["modified_bessel_k1"](np.array([-1.0]))).all()


def test_polynomials_of_high_degree_are_their_closed_forms() -> None:
    angle = np.linspace(0.1, 3.0, 30)
    found = ITERATED["chebyshev_t"](np.cos(angle), np.full(30, 200.0))
    np.testing.assert_allclose(found, np.cos(200 * angle), atol=1e-10)
    found = ITERATED["chebyshev_w"](np.cos(angle), np.full(30, 77.0))
    np.testing.assert_allclose(found, np.sin(77.5 * angle) / np.sin(angle / 2), atol=1e-10)


def test_the_order_of_an_incomplete_gamma_function_has_no_gradient() -> None:
    a = pg.Tensor([1.0], requires_grad=True)
    with pytest.raises(pg.GradientError, match="gammainc has no gradient by its order"):
        a.igamma(pg.Tensor([2.0])).sum().backward()


def test_incomplete_gamma_functions_need_a_float() -> None:
    for other in (2, pg.Tensor([2])):
        with pytest.raises(pg.DTypeError, match="igamma: one operand must be a float, got int64"):
            pg.Tensor([1, 2]).igamma(other)
    assert pg.Tensor([1]).igamma(2.0).dtype is pg.float32
