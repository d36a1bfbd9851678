"""Stores that pass by the cache: of results so large that what is written first is gone before anything reads it.

In:    a Program
Out:   `streamed_stores`; `choice_of_streams`, a function that asks whether memory is where such stores may write
Called by: render/llvm.py.    Next: picograd/render/registers.py

A line of the cache that is stored to is read first: 64 MiB of results move 128 MiB. A non-temporal store of a whole vector
moves what it writes, and leaves the cache to what is read again. It takes an address that is a multiple of its size: places
in memory are shown to be (below), memory itself is asked when the kernel runs, for other libraries' may lie anywhere.
Measured on two Zen 4 cores: 64 MiB scaled in 1.9 ms, with stores through the cache in 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Program
from picograd.ir.statements import Let, Load, Statement, Store, Transpose, lanes_of, walk

STREAMED_NBYTES = 32 << 20  # of a result: as many as a last-level cache holds
LINE_NBYTES = 64
NONTEMPORAL = "!1 = !{i32 1}\n"


def streamed_stores(program: Program, target: Target) -> dict[int, int]:
    """Returns the Stores (by id) that pass by the cache, with the slot of the memory that each writes."""
    large = {
        slot for slot, param in enumerate(program.params)
        if param.role == "out" and isinstance(param.numel, int) and param.numel * param.dtype.itemsize >= STREAMED_NBYTES
    }  # fmt: skip
    found: dict[int, int] = {}
    for phase in program.phases if large else ():
        statements = list(walk(phase))
        large -= {s.memory.arg[0] for s in statements if isinstance(s, Load | Transpose) and s.memory.code is OpCode.PARAM}
        multiples = _multiples(statements)
        for store in statements:
            if isinstance(store, Store) and store.memory.code is OpCode.PARAM and _is_whole(store, multiples, target):
                found[id(store)] = store.memory.arg[0]
    return {store: slot for store, slot in found.items() if slot in large}


def _is_whole(store: Store, multiples: dict[Op, int], target: Target) -> bool:
    """True for a store of a whole vector at a multiple of its lanes."""
    lanes = lanes_of(store.value)
    is_vector = lanes * store.memory.dtype.itemsize == target.vector_bytes and lanes_of(store.index) == 1
    return is_vector and store.valid is None and _multiple(store.index, multiples) % lanes == 0


def _multiples(statements: Sequence[Statement]) -> dict[Op, int]:
    """Returns for each integer that is named a number that it is a multiple of; 0 is one of any."""
    known: dict[Op, int] = {}
    for statement in statements:
        if isinstance(statement, Let) and statement.var.dtype is dtypes.int64:
            parts = [_multiple(s, known) for s in statement.value.src]
            if statement.value.code is OpCode.MUL:
                known[statement.var] = parts[0] * parts[1]
            elif statement.value.code in (OpCode.ADD, OpCode.SUB, OpCode.MIN, OpCode.MAX):
                known[statement.var] = gcd(*parts)
    return known


def _multiple(op: Op, known: dict[Op, int]) -> int:
    return abs(int(op.arg)) if op.code is OpCode.CONST else known.get(op, 1)


def choice_of_streams(symbol: str, slots: Sequence[int]) -> str:
    """Returns the text of a function that calls `symbol`_streamed where memory is aligned, else `symbol`_plain.

    Behind non-temporal stores stands a fence: other threads see them in no order.
    """
    lines = []
    for slot in slots:
        lines.append(f"  %p{slot}.at = getelementptr i64, ptr %args, i64 {slot}")
        lines.append(f"  %p{slot} = load i64, ptr %p{slot}.at, align 8")
    whole = f"%p{slots[0]}"
    for slot in slots[1:]:
        lines.append(f"  %or{slot} = or i64 {whole}, %p{slot}")
        whole = f"%or{slot}"
    lines += [
        f"  %low = and i64 {whole}, {LINE_NBYTES - 1}",
        "  %aligned = icmp eq i64 %low, 0",
        "  br i1 %aligned, label %streamed, label %plain",
        "streamed:",
        f"  call void @{symbol}_streamed(ptr %args, i64 %begin, i64 %end)",
        "  fence seq_cst",
        "  ret void",
        "plain:",
        f"  call void @{symbol}_plain(ptr %args, i64 %begin, i64 %end)",
        "  ret void",
    ]
    return f"define void @{symbol}(ptr %args, i64 %begin, i64 %end) {{\nentry:\n" + "\n".join(lines) + "\n}\n"
