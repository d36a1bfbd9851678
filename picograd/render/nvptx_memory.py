"""Loads and stores of a GPU's thread in LLVM IR: side by side in accesses of up to 16 bytes, else element by element.

In:    Load and Store statements
Out:   instructions
Called by: render/nvptx.py.    Next: picograd/render/nvptx_warps.py

Where a condition may be false the code branches around the access; short branches become predicates. REGISTER memory is
an SSA value for each element, however many lanes an access has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Protocol

from picograd.ir.divisors import divisor_of
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.statements import CopyAsync, Load, Store, lanes_of
from picograd.render.llvm_memory import Writer as MemoryWriter
from picograd.render.llvm_memory import from_memory, to_memory
from picograd.render.llvm_rows import memory_type, type_of
from picograd.render.registers import Slot, elements_of, is_lookup, is_register, slot_of

ACCESS_BYTES = 16  # the widest access of a thread
SHARED_ALIGNMENT = 16


class Writer(MemoryWriter, Protocol):
    """The function under construction, as accesses see it."""

    divisors: dict[Op, int]
    aligned: bool
    checked: bool
    block: str

    def when(self, condition: str, changed: Iterable[Slot] = ()) -> AbstractContextManager[None]: ...
    def broken(self, rule: str) -> Exception: ...


def load_elements(write: Writer, load: Load) -> str:
    """Writes a Load and returns the name of its value."""
    if is_register(load.memory):
        return _held(write, load)
    lanes, dtype = lanes_of(load.var), load.var.dtype
    kind = memory_type(dtype, lanes)
    condition_lanes = 0 if load.valid is None else lanes_of(load.valid)
    if condition_lanes == 0:
        held = _load(write, load.memory, load.index, lanes)
    elif condition_lanes == 1:
        held = _where(write, _condition(write, load, 0), kind, lambda: _load(write, load.memory, load.index, lanes))
    else:
        held = "poison"
        for lane in range(lanes):
            held = write.emit(f"insertelement {kind} {held}, {_lane_where(write, load, lane, lanes)}, i64 {lane}")
    return from_memory(write, held, dtype, lanes)


def _condition(write: Writer, load: Load, lane: int) -> str:
    """Returns the condition of a lane."""
    assert load.valid is not None
    lanes = lanes_of(load.valid)
    condition = write.operand(load.valid, lanes)
    return condition if lanes == 1 else write.emit(f"extractelement <{lanes} x i1> {condition}, i64 {lane}")


def _lane_where(write: Writer, load: Load, lane: int, lanes: int) -> str:
    """Returns the type and name of a lane's element, 0 where its condition is false."""
    kind = memory_type(load.memory.dtype)
    make = partial(_load_lane, write, load.memory, load.index, lane, lanes)
    return f"{kind} {_where(write, _condition(write, load, lane), kind, make)}"


def store_elements(write: Writer, store: Store) -> None:
    """Writes a Store."""
    if is_register(store.memory):
        _hold(write, store)
        return
    dtype = store.memory.dtype
    lanes = max(lanes_of(store.value), lanes_of(store.index), 1 if store.valid is None else lanes_of(store.valid))
    value = to_memory(write, write.operand(store.value, lanes), dtype, lanes)
    if store.valid is None:
        _store(write, store, value, lanes)
    elif lanes_of(store.valid) == 1:
        with write.when(write.operand(store.valid, 1)):
            _store(write, store, value, lanes)
    else:
        mask = write.operand(store.valid, lanes)
        for lane in range(lanes):
            with write.when(write.emit(f"extractelement <{lanes} x i1> {mask}, i64 {lane}")):
                _store_lane(write, store, value, lane, lanes)


def copy_elements(write: Writer, copy: CopyAsync) -> None:
    """Writes a CopyAsync; from memory that begins at an odd place element by element, which then is there at once."""
    nbytes = copy.lanes * copy.memory.dtype.itemsize
    if copy.lanes > 1 and not _alignment(write, copy.memory, copy.index, copy.lanes):
        _copy_now(write, copy)
        return
    to = write.emit(f"addrspacecast ptr {write.address(copy.into, copy.place)} to ptr addrspace(3)")
    of = write.emit(f"addrspacecast ptr {write.address(copy.memory, copy.index)} to ptr addrspace(1)")
    num_read = str(nbytes)
    if copy.valid is not None:
        num_read = write.emit(f"select i1 {write.operand(copy.valid, 1)}, i32 {nbytes}, i32 0")
    cache = "cg" if nbytes == ACCESS_BYTES else "ca"  # past the first cache, or through it
    name = f"@llvm.nvvm.cp.async.{cache}.shared.global.{nbytes}.s"
    write.lines.append(f"  call void {name}(ptr addrspace(3) {to}, ptr addrspace(1) {of}, i32 {num_read})")


def _copy_now(write: Writer, copy: CopyAsync) -> None:
    kind, dtype = memory_type(copy.memory.dtype, copy.lanes), copy.memory.dtype
    make = partial(_load, write, copy.memory, copy.index, copy.lanes)
    held = make() if copy.valid is None else _where(write, write.operand(copy.valid, 1), kind, make)
    alignment = _alignment(write, copy.into, copy.place, copy.lanes) or dtype.itemsize
    write.lines.append(f"  store {kind} {held}, ptr {write.address(copy.into, copy.place)}, align {alignment}")


