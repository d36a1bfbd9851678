"""Memory that the host can see: memory shared with other libraries, and values that are read without a plan.

In:    NumPy arrays over memory of another library, or of a tensor;  Ops
Out:   `Shared`, `share`; `shared`: facts about each Buffer on shared memory; `own_copy`
       `value_on_host`: the value of a view of host memory, without any kernel;  `number_on_host`: a single number

A Buffer of picograd's own holds one value for ever, so graphs that read it are computed once. Into shared memory the other
library may write at any time. So a graph that reads shared memory is computed each time its value is asked for, and a cell
gets a copy of its own, except for the one cell whose storage the shared memory is.

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
from picograd.ir.op import Buffer, Op, memory_op, realized, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ARRAY_NDIM_MAX, of_numbers


# ---- memory that other libraries share ----
class SharedMemory:
    """Memory that a NumPy array keeps alive, in the form in which plans of the CPU take memory; not counted as used.

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
    home:   a weak reference to the cell whose storage it is
    array:  the view of the memory that another library gave, or None
    steps:  the steps of a tensor's view that lead from the cell's value to `array`
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
    return memory_op(own, shape)


# ---- values read without a plan ----
Array = np.ndarray[Any, Any]


def _padded(array: Array, arg: tuple[tuple[int, int], ...]) -> Array:
    """Returns an array padded with zeros."""
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


SMALL_NUMEL_MAX = 8192  # elements that the host copies and chooses from in less time than it takes to start a plan


def is_small(op: Op) -> bool:
    """True for a value that the host handles faster than a plan starts."""
    return op.numel <= SMALL_NUMEL_MAX


MAYBE_ON_HOST = frozenset({OpCode.BUFFER, OpCode.ADD, *SHOWS})  # other Ops are in host memory only if they are computed


def value_on_host(op: Op) -> Array | None:
    """Returns a copy of the value of a constant or of a view of host memory, perhaps padded; None for any other Op.

    So is the sum of two numbers that are on the host: x[i : i + 32] with a Tensor i runs nothing.

    Raises:
      OutOfMemoryError: the host has no memory for the copy.
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
        return array.copy()  # NOTE: while `buffer` is alive; its memory may be reused afterwards
    except MemoryError as error:
        raise OutOfMemoryError.of_host(error) from None


@lru_cache(maxsize=64)
def _bytes_type(nbytes: int) -> Any:
    """Returns the type of an array of bytes; cached, since ctypes makes a new type each time, which is freed late."""
    return ctypes.c_char * nbytes


def number_on_host(op: Op) -> Scalar | None:
    """Returns the value of an element of host memory, or of a few operations on such elements; None for any other Op.

    Examples are i of `for i in ix`, i + 32, and D[i, j] + 1 < D[i, k]: nothing runs, and no array is made. IEEE 754 fixes
    the rounding of these operations, so a kernel's result would be the same.
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
    """Returns the memory of a view of one element, and the element's place in it; None for any other Op.

    Args:
      is_written:  True: the memory of the storage is wanted, even if the view's value has been computed elsewhere
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
        elif op.code not in SAME_ORDER:
            return None
        op = op.src[0]
    return (op if op.code is OpCode.BUFFER else op.realized).arg[0], at  # type: ignore[union-attr]  # one has it


def _places(at: int, shape: Any) -> list[int]:
    """Returns the place along each axis of element number `at` in row-major order."""
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
    """Returns a flat copy of small host memory with another element in one place; None for other memory."""
    kind = NUMBERS.get(buffer.dtype)
    if kind is None or type(buffer.memory) is not Memory or buffer.nbytes > WRITTEN_NBYTES_MAX:
        return None
    copy = bytearray(ctypes.string_at(buffer.memory.address, buffer.nbytes))
    kind.from_buffer(copy, at * buffer.dtype.itemsize).value = value
    return np.frombuffer(copy, buffer.dtype.numpy)


def block_on_host(op: Op) -> bytes | None:
    """Returns the bytes of host memory, or of a range of its first axis, without an array; None for any other Op."""
    at, shown = 0, op
    while op.realized is None and op.code is not OpCode.BUFFER:
        if op.code is OpCode.SHRINK and not at:
            rest = [n for n in (op.arg[0][0], *op.src[0].shape[1:]) if isinstance(n, int)]
            if op.shape[1:] != op.src[0].shape[1:] or len(rest) < len(op.shape):
                return None
            at = math.prod(rest)
        elif op.code not in SAME_ORDER:
            return None
        op = op.src[0]
    buffer = (op.realized or op).arg[0]
    if type(buffer.memory) not in (Memory, SharedMemory):
        return None
    itemsize = op.dtype.itemsize
    return ctypes.string_at(buffer.memory.address + at * itemsize, shown.numel * itemsize)


def number_in(buffer: Buffer, at: int = 0) -> Scalar | None:
    """Returns an element of host memory; None for other memory, or for a dtype that ctypes does not have."""
    kind = NUMBERS.get(buffer.dtype)
    if kind is None or type(buffer.memory) not in (Memory, SharedMemory):
        return None
    return kind.from_address(buffer.memory.address + at * buffer.dtype.itemsize).value


NUMBER_DEPTH_MAX = 8  # depth of operations on elements of host memory
WRITTEN_NBYTES_MAX = 1 << 16  # memory that is copied as a whole to write one element
OF_NUMBERS: dict[OpCode, Callable[..., Any]] = {
    OpCode.ADD: np.add, OpCode.SUB: np.subtract, OpCode.MUL: np.multiply, OpCode.DIV: np.divide, OpCode.NEG: np.negative,
    OpCode.CMPLT: np.less, OpCode.CMPLE: np.less_equal, OpCode.CMPEQ: np.equal, OpCode.CMPNE: np.not_equal,
}  # fmt: skip
SAME_ORDER = frozenset({OpCode.RESHAPE, OpCode.LEAF, OpCode.DETACH})
IN_PLACE = SAME_ORDER | {OpCode.BUFFER, *MOVES}
NUMBERS: dict[DType, Any] = {
    dtypes.bool_: ctypes.c_bool, dtypes.float32: ctypes.c_float, dtypes.float64: ctypes.c_double,
    dtypes.int8: ctypes.c_int8, dtypes.int16: ctypes.c_int16, dtypes.int32: ctypes.c_int32, int64: ctypes.c_int64,
    dtypes.uint8: ctypes.c_uint8, dtypes.uint16: ctypes.c_uint16, dtypes.uint32: ctypes.c_uint32,
    dtypes.uint64: ctypes.c_uint64,
}  # fmt: skip


def _is_known(op: Op) -> bool:
    """True if all lengths are numbers, and NumPy has arrays of as many axes."""
    ends = [end for cut in op.arg for end in cut] if op.code in (OpCode.SHRINK, OpCode.PAD) else ()
    return all(dim.__class__ is int for dim in (*op.shape, *ends)) and len(op.shape) <= ARRAY_NDIM_MAX
