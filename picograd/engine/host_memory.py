"""Memory that the host can see: what other libraries share with tensors, and values read where they are.

In:    NumPy arrays over memory of another library, or of a tensor;  Ops
Out:   `Shared`, `share`; `shared`: facts about each Buffer on such memory; `own_copy`
       `value_on_host`: the value of a view, where nothing has to be computed or brought;  `number_on_host`: a number

A Buffer of ours holds one value for ever, so what was computed from it once is never computed again. The other library may
write into shared memory at any time. So a graph that reads such a Buffer is computed whenever its value is asked for, from
what is in memory then, and a cell takes a copy of its own, but for the one cell that the memory is the storage of.

    ix[3].item(), x[i:j].tolist(), x.T.numpy()      # of memory of the host: no plan, no kernel
"""

from __future__ import annotations

import ctypes
import math
import struct
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.devices.cpu.memory import Memory
from picograd.dtype import DType, Scalar, int64
from picograd.engine.devices import EVALUATOR, compiler_for, counted
from picograd.errors import OutOfMemoryError
from picograd.interrupts import LivingKeys
from picograd.ir.op import Buffer, Op, realized, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ARRAY_NDIM_MAX, of_numbers


# ---- memory that other libraries share ----
class SharedMemory:
    """Memory that a NumPy array keeps alive, as plans of the CPU device take it; not of its pool, and not counted.

    address, word:  its address, also as a word in a plan's table
    nbytes:         its length
    array:          a flat array over all of it
    """

    __slots__ = ("address", "word", "nbytes", "array")

    def __init__(self, array: np.ndarray[Any, Any]):
        self.address, self.nbytes, self.array = array.ctypes.data, array.nbytes, array
        self.word = struct.pack("q", self.address)


