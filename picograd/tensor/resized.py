"""Shapes and places that follow strides or sizes: what PyTorch says of storage, of values in order of their axes.

In:    tensors, lengths and strides
Out:   `Resized`
Next:  picograd/tensor/free_functions.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, GradientError, ShapeError
from picograd.ir.build import gather, positions, reshape
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import sizes, static
from picograd.tensor.core import T
from picograd.tensor.inplace import become_view

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- other shapes ----
def as_strided(self: T, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0) -> T:
    """Returns the elements at storage_offset + i stride[0] + j stride[1] + ..., of the storage that this shows.

    Storage is the tensor that this is a view of, in order of its axes; a result of an operation is storage of its own.
    Unlike PyTorch's it is a copy: a write to it is not seen. Gradients of an element that occurs more than once add up;
    those of elements that only the storage shows, and not this view of it, count as well, where PyTorch drops them.

    Args:
      size:            lengths of the axes
      stride:          for each axis the distance from an element to the next, not negative
      storage_offset:  the first element

    Raises:
      ShapeError: size and stride differ in length, a number is negative, or an element is outside of the storage.

    >>> Tensor([1.0, 2.0, 3.0, 4.0]).as_strided((3, 2), (1, 1))
    Tensor([[1., 2.],
            [2., 3.],
            [3., 4.]])
    """
    lengths, strides = tuple(map(int, size)), tuple(map(int, stride))
    if len(lengths) != len(strides) or min((0, storage_offset, *lengths, *strides)) < 0:
        raise ShapeError(
            f"as_strided: size {lengths} and stride {strides} must be as many numbers, and these and the"
            f" offset {storage_offset} not negative."
        )
    op = _storage(self).read()
    last = storage_offset + sum((n - 1) * step for n, step in zip(lengths, strides))
    if 0 not in lengths and last >= op.numel:
        raise ShapeError(f"as_strided: element {last} is outside of storage of shape {op.shape}, {op.numel} elements.")
    place = filled(storage_offset, dtypes.int64, lengths)
    for axis, step in enumerate(strides):
        place = place + positions(lengths, axis) * step
    flat = gather(reshape(op, (op.numel,)), reshape(place, (math.prod(lengths),)), 0, 0)
    return self.from_op(reshape(flat, lengths), self.cell.device)


def _storage(self: T) -> T:
    """Returns the tensor that this is a view of, from where gradients are collected or cut off on."""
    kept = [i + 1 for i, (code, _) in enumerate(self.steps) if code in (OpCode.LEAF, OpCode.DETACH)]
    return self.from_cell(self.cell, self.steps[: max(kept, default=0)])


def sum_to_size(self: T, *size: Any) -> T:
    """Returns the sum over the axes that broadcasting from the lengths `size` to this shape makes longer.

    Raises:
      ShapeError: `size` does not broadcast to this shape.

    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).sum_to_size(1, 2)
    Tensor([[4., 6.]])
    """
    wanted = sizes("sum_to_size", size)
    more = self.ndim - len(wanted)
    if more < 0 or any(n not in (1, m) for n, m in zip(wanted, self.shape[more:])):
        raise ShapeError(f"sum_to_size: {wanted} does not broadcast to {self.shape}.")
    longer = [more + i for i, n in enumerate(wanted) if n != self.shape[more + i]]
    axes = [*range(more), *longer]
    return self.sum(axes, keepdim=True).reshape(wanted) if axes else self.clone()


def resize_(self: T, *size: Any) -> T:
    """Makes this the first elements of its own, in a new shape; where that has more elements, zeros follow.

    Args:
      size: the new lengths

    Raises:
      GradientError: gradients flow here.

    >>> Tensor([1, 2, 3, 4]).resize_(2, 3)
    Tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    lengths = tuple(map(int, sizes("resize_", size)))
    if self.requires_grad:
        raise GradientError(f"resize_: a tensor of shape {self.shape} that needs gradients keeps its shape.")
    count = math.prod(lengths)
    if count == self.numel():
        return become_view("resize_", self, type(self).reshape, lengths)
    flat = self.flatten()[:count]
    self.data = flat.cat((flat, self.new_zeros(count - flat.numel()))).reshape(lengths)
    return self


def resize_as_(self: T, other: Tensor) -> T:
    """Makes this the first elements of its own, in the shape of `other`.

    Raises:
      GradientError: gradients flow here.

    >>> Tensor([1, 2, 3, 4]).resize_as_(Tensor.zeros(2, 1)).tolist()
    [[1], [2]]
    """
    return self.resize_(tuple(map(static, other.op.shape)))


# ---- by Python ----
def apply_(self: T, function: Callable[[Any], Any]) -> T:
    """Stores in place what a function of Python's makes of each number, one after the other: slow.

    Raises:
      ArgumentError: `function` cannot be called.

    >>> Tensor([1, 2]).apply_(lambda number: number * 10)
    Tensor([10, 20])
    """
    if not callable(function):
        raise ArgumentError(f"apply_: needs a function of one number, got {function!r}.", hint="x.apply_(math.sqrt)")
    array = self.detach()._host("apply_")
    new = np.array([function(number) for number in array.ravel().tolist()], dtype=array.dtype)
    return self.copy_(type(self)(new.reshape(array.shape), self.dtype, self.device))


# ---- questions that have one answer here ----


def is_inference(self: T) -> bool:
    """Returns False: a tensor that inference_mode made is like any other.

    >>> Tensor([1.0]).is_inference()
    False
    """
    return False


def to_dense(self: T) -> T:
    """Returns this tensor: none is sparse.

    >>> Tensor([1.0]).to_dense()
    Tensor([1.])
    """
    return self
