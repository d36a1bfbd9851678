"""Which memory a replay may write again: only what nobody can read any more; and how many versions it keeps."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from picograd import float32
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import Held
from picograd.transforms.buffer_reuse import COUNTS_TELL, RESULT_NBYTES_MAX, BufferPool, has_readers, unread

numbers = itertools.count()
pytestmark = pytest.mark.skipif(not COUNTS_TELL, reason="this interpreter's reference counts tell nothing")


class Memory:
    """Stands for memory of a device; an identity would be that of another one, once this is gone."""

    def __init__(self) -> None:
        self.number = next(numbers)


def version() -> Held:
    return Buffer("CPU", float32, 1, Memory()), (1,)


def given(spares: BufferPool) -> Held | None:
    outputs = spares.given()
    assert len(outputs) == 3 and outputs[0] is None and outputs[2] is None
    return outputs[1]


def call(spares: BufferPool) -> Held:
    """Does what a replay does: writes to what is given, else to new memory."""
    found = given(spares)
    written: Held = (Buffer("CPU", float32, 1, Memory()) if found is None else found[0]), (1,)
    found = None
    spares.keep([written])
    return written


def after_two_calls() -> tuple[BufferPool, int]:
    """Returns spares of output 1 whose two versions nobody reads any more, and the identity of the older one."""
    spares = BufferPool(3, [(1, 0, 4)])
    first = call(spares)
    call(spares)
    return spares, id(first[0])


def test_nothing_is_given_to_the_first_call() -> None:
    assert given(BufferPool(3, [(1, 0, 4)])) is None


def test_what_nobody_reads_is_written_by_every_call() -> None:
    spares = BufferPool(3, [(1, 0, 4)])
    assert len({id(call(spares)[0]) for _ in range(5)}) == 1
    assert spares.older[0][0].numel == 0


def test_while_the_last_version_is_read_two_are_written_in_turn() -> None:
    spares = BufferPool(3, [(1, 0, 4)])
    found = []
    for _ in range(6):
        kept = call(spares)
        found.append(kept[0].memory.number)
    assert found == found[:2] * 3 and found[0] != found[1]


def test_the_second_version_is_dropped_when_the_last_one_is_not_read() -> None:
    spares, older = after_two_calls()
    newer = id(spares.newer[0][0])
    for _ in range(3):
        call(spares)
        assert id(spares.newer[0][0]) == newer != older
        assert spares.older[0][0].numel == 0


def test_a_reader_of_both_versions_costs_a_new_one() -> None:
    spares = BufferPool(3, [(1, 0, 4)])
    first, second = call(spares), call(spares)
    assert given(spares) is None
    third = call(spares)
    assert len({id(buffer) for buffer, _ in (first, second, third)}) == 3


def test_places_are_told_apart() -> None:
    """A loss that is read beside a count that is not."""
    spares = BufferPool(2, [(0, 0, 4), (1, 1, 4)])
    spares.keep([version(), version()])
    loss, count = spares.newer[0], id(spares.newer[1][0])
    no_loss, unread_count = spares.given()
    assert no_loss is None and unread_count is not None and id(unread_count[0]) == count
    spares.keep([version(), unread_count])
    assert spares.older[0] is loss and spares.older[1][0].numel == 0


@pytest.mark.parametrize("reader", ["cell", "buffer", "memory", "op", "op of another shape"])
def test_what_has_a_reader_is_not_given(reader: str) -> None:
    spares = BufferPool(3, [(1, 0, 4)])
    call(spares)
    buffer, shape = spares.newer[0]
    identity = id(buffer)
    readers: dict[str, Any] = {
        "cell": spares.newer[0],
        "buffer": buffer,
        "memory": buffer.memory,
        "op": Op(OpCode.BUFFER, float32, (), spares.newer[0]),
        "op of another shape": Op(OpCode.BUFFER, float32, (), (buffer, (1, 1))),
    }
    held = readers.pop(reader)
    readers.clear()
    del buffer, shape
    assert given(spares) is None
    assert has_readers([spares.newer[0][0]], 0)
    del held
    found = given(spares)
    assert found is not None and id(found[0]) == identity


def test_what_two_look_at_is_given_to_one() -> None:
    spares = BufferPool(3, [(1, 0, 4)])
    call(spares)
    first = given(spares)
    assert first is not None
    assert given(spares) is None


def test_those_who_know_a_buffer_may_be_left_out_of_the_count() -> None:
    held = [version()]
    also = [held[0][0]]
    assert unread(held, 0) is None
    assert unread(held, 0, others=1) is held[0] and len(also) == 1
    assert unread(held, 0, others=2) is None


def test_a_buffer_that_only_a_list_knows_has_no_readers() -> None:
    buffers = [version()[0], version()[0]]
    kept = buffers[1].memory
    assert [has_readers(buffers, place) for place in (0, 1)] == [False, True]
    del kept


def test_large_state_is_left_to_the_allocator() -> None:
    assert BufferPool(2, [(0, 0, RESULT_NBYTES_MAX), (1, 1, RESULT_NBYTES_MAX + 1)]).places == ((0, 0),)
