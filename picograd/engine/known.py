"""Graphs that were seen before: how their plan is found again.

In:    Ops whose values are wanted;  the Template of a graph that has no plan yet
Out:   `look_at`: `Seen`, the key of graphs with the memory and the numbers that they read;  `Known`: their plan
       `Scalars`: a form whose changing constants, offsets and lengths are inputs of its plan
       `Families`: keys of graphs with symbolic lengths;  `with_symbols`: the graphs themselves with these
       `Repeats`: a warning, on the user's line, about a form that is planned again and again

Eager code computes the same graphs again and again, over other memory, with other numbers and offsets. One walk over a
graph is enough to find its plan; the form, from which plans are made, takes several. The walk tells graphs apart as exactly
as the form does, but gives up at symbolic integers, which only a form replaces by their variables.

    for step in range(1000):
        p -= (1 - step / 1000) * p.grad         # a new graph at each step, because of one number

The first graph of a form is compiled with its numbers. The second, if some numbers differ, is compiled with those as
inputs, and its plan serves all later graphs. An exponent stays a number: x ** 2 is compiled differently from x ** 2.1.
Offsets of blocks, as in x[i : i + 64], and lengths are treated as such numbers; engine/lengths.py says how they enter a
plan. A form whose lengths cannot be inputs is scheduled and compiled for each new length.

    for episode in episodes:                    # 23 steps, then 31, then 18
        loss = update(states, actions, returns) # the third is planned for all lengths from 16 to 31

From the third length on, formulas and gradients are not written out for each length. Lengths become symbolic in the graph
as the walk saw it, where a loss, a mean and all gradients are one Op each. Formulas and gradients are then written out
with symbolic lengths, as in a jitted function, and hold for all lengths within the bounds. If a formula or a kernel needs
a number, lengths become inputs of the form only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, cast

from picograd.autodiff.gradient import WRITTEN_LATER, graph_sources, written_out
from picograd.dtype import bool_
from picograd.engine.devices import EVALUATOR, compiler_for
from picograd.engine.lengths import (
    BLOCKS,
    FIXED,
    WITH_LENGTHS,
    AxisOfValue,
    Lengths,
    Moving,
    Offset,
    Pairs,
    Sizes,
    TooWide,
    bound_to,
    dims_in,
    free_prefix,
    lengths_of,
    offsets_of,
    regrouped,
    with_channels,
    with_lengths,
)
from picograd.engine.plan import Template
from picograd.errors import OutOfMemoryError, PlanningWarning, UnsupportedOp, warn_user
from picograd.interrupts import Latest, lock
from picograd.ir.bodies import formula_results
from picograd.ir.host import offers
from picograd.ir.op import Buffer, Dim, Op, Shape, const, memory_op, toposort, unshared
from picograd.ir.opcode import ATTENTIONS, COSTLY, MOVEMENT, OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.stages import Plan
from picograd.record import Record, Struct, replace

# ---- graphs, told by one walk ----
DEVICE, VALUE, ROOM = attrgetter("device"), attrgetter("value"), attrgetter("room")
VIEWS_MAX = 6  # steps from a view to memory that are written out each time: a walk stays linear
LEFT_TO_FORMS = frozenset({OpCode.BIND, OpCode.COPY})
SPECIAL = LEFT_TO_FORMS | BLOCKS | COSTLY | {OpCode.LEAF, OpCode.CONST, OpCode.GRADIENT, OpCode.FORMULA}


class Varied(Record, eq=False):
    """The lengths and offsets of graphs whose plan is for many lengths (`Families`).

    exact_key:  the key of the graphs with their lengths as numbers
    sizes:      the symbolic lengths, with their values
    moving:     the offsets of blocks
    changing:   CONSTs that had other values in graphs of other lengths
    """

    exact_key: tuple[Any, ...]
    sizes: Sizes
    moving: Moving
    changing: frozenset[Op]

    def values(self) -> dict[str, int]:
        """Returns the values of all symbolic integers by name."""
        return {**self.sizes.values, **self.moving.values()}


class Seen(Record, eq=False):
    """Graphs, and everything that one walk over them found.

    key:      all that a plan depends on, with the device, without numbers and offsets
    buffers:  the memory that they read, all of one device
    numbers:  their CONSTs
    blocks:   their SHRINKs and PADs
    parts:    for each block the block of the form that it became; all steps of a loop may have become one
    results:  for each graph its number among the plan's results, once there is a plan; equal graphs share a result
    costly:   Ops without gradients whose values may be worth keeping: expensive ones, and random draws
    graphs:   the roots, formulas and gradients not written out
    ops:      the Ops in the order of the walk: one for each part of the key that is not the number of an earlier Op
    number:   place of each Op in `ops`
    kept:     further Ops whose values are kept, once that is known
    varied:   lengths and offsets, if the key has symbolic lengths
    is_alone: no other graph has differed in lengths alone, or each length has a plan of its own
    has_own:  they come so often that kernels for these very lengths pay
    """

    key: tuple[Any, ...]
    buffers: list[Buffer]
    numbers: list[Op]
    blocks: list[Op]
    results: list[int]
    costly: list[Op]
    graphs: Sequence[Op]
    ops: list[Op]
    number: dict[Op, int]
    parts: Sequence[Op] = ()
    kept: Sequence[Op] = ()
    varied: Varied | None = None
    is_alone: bool = False
    has_own: bool = False

    def keeping(self, kept: Sequence[Op]) -> Seen | None:
        """Returns the same graphs with Ops to keep; None if the walk has no number for one of these."""
        return replace(self, kept=kept) if self.number.keys() >= {*kept} else None


class KnownOffset(NamedTuple):
    """One offset of a plan.

    block, axis:  the number of its SHRINK or PAD, and the axis
    name:         the symbolic integer that it moves with; None if it is constant
    constant:     its distance from that integer, or its value
    """

    block: int
    axis: int
    name: str | None
    constant: int


class Known(NamedTuple):
    """The plan of some graphs.

    takes:    for each input of the plan the number of a buffer, or ~ the number of a constant
    made:     further buffers, numbered behind those of the graphs: constants that follow from the key, as 1 / n in a mean
    numbers:  the constants that later graphs must have; None for one that may differ
    offsets:  the offsets of all blocks
    lengths:  values of symbolic lengths, by name
    results:  for each graph, then for each value that is kept, its number among the plan's results
    kept:     numbers of the Ops whose values are kept
    """

    plan: Plan
    takes: tuple[int, ...]
    made: list[Buffer]
    numbers: list[Op | None]
    offsets: list[KnownOffset]
    lengths: dict[str, int]
    results: list[int]
    kept: Sequence[int]

    @staticmethod
    def of(seen: Seen, form: Template, plan: Plan) -> Known | None:
        """Returns the record by which the plan of graphs is found; None if the graphs alone do not determine its inputs.

        The user's symbolic integers are inputs of that kind. If the plan takes a constant that is not in the graphs, it
        may follow from constants that are, so later graphs must have the same ones.

        Args:
          form:  the form that the plan was made of
        """
        varied, lengths = seen.varied, {} if form.sizes is None else form.sizes.values
        values, free = (form.moving.values(), form.moving.named()) if form.moving.offsets else ({}, {})
        of_blocks: dict[tuple[Op, int], tuple[str, int]] = {}
        num_lengths = len(lengths)
        if varied is not None:
            values, of_blocks = {**values, **varied.moving.values()}, varied.moving.named()
            num_lengths += len(varied.sizes.values)
        if len(form.variables) > len(values) + num_lengths:
            return None
        place = {buffer: i for i, buffer in enumerate(seen.buffers)}
        place |= {form.leaves[op].arg[0]: ~i for i, op in enumerate(seen.numbers) if op in form.leaves}
        numbers = [None if op in form.leaves else op for op in seen.numbers]
        offsets = []
        for i, (block, part) in enumerate(zip(seen.blocks, seen.parts)):
            if part.code is not block.code or len(part.arg) != len(block.arg):
                part = block  # it became part of a loop's body, where its offset is constant
            for axis, ((start, _), (first, _)) in enumerate(zip(block.arg, part.arg)):
                if (block, axis) in of_blocks:
                    offsets.append(KnownOffset(i, axis, *of_blocks[block, axis]))
                elif start.__class__ is int and first.__class__ is int:
                    name, constant = free.get((part, axis), (None, first))
                    offsets.append(KnownOffset(i, axis, name, constant + start - first))
        reads = [form.buffers[op.arg[0]] for op in plan.schedule.inputs]
        constants = {leaf.arg[0] for op, leaf in form.leaves.items() if op.code is OpCode.CONST}
        made = [buffer for buffer in dict.fromkeys(reads) if buffer not in place]
        if not constants.issuperset(made):
            return None
        moved = {offset.name for offset in offsets}  # other offsets, such as a loop's last row, follow from the key
        lengths = {**lengths, **{name: value for name, value in values.items() if name not in moved}}
        numbers = [*seen.numbers] if made or _decide_more(seen, numbers) else numbers
        place |= {buffer: len(seen.buffers) + i for i, buffer in enumerate(made)}
        takes, kept = tuple(map(place.__getitem__, reads)), [seen.number[op] for op in seen.kept]
        return Known(plan, takes, made, numbers, offsets, lengths, seen.results, kept)

    def variables(self, seen: Seen) -> dict[str, int] | None:
        """Returns the values of the plan's symbolic integers for these graphs; None if they need another plan."""
        for ours, theirs in zip(self.numbers, seen.numbers):
            if ours is not theirs and ours is not None:
                return None
        values: dict[str, int] = {}
        for block, axis, name, constant in self.offsets:
            start = seen.blocks[block].arg[axis][0] - constant
            if start if name is None else values.setdefault(name, start) != start:
                return None
        if seen.varied is not None:
            values.update(seen.varied.sizes.values)
        return {**self.lengths, **values} if self.lengths else values


