"""How large a tensor is, of which dtype, and where it lies.

In:    a view of a cell
Out:   `Extent`: shape, dtype, device and what follows from them
Next:  picograd/tensor/growth.py
"""

from __future__ import annotations

import math
from typing import Any

from picograd.device import device as Device
from picograd.device import named
from picograd.dtype import DType
from picograd.ir.op import Op
from picograd.tensor.build import axis_of, static_numel
from picograd.tensor.cell import Cell
from picograd.tensor.exchange.host import default_device


class Size(tuple[int, ...]):
    """The lengths of the axes of a tensor: a tuple that knows how many elements there are.

    >>> pg.ones(2, 3).shape.numel(), pg.Size([2, 3]) == (2, 3)
    (6, True)
    """

    __slots__ = ()

    def numel(self) -> int:
        """Returns the product of the lengths."""
        return math.prod(self)


class Extent:
    """shape dtype device ndim dim numel size element_size nbytes."""

    __slots__ = ()
    cell: Cell

    @property
    def op(self) -> Op:
        """The value now, as a graph."""
        raise NotImplementedError

    @property
    def shape(self) -> Size:
        """Lengths of the axes."""
        return Size(self.op.shape)  # type: ignore[arg-type]  # symbolic ones answer to the same operations

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.cell.op.dtype

    @property
    def device(self) -> Device:
        """The device that holds it; a constant is on the default device."""
        return named(self.cell.device or default_device())

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.op.shape)

    def dim(self) -> int:
        """Returns the number of axes.

        >>> Tensor([[1, 2]]).dim()
        2
        """
        return len(self.op.shape)

    def numel(self) -> int:
        """Returns the number of elements.

        Raises:
          ShapeError: an axis has a symbolic length, so a plan made with the number would be wrong for other lengths.

        >>> Tensor.zeros(2, 3).numel()
        6
        """
        return static_numel(self.op.shape)

    def size(self, dim: int | None = None) -> Any:
        """Returns the shape, or the length of one axis.

        >>> Tensor.zeros(2, 3).size(-1)
        3
        """
        return self.shape if dim is None else self.shape[axis_of("size", self.shape, dim)]

    def element_size(self) -> int:
        """Returns the bytes of one element.

        >>> Tensor([1.0]).element_size()
        4
        """
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize
