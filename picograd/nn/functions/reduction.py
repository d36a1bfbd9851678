"""What losses share: the pairs they compare, and what is made of the loss of each.

In:    losses of elements or rows
Out:   their mean, their sum, or themselves
Next:  picograd/nn/functions/class_losses.py
"""

from __future__ import annotations

from picograd.errors import ArgumentError, DTypeError, ShapeError, warn_user
from picograd.tensor.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(function: str, reduction: str, allowed: tuple[str, ...] = REDUCTIONS) -> None:
    """Raises ArgumentError for another word than those allowed."""
    if reduction not in allowed:
        raise ArgumentError(f"{function}: reduction must be one of {', '.join(allowed)}, got {reduction!r}.")


def reduced(function: str, losses: Tensor, reduction: str) -> Tensor:
    """Returns the mean or the sum of losses, or themselves.

    Raises:
      ArgumentError: another reduction.
    """
    check_reduction(function, reduction)
    return losses if reduction == "none" else (losses.mean() if reduction == "mean" else losses.sum())


def check_pair(function: str, input: Tensor, target: Tensor, warn: bool = True) -> None:  # noqa: A002
    """Looks at what a loss compares; shapes that differ are broadcast, with a warning.

    Raises:
      DTypeError: neither is a float.
    """
    for name, tensor in (("input", input), ("target", target)):
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"{function}: {name} must be a Tensor, got {type(tensor).__name__}.", hint="Tensor(value)")
    if not input.dtype.is_float and not target.dtype.is_float:
        raise DTypeError(f"{function}: needs floats, got {input.dtype} and {target.dtype}.", hint="input.float()")
    shapes = input.op.shape, target.op.shape
    if warn and shapes[0] != shapes[1] and all(isinstance(dim, int) for shape in shapes for dim in shape):
        warn_user(f"{function}: input {input.shape} and target {target.shape} differ in shape and are broadcast.")


def weighted(function: str, losses: Tensor, weight: Tensor | None, input: Tensor, reduction: str) -> Tensor:  # noqa: A002
    """Returns losses times weights, their mean divided by the sum of the weights.

    Raises:
      ShapeError:    weight has not the shape of input.
      ArgumentError: another reduction.
    """
    if weight is None:
        return reduced(function, losses, reduction)
    if weight.shape != input.shape:
        raise ShapeError(f"{function}: weight {weight.shape} must have the shape of input {input.shape}.")
    if reduction == "mean":
        return (losses * weight).sum() / weight.sum()
    return reduced(function, losses * weight, reduction)