def look_at(roots: Sequence[Op]) -> Seen | None:
    """Returns the key of graphs and the places of their numbers; None if only a form can tell them from others.

    The walk goes from the roots to the sources and writes an Op that it meets again as its number: equal keys mean equal
    graphs. A block of memory is written out each time, because two random pieces of a text that happen to begin at one
    place are one Op, but need the same plan as two others. A second walk goes through the graphs that GRADIENTs
    differentiate, also past computed values. If the first walk ended at such a value, the second numbers Ops from 0 again.
    """
    key: list[Hashable] = []
    slots: dict[Buffer, int] = {}
    numbers: list[Op] = []
    blocks: list[Op] = []
    differentiated: list[Op] = []
    costly: list[Op] = []
    ops: list[Op] = []
    before: dict[Op, int] = {}
    number: dict[Op, int] = {}
    is_cut = False
    for stack in ([*roots], differentiated):
        if is_cut:
            before, number = number, {}
        while stack:
            op = stack.pop()
            code = op.code
            place = number.get(op)
            if place is not None and not (code in MOVEMENT and _is_block_of_memory(op)):
                key.append(place)
                continue
            number[op] = len(ops)
            ops.append(op)
            leaf = op if code is OpCode.BUFFER else op.realized
            if leaf is not None:
                buffer, shape = leaf.arg
                key.append((slots.setdefault(buffer, len(slots)), leaf.dtype, shape))
                if not op.needs_grad:
                    continue
                if stack is not differentiated:
                    is_cut = True
                    continue
                ops.append(op)
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
                key.append((code, op.dtype, *_lengths_kept(op)))
                blocks.append(op)
                stack += op.src
            elif code is OpCode.GRADIENT:
                key.append((code, op.arg, len(op.src)))
                differentiated += op.src
            else:
                return None
    buffers = [*slots]
    if not buffers or len({*map(DEVICE, buffers)}) > 1:
        return None
    key.append((len(roots), buffers[0].device, offers.key))
    return Seen(tuple(key), buffers, numbers, blocks, [], costly, roots, ops, {**before, **number})


