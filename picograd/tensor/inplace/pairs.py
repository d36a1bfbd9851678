"""Functions of two in place: remainders, comparisons, truth.

In:    tensors and Python scalars
Out:   `InPlacePairs`; every view of the same storage sees what was written
Next:  picograd/tensor/inplace/shapes.py
"""

from __future__ import annotations

from typing import Self

from picograd.dtype import float64
from picograd.errors import DTypeError
from picograd.tensor.core import TensorCore
from picograd.tensor.elements.operators import Operand
from picograd.tensor.inplace.operators import InPlaceOperators
from picograd.tensor.inplace.parts import InPlaceParts


class InPlacePairs(InPlaceParts):
    """atan2_ fmod_ eq_ logical_and_ ...: what the name without the last _ returns, stored here."""

    __slots__ = ()

    # ---- functions ----
    def atan2_(self, other: Operand) -> Self:
        """Stores the angle of the point (other, self) in place.

        >>> Tensor([1.0, -1.0]).atan2_(1.0)
        Tensor([ 0.7853981, -0.7853981])
        """
        return self._in_place("atan2_", self.atan2(other))

    arctan2_ = atan2_

    def hypot_(self, other: Operand) -> Self:
        """Stores sqrt(self^2 + other^2) in place.

        >>> Tensor([3.0, 5.0]).hypot_(Tensor([4.0, 12.0]))
        Tensor([ 5., 13.])
        """
        return self._in_place("hypot_", self.hypot(other))

    def igamma_(self, other: Operand) -> Self:
        """Stores igamma(other) in place.

        >>> Tensor([1.0, 2.0]).igamma_(Tensor([1.0, 2.0]))
        Tensor([0.63212055, 0.59399414])
        """
        return self._in_place("igamma_", self.igamma(other))

    def igammac_(self, other: Operand) -> Self:
        """Stores igammac(other) in place.

        >>> Tensor([1.0, 2.0]).igammac_(Tensor([1.0, 2.0]))
        Tensor([0.36787945, 0.40600586])
        """
        return self._in_place("igammac_", self.igammac(other))

    def copysign_(self, other: Operand) -> Self:
        """Stores |self| with the sign of `other` in place.

        >>> Tensor([1.0, -2.0]).copysign_(-1.0)
        Tensor([-1., -2.])
        """
        return self._in_place("copysign_", self.copysign(other))

    def nextafter_(self, other: Operand) -> Self:
        """Stores the float beside self in the direction of `other` in place.

        >>> Tensor([1.0]).nextafter_(2.0)
        Tensor([1.0000001])
        """
        return self._in_place("nextafter_", self.nextafter(other))

    def xlogy_(self, other: Operand) -> Self:
        """Stores self * log(other) in place.

        >>> Tensor([0.0, 2.0]).xlogy_(2.0)
        Tensor([0.       , 1.3862944])
        """
        return self._in_place("xlogy_", self.xlogy(other))

    def ldexp_(self, other: Operand) -> Self:
        """Stores self * 2 ** other in place.

        >>> Tensor([0.75, 1.0]).ldexp_(Tensor([2, 3]))
        Tensor([3., 8.])
        """
        return self._in_place("ldexp_", self.ldexp(other))

    def float_power_(self, exponent: Operand) -> Self:
        """Raises to the power `exponent` in place, in float64.

        Raises:
          DTypeError: self is not float64, which the result needs.

        >>> Tensor([2.0, 3.0], dtype=dtypes.float64).float_power_(2)
        Tensor([4., 9.], dtype=float64)
        """
        if self.dtype is not float64:
            raise DTypeError(
                f"float_power_: the result is float64 and does not fit in place into {self.dtype}.",
                hint="x = x.float_power(exponent)",
            )
        return self._in_place("float_power_", self.float_power(exponent))

    def fmod_(self, other: Operand) -> Self:
        """Stores what division rounded toward zero leaves in place.

        >>> Tensor([7, -7]).fmod_(3)
        Tensor([ 1, -1])
        """
        return self._in_place("fmod_", self.fmod(other))

    def gcd_(self, other: Operand) -> Self:
        """Stores the greatest common divisor in place.

        >>> Tensor([12, -9]).gcd_(6)
        Tensor([6, 3])
        """
        return self._in_place("gcd_", self.gcd(other))

    def lcm_(self, other: Operand) -> Self:
        """Stores the least common multiple in place.

        >>> Tensor([4, 6]).lcm_(6)
        Tensor([12,  6])
        """
        return self._in_place("lcm_", self.lcm(other))

    def heaviside_(self, values: TensorCore) -> Self:
        """Stores 0 where self < 0, 1 where self > 0, `values` where self is 0, in place.

        >>> Tensor([-1.0, 0.0, 2.0]).heaviside_(Tensor(0.5))
        Tensor([0. , 0.5, 1. ])
        """
        return self._in_place("heaviside_", self.heaviside(values))

    # ---- comparisons: 1 where they hold, else 0, in the dtype of self ----
    def eq_(self, other: Operand) -> Self:
        """Stores whether self == other in place.

        >>> Tensor([1, 2, 3]).eq_(2)
        Tensor([0, 1, 0])
        """
        return self._in_place("eq_", self.eq(other))

    def ne_(self, other: Operand) -> Self:
        """Stores whether self != other in place.

        >>> Tensor([1, 2, 3]).ne_(2)
        Tensor([1, 0, 1])
        """
        return self._in_place("ne_", self.ne(other))

    def lt_(self, other: Operand) -> Self:
        """Stores whether self < other in place.

        >>> Tensor([1, 2, 3]).lt_(2)
        Tensor([1, 0, 0])
        """
        return self._in_place("lt_", self.lt(other))

    def le_(self, other: Operand) -> Self:
        """Stores whether self <= other in place.

        >>> Tensor([1, 2, 3]).le_(2)
        Tensor([1, 1, 0])
        """
        return self._in_place("le_", self.le(other))

    def gt_(self, other: Operand) -> Self:
        """Stores whether self > other in place.

        >>> Tensor([1, 2, 3]).gt_(2)
        Tensor([0, 0, 1])
        """
        return self._in_place("gt_", self.gt(other))

    def ge_(self, other: Operand) -> Self:
        """Stores whether self >= other in place.

        >>> Tensor([1, 2, 3]).ge_(2)
        Tensor([0, 1, 1])
        """
        return self._in_place("ge_", self.ge(other))

    not_equal_, less_, less_equal_, greater_, greater_equal_ = ne_, lt_, le_, gt_, ge_

    def logical_not_(self) -> Self:
        """Stores whether the element is 0 in place.

        >>> Tensor([0, 2]).logical_not_()
        Tensor([1, 0])
        """
        return self._in_place("logical_not_", self.logical_not())

    def logical_and_(self, other: Operand) -> Self:
        """Stores whether both are not 0 in place.

        >>> Tensor([0, 2]).logical_and_(Tensor([1, 1]))
        Tensor([0, 1])
        """
        return self._in_place("logical_and_", self.logical_and(other))

    def logical_or_(self, other: Operand) -> Self:
        """Stores whether one is not 0 in place.

        >>> Tensor([0, 2]).logical_or_(Tensor([1, 0]))
        Tensor([1, 1])
        """
        return self._in_place("logical_or_", self.logical_or(other))

    def logical_xor_(self, other: Operand) -> Self:
        """Stores whether just one is not 0 in place.

        >>> Tensor([0, 2]).logical_xor_(Tensor([1, 1]))
        Tensor([1, 0])
        """
        return self._in_place("logical_xor_", self.logical_xor(other))

    # ---- other names ----
    subtract_, multiply_ = InPlaceOperators.sub_, InPlaceOperators.mul_
    divide_, true_divide_ = InPlaceOperators.div_, InPlaceOperators.div_
