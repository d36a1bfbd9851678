"""Joins nests into kernels, and makes the Schedule of them in order: buffers whose memory is planned.

In:    nests in order (schedule/fuse.py); the order of kernels (schedule/memory.py)
Out:   `group`: lists of phases, each a list of nests;  `make_unit`: a Kernel of each;  `scheduled`: the Schedule

Small nests should not each pay for a launch, so they are joined in two ways. Elementwise nests that do not need each other
become one kernel (the updates of all parameters of a network). And nests become phases of one kernel: one that works on
the result of a reduction, or down the columns of the same data, follows it (the mean of a loss, the weight gradients of a
layer norm); a small reduction comes before its reader (the number of targets that count in a loss). On a GPU a nest that
only moves an attention's results is a phase of its kernel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.build import reshape
from picograd.ir.checks import MAY_FAIL, site_of, with_site
from picograd.ir.host import name_of
from picograd.ir.op import Dim, Op, Shape, greatest, greatest_numel, toposort
from picograd.ir.opcode import MOVEMENT, TRANSCENDENTAL, MemorySpace, OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.shape import numel
from picograd.ir.stages import WITH_ANCHOR, BufferUse, Kernel, LoopItem, Nest, NestKind, Param, Schedule, ScheduleItem
from picograd.record import Record, Struct, field
from picograd.schedule.loops import loop_item, memory_sources, roots_in_order
from picograd.schedule.memory import Lender, Lifetime, Order, Unit, place_temporaries, versions_of
from picograd.schedule.nest_draft import Draft, Fused, in_memory

# ---- groups ----
KERNEL_VALUES_MAX = 64  # parameters of a kernel of several nests, such as the updates of nine weights by Adam
KERNEL_OPS_MAX = 1024
CANDIDATES_MAX = 16  # kernels that are considered for a nest to join
KERNEL_LONG_OPS_MAX = 4  # long Ops that share a kernel: equal nests in kernels of their own are compiled once
LONG_OPS = 80  # short Ops that have as many instructions as a long one
SHARING_MAX = 1 << 15  # elements of a nest that shares a kernel: a larger one's launch is cheap compared with its work
PHASE_RATIO_MIN = 4  # two nests may be phases of one kernel if one is that many times smaller than the other


class Group(Struct, eq=False):
    """The nests of one kernel by phase.

    index:     its place in the order of kernels
    values:    values in memory that its nests read or store
    num_ops:   number of Ops that they compute
    num_long:  number of long Ops among these
    """

    index: int
    phases: list[list[Draft]] = field(default_factory=list)
    values: set[Op] = field(default_factory=set)
    num_ops: int = 0
    num_long: int = 0

    @property
    def first(self) -> Draft:
        return self.phases[0][0]

    @property
    def nests(self) -> list[Draft]:
        return [nest for phase in self.phases for nest in phase]

    def has_room(self, nest: Draft, values: Collection[Op]) -> bool:
        """True if the kernel stays short with `nest` in it, which reads or stores `values`."""
        return len(self.values.union(values)) <= KERNEL_VALUES_MAX and self.num_ops + nest.num_ops <= KERNEL_OPS_MAX

    def add(self, nest: Draft, values: Collection[Op], phase: int) -> None:
        """Puts `nest` into a phase, at most one behind the last."""
        if phase == len(self.phases):
            self.phases.append([])
        self.phases[phase].append(nest)
        self.values.update(values)
        self.num_ops += nest.num_ops


def group(fused: Fused, roots: Sequence[Op], target: Target | None) -> list[Group]:
    """Returns the kernels in order.

    After:  all that a nest needs is in an earlier group, or in an earlier phase of its own. Nests that share a kernel are
            small and short; the others are kernels of their own, of which equal ones are compiled once.
    """
    return _Grouper(fused, roots, target).run()


class _Grouper:
    """One visit of the nests in order. A nest joins no group before the last one that it needs.

    group_of:  a nest -> its group, and the phase
    open:      groups of elementwise nests alone, with room for more
    by_memory: memory -> the groups whose first nest is a reduction that reads it
    """

    def __init__(self, fused: Fused, roots: Sequence[Op], target: Target | None):
        self.fused = fused
        self.num_readers = count_readers(fused, roots) if target is not None and target.is_gpu else {}
        self.groups: list[Group] = []
        self.group_of: dict[Draft, tuple[Group, int]] = {}
        self.open: list[Group] = []
        self.by_memory: dict[Op, list[Group]] = {}

    def run(self) -> list[Group]:
        """Puts each nest into an existing group or a new one; returns the groups in order."""
        for nest in self.fused.nests:
            read = memory_read(nest, self.fused)
            chosen = self.find(nest, read)
            if chosen is None:
                chosen = Group(len(self.groups))
                self.groups.append(chosen)
                self.note(nest, read, chosen)
            phases = [phase for home, phase in map(self.group_of.__getitem__, nest.needs) if home is chosen]
            phase = max(phases, default=-1) + 1
            chosen.add(nest, [*read, *nest.stored], phase)
            chosen.num_long += num_long_ops(nest, self.fused) if nest.kind is NestKind.ELEMENTWISE else 0
            self.group_of[nest] = chosen, phase
        return self.groups

    def note(self, nest: Draft, read: Collection[Op], made: Group) -> None:
        """Enters a new group, whose first nest is `nest`, in the lists that later nests search."""
        if nest.kind is NestKind.ELEMENTWISE and greatest_numel(nest.domain) <= SHARING_MAX:
            self.open.append(made)
        elif nest.kind is NestKind.REDUCE:
            for leaf in read:
                self.by_memory.setdefault(leaf, []).append(made)

    def find(self, nest: Draft, read: Collection[Op]) -> Group | None:
        """Returns the last group that `nest` may join."""
        needed = max((self.group_of[need][0] for need in nest.needs), key=lambda found: found.index, default=None)
        found: Group | None = None
        if nest.kind is NestKind.ELEMENTWISE and greatest_numel(nest.domain) <= SHARING_MAX:
            found = self.group_with_room(nest, read)
        elif nest.kind is NestKind.REDUCE:
            found = self.group_over_same_memory(nest, read)
        if needed is None or (found is not None and found.index > needed.index):
            return found
        return needed if self.may_follow(nest, read, needed) else None

    def group_with_room(self, nest: Draft, read: Collection[Op]) -> Group | None:
        """Returns the last elementwise group with room."""
        num_long = num_long_ops(nest, self.fused)
        values = [*read, *nest.stored]
        self.open[-CANDIDATES_MAX:] = [g for g in self.open[-CANDIDATES_MAX:] if len(g.values) < KERNEL_VALUES_MAX]
        for found in reversed(self.open[-CANDIDATES_MAX:]):
            if found.has_room(nest, values) and (num_long == 0 or found.num_long + num_long <= KERNEL_LONG_OPS_MAX):
                return found
        return None

    def group_over_same_memory(self, nest: Draft, read: Collection[Op]) -> Group | None:
        """Returns the last group that reduces some of the same memory, over the same domain or a much larger one."""
        domain, values = nest.domain, [*read, *nest.stored]
        groups = [g for leaf in read for g in self.by_memory.get(leaf, [])[-CANDIDATES_MAX:]]
        alike = [g for g in groups if g.first.domain == domain or (not nest.needs and _is_small(domain, g.first.domain))]
        return max([g for g in alike if g.has_room(nest, values)], key=lambda g: g.index, default=None)

    def may_follow(self, nest: Draft, read: Collection[Op], needed: Group) -> bool:
        """True if `nest` may be a later phase of a group: it needs its reduction, or moves its attention's results."""
        if self.num_readers and places_heads(nest, read, needed.first, self.fused, self.num_readers):
            return True
        if nest.kind not in (NestKind.REDUCE, NestKind.ELEMENTWISE) or not needed.has_room(nest, [*read, *nest.stored]):
            return False
        if all(n.kind is not NestKind.REDUCE for n in needed.nests):
            return False
        for op in read:
            if op.code is OpCode.CONTIGUOUS and op in self.fused.home and self.group_of[self.fused.home[op]][0] is needed:
                return False  # the user asked for a cut here
        alike = nest.kind is NestKind.REDUCE and nest.domain == needed.first.domain
        return alike or _is_small(nest.domain, needed.first.domain) or _is_small(needed.first.domain, nest.domain)


