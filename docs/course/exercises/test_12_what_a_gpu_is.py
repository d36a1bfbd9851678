"""Test of the exercise of chapter 12."""

from __future__ import annotations

from types import ModuleType

BANKS = 32


def test_every_element_has_a_word_of_its_own(exercise: ModuleType) -> None:
    words = [exercise.place(row, column) for row in range(32) for column in range(32)]
    assert sorted(words) == list(range(1024)), "two elements have one word, or a word is outside of the tile"


def test_a_row_is_in_32_banks(exercise: ModuleType) -> None:
    for row in range(32):
        banks = {exercise.place(row, column) % BANKS for column in range(32)}
        assert len(banks) == 32, f"row {row} is in {len(banks)} banks: a warp that writes it waits"


def test_a_column_is_in_32_banks(exercise: ModuleType) -> None:
    for column in range(32):
        banks = {exercise.place(row, column) % BANKS for row in range(32)}
        assert len(banks) == 32, f"column {column} is in {len(banks)} banks: a warp that reads it waits"
