"""Turns a graph into a Plan once, for all graphs of its form, in this process and in others (engine/cache.py).

In:    unrealized graphs over buffers;  a Compiler
Out:   `Template`: the form of graphs, with their buffers, constants of state and symbolic values taken out;  Plan
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Container, Hashable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from picograd.config import is_on
from picograd.engine.cache import load_schedule, plan_entry, store_schedule, without_graphs
from picograd.engine.devices import counted
from picograd.engine.lengths import WITH_LENGTHS, Moving, Sizes, with_lengths
from picograd.errors import ArgumentError, Line
from picograd.evaluator import evaluate
from picograd.ir.backend import library_of
from picograd.ir.bodies import WITH_BODY, bodies_in, body_of, changed_mark, with_body
from picograd.ir.checks import MAY_FAIL, Refused, Site, Unsolvable, refusal_of, site_of, with_site
from picograd.ir.host import offers
from picograd.ir.op import CODE, Buffer, Dim, Op, Shape, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import copy_lines, line_of
from picograd.ir.shape import numel
from picograd.ir.stages import BufferUse, Plan, Schedule
from picograd.ir.symbolic import dim_value, with_values
from picograd.look import look, note, telling
from picograd.record import Record
from picograd.rewrites.merge_bodies import merge_bodies

if TYPE_CHECKING:
    from picograd.engine.compiler import Compiler  # loads every stage, which importing picograd should not

# ---- forms of graphs ----
OWN_ARGS = WITH_BODY | {OpCode.LEAF, OpCode.CONST}  # on whose arguments a plan depends in ways of their own


class Template(Record):
    """The form of some graphs: what a plan depends on.

    key:        equal for graphs that differ only in memory and in values of symbolic integers, while the same kernels are
                offered
    order:      their Ops, sources first
    leaves:     the BUFFER Op of each leaf; for a realized Op that of its value
    buffers:    distinct buffers that they read, by slot
    variables:  values of symbolic integers by name
    errors:     the words of its CHECKs' errors, if these are kept without their Ops
    moving:     offsets of blocks, which may be symbolic
    sizes:      symbolic lengths; None if all lengths are numbers
    """

    key: tuple[Any, ...]
    order: tuple[Op, ...]
    leaves: Mapping[Op, Op]
    buffers: tuple[Buffer, ...]
    variables: Mapping[str, int]
    errors: tuple[CheckError, ...] = ()
    moving: Moving = Moving()
    sizes: Sizes | None = None

    def bare(self) -> Template:
        """Returns the form alone, which keeps no memory alive."""
        return Template(self.key, (), {}, (), self.variables, tuple(map(CheckError.of, self.checks())))

    def checks(self) -> list[Op]:
        """Returns the CHECKs, and the CUSTOMs that may fail, by their number in plans; those in bodies come last."""
        codes = set(map(CODE, self.order))
        if codes.isdisjoint(MAY_FAIL | WITH_BODY):
            return []
        outside = [op for op in self.order if op.code in MAY_FAIL and op not in self.leaves]
        inside = [op for body in bodies_in(self.order) for op in toposort(body.src) if op.code in MAY_FAIL]
        return [op for op in dict.fromkeys(outside + inside) if site_of(op) is not None]

    def error(self, report: Refused) -> Refused:
        """Returns the error for a report of a plan's run, with the words and the user's line of its CHECK."""
        assert isinstance(report.site, int)
        if self.errors:
            said, check = self.errors[report.site], None
        else:
            check = self.checks()[report.site]
            said = CheckError.of(check)
        length = dim_value(said.length, self.variables)
        return said.kind(said.site, report.value, length, said.line, check)


class CheckError(Record):
    """The words of the error of a CHECK or a CUSTOM.

    kind:    of error
    site:    the words
    length:  of the axis
    line:    of the user, if it is known
    """

    kind: type[Refused]
    site: Site
    length: Dim
    line: Line | None

    @staticmethod
    def of(check: Op) -> CheckError:
        """Returns the error of a user's Op."""
        found = site_of(check)
        assert found is not None, f"CheckError: {check} cannot fail"
        site, length = found
        assert not isinstance(site, int), "the message of a user's Op is text"
        kind = refusal_of(site) if check.code is OpCode.CHECK else Unsolvable
        return CheckError(kind, site, length, line_of(check))


