"""Asks for lines of memory before they are needed, where a long computation stands in between.

In:    values that will be computed, and how large memory must be that is not in a cache any more
Out:   Prefetch statements in the free form
Called by: codegen/cpu/matmul.py, codegen/cpu/few_rows.py, codegen/row_loops.py.    Next: picograd/codegen/epilogue.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.symbolic import add, from_op, mul, to_op

LINE_NBYTES = 64  # of a cache


def prefetch_large(build: Builder, values: Sequence[Op], numel: Dim) -> None:
    """Asks for what `values` read of memory of `numel` elements or more."""
    for load in toposort(values):
        if load.code is OpCode.LOAD and _is_large(load, numel):
            build.prefetch(load.src[0], load.src[1])


def prefetch_lines(build: Builder, values: Callable[[Dim], Sequence[Op]], start: Dim, count: int, numel: Dim) -> None:
    """Asks for what values(column) read at `count` columns from `start` on, once for each line of the cache.

    Args:
      numel: of memory that is asked for: so many elements or more, side by side along the columns
    """
    here, beside = (toposort(values(column)) for column in (start, add(start, 1)))
    for load in here:
        if load.code is OpCode.LOAD and _is_large(load, numel):
            index = from_op(load.src[1])
            if any(op.code is OpCode.LOAD and op.src[:2] == (load.src[0], to_op(add(index, 1))) for op in beside):
                of_line = LINE_NBYTES // load.dtype.itemsize
                with build.loop(-(-count // of_line), AxisKind.UNROLL) as line:
                    build.prefetch(load.src[0], add(index, mul(line, of_line)))


def _is_large(load: Op, numel: Dim) -> bool:
    """True for a load from a PARAM of so many elements, at an index that nothing has to be read for."""
    memory, index = load.src[:2]
    if memory.code is not OpCode.PARAM or any(op.code is OpCode.LOAD for op in toposort([index])):
        return False
    (length,) = memory.arg[1]
    return isinstance(length, int) and isinstance(numel, int) and length >= numel
