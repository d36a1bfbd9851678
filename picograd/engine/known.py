"""Graphs whose plan is known: one walk tells what they are, where the form that a plan is made of takes several.

In:    Ops that somebody wants the values of
Out:   `look_at`: `Seen`, what tells them from other graphs, the memory and the numbers they read;  `Known`: their plan
Called by: engine/realize.py

Eager code computes the same graphs again and again, over other memory, with other numbers and offsets. What is here is as
exact as a form, if less general: what a form frees of its values (symbolic integers) is left to it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from picograd.autodiff.gradient import written_out
from picograd.engine.offsets import BLOCKS, FIXED
from picograd.engine.plan import Template
from picograd.ir.op import Buffer, Op, const, toposort
from picograd.ir.opcode import COSTLY, MOVEMENT, OpCode
from picograd.ir.stages import Plan

MOST_VIEWS = 6  # of memory, one of another, that are walked through again: a walk is linear
LEFT_TO_FORMS = frozenset({OpCode.BIND, OpCode.COPY})
SPECIAL = LEFT_TO_FORMS | BLOCKS | COSTLY | {OpCode.LEAF, OpCode.CONST, OpCode.GRADIENT, OpCode.FORMULA}


class Seen(NamedTuple):
    """Graphs as they are looked at.

    key:      what a plan for them depends on, but for numbers and offsets, and the device
    buffers:  what they read, all of one device
    numbers:  their CONSTs
    blocks:   their SHRINKs and PADs
    results:  which result of a plan each of them is, once that is known: two of them may be one
    costly:   Ops of which a few elements may cost as much as all, and through which no gradient goes
    graphs:   themselves, formulas and gradients not written out
    """

    key: Hashable
    buffers: list[Buffer]
    numbers: list[Op]
    blocks: list[Op]
    results: list[int]
    costly: list[Op]
    graphs: Sequence[Op]


class Offset(NamedTuple):
    """One offset of a plan.

    block, axis:  where, by the number of the SHRINK or PAD
    name:         of the symbolic integer that moves it; None where it stays
    constant:     its value, or how far it is from that integer
    """

    block: int
    axis: int
    name: str | None
    constant: int


class Known(NamedTuple):
    """The plan of some graphs.

    takes:    for each input of the plan the number of a buffer, or ~ the number of a constant
    made:     buffers behind those that graphs read: of constants that follow from the key, such as 1 / n of a mean
    numbers:  constants, None for one that may be another
    offsets:  all of them
    lengths:  values of symbolic integers that stand for lengths, by name
    results:  which result of the plan each graph is
    """

    plan: Plan
    takes: tuple[int, ...]
    made: list[Buffer]
    numbers: list[Op | None]
    offsets: list[Offset]
    lengths: dict[str, int]
    results: list[int]

    @staticmethod
    def of(seen: Seen, form: Template, plan: Plan) -> Known | None:
        """Returns what is known once graphs have a plan; None where that is not enough to tell what the plan reads.

        So it is with symbolic integers of the user's. Where the plan takes a constant that no Op here has, all that are
        here must stay: it may follow from them.

        Args:
          form:  which the plan was made of
        """
        moving, lengths = form.moving, {} if form.sizes is None else form.sizes.values
        if len(form.variables) > len(moving.values()) + len(lengths):
            return None
        place = {buffer: i for i, buffer in enumerate(seen.buffers)}
        place |= {form.leaves[op].arg[0]: ~i for i, op in enumerate(seen.numbers) if op in form.leaves}
        numbers = [None if op in form.leaves else op for op in seen.numbers]
        free = {
            (offset.op, offset.axis): (moving.name(group), constant)
            for offset, group, constant in zip(moving.offsets, moving.groups, moving.constants())
            if group != FIXED
        }
        offsets = [
            Offset(i, axis, *free.get((block, axis), (None, start)))
            for i, block in enumerate(seen.blocks)
            for axis, (start, _) in enumerate(block.arg)
            if start.__class__ is int
        ]
        reads = [form.buffers[op.arg[0]] for op in plan.schedule.inputs]
        constants = {leaf.arg[0] for op, leaf in form.leaves.items() if op.code is OpCode.CONST}
        made = [buffer for buffer in dict.fromkeys(reads) if buffer not in place]
        if not constants.issuperset(made) or {offset.name for offset in offsets} - {None} != moving.values().keys():
            return None
        numbers = [*seen.numbers] if made or _are_elsewhere(seen, numbers) else numbers
        place |= {buffer: len(seen.buffers) + i for i, buffer in enumerate(made)}
        return Known(plan, tuple(map(place.__getitem__, reads)), made, numbers, offsets, lengths, seen.results)

    def variables(self, seen: Seen) -> dict[str, int] | None:
        """Returns the values of the plan's symbolic integers for graphs; None where these need another plan."""
        for ours, theirs in zip(self.numbers, seen.numbers):
            if ours is not theirs and ours is not None:
                return None
        values: dict[str, int] = {}
        for block, axis, name, constant in self.offsets:
            start = seen.blocks[block].arg[axis][0] - constant
            if start if name is None else values.setdefault(name, start) != start:
                return None
        return {**self.lengths, **values} if self.lengths else values


