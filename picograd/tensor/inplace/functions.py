"""Functions in place: exponentials, trigonometry, special functions.

In:    tensors
Out:   `InPlaceFunctions`; every view of the same storage sees what was written
Next:  picograd/tensor/inplace/parts.py
"""

from __future__ import annotations

from typing import Self

from picograd.tensor.reductions.statistics import Statistics


class InPlaceFunctions(Statistics):
    """exp_ log_ sin_ acos_ erf_ ...: what the name without the last _ returns, stored here."""

    __slots__ = ()

    # ---- exponentials and logarithms ----
    def exp_(self) -> Self:
        """Stores e ** x in place.

        >>> Tensor([0.0, 1.0]).exp_()
        Tensor([1.       , 2.7182817])
        """
        return self._in_place("exp_", self.exp())

    def exp2_(self) -> Self:
        """Stores 2 ** x in place.

        >>> Tensor([0.0, 3.0]).exp2_()
        Tensor([1., 8.])
        """
        return self._in_place("exp2_", self.exp2())

    def expm1_(self) -> Self:
        """Stores e ** x - 1 in place.

        >>> Tensor([0.0, 1.0]).expm1_()
        Tensor([0.       , 1.7182817])
        """
        return self._in_place("expm1_", self.expm1())

    def log_(self) -> Self:
        """Stores the natural logarithm in place.

        >>> Tensor([1.0, 10.0]).log_()
        Tensor([0.       , 2.3025851])
        """
        return self._in_place("log_", self.log())

    def log2_(self) -> Self:
        """Stores the logarithm to base 2 in place.

        >>> Tensor([1.0, 8.0]).log2_()
        Tensor([0., 3.])
        """
        return self._in_place("log2_", self.log2())

    def log10_(self) -> Self:
        """Stores the logarithm to base 10 in place.

        >>> Tensor([1.0, 1000.0]).log10_()
        Tensor([0., 3.])
        """
        return self._in_place("log10_", self.log10())

    def log1p_(self) -> Self:
        """Stores log(1 + x) in place.

        >>> Tensor([0.0, 1.0]).log1p_()
        Tensor([0.       , 0.6931472])
        """
        return self._in_place("log1p_", self.log1p())

    def sqrt_(self) -> Self:
        """Stores the square root in place.

        >>> Tensor([4.0, 2.0]).sqrt_()
        Tensor([2.       , 1.4142135])
        """
        return self._in_place("sqrt_", self.sqrt())

    def rsqrt_(self) -> Self:
        """Stores 1 / sqrt(x) in place.

        >>> Tensor([4.0, 16.0]).rsqrt_()
        Tensor([0.5 , 0.25])
        """
        return self._in_place("rsqrt_", self.rsqrt())

    def square_(self) -> Self:
        """Stores x * x in place.

        >>> Tensor([3.0, -2.0]).square_()
        Tensor([9., 4.])
        """
        return self._in_place("square_", self.square())

    def reciprocal_(self) -> Self:
        """Stores 1 / x in place.

        >>> Tensor([4.0, -2.0]).reciprocal_()
        Tensor([ 0.25, -0.5 ])
        """
        return self._in_place("reciprocal_", self.reciprocal())

    def sigmoid_(self) -> Self:
        """Stores 1 / (1 + exp(-x)) in place.

        >>> Tensor([0.0, 2.0]).sigmoid_()
        Tensor([0.5     , 0.880797])
        """
        return self._in_place("sigmoid_", self.sigmoid())

    def logit_(self, eps: float | None = None) -> Self:
        """Stores log(x / (1 - x)) in place, of x held between eps and 1 - eps where eps is given.

        >>> Tensor([0.5, 1.0]).logit_(eps=0.25)
        Tensor([0.       , 1.0986123])
        """
        return self._in_place("logit_", self.logit(eps))

    # ---- trigonometry ----
    def sin_(self) -> Self:
        """Stores the sine in place.

        >>> Tensor([0.0, 1.0]).sin_()
        Tensor([0.        , 0.84147096])
        """
        return self._in_place("sin_", self.sin())

    def cos_(self) -> Self:
        """Stores the cosine in place.

        >>> Tensor([0.0, 1.0]).cos_()
        Tensor([1.       , 0.5403023])
        """
        return self._in_place("cos_", self.cos())

    def tan_(self) -> Self:
        """Stores the tangent in place.

        >>> Tensor([0.0, 1.0]).tan_()
        Tensor([0.       , 1.5574077])
        """
        return self._in_place("tan_", self.tan())

    def sinh_(self) -> Self:
        """Stores the hyperbolic sine in place.

        >>> Tensor([0.0, 1.0]).sinh_()
        Tensor([0.       , 1.1752012])
        """
        return self._in_place("sinh_", self.sinh())

    def cosh_(self) -> Self:
        """Stores the hyperbolic cosine in place.

        >>> Tensor([0.0, 1.0]).cosh_()
        Tensor([1.       , 1.5430806])
        """
        return self._in_place("cosh_", self.cosh())

    def tanh_(self) -> Self:
        """Stores the hyperbolic tangent in place.

        >>> Tensor([0.0, 1.0]).tanh_()
        Tensor([0.       , 0.7615942])
        """
        return self._in_place("tanh_", self.tanh())

    def asin_(self) -> Self:
        """Stores the angle with the sine x in place.

        >>> Tensor([0.0, 1.0]).asin_()
        Tensor([0.       , 1.5707964])
        """
        return self._in_place("asin_", self.asin())

    def acos_(self) -> Self:
        """Stores the angle with the cosine x in place.

        >>> Tensor([0.0, 1.0]).acos_()
        Tensor([1.5707964, 0.       ])
        """
        return self._in_place("acos_", self.acos())

    def atan_(self) -> Self:
        """Stores the angle with the tangent x in place.

        >>> Tensor([0.0, 1.0]).atan_()
        Tensor([0.       , 0.7853981])
        """
        return self._in_place("atan_", self.atan())

    def asinh_(self) -> Self:
        """Stores the number with the hyperbolic sine x in place.

        >>> Tensor([0.0, 1.0]).asinh_()
        Tensor([0.       , 0.8813736])
        """
        return self._in_place("asinh_", self.asinh())

    def acosh_(self) -> Self:
        """Stores the number >= 0 with the hyperbolic cosine x in place.

        >>> Tensor([1.0, 2.0]).acosh_()
        Tensor([0.      , 1.316958])
        """
        return self._in_place("acosh_", self.acosh())

    def atanh_(self) -> Self:
        """Stores the number with the hyperbolic tangent x in place.

        >>> Tensor([0.0, 0.5]).atanh_()
        Tensor([0.        , 0.54930615])
        """
        return self._in_place("atanh_", self.atanh())

    arcsin_, arccos_, arctan_ = asin_, acos_, atan_
    arcsinh_, arccosh_, arctanh_ = asinh_, acosh_, atanh_

    def sinc_(self) -> Self:
        """Stores sin(pi x) / (pi x) in place.

        >>> Tensor([0.0, 0.5]).sinc_()
        Tensor([1.        , 0.63661975])
        """
        return self._in_place("sinc_", self.sinc())

    def deg2rad_(self) -> Self:
        """Stores x degrees in radians in place.

        >>> Tensor([180.0]).deg2rad_()
        Tensor([3.1415927])
        """
        return self._in_place("deg2rad_", self.deg2rad())

    def rad2deg_(self) -> Self:
        """Stores x radians in degrees in place.

        >>> Tensor([0.0, 1.0]).rad2deg_()
        Tensor([ 0.     , 57.29578])
        """
        return self._in_place("rad2deg_", self.rad2deg())

    # ---- special functions ----
    def erf_(self) -> Self:
        """Stores the error function in place.

        >>> Tensor([0.0, 1.0]).erf_()
        Tensor([0.       , 0.8427008])
        """
        return self._in_place("erf_", self.erf())

    def erfc_(self) -> Self:
        """Stores 1 - erf(x) in place.

        >>> Tensor([0.0, 1.0]).erfc_()
        Tensor([1.       , 0.1572992])
        """
        return self._in_place("erfc_", self.erfc())

    def erfinv_(self) -> Self:
        """Stores y with erf(y) = x in place.

        >>> Tensor([0.0, 0.5]).erfinv_()
        Tensor([0.        , 0.47693628])
        """
        return self._in_place("erfinv_", self.erfinv())

    def lgamma_(self) -> Self:
        """Stores log |gamma(x)| in place.

        >>> Tensor([0.5, 5.0]).lgamma_()
        Tensor([0.5723649, 3.1780539])
        """
        return self._in_place("lgamma_", self.lgamma())

    def digamma_(self) -> Self:
        """Stores the derivative of lgamma in place.

        >>> Tensor([1.0, 2.0]).digamma_()
        Tensor([-0.5772157 ,  0.42278433])
        """
        return self._in_place("digamma_", self.digamma())

    def polygamma_(self, n: int) -> Self:
        """Stores the n-th derivative of digamma in place.

        >>> Tensor([1.0, 2.0]).polygamma_(1)
        Tensor([1.644934  , 0.64493406])
        """
        return self._in_place("polygamma_", self.polygamma(n))

    def mvlgamma_(self, p: int) -> Self:
        """Stores the logarithm of the multivariate gamma function of dimension p in place.

        >>> Tensor([3.0]).mvlgamma_(2)
        Tensor([1.550195])
        """
        return self._in_place("mvlgamma_", self.mvlgamma(p))

    def i0_(self) -> Self:
        """Stores the modified Bessel function of order 0 in place.

        >>> Tensor([0.0, 1.0]).i0_()
        Tensor([1.       , 1.2660658])
        """
        return self._in_place("i0_", self.i0())
