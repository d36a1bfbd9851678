"""Makes a Schedule of a graph: kernels in order, on buffers whose memory is planned.

In:    roots: simplified graphs over BUFFERs
Out:   Schedule
Called by: engine/plan.py.    Next: picograd/schedule/update.py
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from picograd.ir.lines import copy_lines
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import WITH_ANCHOR, BufferUse, Kernel, Nest, NestKind, Param, Schedule, ScheduleItem
from picograd.schedule.contract import contract
from picograd.schedule.draft import Draft, Fused, in_memory
from picograd.schedule.fuse import fuse
from picograd.schedule.group import Group, group
from picograd.schedule.memory import Lifetime, plan_memory
from picograd.schedule.reuse import Step, order_steps
from picograd.schedule.update import versions_of, write_blocks


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
    refused: set[int] = set()
    while True:
        settled = contract(write_blocks(roots, refused))
        fused = fuse(settled)
        made = [make_kernel(chosen, fused) for chosen in group(fused)]
        may_fail = any(checks for _, _, checks in made)
        order = order_steps([Step(kernel, tuple(values)) for kernel, values, _ in made], settled, not may_fail)
        if not order.refused:
            break
        refused |= {i for i, root in enumerate(settled) if order.refused & set(versions_of(root))}
    uses = _Uses()
    last = {version: root for root in settled for version in versions_of(root)}  # of one memory
    items: list[ScheduleItem] = []
    for number in order.steps:
        kernel, values, checks = made[number]
        items.append(ScheduleItem(kernel, tuple(uses.use(last.get(v, v), len(items)) for v in values), checks))
    for value in [*order.over.values(), *settled]:
        uses.use(value, len(items))
    return _with_memory(settled, items, uses, order.over)


def _with_memory(roots: Sequence[Op], items: list[ScheduleItem], uses: _Uses, over: Mapping[Op, Op]) -> Schedule:
    """Returns the Schedule: which buffers are inputs, outputs or temporaries, the latter placed in the arena.

    Args:
      over: for an output the input whose memory it may have
    """
    values = list(uses.index)
    wanted = {root: i for i, root in reversed(list(enumerate(roots)))}
    inputs = [op for op in values if in_memory(op)]
    temporary = [op for op in values if not in_memory(op) and op not in wanted]
    lifetimes = [
        Lifetime(op.numel * op.dtype.itemsize, uses.first[uses.index[op]], uses.last[uses.index[op]]) for op in temporary
    ]
    offsets, arena_nbytes = plan_memory(lifetimes)
    place = dict(zip(temporary, offsets))
    outputs = list(dict.fromkeys(root for root in roots if not in_memory(root)))
    buffers: list[BufferUse] = []
    for op in values:
        if in_memory(op):
            buffers.append(BufferUse(op.dtype, numel(op.shape), "input", inputs.index(op)))
        elif op in wanted:
            before = inputs.index(over[op]) if op in over else None
            keeps = op.code is OpCode.UPDATE
            buffers.append(BufferUse(op.dtype, numel(op.shape), "output", outputs.index(op), before, keeps))
        else:
            buffers.append(BufferUse(op.dtype, numel(op.shape), "temporary", place[op]))
    return Schedule(tuple(items), tuple(buffers), tuple(inputs), tuple(uses.index[root] for root in roots), arena_nbytes)


def make_kernel(chosen: Group, fused: Fused) -> tuple[Kernel, list[Op], tuple[Any, ...]]:
    """Returns a Kernel over PARAMs, the value that is stored in each of its slots, and what its CHECKs were."""
    slots: dict[Op, Op] = {}
    checks: dict[Any, int] = {}
    outputs = {value for nest in chosen.nests for value in nest.stored}
    in_place = {value.src[0]: value for value in outputs if value.code is OpCode.UPDATE}

    def param(value: Op) -> Op:
        value = in_place.get(value, value)
        found = slots.get(value)
        if found is None:
            found = slots[value] = Op(OpCode.PARAM, value.dtype, (), (len(slots), value.shape))
        return found

    def numbered(check: Op) -> tuple[int, Dim]:
        site, length = check.arg
        return checks.setdefault(site, len(checks)), length

    phases = tuple(tuple(_finish(nest, fused, param, numbered) for nest in phase) for phase in chosen.phases)
    roles = {value: "inout" if value in in_place.values() else "out" for value in outputs}
    params = tuple(Param(v.dtype, numel(v.shape), roles.get(v, "in")) for v in slots)
    variables = _variables(phases)
    return Kernel(_name(chosen), params, variables, phases), list(slots), tuple(checks)


def _finish(
    nest: Draft, fused: Fused, param: Callable[[Op], Op], numbered: Callable[[Op], tuple[int, Dim]]
) -> Nest:
    """Puts PARAMs where a nest reads memory, and its stored values into the shape of its domain or rows."""
    stop = {op for op, home in fused.home.items() if home is not nest}
    became: dict[Op, Op] = {}
    for op in toposort(nest.stored, stop=stop):
        if op in stop or in_memory(op):
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

    def look(item: object) -> None:
        if isinstance(item, Op):
            for op in toposort([item]):
                if op.code is OpCode.VARIABLE:
                    found[op] = None
                look(op.arg)
        elif isinstance(item, tuple):
            for part in item:
                look(part)

    for phase in phases:
        for nest in phase:
            look(nest.domain)
            look(tuple(value for _, value in nest.outputs))
    return tuple(sorted(found, key=lambda op: str(op.arg)))


def _name(chosen: Group) -> str:
    first = chosen.phases[0][0]
    shape = "_".join(str(greatest(dim)) for dim in first.domain) or "scalar"
    count = len(chosen.nests)
    return f"{first.kind.value}_{shape}" + (f"_and_{count - 1}" if count > 1 else "")
