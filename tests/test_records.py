"""Records behave as frozen dataclasses do (I1)."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from picograd.records import frozen


@frozen
class Pair:
    """Two numbers, and what is no part of them."""

    unit: ClassVar[str] = "m"
    first: int
    second: int = 2
    notes: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def total(self) -> int:
        return self.first + self.second


@dataclasses.dataclass(frozen=True)
class Plain:
    """The same by the standard library."""

    unit: ClassVar[str] = "m"
    first: int
    second: int = 2
    notes: list[str] = field(default_factory=list, compare=False, repr=False)


@frozen
class Nothing:
    """No fields."""


def test_a_record_is_made_printed_compared_and_hashed_as_a_dataclass() -> None:
    made: list[tuple[Any, Any]] = [
        (Pair(1), Plain(1)), (Pair(1, 3), Plain(1, 3)), (Pair(second=0, first=5), Plain(second=0, first=5)),
    ]  # fmt: skip
    for own, plain in made:
        assert repr(own) == repr(plain).replace("Plain", "Pair")
        assert hash(own) == hash(plain)
        assert dataclasses.asdict(own) == dataclasses.asdict(plain)
        assert own != plain and own == dataclasses.replace(own)
    assert Pair(1) == Pair(1, 2, ["a note"]) and Pair(1) != Pair(2)
    assert Pair(1).notes is not Pair(1).notes
    assert Nothing() == Nothing() and repr(Nothing()) == "Nothing()" and hash(Nothing()) == hash(Nothing())


def test_a_record_is_not_changed_but_made_anew() -> None:
    pair = Pair(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="Pair is a record: dataclasses.replace"):
        pair.first = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del pair.first
    assert dataclasses.replace(pair, first=7).total == 9


def test_a_record_is_copied_and_pickled() -> None:
    pair = Pair(1, notes=["a"])
    for other in (copy.copy(pair), copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert other == pair and other.notes == ["a"]


def test_a_missing_or_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="first"):
        Pair()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="third"):
        Pair(1, third=3)  # type: ignore[call-arg]
