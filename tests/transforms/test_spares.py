"""Which memory a replay may write again: only what nobody can read any more."""

from __future__ import annotations

from typing import Any

import pytest

from picograd import float32
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.transforms.spares import ALONE, MOST_NBYTES, Spares

pytestmark = pytest.mark.skipif(ALONE is None, reason="this interpreter's reference counts tell nothing")


class Memory:
    """Stands for memory of a device."""


def version() -> tuple[Buffer, tuple[int]]:
    return Buffer("CPU", float32, 1, Memory()), (1,)


def given(spares: Spares) -> Buffer | None:
    outputs = spares.given()
    assert len(outputs) == 3 and outputs[0] is None and outputs[2] is None
    return outputs[1]


def after_two_calls() -> tuple[Spares, int]:
    """Returns spares of output 1, and the identity of what the older call wrote."""
    spares = Spares(3, [(1, 0, 4)])
    spares.keep([version()])
    identity = id(spares.newer[0][0])
    spares.keep([version()])
    return spares, identity


def test_what_the_last_call_wrote_is_not_given() -> None:
    spares = Spares(3, [(1, 0, 4)])
    assert given(spares) is None
    spares.keep([version()])
    assert given(spares) is None


def test_what_the_call_before_wrote_is_given() -> None:
    spares, older = after_two_calls()
    assert id(given(spares)) == older


@pytest.mark.parametrize("reader", ["cell", "buffer", "memory", "op", "op of another shape"])
def test_what_has_a_reader_is_not_given(reader: str) -> None:
    spares, older = after_two_calls()
    buffer, shape = spares.older[0]
    readers: dict[str, Any] = {
        "cell": spares.older[0],
        "buffer": buffer,
        "memory": buffer.memory,
        "op": Op(OpCode.BUFFER, float32, (), spares.older[0]),
        "op of another shape": Op(OpCode.BUFFER, float32, (), (buffer, (1, 1))),
    }
    held = readers.pop(reader)
    readers.clear()
    del buffer, shape
    assert given(spares) is None
    del held
    assert id(given(spares)) == older


def test_what_two_look_at_is_given_to_one() -> None:
    spares, _ = after_two_calls()
    first = given(spares)
    assert first is not None
    assert given(spares) is None


def test_large_state_is_left_to_the_allocator() -> None:
    assert Spares(2, [(0, 0, MOST_NBYTES), (1, 1, MOST_NBYTES + 1)]).places == (0,)
