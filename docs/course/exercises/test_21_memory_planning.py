"""Test of the exercise of chapter 21: no value is overwritten too early, and the bytes are few."""

from __future__ import annotations

from types import ModuleType

import pytest

Row = tuple[int, int, int, int | None]  # nbytes, first, last, over

CASES: dict[str, tuple[list[Row], int]] = {  # temporaries, the most bytes
    "two at the same time": ([(10, 0, 1, None), (10, 1, 2, None)], 20),
    "one after the other": ([(10, 0, 1, None), (30, 2, 3, None), (20, 4, 5, None)], 30),
    "a chain over itself": ([(10, n, n + 1, n - 1 if n else None) for n in range(8)], 10),
    "over something that is read later": ([(10, 0, 2, None), (10, 1, 3, 0)], 20),
    "over something shorter": ([(10, 0, 1, None), (20, 1, 2, 0)], 30),
    "two that would go over the same": ([(10, 0, 1, None), (10, 1, 2, 0), (10, 1, 3, 0)], 20),
    "those of the chapter": (
        [(40, 0, 2, None), (20, 0, 1, None), (10, 1, 6, None), (20, 2, 3, None), (30, 3, 5, None), (10, 4, 6, None),
         (30, 5, 6, None)], 80,
    ),
    "a training step": (
        [(10, n, 9 - n, None) for n in range(5)] + [(10, 5 + n, 6 + n, 5 + n - 1 if n else None) for n in range(5)], 60,
    ),
}  # fmt: skip


def may_share(rows: list[Row], offsets: list[int], one: int, other: int) -> bool:
    """True if two temporaries are never alive at the same time, or one is written over the other, element by element."""
    (_, first, last, _), (_, others_first, others_last, _) = rows[one], rows[other]
    if first > others_last or others_first > last:
        return True
    if offsets[one] != offsets[other]:
        return False
    for upper, lower in ((one, other), (other, one)):
        if rows[upper][3] == lower and rows[lower][2] == rows[upper][1] and rows[lower][0] >= rows[upper][0]:
            return True
    return False


@pytest.mark.parametrize("case", CASES)
def test_places(exercise: ModuleType, case: str) -> None:
    rows, most = CASES[case]
    offsets = exercise.place([exercise.Temporary(*row) for row in rows])
    for one in range(len(rows)):
        for other in range(one):
            meets = offsets[one] < offsets[other] + rows[other][0] and offsets[other] < offsets[one] + rows[one][0]
            assert not meets or may_share(rows, offsets, one, other), f"numbers {other} and {one} have bytes in common"
    end = max(offset + row[0] for offset, row in zip(offsets, rows))
    assert end <= most, f"{end} bytes, {most} are enough"
