"""Parameters: tensors that are trained.

In:    a shape
Out:   `new_parameter`
Next:  picograd/nn/functional.py
"""

from __future__ import annotations

from picograd.dtype import DType
from picograd.tensor.tensor import Tensor


def new_parameter(shape: tuple[int, ...], device: str | None, dtype: DType | None) -> Tensor:
    """Returns zeros that require grad."""
    return Tensor.zeros(shape, dtype=dtype, device=device, requires_grad=True)
