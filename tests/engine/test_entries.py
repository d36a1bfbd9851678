"""Files of the cache: whatever happens to them, what comes back is what was stored, or nothing (G8)."""

from __future__ import annotations

import os
import random
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import picograd as pg
from picograd.engine import cache as entries
from picograd.engine import devices, realize
from picograd.interrupts import Latest
from picograd.look import watch
from picograd_lab import doctor
from picograd_programs.cache import clear_cache

pytestmark = pytest.mark.req("G8")
NUM_DAMAGED = 1000


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(entries, "_said", set())
    yield tmp_path / "cache" / "kernels"


def place(part: Path, name: str) -> Path:
    return part / name[0] / name


def content(number: int) -> bytes:
    return random.Random(number).randbytes(50 + number % 400)


# ---- damage ----
def flipped(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def in_the_way(path: Path, make: Callable[[], object]) -> None:
    path.unlink()
    make()


def filled_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_bytes(b"1")


DAMAGE: list[Callable[[Path, random.Random], object]] = [
    lambda path, chance: path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)]),  # cut short
    flipped,
    lambda path, chance: path.write_bytes(b""),
    lambda path, chance: path.write_bytes(path.read_bytes() + b"more"),
    lambda path, chance: path.write_bytes(chance.randbytes(300)),  # another program's
    lambda path, chance: path.write_bytes(next(path.parent.parent.glob("*/whole*")).read_bytes()),  # another entry's
    lambda path, chance: in_the_way(path, path.mkdir),
    lambda path, chance: in_the_way(path, lambda: filled_folder(path)),
    lambda path, chance: in_the_way(path, lambda: path.symlink_to(path.parent / "nowhere")),
    lambda path, chance: in_the_way(path, lambda: path.symlink_to(path)),
    lambda path, chance: in_the_way(path, lambda: path.symlink_to(path.parent)),
    lambda path, chance: in_the_way(path, lambda: os.mkfifo(path)),  # reading it would wait for ever
    lambda path, chance: path.chmod(0o666),  # others could have written it
]


def test_a_thousand_damaged_entries_are_not_there_and_can_be_stored_again(own_folder: Path) -> None:
    chance = random.Random(0)
    for number in range(3):
        entries.write_entry("kernels", f"whole{number}.bin", content(-number))
    for number in range(NUM_DAMAGED):
        name = f"{number}.bin"
        assert entries.write_entry("kernels", name, content(number))
        DAMAGE[number % len(DAMAGE)](place(own_folder, name), chance)
        assert entries.read_entry("kernels", name) is None, number % len(DAMAGE)
        assert entries.write_entry("kernels", name, content(number))
        assert entries.read_entry("kernels", name) == content(number)
    assert not list(own_folder.rglob("*.part"))
    assert entries.read_entry("kernels", "whole1.bin") == content(-1)


