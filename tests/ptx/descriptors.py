"""Matrices of wgmma in shared memory: what the 64 bits of a descriptor say, and where each element lies.

In:    a descriptor, the rows and columns that an instruction reads
Out:   `decode`, `places`, `swizzled`; ACCUMULATOR_ROWS and _COLUMNS: what a thread has of the result

PTX ISA 9.0, 9.7.15.5.1: "Register Fragments and Shared Memory Matrix Layouts", "Matrix Descriptor Format", "Strides".
Where W is 1, 2, 4, 8 for no swizzle, 32, 64, 128 bytes, in units of 16 bytes (row, K) lies at, written as shape:stride,

    K-major    ((8, n), 2):((W, stride), 1)                  without swizzle the last is `leading`
    MN-major   ((W, n), (8, k)):((1, leading), (W, stride))    without swizzle `leading` and `stride` change places
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.ptx.fragments import LANE
from tests.ptx.module import PtxError

Array = np.ndarray[Any, Any]
PIECE = 16  # bytes: what a swizzle moves, and the unit of all fields
SPANS = {0: 16, 1: 128, 2: 64, 3: 32}  # bits 62 and 63 -> bytes that a row of the pattern has; 16: no swizzle


def swizzled(address: Array, span: int) -> Array:
    """Returns where a byte lies: of bits 4, 5, 6 as many as the span needs are xor-ed with those from bit 7 on.

    >>> [int(swizzled(np.array(256), span)) for span in (16, 32, 64, 128)]
    [256, 256, 288, 288]
    """
    return address ^ (address >> 3 & (span - PIECE))


@dataclass(frozen=True)
class Descriptor:
    """A matrix of wgmma: all in bytes.

    leading, stride:  two distances, of which each layout reads one or both
    span:             bytes after which the pattern of the swizzle goes on in the next row; 16: no swizzle
    """

    start: int
    leading: int
    stride: int
    span: int


def decode(bits: int) -> Descriptor:
    """Reads a descriptor.

    Raises:
      PtxError: it has a base offset, or bits that the format does not name.
    """
    named = 0x3FFF | 0x3FFF << 16 | 0x3FFF << 32 | 0b111 << 49 | 0b11 << 62
    if bits & ~named:
        raise PtxError(f"matrix descriptor {bits:#018x}: bits {bits & ~named:#x} belong to no field.")
    if bits >> 49 & 0b111:
        raise PtxError(f"matrix descriptor {bits:#018x}: base offset {bits >> 49 & 0b111}; only 0 is known.")
    start, leading, stride = ((bits >> first & 0x3FFF) * PIECE for first in (0, 16, 32))
    return Descriptor(start, leading, stride, SPANS[bits >> 62])


def places(matrix: Descriptor, rows: int, columns: int, itemsize: int, k_major: bool) -> Array:
    """Returns the address of the first byte of each element, (rows, columns); columns run along K."""
    row, k = np.arange(rows)[:, None], np.arange(columns)[None]
    wide = matrix.span // PIECE  # pieces of a row of the pattern
    per_piece = PIECE // itemsize
    if k_major:
        piece, inside = k // per_piece, k % per_piece * itemsize
        across = matrix.leading if wide == 1 else PIECE
        offset = row % 8 * matrix.span + row // 8 * matrix.stride + piece * across + inside
    else:
        piece, inside = row // per_piece, row % per_piece * itemsize
        over, down = (matrix.stride, matrix.leading) if wide == 1 else (matrix.leading, matrix.stride)
        offset = piece % wide * PIECE + piece // wide * over + k % 8 * matrix.span + k // 8 * down + inside
    return swizzled(matrix.start + offset, matrix.span)


def accumulator_places(columns: int) -> tuple[Array, Array]:
    """Returns row and column of each element of each thread of one warp, (32, columns / 2); warp w adds 16 w to the rows.

    d[i]: row g, or g + 8 where i / 2 is odd; column 8 (i / 4) + 2t + (i mod 2).
    """
    g, t, i = LANE[:, None] // 4, LANE[:, None] % 4, np.arange(columns // 2)[None]
    return g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2