def _is_small(domain: Shape, other: Shape) -> bool:
    return greatest_numel(domain) * PHASE_RATIO_MIN <= greatest_numel(other)


def num_long_ops(nest: Draft, fused: Fused) -> int:
    """Returns the number of long Ops of a nest, each of which becomes many instructions; LONG_OPS short ones count as one.

    Random bits count as two; computing their key does not count.
    """
    computed = _walk(nest, fused)
    long = sum([op.code in TRANSCENDENTAL and op.code is not OpCode.THREEFRY for op in computed])
    random = sum([op.code is OpCode.THREEFRY and op.shape != () for op in computed])
    return long + 2 * random + len(computed) // LONG_OPS


def memory_read(nest: Draft, fused: Fused) -> dict[Op, None]:
    """Returns the values in memory that a nest reads: buffers, and values that other nests have stored."""
    return {op: None for op in _walk(nest, fused) if in_memory(op) or fused.home.get(op, nest) is not nest}


def _walk(nest: Draft, fused: Fused) -> list[Op]:
    """Returns the values that a nest computes, and those in memory that it reads."""
    found = list(nest.stored)
    seen = set(found)
    for op in found:  # grows meanwhile
        if not (in_memory(op) or fused.home.get(op, nest) is not nest):
            fresh = [s for s in dict.fromkeys(op.src) if s not in seen]
            seen.update(fresh)
            found += fresh
    return found


