"""The Tensor users hold: all families of operations in one class.

In:    tensor/core.py and the families that extend it
Out:   `Tensor`
Next:  picograd/tensor/free_functions.py

The families are one line of classes, each built on the one before it, so that a method finds below what it is made of:
TensorCore, Views .. Stacking, Operators, InPlaceOperators, Info, Casts .. Pairs, Reduce, Statistics, InPlaceFunctions ..
InPlaceShapes, Products .. Factored, Brackets .. Selection, Sorting .. Searching, Counts, Sets, Patterns, Constants, Ranges,
Random, Distributions, Interop. Whether something is a tensor is asked of TensorCore, or of the class that the file itself
defines, never of one in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from picograd.absent import INSTEAD, missing
from picograd.tensor.autograd import Autograd
from picograd.tensor.exchange.interop import Interop
from picograd.tensor.stored_data import StoredData


class Tensor(Interop, Autograd, StoredData):
    """An n-dimensional array whose operations build a graph, computed when a value is read.

    Tensor(data, dtype=None, device=None, requires_grad=False) copies host data. Names, argument order and defaults
    of methods are PyTorch's. A tensor is a view of a storage cell: views share it, and a write through one is seen
    by all, while graphs built earlier keep the old value.

    Arguments that mean the same in every method:
      other:              a tensor or a number; both are broadcast to one shape and brought to one dtype
      dim, axis:          two names of an axis, or of several; negative ones count from the end, None is all of them
      keepdim, keepdims:  two names; the axes reduced stay, with length 1
      dtype:              of the result
      device:             name of the device of the result; None: the one of the operands, or PICOGRAD_DEVICE
      requires_grad:      the result is a leaf whose gradient backward() collects
      generator:          where random bits come from; None: the default one, which pg.manual_seed starts

    >>> x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad.tolist()
    [[2.0, 4.0], [6.0, 8.0]]
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # else every name would be one of Any

        def __getattr__(self, name: str) -> Any:  # called for what is no attribute, or where a property raises
            if name in INSTEAD["picograd.Tensor"]:
                raise missing(name, "picograd.Tensor", self)
            return object.__getattribute__(self, name)
