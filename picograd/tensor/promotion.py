"""Which dtype a result has, as functions users can ask.

In:    dtypes, tensors or numbers
Out:   functions that picograd/tensor/names.py lists beside the methods
Next:  picograd/tensor/settings.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.tensor.build import CATEGORY, promoted
from picograd.tensor.tensor import Tensor

__all__ = ["can_cast", "promote_types", "result_type"]

Operand = Tensor | Scalar


def promote_types(type1: DType, type2: DType) -> DType:
    """Returns the dtype that tensors of `type1` and `type2`, both with axes, are brought to.

    >>> promote_types(dtypes.int32, dtypes.float16)
    float16
    """
    return dtypes.promote(type1, type2)


def result_type(tensor1: Operand, tensor2: Operand) -> DType:
    """Returns the dtype that an operation of `tensor1` and `tensor2`, tensors or numbers, computes in.

    >>> result_type(tensor([1, 2]), 1.5)
    float32
    """
    if isinstance(tensor1, Tensor) and isinstance(tensor2, Tensor):
        return promoted(tensor1.op, tensor2.op)
    if isinstance(tensor1, Tensor):
        return dtypes.promote_scalar(tensor1.dtype, tensor2)  # type: ignore[arg-type]
    if isinstance(tensor2, Tensor):
        return dtypes.promote_scalar(tensor2.dtype, tensor1)
    return dtypes.promote(dtypes.dtype_of_scalar(tensor1), dtypes.dtype_of_scalar(tensor2))


def can_cast(from_: DType, to: DType) -> bool:
    """Returns True if a result of dtype `from_` may be stored in place as `to`: no float as integer, no number as bool.

    >>> can_cast(dtypes.float64, dtypes.float32), can_cast(dtypes.float32, dtypes.int64)
    (True, False)
    """
    return CATEGORY[from_.kind] <= CATEGORY[to.kind]
