"""Out of a tensor: NumPy arrays, Python numbers, text.

In:    tensors, which are computed
Out:   `Interop`
Next:  picograd/tensor/memory.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from picograd.dtype import DType
from picograd.errors import GradientError, ShapeError
from picograd.tensor.cell import grad_mode
from picograd.tensor.draws import Draws
from picograd.tensor.variable import known


class Interop(Draws):
    """numpy item tolist, and what Python asks of a container."""

    __slots__ = ()

    def numpy(self) -> np.ndarray[Any, Any]:
        """Returns a copy as a NumPy array; bfloat16 and float8 come as ml_dtypes.

        Raises:
          GradientError: gradients would be lost.

        >>> Tensor([1, 2]).numpy()
        array([1, 2])
        """
        if self.op.needs_grad and grad_mode.get():
            raise GradientError(
                f"numpy: a tensor of shape {self.shape} that needs gradients would lose them.",
                hint="x.detach().numpy()",
            )
        return self._host("numpy")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def item(self) -> bool | int | float:
        """Returns the one element as a Python number.

        Raises:
          ShapeError: there is not exactly one.

        >>> Tensor([2.5]).item()
        2.5
        """
        if self.numel() != 1:
            raise ShapeError(f"item: needs exactly one element, got shape {self.shape}.", hint="x.tolist()")
        return self._host("item").reshape(()).item()  # type: ignore[no-any-return]

    def tolist(self) -> Any:
        """Returns nested lists of Python numbers, or one number for a 0-d tensor.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return self._host("tolist").tolist()

    def __bool__(self) -> bool:
        return bool(self._single("bool"))

    def __float__(self) -> float:
        return float(self._single("float"))

    def __int__(self) -> int:
        return int(self._single("int"))

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"only an integer tensor is an index, got {self.dtype}")
        return int(self._single("index"))

    def __complex__(self) -> complex:
        return complex(self._single("complex"))

    def _single(self, function: str) -> Any:
        if self.numel() != 1:
            raise ShapeError(
                f"{function}: the truth or value of shape {self.shape} is ambiguous; it needs exactly one element.",
                hint="x.any(), x.all() or x.tolist()",
            )
        return self._host(function).reshape(()).item()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return known("len", self.shape, 0)

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return iter(self.unbind(0))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and not self.shape else format(str(self), spec)

    def __repr__(self) -> str:
        body = np.array2string(self._host("repr"), separator=", ", prefix="Tensor(")
        notes = [body]
        if self.dtype.name not in ("float32", "int64", "bool"):
            notes.append(f"dtype={self.dtype}")
        if self.op.needs_grad:
            notes.append("requires_grad=True")
        return f"Tensor({', '.join(notes)})"

    def __copy__(self) -> Self:
        tensor = object.__new__(type(self))
        tensor._start(self.cell, self.steps)
        return tensor

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copy = type(self).from_op(self.detach().op, self.cell.device)
        if self.requires_grad and self.is_leaf:
            copy.requires_grad_()
        memo[id(self)] = copy
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        array = self._host("pickle")
        return _rebuilt, (type(self), array, self.dtype, self.requires_grad and self.is_leaf)


def _rebuilt(cls: type[Interop], array: np.ndarray[Any, Any], dtype: DType, requires_grad: bool) -> Interop:
    return cls(array, dtype, requires_grad=requires_grad)
