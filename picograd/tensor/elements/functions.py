"""Functions of each element: exponentials and logarithms, trigonometry, activations.

In:    tensors
Out:   `Functions`
Next:  picograd/tensor/elements/parts.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from picograd.errors import ArgumentError
from picograd.ir.build import compare, unary, where
from picograd.ir.opcode import OpCode
from picograd.tensor.build import computed_in, need_float, to_float
from picograd.tensor.core import T, TensorCore
from picograd.tensor.elements import inverses, pointwise
from picograd.tensor.inplace import in_place


def float_code(self: T, code: OpCode) -> T:
    return self.from_op(unary(code, to_float(self.read())), self.cell.device)


def composed(self: T, function: pointwise.Function, *args: Any) -> T:
    return self.from_op(function(self.read(), *args), self.cell.device)


def float_composed(self: T, function: pointwise.Function, *args: Any) -> T:
    """Returns a composition, of narrow floats in float32."""
    op = to_float(self.read())
    return self.from_op(computed_in(op.dtype.compute_dtype, function, (op,), *args), self.cell.device)


# ---- exponentials and logarithms ----
def exp(self: T) -> T:
    """Returns e ** x.

    >>> Tensor([0.0, 1.0]).exp()
    Tensor([1.       , 2.7182817])
    """
    return float_code(self, OpCode.EXP)


exp_ = in_place(exp)


def exp2(self: T) -> T:
    """Returns 2 ** x.

    >>> Tensor([0.0, 3.0]).exp2()
    Tensor([1., 8.])
    """
    return float_code(self, OpCode.EXP2)


exp2_ = in_place(exp2)


def expm1(self: T) -> T:
    """Returns e ** x - 1, exact near 0.

    >>> Tensor([0.0, 1e-8]).expm1()
    Tensor([0.e+00, 1.e-08])
    """
    return float_composed(self, pointwise.expm1)


expm1_ = in_place(expm1)


def log(self: T) -> T:
    """Returns the natural logarithm.

    >>> Tensor([1.0, 10.0]).log()
    Tensor([0.       , 2.3025851])
    """
    return float_code(self, OpCode.LOG)


log_ = in_place(log)


def log2(self: T) -> T:
    """Returns the logarithm to base 2.

    >>> Tensor([1.0, 8.0]).log2()
    Tensor([0., 3.])
    """
    return float_code(self, OpCode.LOG2)


log2_ = in_place(log2)


def log10(self: T) -> T:
    """Returns the logarithm to base 10.

    >>> Tensor([1.0, 1000.0]).log10()
    Tensor([0., 3.])
    """
    return float_composed(self, pointwise.log10)


log10_ = in_place(log10)


def log1p(self: T) -> T:
    """Returns log(1 + x), exact near 0.

    >>> Tensor([0.0, 1e-8]).log1p()
    Tensor([0.e+00, 1.e-08])
    """
    return float_composed(self, pointwise.log1p)


log1p_ = in_place(log1p)


def sqrt(self: T) -> T:
    """Returns the square root.

    >>> Tensor([4.0, 2.0]).sqrt()
    Tensor([2.       , 1.4142135])
    """
    return float_code(self, OpCode.SQRT)


sqrt_ = in_place(sqrt)


def rsqrt(self: T) -> T:
    """Returns 1 / sqrt(x).

    >>> Tensor([4.0, 16.0]).rsqrt()
    Tensor([0.5 , 0.25])
    """
    return float_composed(self, pointwise.rsqrt)


rsqrt_ = in_place(rsqrt)


def square(self: T) -> T:
    """Returns x * x; of bools as int64, as in PyTorch.

    >>> Tensor([3.0, -2.0]).square()
    Tensor([9., 4.])
    """
    return self**2


square_ = in_place(square)


def reciprocal(self: T) -> T:
    """Returns 1 / x.

    >>> Tensor([4.0, -2.0]).reciprocal()
    Tensor([ 0.25, -0.5 ])
    """
    return float_code(self, OpCode.RECIPROCAL)


reciprocal_ = in_place(reciprocal)


# ---- trigonometry ----
def sin(self: T) -> T:
    """Returns the sine of x in radians.

    >>> Tensor([0.0, 1.0]).sin()
    Tensor([0.        , 0.84147096])
    """
    return float_code(self, OpCode.SIN)


sin_ = in_place(sin)


def cos(self: T) -> T:
    """Returns the cosine of x in radians.

    >>> Tensor([0.0, 1.0]).cos()
    Tensor([1.       , 0.5403023])
    """
    return float_code(self, OpCode.COS)


cos_ = in_place(cos)


def tan(self: T) -> T:
    """Returns the tangent of x in radians.

    >>> Tensor([0.0, 1.0]).tan()
    Tensor([0.       , 1.5574077])
    """
    return float_composed(self, pointwise.tan)


tan_ = in_place(tan)


def sinh(self: T) -> T:
    """Returns the hyperbolic sine.

    >>> Tensor([0.0, 1.0]).sinh()
    Tensor([0.       , 1.1752012])
    """
    return float_composed(self, pointwise.sinh)


sinh_ = in_place(sinh)


def cosh(self: T) -> T:
    """Returns the hyperbolic cosine.

    >>> Tensor([0.0, 1.0]).cosh()
    Tensor([1.       , 1.5430806])
    """
    return float_composed(self, pointwise.cosh)


cosh_ = in_place(cosh)


def tanh(self: T) -> T:
    """Returns the hyperbolic tangent.

    >>> Tensor([0.0, 1.0]).tanh()
    Tensor([0.       , 0.7615942])
    """
    return float_code(self, OpCode.TANH)


tanh_ = in_place(tanh)


def acos(self: T) -> T:
    """Returns the angle with the cosine x, in 0..pi; NaN beyond 1.

    >>> Tensor([1.0, 0.0, -1.0]).acos()
    Tensor([0.       , 1.5707964, 3.1415927])
    """
    return float_composed(self, inverses.acos)


acos_ = in_place(acos)


def asin(self: T) -> T:
    """Returns the angle with the sine x, in -pi/2..pi/2; NaN beyond 1.

    >>> Tensor([0.0, 1.0]).asin()
    Tensor([0.       , 1.5707964])
    """
    return float_composed(self, inverses.asin)


asin_ = in_place(asin)


def atan(self: T) -> T:
    """Returns the angle with the tangent x, in -pi/2..pi/2.

    >>> Tensor([0.0, 1.0]).atan()
    Tensor([0.       , 0.7853981])
    """
    return float_composed(self, inverses.atan)


atan_ = in_place(atan)


def acosh(self: T) -> T:
    """Returns the number >= 0 with the hyperbolic cosine x; NaN below 1.

    >>> Tensor([1.0, 2.0]).acosh()
    Tensor([0.      , 1.316958])
    """
    return float_composed(self, inverses.acosh)


acosh_ = in_place(acosh)


def asinh(self: T) -> T:
    """Returns the number with the hyperbolic sine x.

    >>> Tensor([0.0, 1.0]).asinh()
    Tensor([0.       , 0.8813736])
    """
    return float_composed(self, inverses.asinh)


asinh_ = in_place(asinh)


def atanh(self: T) -> T:
    """Returns the number with the hyperbolic tangent x; infinite at -1 and 1, NaN beyond.

    >>> Tensor([0.0, 0.5]).atanh()
    Tensor([0.        , 0.54930615])
    """
    return float_composed(self, inverses.atanh)


atanh_ = in_place(atanh)

arccos, arcsin, arctan = acos, asin, atan
arccosh, arcsinh, arctanh = acosh, asinh, atanh
arccos_, arcsin_, arctan_ = acos_, asin_, atan_
arccosh_, arcsinh_, arctanh_ = acosh_, asinh_, atanh_


# ---- angles ----
def deg2rad(self: T) -> T:
    """Returns x degrees in radians.

    >>> Tensor([180.0]).deg2rad()
    Tensor([3.1415927])
    """
    return float_composed(self, lambda x: x * (math.pi / 180))


deg2rad_ = in_place(deg2rad)


def rad2deg(self: T) -> T:
    """Returns x radians in degrees.

    >>> Tensor([math.pi]).rad2deg()
    Tensor([180.])
    """
    return float_composed(self, lambda x: x * (180 / math.pi))


rad2deg_ = in_place(rad2deg)


# ---- activations ----
def relu(self: T) -> T:
    """Returns 0 where x <= 0, else x.

    >>> Tensor([-1.5, 0.0, 2.5]).relu()
    Tensor([0. , 0. , 2.5])
    """
    return composed(self, pointwise.relu)


relu_ = in_place(relu)


def sigmoid(self: T) -> T:
    """Returns 1 / (1 + exp(-x)).

    >>> Tensor([0.0, 2.0]).sigmoid()
    Tensor([0.5     , 0.880797])
    """
    return float_composed(self, pointwise.sigmoid)


sigmoid_ = in_place(sigmoid)


def silu(self: T) -> T:
    """Returns x * sigmoid(x).

    >>> Tensor([0.0, 2.0]).silu()
    Tensor([0.      , 1.761594])
    """
    return float_composed(self, pointwise.silu)


def gelu(self: T, approximate: str = "none") -> T:
    """Returns x * Phi(x), Phi the normal distribution function; approximate="tanh" is the cheaper form.

    Raises:
      ArgumentError: another word than "none" or "tanh".

    >>> Tensor([0.0, 2.0]).gelu()
    Tensor([0.       , 1.9544997])
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'gelu: approximate must be "none" or "tanh", got {approximate!r}.')
    return float_composed(self, pointwise.gelu, approximate == "tanh")


def softplus(self: T, beta: float = 1.0, threshold: float = 20.0) -> T:
    """Returns log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold.

    >>> Tensor([0.0, 30.0]).softplus()
    Tensor([ 0.6931472, 30.       ])
    """
    return float_composed(self, pointwise.softplus, beta, threshold)


def hardshrink(self: T, lambd: float = 0.5) -> T:
    """Returns 0 where -lambd <= x <= lambd, else x.

    Raises:
      DTypeError: of integers.

    >>> Tensor([-1.0, 0.25, 1.0]).hardshrink()
    Tensor([-1.,  0.,  1.])
    """
    need_float("hardshrink", self.op)
    return float_composed(self, lambda x: where(compare(OpCode.CMPLE, pointwise.absolute(x), lambd), 0.0, x))


def in_one_rounding(function: Callable[..., T], first: T, *others: Any) -> T:
    """Returns a function of tensors, some of which may be numbers; of narrow floats in float32 and rounded at the end."""
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
