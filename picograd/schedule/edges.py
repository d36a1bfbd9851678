"""Which nest must run before which: edges between nests, kept with levels so that most questions need no search.

In:    nests, and what each comes to need
Out:   `depends`; `can_require`, `require`; `can_replace`, `replace`
Called by: schedule/nests.py, schedule/fuse.py.    Next: picograd/schedule/draft.py

The level of a nest is the length of the longest chain of nests it needs: a nest needs none of its own level or above.
A search that meets more than MAX_SEARCH nests is given up and answers on the safe side: a nest is then not joined.
So the work for one question is bounded, however many nests there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from picograd.schedule.draft import Draft

MAX_SEARCH = 256  # nests looked at to answer one question


def depends(needs: Iterable[Draft], nest: Draft) -> bool:
    """True when one of `needs` is `nest`, or needs it; also when the search for that was given up."""
    seen: set[Draft] = set()
    stack = list(needs)
    while stack:
        here = stack.pop()
        if here is nest:
            return True
        if here.level <= nest.level or here in seen:
            continue
        seen.add(here)
        if len(seen) > MAX_SEARCH:
            return True
        stack.extend(here.needs)
    return False


def can_require(nest: Draft, needs: Collection[Draft]) -> bool:
    """True when `nest` can run after `needs` too: none of them depends on it, and the new levels are quickly found."""
    return not depends(needs, nest) and _raised([(nest, _above(needs))]) is not None


def require(nest: Draft, needs: Collection[Draft]) -> None:
    """Lets `nest`, and so whatever needs it, run after the nests in `needs`; `can_require` said that it can."""
    _raise([(nest, _above(needs))])
    _connect(nest, needs)


def can_replace(old: Draft, new: Draft) -> bool:
    """True when `new` can stand wherever `old` does: neither depends on the other."""
    if depends([old], new) or depends([new], old):
        return False
    return _raised(_levels_without(old, new)) is not None


def replace(old: Draft, new: Draft) -> None:
    """Lets `new` stand wherever `old` did; `can_replace` said that it can."""
    _raise(_levels_without(old, new))
    needs, readers = list(old.needs), list(old.readers)
    for need in needs:
        del need.readers[old]
    for reader in readers:
        del reader.needs[old]
        _connect(reader, [new])
    _connect(new, needs)


def _levels_without(old: Draft, new: Draft) -> list[tuple[Draft, int]]:
    level = max(old.level, new.level)
    return [(new, level), *((reader, level + 1) for reader in old.readers)]


def _above(needs: Iterable[Draft]) -> int:
    return max((need.level + 1 for need in needs), default=0)


def _connect(nest: Draft, needs: Iterable[Draft]) -> None:
    for need in needs:
        nest.needs[need] = need.readers[nest] = None


def _raise(least: list[tuple[Draft, int]]) -> None:
    levels = _raised(least)
    assert levels is not None, "fuse: more nests have to be raised than were allowed to be"
    for nest, level in levels.items():
        nest.level = level


def _raised(least: list[tuple[Draft, int]]) -> dict[Draft, int] | None:
    """Returns the levels that change when these nests have at least these, or None if they are too many to tell."""
    levels: dict[Draft, int] = {}
    stack = list(least)
    steps = 0
    while stack:
        nest, level = stack.pop()
        if level <= levels.get(nest, nest.level):
            continue
        levels[nest] = level
        steps += len(nest.readers)
        if steps > MAX_SEARCH:
            return None
        stack.extend((reader, level + 1) for reader in nest.readers)
    return levels