def test_kernels_of_damaged_entries_are_compiled_again(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    chance = random.Random(1)
    x = pg.Tensor([1.0, 2.0, 3.0])

    def run() -> list[float]:
        compiler = devices.compiler_for("CPU")
        monkeypatch.setattr(compiler, "_made", {})
        monkeypatch.setattr(realize, "_plans", Latest(1024))
        return [(x * 3 + 1).tolist()[2], x.softmax(0).sum().round(4).item()]

    expected = run()
    for damage in DAMAGE:
        for path in list(own_folder.glob("*/*.bin")):
            if path.is_file() and "whole" not in path.name:
                damage(path, chance)
        (own_folder / "w").mkdir(exist_ok=True)
        place(own_folder, "whole.bin").write_bytes(b"something else")
        with watch() as counts:
            assert run() == expected
        assert counts.compiled > 0
        with watch() as counts:
            assert run() == expected
        assert counts.compiled == 0 and counts.disk_hits > 0


# ---- folders that cannot be used ----
def test_the_folder_is_private(own_folder: Path) -> None:
    before = os.umask(0)
    try:
        entries.write_entry("kernels", "a.bin", b"1")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in place(own_folder, "a.bin").parents[:3]] == [0o700] * 3
    assert stat.S_IMODE(place(own_folder, "a.bin").stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_can_write_to_is_not_used_and_that_is_said_once(mode: int, own_folder: Path) -> None:
    entries.write_entry("kernels", "a.bin", b"1")
    own_folder.chmod(mode)
    with pytest.warns(UserWarning, match=f"is not used: other users can write to it .mode {mode:o}"):
        assert entries.read_entry("kernels", "a.bin") is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not entries.write_entry("kernels", "a.bin", b"2")
        assert entries.read_entry("kernels", "a.bin") is None


def test_a_folder_of_another_user_is_not_used(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries.write_entry("kernels", "a.bin", b"1")
    owner = own_folder.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    if owner == 0:  # root's folders are everybody's to use; this one belongs to somebody else
        os.chown(own_folder, 12345, -1)
    with pytest.warns(UserWarning, match="is not used"):
        assert entries.read_entry("kernels", "a.bin") is None


@pytest.mark.parametrize("failing", ["picograd.engine.cache._begun", "os.replace", "os.fdopen"])
def test_a_full_disk_is_done_without_and_said_once(failing: str, own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries.write_entry("kernels", "a.bin", b"1")

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(failing, full)
    with pytest.warns(
        UserWarning, match="cannot be written to: No space left on device. Kernels are compiled again"
    ) as said:
        for name in ("b.bin", "c.bin", "d.bin"):
            assert not entries.write_entry("kernels", name, b"2")
    assert len(said) == 1
    assert [path.name for path in own_folder.glob("*/*")] == ["a.bin"]
    assert entries.read_entry("kernels", "a.bin") == b"1"


NOWHERE = pytest.param(
    "/proc/nothing/x", "No such file", marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
)


@pytest.mark.parametrize("folder, reason", [NOWHERE, ("a file/x", "Not a directory")])
def test_a_folder_that_cannot_be_made_is_said_once(
    folder: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path / folder))
    with pytest.warns(UserWarning, match=f"the cache .*{folder} cannot be .*: {reason}") as said:
        for name in ("a.bin", "b.bin"):
            assert entries.read_entry("kernels", name) is None
            assert not entries.write_entry("kernels", name, b"1")
    assert len(said) == 1 and said[0].filename == __file__


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("PICOGRAD_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert not entries.write_entry("kernels", "a.bin", b"1") and entries.read_entry("kernels", "a.bin") is None
    assert doctor.examine_cache().text == "this user has no home: every process compiles again"


def test_an_entry_in_a_folder_that_can_only_be_read_is_used(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries.write_entry("kernels", "a.bin", b"1")

    def refused(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "utime", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    monkeypatch.setattr("picograd.engine.cache._begun", refused)
    assert entries.read_entry("kernels", "a.bin") == b"1"
    with pytest.warns(UserWarning, match="cannot be written to: Permission denied"):
        assert not entries.write_entry("kernels", "b.bin", b"2")
    place(own_folder, "a.bin").write_bytes(b"changed")
    assert entries.read_entry("kernels", "a.bin") is None


# ---- its size ----
def test_trim_removes_what_was_unused_for_longest_in_every_part(own_folder: Path) -> None:
    for age, (part, name) in enumerate([("kernels", "new"), ("tuning", "middle"), ("kernels", "old")]):
        entries.write_entry(part, name, bytes(1000))
        os.utime(place(own_folder.parent / part, name), (time.time() - 100 * age,) * 2)
    entries.read_entry("kernels", "old")  # used now
    nbytes = place(own_folder, "new").stat().st_size
    assert entries.trim(most_nbytes=2 * nbytes) == 1
    assert sorted(path.name for path in own_folder.glob("*/*")) == ["new", "old"]
    assert not list((own_folder.parent / "tuning").glob("*/*"))


def test_files_of_processes_that_were_ended_are_swept_up(own_folder: Path) -> None:
    entries.write_entry("kernels", "a.bin", b"1")
    for name, age in (("young.part", 10), ("old.part", 2 * entries.ABANDONED_SECONDS)):
        (own_folder / "a" / name).write_bytes(b"half")
        os.utime(own_folder / "a" / name, (time.time() - age,) * 2)
    (own_folder / "a" / "folder.bin").mkdir()
    entries.trim(most_nbytes=0)
    assert sorted(path.name for path in own_folder.glob("*/*")) == ["folder.bin", "young.part"]


def test_storing_keeps_each_letters_share_bounded(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "STORES_BETWEEN_TRIMS", 1)
    monkeypatch.setattr(entries, "CACHE_NBYTES_MAX", 5000 * entries.NUM_LETTERS)
    entries.write_entry("kernels", "b00", bytes(4000))
    for number in range(20):
        entries.write_entry("kernels", name := f"a{number:02}", bytes(1000))
        os.utime(place(own_folder, name), (time.time() - 100 + number,) * 2)
    assert sorted(path.name for path in own_folder.glob("*/*")) == ["a16", "a17", "a18", "a19", "b00"]


def test_a_store_in_many_looks_at_the_entries_and_then_at_those_of_one_letter(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr(entries, "trim", lambda letter: asked.append(letter))
    for number in range(2 * entries.STORES_BETWEEN_TRIMS):
        entries.write_entry("kernels", f"a{number}", b"1")
    assert asked == ["a", "a"]


def test_a_folder_that_another_process_clears_meanwhile_is_no_trouble(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = os.replace

    def cleared_before(source: str, target: str) -> None:
        clear_cache(own_folder.parent)
        replace(source, target)

    monkeypatch.setattr(os, "replace", cleared_before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not entries.write_entry("kernels", "a.bin", b"1")
        monkeypatch.setattr(os, "replace", replace)
        assert entries.write_entry("kernels", "a.bin", b"1")
    assert entries.read_entry("kernels", "a.bin") == b"1"
