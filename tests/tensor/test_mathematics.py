"""Functions of one and of two numbers at awkward places, and how many digits they have."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import ArgumentError, DTypeError, Tensor, dtypes
from picograd.autodiff.gradient import graph_sources, written_out
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode

AWKWARD = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, -3.0, 20, -20, 100, -100, 1e30, -1e30, 1e-30, 1e-42, 3.4e38, np.inf,
     -np.inf, np.nan], np.float32,
)  # fmt: skip
OF_ONE = """
    acos acosh asin asinh atan atanh deg2rad digamma erfc erfinv frac lgamma nan_to_num rad2deg angle signbit isposinf
    isneginf hardshrink logit
"""
SPECIAL = ["erfcx", "entr", "i0e", "ndtr", "ndtri", "log_ndtr"]
OF_TWO = """
    atan2 hypot copysign nextafter logaddexp logaddexp2 xlogy fmax fmin maximum minimum heaviside floor_divide remainder
    fmod pow ldexp float_power isclose
"""
# tests/operations compares what is ordinary; where PyTorch itself is not exact:
#   i0, i1       are NaN at infinity there, infinite here
#   sinc         sin(pi x) with pi rounded there: not 0 at integers
#   fmod         and remainder of 1e30 by 1e-30 are NaN there
#   logaddexp2   of -1 and -1 is -1e-8 there


def agree(ours: Any, theirs: Any, name: str = "") -> None:
    """Fails unless both are equal to 3e-6; NaN and infinities in the same places."""
    x, y = ours.detach().numpy(), theirs.detach().numpy()
    assert x.dtype == y.dtype
    np.testing.assert_allclose(x, y, rtol=3e-6, atol=2e-8 if name == "logaddexp2" else 1e-12)


@pytest.mark.variants
@pytest.mark.req("C3")
@pytest.mark.parametrize("name", OF_ONE.split())
def test_awkward_numbers(name: str, device: str) -> None:
    agree(getattr(Tensor(AWKWARD), name)(), getattr(torch.tensor(AWKWARD), name)())


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", SPECIAL)
def test_awkward_numbers_of_special_functions(name: str, device: str) -> None:
    agree(getattr(pg.special, name)(Tensor(AWKWARD)), getattr(torch.special, name)(torch.tensor(AWKWARD)))


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", OF_TWO.split())
def test_awkward_pairs(name: str, device: str) -> None:
    large = [] if name in ("fmod", "remainder") else [13]
    some = AWKWARD[[0, 1, 2, 3, 6, 7, *large, 15, 18, 19, 20]]
    x, y = (part.ravel().copy() for part in np.meshgrid(some, some))
    agree(getattr(Tensor(x), name)(Tensor(y)), getattr(torch.tensor(x), name)(torch.tensor(y)), name)


@pytest.mark.req("C3")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_frexp_takes_every_float_apart(dtype: str, device: str) -> None:
    x, y = (library.tensor(AWKWARD.tolist(), dtype=getattr(library, dtype)) for library in (pg, torch))
    (mantissa, exponent), theirs = x.frexp(), y.float().frexp()
    np.testing.assert_array_equal(exponent.numpy(), theirs.exponent.numpy() if dtype != "float64" else y.frexp().exponent)
    np.testing.assert_array_equal(
        mantissa.double().numpy(), (theirs.mantissa if dtype != "float64" else y.frexp().mantissa).double().numpy()
    )


@pytest.mark.req("C3")
def test_signs_of_zeros_are_kept(device: str) -> None:
    x = Tensor([-0.0])
    for name in ("asin", "atan", "asinh", "atanh", "erfinv", "sinh", "tan", "expm1", "log1p", "deg2rad"):
        assert np.signbit(getattr(x, name)().numpy()).all(), name
    assert np.signbit(Tensor([1.0]).copysign(-0.0).numpy()).all()
    assert np.signbit(Tensor([-0.0]).atan2(1.0).numpy()).all()
    assert Tensor([-0.0]).atan2(-1.0).item() == pytest.approx(-np.pi)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nextafter_is_numpys(dtype: Any, device: str) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, np.finfo(dtype).max, -np.finfo(dtype).max, np.inf, -np.inf], dtype)
    x, y = (part.ravel().copy() for part in np.meshgrid(values, values))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.nextafter(x, y)
    np.testing.assert_array_equal(Tensor(x).nextafter(Tensor(y)).numpy(), expected)


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_divisors_of_all_integers(dtype: str, device: str, rng: np.random.Generator) -> None:
    info = np.iinfo(dtype)
    a, b = rng.integers(info.min + 1, info.max, (2, 200)).astype(dtype)
    a[:5], b[:4] = [0, 0, 1, info.max, info.max], [0, 5, 0, info.max]
    mine, theirs = (Tensor(a), Tensor(b)), (torch.tensor(a), torch.tensor(b))
    np.testing.assert_array_equal(mine[0].gcd(mine[1]).numpy(), theirs[0].gcd(theirs[1]).numpy())
    few = [tensor[:40] // 2 ** (info.bits // 2 + 1) for tensor in (*mine, *theirs)]
    np.testing.assert_array_equal(few[0].lcm(few[1]).numpy(), few[2].lcm(few[3]).numpy())


FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: lambda x, name=name: getattr(x, name)() for name in (
        "erfc", "erfinv", "lgamma", "digamma", "i0", "asin", "acos", "atan", "asinh", "atanh", "acosh")},
    "mvlgamma": lambda x: (x + 3).mvlgamma(2), "atan2": lambda x: x.atan2(x + 1), "hypot": lambda x: x.hypot(x + 1),
    "logaddexp": lambda x: x.logaddexp(x + 1), "logaddexp2": lambda x: x.logaddexp2(x + 1),
    "xlogy": lambda x: x.xlogy(x + 1), "isclose": lambda x: x.isclose(x + 1), "copysign": lambda x: x.copysign(x - 1),
    "ndtr": pg.special.ndtr, "log_ndtr": pg.special.log_ndtr, "ndtri": pg.special.ndtri, "erfcx": pg.special.erfcx,
    "i1": pg.special.i1, "zeta": lambda x: pg.special.zeta(x + 2, x + 1), "xlog1py": lambda x: pg.special.xlog1py(x, x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float16])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_function_of_many_operations_has_its_graph_when_a_plan_is_made(name: str, dtype: Any) -> None:
    x = Tensor([0.1, 0.5, 0.9], dtype=dtype)
    waiting = FORMULAS[name](x)
    assert len(toposort([waiting.op])) <= 12 and any(op.code is OpCode.FORMULA for op in toposort([waiting.op]))
    np.testing.assert_array_equal(waiting.numpy(), pg.jit(FORMULAS[name])(x).numpy())


def test_an_inverse_of_the_error_function_is_one_step_from_a_polynomial() -> None:
    """One logarithm, one exponential and one erf; all digits from the middle to the far tail, where 1 - x has few."""
    x = Tensor(np.linspace(-1, 1, 64))
    codes = [op.code for op in toposort(written_out([x.erfinv().read()]), sources=graph_sources)]
    assert [codes.count(code) for code in (OpCode.LOG, OpCode.EXP, OpCode.ERF, OpCode.POW)] == [1, 1, 1, 0]
    p = np.concatenate([10.0 ** np.linspace(-300, -0.31, 500), [0.5, 0.75, 0.875, 1 - 2.0**-53]])
    np.testing.assert_allclose(
        pg.special.ndtri(Tensor(p)).numpy(), torch.special.ndtri(torch.tensor(p)).numpy(), rtol=2e-15
    )
    ends = np.array([0.0, -0.0, 5e-324, 1 - 2.0**-53, -1 + 2.0**-53, 1.0, -1.0, 1.5, np.nan, np.inf])
    found = Tensor(ends).erfinv().numpy()
    np.testing.assert_allclose(found, torch.tensor(ends).erfinv().numpy(), rtol=2e-15)
    assert np.array_equal(np.signbit(found[:7]), np.signbit(ends[:7]))


LOGIT = [0.0, 1e-30, 0.2499, 0.25, 0.4999, 0.5, 0.5001, 0.75, 0.7501, 1.0, -1e-30, 1.5, np.nan, np.inf]


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_logit_takes_two_logarithms(name: str) -> None:
    theirs = torch.tensor(LOGIT, dtype=getattr(torch, name)).requires_grad_()
    mine = Tensor(theirs.detach().double().numpy()).to(getattr(dtypes, name)).requires_grad_()
    assert [op.code for op in toposort(written_out([mine.logit().read()]), sources=graph_sources)].count(OpCode.LOG) == 2
    mine.logit().sum().backward()
    theirs.logit().sum().backward()
    known, eps = theirs.detach().double().logit().to(theirs.dtype), torch.finfo(theirs.dtype).eps
    for found, wanted in ((mine.logit().detach(), known), (mine.grad, theirs.grad)):
        np.testing.assert_allclose(found.double().numpy(), wanted.double().numpy(), rtol=4 * eps, atol=eps)


# ---- gradients at the ends ----
ENDS: dict[str, list[float]] = {
    "acos": [1.0, -1.0, 0.0], "asin": [1.0, -1.0, 0.0], "atan": [0.0, np.inf, -np.inf], "acosh": [1.0, 1e30],
    "asinh": [0.0, -0.0, 1e30, np.inf], "atanh": [0.0, 0.5], "erfc": [0.0, 100.0, -100.0, np.inf], "erfinv": [0.0, 0.999],
    "lgamma": [0.0, 1.0, 2.0], "sinc": [0.0, 1.0], "logit": [0.0, 1.0, 0.5], "nan_to_num": [np.inf, np.nan, 1.0],
    "digamma": [1.0, -0.5], "i0": [0.0, 8.0, -8.0],
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_gradients_at_the_ends_of_the_domain(name: str, device: str) -> None:
    x, y = (library.tensor(ENDS[name], dtype=library.float64, requires_grad=True) for library in (pg, torch))
    for tensor in (x, y):
        getattr(tensor, name)().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", ["atan2", "logaddexp", "logaddexp2", "xlogy", "fmax", "fmin", "copysign", "hypot"])
def test_gradients_of_pairs_at_zeros_and_ties(name: str, device: str) -> None:
    values = np.array([0.0, 1.0, -1.0, 2.0])
    a, b = (part.ravel().copy() for part in np.meshgrid(values, values))
    if name == "hypot":
        a, b = a[1:], b[1:]  # PyTorch's is NaN at (0, 0)
    if name == "xlogy":
        b = np.abs(b) + 0.5
    grads = []
    for library in (pg, torch):
        leaves = [library.tensor(part, requires_grad=True) for part in (a, b)]
        getattr(leaves[0], name)(leaves[1]).sum().backward()
        grads.append([np.zeros_like(a) if leaf.grad is None else leaf.grad.numpy() for leaf in leaves])
    for mine, theirs in zip(*grads):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)


# ---- digits ----
def spread(low: float, high: float) -> np.ndarray[Any, Any]:
    """Returns 4000 numbers evenly from low to high, and 2000 evenly in their logarithms from 1e-20 up to the ends."""
    small = np.exp(np.linspace(np.log(1e-20), np.log(max(abs(low), abs(high))), 1000))
    values = np.concatenate([np.linspace(low, high, 4000)[1:-1], small, -small])
    return values[(values > low) & (values < high)]


# name: (domain, ulp of float32 against PyTorch's float64, relative error of float64 against PyTorch's)
DIGITS: dict[str, tuple[tuple[float, float], float, float]] = {
    "acos": ((-1, 1), 3.0, 4e-15), "asin": ((-1, 1), 3.0, 1e-15), "atan": ((-1e4, 1e4), 2.5, 1e-15),
    "asinh": ((-1e4, 1e4), 3.0, 1e-15), "acosh": ((1, 1e4), 3.0, 2e-15), "atanh": ((-1, 1), 3.0, 2e-15),
    "expm1": ((-20, 80), 2.0, 1e-15), "log1p": ((-1, 1e6), 2.5, 1e-15), "log10": ((0, 1e6), 2.0, 1e-15),
    "sinh": ((-80, 80), 2.5, 1e-15), "cosh": ((-80, 80), 2.0, 1e-15), "tan": ((-10, 10), 3.5, 2e-15),
    "sigmoid": ((-80, 80), 2.0, 1e-15), "logit": ((0, 1), 3.0, 1e-13), "erfc": ((-5, 10), 1.0, 4e-15),
    "erfinv": ((-1, 1), 1.0, 1e-15), "digamma": ((0, 1e4), 1.0, 1e-13), "i0": ((-80, 80), 1.0, 4e-15),
}  # fmt: skip


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", DIGITS)
def test_digits(name: str, device: str) -> None:
    domain, ulps, relative = DIGITS[name]
    x = spread(*domain)
    single = x.astype(np.float32)
    single = single[(single > domain[0]) & (single < domain[1])]
    exact = getattr(torch.tensor(single.astype(np.float64)), name)().numpy()
    distance = np.abs(getattr(Tensor(single), name)().numpy() - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert distance.max() <= ulps, (single[distance.argmax()], distance.max())
    mine, theirs = getattr(Tensor(x), name)().numpy(), getattr(torch.tensor(x), name)().numpy()
    error = np.abs(mine - theirs) / np.maximum(np.abs(theirs), 1e-3 if name in ("digamma", "logit") else 1e-300)
    assert error.max() <= relative, (x[error.argmax()], error.max())


# ---- what is refused ----
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "frac": (lambda: Tensor([1, 2]).frac(), DTypeError, "frac: needs a float, got int64 of shape (2,)."),
    "frexp": (lambda: Tensor([1, 2]).frexp(), DTypeError, "frexp: needs a float, got int64 of shape (2,)."),
    "gcd": (lambda: Tensor([True]).gcd(Tensor([True])), DTypeError, "gcd: needs integers, got bools of shape (1,)."),
    "lcm": (lambda: Tensor([1.0]).lcm(2), DTypeError, "lcm: needs integers or bools, got float32 of shape (1,)."),
    "positive": (lambda: Tensor([True]).positive(), DTypeError, "positive: bools have no sign, got shape (1,)."),
    "polygamma": (lambda: Tensor([1.0]).polygamma(-1), ArgumentError, "polygamma: n must be at least 0, got -1."),
    "mvlgamma": (lambda: Tensor([1.0]).mvlgamma(0), ArgumentError, "mvlgamma: p must be at least 1, got 0."),
    "fmod": (lambda: Tensor([True]).fmod(True), DTypeError, "fmod: bools have no fmod, got bool of shape (1,)."),
    "addcdiv": (
        lambda: Tensor([1]).addcdiv(Tensor([1]), Tensor([1])), DTypeError,
        "addcdiv: int64 / int64 is ambiguous: a true or a rounded quotient.",
    ),
    "hypot": (
        lambda: Tensor([1.0]).hypot("2"), DTypeError, "hypot: the other operand must be a Tensor or a number, got str.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_on_its_line(name: str) -> None:
    call, kind, fact = REFUSED[name]
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__  # type: ignore[attr-defined]


def test_casts_by_name() -> None:
    x = Tensor([1.5, -1.5])
    assert [getattr(x, name)().dtype for name in ("short", "char")] == [dtypes.int16, dtypes.int8]
    assert x.abs().byte().dtype is dtypes.uint8
    assert x.to(dtype=dtypes.float64, device="CPU").dtype is dtypes.float64
    assert x.to(x.dtype) is x and x.to(x.dtype, copy=True) is not x
