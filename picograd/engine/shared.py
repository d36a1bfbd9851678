"""Memory that picograd shares with other libraries: who else may write to it, and what therefore must not be kept.

In:    NumPy arrays over memory of another library, or of a tensor
Out:   `Shared`, `share`; `shared`: what is known of each Buffer on such memory; `own_copy`
Called by: engine/realize.py, tensor/cell.py, tensor/exchange/arrays.py

A Buffer of ours holds one value for ever, so what was computed from it once is never computed again. The other library may
write into shared memory at any time. So a graph that reads such a Buffer is computed whenever its value is asked for, from
what stands there then, and a cell takes a copy of its own, but for the one cell that the memory is the storage of.
"""

from __future__ import annotations

import struct
import weakref
from typing import Any

import numpy as np

from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR, compiler_for, counted
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.living import LivingKeys


class SharedMemory:
    """Memory that a NumPy array keeps alive, as plans of the CPU device take it; not of its pool, and not counted.

    address, word:  where it is, and the same as it stands in the table of a plan
    nbytes:         its length
    array:          a flat array over all of it
    """

    __slots__ = ("address", "word", "nbytes", "array")

    def __init__(self, array: np.ndarray[Any, Any]):
        self.address, self.nbytes, self.array = array.ctypes.data, array.nbytes, array
        self.word = struct.pack("q", self.address)


class Shared:
    """What is known of a Buffer on shared memory.

    flat:   the memory as a flat array of the Buffer's dtype
    home:   the cell whose storage it is, by a weak reference
    array:  the view of the memory that another library gave, or None
    steps:  what leads from the cell's value to that view, as steps of a tensor's view
    """

    __slots__ = ("flat", "home", "array", "steps")

    def __init__(self, flat: np.ndarray[Any, Any]):
        self.flat = flat
        self.home: weakref.ref[Any]
        self.array: np.ndarray[Any, Any] | None = None
        self.steps: tuple[Any, ...] = ()


shared: LivingKeys[Buffer, Shared] = LivingKeys()


def share(known: Shared, dtype: DType, device: str) -> Buffer:
    """Returns a Buffer on shared memory, which it keeps alive."""
    flat = known.flat
    buffer = Buffer(device, dtype, flat.size, flat if device == EVALUATOR else SharedMemory(flat))
    shared[buffer] = known
    return buffer


def reads_shared(buffers: tuple[Buffer, ...]) -> bool:
    """Returns whether one of these Buffers is on shared memory."""
    return bool(shared.data) and any(buffer in shared for buffer in buffers)


def private_memory(buffer: Buffer) -> Any:
    """Returns memory of the same device with a copy of what a Buffer on shared memory holds now."""
    flat = np.array(shared[buffer].flat, order="C")
    if buffer.device == EVALUATOR:
        return counted(flat)
    device = compiler_for(buffer.device).device
    memory = device.allocate(flat.nbytes)
    device.copy_in(memory, flat)
    return memory


def own_copy(op: Op) -> Op:
    """Returns a BUFFER Op with the value that one on shared memory has now."""
    buffer, shape = op.arg
    own = Buffer(buffer.device, buffer.dtype, buffer.numel, private_memory(buffer))
    return Op(OpCode.BUFFER, op.dtype, (), (own, shape))