def _decide_more(seen: Seen, numbers: Sequence[Op | None]) -> bool:
    """True if a number that may change is in other places of the written graphs, too, or decides what these are.

    In `x.mean(0) * k`, where k is the length of x, the plan reads one number for both. The gradient of `x ** 0` is a zero,
    that of `x ** 4` has a product and another exponent. To find out, the graphs are written out with other numbers: they
    must be the same graphs with others in these places. Plans have no number that a length is bound to.
    """
    others = {op: _another(op) for op, number in zip(seen.numbers, numbers) if number is None}
    if not others:
        return False
    order, changed = _written_order(seen.graphs, {}), _written_order(seen.graphs, others)
    became = dict(zip(order, changed))
    for op, other in became.items():
        if op in others and other is not others[op]:
            return True
        if op not in others and other is not op:
            src = tuple([became.get(s) for s in op.src])
            if (op.code, op.dtype, op.arg, src) != (other.code, other.dtype, other.arg, other.src):
                return True
    return len(order) != len(changed)


def _written_order(graphs: Sequence[Op], others: Mapping[Op, Op]) -> list[Op]:
    """Returns the Ops of written graphs with other numbers, sources first."""
    written = written_out(graphs, others)
    return toposort(written, sources=lambda op: () if op.code is OpCode.BIND else graph_sources(op))


