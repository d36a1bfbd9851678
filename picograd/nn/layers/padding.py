"""Layers that put a margin around pictures: zeros, a number, what is mirrored, the edge, the other end.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/lazy.py
"""

from __future__ import annotations

from typing import Any, ClassVar

from picograd.nn.functions.placement import Each, each_axis
from picograd.nn.functions.slide import pad
from picograd.nn.layers.layer import Spatial, layer
from picograd.tensor.tensor import Tensor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


@layer(shown="{padding}")
class _Margin(Spatial):
    """padding: one number for all sides, or before and after for the last axis, then for the one before it, ..."""

    mode: ClassVar[str] = "constant"

    def __init_subclass__(cls, mode: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.mode = cls.mode if mode is None else mode

    def __init__(self, padding: Each):
        self.padding = each_axis(type(self).__name__, "padding", padding, 2 * self.axes, -(1 << 31))

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, *lengths) -> (N, C, *lengths with margins)."""
        return pad(input, self.padding, self.mode)


class _ZeroMargin(_Margin):
    value: ClassVar[float] = 0.0


@layer(shown="padding={padding}, value={value}")
class _ConstantMargin(_Margin):
    def __init__(self, padding: Each, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *lengths) -> (..., *lengths with margins)."""
        return pad(input, self.padding, self.mode, self.value)


class ZeroPad1d(_ZeroMargin, axes=1):
    """Zeros around the last axis; `padding`: one number, or 2: before and after.

    >>> ZeroPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ZeroPad2d(_ZeroMargin, axes=2):
    """Zeros around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ZeroPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ZeroPad3d(_ZeroMargin, axes=3):
    """Zeros around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ZeroPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class ConstantPad1d(_ConstantMargin, axes=1):
    """The number `value` around the last axis; `padding`: one number, or 2: before and after.

    >>> ConstantPad1d(1, 5.0)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ConstantPad2d(_ConstantMargin, axes=2):
    """The number `value` around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ConstantPad2d(1, 5.0)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ConstantPad3d(_ConstantMargin, axes=3):
    """The number `value` around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ConstantPad3d(1, 5.0)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class ReflectionPad1d(_Margin, axes=1, mode="reflect"):
    """The inside, mirrored, around the last axis; `padding`: one number, or 2: before and after.

    >>> ReflectionPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ReflectionPad2d(_Margin, axes=2, mode="reflect"):
    """The inside, mirrored, around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ReflectionPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ReflectionPad3d(_Margin, axes=3, mode="reflect"):
    """The inside, mirrored, around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ReflectionPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class ReplicationPad1d(_Margin, axes=1, mode="replicate"):
    """The edge, repeated, around the last axis; `padding`: one number, or 2: before and after.

    >>> ReplicationPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ReplicationPad2d(_Margin, axes=2, mode="replicate"):
    """The edge, repeated, around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ReplicationPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ReplicationPad3d(_Margin, axes=3, mode="replicate"):
    """The edge, repeated, around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ReplicationPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class CircularPad1d(_Margin, axes=1, mode="circular"):
    """The other end around the last axis; `padding`: one number, or 2: before and after.

    >>> CircularPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class CircularPad2d(_Margin, axes=2, mode="circular"):
    """The other end around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> CircularPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class CircularPad3d(_Margin, axes=3, mode="circular"):
    """The other end around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> CircularPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """
