"""Loops over elements: each is computed once, in whole vectors and then what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from picograd import dtype as dtypes
from picograd.ir.build import unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import Shape
from picograd.ir.statements import For, If, Statement, Store, lanes_of
from picograd.road import create_schedule, lower
from tests.same_meaning import CPU_TARGETS


def stored(statements: Sequence[Statement], times: int = 1) -> Iterator[int]:
    """Elements that each store writes while the program runs, where all extents are numbers."""
    for statement in statements:
        if isinstance(statement, For):
            yield from stored(statement.body, times * int(statement.range.src[0].arg))
        elif isinstance(statement, If):
            yield from stored(statement.body, times)
        elif isinstance(statement, Store):
            yield times * max(lanes_of(statement.value), 1)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (16,), (17,), (64, 1), (5, 7), (4000,), (2, 2, 33)], ids=str)
@pytest.mark.parametrize("target", CPU_TARGETS, ids=lambda t: str(t.vector_bytes))
def test_each_element_is_stored_once(shape: Shape, target) -> None:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, shape))
    (item,) = create_schedule([unary(OpCode.SQRT, x)]).items
    counts = [count for phase in lower(item.kernel, target).phases for count in stored(phase)]
    elements = 1
    for length in shape:
        elements *= int(length)
    assert sum(counts) == elements
    assert elements < 16 or max(counts) >= elements // 2, "most of them in vectors"