def _another(number: Op) -> Op:
    """Returns a constant of another value; a bool, an infinity or a NaN is returned itself, so that it counts as fixed."""
    value = number.arg
    if isinstance(value, bool):
        return number
    other = value / 2 + (0.3 if value < 0.5 else 0.2) if isinstance(value, float) else value - 1 if value > 0 else value + 1
    return const(other, number.dtype)


def _is_block_of_memory(op: Op) -> bool:
    """Returns whether an Op is a view of computed memory, few steps away, one of them a block, without gradients."""
    has_block = False
    for _ in range(VIEWS_MAX):
        if op.realized is not None or op.code not in MOVEMENT:
            break
        has_block = has_block or op.code is OpCode.SHRINK
        op = op.src[0]
    return has_block and not op.needs_grad and (op.code is OpCode.BUFFER or op.realized is not None)


def _lengths_kept(block: Op) -> Iterator[Hashable]:
    """Yields the lengths that a SHRINK keeps or a PAD adds along each axis: its argument without offsets."""
    is_shrink = block.code is OpCode.SHRINK
    for start, end in block.arg:
        if start.__class__ is not int or end.__class__ is not int:
            yield start, end
        else:
            yield end - start if is_shrink else start + end


# ---- forms with numbers that change ----
INPUTS_MAX = 32  # numbers of a form that change: more of them are data, which belong in a Tensor
OFFSETS_MAX = 256  # offsets of a form that move independently


class _Form(Struct):
    """Knowledge of graphs that differ in numbers, offsets and lengths.

    values:   constants of the first graph
    offsets:  axes and values of its blocks' offsets
    lengths:  the lengths of all graphs
    """

    values: tuple[float, ...]
    offsets: tuple[AxisOfValue, ...]
    lengths: Lengths


class _FormOfLengths(Struct):
    """Knowledge of graphs with the same lengths that differ in numbers and offsets.

    values:   constants of the first graph
    offsets:  axes and values of its blocks' offsets
    changed:  numbers of the constants that have changed so far
    groups:   the group of each offset: those of one group have always moved by the same distance
    """

    values: tuple[float, ...]
    offsets: tuple[AxisOfValue, ...]
    changed: frozenset[int]
    groups: tuple[int, ...]


