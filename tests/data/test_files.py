"""Files of data sets: digests, and how much they unpack to."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from picograd.errors import DataError
from picograd_programs.data import fetch


def test_file_with_the_right_digest_is_returned(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"text")
    assert fetch.read_checked(path, fetch.sha256_of(b"text")) == b"text"


def test_gz_file_is_unpacked_before_its_digest_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text"))
    assert fetch.read_checked(path, fetch.sha256_of(b"text")) == b"text"


def test_wrong_digest_names_file_both_digests_and_remedy(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"text")
    with pytest.raises(DataError) as caught:
        fetch.read_checked(path, "0" * 64)
    assert caught.value.fact == (
        f"{path}: the SHA-256 of its 4 bytes is {fetch.sha256_of(b'text')}, it must be {'0' * 64}."
    )
    assert caught.value.hint == (
        "the file is truncated, corrupt or another version: replace it, or delete it to fetch it again."
    )


@pytest.mark.parametrize("kept", [0, 5, 15, 25])
def test_truncated_gz_file_says_that_it_does_not_unpack(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text" * 100, mtime=0)[:kept])
    with pytest.raises(DataError) as caught:
        fetch.read_checked(path, fetch.sha256_of(b"text" * 100))
    # gzip takes no bytes at all for an empty file: then the digest tells.
    assert str(path) in caught.value.fact
    assert ("do not unpack as gzip" if kept else "SHA-256 of its 0 bytes") in caught.value.fact


def test_gz_file_with_a_flipped_bit_is_an_error(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"text" * 100))
    packed[len(packed) // 2] ^= 1
    path = tmp_path / "a.gz"
    path.write_bytes(packed)
    with pytest.raises(DataError):
        fetch.read_checked(path, fetch.sha256_of(b"text" * 100))


def test_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        fetch.read_checked(tmp_path, "0" * 64)


def test_a_small_file_that_unpacks_to_much_is_refused_before_it_does(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(fetch.FILE_NBYTES_MAX + 1), 1)
    (tmp_path / "a.gz").write_bytes(packed)
    with pytest.raises(DataError) as caught:
        fetch.read_checked(tmp_path / "a.gz", "0" * 64)
    assert caught.value.fact == (
        f"{tmp_path / 'a.gz'}: its {len(packed):,} bytes unpack to more than 67,108,864, as no file of a data set does."
    )
