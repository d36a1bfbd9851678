"""Numbers that change from run to run: constants of a graph that its plan takes as inputs, so that it is made once.

In:    the Template of a graph whose plan is not there
Out:   `Scalars`: the same form, with the constants that were seen to change among its leaves, and symbolic offsets
Called by: engine/realize.py, transforms/jit.py.    Next: picograd/engine/lengths.py

    for step in range(1000):
        p -= (1 - step / 1000) * p.grad         # another graph at each step, by one number

The first graph of a form is compiled with its numbers. The second, where some numbers differ, is compiled with these as
inputs, and serves whatever follows. A number that is an exponent stays: x ** 2 is compiled otherwise than x ** 2.1.
Offsets of blocks, as in x[i : i + 64], and lengths are numbers like these; engine/lengths.py and engine/offsets.py say how
they enter a plan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Sequence

from picograd.dtype import bool_
from picograd.engine.devices import compiler_for
from picograd.engine.lengths import Lengths, Sizes, lengths_of, needs_numbers
from picograd.engine.offsets import BLOCKS, FIXED, Moving, Offset, Place, free_prefix, offsets_of, regrouped
from picograd.engine.plan import Template
from picograd.forks import lock
from picograd.ir.op import Op
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.latest import Latest
from picograd.record import Record, Struct, replace

MOST_INPUTS = 32  # of one form: where more numbers change they are data, and a user keeps them in a Tensor
MOST_OFFSETS = 256  # of one form, that move each by itself


class _Form(Struct):
    """Knowledge of graphs that differ in numbers, offsets and lengths.

    values:   of the constants of the first one
    offsets:  axes and values of those of its blocks
    lengths:  of all of them
    """

    values: tuple[float, ...]
    offsets: tuple[Place, ...]
    lengths: Lengths


class _Seen(Struct):
    """Knowledge of graphs of some lengths that differ in numbers and offsets.

    values:   of its constants, in the first graph
    offsets:  axes and values of those of its blocks, there
    changed:  which constants have been seen to change
    groups:   of the offsets: those in one have moved alike
    """

    values: tuple[float, ...]
    offsets: tuple[Place, ...]
    changed: frozenset[int]
    groups: tuple[int, ...]


class Scalars:
    """The forms of graphs seen so far, whatever constants they have; threads may ask at once.

    Eager graphs share one, and a jitted function has one for its captures.
    """

    def __init__(self, most_forms: int = 1024) -> None:
        self.most_forms = most_forms
        self._forms: Latest[Hashable, _Form] = Latest(most_forms)
        self._seen: Latest[Hashable, _Seen] = Latest(most_forms)
        self._first: dict[Hashable, int] = {}  # offset of each block of memory that a line cuts
        self._lock = lock()

    def freed(self, form: Template, device: str, stored: Callable[[Op], Op]) -> Template:
        """Returns a form with the constants that change as inputs; `form` itself where none is known to.

        Args:
          stored:  gives a BUFFER Op that holds a constant
        """
        parts = _parts_of(form)
        constants, offsets, moving = parts.constants, parts.offsets, Moving(parts.offsets)
        values = tuple([op.arg for op in constants])
        key = (device, *parts.rest)
        with self._lock:
            if key not in self._forms:
                is_gpu = compiler_for(device).device.target.is_gpu
                is_refused = any(op not in form.leaves and needs_numbers(op, is_gpu) for op in form.order)
                lengths = Lengths(len(parts.lengths), [parts.sample()], is_refused)
                self._forms.put(key, _Form(values, moving.places(), lengths))
            known = self._forms[key]
            sizes = known.lengths.sizes(parts.sample(), free_prefix(form.variables, "length"))
            own = (key, parts.lengths if sizes is None else sizes.key)
            if own not in self._seen:
                first = _Form(values, moving.places(), known.lengths) if sizes is None else known
                seen = _Seen(first.values, first.offsets, frozenset(), self._moved(offsets, form))
                self._seen.put(own, seen)
            changed, groups = self._changed(self._seen[own], values, moving.places())
        moving = _moving(parts, groups, sizes, free_prefix(form.variables))
        if not changed and not any(groups) and sizes is None:
            return form
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

    def refuse(self, form: Template) -> None:
        """Has graphs of a form keep their own lengths, of which the symbolic ones have no plan."""
        with self._lock:
            known = self._forms.get(form.key[0])  # type: ignore[index]
            if known is not None:
                known.lengths.refuse()

    def _moved(self, offsets: Sequence[Offset], form: Template) -> tuple[int, ...]:
        """Returns the groups of the offsets of a new form: of those that move at a line, as other forms have shown.

        The second step of a training often has another form than the first, which knew no state of the optimizer.
        """
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
        self, seen: _Seen, values: tuple[float, ...], offsets: tuple[Place, ...]
    ) -> tuple[frozenset[int], tuple[int, ...]]:
        """Returns which constants of a form have changed so far, and the groups of its offsets, these values counted."""
        differ = {i for i, (a, b) in enumerate(zip(values, seen.values)) if _bits(a) != _bits(b)}
        groups = regrouped(seen.groups, seen.offsets, offsets)
        if max(groups, default=FIXED) <= MOST_OFFSETS:
            seen.groups = groups
        elif groups != seen.groups:
            groups = (FIXED,) * len(offsets)
        if len(seen.changed | differ) > MOST_INPUTS:
            return frozenset(), groups
        if not differ <= seen.changed:
            seen.changed |= differ
        return seen.changed, groups


class _Parts(Record):
    """A form, taken apart.

    rest:       without its numbers, offsets and lengths
    constants:  its numbers
    offsets:    of its blocks
    lengths:    all of them
    """

    rest: tuple[Hashable, ...]
    constants: list[Op]
    offsets: tuple[Offset, ...]
    lengths: tuple[int, ...]

    def sample(self) -> tuple[int, ...]:
        """Returns the lengths, the starts of blocks, and their rooms."""
        return (*self.lengths, *[offset.value for offset in self.offsets], *[offset.room for offset in self.offsets])


def _parts_of(form: Template) -> _Parts:
    constants = _constants(form)
    places: dict[Op, str] = {op: f"number {i}" for i, op in enumerate(constants)}
    offsets: list[Offset] = []
    lengths: list[int] = []
    rest: list[Hashable] = []
    for op, part in zip(form.order, form.key):  # type: ignore[call-overload]
        is_leaf = op in form.leaves
        if op.code in BLOCKS and not is_leaf:
            part = (*part[:2], offsets_of(op, part[2], offsets, lengths), *part[3:])
        else:
            part = lengths_of(op, is_leaf, part, lengths)
        rest.append(places.get(op, part))
    return _Parts((tuple(rest), form.key[-1]), constants, tuple(offsets), tuple(lengths))  # type: ignore[index]


def _moving(parts: _Parts, groups: tuple[int, ...], sizes: Sizes | None, prefix: str) -> Moving:
    """Returns the offsets of a form, of which those that follow from lengths do not change by themselves."""
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
