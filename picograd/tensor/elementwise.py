"""Elementwise functions: exponentials, trigonometry, activations, rounding, special functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError
from picograd.ir.build import equal, less, less_equal, unary, where
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.tensor import pointwise, special_formulas
from picograd.tensor.arguments import at_least
from picograd.tensor.build import computed_in, need_float, to_float, whole
from picograd.tensor.core import T, TensorCore
from picograd.tensor.inplace import in_place

__all__ = [
    "abs", "abs_", "absolute", "acos", "acos_", "acosh", "acosh_", "angle", "arccos", "arccos_", "arccosh",
    "arccosh_", "arcsin", "arcsin_", "arcsinh", "arcsinh_", "arctan", "arctan_", "arctanh", "arctanh_", "asin",
    "asin_", "asinh", "asinh_", "atan", "atan_", "atanh", "atanh_", "ceil", "ceil_", "conj", "conj_physical", "cos",
    "cos_", "cosh", "cosh_", "deg2rad", "deg2rad_", "digamma", "erf", "erf_", "erfc", "erfc_", "erfinv", "exp",
    "exp2", "exp2_", "exp_", "expm1", "expm1_", "fix", "fix_", "floor", "floor_", "frac", "frac_", "frexp",
    "hardshrink", "i0", "i0_", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "lgamma", "log",
    "log10", "log10_", "log1p", "log1p_", "log2", "log2_", "log_", "logit", "logit_", "mvlgamma", "nan_to_num",
    "nan_to_num_", "neg", "neg_", "negative", "negative_", "positive", "rad2deg", "rad2deg_", "reciprocal",
    "reciprocal_", "relu", "relu_", "resolve_conj", "resolve_neg", "round", "round_", "rsqrt", "rsqrt_", "sgn",
    "sigmoid", "sigmoid_", "sign", "signbit", "sin", "sin_", "sinc", "sinc_", "sinh", "sinh_", "sqrt", "sqrt_",
    "square", "square_", "tan", "tan_", "tanh", "tanh_", "trunc", "trunc_",
]  # fmt: skip


# ---- exponentials, trigonometry, activations ----
def float_code(self: T, code: OpCode) -> T:
    return self.from_op(unary(code, to_float(self.read())), self.cell.device)


def composed(self: T, function: pointwise.Function, *args: Any) -> T:
    return self.from_op(function(self.read(), *args), self.cell.device)


def float_composed(self: T, function: pointwise.Function, *args: Any) -> T:
    """Returns a method that applies a composed formula; 16-bit floats are computed in float32."""
    op = to_float(self.read())
    return self.from_op(computed_in(op.dtype.compute_dtype, function, (op,), *args), self.cell.device)


# ---- exponentials and logarithms ----
def exp(self: T) -> T:
    """Returns e ** x.

    >>> Tensor([0.0, 1.0]).exp()
    Tensor([1.       , 2.7182817])
    """
    return float_code(self, OpCode.EXP)


def exp2(self: T) -> T:
    """Returns 2 ** x.

    >>> Tensor([0.0, 3.0]).exp2()
    Tensor([1., 8.])
    """
    return float_code(self, OpCode.EXP2)


def expm1(self: T) -> T:
    """Returns e ** x - 1, exact near 0.

    >>> Tensor([0.0, 1e-8]).expm1()
    Tensor([0.e+00, 1.e-08])
    """
    return float_composed(self, pointwise.expm1)


def log(self: T) -> T:
    """Returns the natural logarithm.

    >>> Tensor([1.0, 10.0]).log()
    Tensor([0.       , 2.3025851])
    """
    return float_code(self, OpCode.LOG)


def log2(self: T) -> T:
    """Returns the logarithm to base 2.

    >>> Tensor([1.0, 8.0]).log2()
    Tensor([0., 3.])
    """
    return float_code(self, OpCode.LOG2)


def log10(self: T) -> T:
    """Returns the logarithm to base 10.

    >>> Tensor([1.0, 1000.0]).log10()
    Tensor([0., 3.])
    """
    return float_composed(self, pointwise.log10)


def log1p(self: T) -> T:
    """Returns log(1 + x), exact near 0.

    >>> Tensor([0.0, 1e-8]).log1p()
    Tensor([0.e+00, 1.e-08])
    """
    return float_composed(self, pointwise.log1p)


def sqrt(self: T) -> T:
    """Returns the square root.

    >>> Tensor([4.0, 2.0]).sqrt()
    Tensor([2.       , 1.4142135])
    """
    return float_code(self, OpCode.SQRT)


def rsqrt(self: T) -> T:
    """Returns 1 / sqrt(x).

    >>> Tensor([4.0, 16.0]).rsqrt()
    Tensor([0.5 , 0.25])
    """
    return float_composed(self, pointwise.rsqrt)


def square(self: T) -> T:
    """Returns x * x; of bools as int64, as in PyTorch.

    >>> Tensor([3.0, -2.0]).square()
    Tensor([9., 4.])
    """
    return self**2


def reciprocal(self: T) -> T:
    """Returns 1 / x.

    >>> Tensor([4.0, -2.0]).reciprocal()
    Tensor([ 0.25, -0.5 ])
    """
    return float_code(self, OpCode.RECIPROCAL)


# ---- trigonometry ----
def sin(self: T) -> T:
    """Returns the sine of x in radians.

    >>> Tensor([0.0, 1.0]).sin()
    Tensor([0.        , 0.84147096])
    """
    return float_code(self, OpCode.SIN)


def cos(self: T) -> T:
    """Returns the cosine of x in radians.

    >>> Tensor([0.0, 1.0]).cos()
    Tensor([1.       , 0.5403023])
    """
    return float_code(self, OpCode.COS)


def tan(self: T) -> T:
    """Returns the tangent of x in radians.

    >>> Tensor([0.0, 1.0]).tan()
    Tensor([0.       , 1.5574077])
    """
    return float_composed(self, pointwise.tan)


def sinh(self: T) -> T:
    """Returns the hyperbolic sine.

    >>> Tensor([0.0, 1.0]).sinh()
    Tensor([0.       , 1.1752012])
    """
    return float_composed(self, pointwise.sinh)


def cosh(self: T) -> T:
    """Returns the hyperbolic cosine.

    >>> Tensor([0.0, 1.0]).cosh()
    Tensor([1.       , 1.5430806])
    """
    return float_composed(self, pointwise.cosh)


def tanh(self: T) -> T:
    """Returns the hyperbolic tangent.

    >>> Tensor([0.0, 1.0]).tanh()
    Tensor([0.       , 0.7615942])
    """
    return float_code(self, OpCode.TANH)


def acos(self: T) -> T:
    """Returns the angle in [0, pi] whose cosine is x; NaN if |x| > 1.

    >>> Tensor([1.0, 0.0, -1.0]).acos()
    Tensor([0.       , 1.5707964, 3.1415927])
    """
    return float_composed(self, pointwise.acos)


def asin(self: T) -> T:
    """Returns the angle in [-pi/2, pi/2] whose sine is x; NaN if |x| > 1.

    >>> Tensor([0.0, 1.0]).asin()
    Tensor([0.       , 1.5707964])
    """
    return float_composed(self, pointwise.asin)


def atan(self: T) -> T:
    """Returns the angle in [-pi/2, pi/2] whose tangent is x.

    >>> Tensor([0.0, 1.0]).atan()
    Tensor([0.       , 0.7853981])
    """
    return float_composed(self, pointwise.atan)


def acosh(self: T) -> T:
    """Returns the number >= 0 whose hyperbolic cosine is x; NaN below 1.

    >>> Tensor([1.0, 2.0]).acosh()
    Tensor([0.      , 1.316958])
    """
    return float_composed(self, pointwise.acosh)


def asinh(self: T) -> T:
    """Returns the number whose hyperbolic sine is x.

    >>> Tensor([0.0, 1.0]).asinh()
    Tensor([0.       , 0.8813736])
    """
    return float_composed(self, pointwise.asinh)


def atanh(self: T) -> T:
    """Returns the number whose hyperbolic tangent is x; infinite at -1 and 1, NaN beyond.

    >>> Tensor([0.0, 0.5]).atanh()
    Tensor([0.        , 0.54930615])
    """
    return float_composed(self, pointwise.atanh)


# ---- angles ----
def deg2rad(self: T) -> T:
    """Returns x degrees in radians.

    >>> Tensor([180.0]).deg2rad()
    Tensor([3.1415927])
    """
    return float_composed(self, lambda x: x * (math.pi / 180))


def rad2deg(self: T) -> T:
    """Returns x radians in degrees.

    >>> Tensor([math.pi]).rad2deg()
    Tensor([180.])
    """
    return float_composed(self, lambda x: x * (180 / math.pi))


# ---- activations ----
def relu(self: T) -> T:
    """Returns x if it is positive, else 0.

    >>> Tensor([-1.5, 0.0, 2.5]).relu()
    Tensor([0. , 0. , 2.5])
    """
    return self.from_op(pointwise.relu(self.read()), self.cell.device)  # `composed` written out


def sigmoid(self: T) -> T:
    """Returns 1 / (1 + exp(-x)).

    >>> Tensor([0.0, 2.0]).sigmoid()
    Tensor([0.5     , 0.880797])
    """
    return float_composed(self, pointwise.sigmoid)


def silu(self: T) -> T:
    """Returns x * sigmoid(x).

    >>> Tensor([0.0, 2.0]).silu()
    Tensor([0.      , 1.761594])
    """
    return float_composed(self, pointwise.silu)


def gelu(self: T, approximate: str = "none") -> T:
    """Returns x * Phi(x), Phi the normal distribution function; approximate="tanh" is cheaper.

    Raises:
      ArgumentError: approximate is neither "none" nor "tanh".

    >>> Tensor([0.0, 2.0]).gelu()
    Tensor([0.       , 1.9544997])
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'gelu: approximate must be "none" or "tanh", got {approximate!r}.')
    return float_composed(self, pointwise.gelu, approximate == "tanh")


