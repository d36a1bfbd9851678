"""Transforms of signals that are their own conjugate turned round: their spectrum is real.

In:    pairs of half a signal, or a real spectrum
Out:   `hfft`, `ihfft` and their relatives
Next:  picograd/fft/frequencies.py
"""

from __future__ import annotations

from typing import Any

from picograd.fft.real import real_input, real_output
from picograd.fft.transforms import Axes, Lengths
from picograd.tensor.tensor import Tensor


def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the real transform, of n elements, of half a signal with x[-j] = conj(x[j]).

    Args:
      input:  pairs, the first n // 2 + 1 of them are read
      n:      by default 2 (m - 1), where m pairs are there
      dim:    counted without the axis of the pairs
      norm:   "backward": no scale, "ortho": 1 / sqrt(n), "forward": 1 / n

    >>> hfft(Tensor([[1.0, 0.0], [2.0, 0.0]])).tolist()
    [3.0, -1.0]
    """
    return real_output("hfft", input, n, dim, norm, is_forward=True)


def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the inverse of `hfft`, as pairs: the first n // 2 + 1 elements of a signal with x[-j] = conj(x[j]).

    Args:
      input:  real
      n:      the spectrum is cut, or continued by zeros, to this length
      dim:    an axis
      norm:   "backward": 1 / n, "ortho": 1 / sqrt(n), "forward": no scale

    >>> ihfft(Tensor([3.0, -1.0]))[..., 0].tolist()
    [1.0, 2.0]
    """
    return real_input("ihfft", input, n, dim, norm, is_forward=False)


def hfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the real transform along two axes of half a signal.

    Args:
      input:  pairs
      s:      lengths of the spectrum; -1 leaves an axis
      dim:    axes, counted without that of the pairs
      norm:   as `hfft` takes it, of both axes together

    >>> hfft2(Tensor([[[1.0, 0.0], [2.0, 0.0]]])).tolist()
    [[3.0, -1.0]]
    """
    return real_output("hfft2", input, s, dim, norm, is_forward=True)


def ihfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the inverse of `hfft2`, as pairs.

    Args:
      input:  real
      s:      lengths that the spectrum is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes
      norm:   as `ihfft` takes it, of both axes together

    >>> ihfft2(Tensor([[3.0, -1.0]]))[..., 0].tolist()
    [[1.0, 2.0]]
    """
    return real_input("ihfft2", input, s, dim, norm, is_forward=False)


def hfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the real transform along several axes of half a signal.

    Args:
      input:  pairs
      s:      lengths of the spectrum; -1 leaves an axis
      dim:    axes, counted without that of the pairs; by default the last ones, as many as s has, or all
      norm:   as `hfft` takes it, of all axes together

    >>> hfftn(Tensor([[1.0, 0.0], [2.0, 0.0]])).tolist()
    [3.0, -1.0]
    """
    return real_output("hfftn", input, s, dim, norm, is_forward=True)


def ihfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the inverse of `hfftn`, as pairs.

    Args:
      input:  real
      s:      lengths that the spectrum is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes; by default the last ones, as many as s has, or all
      norm:   as `ihfft` takes it, of all axes together

    >>> ihfftn(Tensor([3.0, -1.0]))[..., 0].tolist()
    [1.0, 2.0]
    """
    return real_input("ihfftn", input, s, dim, norm, is_forward=False)
