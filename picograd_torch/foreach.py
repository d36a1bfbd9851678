"""torch._foreach_*: an operation on each tensor of a list, as in other libraries' optimizers; plans fuse them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd import Tensor, linalg

ONE = (
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma", "log",
    "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc",
)  # fmt: skip
TWO = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_max", "clamp_min")
THREE = ("addcdiv", "addcmul")  # and a factor, one for all or one for each


def each(name: str) -> Callable[..., list[Tensor]]:
    """Returns a function that applies a method to each tensor, with an operand for each, or one for all."""

    def foreach(self: Sequence[Tensor], *operands: Any, **kwargs: Any) -> list[Tensor]:
        if name in THREE and len(operands) == 3 and isinstance(operands[2], Tensor):
            operands = (*operands[:2], operands[2].tolist())
        rows = [operand if isinstance(operand, (list, tuple)) else [operand] * len(self) for operand in operands]
        return [_applied(name, tensor, row, kwargs) for tensor, *row in zip(self, *rows, strict=True)]

    return foreach


def _applied(name: str, tensor: Tensor, operands: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    if name in THREE and len(operands) == 3:
        *operands, factor = operands
        kwargs = kwargs | {"value": factor}
    return getattr(tensor, name)(*operands, **kwargs)


def in_place(function: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """Returns the function that stores each result in the tensor itself, and returns the tensors."""

    def foreach_(self: Sequence[Tensor], *operands: Any, **kwargs: Any) -> list[Tensor]:
        return [tensor.copy_(result) for tensor, result in zip(self, function(self, *operands, **kwargs))]

    return foreach_


def foreach_norm(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:  # noqa: A002
    """Returns the norm of all elements of each tensor."""
    return [linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self]


def foreach_copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> list[Tensor]:
    """Copies each of `src` to the tensor with its index, and returns the tensors."""
    return [tensor.copy_(given) for tensor, given in zip(self, src, strict=True)]


def foreach_zero_(self: Sequence[Tensor]) -> list[Tensor]:
    """Sets each tensor to 0, and returns the tensors."""
    return [tensor.zero_() for tensor in self]


NAMES: dict[str, Any] = {"_foreach_norm": foreach_norm, "_foreach_copy_": foreach_copy_, "_foreach_zero_": foreach_zero_}
for _name in (*ONE, *TWO, *THREE, "lerp"):
    NAMES[f"_foreach_{_name}"] = each(_name)
    NAMES[f"_foreach_{_name}_"] = in_place(each(_name))


def group_by_kind(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[str, Any], tuple[list[list[Tensor | None]], list[int]]]:
    """Groups the tensors of several lists by device and dtype of those in the first; returns their indices, too."""
    found: dict[tuple[str, Any], tuple[list[list[Tensor | None]], list[int]]] = {}
    for place, row in enumerate(zip(*tensorlistlist)):
        assert row[0] is not None, "the others belong to the tensors of the first list"
        lists, places = found.setdefault((row[0].device, row[0].dtype), ([[] for _ in row], []))
        for own, tensor in zip(lists, row):
            own.append(tensor)
        places.extend([place] if with_indices else [])
    return found
