"""What a tensor is: its dtype's kind, its number of elements and axes, where it lives.

In:    tensors, of which nothing is computed
Out:   `Info`
Next:  picograd/tensor/elements/casts.py
"""

from __future__ import annotations

import math
from typing import Any

from picograd.errors import ShapeError
from picograd.tensor.build import axis_of, static
from picograd.tensor.core import T


def is_floating_point(self: T) -> bool:
    """Returns True for floats.

    >>> Tensor([1.0]).is_floating_point(), Tensor([1]).is_floating_point()
    (True, False)
    """
    return self.dtype.is_float


def is_complex(self: T) -> bool:
    """Returns False: there are no complex numbers.

    >>> Tensor([1.0]).is_complex()
    False
    """
    return self.dtype.is_complex


def is_conj(self: T) -> bool:
    """Returns False: real numbers have no conjugate to be computed later.

    >>> Tensor([1.0]).is_conj()
    False
    """
    return self.dtype.is_complex


def is_neg(self: T) -> bool:
    """Returns False: no negation is left to be computed later.

    >>> Tensor([-1.0]).is_neg()
    False
    """
    return self.dtype.is_complex


def is_signed(self: T) -> bool:
    """Returns True if the dtype has negative numbers.

    >>> Tensor([1]).is_signed(), Tensor([True]).is_signed()
    (True, False)
    """
    return self.dtype.kind in "if"


def is_nonzero(self: T) -> bool:
    """Returns True if the one element is not 0; reads it.

    Raises:
      ShapeError: there is not exactly one.

    >>> Tensor([2.0]).is_nonzero()
    True
    """
    if self.numel() != 1:
        raise ShapeError(f"is_nonzero: needs exactly one element, got shape {self.shape}.", hint="x.any() or x.all()")
    return bool(self.item())


def nelement(self: T) -> int:
    """Returns the number of elements.

    >>> Tensor.zeros(2, 3).nelement()
    6
    """
    return self.numel()


def ndimension(self: T) -> int:
    """Returns the number of axes.

    >>> Tensor.zeros(2, 3).ndimension()
    2
    """
    return self.ndim


# ---- its layout: elements are in order, whatever view it is, since nothing is stored before it is computed ----
def stride(self: T, dim: int | None = None) -> Any:
    """Returns how many elements lie between neighbours along each axis, or one, when the elements are in order.

    PyTorch says so of memory. Here a view has none of its own, so the answer follows from the shape alone.

    Raises:
      IndexingError: there is no axis `dim`.

    >>> Tensor.zeros(2, 3).stride(), Tensor.zeros(2, 3).T.stride()
    ((3, 1), (2, 1))
    """
    lengths = [max(static(length), 1) for length in self.op.shape]
    found = tuple(math.prod(lengths[axis + 1 :]) for axis in range(len(lengths)))
    return found if dim is None else found[axis_of("stride", self.shape, dim)]


def is_contiguous(self: T) -> bool:
    """Returns True: elements are in order of the axes, as far as anybody can tell.

    >>> Tensor.zeros(2, 3).T.is_contiguous()
    True
    """
    return True


def storage_offset(self: T) -> int:
    """Returns 0, the place of the first element when the elements are in order.

    >>> Tensor.zeros(4)[2:].storage_offset()
    0
    """
    return 0


def is_pinned(self: T) -> bool:
    """Returns False: memory of the host is not pinned.

    >>> Tensor([1.0]).is_pinned()
    False
    """
    return False


def pin_memory(self: T) -> T:
    """Returns the tensor itself: a copy to a GPU is complete when it returns, from any memory.

    >>> x = Tensor([1.0])
    >>> x.pin_memory() is x
    True
    """
    return self


def get_device(self: T) -> int:
    """Returns the number of the GPU that holds it, 0, or -1 on the host.

    >>> Tensor([1.0]).get_device()
    -1
    """
    return 0 if self.is_cuda else -1