def softplus(self: T, beta: float = 1.0, threshold: float = 20.0) -> T:
    """Returns log(1 + exp(beta * x)) / beta; x itself if beta * x is above the threshold.

    >>> Tensor([0.0, 30.0]).softplus()
    Tensor([ 0.6931472, 30.       ])
    """
    return float_composed(self, pointwise.softplus, beta, threshold)


def hardshrink(self: T, lambd: float = 0.5) -> T:
    """Returns 0 if -lambd <= x <= lambd, else x.

    Raises:
      DTypeError: x is not a float.

    >>> Tensor([-1.0, 0.25, 1.0]).hardshrink()
    Tensor([-1.,  0.,  1.])
    """
    need_float("hardshrink", self.op)
    return float_composed(self, lambda x: where(less_equal(pointwise.absolute(x), lambd), 0.0, x))


def in_one_rounding(function: Callable[..., T], first: T, *others: Any) -> T:
    """Returns a function of tensors and numbers that computes 16-bit floats in float32 and rounds once."""
    kind = type(first)
    operands: list[Any] = [
        kind.from_op(one.read(), one.cell.device) if isinstance(one, TensorCore) else one for one in (first, *others)
    ]
    floats = {t.dtype for t in operands if isinstance(t, TensorCore) and t.dtype.is_float}
    dtype = floats.pop() if len(floats) == 1 else None
    if dtype is None or dtype.compute_dtype is dtype:
        return function(*operands)
    wide = [t.to(dtype.compute_dtype) if isinstance(t, kind) and t.dtype.is_float else t for t in operands]
    return function(*wide).to(dtype)


