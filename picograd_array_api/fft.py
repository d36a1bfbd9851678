"""The extension fft, as far as real numbers go: frequencies and their order. The transforms return complex arrays.

In:    numbers, arrays
Out:   Arrays

picograd.fft has the transforms, with complex numbers as pairs of real ones along a last axis of length 2.
"""

from __future__ import annotations

from picograd import fft as torch_fft
from picograd.dtype import DType
from picograd.tensor.tensor import Tensor
from picograd_array_api.array import Array, Axes, array, axes_given


def fftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns the frequencies of a transform of n samples at a distance of d, in cycles a unit of d.

    >>> fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25])
    """
    return array("fftfreq", torch_fft.fftfreq(n, d, dtype=dtype, device=device))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns the frequencies of a transform of n real samples at a distance of d, in cycles a unit of d.

    >>> rfftfreq(4)
    Array([0.  , 0.25, 0.5 ])
    """
    return array("rfftfreq", torch_fft.rfftfreq(n, d, dtype=dtype, device=device))


def fftshift(x: Tensor, /, *, axes: Axes = None) -> Array:
    """Returns the elements with frequency 0 moved to the middle of `axes`, or of all axes.

    >>> fftshift(Array([0.0, 1.0, -2.0, -1.0]))
    Array([-2., -1.,  0.,  1.])
    """
    return array("fftshift", torch_fft.fftshift(array("fftshift", x), axes_given(axes)))


def ifftshift(x: Tensor, /, *, axes: Axes = None) -> Array:
    """Undoes fftshift.

    >>> ifftshift(Array([-2.0, -1.0, 0.0, 1.0]))
    Array([ 0.,  1., -2., -1.])
    """
    return array("ifftshift", torch_fft.ifftshift(array("ifftshift", x), axes_given(axes)))
