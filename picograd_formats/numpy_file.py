"""NumPy's .npy and .npz: numbers and bools, never objects, never larger than the file claims and has.

Source: NumPy, numpy/lib/_format_impl.py: the magic text, a version, the header as a dict of Python, the elements.
"""

from __future__ import annotations

import ast
import math
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, cast

import numpy as np

from picograd.errors import DataError
from picograd_formats.pickled import numeric_dtype
from picograd_formats.zipped import opened_zip, read_into

Array = np.ndarray[Any, Any]
NPY = b"\x93NUMPY"
HEADER_NBYTES_MAX = 10_000  # as in NumPy: parsing a longer one takes Python long
UNPACKED_NBYTES_MAX = 2**28  # for a small .npz; a large one may unpack to UNPACKED_MAX times its own size
UNPACKED_MAX = 100


# ---- reading ----
def read_npy(file: BinaryIO, nbytes: int) -> Array:
    """Returns the array in a file of `nbytes`.

    Raises:
      DataError: it is damaged, cut short, or has elements other than numbers and bools.
    """
    start = file.read(8)
    if start[:6] != NPY or len(start) < 8 or start[6] not in (1, 2, 3):
        raise DataError("it has no header of NumPy's versions 1 to 3")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(file.read(width), "little")
    if length > min(HEADER_NBYTES_MAX, nbytes):
        raise DataError(f"its header has {length:,} bytes, more than {min(HEADER_NBYTES_MAX, nbytes):,}")
    dtype, is_fortran, shape = _header(file.read(length))
    needed, there = math.prod(shape) * dtype.itemsize, nbytes - 8 - width - length
    if needed > there:
        raise DataError(f"it is cut short: shape {shape} of {dtype} needs {needed:,} bytes, it has {max(there, 0):,}")
    data = bytearray(needed)
    if read_into(file, data) != needed:
        raise DataError("it is cut short")
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    """Returns dtype, whether memory is in Fortran order, and shape."""
    try:
        header = ast.literal_eval(text.decode("latin1"))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise DataError("its header is damaged") from None
    if not isinstance(header, dict) or set(header) != {"descr", "fortran_order", "shape"}:
        raise DataError("its header is damaged")
    shape, is_fortran = header["shape"], header["fortran_order"]
    if type(shape) is not tuple or not all(type(dim) is int and 0 <= dim < 2**62 for dim in shape) or len(shape) > 64:
        raise DataError(f"its header has shape {str(shape)[:40]}")
    if math.prod(dim for dim in shape if dim) >= 2**62 or type(is_fortran) is not bool:
        raise DataError("its header is damaged")
    return numeric_dtype(header["descr"]), is_fortran, shape


def read_npz(file: BinaryIO, nbytes: int) -> Iterator[tuple[str, Array]]:
    """Yields the arrays in a zip file of .npy files, with their names.

    Raises:
      DataError: as in read_npy, or it unpacks to much more than its own size.
    """
    with opened_zip(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        most = max(UNPACKED_NBYTES_MAX, UNPACKED_MAX * nbytes)
        if unpacked > most:
            raise DataError(f"its {nbytes:,} bytes unpack to {unpacked:,}; at most {most:,} are read")
        for entry in archive.infolist():
            yield entry.filename.removesuffix(".npy"), _array_in(archive, entry)


def _array_in(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    try:
        with archive.open(entry) as opened:
            array = read_npy(cast(BinaryIO, opened), entry.file_size)
            if opened.read(1):  # reads to the end, where the checksum is compared
                raise DataError("it is too long")
    except DataError as error:
        raise DataError(f"{entry.filename.removesuffix('.npy')}: {error.fact}") from None
    return array


# ---- writing ----
def write_npy(file: Any, array: Array) -> None:
    """Writes an array to an open file."""
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)


def write_npz(file: Any, arrays: Iterable[tuple[str, Array]]) -> None:
    """Writes arrays by name to an open file, one after the other."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                write_npy(entry, array)
