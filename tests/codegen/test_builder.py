"""What is written goes to the innermost open loop."""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.ir.op import Op
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.statements import Alloc, For
from picograd.ir.symbolic import less


def test_memory_belongs_to_the_loop_it_is_made_in() -> None:
    """Iterations of a grid run side by side: each needs its own."""
    build = Builder()
    with build.loop(4, AxisKind.GRID), build.loop(3, AxisKind.LOOP) as index:
        memory = build.alloc(dtypes.float32, 8, MemorySpace.REGISTER)
        build.store(memory, index, index)
    (grid,) = build.finish()
    assert isinstance(grid, For) and isinstance(grid.body[0], For)
    assert [type(one) for one in grid.body[0].body][0] is Alloc


def test_a_loop_that_runs_never_or_holds_nothing_is_not_written() -> None:
    build = Builder()
    memory = build.alloc(dtypes.float32, 8, MemorySpace.REGISTER)
    for kind in (AxisKind.GRID, AxisKind.LOOP, AxisKind.UNROLL, AxisKind.VECTOR):
        with build.loop(0, kind) as index:
            build.store(memory, index, index)
        with build.loop(4, kind):
            pass
    with build.when(less(Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 0, 8)), 4)):
        pass
    assert [type(one) for one in build.finish()] == [Alloc]
