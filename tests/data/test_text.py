"""Texts, their characters as numbers, and windows."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_programs.data import text
from picograd_programs.data.text import (
    Vocabulary,
    load_text,
    python_source,
    random_windows,
    read_text,
    spaced_windows,
    split,
)


# ---- where text comes from ----
def test_source_of_the_standard_library_is_plain_long_and_always_the_same() -> None:
    source = load_text("python")
    assert source.isascii() and "\r" not in source
    assert 3 * 2**20 < len(source) < 6 * 2**20
    assert source == load_text("python")


def test_source_files_come_by_name_and_tests_and_other_characters_stay_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "json/b.py": "b\r\n", "json/__init__.py": "a\n", "json/tests/t.py": "no", "ast.py": "first\n", "zlib.py": "z\n",
        "tokenize.py": "\u00e9", "other.py": "no", "idlelib/x.py": "no",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    assert python_source(tmp_path) == "first\na\nb\nz\n"
    monkeypatch.setattr(text, "PYTHON_NBYTES", 7)
    assert python_source(tmp_path) == "first\na\n"


def test_python_without_source_says_what_else_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sysconfig.get_paths(), "stdlib", str(tmp_path))
    monkeypatch.setattr(text.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(DataError, match="has no source of the standard library") as caught:
        load_text("python")
    assert caught.value.hint == "--text FILE names another text."


@pytest.mark.req("D7")
def test_tiny_shakespeare_is_the_published_one(published_shakespeare: str) -> None:
    assert len(published_shakespeare) == 1_115_394
    assert published_shakespeare.startswith("First Citizen:\nBefore we proceed")
    assert len(Vocabulary.of(published_shakespeare)) == 65
    # nanoGPT's data/shakespeare_char/prepare.py prints these two.
    train, validation = split(Vocabulary.of(published_shakespeare).encode(published_shakespeare), 64)
    assert (len(train), len(validation)) == (1_003_854, 111_540)


def test_wrong_shakespeare_of_the_user_is_an_error(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tinyshakespeare.txt").write_text("To be")
    monkeypatch.setenv("PICOGRAD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="tinyshakespeare.txt: the SHA-256 of its 5 bytes is"):
        load_text("shakespeare")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"caf\xe9 au lait", "not UTF-8: byte 3 is 0xe9"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_files_that_are_no_text_are_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        load_text(str(path))


def test_files_are_read_as_utf8_with_plain_newlines(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("Käse\r\n日本".encode())
    assert read_text(tmp_path / "a.txt") == "Käse\n日本"


# ---- characters as numbers ----
def test_numbers_of_characters_and_back() -> None:
    vocabulary = Vocabulary.of("日本 Käse\n\U0001f600")
    assert vocabulary.characters == "\n Kesä日本\U0001f600"
    numbers = vocabulary.encode("Käse \U0001f600")
    assert numbers.dtype == np.int32 and numbers.tolist() == [2, 5, 4, 3, 1, 8]
    assert vocabulary.decode(numbers.tolist()) == "Käse \U0001f600"
    assert vocabulary.encode("").tolist() == []


@pytest.mark.parametrize("unknown", ["a", "z", "\U0001f600"])
def test_unknown_characters_are_named(unknown: str) -> None:
    with pytest.raises(DataError) as caught:
        Vocabulary("bcd").encode(f"bcd{unknown}b")
    assert caught.value.fact == f"encode: {unknown!r} is not one of the 3 characters of the text: 'bcd'"


# ---- windows ----
@pytest.mark.parametrize(("num", "block"), [(99, 10), (640, 64), (1, 1), (0, 1)])
def test_texts_too_short_for_a_block_are_refused(num: int, block: int) -> None:
    with pytest.raises(DataError, match=f"{num} characters are too few"):
        split(np.zeros(num, np.int32), block)


@pytest.mark.parametrize("num", [0, 1, 5, 10, 11, 20, 21, 99, 640])
def test_what_is_said_of_a_short_text_helps(num: int) -> None:
    with pytest.raises(DataError) as caught:
        split(np.zeros(num, np.int32), 64)
    least, _, most = str(caught.value.hint).partition(", or a --block of ")
    assert len(split(np.zeros(int(least.split()[3]), np.int32), 64)[1]) == 65
    with pytest.raises(DataError):
        split(np.zeros(int(least.split()[3]) - 1, np.int32), 64)
    if most:
        split(np.zeros(num, np.int32), int(most.split()[0]))
    blocks = int(most.split()[0]) if most else 0
    with pytest.raises(DataError):
        split(np.zeros(num, np.int32), blocks + 1)


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin1"])
def test_the_encoding_that_is_named_reads_the_text(codec: str, tmp_path: Path) -> None:
    (path := tmp_path / "a b.txt").write_bytes("Käse und Brötchen\n".encode(codec))
    with pytest.raises(DataError, match="not UTF-8") as caught:
        read_text(path)
    _, _, encoding, _, _, quoted, *_ = str(caught.value.hint).split(maxsplit=5)
    assert quoted.startswith(f"'{path}'")
    assert path.read_bytes().decode(encoding) == "Käse und Brötchen\n"


def test_shortest_text_that_is_not_too_short() -> None:
    train, validation = split(np.arange(20, dtype=np.int32), 1)
    assert (len(train), len(validation)) == (18, 2)
    assert random_windows(validation, 0, 0, 3, 1).tokens.tolist() == [[18]] * 3
    assert spaced_windows(validation, 2, 1).targets.tolist() == [[19], [19]]


def test_batches_follow_from_seed_and_step_and_reach_both_ends() -> None:
    tokens = np.arange(12, dtype=np.int32)
    first = random_windows(tokens, 3, 7, 5, 4)
    assert first.tokens.shape == first.targets.shape == (5, 4)
    assert (first.targets == first.tokens + 1).all()
    again = random_windows(tokens, 3, 7, 5, 4)
    assert all((a == b).all() for a, b in zip(first, again))
    others = [random_windows(tokens, *key, 5, 4).tokens for key in ((3, 8), (4, 7))]
    assert all((first.tokens != other).any() for other in others)
    starts = {int(start) for step in range(50) for start in random_windows(tokens, 0, step, 5, 4).tokens[:, 0]}
    assert starts == set(range(8))


def test_spaced_windows_run_from_the_first_character_to_the_last() -> None:
    windows = spaced_windows(np.arange(101, dtype=np.int32), 5, 20)
    assert windows.tokens[:, 0].tolist() == [0, 20, 40, 60, 80]
    assert windows.targets[-1, -1] == 100
