"""Parameters: tensors that are trained.

In:    a shape
Out:   `new_parameter`, `Parameter`
Next:  picograd/nn/functional.py
"""

from __future__ import annotations

from picograd.dtype import DType
from picograd.tensor.tensor import Tensor


def new_parameter(shape: tuple[int, ...], device: str | None, dtype: DType | None) -> Tensor:
    """Returns zeros that require grad."""
    return Tensor.zeros(shape, dtype=dtype, device=device, requires_grad=True)


def Parameter(data: Tensor, requires_grad: bool = True) -> Tensor:  # noqa: N802  # PyTorch's class
    """Returns a leaf on the storage of `data`, which a module that gets it as an attribute trains.

    `requires_grad=False`: as `data` is; make it a parameter with Module.register_parameter before freezing it.

    >>> Parameter(Tensor([1.0])).requires_grad
    True
    """
    return data.detach().requires_grad_(requires_grad)
