"""Makes a Kernel of each group, and the Schedule of them in order: buffers whose memory is planned.

In:    groups of nests; their order
Out:   Steps; Schedule
Called by: road.py.    Next: picograd/schedule/reuse.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.ir.checks import site_of, with_site
from picograd.ir.lines import copy_lines
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import WITH_ANCHOR, BufferUse, Kernel, LoopItem, Nest, NestKind, Param, Schedule, ScheduleItem
from picograd.record import Record, Struct, field
from picograd.schedule.draft import Draft, Fused, in_memory
from picograd.schedule.group import Group
from picograd.schedule.loops import loop_item, memory_sources, roots_in_order
from picograd.schedule.memory import Host, Lifetime, place_temporaries
from picograd.schedule.reuse import Order, Step
from picograd.schedule.update import versions_of

OfBody = Callable[[tuple[Op, ...]], Schedule]  # the roots of a body -> its Schedule


class _Uses(Struct):
    """The buffers of a schedule while it is made: each value's index, and when it is used.

    A moment is a phase of a kernel, or a loop; they are counted through the schedule. Nothing of a phase runs before all
    of the one before has, so what is read last in one phase may lie where the next one writes.

    memory: for a value that lies where another one does, that one
    first:  by index the first moment at which a buffer is used
    last:   and the last
    """

    memory: dict[Op, Op]
    index: dict[Op, int] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)

    def use(self, op: Op, first: int, last: int) -> int:
        """Returns the index of a value that is used from moment `first` to moment `last`."""
        op = self.memory.get(op, op)
        found = self.index.get(op)
        if found is None:
            found = self.index[op] = len(self.index)
            self.first.append(first)
            self.last.append(last)
        self.first[found] = min(self.first[found], first)
        self.last[found] = max(self.last[found], last)
        return found


def make_step(chosen: Group, fused: Fused, schedule_of: OfBody) -> Step:
    """Returns what a group becomes: a kernel, or a loop over the schedule of its body.

    Args:
      schedule_of:  the roots of a body -> its Schedule
    """
    first = chosen.phases[0][0]
    if first.kind is not NestKind.LOOP:
        return make_kernel(chosen, fused)
    loop = first.anchors[0]
    may_fail = any(item.checks for item in schedule_of(roots_in_order(loop)).kernel_items())
    return Step(None, (loop,), ((0, 0),), tuple(memory_sources(loop)), tuple(first.stored), (), may_fail)


def scheduled(
    roots: Sequence[Op], steps: Sequence[Step], order: Order, schedule_of: OfBody, is_outermost: bool
) -> Schedule:
    """Returns the Schedule of steps in an order, with a place for every value.

    Args:
      is_outermost:  values may lie in outputs before these are written
    """
    uses = _Uses({version: root for root in roots for version in versions_of(root)})
    items: list[ScheduleItem | LoopItem] = []
    begins = [0]  # the first moment of each item
    for step in (steps[number] for number in order.steps):
        now = begins[-1]
        if step.kernel is None:
            items.append(_loop_item(step, uses, now, schedule_of))
            begins.append(now + 1)
        else:
            buffers = tuple(uses.use(v, now + first, now + last) for v, (first, last) in zip(step.values, step.phases))
            items.append(ScheduleItem(step.kernel, buffers, step.checks))
            begins.append(now + len(step.kernel.phases))
    for value in [*order.over.values(), *roots]:
        uses.use(value, begins[-1], begins[-1])
    hosts = _hosts(roots, uses, order, begins) if is_outermost else {}
    return _with_memory(roots, items, uses, order, hosts)


def _loop_item(step: Step, uses: _Uses, now: int, schedule_of: OfBody) -> LoopItem:
    """Returns the item of a CALL or LOOP, which runs at one moment."""
    loop = step.values[0]

    def own_memory(nbytes: int) -> int:
        return uses.use(Op(OpCode.ALLOC, dtypes.uint8, (), (f"loop{now}", nbytes, MemorySpace.GLOBAL)), now, now)

    schedule = schedule_of(roots_in_order(loop))
    return loop_item(loop, step.written, schedule, lambda value: uses.use(value, now, now), own_memory)


def _numel(op: Op) -> Dim:
    """Returns the elements of a value, or of the memory of a loop."""
    return op.arg[1] if op.code is OpCode.ALLOC else numel(op.shape)


def _lifetime(op: Op, uses: _Uses) -> Lifetime:
    """Returns when a temporary holds data; the own memory of a loop is a part of the arena."""
    first, last = uses.first[uses.index[op]], uses.last[uses.index[op]]
    return Lifetime(greatest(_numel(op)) * op.dtype.itemsize, first, last, op.code is OpCode.ALLOC)


def _hosts(roots: Sequence[Op], uses: _Uses, order: Order, begins: Sequence[int]) -> dict[Op, Host]:
    """Returns the outputs that other values may lie in before they are written.

    That is not where an input may be. What a late output replaces may be there until no CHECK can fail any more.
    """
    found: dict[Op, Host] = {}
    for op in dict.fromkeys(root for root in roots if not in_memory(root)):
        numel = _numel(op)
        if isinstance(numel, int) and op not in order.over and not order.also.get(op):
            first = begins[order.commit] if op in order.late else 0
            found[op] = Host(numel * op.dtype.itemsize, first, uses.first[uses.index[op]])
    return found


def _with_memory(
    roots: Sequence[Op], items: list[ScheduleItem | LoopItem], uses: _Uses, order: Order, hosts: dict[Op, Host]
) -> Schedule:
    """Returns the Schedule: which buffers are inputs, outputs or temporaries, the latter placed in arena and outputs."""
    values = list(uses.index)
    wanted = set(roots)
    inputs = {op: i for i, op in enumerate(op for op in values if in_memory(op))}
    temporary = [op for op in values if not in_memory(op) and op not in wanted]
    outputs = {op: i for i, op in enumerate(dict.fromkeys(root for root in roots if not in_memory(root)))}
    chosen, offsets, arena_nbytes = place_temporaries([_lifetime(op, uses) for op in temporary], list(hosts.values()))
    host_of = [None if number is None else outputs[list(hosts)[number]] for number in chosen]
    place = dict(zip(temporary, zip(host_of, offsets)))
    buffers: list[BufferUse] = []
    for op in values:
        if in_memory(op):
            buffers.append(BufferUse(op.dtype, _numel(op), "input", inputs[op]))
        elif op in wanted:
            before = inputs[order.over[op]] if op in order.over else None
            keeps = op.code is OpCode.UPDATE
            also = tuple(inputs[value] for value in order.also.get(op, ()))
            buffers.append(BufferUse(op.dtype, _numel(op), "output", outputs[op], before, keeps, also, op in order.late))
        else:
            host, offset = place[op]
            role, source = ("temporary", offset) if host is None else ("hosted", host)
            buffers.append(BufferUse(op.dtype, _numel(op), role, source))
    wanted_in = tuple(uses.index[root] for root in roots)
    return Schedule(tuple(items), tuple(buffers), tuple(inputs), wanted_in, arena_nbytes, order.commit)


def make_kernel(chosen: Group, fused: Fused) -> Step:
    """Returns a Kernel over PARAMs, with the value that is stored in each of its slots, and what its CHECKs were."""
    slots: dict[Op, Op] = {}
    used: dict[Op, tuple[int, int]] = {}
    checks: dict[Any, int] = {}
    outputs = {value for nest in chosen.nests for value in nest.stored}
    in_place = {value.src[0]: value for value in outputs if value.code is OpCode.UPDATE}

    def param(value: Op) -> Op:
        value = in_place.get(value, value)
        found = slots.get(value)
        if found is None:
            found = slots[value] = Op(OpCode.PARAM, value.dtype, (), (len(slots), value.shape))
        used[value] = used.get(value, (len(phases), 0))[0], len(phases)
        return found

    def numbered(op: Op) -> Any:
        found = site_of(op)
        return None if found is None else with_site(op, checks.setdefault(found[0], len(checks)))

    phases: list[tuple[Nest, ...]] = []
    for phase in chosen.phases:
        phases.append(tuple([_finish(nest, fused, param, numbered) for nest in phase]))
    roles = {value: "inout" if value in in_place.values() else "out" for value in outputs}
    params = tuple(Param(v.dtype, numel(v.shape), roles.get(v, "in")) for v in slots)
    kernel = Kernel(_name(chosen), params, _variables(phases), tuple(phases))
    read = {v.src[0] if p.role == "inout" else v for v, p in zip(slots, params) if p.role != "out"}
    written = tuple(v for v, p in zip(slots, params) if p.role != "in")
    return Step(kernel, tuple(slots), tuple(used.values()), tuple(read), written, tuple(checks), bool(checks))


class _Elsewhere(Record):
    """The values that other nests than this one store."""

    nest: Draft
    fused: Fused

    def __contains__(self, op: Op) -> bool:
        return self.fused.home.get(op, self.nest) is not self.nest


def _finish(nest: Draft, fused: Fused, param: Callable[[Op], Op], numbered: Callable[[Op], Any]) -> Nest:
    """Puts PARAMs where a nest reads memory, and its stored values into the shape of its domain or rows."""
    elsewhere = _Elsewhere(nest, fused)
    became: dict[Op, Op] = {}
    for op in toposort(nest.stored, stop=elsewhere):
        if op in elsewhere or in_memory(op):
            became[op] = param(op)
        elif op.code is OpCode.CONTIGUOUS:
            became[op] = became[op.src[0]]
        elif op.src:
            became[op] = op.replace(src=tuple(map(became.__getitem__, op.src)), arg=numbered(op))
        else:
            became[op] = op
        if became[op].code is not OpCode.PARAM:
            copy_lines(op, became[op], replace=True)
    outputs = []
    for value in dict.fromkeys(nest.stored):
        body = became[value]
        if nest.kind is NestKind.REDUCE and nest.domain != body.shape:
            body = _reshaped(body, nest.row_shape)
        elif nest.domain != body.shape and nest.kind is not NestKind.ATTENTION:
            body = _reshaped(body, nest.domain)
        outputs.append((param(value).arg[0], body))
    anchor = became[nest.anchors[0]] if nest.kind in WITH_ANCHOR else None
    return Nest(nest.kind, nest.domain, nest.reduced, anchor, tuple(outputs))


def _reshaped(value: Op, shape: Shape) -> Op:
    return value if value.shape == shape else Op(OpCode.RESHAPE, value.dtype, (value,), shape)


def _variables(phases: Sequence[tuple[Nest, ...]]) -> tuple[Op, ...]:
    """Returns the symbolic integers that domains and values mention, in the order of their names."""
    found: dict[Op, None] = {}
    seen: set[Op] = set()
    left: list[object] = [(nest.domain, *(value for _, value in nest.outputs)) for phase in phases for nest in phase]
    while left:
        item = left.pop()
        if isinstance(item, tuple):
            left += [part for part in item if isinstance(part, Op | tuple)]
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
    kind = first.anchors[0].arg.name if first.kind is NestKind.HOST else first.kind.value
    return f"{kind}_{shape}" + (f"_and_{count - 1}" if count > 1 else "")