# ---- parts of numbers ----
class FrexpResult(NamedTuple):
    """The result of frexp.

    mantissa:  1/2 <= |mantissa| < 1, or 0
    exponent:  int32
    """

    mantissa: Any
    exponent: Any


# ---- sign, rounding, parts ----
def abs(self: T) -> T:
    """Returns |x|.

    >>> Tensor([-1.5, 2.5]).abs()
    Tensor([1.5, 2.5])
    """
    return composed(self, pointwise.absolute)


def neg(self: T) -> T:
    """Returns -x.

    >>> Tensor([-1.5, 2.5]).neg()
    Tensor([ 1.5, -2.5])
    """
    return -self


def sign(self: T) -> T:
    """Returns -1, 0 or 1.

    >>> Tensor([-1.5, 0.0, 2.5]).sign()
    Tensor([-1.,  0.,  1.])
    """
    return composed(self, pointwise.sign)


def floor(self: T) -> T:
    """Returns the largest integer <= x, in the dtype of x.

    >>> Tensor([-1.5, 0.0, 2.5]).floor()
    Tensor([-2.,  0.,  2.])
    """
    return composed(self, pointwise.floor)


def ceil(self: T) -> T:
    """Returns the smallest integer >= x, in the dtype of x.

    >>> Tensor([-1.5, 0.0, 2.5]).ceil()
    Tensor([-1.,  0.,  3.])
    """
    return composed(self, pointwise.ceil)


