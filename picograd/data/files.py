"""Checks the files of data sets: their SHA-256, and how many bytes they unpack to.

In:    a path, or packed bytes; the digest that the content must have
Out:   the content
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from pathlib import Path

from picograd.errors import DataError
from picograd.files import read_whole

FILE_NBYTES_MAX = 64 * 2**20  # of one file of a data set, unpacked; MNIST's largest has 47 MB


def sha256_of(data: bytes) -> str:
    """Returns the SHA-256 of some bytes, as 64 hexadecimal digits.

    >>> sha256_of(b"picograd")[:8]
    '4539bd64'
    """
    return hashlib.sha256(data).hexdigest()


def check_digest(data: bytes, sha256: str, origin: str) -> bytes:
    """Returns `data` unchanged when it has the digest it must have.

    Args:
      origin:  the file or address, as the error will name it

    Raises:
      DataError: the digest differs; both digests and the number of bytes are in the text.
    """
    actual = sha256_of(data)
    if actual == sha256:
        return data
    raise DataError(
        f"{origin}: the SHA-256 of its {len(data):,} bytes is {actual}, it must be {sha256}.",
        hint="the file is truncated, corrupt or another version: replace it, or take it away to have it fetched again.",
    )


def read_checked(path: Path, sha256: str) -> bytes:
    """Returns the bytes of a file, unpacked when its name ends in .gz, after checking their digest.

    Raises:
      DataError: the file cannot be read or unpacked, or its digest differs.
    """
    data = read_whole("read_checked", path, "check its permissions.", FILE_NBYTES_MAX + 1)
    return check_digest(unpack_gzip(data, str(path)) if path.suffix == ".gz" else data, sha256, str(path))


def unpack_gzip(data: bytes, origin: str, nbytes: int = FILE_NBYTES_MAX) -> bytes:
    """Returns the content of some gzip-compressed bytes, `nbytes` at most: a small file may unpack to gigabytes.

    Raises:
      DataError: they are truncated, corrupt or no gzip data at all, or hold more.
    """
    try:
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(data)).read(nbytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{origin}: its {len(data):,} bytes do not unpack as gzip: {error}.",
            hint="replace the file, or take it away to have it fetched again.",
        ) from None
    if len(unpacked) > nbytes:
        raise DataError(f"{origin}: its {len(data):,} bytes unpack to more than {nbytes:,}, as no file of a data set does.")
    return unpacked
