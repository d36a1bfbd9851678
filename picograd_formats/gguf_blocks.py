"""Floats packed into blocks of GGUF: a scale for 32 numbers of a row, rounded to four or eight bits each.

Source: ggml, `quantize_row_q4_0_ref`, `quantize_row_q4_1_ref`, `quantize_row_q8_0_ref`.

Letters: N blocks, n numbers of a block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from picograd_formats.gguf_file import PACKINGS, Array, PackedTensor


def halved(q: Array) -> Array:
    """Returns numbers of four bits in bytes, (N, 32) -> (N, 16): the first half in the lower bits."""
    return q[:, :16] | q[:, 16:] << 4


def bytes_of(scale: Array) -> Array:
    """Returns scales (N, 1) as bytes of float16, (N, 2)."""
    return np.ascontiguousarray(scale.astype("<f2")).view(np.uint8)


def over(scale: Array) -> Array:
    """Returns 1 / scale, 0 for 0."""
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def to_q8_0(values: Array) -> Array:
    """d = max |x| / 127, q = x / d, rounded, halves away from 0."""
    scale = np.abs(values).max(1, keepdims=True) / np.float32(127)
    q = values * over(scale)
    whole = np.trunc(q)
    away = whole + np.trunc(2 * (q - whole))
    return np.concatenate([bytes_of(scale), away.astype(np.int8).view(np.uint8)], 1)


def to_q4_0(values: Array) -> Array:
    """d = x / -8 of the x furthest from 0, q = x / d + 8."""
    furthest = np.take_along_axis(values, np.abs(values).argmax(1, keepdims=True), 1)
    scale = furthest / np.float32(-8)
    q = np.trunc(values * over(scale) + np.float32(8.5)).clip(0, 15).astype(np.uint8)
    return np.concatenate([bytes_of(scale), halved(q)], 1)


def to_q4_1(values: Array) -> Array:
    """d = (max x - min x) / 15, q = (x - min x) / d."""
    least = values.min(1, keepdims=True)
    scale = (values.max(1, keepdims=True) - least) / np.float32(15)
    q = np.trunc((values - least) * over(scale) + np.float32(0.5)).clip(0, 15).astype(np.uint8)
    return np.concatenate([bytes_of(scale), bytes_of(least), halved(q)], 1)


def to_floats(dtype: str) -> Callable[[Array], Array]:
    """Returns a function that makes plain numbers of a NumPy dtype."""
    return lambda values: np.ascontiguousarray(values.astype(dtype)).view(np.uint8)


PACKS: dict[str, Callable[[Array], Array]] = {  # (N, n) float32 -> (N, nbytes of a block)
    "F32": to_floats("<f4"), "F16": to_floats("<f2"), "Q8_0": to_q8_0, "Q4_1": to_q4_1, "Q4_0": to_q4_0,
}  # fmt: skip
BY_NAME = {packing.name: packing for packing in PACKINGS.values()}


def repacked(tensor: PackedTensor, name: str) -> PackedTensor:
    """Returns a tensor in blocks of PACKS; as it is where the name is "", or blocks do not fill its rows.

    >>> from picograd_formats.gguf_file import plain_tensor
    >>> repacked(plain_tensor(np.arange(-4.0, 4.0).repeat(4)[None]), "Q4_0").unpacked()[0, ::4].tolist()
    [-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
    """
    packing = BY_NAME.get(name, tensor.packing)
    if packing is tensor.packing or tensor.shape[-1] % packing.numel:
        return tensor
    with np.errstate(invalid="ignore", over="ignore"):  # numbers of a damaged file
        return PackedTensor(tensor.shape, packing, PACKS[name](tensor.unpacked().reshape(-1, packing.numel)))
