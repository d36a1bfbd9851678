"""Rung 7, fused: bias and relu are applied to a tile while it is in cache, by the compiler that every tensor takes.

In:    Tensors
Out:   `fused`, one kernel; `two_passes`, which stores the product first and reads it again
Next:  picograd/tools/ladder/peak.py

The kernel is picograd/codegen/matmul_cpu.py's: rungs 1 to 6 in one emitter, with an epilogue that is any expression. A
second pass over c costs 8 bytes of traffic for each element, which no arithmetic hides.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit


def expression(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Returns relu(a @ b + bias)."""
    return (a @ b + bias).relu()


def fused() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Returns the expression as one kernel."""
    return jit(expression)


def two_passes() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Returns the product, and what follows it, as a plan each."""
    product = jit(lambda a, b: a @ b)
    rest = jit(lambda c, bias: (c + bias).relu())
    return lambda a, b, bias: rest(product(a, b), bias)
