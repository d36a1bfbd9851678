"""Makes a Schedule of a graph: kernels in order, on buffers whose memory is planned.

In:    roots: simplified graphs over BUFFERs
Out:   Schedule
Called by: engine/plan.py.    Next: picograd/schedule/contract.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from picograd import dtype as dtypes
from picograd.ir.bodies import body_of
from picograd.ir.lines import copy_lines
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import WITH_ANCHOR, BufferUse, Kernel, LoopItem, Nest, NestKind, Param, Schedule, ScheduleItem
from picograd.schedule.contract import contract
from picograd.schedule.draft import Draft, Fused, in_memory
from picograd.schedule.fuse import fuse
from picograd.schedule.group import Group, group
from picograd.schedule.loops import loop_item, settle_loops
from picograd.schedule.memory import Lifetime, plan_memory


@dataclass
class _Uses:
    """The buffers of a schedule while it is made: each value's index, and when it is used."""

    index: dict[Op, int] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)

    def use(self, op: Op, item: int) -> int:
        found = self.index.get(op)
        if found is None:
            found = self.index[op] = len(self.index)
            self.first.append(item)
            self.last.append(item)
        self.last[found] = item
        return found


def create_schedule(roots: Sequence[Op]) -> Schedule:
    """Returns the kernels that compute `roots`, in order.

    A root that is a BUFFER already is its own output and runs nothing.
    """
    return _schedule(roots, {})


def _schedule(roots: Sequence[Op], bodies: dict[Op, Schedule]) -> Schedule:
    """Returns the schedule of some graphs; those of the bodies in them are made once and kept in `bodies`."""
    roots = contract(settle_loops(roots))
    fused = fuse(roots)
    uses = _Uses()
    items: list[ScheduleItem | LoopItem] = []
    for number, chosen in enumerate(group(fused)):
        first = chosen.phases[0][0]
        if first.kind is NestKind.LOOP:
            items.append(_loop_item(first, uses, number, bodies))
            continue
        kernel, values, checks = make_kernel(chosen, fused)
        items.append(ScheduleItem(kernel, tuple(uses.use(value, number) for value in values), checks))
    for root in roots:
        uses.use(root, len(items))
    return _with_memory(roots, items, uses)


def _loop_item(nest: Draft, uses: _Uses, number: int, bodies: dict[Op, Schedule]) -> LoopItem:
    """Returns the item of a CALL or LOOP, with the schedule of its body."""
    loop = nest.anchors[0]
    body = body_of(loop)
    if body not in bodies:
        bodies[body] = _schedule(body.src, bodies)

    def own_memory(nbytes: int) -> int:
        return uses.use(Op(OpCode.ALLOC, dtypes.uint8, (), (f"loop{number}", nbytes, MemorySpace.GLOBAL)), number)

    return loop_item(loop, nest.stored, bodies[body], lambda value: uses.use(value, number), own_memory)


def _numel(op: Op) -> Dim:
    """Returns the elements of a value, or of the memory of a loop."""
    return op.arg[1] if op.code is OpCode.ALLOC else numel(op.shape)


def _with_memory(roots: Sequence[Op], items: list[ScheduleItem | LoopItem], uses: _Uses) -> Schedule:
    """Returns the Schedule: which buffers are inputs, outputs or temporaries, the latter placed in the arena."""
    values = list(uses.index)
    wanted = set(roots)
    inputs = {op: i for i, op in enumerate(op for op in values if in_memory(op))}
    temporary = [op for op in values if not in_memory(op) and op not in wanted]
    lifetimes = [
        Lifetime(greatest(_numel(op)) * op.dtype.itemsize, uses.first[uses.index[op]], uses.last[uses.index[op]])
        for op in temporary
    ]
    offsets, arena_nbytes = plan_memory(lifetimes)
    place = dict(zip(temporary, offsets))
    outputs = {op: i for i, op in enumerate(dict.fromkeys(root for root in roots if not in_memory(root)))}
    buffers: list[BufferUse] = []
    for op in values:
        if in_memory(op):
            buffers.append(BufferUse(op.dtype, _numel(op), "input", inputs[op]))
        elif op in wanted:
            buffers.append(BufferUse(op.dtype, _numel(op), "output", outputs[op]))
        else:
            buffers.append(BufferUse(op.dtype, _numel(op), "temporary", place[op]))
    return Schedule(tuple(items), tuple(buffers), tuple(inputs), tuple(uses.index[root] for root in roots), arena_nbytes)