class Scalars:
    """The forms of graphs seen so far, and which of their constants have changed; safe to use from several threads.

    All eager graphs share one; a jitted function has one for its captures.
    """

    def __init__(self, most_forms: int = 1024) -> None:
        self.most_forms = most_forms
        self._forms: Latest[Hashable, _Form] = Latest(most_forms)
        self._seen: Latest[Hashable, _FormOfLengths] = Latest(most_forms)
        self._first: dict[Hashable, int] = {}  # offset of each block of memory that a line cuts
        self._lock = lock()

    def generalized(
        self, form: Template, device: str, stored: Callable[[Op], Op], varied: Varied | None = None, has_own: bool = False
    ) -> Template:
        """Returns a form with the constants that change as inputs; `form` itself if none is known to change.

        Args:
          stored:  returns a BUFFER Op that holds a constant
          varied:  lengths that are symbolic already
          has_own: True: lengths stay numbers

        Raises:
          UnsupportedOp: lengths are symbolic already, and this form needs numbers.
        """
        parts = _form_apart(form)
        constants, offsets = parts.constants, parts.offsets
        values, places = tuple([op.arg for op in constants]), tuple([(offset.axis, offset.value) for offset in offsets])
        key = (device, *parts.rest)
        with self._lock:
            if key not in self._forms:
                lengths = Lengths(len(parts.lengths), needs_numbers(form, device), parts.has_windows)
                self._forms.put(key, _Form(values, places, lengths))
            known = self._forms[key]
            if varied is not None and known.lengths.is_refused:
                raise UnsupportedOp("realize: this has a plan for each length.")
            sizes = None if has_own else known.lengths.sizes(parts.sample(), free_prefix(form.variables, "length"))
            own = (key, parts.lengths if sizes is None else sizes.key)
            if own not in self._seen:
                first = _Form(values, places, known.lengths) if sizes is None else known
                seen = _FormOfLengths(first.values, first.offsets, frozenset(), self._moved(offsets, form))
                self._seen.put(own, seen)
            differ = set() if varied is None else {i for i, op in enumerate(constants) if op in varied.changing}
            changed, groups = self._changed(self._seen[own], values, places, differ)
        if not changed and not any(groups) and sizes is None:
            return form
        moving = _moving(parts, groups, sizes, free_prefix(form.variables))
        leaves = {constants[i]: stored(constants[i]) for i in sorted(changed)}
        kept = tuple([None if i in changed else _bits(value) for i, value in enumerate(values)])
        return replace(
            form,
            key=(*own, kept, moving.groups, moving.constants()),
            leaves={**form.leaves, **leaves},
            buffers=(*form.buffers, *(leaf.arg[0] for leaf in leaves.values())),
            variables={**form.variables, **moving.values(), **({} if sizes is None else sizes.values)},
            moving=moving,
            sizes=sizes,
        )

    def refuse(self, form: Template, unequal: Pairs) -> None:
        """Notes that a form has no plan with its symbolic lengths: its graphs get others from now on, or none.

        Args:
          unequal:  lengths that an Op needed equal
        """
        with self._lock:
            known = self._forms.get(form.key[0])
            if known is not None:
                known.lengths.refuse(unequal)

    def _moved(self, offsets: Sequence[Offset], form: Template) -> tuple[int, ...]:
        """Returns the groups of a new form's offsets: those that moved in earlier forms of the same line move here, too.

        The second step of a training often has another form than the first, in which the optimizer had no state yet.
        """
        if not offsets:
            return ()
        blocks = [offset.block() if offset.op.src[0] in form.leaves else None for offset in offsets]
        if len(self._first) >= self.most_forms:
            self._first.clear()
        before = [
            offset.value if block is None or blocks.count(block) > 1 else self._first.setdefault(block, offset.value)
            for offset, block in zip(offsets, blocks)
        ]
        axes = [offset.axis for offset in offsets]
        return regrouped([FIXED] * len(axes), list(zip(axes, before)), [(o.axis, o.value) for o in offsets])

    def _changed(
        self, seen: _FormOfLengths, values: tuple[float, ...], offsets: tuple[AxisOfValue, ...], differ: set[int]
    ) -> tuple[frozenset[int], tuple[int, ...]]:
        """Returns the constants of a form that have changed so far, with these values, and the groups of its offsets.

        Args:
          differ:  constants that are known to change for other reasons
        """
        differ |= {i for i, (a, b) in enumerate(zip(values, seen.values)) if _bits(a) != _bits(b)}
        groups = regrouped(seen.groups, seen.offsets, offsets)
        if max(groups, default=FIXED) <= OFFSETS_MAX:
            seen.groups = groups
        elif groups != seen.groups:
            groups = (FIXED,) * len(offsets)
        if len(seen.changed | differ) > INPUTS_MAX:
            return frozenset(), groups
        if not differ <= seen.changed:
            seen.changed |= differ
        return seen.changed, groups


def needs_numbers(form: Template, device: str) -> bool:
    """Returns whether a form needs a plan for each length: some kernels of a GPU give other bits for symbolic lengths."""
    if device == EVALUATOR or not compiler_for(device).device.target.is_gpu:
        return False
    return any(op.code in ATTENTIONS and len(op.src) != 4 and op not in form.leaves for op in form.order)


class _Apart(Record):
    """A form, or a graph, taken apart.

    rest:       its key without numbers, offsets and lengths
    constants:  its numbers
    offsets:    offsets of its blocks
    lengths:    all lengths
    has_windows: it has convolutions, whose kernels are faster for numbers than for symbolic lengths
    """

    rest: tuple[Hashable, ...]
    constants: list[Op]
    offsets: tuple[Offset, ...]
    lengths: tuple[int, ...]
    has_windows: bool = False

    def sample(self) -> tuple[int, ...]:
        """Returns the lengths, the starts of blocks, and their rooms."""
        return (*self.lengths, *map(VALUE, self.offsets), *map(ROOM, self.offsets))


