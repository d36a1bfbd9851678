"""Where each operation of a Program is written, how often, and what a store or a barrier makes stale."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from picograd import dtype as dtypes
from picograd.codegen.passes.linearize import linearize
from picograd.ir.build import cast, compare, expand, iota, permute, reshape
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.statements import Alloc, Barrier, For, If, Let, Load, Statement, Store
from picograd.ir.symbolic import add, floordiv, to_op
from tests.cpu_programs import loop_range, memory, param
from tests.same_meaning import check_same_meaning

P, Q, OUT, SHARED = param(0, 8), param(1, 8), param(2, 8), memory("s0", 8, MemorySpace.SHARED)
STEP = loop_range(0, 8)


def at(place: Op, index: Op | int = 0) -> Op:
    return Op(OpCode.LOAD, place.dtype, (place, const(index, dtypes.int64) if isinstance(index, int) else index))


def put(place: Op, value: Op, index: Op | int = 0) -> Store:
    return Store(place, const(index, dtypes.int64) if isinstance(index, int) else index, value)


def linear(*free: Statement) -> tuple[Statement, ...]:
    return linearize(free, itertools.count(1))


def outline(statements: Sequence[Statement]) -> list[object]:
    """What is loaded, computed and stored, in order; the body of a loop or a condition is a list."""
    found: list[object] = []
    for statement in statements:
        if isinstance(statement, For | If):
            found.append(outline(statement.body))
        elif isinstance(statement, Load | Store):
            found.append(f"{type(statement).__name__.lower()} {statement.memory.arg[0]}")
        elif isinstance(statement, Let):
            found.append(statement.value.code.name)
        else:
            found.append("barrier")
    return found


# ---- what is stale ----
@pytest.mark.parametrize(
    ("place", "between", "again"),
    [
        (P, put(P, at(Q)), True),
        (P, put(Q, at(P, 1)), False),
        (SHARED, put(SHARED, at(Q)), True),
        (SHARED, put(P, at(Q)), False),
        (SHARED, Barrier(), True),
        (P, Barrier(), False),
        (P, For(STEP, (put(P, at(Q), STEP),)), True),
        (P, For(STEP, (put(Q, at(P), STEP),)), False),
        (SHARED, For(STEP, (Barrier(),)), True),
        (P, If(compare(OpCode.CMPLT, at(Q), at(Q, 1)), (put(P, at(Q)),)), True),
    ],
    ids=["a store", "a store elsewhere", "a store to shared memory", "a store beside it", "a barrier for shared memory",
         "a barrier for a parameter", "a store in a loop", "a loop that stores elsewhere", "a barrier in a loop",
         "a store under a condition"],
)  # fmt: skip
def test_a_value_is_read_again_where_its_memory_may_have_changed(place: Op, between: Statement, again: bool) -> None:
    """What is computed from it is computed again, too."""
    root = Op(OpCode.SQRT, dtypes.float32, (at(place),))
    written = linear(put(OUT, root), between, put(OUT, root, 1))
    loads = [one for one in written if isinstance(one, Load) and (one.memory, one.index) == (place, const(0, dtypes.int64))]
    roots = [one for one in written if isinstance(one, Let) and one.value.code is OpCode.SQRT]
    assert len(loads) == len(roots) == 1 + again
    assert [one.value for one in written if isinstance(one, Store) and one.memory is OUT] == [roots[0].var, roots[-1].var]


# ---- where it stands ----
def test_what_does_not_change_stands_before_the_loop() -> None:
    value = Op(OpCode.SQRT, dtypes.float32, (at(P),)) + at(Q, STEP)
    assert outline(linear(For(STEP, (put(OUT, value, STEP),)))) == ["load 0", "SQRT", ["load 1", "ADD", "store 2"]]


def test_a_load_does_not_pass_a_store_to_its_memory() -> None:
    body = (put(OUT, at(P), STEP), put(P, at(Q), STEP))
    assert outline(linear(For(STEP, body))) == ["load 1", ["load 0", "store 2", "store 0"]]
    inner = For(loop_range(1, 4), (put(OUT, at(P), loop_range(1, 4)),))
    assert outline(linear(For(STEP, (inner, put(P, at(Q), STEP))))) == ["load 1", ["load 0", ["store 2"], "store 0"]]


def test_a_load_of_shared_memory_does_not_pass_a_barrier() -> None:
    body = (put(OUT, at(SHARED) + at(P), STEP), Barrier())
    assert outline(linear(For(STEP, body))) == ["load 0", ["load s0", "ADD", "store 2", "barrier"]]


def test_a_load_does_not_leave_its_condition_and_what_needs_no_memory_does() -> None:
    root = Op(OpCode.SQRT, dtypes.float32, (cast(STEP, dtypes.float32),))
    branch = If(compare(OpCode.CMPLT, STEP, const(4, dtypes.int64)), (put(OUT, at(P) * root, STEP),))
    after = put(OUT, at(P) + root, 1)
    assert outline(linear(For(STEP, (branch, after)))) == [
        "load 0", ["CMPLT", "CAST", "SQRT", ["load 0", "MUL", "store 2"], "ADD", "store 2"],
    ]  # fmt: skip


def test_equal_expressions_are_computed_once_and_those_of_two_loops_twice() -> None:
    other = loop_range(1, 8)
    first, second = (For(r, (put(OUT, cast(r, dtypes.float32) + at(P), r),)) for r in (STEP, other))
    assert outline(linear(first, second)) == ["load 0", ["CAST", "ADD", "store 2"], ["CAST", "ADD", "store 2"]]
    twice = put(OUT, at(P) * at(P)), put(Q, at(P) * at(P))
    assert outline(linear(*twice)) == ["load 0", "MUL", "store 2", "store 1"]


# ---- unrolled loops and vectors ----
def test_an_unrolled_loop_is_its_copies() -> None:
    copies = Op(OpCode.RANGE, dtypes.int64, (const(3, dtypes.int64),), (1, AxisKind.UNROLL))
    written = linear(For(copies, (put(OUT, at(P, copies), copies),)))
    assert [one.index.arg for one in written if isinstance(one, Load | Store)] == [0, 0, 1, 1, 2, 2]


def test_an_index_inside_a_quotient_is_put_in_in_each_copy() -> None:
    step = Op(OpCode.RANGE, dtypes.int64, (const(8, dtypes.int64),), (0, AxisKind.LOOP))
    copies = Op(OpCode.RANGE, dtypes.int64, (const(2, dtypes.int64),), (1, AxisKind.UNROLL))
    quotient = to_op(floordiv(add(step, copies), 4))
    written = linear(For(step, (For(copies, (put(OUT, at(P), quotient),)),)))
    (loop,) = (one for one in written if isinstance(one, For))
    stores = [one for one in loop.body if isinstance(one, Store)]
    assert len({store.index for store in stores}) == 2


@pytest.mark.parametrize(
    ("factor", "is_one_address"), [(1, True), (2, False)], ids=["one after the other", "every second"]
)
def test_lanes_that_read_one_after_the_other_have_one_address(factor: int, is_one_address: bool) -> None:
    lane = Op(OpCode.RANGE, dtypes.int64, (const(4, dtypes.int64),), (1, AxisKind.VECTOR))
    (load,) = (one for one in linear(For(lane, (put(OUT, at(P, lane * factor), lane),))) if isinstance(one, Load))
    assert load.var.arg[1] == 4 and (load.index is const(0, dtypes.int64)) == is_one_address


def test_the_lanes_of_a_vector_are_a_value() -> None:
    lane = Op(OpCode.RANGE, dtypes.int64, (const(4, dtypes.int64),), (1, AxisKind.VECTOR))
    lanes, store = linear(For(lane, (put(param(0, 8, dtypes.int64), lane, lane),)))
    assert isinstance(lanes, Let) and (lanes.value.code, lanes.value.arg) == (OpCode.LANES, 4)
    assert isinstance(store, Store) and store.value is lanes.var and store.index is const(0, dtypes.int64)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 8, 16, 17, 64])
def test_the_index_of_a_loop_is_a_value(length: int) -> None:
    """A vector's own index is the whole value where the loop around it runs once."""
    column = expand(reshape(iota(length), (length, 1)), (length, 3))
    for root in (iota(length), cast(iota(length), dtypes.float32), column, permute(column, (1, 0))):
        check_same_meaning([root], {})


