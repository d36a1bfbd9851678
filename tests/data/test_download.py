"""Downloads that break off: gone on with in the same process and in a later one, from a server that breaks off for real."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data import download as downloading
from picograd_programs.data.download import download
from picograd_programs.data.fetch import DataFile, check_digest, get_files, sha256_of
from tests.data.conftest import Server

BODY = np.random.default_rng(0).bytes(10_000)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "PAUSE_S", 0.0)


def fetched(server: Server, body: bytes = BODY) -> bytes:
    """Returns the file that the server has at /file, which must be `body`."""
    return download(server.url("file"), lambda data: check_digest(data, sha256_of(body), "file"), 100_000)


def parts(cache: Path) -> list[Path]:
    return [path for path in (cache / "data").rglob("*") if path.is_file()]


def test_a_connection_that_breaks_off_is_taken_up_again_at_its_byte(cache: Path, server: Server) -> None:
    server.bodies["file"], server.at_once, server.ranges = BODY, 3_000, True
    assert fetched(server) == BODY
    assert server.starts == [0, 3_000, 6_000, 9_000]
    assert not parts(cache)


def test_a_later_call_goes_on_with_what_an_earlier_one_has(cache: Path, server: Server) -> None:
    server.bodies["file"], server.at_once = BODY, 4_000
    with pytest.raises(DataError, match="the connection broke off after 4,000 of 10,000 bytes"):
        fetched(server)
    assert len(server.starts) == 1 + downloading.TRIES
    server.ranges, server.at_once, server.starts = True, None, []
    assert fetched(server) == BODY
    assert server.starts == [4_000] and not parts(cache)


def test_a_process_that_was_killed_is_gone_on_with(cache: Path, server: Server) -> None:
    server.bodies["file"], server.ranges, server.at_once = BODY, True, 6_000
    program = (
        "import os, signal, sys\n"
        "from picograd_programs.data import download as downloading\n"
        "downloading.time.sleep = lambda seconds: os.kill(os.getpid(), signal.SIGKILL)\n"  # at the first break
        "downloading.download(sys.argv[1], bytes, 100_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, server.url("file")], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    (part,) = parts(cache)
    assert part.read_bytes() == BODY[:6_000]
    server.starts = []
    assert fetched(server) == BODY
    assert server.starts == [6_000] and not parts(cache)


def test_what_another_version_left_is_fetched_anew(cache: Path, server: Server) -> None:
    server.bodies["file"], server.ranges, server.at_once = b"old " * 2_500, True, 5_000
    url, tries = server.url("file"), []

    def stop(seconds: float) -> None:
        tries.append(seconds)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(downloading.time, "sleep", stop)
        download(url, bytes, 100_000)
    assert [path.stat().st_size for path in parts(cache)] == [5_000]
    server.bodies["file"], server.at_once, server.starts = BODY, None, []
    assert fetched(server) == BODY
    assert server.starts == [5_000, 0]
    with pytest.raises(DataError, match="the SHA-256 of its 10,000 bytes"):
        fetched(server, BODY[::-1])  # what is wrong from the beginning is wrong
    assert server.starts == [5_000, 0, 0] and not parts(cache)


@pytest.mark.parametrize("kept", [BODY, BODY + b"more"])
def test_a_part_as_long_as_the_whole_or_longer(kept: bytes, cache: Path, server: Server) -> None:
    server.bodies["file"], server.ranges = BODY, True
    url = server.url("file")
    part = cache / "data" / "unfinished" / sha256_of(url.encode())[:24]
    part.parent.mkdir(parents=True)
    part.write_bytes(kept)
    assert fetched(server) == BODY
    assert server.starts == [len(kept), 0]


def test_a_server_without_ranges_is_begun_again_with(cache: Path, server: Server) -> None:
    server.bodies["file"] = BODY
    part = cache / "data" / "unfinished" / sha256_of(server.url("file").encode())[:24]
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * 500)
    assert fetched(server) == BODY
    assert server.starts == [500]


def test_files_of_a_data_set_are_gone_on_with_packed_or_not(cache: Path, server: Server) -> None:
    packed = gzip.compress(BODY)
    server.bodies |= {"a.gz": packed, "b": BODY}
    server.ranges, server.at_once = True, 4_000
    files = [DataFile(name.removesuffix(".gz"), sha256_of(BODY), (server.url(name),)) for name in server.bodies]
    assert get_files("set", files) == {"a": BODY, "b": BODY}
    assert server.starts == [0, 4_000, 8_000] * 2
    assert sorted(path.name for path in parts(cache)) == ["a", "b"]


def test_a_body_that_is_too_long_leaves_nothing(cache: Path, server: Server) -> None:
    server.bodies["file"] = BODY
    with pytest.raises(DataError, match="answers with more than 9,999 bytes"):
        download(server.url("file"), bytes, 9_999)
    assert not parts(cache)


def test_without_a_cache_nothing_is_written(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.chdir(tmp_path)
    server.bodies["file"], server.ranges, server.at_once = BODY, True, 3_000
    assert fetched(server) == BODY
    assert not list(tmp_path.iterdir())
