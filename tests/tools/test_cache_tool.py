"""`picograd cache`: it counts what is there, and removes its own parts and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from picograd.errors import DataError
from picograd.ir.origin import format_nbytes
from picograd_programs.cache import PARTS, clear_cache, list_cache


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data" / "mnist").mkdir(parents=True)
    (tmp_path / "data" / "mnist" / "a").write_bytes(b"12345")
    (tmp_path / "data" / "b").write_bytes(b"1")
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "c").write_bytes(b"12")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to my love").write_bytes(b"...")
    (tmp_path / "notes.txt").write_bytes(b"...")
    return tmp_path


def test_parts_are_counted_at_any_depth(folder: Path) -> None:
    assert [(part.name, part.num_files, part.nbytes) for part in list_cache(folder)] == [
        ("data", 2, 6),
        ("tuning", 1, 2),
    ]


def test_clear_says_what_it_removed_and_leaves_what_is_not_picograds(folder: Path) -> None:
    assert [part.name for part in clear_cache(folder)] == ["data", "tuning"]
    assert sorted(path.name for path in folder.iterdir()) == ["letters", "notes.txt"]
    assert (folder / "letters" / "to my love").read_bytes() == b"..."


def test_one_part_can_be_cleared(folder: Path) -> None:
    clear_cache(folder, ("tuning",))
    assert [part.name for part in list_cache(folder)] == ["data"]


@pytest.mark.parametrize("name", ["letters", "..", "data/..", "/"])
def test_other_folders_cannot_be_named(folder: Path, name: str) -> None:
    with pytest.raises(DataError) as caught:
        clear_cache(folder, ("data", name))
    assert caught.value.fact == f"clear_cache: the cache has no part {name!r}; its parts are {', '.join(PARTS)}."
    assert (folder / "data" / "b").exists()


def test_part_that_is_a_link_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "kept").write_bytes(b"1")
    (folder / "kernels").symlink_to(elsewhere)
    with pytest.raises(DataError, match="cannot be removed"):
        clear_cache(folder, ("kernels",))
    assert (elsewhere / "kept").exists()


def test_cache_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert list_cache(tmp_path / "none") == clear_cache(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB"), (3 * 2**50, "3072.0 TiB")],
)
def test_bytes_for_people(nbytes: int, text: str) -> None:
    assert format_nbytes(nbytes) == text
