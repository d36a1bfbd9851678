"""Elements that a mask chooses while a function is traced: how many there are is not known, so all are computed.

In:    a tensor, a mask over its leading axes
Out:   `Chosen`, for arithmetic;  x[mask] = that, of the same mask, is a `where`
Called by: tensor/indexing/brackets.py.    Next: picograd/tensor/indexing/subscript.py

x[mask] *= 2 reads x[mask], multiplies, and stores under the same mask. What the mask leaves out is 1 meanwhile, at which
no arithmetic and no derivative of it is infinite.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from picograd.errors import ShapeError
from picograd.ir.build import reshape, where
from picograd.ir.op import Op
from picograd.tensor.build import broadcast_to
from picograd.tensor.cell import trace
from picograd.tensor.core import TensorCore
from picograd.tensor.meeting import brought_to, value_at

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")


class Chosen:
    """The result of x[mask] in a trace.

    whole:   a tensor of the shape of x
    mask:    over its leading axes, and
    chosen:  its value, when it was read
    """

    def __init__(self, whole: TensorCore, mask: TensorCore, chosen: Op):
        self.whole, self.mask, self.chosen = whole, mask, chosen

    @classmethod
    def of(cls, tensor: TensorCore, mask: TensorCore) -> Chosen:
        """Returns the elements of a tensor that a mask chooses."""
        op, device = tensor.read(), brought_to("index", tensor, mask)
        over_all = mask_over("x[mask]", mask, op, device)
        return cls(type(tensor).from_op(where(over_all, op, 1), device), mask, mask.op)

    def is_of(self, mask: Any) -> bool:
        """Returns whether these were chosen by a mask of this value."""
        return is_mask(mask) and mask.op is self.chosen

    def _with(self, call: Callable[[Any, Any], Any], other: Any) -> Chosen:
        """Returns what arithmetic with another operand gives in the chosen places."""
        if isinstance(other, Chosen):
            if not other.is_of(self.mask):
                self._refuse()
            other = other.whole
        elif isinstance(other, TensorCore):
            num_others = self.whole.ndim - self.mask.ndim  # axes behind the one of the chosen
            if other.ndim > num_others + 1 or other.ndim == num_others + 1 and other.shape[0] != 1:
                self._refuse()
        copy = type(self.whole).from_op(self.whole.read(), self.whole.cell.device)  # in-place arithmetic writes to it
        return Chosen(call(copy, other), self.mask, self.chosen)

    def __hash__(self) -> int:
        self._refuse()  # it is no plain value, which a plan could return

    def __neg__(self) -> Chosen:
        return Chosen(-self.whole, self.mask, self.chosen)  # type: ignore[operator]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def _refuse(self) -> NoReturn:
        self.mask._host("index")  # which a trace refuses
        raise AssertionError("chosen: used where nothing is traced")


def _method(name: str, is_reflected: bool = False) -> Callable[[Chosen, Any], Chosen]:
    call = getattr(operator, name)
    return lambda self, other: self._with((lambda a, b: call(b, a)) if is_reflected else call, other)


for _name in ARITHMETIC:
    setattr(Chosen, f"__{_name}__", _method(_name))
    setattr(Chosen, f"__r{_name}__", _method(_name, is_reflected=True))
    setattr(Chosen, f"__i{_name}__", _method(f"i{_name}"))


def mask_over(function: str, mask: TensorCore, op: Op, device: str | None) -> Op:
    """Returns a mask over the leading axes of a value, for all of its axes.

    Raises:
      ShapeError: the mask does not fit.
    """
    if mask.op.shape != op.shape[: mask.ndim]:
        raise ShapeError(f"{function}: a mask of shape {mask.shape} does not fit {op.shape}.")
    return broadcast_to(reshape(value_at(mask, device), mask.op.shape + (1,) * (len(op.shape) - mask.ndim)), op.shape)


def is_mask(index: Any) -> bool:
    """Returns whether an index is one mask with axes."""
    return isinstance(index, TensorCore) and index.dtype.kind == "b" and index.ndim > 0


def in_a_trace() -> bool:
    """Returns whether a function is traced, in which no value is known."""
    return trace.get() is not None
