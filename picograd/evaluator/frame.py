"""What a thread of a Program knows while the Program runs: values, and memory of which it is known what was stored.

In:    arrays
Out:   `Memory`, `Copy`, `Frame`
Next:  picograd/evaluator/threads.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from picograd.evaluator.elementwise import Array
from picograd.ir.op import Op
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.record import Record, Struct, field


class Memory(Struct):
    """What a PARAM or an ALLOC names.

    array:   its elements
    stored:  for each element, whether it has been stored; None where all came from outside
    """

    array: Array
    stored: Array | None = None

    @staticmethod
    def unwritten(array: Array) -> Memory:
        """Returns memory of which nothing has been stored."""
        return Memory(array, np.zeros(array.size, np.bool_))

    def copy(self) -> Memory:
        """Returns the same content in memory of its own."""
        return Memory(self.array.copy(), None if self.stored is None else self.stored.copy())


class Copy(Record):
    """A copy in the background: `values` for elements `at` of memory."""

    memory: Memory
    at: Array
    values: Array

    def arrive(self) -> None:
        """Stores what was copied."""
        self.memory.array[self.at] = self.values
        assert self.memory.stored is not None
        self.memory.stored[self.at] = True


class Frame(Struct):
    """What one thread knows.

    values:  of RANGEs, VARs and VARIABLEs; the Memory of PARAMs and ALLOCs
    shared:  SHARED memory of the block, the same object in all its threads
    copies:  that the thread has started and not waited for, by group; the last group is still open
    """

    values: dict[Op, Any]
    shared: dict[Op, Memory]
    copies: list[list[Copy]] = field(default_factory=lambda: [[]])

    def thread(self) -> Frame:
        """Returns a frame for a thread: REGISTER memory and values of its own, SHARED memory in common."""
        values = {op: value.copy() if _is_register(op) else value for op, value in self.values.items()}
        return Frame(values, self.shared)


def _is_register(op: Op) -> bool:
    return op.code is OpCode.ALLOC and op.arg[2] is MemorySpace.REGISTER
