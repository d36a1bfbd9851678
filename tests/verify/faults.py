"""Faults to plant: in rules, passes, emitters, memory and state; each is one thing that is not what it should be.

A fault in an emitter is planted where a kernel becomes loops: the loops of another kernel, in which one Op is exchanged.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from picograd import road
from picograd.codegen import index
from picograd.codegen.passes import functions
from picograd.dtype import bfloat16, float16, float32, int32, int64
from picograd.engine import compiler as engine_compiler
from picograd.engine import realize
from picograd.engine.devices import compiler_for
from picograd.interrupts import Latest
from picograd.ir.bodies import substitute
from picograd.ir.build import and_, bitcast, reduce
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.pattern import PatternMatcher, Rule
from picograd.ir.stages import Kernel, LoopItem, Program, Schedule, Source
from picograd.ir.symbolic import to_op
from picograd.record import replace
from picograd.rewrites import simplify as algebra

Change = Callable[[Op], Op | None]


def nothing_is_kept(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Has every kernel of a test be made in it, and none stay: neither on disk nor in this process."""
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")
    compiler = compiler_for(device)
    monkeypatch.setattr(compiler, "_made", {})
    monkeypatch.setattr(compiler, "_by_entry", {})
    monkeypatch.setattr(realize, "_plans", Latest(1024))
    monkeypatch.setattr(realize, "_scalars", type(realize._scalars)())


# ---- emitters ----
def plant_in_emitter(monkeypatch: pytest.MonkeyPatch, change: Change) -> None:
    """Has the loops of a kernel be those of its Ops with one kind of them exchanged."""
    emit: Any = road.emit

    def wrong(kernel: Kernel, *args: Any) -> Program:
        return emit(_changed(kernel, change), *args)

    monkeypatch.setattr(road, "emit", wrong)


def _changed(kernel: Kernel, change: Change) -> Kernel:
    phases = []
    for phase in kernel.phases:
        nests = []
        for nest in phase:
            values = [value for _, value in nest.outputs]
            places = {op: new for op in toposort(values) if (new := change(op)) is not None}
            anchor = nest.anchor
            if anchor is not None:
                (anchor,) = substitute([anchor], {op: new for op, new in places.items() if op in toposort([anchor])})
            outputs = tuple(zip([slot for slot, _ in nest.outputs], substitute(values, places)))
            nests.append(replace(nest, anchor=anchor, outputs=outputs))
        phases.append(tuple(nests))
    return replace(kernel, phases=tuple(phases))


def exchange(old: OpCode, new: OpCode) -> Change:
    """Returns the change of one operation into another on the same operands."""
    return lambda op: Op(new, op.dtype, op.src, op.arg) if op.code is old and op.dtype is float32 else None


def swap(code: OpCode) -> Change:
    """Returns the change that exchanges two operands."""
    return lambda op: op.replace(src=op.src[::-1]) if op.code is code and op.dtype is float32 else None


def off_by_one(op: Op) -> Op | None:
    """A block of a tensor that begins an element too early."""
    if op.code is not OpCode.SHRINK or not op.arg[0][0]:
        return None
    (start, stop), *rest = op.arg
    return op.replace(arg=((start - 1, stop - 1), *rest))


def with_arg(code: OpCode, change: Callable[[Any], Any]) -> Change:
    """Returns the change of an argument."""
    return lambda op: op.replace(arg=change(op.arg)) if op.code is code else None


def half_of_terms(op: Op) -> Op | None:
    """A sum that leaves out its last term."""
    if op.code is not OpCode.REDUCE or op.arg[0] is not OpCode.ADD or op.arg[1] != (1,):
        return None
    x = op.src[0]
    zeroed = Op(
        OpCode.PAD, x.dtype, (Op(OpCode.SHRINK, x.dtype, (x,), ((0, x.shape[0]), (0, x.shape[1] - 1))),), ((0, 0), (0, 1))
    )
    return reduce(zeroed, OpCode.ADD, (1,))


def places_with_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has all places that are read within places have the name of the first; no expression of a right name is kept."""

    def wrong(point: Any, place: Any) -> Op:
        length = to_op(point[0].src[0].shape[point[0].arg[0]])
        return Op(OpCode.RANGE, int64, (length,), (index.FIRST_SEEN, AxisKind.LOOP))

    monkeypatch.setattr(index, "_seen_place", wrong)
    monkeypatch.setattr(index, "_anywhere", index._anywhere.__wrapped__)


def cut_to_bfloat16(op: Op) -> Op | None:
    """A conversion that leaves out the lower half of a float32, and does not round."""
    if op.code is not OpCode.CAST or op.dtype is not bfloat16:
        return None
    (x,) = op.src
    return Op(op.code, op.dtype, (bitcast(and_(bitcast(x, int32), -1 << 16), x.dtype),))


def summed_in_float16(op: Op) -> Op | None:
    """A sum of float32 whose terms are rounded to float16 first."""
    if op.code is not OpCode.REDUCE or op.arg[0] is not OpCode.ADD:
        return None
    half = Op(OpCode.CAST, float16, op.src)
    return reduce(Op(OpCode.CAST, float32, (half,)), OpCode.ADD, op.arg[1])


# ---- tables and text ----
def in_table(name: str, place: int, part: float) -> Callable[[pytest.MonkeyPatch], None]:
    """Makes a coefficient of a polynomial of float32 larger by a part of it."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        table = dict(getattr(functions, name))
        numbers = list(table[float32])
        numbers[place] *= 1 + part
        monkeypatch.setattr(functions, name, {**table, float32: tuple(numbers)})

    return plant


