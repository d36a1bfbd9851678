"""Signals: weights of mel bands.

In:    numbers that are known
Out:   `OPERATORS`
Next:  picograd/onnx/backend.py
"""

from __future__ import annotations

import numpy as np

from picograd.onnx.record import row
from picograd.onnx.values import Array, numpy_of


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


OPERATORS = [row("MelWeightMatrix", 17, mel_weights, static=(0, 1, 2, 3, 4))]