class Shared:
    """Knowledge of a Buffer on shared memory.

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
    return any(buffer in shared for buffer in buffers)


def forget_copies(order: Sequence[Op]) -> None:
    """Forgets COPYs of shared memory, so that they are made again the next time."""
    for op in order:
        below = toposort([op.src[0]], stop=realized) if op.code is OpCode.COPY else ()
        if any(s.code is OpCode.BUFFER and s.arg[0] in shared for s in below):
            op.realized = None


def private_memory(buffer: Buffer) -> Any:
    """Returns memory of the same device with a copy of the present content of a Buffer on shared memory."""
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


# ---- values where they are ----
Array = np.ndarray[Any, Any]


def _padded(array: Array, arg: tuple[tuple[int, int], ...]) -> Array:
    """Returns an array among zeros."""
    whole = np.zeros([before + length + after for length, (before, after) in zip(array.shape, arg)], array.dtype)
    whole[tuple([slice(before, before + length) for length, (before, _) in zip(array.shape, arg)])] = array
    return whole


SHOWS: dict[OpCode, Callable[[Array, Any], Array]] = {
    OpCode.LEAF: lambda array, arg: array,
    OpCode.DETACH: lambda array, arg: array,
    OpCode.RESHAPE: lambda array, arg: array.reshape(arg),
    OpCode.PERMUTE: lambda array, arg: array.transpose(arg),
    OpCode.EXPAND: lambda array, arg: np.broadcast_to(array, arg),
    OpCode.SHRINK: lambda array, arg: array[tuple([slice(start, stop) for start, stop in arg])],
    OpCode.PAD: _padded,
    OpCode.FLIP: lambda array, arg: np.flip(array, arg),
}


SMALL_NUMEL_MAX = 8192  # elements that the host copies and chooses from while a plan is begun


def is_small(op: Op) -> bool:
    """True for a value that the host is done with before a plan begins."""
    return op.numel <= SMALL_NUMEL_MAX


LYING = frozenset({OpCode.BUFFER, OpCode.ADD, *SHOWS})  # of values not computed yet only these may be in host memory


def value_on_host(op: Op) -> Array | None:
    """Returns a copy of the value of a view of host memory, perhaps among zeros, or of a constant; None of anything else.

    A number plus another is on the host if the numbers are: x[i : i + 32] of a Tensor i runs nothing, either.

    Raises:
      OutOfMemoryError: the host has no memory for what it shows.
    """
    if op.code is OpCode.ADD and not op.shape and op.dtype is int64 and op.realized is None:
        number = number_on_host(op)
        return None if number is None else np.array(number, np.int64)
    steps = []
    while op.realized is None and op.code in SHOWS:
        steps.append(op)
        op = op.src[0]
    base = op if op.code in (OpCode.BUFFER, OpCode.CONST) else op.realized
    if base is None or not all(map(_is_known, [base, *steps])):
        return None
    if base.code is OpCode.CONST:
        array: Array = np.array(base.arg, base.dtype.numpy)
    elif type((buffer := base.arg[0]).memory) in (Memory, SharedMemory):
        holder = _bytes_type(buffer.nbytes).from_address(buffer.memory.address)
        array = np.frombuffer(holder, buffer.dtype.numpy).reshape(base.shape)
    else:
        return None
    try:
        for step in reversed(steps):
            array = SHOWS[step.code](array, step.arg)
        return array.copy()  # NOTE: here, while `buffer` is held: it may be written over once nobody does
    except MemoryError as error:
        raise OutOfMemoryError.of_host(error) from None


@lru_cache(maxsize=64)
def _bytes_type(nbytes: int) -> Any:
    """Returns the type of an array of bytes, kept: only the garbage collector would free the one that ctypes makes."""
    return ctypes.c_char * nbytes


def number_on_host(op: Op) -> Scalar | None:
    """Returns the value of an element of host memory, or of few operations on such; None where it is anything else.

    Such as i of `for i in ix`, i + 32, and D[i, j] + 1 < D[i, k]: nothing runs, and no array is made. The operations are
    those whose result IEEE 754 rounds in one way, so that a kernel's is the same.
    """
    if op.realized is None and op.code in OF_NUMBERS and not op.shape and op.depth <= NUMBER_DEPTH_MAX:
        if (dtype := op.src[0].dtype) not in (dtypes.float32, dtypes.float64, dtypes.bool_, int64):
            return None
        values = [x.arg if x.code is OpCode.CONST else number_on_host(x) for x in op.src]
        if None in values or op.dtype not in NUMBERS:
            return None
        with np.errstate(all="ignore"):
            found: Scalar = OF_NUMBERS[op.code](*map(dtype.numpy.type, values)).item()
        return found
    if op.realized is None and op.code not in IN_PLACE:
        return None
    place = place_on_host(op)
    return None if place is None else number_in(*place)


def place_on_host(op: Op, is_written: bool = False) -> tuple[Buffer, int] | None:
    """Returns the memory that a view shows one element of, and its place there; None where it is anything else.

    Args:
      is_written:  the memory is that of the storage, though a copy of the view's value is kept elsewhere
    """
    at = 0
    while op.code is not OpCode.BUFFER and (is_written or op.realized is None):
        if op.code in MOVES:
            shape: Any = op.src[0].shape
            starts = [start for start, _ in op.arg] if op.code is OpCode.SHRINK else ()
            if not of_numbers((*shape, *op.shape, *starts)):
                return None
            places, at = MOVES[op.code](_places(at, op.shape), op.arg), 0
            for place, length in zip(places, shape):
                at = at * length + place
        elif op.code not in AS_THEY_LIE:
            return None
        op = op.src[0]
    return (op if op.code is OpCode.BUFFER else op.realized).arg[0], at  # type: ignore[union-attr]  # one has it


def _places(at: int, shape: Any) -> list[int]:
    """Returns the place along each axis of an element, which is counted row by row."""
    places = []
    for length in reversed(shape):
        at, place = divmod(at, length)
        places.append(place)
    return places[::-1]


# Places along the axes of a view, and its argument -> places along the axes of its source.
MOVES: dict[OpCode, Callable[[list[int], Any], list[int]]] = {
    OpCode.SHRINK: lambda places, arg: [place + start for place, (start, _) in zip(places, arg)],
    OpCode.PERMUTE: lambda places, arg: [places[arg.index(axis)] for axis in range(len(arg))],
}


def with_number(buffer: Buffer, at: int, value: Scalar) -> Array | None:
    """Returns a copy of small host memory with another element in one place, flat; None of other memory."""
    kind = NUMBERS.get(buffer.dtype)
    if kind is None or type(buffer.memory) is not Memory or buffer.nbytes > WRITTEN_NBYTES_MAX:
        return None
    copy = bytearray(ctypes.string_at(buffer.memory.address, buffer.nbytes))
    kind.from_buffer(copy, at * buffer.dtype.itemsize).value = value
    return np.frombuffer(copy, buffer.dtype.numpy)


def block_on_host(op: Op) -> bytes | None:
    """Returns the bytes of host memory, or of some of its first axis; None of anything else. No array is made."""
    at, shown = 0, op
    while op.realized is None and op.code is not OpCode.BUFFER:
        if op.code is OpCode.SHRINK and not at:
            rest = [n for n in (op.arg[0][0], *op.src[0].shape[1:]) if isinstance(n, int)]
            if op.shape[1:] != op.src[0].shape[1:] or len(rest) < len(op.shape):
                return None
            at = math.prod(rest)
        elif op.code not in AS_THEY_LIE:
            return None
        op = op.src[0]
    buffer = (op.realized or op).arg[0]
    if type(buffer.memory) not in (Memory, SharedMemory):
        return None
    itemsize = op.dtype.itemsize
    return ctypes.string_at(buffer.memory.address + at * itemsize, shown.numel * itemsize)


def number_in(buffer: Buffer, at: int = 0) -> Scalar | None:
    """Returns an element of host memory; None where it is other memory, or of a dtype that ctypes has not."""
    kind = NUMBERS.get(buffer.dtype)
    if kind is None or type(buffer.memory) not in (Memory, SharedMemory):
        return None
    return kind.from_address(buffer.memory.address + at * buffer.dtype.itemsize).value


NUMBER_DEPTH_MAX = 8  # of operations on elements of host memory
WRITTEN_NBYTES_MAX = 1 << 12  # of memory of which the host copies all to write one element
OF_NUMBERS: dict[OpCode, Callable[..., Any]] = {
    OpCode.ADD: np.add, OpCode.SUB: np.subtract, OpCode.MUL: np.multiply, OpCode.DIV: np.divide, OpCode.NEG: np.negative,
    OpCode.CMPLT: np.less, OpCode.CMPLE: np.less_equal, OpCode.CMPEQ: np.equal, OpCode.CMPNE: np.not_equal,
}  # fmt: skip
AS_THEY_LIE = frozenset({OpCode.RESHAPE, OpCode.LEAF, OpCode.DETACH})
IN_PLACE = AS_THEY_LIE | {OpCode.BUFFER, *MOVES}
NUMBERS: dict[DType, Any] = {
    dtypes.bool_: ctypes.c_bool, dtypes.float32: ctypes.c_float, dtypes.float64: ctypes.c_double,
    dtypes.int8: ctypes.c_int8, dtypes.int16: ctypes.c_int16, dtypes.int32: ctypes.c_int32, int64: ctypes.c_int64,
    dtypes.uint8: ctypes.c_uint8, dtypes.uint16: ctypes.c_uint16, dtypes.uint32: ctypes.c_uint32,
    dtypes.uint64: ctypes.c_uint64,
}  # fmt: skip


def _is_known(op: Op) -> bool:
    """True where the lengths are numbers, and an array of NumPy's has as many."""
    ends = [end for cut in op.arg for end in cut] if op.code in (OpCode.SHRINK, OpCode.PAD) else ()
    return all(dim.__class__ is int for dim in (*op.shape, *ends)) and len(op.shape) <= ARRAY_NDIM_MAX
