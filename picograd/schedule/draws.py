"""Finds what is drawn for several readers: random bits are a hundred instructions an element, a byte that is stored is one.

In:    the Ops of a graph, sources first
Out:   `drawn_for_several`: values to be stored where they are computed, which others then read
Called by: schedule/fuse.py.    Next: picograd/schedule/prices.py

A mask of dropout is read by the step forward and by its gradient; which words are hidden by an embedding, its gradient and
the loss. Drawn again at each of them it is most of what their kernels are made of.

    bits = THREEFRY(IOTA, key);  mask = 0.1 <= bits * 2**-64;  y = WHERE(mask, x, 0);  dx = WHERE(mask, dy, 0)

What is computed from random bits, constants and scalars alone is drawn. It is stored where the ways of its readers part and
lead to different sums, products or results; here that is the mask, one byte an element. So is a value that is made of
draws and other values, if each of its elements is read many times: as an index, or spread along an axis.

A GPU computes while it waits for memory: there all is drawn again where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from picograd.ir.op import Op
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SOURCES, OpCode
from picograd.schedule.draft import in_memory

MOST_WAYS, NUM_BITS = 8, 256  # ways of one Op, and results, that are told apart
_OF_DRAWS = ELEMENTWISE | MOVEMENT | {OpCode.GATHER}  # these are computed again with what they read


def drawn_for_several(roots: Sequence[Op], order: Sequence[Op]) -> set[Op]:
    """Returns the values that are drawn once and stored."""
    drawn = _drawn(order)
    if not drawn:
        return set()
    found, apart, spread = _keys(order), _read_apart(roots, order), _spread(order)
    draws: set[Op] = set()  # Ops that are computed from bits which are not stored
    for op in order:
        if _is_draw(op) or (op.code in _OF_DRAWS and any(s in draws for s in op.src)):
            (found if op in apart and (op in drawn or op in spread) else draws).add(op)
    return found


def _keys(order: Sequence[Op]) -> set[Op]:
    """Returns the keys of draws, where there are several: draws that differ in keys alone are one kernel then."""
    found: set[Op] = set()
    for op in order:
        if _is_draw(op):
            key = op.src[1]
            while key.code in MOVEMENT:
                key = key.src[0]
            found |= {key} if key.code is OpCode.THREEFRY and key.shape == () else set()
    return found if len(found) > 1 else set()


def _is_draw(op: Op) -> bool:
    return op.code is OpCode.THREEFRY and op.shape != ()


def _drawn(order: Sequence[Op]) -> set[Op]:
    """Returns what is computed from random bits, and what is the same in all elements or known of them, alone.

    What is repeated along an axis is not: there it is better read.
    """
    found: set[Op] = set()
    known: set[Op] = set()
    for op in order:
        if _is_draw(op):
            found.add(op)
        elif op.shape == () or (op.code in SOURCES and not in_memory(op)):
            known.add(op)
        elif op.code in ELEMENTWISE or op.code in MOVEMENT:
            own = [s for s in op.src if s not in known]
            if not own:
                known.add(op)
            elif op.code is not OpCode.EXPAND and all(s in found for s in own):
                found.add(op)
    return found


def _read_apart(roots: Sequence[Op], order: Sequence[Op]) -> set[Op]:
    """Returns what is computed for each element and then read on several ways, which lead to different results.

    Results are the roots, and what is no function of each element: sums, products. Some of many share a number.
    """
    found: set[Op] = set()
    ways: dict[Op, set[int]] = {}  # of an Op, for each that reads it: the results that this leads to, a bit each
    is_root = set(roots)
    for number, op in enumerate(reversed(order)):
        own = ways.pop(op, set())
        bit = 1 << number % NUM_BITS
        if op.code in MOVEMENT and op not in is_root:
            passed = own
        elif op.code in _OF_DRAWS:
            found |= {op} if len(own) > 1 and op.code in ELEMENTWISE else set()
            passed = {reduce(or_, own, bit if op in is_root else 0)}
        else:
            passed = {bit}
        for s in op.src:
            if len(known := ways.setdefault(s, set())) < MOST_WAYS:
                known |= passed
    return found


def _spread(order: Sequence[Op]) -> set[Op]:
    """Returns what indices and repeated values are made of: an element of it is read many times."""
    found: set[Op] = set()
    for op in reversed(order):
        if op.code in (OpCode.GATHER, OpCode.SCATTER):
            found.add(op.src[1])
        elif op.code is OpCode.EXPAND or (op in found and (op.code in ELEMENTWISE or op.code in MOVEMENT)):
            found.update(op.src)
    return found