def template(
    roots: Sequence[Op], order: Sequence[Op] | None = None, recomputed: Container[Op] = frozenset()
) -> Template:
    """Returns the form of the graphs of `roots`, which end at BUFFERs and at realized Ops.

    Args:
      order:       order_of(roots), where that is known
      recomputed:  realized Ops at which a graph does not end
    """
    order = order_of(roots, recomputed) if order is None else order
    number: dict[Op, int] = {}
    number_of = number.__getitem__
    leaves: dict[Op, Op] = {}
    slots: dict[Buffer, int] = {}
    variables: dict[str, int] = {}
    key: list[Hashable] = []
    for i, op in enumerate(order):
        code, arg = op.code, op.arg
        leaf = op if code is OpCode.BUFFER else None if op in recomputed else op.realized
        number[op] = i
        if leaf is not None:
            leaves[op] = leaf
            buffer, shape = leaf.arg
            slot = slots.setdefault(buffer, len(slots))
            key.append((slot, leaf.dtype, unbound(shape, variables)))
        elif code is OpCode.BIND:
            key.append((code, unbound(op, variables)))
        else:
            if arg is not None:
                arg = _unbound_argument(op, variables) if code in OWN_ARGS else unbound(arg, variables)
            key.append((code, op.dtype, arg, *map(number_of, op.src)))
    key.append((*map(number_of, roots), offers.key))
    return Template(tuple(key), tuple(order), leaves, tuple(slots), variables)


def order_of(roots: Sequence[Op], recomputed: Container[Op] = frozenset()) -> list[Op]:
    """Returns the Ops to compute for `roots` and the values they read, sources first.

    The walk ends at BUFFERs, at realized Ops, and at BINDs, whose values do not belong to a form.
    An Op is deeper than its sources, so sorting by depth saves the second visit that `toposort` makes. A value computed
    without gradients counts as depth 0, like the memory that replaces it in later graphs: so the first step of a training,
    which reads the first values of a network, has the same order as later steps.
    """
    found: dict[Op, None] = {}
    starts: set[Op] = set()
    stack = list(roots)[::-1]
    while stack:
        op = stack.pop()
        if op not in found:
            found[op] = None
            if (op.realized is None or op in recomputed) and op.code is not OpCode.BIND:
                stack += op.src[::-1]
            elif op.depth and not op.needs_grad and op.realized is not None:
                starts.add(op)
    order = sorted(found, key=attrgetter("depth"))
    if not starts:
        return order
    depth: dict[Op, int] = {}
    for op in order:
        below = [depth[s] for s in op.src if s in depth]
        depth[op] = 0 if op in starts else 1 + max(below) if below else op.depth
    return sorted(found, key=depth.__getitem__)


def computed_from(inputs: Collection[Op], roots: Sequence[Op]) -> set[Op]:
    """Returns the Ops whose values depend on the inputs or on symbolic integers, also where they are realized."""
    given = set(inputs)
    others = set(inputs)
    for op in toposort(roots, stop=given):
        if op not in given and (not others.isdisjoint(op.src) or _mentions_op(op.arg)):
            others.add(op)
    return others - given


def _mentions_op(arg: Any) -> bool:
    if not isinstance(arg, tuple):
        return arg.__class__ is Op
    return any(part.__class__ is not int and _mentions_op(part) for part in arg)


