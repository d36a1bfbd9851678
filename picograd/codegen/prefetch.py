"""Asks for lines of memory before they are needed, where a long computation stands in between.

In:    values that will be computed, and how large memory must be that is not in a cache any more
Out:   Prefetch statements in the free form
Called by: codegen/matmul.py, codegen/reduce.py.    Next: picograd/codegen/squares.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.axes import steps_by_one
from picograd.codegen.builder import Builder
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode


def prefetch_large(build: Builder, values: Sequence[Op], numel: Dim, along: Op | None = None) -> None:
    """Asks for what `values` read of memory of `numel` elements or more.

    Args:
      along: the axis that lanes run along. What is not side by side along it, or the same, is in as many lines as there are
             lanes: to ask for them takes as long as to read them.
    """
    for load in toposort(values):
        if load.code is OpCode.LOAD and _is_large(load, numel) and (along is None or _is_in_a_line(load.src[1], along)):
            build.prefetch(load.src[0], load.src[1])


def _is_large(load: Op, numel: Dim) -> bool:
    """True for a load from a PARAM of so many elements, at an index that nothing has to be read for."""
    memory, index = load.src[:2]
    if memory.code is not OpCode.PARAM or any(op.code is OpCode.LOAD for op in toposort([index])):
        return False
    (length,) = memory.arg[1]
    return isinstance(length, int) and isinstance(numel, int) and length >= numel


def _is_in_a_line(index: Op, along: Op) -> bool:
    return along not in toposort([index]) or steps_by_one(index, along)
