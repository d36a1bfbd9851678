"""Loads and stores in LLVM IR: scalars, consecutive lanes, gathers and scatters, each with an optional condition.

In:    Load, Store and Transpose statements
Out:   instructions
Called by: render/llvm.py.    Next: picograd/render/llvm_checks.py

Where a condition may be false the address is replaced, not the code branched around: a scalar reads from a block of
zeros or writes to a block nobody reads. Only lanes that differ need the masked instructions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.ir.op import Op
from picograd.ir.statements import Load, Store, Transpose, lanes_of
from picograd.render.llvm_rows import memory_type, splat, suffix, type_of, vector
from picograd.render.registers import Slot, is_lookup, is_register, slot_of, slots_of

ZEROS = "@zeros = internal constant [1024 x i8] zeroinitializer, align 64"  # no vector is longer: 64 lanes have 512 bytes
BLOCK_BYTES = 16  # of a vector: what instructions interleave, of two vectors, in each of their blocks


class Writer(Protocol):
    """The function under construction, as loads and stores see it."""

    target: Target
    pointers: dict[Op, str]
    held: dict[Slot, str]
    lines: list[str]
    sink_nbytes: int
    streamed: Collection[int]
    repeated: dict[Op, Op]

    def emit(self, instruction: str, name: str | None = None) -> str: ...
    def operand(self, op: Op, lanes: int) -> str: ...
    def address(self, memory: Op, index: Op) -> str: ...


def write_load(write: Writer, load: Load) -> str:
    """Writes a Load and returns the name of its value."""
    if is_register(load.memory):
        return _held(write, load)
    lanes, dtype = int(load.var.arg[1]), load.var.dtype
    valid_lanes = 0 if load.valid is None else lanes_of(load.valid)
    if load.index in write.repeated:
        held = _repeated(write, load, write.repeated[load.index], lanes)
    elif lanes_of(load.index) > 1:
        held = _gather(write, load, lanes)
    elif load.valid is None:
        held = _load(write, write.address(load.memory, load.index), dtype, lanes)
    elif valid_lanes == 1:
        address = write.address(load.memory, load.index)
        condition = write.operand(load.valid, 1)
        held = _load(write, write.emit(f"select i1 {condition}, ptr {address}, ptr @zeros"), dtype, lanes)
    else:
        address, mask = write.address(load.memory, load.index), write.operand(load.valid, lanes)
        kind = memory_type(dtype, lanes)
        held = write.emit(
            f"call {kind} @llvm.masked.load.{suffix(kind)}.p0(ptr align {dtype.itemsize} {address}, "
            f"<{lanes} x i1> {mask}, {kind} zeroinitializer)"
        )
    return from_memory(write, held, dtype, lanes)


def write_store(write: Writer, store: Store) -> None:
    """Writes a Store."""
    if is_register(store.memory):
        _hold(write, store)
        return
    lanes, dtype = lanes_of(store.value), store.memory.dtype
    lanes = max(lanes, lanes_of(store.index), 1 if store.valid is None else lanes_of(store.valid))
    value = to_memory(write, write.operand(store.value, lanes), dtype, lanes)
    kind = memory_type(dtype, lanes)
    if lanes_of(store.index) > 1:
        _scatter(write, store, value, lanes)
        return
    if store.valid is None:
        address = write.address(store.memory, store.index)
    elif lanes_of(store.valid) == 1:
        address = _or_sink(write, write.address(store.memory, store.index), store.valid, lanes, dtype)
    else:
        address, mask = write.address(store.memory, store.index), write.operand(store.valid, lanes)
        write.lines.append(
            f"  call void @llvm.masked.store.{suffix(kind)}.p0({kind} {value}, "
            f"ptr align {dtype.itemsize} {address}, <{lanes} x i1> {mask})"
        )
        return
    if id(store) in write.streamed:
        where = f"align {lanes * dtype.itemsize}, !nontemporal !1"
        write.lines.append(f"  store {kind} {value}, ptr {address}, {where}")
    else:
        write.lines.append(f"  store {kind} {value}, ptr {address}, align {dtype.itemsize}")


def write_transpose(write: Writer, square: Transpose) -> None:
    """Writes a Transpose: lines loaded, exchanged lane by lane, and stored unless registers are where they should be."""
    dtype, lanes = square.memory.dtype, square.lanes
    kind, scalar = memory_type(dtype, lanes), memory_type(dtype)

    def line(base: str, offset: int) -> str:
        return write.emit(f"getelementptr {scalar}, ptr {base}, i64 {offset}") if offset else base

    base = write.address(square.memory, square.index)
    lines = [_load(write, line(base, i * square.stride), dtype, lanes) for i in range(lanes)]
    lines = _transposed(write, kind, lines, min(lanes, BLOCK_BYTES // dtype.itemsize))
    if is_register(square.into):
        write.held |= zip(slots_of(square), [from_memory(write, value, dtype, lanes) for value in lines])
        return
    base = write.address(square.into, square.place)
    for j, value in enumerate(lines):
        write.lines.append(f"  store {kind} {value}, ptr {line(base, j * square.step)}, align {dtype.itemsize}")


def _transposed(write: Writer, kind: str, lines: list[str], block: int) -> list[str]:
    """Returns the columns of a square: those of each block x block first, in place, then whole blocks change lines."""
    squares = [_interleaved(write, kind, lines[i : i + block], len(lines)) for i in range(0, len(lines), block)]
    columns = [_dealt(write, kind, [square[j] for square in squares], block, len(lines)) for j in range(block)]
    return [columns[j][number] for number in range(len(squares)) for j in range(block)]


def _interleaved(write: Writer, kind: str, lines: list[str], lanes: int) -> list[str]:
    """Returns the columns of the blocks of as many lines as a block has lanes: x86's unpack, NEON's zip.

    Each step interleaves a line of the first half with one of the second: a bit of a line's number becomes a lane's.
    """
    half = len(lines) // 2
    low = [lane for i in range(lanes) if i % len(lines) < half for lane in (i, lanes + i)]
    high = [lane + half for lane in low]
    for _ in range(half.bit_length()):  # as often as two makes so many lines
        pairs = [(lines[j], lines[j + half]) for j in range(half)]
        lines = [_picked(write, kind, a, b, picked) for a, b in pairs for picked in (low, high)]
    return lines


def _dealt(write: Writer, kind: str, lines: list[str], block: int, lanes: int) -> list[str]:
    """Returns lines of which the first has the first block of each of `lines`, the second the second ones, and so on."""
    if len(lines) == 1:
        return lines
    even = [lane for lane in range(2 * lanes) if lane // block % 2 == 0]
    parts = [even, [lane + block for lane in even]]
    chosen = [[_picked(write, kind, a, b, part) for a, b in zip(lines[::2], lines[1::2])] for part in parts]
    evens, odds = (_dealt(write, kind, part, block, lanes) for part in chosen)
    return [line for pair in zip(evens, odds) for line in pair]


def _picked(write: Writer, kind: str, a: str, b: str, lanes: list[int]) -> str:
    """Returns lanes of two vectors, those of the second counted on from those of the first."""
    picked = ", ".join(f"i32 {lane}" for lane in lanes)
    return write.emit(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{picked}>")


# ---- registers ----
def _held(write: Writer, load: Load) -> str:
    """Returns what a register holds; 0 where the condition is false."""
    slot = slot_of(load)
    value = write.held.get(slot, "poison")  # unspecified until something is stored
    if is_lookup(load):
        value = _looked_up(write, slot, value, load.index)
    return value if load.valid is None else _chosen(write, slot, load.valid, value, "zeroinitializer")


def _looked_up(write: Writer, slot: Slot, table: str, index: Op) -> str:
    """Returns lanes of a table: AVX-512's vpermps, which reads the low bits of an index alone."""
    if type_of(slot[0].dtype, slot[2]) != "<16 x float>" or lanes_of(index) != slot[2]:
        raise VerifyError(f"render llvm: {slot[0]} is no table of 16 float32 for as many lanes.")
    narrow = write.emit(f"trunc <16 x i64> {write.operand(index, slot[2])} to <16 x i32>")
    return write.emit(f"call <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float> {table}, <16 x i32> {narrow})")