def _unbound_argument(op: Op, variables: dict[str, int]) -> Hashable:
    """Returns the part of a LEAF's, CONST's, CALL's or LOOP's argument on which a plan depends, without symbolic values."""
    if op.code is OpCode.LEAF:
        return None
    if op.code is OpCode.CONST:
        return struct.pack("d", op.arg) if op.dtype.is_float else op.arg
    if op.code in WITH_BODY:
        arg = with_body(op, _unbound_body(body_of(op), variables)).arg
        return arg if op.code is OpCode.CALL else (*arg[:2], unbound(arg[2], variables))
    raise AssertionError(f"_unbound_argument: {op} has an argument like any other")


def unbound(arg: Any, variables: dict[str, int]) -> Any:
    """Returns an argument with symbolic integers unbound: their values go to `variables`.

    Raises:
      ArgumentError: one graph binds a symbolic integer to two values.
    """
    if isinstance(arg, Op):
        symbols: dict[Op, Dim] = {}
        for bind in toposort([arg]):
            if bind.code is OpCode.BIND:
                (name, *_), value = bind.src[0].arg, int(bind.src[1].arg)
                if variables.setdefault(name, value) != value:
                    raise ArgumentError(
                        f"{name} is bound to {variables[name]} and to {value} in tensors that are computed together.",
                        "call realize() on results of the first value before binding another, or use a second Variable.",
                    )
                symbols[bind] = bind.src[0]
        return with_values(arg, symbols) if symbols else arg
    if isinstance(arg, tuple):
        for part in arg:
            if part.__class__ is not int and part.__class__ is not OpCode:
                return tuple([unbound(part, variables) for part in arg])
    return arg


def _unbound_body(body: Op, variables: dict[str, int]) -> Op:
    """Returns a body and its own gradient with symbolic integers unbound: their values go to `variables`."""
    bodies: dict[Op, Op] = {}
    for inner in [*bodies_in(toposort(body.src)), body]:
        mark = changed_mark(inner, lambda backward: _unbound_body(backward, variables))
        bodies[inner] = inner.replace(tuple(_unbound_graphs(inner.src, {}, variables, bodies)), mark)
    return bodies[body]


def bound(shape: Shape, variables: Mapping[str, int]) -> Shape:
    """Returns a shape with bound symbolic integers bound to these values, and with the values in place of free ones."""
    symbols = {op for dim in shape if isinstance(dim, Op) for op in toposort([dim])}
    values: dict[Op, Dim] = {op: variables[op.arg[0]] for op in symbols if op.code is OpCode.VARIABLE}
    for op in [op for op in symbols if op.code is OpCode.BIND]:
        value = const(variables[op.src[0].arg[0]], op.dtype)
        values[op] = op.replace(src=(op.src[0], value))
    return tuple(with_values(dim, values) for dim in shape)


def parametrize(roots: Sequence[Op], form: Template) -> list[Op]:
    """Returns the graphs with a PARAM for each leaf: nothing in them keeps memory alive."""
    slots = {buffer: slot for slot, buffer in enumerate(form.buffers)}
    numbers = {check: number for number, check in enumerate(form.checks())}
    params: dict[Op, Op] = {}
    lengths = symbolic_arguments(form)
    for op, leaf in form.leaves.items():
        buffer, shape = leaf.arg
        params[op] = Op(OpCode.PARAM, leaf.dtype, (), (slots[buffer], unbound(lengths.pop(op, shape), {})))
    bodies: dict[Op, Op] = {}
    if not WITH_BODY.isdisjoint(map(CODE, form.order)):
        for body in bodies_in(form.order):
            bodies[body] = body.replace(src=tuple(_unbound_graphs(body.src, {}, {}, bodies, numbers)))
    arguments = form.moving.arguments(lengths) if form.moving.offsets or lengths else {}
    return _unbound_graphs(roots, params, {}, bodies, numbers, arguments)


