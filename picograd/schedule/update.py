"""Finds values that replace one block of a buffer, so that only the block is written.

In:    a simplified graph
Out:   the same, where such values are UPDATEs of the buffer
Called by: road.py, schedule/reuse.py.    Next: picograd/schedule/contract.py

A write through a view, cache[:, n] = row, is built as a value of the whole:

    WHERE(PAD(True), PAD(row), cache)  ->  UPDATE(cache, row)      stored in the memory of `cache`

Several writes to one buffer are a chain, all in that memory. schedule/reuse.py lets whatever reads an older version run
first; where that cannot be, the value stays as it was built, and memory of its own is written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from picograd.ir.build import shrink
from picograd.ir.lines import copy_lines
from picograd.ir.op import Dim, Op, const_value, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add
from picograd.record import Record
from picograd.schedule.draft import KINDS, in_memory

Block = tuple[tuple[Dim, Dim], ...]


class _Write(Record):
    """One step of a chain: `base` with `value` in a block."""

    base: Op
    value: Op
    block: Block


def write_blocks(roots: Sequence[Op], refused: Collection[int]) -> list[Op]:
    """Returns the graphs with UPDATEs for the roots that are chains of writes to a buffer.

    Args:
      refused: numbers of roots that must not be written in place
    """
    order = toposort(roots)
    writes: dict[Op, _Write] = {}
    taken: set[int] = set()  # slots of the buffers
    for number, root in enumerate(roots):
        chain = _chain(root)
        if not chain or number in refused or roots.count(root) > 1:
            continue
        buffer = chain[-1][1].base
        views = {op for op in order if in_memory(op) and op.arg[0] == buffer.arg[0]}
        inner = {op for op, _ in chain[1:]}
        if views != {buffer} or buffer in roots or inner & set(roots) or buffer.arg[0] in taken:
            continue
        taken.add(buffer.arg[0])
        writes.update(chain)
    return _rebuilt(roots, writes) if writes else list(roots)


def versions_of(root: Op) -> list[Op]:
    """Returns what lies in the memory of a chain of UPDATEs in turn, but for what is there before, the last first."""
    found: list[Op] = []
    while root.code is OpCode.UPDATE:
        found.append(root)
        root = root.src[0]
    return found


def _chain(root: Op) -> list[tuple[Op, _Write]]:
    """Returns the writes that lead from a buffer to `root`, the last one first, or [] if it is no such value."""
    found: list[tuple[Op, _Write]] = []
    op = root
    while not in_memory(op):
        write = _write(op)
        if write is None:
            return []
        found.append((op, write))
        op = write.base
    return found


def _write(op: Op) -> _Write | None:
    """Takes WHERE(PAD(True), x, base) apart."""
    if op.code is not OpCode.WHERE:
        return None
    inside, chosen, base = op.src
    if inside.code is not OpCode.PAD or const_value(inside.src[0]) is not True:
        return None
    ends = zip(inside.arg, inside.src[0].shape)
    block = tuple((before, add(before, length)) for (before, _), length in ends)
    same = chosen.code is OpCode.PAD and chosen.arg == inside.arg
    return _Write(base, chosen.src[0] if same else shrink(chosen, block), block)


def _rebuilt(roots: Sequence[Op], writes: dict[Op, _Write]) -> list[Op]:
    """Returns the graphs with each write as an UPDATE; a value computed from the buffer itself is stored before."""
    versions = {*writes, *(write.base for write in writes.values())}
    became: dict[Op, Op] = {}

    def sources(op: Op) -> tuple[Op, ...]:
        return (writes[op].base, writes[op].value) if op in writes else op.src

    for op in toposort(roots, sources=sources):
        write = writes.get(op)
        if write is None:
            became[op] = op.replace(src=tuple(became[s] for s in op.src))
        else:
            value = became[write.value]
            if _reads(write.value, versions):
                value = Op(OpCode.CONTIGUOUS, value.dtype, (value,))
            became[op] = Op(OpCode.UPDATE, op.dtype, (became[write.base], value), write.block)
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


def _reads(value: Op, versions: set[Op]) -> bool:
    """True when the loops that store `value` may read one of these versions of a buffer."""
    ends = {*versions, *(op for op in toposort([value]) if op.code in KINDS)}
    return any(op in versions for op in toposort([value], stop=ends))
