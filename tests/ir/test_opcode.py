"""Named members: found, listed, copied and read back as one object each."""

from __future__ import annotations

import copy
import pickle

import pytest

from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SOURCES, AxisKind, MemorySpace, Named, OpCode


@pytest.mark.parametrize("kind", [OpCode, AxisKind, MemorySpace])
def test_members_are_listed_in_order_and_found_by_name(kind: type[Named]) -> None:
    members = list(kind)
    assert [m.name for m in members] == list(kind.__members__)
    assert all(kind[m.name] is m and getattr(kind, m.name) is m and isinstance(m, kind) for m in members)
    assert len(set(members)) == len(members) > 2


@pytest.mark.parametrize("kind", [OpCode, AxisKind, MemorySpace])
def test_a_member_is_one_object_whoever_copies_it(kind: type[Named]) -> None:
    for member in kind:
        assert copy.deepcopy(member) is copy.copy(member) is pickle.loads(pickle.dumps(member)) is member


def test_members_print_as_they_are_written() -> None:
    assert (repr(OpCode.ADD), str(AxisKind.GRID), OpCode.ADD.name) == ("OpCode.ADD", "AxisKind.GRID", "ADD")
    with pytest.raises(KeyError):
        OpCode["NOTHING"]


def test_the_sets_that_stages_dispatch_on_are_apart() -> None:
    assert not (ELEMENTWISE & MOVEMENT) and not (ELEMENTWISE & SOURCES) and not (MOVEMENT & SOURCES)
