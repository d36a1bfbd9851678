"""einops' functions on picograd's tensors: importing this file tells einops of them.

einops looks among the subclasses of its AbstractBackend, so there has to be one before it meets the first tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from einops._backends import AbstractBackend

from picograd.tensor.products import einsum
from picograd.tensor.tensor import Tensor


class Backend(AbstractBackend):
    """The interface that einops asks of a framework."""

    framework_name = "picograd"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Tensor:
        return Tensor(x)

    def to_numpy(self, x: Tensor) -> np.ndarray[Any, Any]:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return Tensor.arange(start, stop)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        reduced: Tensor = getattr(x, {"max": "amax", "min": "amin"}.get(operation, operation))(tuple(axes))
        return reduced

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        return Tensor.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return x.repeat(tuple(repeats))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return Tensor.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.is_float

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        result: Tensor = einsum(pattern, *x)
        return result