def in_text(pattern: str, becomes: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Has the text of each kernel be another."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        right: Any = engine_compiler.source_of

        def wrong(*args: Any) -> Source:
            source = right(*args)
            return replace(source, text=re.sub(pattern, becomes, source.text))

        monkeypatch.setattr(engine_compiler, "source_of", wrong)

    return plant


# ---- rules of algebra ----
def plant_new_rule(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    """Puts a rule before all others."""
    monkeypatch.setattr(algebra, "simplify", PatternMatcher([rule, *algebra.simplify.rules]))


def plant_in_rule(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[..., Any]) -> None:
    """Gives a rule another result."""
    assert name in {rule.name for rule in algebra.simplify.rules}
    rules = [Rule(rule.name, rule.pattern, action) if rule.name == name else rule for rule in algebra.simplify.rules]
    monkeypatch.setattr(algebra, "simplify", PatternMatcher(rules))


def plant_in_place(name: str, action: Callable[..., Any]) -> None:
    """Gives a rule another result for the rest of the process, in the table that is there."""
    table = algebra.simplify
    for rules in (table.rules, *table._by_code.values()):
        rules[:] = [Rule(rule.name, rule.pattern, action) if rule.name == name else rule for rule in rules]


# ---- passes ----
def plant_in_pass(monkeypatch: pytest.MonkeyPatch, name: str, change: Change) -> None:
    """Has a pass of the road exchange one kind of Op in what it returns."""
    right: Any = getattr(road, name)

    def wrong(roots: Sequence[Op], *args: Any, **kwargs: Any) -> list[Op]:
        made = right(roots, *args, **kwargs)
        return substitute(made, {op: new for op in toposort(made) if (new := change(op)) is not None})

    monkeypatch.setattr(road, name, wrong)


# ---- memory ----
def plant_in_schedule(monkeypatch: pytest.MonkeyPatch, change: Callable[[Schedule], Schedule]) -> None:
    """Has the memory of a schedule be planned otherwise."""
    right = road.create_schedule
    monkeypatch.setattr(road, "create_schedule", lambda *args: change(right(*args)))


def all_in_one_place(schedule: Schedule) -> Schedule:
    """Temporaries that share their memory."""
    buffers = [replace(use, source=0) if use.role == "temporary" else use for use in schedule.buffers]
    return replace(schedule, buffers=tuple(buffers))


def without_carry(schedule: Schedule) -> Schedule:
    """Loops whose steps all begin with what the first was given."""
    items = []
    for item in schedule.items:
        if isinstance(item, LoopItem):
            item = replace(item, feeds=tuple(replace(feed, carried=None) for feed in item.feeds))
        items.append(item)
    return replace(schedule, items=tuple(items))


def in_other_order(schedule: Schedule) -> Schedule:
    """The last two kernels in the other order."""
    *first, a, b = schedule.items
    return replace(schedule, items=(*first, b, a))


# ---- state ----
def plant_in_runs(monkeypatch: pytest.MonkeyPatch, device: str, change: Callable[[Any], Any]) -> None:
    """Has plans that read memory run otherwise; a kernel alone, whose memory is all given as outputs, runs as it does."""
    target = compiler_for(device).device
    make = target.make_runner

    def make_wrong(schedule: Schedule, executables: Any) -> Any:
        right = make(schedule, executables)
        return change(right) if schedule.inputs else right

    monkeypatch.setattr(target, "make_runner", make_wrong)


def scribbling(right: Any) -> Any:
    """A run that writes over the first of its inputs, too."""

    def run(inputs: Sequence[Any], *args: Any) -> None:
        right(inputs, *args)
        device = compiler_for(inputs[0].device).device
        device.copy_in(inputs[0].memory, np.zeros(inputs[0].numel, inputs[0].dtype.numpy))

    return run


def left_out(right: Any) -> Any:
    """A run that leaves its outputs as they were: those of a run before, or what was in their memory."""
    return lambda *args: None


def from_the_sixth_run_on(right: Any) -> Any:
    """A run that writes over its first output, when it has run five times."""
    runs = itertools.count(1)

    def run(inputs: Sequence[Any], outputs: Sequence[Any], *args: Any) -> None:
        right(inputs, outputs, *args)
        if next(runs) > 5:
            scribbling(lambda *args: None)(outputs)

    return run


def one_less(right: Any) -> Any:
    """A run with symbolic lengths that are one less."""
    return lambda inputs, outputs, variables, *args: right(
        inputs, outputs, {name: value - 1 for name, value in variables.items()}, *args
    )


def exchanged(right: Any) -> Any:
    """A run with its inputs in the other order."""
    return lambda inputs, *args: right(inputs[::-1], *args)
