"""Layers that put a margin around pictures: zeros, a number, what is mirrored, the edge, the other end.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/lazy.py
"""

from __future__ import annotations

from typing import ClassVar

from picograd.nn.functions.placement import Each, each_axis
from picograd.nn.functions.slide import pad
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class _Margin(Module):
    """padding: one number for all sides, or before and after for the last axis, then for the one before it, ..."""

    axes: ClassVar[int]
    mode: ClassVar[str]

    def __init__(self, padding: Each):
        self.padding = each_axis(type(self).__name__, "padding", padding, 2 * self.axes, -(1 << 31))

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, *lengths) -> (N, C, *lengths with margins)."""
        return pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return str(self.padding)


class _ConstantMargin(_Margin):
    mode = "constant"

    def __init__(self, padding: Each, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (..., *lengths) -> (..., *lengths with margins)."""
        return pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroMargin(_ConstantMargin):
    def __init__(self, padding: Each):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return str(self.padding)


class ZeroPad1d(_ZeroMargin):
    """Zeros around the last axis.

    Args:
      padding:  one number for all sides, or 2: before and after for the last axis

    >>> ZeroPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """

    axes = 1


class ZeroPad2d(_ZeroMargin):
    """Zeros around the last two axes.

    Args:
      padding:  one number for all sides, or 4: before and after for the last axis, then for the one before it

    >>> ZeroPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """

    axes = 2


class ZeroPad3d(_ZeroMargin):
    """Zeros around the last three axes.

    Args:
      padding:  one number for all sides, or 6: before and after for the last axis, then for the one before it

    >>> ZeroPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """

    axes = 3


class ConstantPad1d(_ConstantMargin):
    """A number around the last axis.

    Args:
      padding:  one number for all sides, or 2: before and after for the last axis
      value:    what is filled in

    >>> ConstantPad1d(1, 5.0)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """

    axes = 1


class ConstantPad2d(_ConstantMargin):
    """A number around the last two axes.

    Args:
      padding:  one number for all sides, or 4: before and after for the last axis, then for the one before it
      value:    what is filled in

    >>> ConstantPad2d(1, 5.0)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """

    axes = 2


class ConstantPad3d(_ConstantMargin):
    """A number around the last three axes.

    Args:
      padding:  one number for all sides, or 6: before and after for the last axis, then for the one before it
      value:    what is filled in

    >>> ConstantPad3d(1, 5.0)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """

    axes = 3


class ReflectionPad1d(_Margin):
    """What is inside, mirrored, around the last axis.

    Args:
      padding:  one number for all sides, or 2: before and after for the last axis

    >>> ReflectionPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """

    axes = 1
    mode = "reflect"


class ReflectionPad2d(_Margin):
    """What is inside, mirrored, around the last two axes.

    Args:
      padding:  one number for all sides, or 4: before and after for the last axis, then for the one before it

    >>> ReflectionPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """

    axes = 2
    mode = "reflect"


class ReflectionPad3d(_Margin):
    """What is inside, mirrored, around the last three axes.

    Args:
      padding:  one number for all sides, or 6: before and after for the last axis, then for the one before it

    >>> ReflectionPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """

    axes = 3
    mode = "reflect"


class ReplicationPad1d(_Margin):
    """The edge, repeated, around the last axis.

    Args:
      padding:  one number for all sides, or 2: before and after for the last axis

    >>> ReplicationPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """

    axes = 1
    mode = "replicate"


class ReplicationPad2d(_Margin):
    """The edge, repeated, around the last two axes.

    Args:
      padding:  one number for all sides, or 4: before and after for the last axis, then for the one before it

    >>> ReplicationPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """

    axes = 2
    mode = "replicate"


class ReplicationPad3d(_Margin):
    """The edge, repeated, around the last three axes.

    Args:
      padding:  one number for all sides, or 6: before and after for the last axis, then for the one before it

    >>> ReplicationPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """

    axes = 3
    mode = "replicate"


class CircularPad1d(_Margin):
    """The other end around the last axis.

    Args:
      padding:  one number for all sides, or 2: before and after for the last axis

    >>> CircularPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """

    axes = 1
    mode = "circular"


class CircularPad2d(_Margin):
    """The other end around the last two axes.

    Args:
      padding:  one number for all sides, or 4: before and after for the last axis, then for the one before it

    >>> CircularPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """

    axes = 2
    mode = "circular"


class CircularPad3d(_Margin):
    """The other end around the last three axes.

    Args:
      padding:  one number for all sides, or 6: before and after for the last axis, then for the one before it

    >>> CircularPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """

    axes = 3
    mode = "circular"
