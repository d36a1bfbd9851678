"""Merges CALLs with equal arguments, and LOOPs with equal sources and carries, into one; drops results that are not read.

In:    graphs
Out:   graphs with the same values

A CALL and its extension by what a backward pass reads (autodiff/bodies.py) are two Ops until here. Sources first, each Op
gets sources that are one Op where they mean the same, so that what belongs together is found by equal sources; readers
first, what is read is found; sources first, what is left is built. Linear in Ops and edges.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from picograd.ir.bodies import WITH_BODY, body_of, carry_and_steps, param, substitute
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import copy_lines
from picograd.record import Record, Struct, field

Result = int | Op  # of a CALL or LOOP: the carry of this number, or a root of the body (of a LOOP as rows)


def merge_bodies(roots: Sequence[Op]) -> list[Op]:
    """Merges CALLs and LOOPs, then those in their bodies.

    After:   no two CALLs have equal sources and one mark, nor two LOOPs equal sources and equal carries; every result
             and every source of them is read.
    Cost:    one walk where no CALL and no LOOP is.

    Example: CALL(x; body = SINK(tanh(%0))) and CALL(x; body = SINK(tanh(%0), tanh(%0) * %0))  ->  the second one
    """
    order = toposort(roots)
    if WITH_BODY.isdisjoint([op.code for op in order]):
        return list(roots)
    graph = _Graph(roots, order)
    return graph.rebuilt(graph.read())


class _Group(Struct):
    """CALLs, or LOOPs, that become one.

    members:    in order
    num_carry:  of a LOOP; of a CALL 0
    outputs:    what its results are -> the first OUTPUT that is one
    read:       results that somebody reads
    """

    members: list[Op]
    num_carry: int
    outputs: dict[Result, Op] = field(default_factory=dict)
    read: set[Result] = field(default_factory=set)

    def result(self, output: Op) -> Result:
        """Returns the result that an OUTPUT of a member stands for."""
        number: int = output.arg
        root: Op = body_of(output.src[0]).src[number]
        return number if number < self.num_carry else root

    def body(self) -> _Body:
        """Returns the body of the values that are read."""
        carries = dict(enumerate(body_of(self.members[0]).src[: self.num_carry]))
        every = dict.fromkeys(root for member in self.members for root in body_of(member).src[self.num_carry :])
        return _body(
            tuple(carries.values()), tuple(r for r in every if r in self.read), frozenset(self.read & carries.keys())
        )


class _Body(Record):
    """The body of a merged CALL or LOOP.

    roots:    over PARAMs, numbered again
    slots:    which sources they are
    results:  what each result is
    """

    roots: tuple[Op, ...]
    slots: tuple[int, ...]
    results: tuple[Result, ...]


@lru_cache(maxsize=512)  # bodies hold no memory
def _body(carries: tuple[Op, ...], rows: tuple[Op, ...], read: frozenset[int]) -> _Body:
    """Returns the body that gives `rows` and the carries in `read`, and hands on what these need."""
    slots = _slots([*rows, *(carries[i] for i in read)], dict(enumerate(carries)))
    kept = sorted(slot for slot in slots | read if slot < len(carries))
    inner = merge_bodies([*(carries[slot] for slot in kept), *rows])
    new = dict(zip(kept, inner))
    inner_rows = inner[len(kept) :]
    again = _slots([*inner_rows, *(new[i] for i in read)], new)  # merging may have found that less is needed
    kept = [slot for slot in kept if slot in again or slot in read]
    wanted = sorted({*again, *kept})
    inside = [op for op in toposort([*(new[i] for i in kept), *inner_rows]) if op.code is OpCode.PARAM]
    places = {op: param(op, wanted.index(op.arg[0])) for op in inside}
    roots = substitute([*(new[slot] for slot in kept), *inner_rows], places)
    return _Body(tuple(roots), tuple(wanted), (*kept, *rows))


def _slots(roots: Iterable[Op], carries: Mapping[int, Op]) -> set[int]:
    """Returns the slots of the PARAMs that roots depend on, through the steps of a LOOP."""
    slots: set[int] = set()
    seen: set[Op] = set()
    stack = list(roots)
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        stack.extend(s for s in op.src if s not in seen)
        if op.code is OpCode.PARAM:
            slots.add(op.arg[0])
            if op.arg[0] in carries:
                stack.append(carries[op.arg[0]])
    return slots


class _Graph:
    """A graph in which Ops that mean the same are one, but for CALLs and LOOPs themselves.

    roots:  as they are now
    group:  of each CALL and LOOP
    """

    def __init__(self, roots: Sequence[Op], order: Sequence[Op]):
        self.group: dict[Op, _Group] = {}
        by_meaning: dict[object, _Group] = {}
        became: dict[Op, Op] = {}
        for op in order:
            src = tuple(became[s] for s in op.src)
            new = op.replace(src=src)
            copy_lines(op, new)
            if new.code in WITH_BODY:
                body, (num_carry, steps) = body_of(new), carry_and_steps(new)
                meaning = (new.code, new.src, body.arg, body.src[:num_carry], num_carry, steps)
                group = self.group[new] = by_meaning.setdefault(meaning, _Group([], num_carry))
                group.members.append(new)
            elif new.code is OpCode.OUTPUT and new.src[0] in self.group:
                group = self.group[new.src[0]]
                new = group.outputs.setdefault(group.result(new), new)
            became[op] = new
        self.roots = [became[root] for root in roots]

    def _sources(self, op: Op) -> Sequence[Op]:
        """Returns the sources of an Op; of a group its first member alone."""
        if op.code is OpCode.OUTPUT and op.src[0] in self.group:
            return self.group[op.src[0]].members[:1]
        return op.src

    def read(self) -> list[Op]:
        """Finds the Ops that are read; returns them, sources first, of each group the first member."""
        order = toposort(self.roots, sources=self._sources)
        live = set(self.roots)
        for op in reversed(order):
            if op not in live:
                continue
            group = self.group.get(op)
            if group is not None:
                live.update(op.src[slot] for slot in group.body().slots)
                continue
            live.update(self._sources(op))
            if op.code is OpCode.OUTPUT and op.src[0] in self.group:
                owner = self.group[op.src[0]]
                owner.read.add(owner.result(op))
        return [op for op in order if op in live]

    def rebuilt(self, order: Sequence[Op]) -> list[Op]:
        """Returns the roots with one Op for each group."""
        became: dict[Op, Op] = {}
        for op in order:
            group = self.group.get(op)
            if group is not None:
                became[op] = _rebuilt(op, group.body(), became)
            elif op.code is OpCode.OUTPUT and op.src[0] in self.group:
                owner = self.group[op.src[0]]
                number = owner.body().results.index(owner.result(op))
                became[op] = Op(OpCode.OUTPUT, op.dtype, (became[owner.members[0]],), number)
            else:
                src = tuple(became[s] for s in op.src)
                became[op] = op.replace(src=src)
            copy_lines(op, became[op])
        return [became[root] for root in self.roots]


def _rebuilt(op: Op, body: _Body, became: dict[Op, Op]) -> Op:
    """Returns the CALL or LOOP of a group."""
    sink = Op(OpCode.SINK, body.roots[0].dtype, body.roots, body_of(op).arg)
    src = tuple(became[op.src[slot]] for slot in body.slots)
    if op.code is OpCode.CALL:
        return Op(OpCode.CALL, sink.dtype, src, sink)
    num_carry = sum(isinstance(result, int) for result in body.results)
    return Op(OpCode.LOOP, sink.dtype, src, (sink, num_carry, op.arg[2]))