def symbolic_arguments(form: Template) -> dict[Op, Any]:
    """Returns the arguments that have symbolic lengths, and the shapes of leaves that have any."""
    if form.sizes is None:
        return {}
    dims, leaves = iter(cast("tuple[Dim, ...]", form.sizes.dims)), form.leaves
    return {op: with_lengths(op, op in leaves, dims) for op in form.order if op in leaves or op.code in WITH_LENGTHS}


def _unbound_graphs(
    roots: Sequence[Op], became: dict[Op, Op], variables: dict[str, int], bodies: Mapping[Op, Op],
    numbers: Mapping[Op, int] | None = None, arguments: Mapping[Op, Any] = MappingProxyType({}),
) -> list[Op]:  # fmt: skip
    """Returns graphs with symbolic integers unbound.

    Args:
      became:     replacements of some Ops, at which the walk ends
      variables:  receives the values
      bodies:     the replacement of each body of a CALL or LOOP
      numbers:    the new number of each CHECK
      arguments:  new arguments of some Ops
    """
    leaves, became = became, dict(became)
    for op in toposort(roots, stop=leaves):
        if op in leaves:
            continue
        src = tuple(became[s] for s in op.src)
        if op.code is OpCode.BIND:
            became[op] = unbound(op, variables)
        elif numbers is not None and op in numbers:
            arg = with_site(op, numbers[op])
            arg = (*arg[:-1], arguments[op][-1]) if op in arguments else arg
            became[op] = Op(op.code, op.dtype, src, unbound(arg, variables))
        elif op.code in WITH_BODY:
            became[op] = with_body(op, bodies[body_of(op)], src)
            if op.code is OpCode.LOOP:
                num_steps = arguments.get(op, op.arg)[2]
                became[op] = became[op].replace(arg=(*became[op].arg[:2], unbound(num_steps, variables)))
        elif op.src or op.arg is not None:
            became[op] = Op(op.code, op.dtype, src, unbound(arguments.get(op, op.arg), variables))
        else:
            became[op] = op
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


# ---- plans ----
def make_plan(roots: Sequence[Op], form: Template, compiler: Compiler, tune: bool) -> Plan:
    """Takes graphs all the way to something that runs; PICOGRAD_TUNE=1 has every plan tuned."""
    tune = tune or is_on("PICOGRAD_TUNE")
    library = library_of(compiler.device) if tune else ""
    entry = plan_entry(form.key, compiler.device.target, tune, library)
    kept = None if entry is None else load_schedule(entry, compiler.from_disk)
    if kept is None:
        with telling(lambda: f"{len(form.order)} operations are planned"):
            note("scheduled")
            schedule = compiler.schedule(parametrize(roots, form))
        executables = compiler.executables([item.kernel for item in schedule.kernel_items()], tune)
        if entry is not None:
            store_schedule(entry, schedule, executables, compiler.entries)
        schedule = without_graphs(schedule, iter(executables))
    else:
        schedule, executables = kept
    code = tuple(executables)
    return look("plan", Plan(schedule, code, schedule.written(), compiler.device.make_runner(schedule, code)))


def make_evaluator_plan(roots: Sequence[Op], form: Template) -> Plan:
    """Returns a plan that has the evaluator compute the graphs: no kernels, and outputs as it makes them."""
    graphs = merge_bodies(parametrize(roots, form))
    params = tuple(op for op in toposort(graphs) if op.code is OpCode.PARAM)
    uses = tuple(BufferUse(op.dtype, numel(op.shape), "output", i) for i, op in enumerate(graphs))

    def run(inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int], *_: object) -> None:
        values = {op: b.memory.reshape([dim_value(d, variables) for d in op.shape]) for op, b in zip(params, inputs)}
        for buffer, value in zip(outputs, evaluate(graphs, values, variables)):
            buffer.memory = counted(np.array(value, dtype=buffer.dtype.numpy, order="C"))

    return Plan(Schedule((), uses, params, tuple(range(len(graphs))), 0), (), uses, run)
