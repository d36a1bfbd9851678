"""Zip files, read and written: every fault of one is a DataError; entries begin at multiples of 64 bytes."""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from picograd.errors import DataError, DeviceError

# After the first, errors of Python's zipfile and of modules that it calls, for damaged files.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError, LookupError,
    OverflowError,
)  # fmt: skip
ALIGNMENT_NBYTES = 64  # alignment of an entry's content, as in PyTorch, so that it can be mapped
PADDING_ID = 0x4246  # id of an extra field that readers ignore; PyTorch's, "FB"
LOCAL_HEADER_NBYTES, ZIP64_NBYTES = 30, 20  # before an entry's name; extra field of an entry of 2 GB or more


@contextmanager
def opened_zip(file: BinaryIO) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file for reading.

    Raises:
      DataError: it is damaged, also if that is noticed within the block.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except (DataError, DeviceError):
        raise
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise DataError("it is a damaged zip file (it names places outside of itself)") from None
    except DAMAGED as error:
        raise DataError(f"it is a damaged zip file ({error})") from None


def stored_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, nbytes_max: int) -> bytearray:
    """Returns the content of an uncompressed entry: a compressed one might be a thousand times as large as the file.

    Raises:
      DataError: it is compressed, or cut short, or its checksum differs.
    """
    if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > nbytes_max:
        raise DataError(f"its entry {entry.filename} is packed; torch.save stores entries as they are")
    data = bytearray(entry.file_size)
    with archive.open(entry) as opened:
        # Read to the end, where the checksum is compared.
        if read_into(cast(BinaryIO, opened), data) != len(data) or opened.read(1):
            raise DataError(f"its entry {entry.filename} is cut short")
    return data


def read_into(file: BinaryIO, data: bytearray) -> int:
    """Fills `data` from an open file; returns the number of bytes read."""
    view, done = memoryview(data), 0
    while done < len(data) and (count := file.readinto(view[done:])):  # type: ignore[attr-defined]
        done += count
    return done


def write_entry(archive: zipfile.ZipFile, name: str, data: Any) -> None:
    """Adds an uncompressed entry, after the padding of its header."""
    nbytes = memoryview(data).nbytes
    is_large = nbytes * 1.05 > zipfile.ZIP64_LIMIT
    entry = zipfile.ZipInfo(name)
    start = archive.start_dir + LOCAL_HEADER_NBYTES + len(name.encode()) + 4 + ZIP64_NBYTES * is_large
    padding = -start % ALIGNMENT_NBYTES
    entry.extra = struct.pack("<HH", PADDING_ID, padding) + b"Z" * padding
    entry.file_size = nbytes
    with archive.open(entry, "w", force_zip64=is_large) as opened:
        opened.write(data)