def trunc(self: T) -> T:
    """Returns x rounded toward zero, in the dtype of x.

    >>> Tensor([-1.5, 0.0, 2.5]).trunc()
    Tensor([-1.,  0.,  2.])
    """
    return composed(self, pointwise.trunc)


def round(self: T, decimals: int = 0) -> T:
    """Returns x rounded to `decimals` decimal places, halves to the even digit.

    >>> Tensor([0.5, 1.5, 2.347]).round()
    Tensor([0., 2., 2.])
    """
    decimals = whole("round", "decimals", decimals)
    if decimals == 0 or not self.dtype.is_float:
        return composed(self, pointwise.round_even)
    scale = 10.0**decimals
    return in_one_rounding(lambda x: (x * scale).round() / scale, self)


def frac(self: T) -> T:
    """Returns x - trunc(x).

    Raises:
      DTypeError: x is not a float.

    >>> Tensor([1.5, -1.5]).frac()
    Tensor([ 0.5, -0.5])
    """
    op = need_float("frac", self.read())
    return self.from_op(op - pointwise.trunc(op), self.cell.device)


def frexp(self: T) -> FrexpResult:
    """Returns (mantissa, exponent) with x = mantissa * 2 ** exponent and 1/2 <= |mantissa| < 1.

    Raises:
      DTypeError: x is not a float.

    >>> mantissa, exponent = Tensor([8.0, -0.75]).frexp()
    >>> mantissa.tolist(), exponent.tolist()
    ([0.5, -0.75], [4, 0])
    """
    mantissa, exponent = pointwise.frexp(need_float("frexp", self.read()))
    return FrexpResult(self.from_op(mantissa, self.cell.device), self.from_op(exponent, self.cell.device))


def sgn(self: T) -> T:
    """Returns -1, 0 or 1, as sign does.

    >>> Tensor([-1.5, 0.0, 2.5]).sgn()
    Tensor([-1.,  0.,  1.])
    """
    return self.sign()


def signbit(self: T) -> T:
    """Returns True if the sign bit is set: for negative numbers and -0.0.

    >>> Tensor([-1.0, -0.0, 0.0]).signbit()
    Tensor([ True,  True, False])
    """
    if self.dtype.kind in "bu":
        return self.from_op(filled(False, dtypes.bool_, self.op.shape), self.cell.device)
    return composed(self, pointwise.is_negative)


__abs__ = abs
absolute, negative, fix = abs, neg, trunc


# ---- what kind of number it is ----
def isnan(self: T) -> T:
    """Returns True for NaN.

    >>> Tensor([float("nan"), 1.0]).isnan()
    Tensor([ True, False])
    """
    return composed(self, pointwise.is_nan)


def isinf(self: T) -> T:
    """Returns True for plus and minus infinity.

    >>> Tensor([float("inf"), 1.0]).isinf()
    Tensor([ True, False])
    """
    return float_composed(self, pointwise.is_infinite)