def make_kernel(chosen: Group, fused: Fused) -> tuple[Kernel, list[Op], tuple[Any, ...]]:
    """Returns a Kernel over PARAMs, the value that is stored in each of its slots, and what its CHECKs were."""
    slots: dict[Op, Op] = {}
    checks: dict[Any, int] = {}
    outputs = {value for nest in chosen.nests for value in nest.stored}

    def param(value: Op) -> Op:
        found = slots.get(value)
        if found is None:
            found = slots[value] = Op(OpCode.PARAM, value.dtype, (), (len(slots), value.shape))
        return found

    def numbered(check: Op) -> tuple[int, Dim]:
        site, length = check.arg
        return checks.setdefault(site, len(checks)), length

    phases = tuple(tuple(_finish(nest, fused, param, numbered) for nest in phase) for phase in chosen.phases)
    params = tuple(Param(v.dtype, numel(v.shape), "out" if v in outputs else "in") for v in slots)
    variables = _variables(phases)
    return Kernel(_name(chosen), params, variables, phases), list(slots), tuple(checks)


@dataclass(frozen=True)
class _Elsewhere:
    """The values that other nests than this one store."""

    nest: Draft
    fused: Fused

    def __contains__(self, op: Op) -> bool:
        return self.fused.home.get(op, self.nest) is not self.nest


def _finish(
    nest: Draft, fused: Fused, param: Callable[[Op], Op], numbered: Callable[[Op], tuple[int, Dim]]
) -> Nest:
    """Puts PARAMs where a nest reads memory, and its stored values into the shape of its domain or rows."""
    elsewhere = _Elsewhere(nest, fused)
    became: dict[Op, Op] = {}
    for op in toposort(nest.stored, stop=elsewhere):
        if op in elsewhere or in_memory(op):
            became[op] = param(op)
        elif op.code is OpCode.CONTIGUOUS:
            became[op] = became[op.src[0]]
        elif op.src:
            arg = numbered(op) if op.code is OpCode.CHECK else None
            became[op] = op.replace(src=tuple(became[s] for s in op.src), arg=arg)
        else:
            became[op] = op
        if became[op].code is not OpCode.PARAM:
            copy_lines(op, became[op], replace=True)
    outputs = []
    for value in dict.fromkeys(nest.stored):
        body = became[value]
        if nest.kind is NestKind.REDUCE and nest.domain != body.shape:
            body = _reshaped(body, nest.row_shape)
        elif nest.domain != body.shape:
            body = _reshaped(body, nest.domain)
        outputs.append((param(value).arg[0], body))
    anchor = became[nest.anchors[0]] if nest.kind in WITH_ANCHOR else None
    return Nest(nest.kind, nest.domain, nest.reduced, anchor, tuple(outputs))


def _reshaped(value: Op, shape: Shape) -> Op:
    return value if value.shape == shape else Op(OpCode.RESHAPE, value.dtype, (value,), shape)


def _variables(phases: tuple[tuple[Nest, ...], ...]) -> tuple[Op, ...]:
    """Returns the symbolic integers that domains and values mention, in the order of their names."""
    found: dict[Op, None] = {}
    seen: set[Op] = set()
    left: list[object] = [(nest.domain, *(value for _, value in nest.outputs)) for phase in phases for nest in phase]
    while left:
        item = left.pop()
        if isinstance(item, tuple):
            left.extend(item)
        elif isinstance(item, Op) and item not in seen:
            seen.add(item)
            left += [*item.src, item.arg]
            if item.code is OpCode.VARIABLE:
                found[item] = None
    return tuple(sorted(found, key=lambda op: str(op.arg)))


def _name(chosen: Group) -> str:
    first = chosen.phases[0][0]
    shape = "_".join(str(greatest(dim)) for dim in first.domain) or "scalar"
    count = len(chosen.nests)
    return f"{first.kind.value}_{shape}" + (f"_and_{count - 1}" if count > 1 else "")