def look_at(roots: Sequence[Op]) -> Seen | None:
    """Returns what graphs are; None where only a form can tell.

    The walk goes from the roots to the sources, and an Op that it meets again is told by its number: equal walks are of
    equal graphs. But a block of memory is met each time as if it were another: of a batch of pieces of a text, drawn at
    random, two may begin at one place, and then they are one Op. A second walk is through the graphs of which there are
    GRADIENTs: what has been computed there is no end. Where the first has met such an end it knows no Op that the second
    meets.
    """
    key: list[Hashable] = []
    slots: dict[Buffer, int] = {}
    numbers: list[Op] = []
    blocks: list[Op] = []
    differentiated: list[Op] = []
    costly: list[Op] = []
    number: dict[Op, int] = {}
    count, is_cut = 0, False
    for stack in ([*roots], differentiated):
        if is_cut:
            number = {}
        while stack:
            op = stack.pop()
            code = op.code
            place = number.get(op)
            if place is not None and not (code in MOVEMENT and _is_block_of_memory(op)):
                key.append(place)
                continue
            number[op] = count
            count += 1
            leaf = op if code is OpCode.BUFFER else op.realized
            if leaf is not None:
                buffer, shape = leaf.arg
                key.append((slots.setdefault(buffer, len(slots)), leaf.dtype, shape))
                if not op.needs_grad:
                    continue
                if stack is not differentiated:
                    is_cut = True
                    continue
            if code not in SPECIAL:
                key.append((code, op.dtype, op.arg, len(op.src)))
                stack += op.src
            elif code is OpCode.FORMULA or code in COSTLY:
                key.append((code, op.dtype, op.arg, len(op.src)))
                stack += op.src
                if not op.needs_grad and (code is not OpCode.FORMULA or op.arg.is_costly):
                    costly.append(op)
            elif code is OpCode.LEAF:
                key.append((code, op.dtype))
                stack += op.src
            elif code is OpCode.CONST:
                key.append(op.dtype)
                numbers.append(op)
            elif code in BLOCKS:
                key.append((code, op.dtype, *_lengths(op)))
                blocks.append(op)
                stack += op.src
            elif code is OpCode.GRADIENT:
                key.append((code, op.arg, len(op.src)))
                differentiated += op.src
            else:
                return None
    buffers = [*slots]
    if not buffers or len({buffer.device for buffer in buffers}) > 1:
        return None
    key.append((len(roots), buffers[0].device))
    return Seen(tuple(key), buffers, numbers, blocks, [], costly, roots)


def _are_elsewhere(seen: Seen, numbers: Sequence[Op | None]) -> bool:
    """True where a number that may change is in a formula or a gradient as well, by chance: it is one CONST there.

    Such as k in `x.mean(0) * k` where k is n: the plan reads one number for both. With other numbers in their places the
    graphs are written out once more, and what is still there comes from elsewhere.
    """
    others = {op: _another(op) for op, number in zip(seen.numbers, numbers) if number is None}
    if not others:
        return False
    graphs = written_out(seen.graphs, others)
    return not others.keys().isdisjoint(toposort(graphs, sources=lambda op: op.src if op.realized is None else ()))


def _another(number: Op) -> Op:
    """Returns a constant of another value that its dtype has; of a bool, infinity or NaN the same one, which then stays."""
    value = number.arg
    if isinstance(value, bool):
        return number
    return const(value / 2 + 0.3 if isinstance(value, float) else value - 1 if value > 0 else value + 1, number.dtype)


def _is_block_of_memory(op: Op) -> bool:
    """Returns whether an Op is few views from what has been computed, one of them a block, and no gradient goes there."""
    has_block = False
    for _ in range(MOST_VIEWS):
        if op.realized is not None or op.code not in MOVEMENT:
            break
        has_block = has_block or op.code is OpCode.SHRINK
        op = op.src[0]
    return has_block and not op.needs_grad and (op.code is OpCode.BUFFER or op.realized is not None)


def _lengths(block: Op) -> Iterator[Hashable]:
    """Returns what a SHRINK keeps of each axis, or all that a PAD adds: all of its argument but offsets."""
    is_shrink = block.code is OpCode.SHRINK
    for start, end in block.arg:
        if start.__class__ is not int or end.__class__ is not int:
            yield start, end
        else:
            yield end - start if is_shrink else start + end