def _form_apart(form: Template) -> _Apart:
    constants = _constants(form)
    places: dict[Op, Hashable] = {op: (f"number {i}", op.dtype) for i, op in enumerate(constants)}
    offsets: list[Offset] = []
    lengths: list[int] = []
    rest: list[Hashable] = []
    has_windows = False
    for op, part in zip(form.order, form.key):
        is_leaf = op in form.leaves
        if op.code in BLOCKS and not is_leaf:
            part = (*part[:2], offsets_of(op, part[2], offsets, lengths), *part[3:])
        elif is_leaf or op.code in WITH_LENGTHS:
            part = lengths_of(op, is_leaf, part, lengths)
        elif op.code is OpCode.CONV or op.code is OpCode.FORMULA:
            whole = with_channels(op, part)
            part, has_windows = whole, has_windows or whole is not part
        rest.append(places.get(op, part))
    return _Apart((tuple(rest), form.key[-1]), constants, tuple(offsets), tuple(lengths), has_windows)


def _moving(parts: _Apart, groups: tuple[int, ...], sizes: Sizes | None, prefix: str) -> Moving:
    """Returns the offsets of a form; those that follow from lengths do not move independently."""
    if sizes is None:
        return Moving(parts.offsets, groups, prefix)
    of_blocks, count = sizes.dims[len(parts.lengths) :], len(parts.offsets)
    starts, rooms = of_blocks[:count], of_blocks[count:]
    groups = tuple([group if start is None else FIXED for group, start in zip(groups, starts)])
    return Moving(parts.offsets, groups, prefix, starts, rooms)


def _constants(form: Template) -> list[Op]:
    """Returns the numbers of a form that may be inputs."""
    exponents = {_source(op.src[1]) for op in form.order if op.code is OpCode.POW and op not in form.leaves}
    return [
        op for op in form.order if op.code is OpCode.CONST and op.dtype is not bool_ and op not in exponents
    ]  # fmt: skip


def _source(op: Op) -> Op:
    while op.code in MOVEMENT:
        op = op.src[0]
    return op


def _bits(value: float) -> bytes | int:
    return value if isinstance(value, int) else struct.pack("d", value)  # -0.0 is not 0.0, and NaN is NaN


# ---- graphs that differ in lengths ----
FAMILIES_MAX = 1024  # graphs whose lengths are remembered


class _Family(Struct):
    """Graphs that differ in lengths, offsets and numbers.

    lengths:  the lengths of those seen so far
    numbers:  the numbers of the first graph
    changed:  places of the numbers that have changed so far
    offsets:  axes and values of the first graph's offsets
    groups:   the group of each offset, as in `_FormOfLengths`
    """

    lengths: Lengths
    numbers: Sequence[Op]
    changed: set[int]
    offsets: tuple[AxisOfValue, ...]
    groups: tuple[int, ...]


