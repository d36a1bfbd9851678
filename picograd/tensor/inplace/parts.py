"""Functions in place: rounding, signs, bounds, running sums.

In:    tensors
Out:   `InPlaceParts`; every view of the same storage sees what was written
Next:  picograd/tensor/inplace/pairs.py
"""

from __future__ import annotations

from typing import Self

from picograd.dtype import DType, Scalar
from picograd.tensor.core import TensorCore
from picograd.tensor.elements.operators import Operand
from picograd.tensor.inplace.functions import InPlaceFunctions


class InPlaceParts(InPlaceFunctions):
    """abs_ round_ clamp_ cumsum_ ...: what the name without the last _ returns, stored here."""

    __slots__ = ()

    # ---- rounding, parts, signs ----
    def abs_(self) -> Self:
        """Stores |x| in place.

        >>> Tensor([-1.5, 2.5]).abs_()
        Tensor([1.5, 2.5])
        """
        return self._in_place("abs_", self.abs())

    def neg_(self) -> Self:
        """Stores -x in place.

        >>> Tensor([-1.5, 2.5]).neg_()
        Tensor([ 1.5, -2.5])
        """
        return self._in_place("neg_", self.neg())

    def sign_(self) -> Self:
        """Stores -1, 0 or 1 in place.

        >>> Tensor([-1.5, 0.0, 2.5]).sign_()
        Tensor([-1.,  0.,  1.])
        """
        return self._in_place("sign_", self.sign())

    def sgn_(self) -> Self:
        """Stores -1, 0 or 1 in place.

        >>> Tensor([-1.5, 0.0, 2.5]).sgn_()
        Tensor([-1.,  0.,  1.])
        """
        return self._in_place("sgn_", self.sgn())

    def floor_(self) -> Self:
        """Stores the greatest integer <= x in place.

        >>> Tensor([-1.5, 2.5]).floor_()
        Tensor([-2.,  2.])
        """
        return self._in_place("floor_", self.floor())

    def ceil_(self) -> Self:
        """Stores the least integer >= x in place.

        >>> Tensor([-1.5, 2.5]).ceil_()
        Tensor([-1.,  3.])
        """
        return self._in_place("ceil_", self.ceil())

    def trunc_(self) -> Self:
        """Stores x without its fraction in place.

        >>> Tensor([-1.5, 2.5]).trunc_()
        Tensor([-1.,  2.])
        """
        return self._in_place("trunc_", self.trunc())

    def round_(self, decimals: int = 0) -> Self:
        """Stores x rounded to `decimals` places, halves to the even digit, in place.

        >>> Tensor([0.5, 1.5, 2.347]).round_()
        Tensor([0., 2., 2.])
        """
        return self._in_place("round_", self.round(decimals=decimals))

    def frac_(self) -> Self:
        """Stores x - trunc(x) in place.

        >>> Tensor([-1.5, 2.5]).frac_()
        Tensor([-0.5,  0.5])
        """
        return self._in_place("frac_", self.frac())

    def nan_to_num_(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Stores x with `nan` for NaN, `posinf` and `neginf` for infinities, in place.

        >>> Tensor([1.0, float("nan")]).nan_to_num_()
        Tensor([1., 0.])
        """
        return self._in_place("nan_to_num_", self.nan_to_num(nan, posinf, neginf))

    absolute_, negative_, fix_ = abs_, neg_, trunc_

    # ---- bounds ----
    def relu_(self) -> Self:
        """Stores 0 where x <= 0, else x, in place.

        >>> Tensor([-1.5, 2.5]).relu_()
        Tensor([0. , 2.5])
        """
        return self._in_place("relu_", self.relu())

    def clamp_(self, min: Operand | None = None, max: Operand | None = None) -> Self:  # noqa: A002
        """Stores x held between `min` and `max` in place.

        >>> Tensor([-1.5, 0.0, 2.5]).clamp_(-1.0, 1.0)
        Tensor([-1.,  0.,  1.])
        """
        return self._in_place("clamp_", self.clamp(min, max))

    def clamp_min_(self, min: Operand) -> Self:  # noqa: A002
        """Stores x, or `min` where that is greater, in place.

        >>> Tensor([-1.5, 2.5]).clamp_min_(0.0)
        Tensor([0. , 2.5])
        """
        return self._in_place("clamp_min_", self.clamp_min(min))

    def clamp_max_(self, max: Operand) -> Self:  # noqa: A002
        """Stores x, or `max` where that is smaller, in place.

        >>> Tensor([-1.5, 2.5]).clamp_max_(0.0)
        Tensor([-1.5,  0. ])
        """
        return self._in_place("clamp_max_", self.clamp_max(max))

    clip_ = clamp_

    def lerp_(self, end: TensorCore, weight: Operand) -> Self:
        """Stores self + weight * (end - self) in place.

        >>> Tensor([0.0, 10.0]).lerp_(Tensor([10.0, 20.0]), 0.25)
        Tensor([ 2.5, 12.5])
        """
        op = self._between(end, weight)
        if op is None or end.cell.device is not self.cell.device:
            return self._in_place("lerp_", self.lerp(end, weight))
        return self.write("lerp_", self._fitting("lerp_", op))

    def addcmul_(self, tensor1: TensorCore, tensor2: TensorCore, *, value: Scalar = 1) -> Self:
        """Adds value * tensor1 * tensor2 in place.

        >>> Tensor([1.0]).addcmul_(Tensor([2.0]), Tensor([3.0]))
        Tensor([7.])
        """
        return self._in_place("addcmul_", self.addcmul(tensor1, tensor2, value=value))

    def addcdiv_(self, tensor1: TensorCore, tensor2: TensorCore, *, value: Scalar = 1) -> Self:
        """Adds value * tensor1 / tensor2 in place.

        >>> Tensor([1.0]).addcdiv_(Tensor([6.0]), Tensor([3.0]))
        Tensor([3.])
        """
        return self._in_place("addcdiv_", self.addcdiv(tensor1, tensor2, value=value))

    # ---- along axes ----
    def cumsum_(self, dim: int | None = None, dtype: DType | None = None, *, axis: int | None = None) -> Self:
        """Stores the running sums along one axis in place.

        >>> Tensor([1, 2, 3]).cumsum_(0)
        Tensor([1, 3, 6])
        """
        return self._in_place("cumsum_", self.cumsum(dim, dtype, axis=axis))

    def cumprod_(self, dim: int | None = None, dtype: DType | None = None, *, axis: int | None = None) -> Self:
        """Stores the running products along one axis in place.

        >>> Tensor([1, 2, 3]).cumprod_(0)
        Tensor([1, 2, 6])
        """
        return self._in_place("cumprod_", self.cumprod(dim, dtype, axis=axis))

    def renorm_(self, p: float, dim: int, maxnorm: float) -> Self:
        """Scales each slice along `dim` whose p-norm is above `maxnorm` down to that, in place.

        >>> Tensor([[3.0, 4.0], [0.5, 0.0]]).renorm_(2, 0, 1.0)
        Tensor([[0.6, 0.8],
                [0.5, 0. ]])
        """
        return self._in_place("renorm_", self.renorm(p, dim, maxnorm))
