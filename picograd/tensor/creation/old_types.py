"""Constructors by dtype, as old programs for PyTorch have them: FloatTensor(2, 3), LongTensor([1, 2]).

In:    data, or lengths of axes
Out:   `FloatTensor`, `LongTensor`, ...: constructors that are the names of types, too, so that x.type(FloatTensor) casts
Next:  picograd/tensor/names.py
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.tensor.elements.casts import NAMES
from picograd.tensor.tensor import Tensor

__all__ = [
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "ShortTensor",
]  # fmt: skip


class OldType(str):
    """The name of a type of tensors, which makes them: of lengths f(2, 3) of zeros to be written to, of data f([1, 2]).

    dtype:  of the tensors

    >>> FloatTensor(2, 3).shape, LongTensor([1.5, 2.0])
    ((2, 3), Tensor([1, 2]))
    >>> Tensor([1.5]).type(IntTensor)
    Tensor([1], dtype=int32)
    >>> isinstance(Tensor([1.5]), FloatTensor)
    True
    """

    dtype: DType

    def __new__(cls, dtype: DType) -> OldType:
        self = super().__new__(cls, f"picograd.{NAMES[dtype]}Tensor")
        self.dtype = dtype
        return self

    def __call__(self, *args: Any) -> Tensor:
        is_data = len(args) == 1 and not isinstance(args[0], int)
        return Tensor(args[0], self.dtype) if is_data else Tensor.empty(*(args or (0,)), dtype=self.dtype)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is self.dtype

    def __repr__(self) -> str:
        return str(self)


FloatTensor, DoubleTensor, HalfTensor = OldType(dtypes.float32), OldType(dtypes.float64), OldType(dtypes.float16)
BFloat16Tensor, ByteTensor, CharTensor = OldType(dtypes.bfloat16), OldType(dtypes.uint8), OldType(dtypes.int8)
ShortTensor, IntTensor, LongTensor = OldType(dtypes.int16), OldType(dtypes.int32), OldType(dtypes.int64)
BoolTensor = OldType(dtypes.bool_)
