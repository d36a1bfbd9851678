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
from picograd.onnx.values import Array, numpy_of
from picograd.tensor.tensor import Tensor


def transform(
    x: Tensor, length: Array | None = None, axis: Array | None = None, *, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Returns the discrete Fourier transform along an axis, or its inverse; onesided: half of what a real signal has."""
    along = -2 if axis is None else int(axis.reshape(()))
    return _transform(x, None if length is None else int(length.reshape(())), along, inverse, onesided)


def transform_17(
    x: Tensor, length: Array | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    """Returns transform; the axis is an attribute."""
    return _transform(x, None if length is None else int(length.reshape(())), axis, inverse, onesided)


def _transform(x: Tensor, n: int | None, axis: int, inverse: int, onesided: int) -> Tensor:
    """Returns the discrete Fourier transform along an axis; the last axis holds a real number, or its two parts."""
    if x.ndim < 2 or x.shape[-1] not in (1, 2):
        raise ShapeError(f"DFT: the last axis must hold 1 real or 2 parts of a complex number, got shape {x.shape}.")
    along = axis % x.ndim
    if along == x.ndim - 1:
        raise ArgumentError(f"DFT: axis {axis} of shape {x.shape} is that of the parts of a number.")
    if onesided and not inverse:
        if x.shape[-1] == 2:
            raise ArgumentError("DFT: onesided is of real signals, got complex ones.")
        return fft.rfft(x[..., 0], n, along)
    numbers = fft.pairs(x[..., 0]) if x.shape[-1] == 1 else x
    if onesided:
        return fft.irfft(numbers, n, along).unsqueeze(-1)
    return fft.ifft(numbers, n, along) if inverse else fft.fft(numbers, n, along)


def frames(
    signal: Tensor, frame_step: Array, window: Tensor | None = None, length: Array | None = None, *, onesided: int = 1
) -> Tensor:
    """Returns (batches, frames, frequencies, 2): the transform of each frame, times a window."""
    if length is None and window is None:
        raise ArgumentError("STFT: needs a window or a frame_length.")
    count = int(length.reshape(())) if length is not None else window.shape[0]  # type: ignore[union-attr]
    hop, total = int(frame_step.reshape(())), signal.shape[1]
    if not 0 < count <= total or hop < 1:
        raise ArgumentError(f"STFT: frames of {count} in steps of {hop} do not fit a signal of {total}.")
    starts = Tensor.arange((total - count) // hop + 1, device=signal.device) * hop
    places = starts.unsqueeze(1) + Tensor.arange(count, device=signal.device)
    taken = signal.index_select(1, places.reshape(-1)).unflatten(1, places.shape)  # (batches, frames, count, parts)
    if window is not None:
        taken = taken * window.unsqueeze(-1)
    return _transform(taken, None, 2, 0, onesided)


def mel_weights(
    bands: Array, dft_length: Array, sample_rate: Array, low: Array, high: Array, *, output_datatype: int = 1
) -> Array:
    """Returns (frequencies, bands): triangles that are evenly spaced on the mel scale, 2595 log10(1 + f / 700)."""
    count = int(bands.reshape(()))
    first, last = (2595 * np.log10(1 + float(end.reshape(())) / 700) for end in (low, high))
    mels = first + np.arange(count + 2) * ((last - first) / (count + 2))  # the specification's spacing
    length = int(dft_length.reshape(()))
    bins = np.floor((length + 1) * (700 * (10 ** (mels / 2595) - 1)) / int(sample_rate.reshape(()))).astype(np.int64)
    weights = np.zeros((length // 2 + 1, count))
    for band in range(count):
        left, middle, right = bins[band : band + 3]
        weights[left:middle, band] = np.arange(middle - left) / max(middle - left, 1)
        weights[middle, band] = 1
        weights[middle:right, band] = np.arange(right - middle, 0, -1) / max(right - middle, 1)
    return weights.astype(numpy_of(output_datatype))


OPERATORS = [
    row("DFT", 17, transform_17, static=(1,)), row("DFT", 20, transform, static=(1, 2)),
    row("STFT", 17, frames, static=(1, 3)), row("MelWeightMatrix", 17, mel_weights, static=(0, 1, 2, 3, 4)),
]  # fmt: skip
