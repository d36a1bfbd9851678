"""Files as a whole: complete or not there, whatever happens while one is written; every error names the path."""

from __future__ import annotations

import os
import pickle
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from picograd import files
from picograd.errors import DataError, FileError


def write(path: Path | str, data: bytes, **options: Any) -> None:
    files.write_whole("save", path, lambda file: file.write(data), **options)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "a", b"text")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "a") == mode
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o600)
    (tmp_path / "a").chmod(0o640)
    write(tmp_path / "a", b"text")
    assert ((tmp_path / "a").read_bytes(), mode_of(tmp_path / "a")) == (b"text", 0o640)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/a")
    for data in (b"first", b"second"):
        write(tmp_path / "link", data)
        assert (tmp_path / "link").is_symlink() and (tmp_path / "folder" / "a").read_bytes() == data
    assert os.listdir(tmp_path / "folder") == ["a"]


def in_a_pipe(path: Path) -> None:
    os.mkfifo(path)


def in_a_folder(path: Path) -> None:
    path.mkdir()


def in_a_circle(path: Path) -> None:
    path.symlink_to(path)


def in_a_device(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (in_a_pipe, "not a regular file"),
        (in_a_folder, "a folder"),
        (in_a_circle, "not a regular file"),
        (in_a_device, "not a regular file"),
    ],
)
def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path, make: Callable[[Path], None], kind: str) -> None:
    make(tmp_path / "a")
    before = os.lstat(tmp_path / "a")
    with pytest.raises(FileError) as caught:
        write(tmp_path / "a", b"text")
    assert caught.value.fact == f"save: {tmp_path / 'a'}: cannot be written: it is {kind}."
    assert os.lstat(tmp_path / "a").st_ino == before.st_ino
    assert os.listdir(tmp_path) == ["a"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


@pytest.mark.parametrize("failing", ["fsync", "replace", "fchmod"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ctrl-c"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fails(*args: object) -> None:
        raise error

    monkeypatch.setattr(os, failing, fails)
    with pytest.raises(FileError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        write(tmp_path / "a", b"new", hint="name another place.")
    if isinstance(caught.value, FileError):
        assert caught.value.fact == f"save: {tmp_path / 'a'}: cannot be written: No space left on device."
        assert (caught.value.hint, caught.value.errno) == ("name another place.", 28)
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(file: BinaryIO) -> None:
        file.write(b"some")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        files.write_whole("save", tmp_path / "a", fails)
    assert os.listdir(tmp_path) == []


def test_the_content_and_then_its_name_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(stat.S_ISDIR(os.fstat(handle).st_mode)))
    write(tmp_path / "a", b"text")
    assert synced == [False, True]


def test_temporary_files_of_processes_that_were_killed_are_removed(tmp_path: Path) -> None:
    names = {".a.0123456789abcdef.part": 7200, ".a.fedcba9876543210.part": 10, ".b.0123456789abcdef.part": 7200}
    for name, age in names.items():
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write(tmp_path / "a", b"text")
    assert sorted(os.listdir(tmp_path)) == [".a.fedcba9876543210.part", ".b.0123456789abcdef.part", "a"]


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127])
def test_names_may_be_as_long_as_the_file_system_allows(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, b"text")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize(
    ("name", "fact", "hint"),
    [
        ("nowhere/a", "No such file or directory", "os.makedirs('{}/nowhere')"),
        ("file/a", "Not a directory", None),
        ("a\0b", "its name has a zero byte", None),
        ("x" * 300, "File name too long", None),
    ],
)
def test_a_place_that_is_none_is_named(tmp_path: Path, name: str, fact: str, hint: str | None) -> None:
    (tmp_path / "file").touch()
    path = f"{tmp_path}/{name}"
    with pytest.raises(FileError) as caught:
        write(path, b"text")
    assert caught.value.fact == f"save: {path}: cannot be written: {fact}."
    assert caught.value.hint == (hint and hint.format(tmp_path))
    assert isinstance(caught.value, FileNotFoundError) == name.startswith("nowhere")


def test_a_home_that_a_shell_would_have_put_in_is_hinted_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        write("~/models/a", b"text")
    assert caught.value.hint == "os.path.expanduser(path)"  # type: ignore[attr-defined]


def test_the_folder_is_made_where_that_is_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "new" / "one" / "a", b"text", makes_folder=True)
    assert files.read_whole("load", tmp_path / "new" / "one" / "a") == b"text"


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("nothing", "No such file or directory"),
        (".", "Is a directory"),
        ("a\0b", "its name has a zero byte"),
        ("/dev/zero", "it is not a regular file"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, fact: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        files.read_whole("load", path, "look there.")
    assert (caught.value.fact, caught.value.hint) == (f"load: {path}: cannot be read: {fact}.", "look there.")
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, FileNotFoundError) == (path == "nothing")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"text")
    os.close(writing)
    try:
        with files.opened("load", f"/dev/fd/{reading}") as file:
            assert (file.read(2), file.seek(0), file.read()) == (b"te", 0, b"text")
    finally:
        os.close(reading)


def test_files_of_others_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for mode, of_others, ours in [(0o644, 0o022, True), (0o664, 0o022, False), (0o664, 0o002, True), (0o666, 0o002, False)]:
        (tmp_path / "a").chmod(mode)
        assert files.is_ours(os.stat(tmp_path / "a"), of_others) is ours