def _hold(write: Writer, store: Store) -> None:
    """Gives a register a value; where the condition is false it keeps its own."""
    slot = slot_of(store)
    value = write.operand(store.value, slot[2])
    if store.valid is not None:
        value = _chosen(write, slot, store.valid, value, write.held.get(slot, "poison"))
    write.held[slot] = value


def _chosen(write: Writer, slot: Slot, valid: Op, value: str, otherwise: str) -> str:
    memory, _, lanes = slot
    kind, mask = type_of(memory.dtype, lanes), write.operand(valid, lanes)
    return write.emit(f"select {vector('i1', lanes)} {mask}, {kind} {value}, {kind} {otherwise}")


# ---- lanes ----
def _or_sink(write: Writer, address: str, valid: Op, lanes: int, dtype: DType) -> str:
    write.sink_nbytes = max(write.sink_nbytes, lanes * dtype.itemsize)
    return write.emit(f"select i1 {write.operand(valid, 1)}, ptr {address}, ptr %sink")


def _load(write: Writer, address: str, dtype: DType, lanes: int) -> str:
    return write.emit(f"load {memory_type(dtype, lanes)}, ptr {address}, align {dtype.itemsize}")


def from_memory(write: Writer, held: str, dtype: DType, lanes: int) -> str:
    if dtype is not dtypes.bool_:
        return held
    return write.emit(f"icmp ne {memory_type(dtype, lanes)} {held}, zeroinitializer")


