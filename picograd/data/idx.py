"""The IDX format of MNIST and its relatives: a big-endian header, then raw elements.

In:    bytes: 0, 0, type code, number of axes; one uint32 per axis; the elements
Out:   a NumPy array, or the bytes again
Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits", section "File formats".
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from picograd.errors import DataError

AXES_MAX = 64  # of a NumPy array
TYPE_CODES: dict[int, str] = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse_idx(data: bytes, origin: str) -> np.ndarray[Any, Any]:
    """Returns the array that IDX bytes hold, in native byte order.

    Args:
      origin:  the file, as errors will name it

    Returns:   shape and dtype as the header says

    Raises:
      DataError: no IDX header, an unknown type code, or another number of bytes than the header promises.

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 7]), "two.idx").tolist()
    [5, 7]
    """
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in TYPE_CODES:
        raise DataError(
            f"{origin}: not an IDX file: it begins with {data[:4].hex(' ')!r}, "
            f"an IDX file with 00 00, then a type code in {', '.join(f'{code:02x}' for code in TYPE_CODES)}."
        )
    dtype, num_axes = np.dtype(TYPE_CODES[data[2]]), data[3]
    header_nbytes = 4 + 4 * num_axes
    if len(data) < header_nbytes:
        raise DataError(f"{origin}: truncated: {len(data)} bytes, its header alone has {header_nbytes}.")
    shape = struct.unpack(f">{num_axes}I", data[4:header_nbytes])
    if num_axes > AXES_MAX or math.prod(dim for dim in shape if dim) >= 2**62:
        raise DataError(f"{origin}: its header has {num_axes} axes of {str(shape)[:60]}, which no array has.")
    expected = header_nbytes + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        what = "truncated" if len(data) < expected else "too long"
        raise DataError(f"{origin}: {what}: {len(data):,} bytes, shape {shape} of {dtype.name} needs {expected:,}.")
    return np.frombuffer(data, dtype, offset=header_nbytes).reshape(shape).astype(dtype.newbyteorder("="))


def format_idx(array: np.ndarray[Any, Any]) -> bytes:
    """Returns the IDX bytes of an array.

    Raises:
      DataError: IDX has no type code for the array's dtype.

    >>> format_idx(np.array([5, 7], np.uint8)).hex(" ")
    '00 00 08 01 00 00 00 02 05 07'
    """
    stored = array.dtype.newbyteorder(">")
    code = next((code for code, text in TYPE_CODES.items() if np.dtype(text) == stored), None)
    if code is None:
        raise DataError(f"format_idx: IDX has no type code for {array.dtype}.")
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape)
    return header + array.astype(stored).tobytes()
