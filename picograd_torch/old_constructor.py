"""The constructor torch.Tensor(...) of PyTorch, for programs that have picograd as `torch`: of lengths, or of data.

picograd's own Tensor(data) keeps the data's dtype, and Tensor(5) is a number. So the constructor asks who calls it.
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
    """Returns an alias of a tensor, a tensor of data, or one of these lengths, to be filled: PyTorch's old constructor.

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
    """Lets calls of Tensor from outside of picograd be PyTorch's; x.new(...) and the names of types are, too."""
    init, type_ = Tensor.__init__, Tensor.type

    @functools.wraps(init)
    def construct(self: Tensor, *args: Any, **kwargs: Any) -> None:
        own = {"dtype", "requires_grad"} & kwargs.keys()  # which PyTorch's has not
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
        """Returns a tensor of this one's dtype and device, as the constructor makes it."""
        return made(self.dtype, kwargs.pop("device", self.device), args, **kwargs)

    for name, function in {"__init__": construct, "type": named, "new": new}.items():
        setattr(Tensor, name, function)
