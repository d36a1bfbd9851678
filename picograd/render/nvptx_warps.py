"""What the threads of a warp do together, in LLVM IR: exchanges, products of matrices, and loads of what these read.

In:    Shuffle, Mma and LoadMatrices statements
Out:   instructions
Called by: render/nvptx.py.    Next: picograd/devices/opencl/compile.py

Mma in ir/statements.py says how a matrix lies in the registers of its threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from picograd import dtype as dtypes
from picograd.ir.op import Op
from picograd.ir.statements import LoadMatrices, Mma, Shuffle
from picograd.render.addresses import OpenLoop
from picograd.render.llvm_rows import type_of
from picograd.render.registers import Slot, brought_by, parts_of

SHUFFLE = "call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 {0}, i32 {1}, i32 31)"  # -1: all 32 threads; 31: in one warp
MATRICES = "@llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4{}.b16.p3"
AS_TF32 = "call i32 @llvm.nvvm.f2tf32.rna(float {})"

# PTX ISA 9.7.15.5, mma.m16n8k16 (of TF32 m16n8k8): pairs of float16 come as vectors, of bfloat16 as 32 bits.
MULTIPLY = {
    dtypes.float16: ("<2 x half>", "@llvm.nvvm.mma.m16n8k16.row.col.f32.f32"),
    dtypes.bfloat16: ("i32", "@llvm.nvvm.mma.m16n8k16.row.col.bf16"),
    dtypes.float32: ("i32", "@llvm.nvvm.mma.m16n8k8.row.col.tf32"),
}


class Writer(Protocol):
    """The function under construction, as a warp sees it."""

    guarded: bool
    values: dict[Op, str]
    held: dict[Slot, str]
    loops: list[OpenLoop]
    depths: dict[Op, int]

    def emit(self, instruction: str, name: str | None = None) -> str: ...
    def operand(self, op: Op, lanes: int) -> str: ...
    def address(self, memory: Op, index: Op) -> str: ...
    def broken(self, rule: str) -> Exception: ...


def _check_all_run(write: Writer, what: str) -> None:
    """Raises where not all threads of a warp come to a statement: the others would wait for ever."""
    if write.guarded:
        raise write.broken(f"{what} stands in a BLOCK loop that not all threads run")


def write_shuffle(write: Writer, shuffle: Shuffle) -> None:
    """Writes an exchange between threads of a warp: of 32 bits, or twice of 32."""
    _check_all_run(write, "a Shuffle")
    kind, value = type_of(shuffle.var.dtype), write.operand(shuffle.value, 1)
    bits = shuffle.var.dtype.bits if shuffle.var.dtype is not dtypes.bool_ else 1
    whole = f"i{bits}"
    if kind != whole:
        value = write.emit(f"bitcast {kind} {value} to {whole}")
    if bits == 64:
        low = write.emit(f"trunc i64 {value} to i32")
        high = write.emit(f"trunc i64 {write.emit(f'lshr i64 {value}, 32')} to i32")
        low, high = (write.emit(SHUFFLE.format(half, shuffle.distance)) for half in (low, high))
        low, high = (write.emit(f"zext i32 {half} to i64") for half in (low, high))
        value = write.emit(f"or i64 {write.emit(f'shl i64 {high}, 32')}, {low}")
    else:
        value = write.emit(f"zext {whole} {value} to i32") if bits < 32 else value
        value = write.emit(SHUFFLE.format(value, shuffle.distance))
        value = write.emit(f"trunc i32 {value} to {whole}") if bits < 32 else value
    write.depths[shuffle.var] = len(write.loops)
    write.values[shuffle.var] = write.emit(f"bitcast {whole} {value} to {kind}") if kind != whole else value


def write_mma(write: Writer, mma: Mma) -> None:
    """Writes a product of matrices that a warp holds, pairs of operands in 32 bits each."""
    _check_all_run(write, "an Mma")
    kind, name = MULTIPLY[mma.lhs.dtype]
    acc, lhs, rhs = parts_of(mma)
    if mma.lhs.dtype is dtypes.float32:  # two instructions: (t, t + 4) of K of one are (2 t, 2 t + 1) here
        for a, b in ((lhs[:4], rhs[:2]), (lhs[4:], rhs[2:])):
            parts = [write.emit(AS_TF32.format(write.held[slot])) for slot in (a[0], a[2], a[1], a[3], *b)]
            _multiply(write, name, kind, parts, acc)
        return
    scalar, pairs = type_of(mma.lhs.dtype), []
    for low, high in [(part[i], part[i + 1]) for part in (lhs, rhs) for i in range(0, len(part), 2)]:
        pair = write.emit(f"insertelement <2 x {scalar}> poison, {scalar} {write.held[low]}, i64 0")
        pair = write.emit(f"insertelement <2 x {scalar}> {pair}, {scalar} {write.held[high]}, i64 1")
        pairs.append(write.emit(f"bitcast <2 x {scalar}> {pair} to {kind}"))
    _multiply(write, name, kind, pairs, acc)


def _multiply(write: Writer, name: str, kind: str, operands: Sequence[str], acc: Sequence[Slot]) -> None:
    """Writes one matrix instruction; operands: of a `kind`."""
    result = "{float, float, float, float}"
    given = [f"{kind} {operand}" for operand in operands] + [f"float {write.held[slot]}" for slot in acc]
    made = write.emit(f"call {result} {name}({', '.join(given)})")
    for i, slot in enumerate(acc):
        write.held[slot] = write.emit(f"extractvalue {result} {made}, {i}")


def write_load_matrices(write: Writer, load: LoadMatrices) -> None:
    """Writes what brings four matrices, of each a pair of elements in 32 bits."""
    _check_all_run(write, "a LoadMatrices")
    scalar, result = type_of(load.memory.dtype), "{i32, i32, i32, i32}"
    address = write.emit(f"addrspacecast ptr {write.address(load.memory, load.index)} to ptr addrspace(3)")
    name = MATRICES.format(".trans" if load.turned else "")
    made = write.emit(f"call {result} {name}(ptr addrspace(3) {address})")
    slots = brought_by(load)
    for i, slot in enumerate(slots):
        if i % 2 == 0:
            pair = write.emit(f"bitcast i32 {write.emit(f'extractvalue {result} {made}, {i // 2}')} to <2 x {scalar}>")
        write.held[slot] = write.emit(f"extractelement <2 x {scalar}> {pair}, i64 {i % 2}")
