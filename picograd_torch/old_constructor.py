"""PyTorch's constructor torch.Tensor(...), of lengths or of data, for programs that use picograd as `torch`.

picograd's own Tensor(data) keeps the data's dtype, and Tensor(5) is a number. So the constructor checks its caller.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from picograd import get_default_dtype
from picograd.dtype import DType
from picograd.tensor.core import Size
from picograd.tensor.tensor import Tensor


def made(dtype: DType, device: Any, args: tuple[Any, ...], data: Any = None, size: Any = None) -> Tensor:
    """Returns an alias of a tensor, a tensor of data, or one of these lengths, to be filled.

    >>> made(pg.float32, None, ([1, 2],)), made(pg.float32, None, (2, 3)).shape
    (Tensor([1., 2.]), (2, 3))
    """
    given = (data,) if data is not None else args
    lengths = size if size is not None else given[0] if len(given) == 1 and isinstance(given[0], Size) else given
    if all(isinstance(length, (int, np.integer)) and not isinstance(length, bool) for length in lengths):
        return Tensor.empty(*(lengths or (0,)), dtype=dtype, device=device)
    if isinstance(given[0], Tensor):
        return given[0].view(given[0].shape)
    return Tensor(given[0], dtype, device)


def install_constructor() -> None:
    """Makes calls of Tensor from outside picograd PyTorch's, with x.new(...) and the names of tensor types."""
    init, type_ = Tensor.__init__, Tensor.type

    @functools.wraps(init)
    def construct(self: Tensor, *args: Any, **kwargs: Any) -> None:
        own = {"dtype", "requires_grad"} & kwargs.keys()  # PyTorch's does not have these
        if own or sys._getframe(1).f_globals.get("__name__", "").startswith("picograd"):
            init(self, *args, **kwargs)
            return
        found = made(get_default_dtype(), kwargs.pop("device", None), args, **kwargs)
        self.cell, self.steps, self._grad, self._shown = found.cell, found.steps, None, None

    @functools.wraps(type_)
    def named(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
        found = type_(self, dtype, non_blocking)
        place = "torch.cuda" if self.is_cuda else "torch"
        return found.replace("picograd", place) if isinstance(found, str) else found

    def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Returns a tensor of this one's dtype and device, from the constructor's arguments."""
        return made(self.dtype, kwargs.pop("device", self.device), args, **kwargs)

    for name, function in {"__init__": construct, "type": named, "new": new}.items():
        setattr(Tensor, name, function)