def to_memory(write: Writer, value: str, dtype: DType, lanes: int) -> str:
    if dtype is not dtypes.bool_:
        return value
    return write.emit(f"zext {type_of(dtype, lanes)} {value} to {memory_type(dtype, lanes)}")


# ---- lanes that lie apart ----
def _repeated(write: Writer, load: Load, index: Op, lanes: int) -> str:
    """Loads the one element that all lanes want, or some of them; 0 in the others."""
    dtype, address = load.var.dtype, write.address(load.memory, index)
    kind, scalar = memory_type(dtype, lanes), memory_type(dtype)
    if load.valid is None:
        return splat(write.emit, _load(write, address, dtype, 1), scalar, lanes)
    mask = write.operand(load.valid, lanes)
    wanted = write.emit(f"call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> {mask})")
    one = _load(write, write.emit(f"select i1 {wanted}, ptr {address}, ptr @zeros"), dtype, 1)
    held = splat(write.emit, one, scalar, lanes)
    return write.emit(f"select <{lanes} x i1> {mask}, {kind} {held}, {kind} zeroinitializer")


def _gather(write: Writer, load: Load, lanes: int) -> str:
    """Loads one element for each lane: by the instruction where there is a fast one, else one by one."""
    dtype, pointer = load.var.dtype, write.pointers[load.memory]
    kind, scalar = memory_type(dtype, lanes), memory_type(dtype)
    index = write.operand(load.index, lanes)
    if dtype.itemsize >= 4 and write.target.vector_bytes >= 64:
        addresses = write.emit(f"getelementptr {scalar}, ptr {pointer}, <{lanes} x i64> {index}")
        mask = "splat (i1 true)" if load.valid is None else write.operand(load.valid, lanes)
        return write.emit(
            f"call {kind} @llvm.masked.gather.{suffix(kind)}.v{lanes}p0(<{lanes} x ptr> align {dtype.itemsize} "
            f"{addresses}, <{lanes} x i1> {mask}, {kind} zeroinitializer)"
        )
    held = "poison"
    for lane, address in enumerate(_lane_addresses(write, load.memory, index, lanes, load.valid, "@zeros")):
        one = _load(write, address, dtype, 1)
        held = write.emit(f"insertelement {kind} {held}, {scalar} {one}, i64 {lane}")
    return held


def _scatter(write: Writer, store: Store, value: str, lanes: int) -> None:
    """Stores one element for each lane, in the order of the lanes."""
    dtype = store.memory.dtype
    kind, scalar = memory_type(dtype, lanes), memory_type(dtype)
    index = write.operand(store.index, lanes)
    if store.valid is not None:
        write.sink_nbytes = max(write.sink_nbytes, dtype.itemsize)
    for lane, address in enumerate(_lane_addresses(write, store.memory, index, lanes, store.valid, "%sink")):
        one = write.emit(f"extractelement {kind} {value}, i64 {lane}")
        write.lines.append(f"  store {scalar} {one}, ptr {address}, align {dtype.itemsize}")


def _lane_addresses(write: Writer, memory: Op, index: str, lanes: int, valid: Op | None, elsewhere: str) -> list[str]:
    """Returns the address for each lane, `elsewhere` for those where `valid` is false."""
    pointer, scalar = write.pointers[memory], memory_type(memory.dtype)
    mask = None if valid is None else write.operand(valid, lanes)
    addresses = []
    for lane in range(lanes):
        at = write.emit(f"extractelement <{lanes} x i64> {index}, i64 {lane}")
        address = write.emit(f"getelementptr {scalar}, ptr {pointer}, i64 {at}")
        if mask is not None:
            condition = write.emit(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")
            address = write.emit(f"select i1 {condition}, ptr {address}, ptr {elsewhere}")
        addresses.append(address)
    return addresses