class Families:
    """The graphs seen so far, by their keys without lengths; safe to use from several threads."""

    def __init__(self) -> None:
        self._known: Latest[Hashable, _Family] = Latest(FAMILIES_MAX)
        self._lock = lock()

    def varied(self, seen: Seen) -> tuple[Seen, Seen | None]:
        """Returns graphs with what is known of their lengths, and the same with symbolic lengths; None if they keep theirs.

        They are alone with their lengths where no other graph differed in lengths alone, or where those that did are
        refused. Graphs with convolutions that come often have a plan of their own.
        """
        parts = _graph_apart(seen)
        sample, places = parts.sample(), tuple([(offset.axis, offset.value) for offset in parts.offsets])
        with self._lock:
            family = self._known.get(parts.rest)
            if family is None:
                lengths = Lengths(len(parts.lengths), has_windows=parts.has_windows)
                family = _Family(lengths, seen.numbers, set(), places, (FIXED,) * len(places))
                self._known.put(parts.rest, family)
            if parts.has_windows and family.lengths.comes_often(sample):
                return replace(seen, has_own=True), None
            sizes = family.lengths.sizes(sample, "length")
            is_alone = family.lengths.is_refused or len(family.lengths.samples) < 2
            groups = regrouped(family.groups, family.offsets, places)
            if max(groups, default=FIXED) <= OFFSETS_MAX:
                family.groups = groups
                family.changed |= {i for i, (a, b) in enumerate(zip(seen.numbers, family.numbers)) if a is not b}
            else:
                sizes = None
            changing = frozenset([seen.numbers[i] for i in family.changed])
        if sizes is None:
            return replace(seen, is_alone=True) if is_alone else seen, None
        moving = _moving(parts, groups, sizes, "offset")
        key = (parts.rest, sizes.key, moving.groups)
        return seen, replace(seen, key=key, varied=Varied(seen.key, sizes, moving, changing))

    def other_than(self, seen: Seen, error: Exception) -> Seen | None:
        """Returns graphs with other symbolic lengths than these; None if they keep theirs.

        Args:
          error:  the reason why no plan of these can be made, or run
        """
        assert seen.varied is not None
        if isinstance(error, OutOfMemoryError):  # these lengths are too large, not their plan
            return None
        with self._lock:
            family = self._known.get(seen.key[0])
            if family is not None and isinstance(error, TooWide):
                family.lengths.narrow_bounds()
            elif family is not None:
                family.lengths.refuse(getattr(error, "unequal", ()))
        _, varied = self.varied(replace(seen, key=seen.varied.exact_key, varied=None))
        return None if varied is None or varied.key == seen.key else varied


def _graph_apart(seen: Seen) -> _Apart:
    """Returns a graph without its lengths and offsets, and these."""
    has_windows = False
    rest: list[Hashable] = []
    offsets: list[Offset] = []
    lengths: list[int] = []
    for op, part, is_leaf in _keyed_parts(seen.ops, seen.key):
        if op is None:
            pass
        elif op.code in BLOCKS and not is_leaf:
            part = (op.code, op.dtype, offsets_of(op, op.arg, offsets, lengths))
        elif is_leaf or op.code in WITH_LENGTHS:
            part = lengths_of(op, is_leaf, part, lengths)
        elif op.code is OpCode.CONV:
            part, has_windows = with_channels(op, part), True
        elif op.code is OpCode.FORMULA:
            formula = op.arg
            part = (op.code, op.dtype, formula.function, formula.options, formula.numbers, len(op.src))
            whole = with_channels(op, part) if formula.is_costly else part
            part, has_windows = whole, has_windows or whole is not part
        rest.append(part)
    return _Apart(tuple(rest), [], tuple(offsets), tuple(lengths), has_windows)


def _keyed_parts(ops: Sequence[Op], key: tuple[Any, ...]) -> Iterator[tuple[Op | None, Any, bool]]:
    """Yields (Op, part of the key, whether it is memory) for a key with lengths; None for an Op that is met again."""
    left = iter(ops)
    *parts, last = key
    for part in parts:
        is_leaf = part.__class__ is tuple and part[0].__class__ is int
        yield None if part.__class__ is int else next(left), part, is_leaf
    yield None, last, False


def with_symbols(seen: Seen) -> Seen | None:
    """Returns graphs and their blocks with symbolic lengths and offsets, bound to the numbers that they have now.

    None if an Op that is met twice, such as a block of memory, would need two lengths, or if the graphs have symbolic
    integers of the user's, whose names might be the same.
    """
    assert seen.varied is not None
    if any(dims_in(op.shape) or (op.code in BLOCKS and dims_in(op.arg)) for op in seen.ops):
        return None
    places = _symbolic_places(seen, seen.varied)
    if places is None:
        return None
    roots, became = [*seen.graphs, *seen.kept], dict[Op, Op]()
    shapes, arguments = places
    walked_through = {op for op, _, is_leaf in _keyed_parts(seen.ops, seen.varied.exact_key) if not is_leaf}
    for op in toposort(roots, sources=lambda op: op.src if op in walked_through else ()):
        leaf = op if op.code is OpCode.BUFFER else op.realized
        memory = None if leaf is None else memory_op(leaf.arg[0], shapes[op])
        if memory is not None and op not in walked_through:
            became[op] = memory
            continue
        src = tuple([became[s] for s in op.src])
        new = op if src == op.src and op not in arguments else _over(op, src, arguments.get(op, op.arg))
        if new is not op:
            copy_lines(op, new)
            new.realized = memory
        became[op] = new
    graphs = [became[op] for op in roots]
    return replace(seen, graphs=graphs, parts=[became[block] for block in seen.blocks])


