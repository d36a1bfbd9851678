"""Scratch memory lies where nothing lives while its kernel runs: in schedules with loops, at every item."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picograd import dtype as dtypes
from picograd.devices.launches import Piece, place_scratch
from picograd.ir.op import Op, greatest
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Executable, LoopItem, Param, Schedule
from picograd.road import create_schedule

pytestmark = pytest.mark.req("G8")
F32 = dtypes.float32


def param(slot: int, *shape: int) -> Op:
    return Op(OpCode.PARAM, F32, (), (slot, shape))


def matmul(a: Op, b: Op) -> Op:
    return Op(OpCode.MATMUL, F32, (a, b))


def chain() -> Schedule:
    """Products whose results live for different times."""
    x, w = param(0, 6, 6), param(1, 6, 6)
    first = matmul(x, w)
    y = matmul(matmul(matmul(first, w), w), w)
    return create_schedule([matmul(y + first, w)])


def looped() -> Schedule:
    """A loop of two products between others; its carry has places of its own."""
    h, w = param(0, 3, 4), param(1, 4, 4)
    body = Op(OpCode.SINK, F32, (matmul(matmul(h, w), w), w))
    start = matmul(h, w)
    loop = Op(OpCode.LOOP, F32, (start, w), (body, 2, 5))
    return create_schedule([matmul(Op(OpCode.OUTPUT, F32, (loop,), 0), w) + start])


SCHEDULES = {"chain": chain(), "looped": looped()}


def lives(schedule: Schedule, base: int, around: list[Piece]) -> Iterator[list[Piece]]:
    """Yields for each kernel the pieces of the arena that hold data while it runs."""
    places: dict[int, Piece] = {}
    for i, use in enumerate(schedule.buffers):
        if use.role == "temporary":
            places[i] = base + use.source, base + use.source + greatest(use.numel) * use.dtype.itemsize
    for number, item in enumerate(schedule.items):
        live = list(around)
        for i, place in places.items():
            users = [n for n, other in enumerate(schedule.items) if i in other.buffers]
            if min(users) <= number <= max(users) and not (isinstance(item, LoopItem) and item.memory == i):
                live.append(place)
        if isinstance(item, LoopItem):
            start, end = places[item.memory] if item.memory is not None else (0, 0)
            yield from lives(item.body, start, [*live, (start + item.body.arena_nbytes, end)])
        else:
            yield live


@pytest.mark.parametrize("name", SCHEDULES)
@given(data=st.data(), alignment=st.sampled_from([64, 256]))
def test_scratch_overlaps_nothing_that_lives_and_starts_at_the_alignment(
    name: str, data: st.DataObject, alignment: int
) -> None:
    schedule = SCHEDULES[name]
    executables = []
    for item in schedule.kernel_items():
        scratch = data.draw(st.lists(st.integers(1, 200), max_size=3))
        params = (*item.kernel.params, *(Param(F32, numel, "scratch") for numel in scratch))
        executables.append(Executable(item.kernel.name, params, (), (), ()))
    found, nbytes = place_scratch(schedule, executables, alignment)
    assert schedule.arena_nbytes <= nbytes
    for pieces, executable, live in zip(found, executables, lives(schedule, 0, []), strict=True):
        wanted = [4 * int(p.numel) for p in executable.params if p.role == "scratch"]  # type: ignore[call-overload]
        assert [end - start for start, end in pieces] == wanted
        for number, (start, end) in enumerate(pieces):
            assert start % alignment == 0 and end <= nbytes
            assert all(end <= a or b <= start or a == b for a, b in [*live, *pieces[:number]])


def test_scratch_takes_the_place_of_temporaries_that_are_dead() -> None:
    schedule = SCHEDULES["chain"]
    items = schedule.kernel_items()
    last = Executable("last", (*items[-1].kernel.params, Param(F32, 16, "scratch")), (), (), ())
    others = [Executable("other", item.kernel.params, (), (), ()) for item in items[:-1]]
    assert place_scratch(schedule, [*others, last], 64)[1] == schedule.arena_nbytes
