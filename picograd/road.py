"""The compiler on one page: every pass from a graph to the text of its kernels, in the order in which they run.

    graphs  --schedule_graphs-->  Schedule;  Kernel  --lower-->  Program  --render-->  Source

In:    graphs over BUFFERs, a Target, what a backend renders and compiles with
Out:   Schedule; Program; Source

A line is a pass, `new = pass(old)`; its file says what holds after it. A pass under an `if` is about some opcodes, and is
left out for a graph or a Program without them. `look` checks, prints and keeps what a pass made, if settings ask for that.
The engine calls this page (`make_plan`, engine/plan.py): before it, parameters take the place of memory; after it, texts
are compiled, some kernels at a time, and loaded (engine/compiler.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from picograd.autodiff.gradient import WRITTEN_LATER, written_out
from picograd.codegen.emit import each_phase, emit, guess, with_report
from picograd.codegen.passes.bounds import prove_bounds
from picograd.codegen.passes.legalize import illegal, legalize_statements
from picograd.codegen.passes.linearize import linearize
from picograd.codegen.passes.narrow_indices import narrow_indices
from picograd.codegen.passes.tables import INTEGERS, in_tables, may_look_up
from picograd.device import Target
from picograd.ir.attention import has_kernel
from picograd.ir.bodies import WITH_BODY, map_bodies
from picograd.ir.op import CODE, Op, codes_in, toposort
from picograd.ir.opcode import ATTENTIONS, OpCode
from picograd.ir.opts import Opts
from picograd.ir.stages import Kernel, Program, Schedule, Source
from picograd.ir.statements import held
from picograd.look import look
from picograd.rewrites.contract import PIECED_TERMS_MIN, PRODUCTS, compose_attention, contract
from picograd.rewrites.merge_bodies import merge_bodies
from picograd.rewrites.simplify import DETOURS, simplify_graph, strip_identity
from picograd.schedule.create import group, make_unit, scheduled
from picograd.schedule.fuse import fuse, unshaped
from picograd.schedule.loops import normalize_loops
from picograd.schedule.memory import Order, order_units, versions_of, write_blocks

DTYPE, CODE_AND_DTYPE = attrgetter("dtype"), attrgetter("code", "dtype")


# ---- graphs -> Schedule ----
def schedule_graphs(roots: Sequence[Op], target: Target | None = None) -> Schedule:
    """Returns the kernels that compute `roots`, in order, on buffers whose memory is planned.

    Args:
      target:  whose kernels they become; None: any CPU's
    """
    roots = look("graph", roots)
    if codes_in(roots) & WRITTEN_LATER:
        roots = written_out(roots)  # gradients and functions that waited for this moment are graphs
    codes = codes_in(roots)
    if codes & (ATTENTIONS | WITH_BODY):
        roots = compose_attention(roots, partial(has_kernel, target=target))  # attention without a kernel: two products
    if codes & WITH_BODY:
        roots = merge_bodies(roots)  # a body and its extension for the backward pass become one
        roots = map_bodies(roots, simplify)  # rules of algebra, in bodies first
    roots = look("simplify", simplify(roots))
    return look("schedule", create_schedule(roots, target))


def simplify(roots: Sequence[Op]) -> Sequence[Op]:
    """Returns graphs by the rules of algebra, once detours are out of their way."""
    if codes_in(roots) & DETOURS:
        roots = simplify_graph(roots, strip_identity)
    return simplify_graph(roots)


def create_schedule(roots: Sequence[Op], target: Target | None = None) -> Schedule:
    """Returns the Schedule of simplified graphs. A root that is a BUFFER already is its own output and runs nothing."""
    if codes_in(roots) & WITH_BODY:
        roots = normalize_loops(roots)  # every result of a loop has memory of its own
    roots = unshaped(roots)  # a RESHAPE of a stored value is that memory
    return _schedule(roots, {}, True, target)


def _schedule(
    roots: Sequence[Op], bodies: dict[tuple[Op, ...], Schedule], is_outermost: bool, target: Target | None
) -> Schedule:
    """Returns the Schedule of graphs; those of the bodies of their loops are made once and kept in `bodies`, by roots.

    It begins again where a block cannot be written in its place, as a reader of the old value would come after it.
    """

    def of_body(roots: tuple[Op, ...]) -> Schedule:
        if roots not in bodies:
            bodies[roots] = _schedule(roots, bodies, False, target)
        return bodies[roots]

    refused = set[int]()
    order = toposort(roots)
    codes = set(map(CODE, order))
    long_sums = [op for op in order if op.code is OpCode.REDUCE and op.src[0].numel >= PIECED_TERMS_MIN]
    while True:
        graph = roots
        if is_outermost and OpCode.PAD in codes:
            graph = write_blocks(graph, refused)  # a block of a buffer is written in its place
        if codes & PRODUCTS or long_sums:
            graph = contract(graph, target)  # products, convolutions and long sums in the form that their kernels take
        fused = fuse(graph, target)  # nests of loops, and which values they store
        groups = group(fused, graph, target)  # kernels: nests that run one after the other on the same elements
        units = [make_unit(each, fused, of_body) for each in groups]
        sequence = order_units(units, graph) if is_outermost else Order([*range(len(units))])
        if not sequence.refused:
            return scheduled(graph, units, sequence, of_body, is_outermost)  # and the place of each value in memory
        refused |= {i for i, root in enumerate(graph) if sequence.refused & set(versions_of(root))}


# ---- Kernel -> Program -> Source ----
def lower(kernel: Kernel, target: Target, opts: Opts | None = None) -> Program:
    """Returns the loops of a kernel, with the choices of `opts`: by default those of `guess`.

    After:  every phase is in the linear form, with only operations the target has.
    """
    program = emit(kernel, target, guess(kernel, target) if opts is None else opts)  # each nest by its emitter
    if not INTEGERS.isdisjoint(map(DTYPE, toposort(kernel.values()))) and may_look_up(kernel, target):
        program = each_phase(program, in_tables)  # functions of small integers
    return finish(program, target)


def finish(program: Program, target: Target) -> Program:
    """Returns a Program in the free form as one in the linear form."""
    numbers = itertools.count(1)  # of its variables
    ops = toposort(held(program.phases))
    if not illegal(target).isdisjoint(map(CODE_AND_DTYPE, ops)):
        program = each_phase(program, partial(legalize_statements, target=target))  # operations that the target has
    program = each_phase(program, partial(linearize, numbers=numbers))  # one a line, where it is first known
    if OpCode.CHECK in map(CODE, ops):
        program = with_report(program)  # memory for what a CHECK has found
    program = prove_bounds(program, numbers)  # an access not proved to be inside its memory gets a condition
    return narrow_indices(program, numbers) if target.is_gpu else program  # integers of 32 bits


def source_of(
    kernel: Kernel, target: Target, opts: Opts, render: Callable[[Program, Target], Source], place: Path | None = None
) -> Source:
    """Returns a kernel in the language of its target.

    Args:
      place:  the folder of its files, where PICOGRAD_DUMP asks for them
    """
    return render(look("program", lower(kernel, target, opts), place), target)
