"""Signals: Fourier transforms of the whole or of frames, complex numbers as pairs along the last axis; mel bands.

In:    tensors (..., n, 1) of real or (..., n, 2) of complex numbers; numbers that are known
Out:   `OPERATORS`
Next:  picograd/onnx/backend.py
"""

from __future__ import annotations

import numpy as np

from picograd import fft
from picograd.errors import ArgumentError, ShapeError
from picograd.onnx.record import row
from picograd.onnx.values import Array, affordable, numpy_of
from picograd.tensor.tensor import Tensor


def transform(
    x: Tensor, length: int | None = None, axis: int | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Returns the discrete Fourier transform along an axis, or its inverse; onesided: half of what a real signal has."""
    return _transform(x, length, x.ndim - 2 if axis is None else axis, inverse, onesided)


def transform_17(
    x: Tensor, length: int | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Returns transform; the axis is an attribute."""
    return _transform(x, length, axis, inverse, onesided)


def _transform(x: Tensor, n: int | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """Returns the discrete Fourier transform along an axis; the last axis holds a real number, or its two parts."""
    if x.shape[-1] not in (1, 2):
        raise ShapeError(f"DFT: the last axis must hold 1 real or 2 parts of a complex number, got shape {x.shape}.")
    if axis == x.ndim - 1:
        raise ArgumentError(f"DFT: axis {axis} of shape {x.shape} is that of the parts of a number.")
    if onesided and not inverse:
        if x.shape[-1] == 2:
            raise ArgumentError("DFT: onesided is of real signals, got complex ones.")
        return fft.rfft(x[..., 0], n, axis)
    numbers = fft.pairs(x[..., 0]) if x.shape[-1] == 1 else x
    if onesided:
        return fft.irfft(numbers, n, axis).unsqueeze(-1)
    return fft.ifft(numbers, n, axis) if inverse else fft.fft(numbers, n, axis)


def frames(
    signal: Tensor, hop: int, window: Tensor | None = None, length: int | None = None, *, onesided: int = 1
) -> Tensor:
    """Returns (batches, frames, frequencies, 2): the transform of each frame, times a window."""
    if length is None and window is None:
        raise ArgumentError("STFT: needs a window or a frame_length.")
    count = length if length is not None else window.shape[0]  # type: ignore[union-attr]
    total = signal.shape[1]
    if not 0 < count <= total or hop < 1:
        raise ArgumentError(f"STFT: frames of {count} in steps of {hop} do not fit a signal of {total}.")
    starts = Tensor.arange((total - count) // hop + 1, device=signal.device) * hop
    places = starts.unsqueeze(1) + Tensor.arange(count, device=signal.device)
    taken = signal.index_select(1, places.reshape(-1)).unflatten(1, places.shape)  # (batches, frames, count, parts)
    if window is not None:
        taken = taken * window.unsqueeze(-1)
    return _transform(taken, None, 2, 0, onesided)


def mel_weights(
    count: int, length: int, sample_rate: int, low: float, high: float, *, output_datatype: int = 1
) -> Array:
    """Returns (frequencies, bands): triangles that are evenly spaced on the mel scale, 2595 log10(1 + f / 700)."""
    if count < 0 or length < 0 or sample_rate < 1 or not 0 <= low <= high <= sample_rate / 2:
        shown = f"{count} bands of {low} to {high} Hz, dft_length {length} and sample_rate {sample_rate}"
        raise ArgumentError(f"MelWeightMatrix: {shown} do not fit.")
    affordable("MelWeightMatrix", length // 2 + 1, count + 2)
    first, last = (2595 * np.log10(1 + end / 700) for end in (low, high))
    mels = first + np.arange(count + 2) * ((last - first) / (count + 2))  # the specification's spacing
    bins = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / sample_rate).astype(np.int64)
    weights = np.zeros((length // 2 + 1, count))
    for band in range(count):
        left, middle, right = bins[band : band + 3]
        weights[left:middle, band] = np.arange(middle - left) / max(middle - left, 1)
        weights[middle, band] = 1
        weights[middle:right, band] = np.arange(right - middle, 0, -1) / max(right - middle, 1)
    return weights.astype(numpy_of(output_datatype))


OPERATORS = [
    row("DFT", 17, transform_17, "2+ one"), row("DFT", 20, transform, "2+ one axis"),
    row("STFT", 17, frames, "2-3 one 1 one"), row("MelWeightMatrix", 17, mel_weights, "one one one one one"),
]  # fmt: skip
