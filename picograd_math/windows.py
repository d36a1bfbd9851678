"""Windows by torch.signal.windows' names: M weights, symmetric by default, or periodic.

A periodic window (`sym=False`) of M weights is a symmetric one of M + 1 without the last. Weights are computed in
float64 and rounded once.

Source: F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", 1978; Nuttall's
weights: A. H. Nuttall, "Some windows with very good sidelobe behavior", 1981.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError
from picograd.tensor.arguments import check_nonnegative
from picograd.tensor.tensor import Tensor
from picograd_math import sampled
from picograd_math.sampled import check_window, cosine_window

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def general_cosine(
    M: int,
    *,
    a: Sequence[float],
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Returns sum_i (-1)^i a[i] cos(2 pi i k / n) for k = 0..M-1, n = M - 1, or M for a periodic window.

    Args:
      M:      number of weights; a single weight is 1
      a:      weights of the cosines
      sym:    False: periodic
      dtype:  float32 or float64; default float32
      device: default: that of new tensors
      requires_grad: whether the result is a leaf that collects gradients

    Raises:
      ArgumentError: M is negative, or a is empty.
      DTypeError:    the dtype is neither float32 nor float64.

    >>> general_cosine(4, a=[0.5, 0.5], sym=False)
    Tensor([0. , 0.5, 1. , 0.5])
    """
    weights = tuple(a)
    if not weights:
        raise ArgumentError("general_cosine: a needs at least one weight, got none.")
    return _cosines("general_cosine", M, sym, weights, dtype, device, requires_grad)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Returns alpha - (1 - alpha) cos(2 pi k / n) for k = 0..M-1.

    `alpha` is the mean; M, sym, dtype, device and requires_grad are as in general_cosine.

    >>> general_hamming(3, alpha=0.5)
    Tensor([0., 1., 0.])
    """
    return _cosines("general_hamming", M, sym, (alpha, 1.0 - alpha), dtype, device, requires_grad)


def hamming(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns 0.54 - 0.46 cos(2 pi k / n) for k = 0..M-1; M, sym, dtype, device and requires_grad as in general_cosine.

    >>> hamming(3).shape
    (3,)
    """
    return _cosines("hamming", M, sym, (0.54, 0.46), dtype, device, requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns (1 - cos(2 pi k / n)) / 2 for k = 0..M-1; M, sym, dtype, device and requires_grad as in general_cosine.

    >>> hann(3)
    Tensor([0., 1., 0.])
    """
    return _cosines("hann", M, sym, (0.5, 0.5), dtype, device, requires_grad)


def blackman(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns 0.42 - 0.5 cos(2 pi k / n) + 0.08 cos(4 pi k / n) for k = 0..M-1.

    M, sym, dtype, device and requires_grad are as in general_cosine.

    >>> blackman(3, dtype=dtypes.float64).round(decimals=9).tolist()
    [-0.0, 1.0, -0.0]
    """
    return _cosines("blackman", M, sym, (0.42, 0.5, 0.08), dtype, device, requires_grad)


def nuttall(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns Nuttall's sum of four cosines for k = 0..M-1, whose sidelobes are 98 dB below the peak.

    M, sym, dtype, device and requires_grad are as in general_cosine.

    >>> nuttall(3).shape
    (3,)
    """
    weights = (0.3635819, 0.4891775, 0.1365995, 0.0106411)
    return _cosines("nuttall", M, sym, weights, dtype, device, requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns 1 - |2 k / n - 1| for k = 0..M-1, a triangle; M, sym, dtype, device and requires_grad as in general_cosine.

    >>> bartlett(5)
    Tensor([0. , 0.5, 1. , 0.5, 0. ])
    """
    _check("bartlett", M, dtype)
    return sampled.bartlett_window(M, not sym, dtype=dtype, device=device).requires_grad_(requires_grad)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Returns I0(beta sqrt(1 - (2 k / n - 1)^2)) / I0(beta) for k = 0..M-1.

    `beta` >= 0 is its steepness; M, sym, dtype, device and requires_grad are as in general_cosine.

    >>> kaiser(3, beta=0.0)
    Tensor([1., 1., 1.])
    """
    check_nonnegative("kaiser", "beta", beta)
    _check("kaiser", M, dtype)
    window = sampled.kaiser_window(M, not sym, beta, dtype=dtype, device=device)
    return window.requires_grad_(requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns sin(pi (k + 1/2) / M) for k = 0..M-1, half a period; for a periodic window with M + 1 instead of M.

    M, sym, dtype, device and requires_grad are as in general_cosine.

    >>> cosine(2).round(decimals=3).tolist() == Tensor([0.707, 0.707]).tolist()
    True
    """
    k = _places("cosine", M, dtype)
    length = M if sym or M < 2 else M + 1
    return _made(((k + 0.5) * (math.pi / max(length, 1))).sin(), dtype, device, requires_grad)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Returns exp(-|k - center| / tau) for k = 0..M-1.

    `center` is the middle by default, `tau` the number of weights over which it falls to 1 / e; M, sym, dtype, device and
    requires_grad are as in general_cosine.

    Raises:
      ArgumentError: tau is not above 0, or a symmetric window has a center.

    >>> exponential(3).round(decimals=4).tolist() == Tensor([0.3679, 1.0, 0.3679]).tolist()
    True
    """
    if not tau > 0:
        raise ArgumentError(f"exponential: tau must be above 0, got {tau}.")
    if sym and center is not None:
        raise ArgumentError(f"exponential: a symmetric window has its center in the middle, got {center}.", "sym=False")
    k = _places("exponential", M, dtype)
    middle = _middle(M, sym) if center is None else center
    return _made((-(k - middle).abs() / tau).exp(), dtype, device, requires_grad)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: DType | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Returns exp(-((k - c) / std)^2 / 2) for k = 0..M-1, c being the middle.

    `std` is the standard deviation in weights; M, sym, dtype, device and requires_grad are as in general_cosine.

    Raises:
      ArgumentError: std is not above 0.

    >>> gaussian(3).round(decimals=4).tolist() == Tensor([0.6065, 1.0, 0.6065]).tolist()
    True
    """
    if not std > 0:
        raise ArgumentError(f"gaussian: std must be above 0, got {std}.")
    k = _places("gaussian", M, dtype)
    return _made((-0.5 * ((k - _middle(M, sym)) / std).square()).exp(), dtype, device, requires_grad)


def _cosines(
    function: str, M: int, sym: bool, weights: tuple[float, ...], dtype: DType | None, device: str | None,
    requires_grad: bool,
) -> Tensor:  # fmt: skip
    _check(function, M, dtype)
    return cosine_window(function, M, not sym, weights, dtype, device).requires_grad_(requires_grad)


def _places(function: str, M: int, dtype: DType | None) -> Tensor:
    _check(function, M, dtype)
    return Tensor.arange(M, dtype=dtypes.float64)


def _check(function: str, M: int, dtype: DType | None) -> None:
    """Raises an error for a window that cannot exist; 16 bits are refused, as in PyTorch."""
    check_window(function, "M", M, dtype)
    if dtype not in (None, dtypes.float32, dtypes.float64):
        raise DTypeError(f"{function}: needs float32 or float64, got {dtype}.", hint=f"{function}(...).to(dtype)")


def _middle(M: int, sym: bool) -> float:
    return (M - 1 if sym or M < 2 else M) / 2


def _made(window: Tensor, dtype: DType | None, device: str | None, requires_grad: bool) -> Tensor:
    return window.to(dtype or dtypes.default_float, device).requires_grad_(requires_grad)

