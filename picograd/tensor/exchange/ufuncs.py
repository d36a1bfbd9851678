"""NumPy's functions of each element, called with tensors: np.exp(x), array + x.

In:    a ufunc of NumPy and its operands, of which one is a tensor
Out:   `array_ufunc`: __array_ufunc__ of Tensor
Next:  picograd/tensor/exchange/arrays.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from picograd.errors import ArgumentTypeError
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# By ufunc: the operator with the tensor at its left side, and with the tensor at its right.
OPERATORS = {
    "add": ("__add__", "__radd__"), "subtract": ("__sub__", "__rsub__"), "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"), "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"), "power": ("__pow__", "__rpow__"), "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"), "bitwise_or": ("__or__", "__ror__"), "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"), "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"), "not_equal": ("__ne__", "__ne__"), "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"), "greater": ("__gt__", "__lt__"), "greater_equal": ("__ge__", "__le__"),
}  # fmt: skip
# By ufunc: the method, where it has another name.
METHODS = {"invert": "bitwise_not", "rint": "round", "fabs": "abs", "conjugate": "conj"}


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Returns the result of picograd's function of that name: a tensor, with a gradient where one is recorded.

    What is stored into an array, as by `array += tensor`, is computed by NumPy, of the tensor's values.

    Raises:
      ArgumentTypeError: there is none, a reduction or an argument such as where= is asked for.

    >>> import numpy as np
    >>> np.exp(Tensor([0.0, 1.0])) + np.array([1.0, 2.0], np.float32)
    Tensor([2.       , 4.7182817])
    """
    name, stored = ufunc.__name__, kwargs.get("out", ())
    if stored and all(isinstance(one, np.ndarray) for one in stored):
        arrays = [np.asarray(one) if isinstance(one, TensorCore) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)
    found = None if method != "__call__" or kwargs else _called(self, name, inputs)
    if found is None or found is NotImplemented:
        call = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
        arguments = f" with {', '.join(f'{name}=' for name in kwargs)}" if kwargs else ""
        raise ArgumentTypeError(
            f"{call}: a tensor of shape {self.shape} has no such function{arguments}.",
            hint=f"{call}(x.numpy())" if not kwargs else "x.numpy() in place of the tensor.",
        )
    return found


def _called(self: TensorCore, name: str, inputs: tuple[Any, ...]) -> Any:
    if name in OPERATORS:
        lhs, rhs = inputs
        forward, reflected = OPERATORS[name]
        return getattr(lhs, forward)(rhs) if isinstance(lhs, TensorCore) else getattr(self, reflected)(lhs)
    method = getattr(type(self), METHODS.get(name, name), None)
    first, *others = [one if isinstance(one, TensorCore) else type(self)(one, device=self.device) for one in inputs]
    return None if method is None else method(first, *others)