def _symbolic_places(seen: Seen, varied: Varied) -> tuple[dict[Op, Shape], dict[Op, Any]] | None:
    """Returns shapes of memory and arguments of Ops that have symbolic integers; None where one would have two."""
    moving, dims = varied.moving, iter(cast("tuple[Dim, ...]", varied.sizes.dims))
    shapes: dict[Op, Shape] = {}
    arguments: dict[Op, Any] = {}
    for op, _, is_leaf in _keyed_parts(seen.ops, varied.exact_key):
        if op is not None and (is_leaf or op.code in WITH_LENGTHS):
            found, arg = shapes if is_leaf else arguments, with_lengths(op, is_leaf, dims)
            if found.setdefault(op, arg) != arg:
                return None
    at: dict[tuple[Op, int], tuple[int, Dim | None]] = {}
    for offset, group, start in zip(moving.offsets, moving.groups, moving.starts):
        if at.setdefault((offset.op, offset.axis), (group, start)) != (group, start):
            return None
    arguments = moving.arguments(arguments)
    values = varied.values()
    shapes = dict(zip(shapes, bound_to(values, [*shapes.values()])))
    return shapes, dict(zip(arguments, bound_to(values, [*arguments.values()])))


def _over(op: Op, src: tuple[Op, ...], arg: Any) -> Op:
    """Returns an Op with other sources and another argument; a formula is asked for the shapes of its results again."""
    if op.code is OpCode.FORMULA:
        results = formula_results(arg, src, op.lines)
        arg = replace(arg, kinds=tuple([(result.dtype, result.shape) for result in results]))
    elif op.code is not OpCode.GRADIENT and not (op.code is OpCode.OUTPUT and src[0].code in WRITTEN_LATER):
        return Op(op.code, op.dtype, src, arg)
    shape = () if op.code is OpCode.GRADIENT else Op.shape_rules[op.code](src, arg)
    return unshared(op.code, op.dtype, src, arg, shape, op.needs_grad)


# ---- forms that are planned again and again ----
PLANNINGS_TO_MENTION = 8
COUNTED_FORMS_MAX = 4096
OF_LENGTHS = frozenset(
    {OpCode.RESHAPE, OpCode.EXPAND, OpCode.PAD, OpCode.SHRINK, OpCode.IOTA, OpCode.CONST, OpCode.CHECK}
)  # forms that differ in arguments of these are counted together


class Repeats:
    """Counts how often forms that differ in numbers alone are planned, by the user's line."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def note(self, form: Template, root: Op) -> None:
        """Counts a planning; warns at the eighth of forms that differ in numbers alone.

        Args:
          form:  the exact form of the graphs
          root:  one of the graphs
        """
        parts = zip(form.order, form.key)
        skeleton = hash((root.lines, *[_without_numbers(op, part, op in form.leaves) for op, part in parts]))
        if len(self._counts) >= COUNTED_FORMS_MAX:
            self._counts.clear()
        count = self._counts[skeleton] = self._counts.get(skeleton, 0) + 1
        if count == PLANNINGS_TO_MENTION:
            powers = any(op.code is OpCode.POW and _source(op.src[1]).code is OpCode.CONST for op in form.order)
            lengths = "pad to a few lengths, or cut to a symbolic one: n = pg.Variable('n', 1, 512), x[: n.bind(k)]."
            warn_user(
                f"realize: the computation here was planned {count} times, each time with other lengths or"
                f" numbers, the last with a result of shape {root.shape}. Each plan is scheduled, and may compile."
                f"\n  hint: {'an exponent that changes must be a tensor: x ** pg.tensor(p); ' if powers else ''}{lengths}",
                PlanningWarning,
            )


def _without_numbers(op: Op, part: Any, is_leaf: bool) -> Hashable:
    """Returns a part of a form's key without lengths, offsets and constants."""
    if is_leaf:
        return part[0], part[1], len(part[2])
    return (*part[:2], *part[3:]) if op.code in OF_LENGTHS else part
