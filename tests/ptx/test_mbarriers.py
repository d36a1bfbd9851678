"""The states of an mbarrier, as PTX ISA 9.0, 9.7.13.15 has them."""

from __future__ import annotations

import pytest

from tests.ptx import mbarriers
from tests.ptx.mbarriers import MOST, arrive, complete, expect, init, is_complete, read
from tests.ptx.module import PtxError


def test_a_phase_is_complete_once_all_have_arrived() -> None:
    word = init(3)
    for turn in range(4):
        assert not is_complete(word, turn % 2) and is_complete(word, turn % 2 ^ 1)
        word = arrive(arrive(word), 2)
    assert read(word) == mbarriers.State(0, 3, 3, 0)


def test_a_phase_waits_for_its_bytes() -> None:
    word = arrive(init(1), announced=96)
    assert not is_complete(word, 0)
    assert not is_complete(complete(word, 64), 0)
    assert is_complete(complete(complete(word, 64), 32), 0)


def test_bytes_may_come_before_they_are_announced() -> None:
    word = complete(init(1), 64)
    assert read(word).tx == -64 and not is_complete(word, 0)
    assert is_complete(arrive(word, announced=64), 0)
    assert not is_complete(arrive(word), 0)  # nobody announces them: it never will be


def test_announcing_is_no_arrival() -> None:
    word = expect(init(1), 16)
    assert read(word).pending == 1
    assert is_complete(complete(arrive(word), 16), 0)


@pytest.mark.parametrize(
    "wrong, says",
    [
        (lambda: init(0), "0 arrivals; 1 to 1048575"),
        (lambda: arrive(arrive(init(2)), 2), "2 more, where 1 of 2 have arrived"),
        (lambda: complete(complete(init(2), MOST), 1), "counts -1048576 bytes"),
        (lambda: is_complete(init(1), 2), "a parity is 0 or 1, not 2"),
        (lambda: arrive(0), "is no mbarrier"),
        (lambda: arrive(init(1) ^ 1 << 63), "is no mbarrier"),
        (lambda: arrive(0x7FF8000012345678), "is no mbarrier"),
    ],
)
def test_what_the_rules_forbid(wrong: object, says: str) -> None:
    with pytest.raises(PtxError, match=says):
        wrong()  # type: ignore[operator]
