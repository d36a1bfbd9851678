"""Windows of signal processing: weights that fall toward both ends.

In:    lengths
Out:   `bartlett_window`, `blackman_window`, `hamming_window`, `hann_window`, `kaiser_window`
Next:  picograd/tensor/creation/old_types.py

A periodic window of n weights is a symmetric one of n + 1 without the last. Computed in float64, rounded once.
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError
from picograd.tensor.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


def check_window(function: str, name: str, length: int, dtype: DType | None) -> None:
    """Raises ArgumentError where a length is negative, and DTypeError where a dtype is no float."""
    if length < 0:
        raise ArgumentError(f"{function}: {name} must not be negative, got {length}.")
    if dtype is not None and not dtype.is_float:
        raise DTypeError(f"{function}: needs a float dtype, got {dtype}.")


def _angles(function: str, window_length: int, periodic: bool, dtype: DType | None) -> Tensor | None:
    """Returns k / (n - 1) for each place k, in float64; None where there is one weight or none."""
    check_window(function, "window_length", window_length, dtype)
    if window_length < 2:
        return None
    return Tensor.arange(window_length, dtype=dtypes.float64) / (window_length - (not periodic))


def cosine_window(
    function: str, n: int, periodic: bool, weights: tuple[float, ...], dtype: DType | None, device: str | None
) -> Tensor:
    """Returns w0 - w1 cos(2 pi x) + w2 cos(4 pi x) - ..., by the name of the function for errors."""
    x = _angles(function, n, periodic, dtype)
    chosen = dtype or dtypes.default_float
    if x is None:
        return Tensor.ones(n, dtype=chosen, device=device)
    terms = ((-1) ** k * w * (x * (2 * math.pi * k)).cos() for k, w in enumerate(weights[1:], 1))
    total = Tensor.full_like(x, weights[0])
    for term in terms:
        total = total + term
    return total.to(chosen, device)


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns (1 - cos(2 pi k / n)) / 2 for `window_length` places k; not periodic, it ends with 0 too.

    >>> hann_window(4).round(decimals=3)
    Tensor([0. , 0.5, 1. , 0.5])
    """
    return cosine_window("hann_window", window_length, periodic, (0.5, 0.5), dtype, device)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Returns alpha - beta cos(2 pi k / n) for `window_length` places k; periodic as in hann_window.

    >>> hamming_window(4).round(decimals=3).tolist() == tensor([0.08, 0.54, 1.0, 0.54]).tolist()
    True
    """
    return cosine_window("hamming_window", window_length, periodic, (alpha, beta), dtype, device)


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n) for `window_length` places k; periodic as in hann_window.

    >>> blackman_window(4).shape
    (4,)
    """
    return cosine_window("blackman_window", window_length, periodic, (0.42, 0.5, 0.08), dtype, device)


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DType | None = None, device: str | None = None
) -> Tensor:
    """Returns 1 - |2 k / n - 1| for `window_length` places k, a triangle; periodic as in hann_window.

    >>> bartlett_window(4)
    Tensor([0. , 0.5, 1. , 0.5])
    """
    x = _angles("bartlett_window", window_length, periodic, dtype)
    chosen = dtype or dtypes.default_float
    if x is None:
        return Tensor.ones(window_length, dtype=chosen, device=device)
    return (1 - (x * 2 - 1).abs()).to(chosen, device)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Tensor:
    """Returns I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta) for `window_length` places k; periodic as in hann_window.

    >>> kaiser_window(2)
    Tensor([5.277344e-05, 1.000000e+00])
    """
    x = _angles("kaiser_window", window_length, periodic, dtype)
    chosen = dtype or dtypes.default_float
    if x is None:
        return Tensor.ones(window_length, dtype=chosen, device=device)
    height = (1 - (x * 2 - 1).square()).clamp(min=0).sqrt()
    return ((height * beta).i0() / Tensor(beta, dtypes.float64).i0()).to(chosen, device)