def _where(write: Writer, condition: str, kind: str, make: Callable[[], str]) -> str:
    """Returns what `make` writes where a condition holds, else 0."""
    start = write.block
    with write.when(condition):
        value, end = make(), write.block
    return write.emit(f"phi {kind} [ {value}, %{end} ], [ zeroinitializer, %{start} ]")


# ---- memory with addresses ----
def _alignment(write: Writer, memory: Op, index: Op, lanes: int) -> int:
    """Returns how many bytes the address of lanes side by side is a multiple of; 0 where they are loaded one by one."""
    if lanes == 1 or lanes_of(index) > 1 or divisor_of(index, write.divisors) % lanes:
        return 0
    nbytes = min(ACCESS_BYTES, lanes * memory.dtype.itemsize)
    if memory.code is OpCode.PARAM:
        write.checked = True
        return nbytes if write.aligned else 0
    return nbytes


def _load(write: Writer, memory: Op, index: Op, lanes: int) -> str:
    """Writes a read of all lanes, at once where memory is aligned to that; returns the register."""
    kind, alignment = memory_type(memory.dtype, lanes), _alignment(write, memory, index, lanes)
    if alignment:
        return write.emit(f"load {kind}, ptr {write.address(memory, index)}, align {alignment}")
    if lanes == 1:
        return _load_lane(write, memory, index, 0, 1)
    held, scalar = "poison", memory_type(memory.dtype)
    for lane in range(lanes):
        one = _load_lane(write, memory, index, lane, lanes)
        held = write.emit(f"insertelement {kind} {held}, {scalar} {one}, i64 {lane}")
    return held


def _load_lane(write: Writer, memory: Op, index: Op, lane: int, lanes: int) -> str:
    address = _lane_address(write, memory, index, lane, lanes)
    return write.emit(f"load {memory_type(memory.dtype)}, ptr {address}, align {memory.dtype.itemsize}")


def _store(write: Writer, store: Store, value: str, lanes: int) -> None:
    alignment = _alignment(write, store.memory, store.index, lanes)
    if alignment:
        kind = memory_type(store.memory.dtype, lanes)
        write.lines.append(f"  store {kind} {value}, ptr {write.address(store.memory, store.index)}, align {alignment}")
        return
    for lane in range(lanes):
        _store_lane(write, store, value, lane, lanes)


def _store_lane(write: Writer, store: Store, value: str, lane: int, lanes: int) -> None:
    dtype = store.memory.dtype
    if lanes > 1:
        value = write.emit(f"extractelement {memory_type(dtype, lanes)} {value}, i64 {lane}")
    address = _lane_address(write, store.memory, store.index, lane, lanes)
    write.lines.append(f"  store {memory_type(dtype)} {value}, ptr {address}, align {dtype.itemsize}")


def _lane_address(write: Writer, memory: Op, index: Op, lane: int, lanes: int) -> str:
    """Returns the address of one lane: each has an index of its own, or they are neighbours."""
    scalar = memory_type(memory.dtype)
    if lanes_of(index) > 1:
        at = write.emit(f"extractelement {type_of(index.dtype, lanes)} {write.operand(index, lanes)}, i64 {lane}")
        return write.emit(f"getelementptr {scalar}, ptr {write.pointers[memory]}, {type_of(index.dtype)} {at}")
    address = write.address(memory, index)
    return write.emit(f"getelementptr {scalar}, ptr {address}, i64 {lane}") if lane else address


# ---- registers ----
def _held(write: Writer, load: Load) -> str:
    """Returns what registers hold; 0 where the condition is false."""
    if is_lookup(load):
        raise write.broken(f"{load.memory} is in registers, and each lane has a place of its own")
    memory, _, lanes = slot = slot_of(load)
    values = [write.held.get(each, "poison") for each in elements_of(slot)]  # unspecified until something is stored
    if load.valid is not None:
        values = [_chosen(write, load.valid, lane, slot, value, "zeroinitializer") for lane, value in enumerate(values)]
    if lanes == 1:
        return values[0]
    kind, scalar, held = type_of(memory.dtype, lanes), type_of(memory.dtype), "poison"
    for lane, value in enumerate(values):
        held = write.emit(f"insertelement {kind} {held}, {scalar} {value}, i64 {lane}")
    return held


def _hold(write: Writer, store: Store) -> None:
    """Gives registers a value each; where the condition is false they keep their own."""
    memory, _, lanes = slot = slot_of(store)
    value = write.operand(store.value, lanes)
    for lane, each in enumerate(elements_of(slot)):
        one = value
        if lanes > 1:
            one = write.emit(f"extractelement {type_of(memory.dtype, lanes)} {value}, i64 {lane}")
        if store.valid is not None:
            one = _chosen(write, store.valid, lane, slot, one, write.held.get(each, "poison"))
        write.held[each] = one


def _chosen(write: Writer, valid: Op, lane: int, slot: Slot, value: str, otherwise: str) -> str:
    memory, _, lanes = slot
    condition = write.operand(valid, lanes_of(valid))
    if lanes_of(valid) > 1:
        condition = write.emit(f"extractelement <{lanes} x i1> {condition}, i64 {lane}")
    kind = type_of(memory.dtype)
    return write.emit(f"select i1 {condition}, {kind} {value}, {kind} {otherwise}")
