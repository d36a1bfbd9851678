"""Which frequency stands where in a spectrum.

In:    a length; or a spectrum
Out:   `fftfreq`, `rfftfreq`; `fftshift`, `ifftshift`
Next:  picograd/linalg/__init__.py
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.fft.transforms import Axes
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import axes_of
from picograd.tensor.tensor import Tensor


def _numbers(name: str, n: int, start: int, count: int, d: float, dtype: DType | None, device: str | None) -> Tensor:
    if not isinstance(n, int) or n < 1:
        raise ArgumentError(f"{name}: n must be 1 or more, got {n!r}.")
    if not isinstance(d, (int, float)) or d == 0:
        raise ArgumentError(f"{name}: d must be a number other than 0, got {d!r}.")
    numbers = Tensor.arange(start, start + count, dtype=dtype or dtypes.default_float, device=device)
    return numbers.roll(start, 0) / (n * d) if start else numbers / (n * d)


def fftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Returns the frequencies of a transform: 0, 1, ..., then the negative ones, by n d.

    Args:
      n:  elements of the signal
      d:  time between two of them

    Raises:
      ArgumentError: n is less than 1, or d is 0.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    return _numbers("fft.fftfreq", n, -(n // 2) if isinstance(n, int) else 0, n, d, dtype, device)


def rfftfreq(n: int, d: float = 1.0, *, dtype: DType | None = None, device: str | None = None) -> Tensor:
    """Returns the frequencies of half a spectrum: 0 to n // 2, by n d.

    Args:
      n:  elements of the signal
      d:  time between two of them

    Raises:
      ArgumentError: n is less than 1, or d is 0.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    return _numbers("fft.rfftfreq", n, 0, n // 2 + 1 if isinstance(n, int) else 0, d, dtype, device)


def _shifted(name: str, value: Any, dim: Axes, is_forward: bool) -> Tensor:
    tensor = tensor_of(name, "input", value)
    x = Tensor.from_op(tensor.read(), tensor.cell.device)
    axes = axes_of(name, x.op.shape, dim)
    if not axes:
        return x
    shifts = [x.shape[axis] // 2 if is_forward else -(x.shape[axis] // 2) for axis in axes]
    return x.roll(shifts, axes)


def fftshift(input: Any, dim: Axes = None) -> Tensor:
    """Returns a spectrum turned so that frequency 0 stands in the middle.

    Args:
      input:  any tensor; of pairs, name the axes with dim

    Raises:
      IndexingError: there is no such axis.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted("fft.fftshift", input, dim, True)


def ifftshift(input: Any, dim: Axes = None) -> Tensor:
    """Returns the inverse of `fftshift`.

    Args:
      input:  any tensor; of pairs, name the axes with dim

    Raises:
      IndexingError: there is no such axis.

    >>> ifftshift(fftshift(fftfreq(5))).tolist() == fftfreq(5).tolist()
    True
    """
    return _shifted("fft.ifftshift", input, dim, False)
