"""Records, which stages pass to each other: a few named values that stay as they were made.

In:    names, annotations and defaults of a class
Out:   a class of immutable records, equal and hashed by their values

Dataclasses are written as source text and compiled when a module is loaded, which was a third of importing picograd.
msgspec makes the same class in C in a fiftieth of the time, and its instances five times as fast, without a dict each.
"""

from __future__ import annotations

from typing import dataclass_transform

from msgspec import Struct, field
from msgspec.structs import asdict, astuple, replace

__all__ = ["Record", "Struct", "asdict", "astuple", "field", "replace"]


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Record(Struct, frozen=True):
    """An immutable record: `class Point(Record)` with `x: int` and `y: int = 0` has a constructor, ==, hash and repr.

    Options come after the base: eq=False where each is equal to itself only, dict=True where properties are cached,
    weakref=True where something refers to it weakly, cache_hash=True where it is looked up again and again.

    >>> class Point(Record):
    ...     x: int
    ...     y: int = 0
    >>> replace(Point(1), y=2)
    Point(x=1, y=2)
    """
