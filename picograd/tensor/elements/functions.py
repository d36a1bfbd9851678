"""Functions of each element: exponentials and logarithms, trigonometry, activations.

In:    tensors
Out:   `Functions`
Next:  picograd/tensor/elements/parts.py
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self, TypeVar

from picograd.errors import ArgumentError
from picograd.ir.build import compare, unary, where
from picograd.ir.opcode import OpCode
from picograd.tensor.build import computed_in, need_float, to_float
from picograd.tensor.core import TensorCore
from picograd.tensor.elements import inverses, pointwise
from picograd.tensor.elements.casts import Casts
from picograd.tensor.inplace import in_place

T = TypeVar("T", bound=Casts)


class Functions(Casts):
    """Functions of each element. Integers become float32 where the result is a float, as in PyTorch."""

    __slots__ = ()

    def _float_code(self, code: OpCode) -> Self:
        return self.from_op(unary(code, to_float(self.read())), self.cell.device)

    def _composed(self, function: pointwise.Function, *args: Any) -> Self:
        return self.from_op(function(self.read(), *args), self.cell.device)

    def _float_composed(self, function: pointwise.Function, *args: Any) -> Self:
        """Returns a composition, of narrow floats in float32."""
        op = to_float(self.read())
        return self.from_op(computed_in(op.dtype.compute_dtype, function, (op,), *args), self.cell.device)

    # ---- exponentials and logarithms ----
    def exp(self) -> Self:
        """Returns e ** x.

        >>> Tensor([0.0, 1.0]).exp()
        Tensor([1.       , 2.7182817])
        """
        return self._float_code(OpCode.EXP)

    exp_ = in_place(exp)

    def exp2(self) -> Self:
        """Returns 2 ** x.

        >>> Tensor([0.0, 3.0]).exp2()
        Tensor([1., 8.])
        """
        return self._float_code(OpCode.EXP2)

    exp2_ = in_place(exp2)

    def expm1(self) -> Self:
        """Returns e ** x - 1, exact near 0.

        >>> Tensor([0.0, 1e-8]).expm1()
        Tensor([0.e+00, 1.e-08])
        """
        return self._float_composed(pointwise.expm1)

    expm1_ = in_place(expm1)

    def log(self) -> Self:
        """Returns the natural logarithm.

        >>> Tensor([1.0, 10.0]).log()
        Tensor([0.       , 2.3025851])
        """
        return self._float_code(OpCode.LOG)

    log_ = in_place(log)

    def log2(self) -> Self:
        """Returns the logarithm to base 2.

        >>> Tensor([1.0, 8.0]).log2()
        Tensor([0., 3.])
        """
        return self._float_code(OpCode.LOG2)

    log2_ = in_place(log2)

    def log10(self) -> Self:
        """Returns the logarithm to base 10.

        >>> Tensor([1.0, 1000.0]).log10()
        Tensor([0., 3.])
        """
        return self._float_composed(pointwise.log10)

    log10_ = in_place(log10)

    def log1p(self) -> Self:
        """Returns log(1 + x), exact near 0.

        >>> Tensor([0.0, 1e-8]).log1p()
        Tensor([0.e+00, 1.e-08])
        """
        return self._float_composed(pointwise.log1p)

    log1p_ = in_place(log1p)

    def sqrt(self) -> Self:
        """Returns the square root.

        >>> Tensor([4.0, 2.0]).sqrt()
        Tensor([2.       , 1.4142135])
        """
        return self._float_code(OpCode.SQRT)

    sqrt_ = in_place(sqrt)

    def rsqrt(self) -> Self:
        """Returns 1 / sqrt(x).

        >>> Tensor([4.0, 16.0]).rsqrt()
        Tensor([0.5 , 0.25])
        """
        return self._float_composed(pointwise.rsqrt)

    rsqrt_ = in_place(rsqrt)

    def square(self) -> Self:
        """Returns x * x; of bools as int64, as in PyTorch.

        >>> Tensor([3.0, -2.0]).square()
        Tensor([9., 4.])
        """
        return self**2

    square_ = in_place(square)

    def reciprocal(self) -> Self:
        """Returns 1 / x.

        >>> Tensor([4.0, -2.0]).reciprocal()
        Tensor([ 0.25, -0.5 ])
        """
        return self._float_code(OpCode.RECIPROCAL)

    reciprocal_ = in_place(reciprocal)

    # ---- trigonometry ----
    def sin(self) -> Self:
        """Returns the sine of x in radians.

        >>> Tensor([0.0, 1.0]).sin()
        Tensor([0.        , 0.84147096])
        """
        return self._float_code(OpCode.SIN)

    sin_ = in_place(sin)

    def cos(self) -> Self:
        """Returns the cosine of x in radians.

        >>> Tensor([0.0, 1.0]).cos()
        Tensor([1.       , 0.5403023])
        """
        return self._float_code(OpCode.COS)

    cos_ = in_place(cos)

    def tan(self) -> Self:
        """Returns the tangent of x in radians.

        >>> Tensor([0.0, 1.0]).tan()
        Tensor([0.       , 1.5574077])
        """
        return self._float_composed(pointwise.tan)

    tan_ = in_place(tan)

    def sinh(self) -> Self:
        """Returns the hyperbolic sine.

        >>> Tensor([0.0, 1.0]).sinh()
        Tensor([0.       , 1.1752012])
        """
        return self._float_composed(pointwise.sinh)

    sinh_ = in_place(sinh)

    def cosh(self) -> Self:
        """Returns the hyperbolic cosine.

        >>> Tensor([0.0, 1.0]).cosh()
        Tensor([1.       , 1.5430806])
        """
        return self._float_composed(pointwise.cosh)

    cosh_ = in_place(cosh)

    def tanh(self) -> Self:
        """Returns the hyperbolic tangent.

        >>> Tensor([0.0, 1.0]).tanh()
        Tensor([0.       , 0.7615942])
        """
        return self._float_code(OpCode.TANH)

    tanh_ = in_place(tanh)

    def acos(self) -> Self:
        """Returns the angle with the cosine x, in 0..pi; NaN beyond 1.

        >>> Tensor([1.0, 0.0, -1.0]).acos()
        Tensor([0.       , 1.5707964, 3.1415927])
        """
        return self._float_composed(inverses.acos)

    acos_ = in_place(acos)

    def asin(self) -> Self:
        """Returns the angle with the sine x, in -pi/2..pi/2; NaN beyond 1.

        >>> Tensor([0.0, 1.0]).asin()
        Tensor([0.       , 1.5707964])
        """
        return self._float_composed(inverses.asin)

    asin_ = in_place(asin)

    def atan(self) -> Self:
        """Returns the angle with the tangent x, in -pi/2..pi/2.

        >>> Tensor([0.0, 1.0]).atan()
        Tensor([0.       , 0.7853981])
        """
        return self._float_composed(inverses.atan)

    atan_ = in_place(atan)

    def acosh(self) -> Self:
        """Returns the number >= 0 with the hyperbolic cosine x; NaN below 1.

        >>> Tensor([1.0, 2.0]).acosh()
        Tensor([0.      , 1.316958])
        """
        return self._float_composed(inverses.acosh)

    acosh_ = in_place(acosh)

    def asinh(self) -> Self:
        """Returns the number with the hyperbolic sine x.

        >>> Tensor([0.0, 1.0]).asinh()
        Tensor([0.       , 0.8813736])
        """
        return self._float_composed(inverses.asinh)

    asinh_ = in_place(asinh)

    def atanh(self) -> Self:
        """Returns the number with the hyperbolic tangent x; infinite at -1 and 1, NaN beyond.

        >>> Tensor([0.0, 0.5]).atanh()
        Tensor([0.        , 0.54930615])
        """
        return self._float_composed(inverses.atanh)

    atanh_ = in_place(atanh)

    arccos, arcsin, arctan = acos, asin, atan
    arccosh, arcsinh, arctanh = acosh, asinh, atanh
    arccos_, arcsin_, arctan_ = acos_, asin_, atan_
    arccosh_, arcsinh_, arctanh_ = acosh_, asinh_, atanh_

    # ---- angles ----
    def deg2rad(self) -> Self:
        """Returns x degrees in radians.

        >>> Tensor([180.0]).deg2rad()
        Tensor([3.1415927])
        """
        return self._float_composed(lambda x: x * (math.pi / 180))

    deg2rad_ = in_place(deg2rad)

    def rad2deg(self) -> Self:
        """Returns x radians in degrees.

        >>> Tensor([math.pi]).rad2deg()
        Tensor([180.])
        """
        return self._float_composed(lambda x: x * (180 / math.pi))

    rad2deg_ = in_place(rad2deg)

    # ---- activations ----
    def relu(self) -> Self:
        """Returns 0 where x <= 0, else x.

        >>> Tensor([-1.5, 0.0, 2.5]).relu()
        Tensor([0. , 0. , 2.5])
        """
        return self._composed(pointwise.relu)

    relu_ = in_place(relu)

    def sigmoid(self) -> Self:
        """Returns 1 / (1 + exp(-x)).

        >>> Tensor([0.0, 2.0]).sigmoid()
        Tensor([0.5     , 0.880797])
        """
        return self._float_composed(pointwise.sigmoid)

    sigmoid_ = in_place(sigmoid)

    def silu(self) -> Self:
        """Returns x * sigmoid(x).

        >>> Tensor([0.0, 2.0]).silu()
        Tensor([0.      , 1.761594])
        """
        return self._float_composed(pointwise.silu)

    def gelu(self, approximate: str = "none") -> Self:
        """Returns x * Phi(x), Phi the normal distribution function; approximate="tanh" is the cheaper form.

        Raises:
          ArgumentError: another word than "none" or "tanh".

        >>> Tensor([0.0, 2.0]).gelu()
        Tensor([0.       , 1.9544997])
        """
        if approximate not in ("none", "tanh"):
            raise ArgumentError(f'gelu: approximate must be "none" or "tanh", got {approximate!r}.')
        return self._float_composed(pointwise.gelu, approximate == "tanh")

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """Returns log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold.

        >>> Tensor([0.0, 30.0]).softplus()
        Tensor([ 0.6931472, 30.       ])
        """
        return self._float_composed(pointwise.softplus, beta, threshold)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """Returns 0 where -lambd <= x <= lambd, else x.

        Raises:
          DTypeError: of integers.

        >>> Tensor([-1.0, 0.25, 1.0]).hardshrink()
        Tensor([-1.,  0.,  1.])
        """
        need_float("hardshrink", self.op)
        return self._float_composed(lambda x: where(compare(OpCode.CMPLE, pointwise.absolute(x), lambd), 0.0, x))


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
    wide = [t.to(dtype.compute_dtype) if isinstance(t, Casts) and t.dtype.is_float else t for t in operands]
    return function(*wide).to(dtype)