# ---- some lanes ----
def test_a_condition_of_lanes_is_one_of_each_load_and_store() -> None:
    lane = Op(OpCode.RANGE, dtypes.int64, (const(8, dtypes.int64),), (5, AxisKind.VECTOR))
    length = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 0, 8))
    own = memory("r0", 8, MemorySpace.REGISTER)
    body = (Alloc(own), put(own, at(P, lane), lane), put(OUT, at(own, lane), lane))
    condition = Op(OpCode.CMPLT, dtypes.bool_, (lane, length))
    found = linear(For(lane, (If(condition, body),)))
    assert not [one for one in found if isinstance(one, If)]
    has_condition = {one.memory: one.valid is not None for one in found if isinstance(one, Load | Store)}
    assert has_condition == {P: True, own: False, OUT: True}, "what is made there is nobody else's"


def test_what_some_lanes_have_read_is_read_again_behind_them() -> None:
    lane = Op(OpCode.RANGE, dtypes.int64, (const(8, dtypes.int64),), (5, AxisKind.VECTOR))
    condition = Op(OpCode.CMPLT, dtypes.bool_, (lane, Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 0, 8))))
    found = linear(For(lane, (If(condition, (put(OUT, at(P, lane), lane),)), put(Q, at(P, lane), lane))))
    assert [one.valid is None for one in found if isinstance(one, Load)] == [False, True]