# ---- results of an attention on a GPU ----
PLACING = MOVEMENT | {OpCode.ADD, OpCode.CONTIGUOUS}  # join values: each is padded with zeros where the others are


def count_readers(fused: Fused, roots: Sequence[Op]) -> Counter[Op]:
    """Returns the number of nests that read each value in memory; a root counts one reader more."""
    return Counter([*roots, *[op for nest in fused.nests for op in memory_read(nest, fused)]])


def places_heads(nest: Draft, read: Collection[Op], first: Draft, fused: Fused, num_readers: Mapping[Op, int]) -> bool:
    """True if `nest` does nothing but move results of the attention `first` that no other nest reads, to join gradients.

    The attention then stores them in their final place (codegen/attention.py).
    """
    if nest.kind is not NestKind.ELEMENTWISE or first.kind is not NestKind.ATTENTION:
        return False
    is_own = all(fused.home.get(op) is first and num_readers[op] == 1 for op in read)
    return is_own and all(op in read or op.code in PLACING for op in _walk(nest, fused))


# ---- kernels and their Schedule ----
OfBody = Callable[[tuple[Op, ...]], Schedule]  # the roots of a body -> its Schedule


class _Uses(Struct):
    """The buffers of a schedule while it is made: each value's index, and when it is used.

    A moment is a phase of a kernel, or a loop; moments are numbered through the schedule. A phase begins when the last one
    is over, so a value that is last read in one phase may share memory with a value that the next phase writes.

    memory: value -> the value whose memory it is written into
    first:  for each buffer the first moment at which it is used
    last:   for each buffer the last moment
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


def make_unit(chosen: Group, fused: Fused, schedule_of: OfBody) -> Unit:
    """Returns a group as a unit: a kernel, or a loop over the schedule of its body.

    Args:
      schedule_of:  the roots of a body -> its Schedule
    """
    first = chosen.phases[0][0]
    if first.kind is not NestKind.LOOP:
        return make_kernel(chosen, fused)
    loop = first.anchors[0]
    may_fail = any(item.checks for item in schedule_of(roots_in_order(loop)).kernel_items())
    return Unit(None, (loop,), ((0, 0),), tuple(memory_sources(loop)), tuple(first.stored), (), may_fail)


def scheduled(
    roots: Sequence[Op], units: Sequence[Unit], order: Order, schedule_of: OfBody, is_outermost: bool
) -> Schedule:
    """Returns the Schedule of units in an order, with a place for every value.

    Args:
      is_outermost:  values may be placed in outputs before these are written
    """
    uses = _Uses({version: root for root in roots for version in versions_of(root)})
    items: list[ScheduleItem | LoopItem] = []
    begins = [0]  # the first moment of each item
    for unit in map(units.__getitem__, order.units):
        now = begins[-1]
        if unit.kernel is None:
            items.append(_loop_item(unit, uses, now, schedule_of))
            begins.append(now + 1)
        else:
            buffers = tuple([uses.use(v, now + first, now + last) for v, (first, last) in zip(unit.values, unit.phases)])
            items.append(ScheduleItem(unit.kernel, buffers, unit.checks))
            begins.append(now + len(unit.kernel.phases))
    for value in [*order.over.values(), *roots]:
        uses.use(value, begins[-1], begins[-1])
    return _with_memory(roots, items, uses, order, begins, is_outermost)


def _loop_item(unit: Unit, uses: _Uses, now: int, schedule_of: OfBody) -> LoopItem:
    """Returns the item of a CALL or LOOP, which runs at one moment."""
    loop = unit.values[0]

    def own_memory(nbytes: int) -> int:
        return uses.use(Op(OpCode.ALLOC, dtypes.uint8, (), (f"loop{now}", nbytes, MemorySpace.GLOBAL)), now, now)

    schedule = schedule_of(roots_in_order(loop))
    return loop_item(loop, unit.written, schedule, lambda value: uses.use(value, now, now), own_memory)


def _numel(op: Op) -> Dim:
    """Returns the elements of a value, or of the memory of a loop."""
    return op.arg[1] if op.code is OpCode.ALLOC else numel(op.shape)


def _lifetime(op: Op, uses: _Uses) -> Lifetime:
    """Returns the time during which a temporary holds data; a loop's own memory is always in the arena."""
    first, last = uses.first[uses.index[op]], uses.last[uses.index[op]]
    return Lifetime(greatest(_numel(op)) * op.dtype.itemsize, first, last, op.code is OpCode.ALLOC)