def isfinite(self: T) -> T:
    """Returns True for neither NaN nor infinity.

    >>> Tensor([float("inf"), 1.0]).isfinite()
    Tensor([False,  True])
    """
    return float_composed(self, pointwise.is_finite)


def isposinf(self: T) -> T:
    """Returns True for plus infinity.

    >>> Tensor([float("inf"), float("-inf")]).isposinf()
    Tensor([ True, False])
    """
    return float_composed(self, lambda x: equal(x, math.inf))


def isneginf(self: T) -> T:
    """Returns True for minus infinity.

    >>> Tensor([float("inf"), float("-inf")]).isneginf()
    Tensor([False,  True])
    """
    return float_composed(self, lambda x: equal(x, -math.inf))


def isreal(self: T) -> T:
    """Returns True everywhere: there are no complex numbers.

    >>> Tensor([1.0]).isreal()
    Tensor([ True])
    """
    return self.from_op(filled(True, dtypes.bool_, self.op.shape), self.cell.device)


def nan_to_num(self: T, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> T:
    """Returns x with NaN replaced by `nan` and infinities by `posinf` and `neginf`, by default the dtype's bounds.

    >>> Tensor([float("nan"), float("inf")]).nan_to_num(posinf=9.0)
    Tensor([0., 9.])
    """
    if not self.dtype.is_float:
        return self.clone()
    end = dtypes.finfo(self.dtype).max
    high, low = end if posinf is None else posinf, -end if neginf is None else neginf
    return composed(self, pointwise.nan_to_num, nan, high, low)


# ---- as a complex number with no imaginary part ----
def angle(self: T) -> T:
    """Returns pi if x < 0, else 0; NaN for NaN.

    >>> Tensor([-1.0, 1.0]).angle()
    Tensor([3.1415927, 0.       ])
    """
    op = to_float(self.read())
    value = where(less(op, 0.0), math.pi, op.filled(0.0))
    return self.from_op(where(pointwise.is_nan(op), op * 0.0, value), self.cell.device)


def conj(self: T) -> T:
    """Returns x itself: there are no complex numbers.

    >>> Tensor([1.0]).conj()
    Tensor([1.])
    """
    return self


conj_physical = resolve_conj = resolve_neg = conj


def positive(self: T) -> T:
    """Returns x itself.

    Raises:
      DTypeError: x is bool.

    >>> Tensor([-1.5]).positive()
    Tensor([-1.5])
    """
    if self.dtype.kind == "b":
        raise DTypeError(f"positive: bools have no sign, got shape {self.shape}.")
    return self


# ---- special functions ----
def _in_double(self: T, function: pointwise.Function, *args: Any) -> T:
    """Returns a function computed in float64, rounded once."""
    op = computed_in(dtypes.float64, function, (to_float(self.read()),), *args)
    return self.from_op(op, self.cell.device)


def erf(self: T) -> T:
    """Returns the error function.

    >>> Tensor([0.0, 1.0]).erf()
    Tensor([0.       , 0.8427008])
    """
    return float_code(self, OpCode.ERF)


def erfc(self: T) -> T:
    """Returns 1 - erf(x), accurate where it is small.

    >>> Tensor([0.0, 3.0]).erfc()
    Tensor([1.0000000e+00, 2.2090497e-05])
    """
    return _in_double(self, special_formulas.erfc)


def erfinv(self: T) -> T:
    """Returns y with erf(y) = x; infinite at -1 and 1, NaN beyond.

    >>> Tensor([0.0, 0.5]).erfinv()
    Tensor([0.        , 0.47693628])
    """
    return _in_double(self, special_formulas.erfinv)


def lgamma(self: T) -> T:
    """Returns log |gamma(x)|; infinite at 0, -1, -2, ...

    >>> Tensor([1.0, 5.0]).lgamma().round(decimals=4)
    Tensor([0.    , 3.1781])
    """
    return _in_double(self, special_formulas.lgamma)


def digamma(self: T) -> T:
    """Returns the derivative of lgamma; NaN at -1, -2, ...

    >>> Tensor([1.0, 2.0]).digamma()
    Tensor([-0.5772157 ,  0.42278433])
    """
    return _in_double(self, special_formulas.digamma)


def polygamma(self: T, n: int) -> T:
    """Returns the n-th derivative of digamma; for n > 1 NaN below 0.

    Raises:
      ArgumentError: n is negative.

    >>> Tensor([1.0, 2.0]).polygamma(1)
    Tensor([1.644934  , 0.64493406])
    """
    if isinstance(n, TensorCore):
        raise ArgumentError("polygamma: n is an int, and the argument of the method: x.polygamma(n).")
    at_least("polygamma", "n", n, 0)
    return _in_double(self, lambda x: special_formulas.polygamma(n, x))


def mvlgamma(self: T, p: int) -> T:
    """Returns the log of the multivariate gamma function: p (p - 1) log(pi) / 4 + sum of lgamma(x - j / 2), j < p.

    Raises:
      ArgumentError: p is below 1.

    >>> Tensor([3.0]).mvlgamma(2).round(decimals=4)
    Tensor([1.5502])
    """
    at_least("mvlgamma", "p", p, 1)
    return _in_double(self, special_formulas.mvlgamma, p)


def i0(self: T) -> T:
    """Returns the modified Bessel function of order 0.

    >>> Tensor([0.0, 1.0]).i0()
    Tensor([1.       , 1.2660658])
    """
    return _in_double(self, special_formulas.bessel, 0, False)


def sinc(self: T) -> T:
    """Returns sin(pi x) / (pi x), and 1 at 0.

    All derivatives at 0 are those of the function; PyTorch's second one there is NaN.

    >>> Tensor([0.0, 0.5]).sinc()
    Tensor([1.        , 0.63661975])
    """
    return float_composed(self, pointwise.sinc)


def logit(self: T, eps: float | None = None) -> T:
    """Returns log(x / (1 - x)), of x held between eps and 1 - eps where eps is given.

    >>> Tensor([0.5, 1.0]).logit(eps=0.25)
    Tensor([0.       , 1.0986123])
    """
    return float_composed(self, pointwise.logit, eps)


# ---- twins in place, and other names ----
exp_, exp2_, expm1_, log_ = in_place(exp), in_place(exp2), in_place(expm1), in_place(log)
log2_, log10_, log1p_, sqrt_ = in_place(log2), in_place(log10), in_place(log1p), in_place(sqrt)
rsqrt_, square_, reciprocal_ = in_place(rsqrt), in_place(square), in_place(reciprocal)
sin_, cos_, tan_, sinh_ = in_place(sin), in_place(cos), in_place(tan), in_place(sinh)
cosh_, tanh_, acos_, asin_ = in_place(cosh), in_place(tanh), in_place(acos), in_place(asin)
atan_, acosh_, asinh_, atanh_ = in_place(atan), in_place(acosh), in_place(asinh), in_place(atanh)
deg2rad_, rad2deg_, relu_ = in_place(deg2rad), in_place(rad2deg), in_place(relu)
sigmoid_, abs_, neg_, sign_ = in_place(sigmoid), in_place(abs), in_place(neg), in_place(sign)
floor_, ceil_, trunc_, round_ = in_place(floor), in_place(ceil), in_place(trunc), in_place(round)
frac_, sgn_, nan_to_num_, erf_ = in_place(frac), in_place(sgn), in_place(nan_to_num), in_place(erf)
erfc_, erfinv_, lgamma_ = in_place(erfc), in_place(erfinv), in_place(lgamma)
digamma_, polygamma_, mvlgamma_ = in_place(digamma), in_place(polygamma), in_place(mvlgamma)
i0_, sinc_, logit_ = in_place(i0), in_place(sinc), in_place(logit)
arccos, arcsin, arctan = acos, asin, atan
arccosh, arcsinh, arctanh = acosh, asinh, atanh
arccos_, arcsin_, arctan_ = acos_, asin_, atan_
arccosh_, arcsinh_, arctanh_ = acosh_, asinh_, atanh_
absolute_, negative_, fix_ = abs_, neg_, trunc_
