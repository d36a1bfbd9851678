"""Reads, checks and writes whole files: SHA-256 on the way in, rename on the way out.

In:    a path, and the digest its bytes must have
Out:   the bytes; or a file that is either complete or not there
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
import zlib
from pathlib import Path

from picograd.errors import DataError


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
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}.", hint="check its permissions.") from None
    return check_digest(unpack_gzip(data, str(path)) if path.suffix == ".gz" else data, sha256, str(path))


def unpack_gzip(data: bytes, origin: str) -> bytes:
    """Returns what some gzip-compressed bytes hold.

    Raises:
      DataError: they are truncated, corrupt or no gzip data at all.
    """
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{origin}: its {len(data):,} bytes do not unpack as gzip: {error}.",
            hint="replace the file, or take it away to have it fetched again.",
        ) from None


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file that is complete or not there: a temporary file beside it, then a rename.

    A file of that name is replaced only when all bytes of the new one are on the disk.

    Raises:
      OSError: the folder is read-only or full; what was there before is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