def _lenders(outputs: Sequence[Op], uses: _Uses, order: Order, begins: Sequence[int]) -> dict[Op, Lender]:
    """Returns the outputs whose memory other values may use before the outputs are written.

    Outputs that may replace an input in its memory are left out: it may hold the old value until the last CHECK has run.
    """
    found: dict[Op, Lender] = {}
    for op in outputs:
        numel = _numel(op)
        if isinstance(numel, int) and op not in order.over and not order.also.get(op):
            first = begins[order.commit] if op in order.late else 0
            found[op] = Lender(numel * op.dtype.itemsize, first, uses.first[uses.index[op]])
    return found


def _with_memory(
    roots: Sequence[Op], items: list[ScheduleItem | LoopItem], uses: _Uses, order: Order, begins: Sequence[int],
    is_outermost: bool,
) -> Schedule:  # fmt: skip
    """Returns the Schedule: buffers become inputs, outputs or temporaries, and temporaries get a place."""
    values = list(uses.index)
    wanted = dict.fromkeys([root for root in roots if not in_memory(root)])
    inputs = {op: i for i, op in enumerate([op for op in values if in_memory(op)])}
    temporary = [op for op in values if op not in inputs and op not in wanted]
    outputs = {op: i for i, op in enumerate(wanted)}
    place, arena_nbytes = {}, 0
    if temporary:
        lenders = _lenders(list(outputs), uses, order, begins) if is_outermost else {}
        chosen, offsets, arena_nbytes = place_temporaries([_lifetime(op, uses) for op in temporary], list(lenders.values()))
        lender_of = [None if number is None else outputs[list(lenders)[number]] for number in chosen]
        place = dict(zip(temporary, zip(lender_of, offsets)))
    buffers: list[BufferUse] = []
    for op in values:
        if op in inputs:
            buffers.append(BufferUse(op.dtype, _numel(op), "input", inputs[op]))
        elif op in wanted:
            before = inputs[order.over[op]] if op in order.over else None
            keeps = op.code is OpCode.UPDATE
            also = tuple(inputs[value] for value in order.also.get(op, ()))
            buffers.append(BufferUse(op.dtype, _numel(op), "output", outputs[op], before, keeps, also, op in order.late))
        else:
            lender, offset = place[op]
            role, source = ("temporary", offset) if lender is None else ("lent", lender)
            buffers.append(BufferUse(op.dtype, _numel(op), role, source))
    wanted_in = tuple(uses.index[root] for root in roots)
    return Schedule(tuple(items), tuple(buffers), tuple(inputs), wanted_in, arena_nbytes, order.commit)


def make_kernel(chosen: Group, fused: Fused) -> Unit:
    """Returns the Unit of a Kernel over PARAMs, with the value in each of its slots and the sites of its CHECKs."""
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
    if chosen.phases[0][0].kind is NestKind.ATTENTION:  # it may store values that a later phase would have moved
        used = dict.fromkeys(used, (0, len(phases) - 1))
    roles = {value: "inout" if value in in_place.values() else "out" for value in outputs}
    params = tuple(Param(v.dtype, numel(v.shape), roles.get(v, "in")) for v in slots)
    kernel = Kernel(_name(chosen), params, _variables(phases), tuple(phases))
    read = {v.src[0] if p.role == "inout" else v for v, p in zip(slots, params) if p.role != "out"}
    written = tuple(v for v, p in zip(slots, params) if p.role != "in")
    return Unit(kernel, tuple(slots), tuple(used.values()), tuple(read), written, tuple(checks), bool(checks))


class _Elsewhere(Record):
    """The set of values that nests other than this one store."""

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
            arg = numbered(op) if op.code in MAY_FAIL else None
            became[op] = op.replace(src=tuple(map(became.__getitem__, op.src)), arg=arg)
        else:
            became[op] = op
        if became[op].code is not OpCode.PARAM:
            copy_lines(op, became[op], replace=True)
    outputs = []
    for value in dict.fromkeys(nest.stored):
        body = became[value]
        if nest.kind is NestKind.REDUCE and nest.domain != body.shape:
            body = reshape(body, nest.row_shape)
        elif nest.domain != body.shape and body.code is not OpCode.OUTPUT:
            body = reshape(body, nest.domain)
        outputs.append((param(value).arg[0], body))
    anchor = became[nest.anchors[0]] if nest.kind in WITH_ANCHOR else None
    return Nest(nest.kind, nest.domain, nest.reduced, anchor, tuple(outputs))


def _variables(phases: Sequence[tuple[Nest, ...]]) -> tuple[Op, ...]:
    """Returns the symbolic integers of domains and values, in the order of their names."""
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
    kind = name_of(first.anchors[0]) if first.kind is NestKind.HOST else first.kind.value
    return f"{kind}_{shape}" + (f"_and_{count - 1}" if count > 1 else "")
