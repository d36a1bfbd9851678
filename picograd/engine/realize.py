"""Computes graphs: finds or makes their plan, and runs it on their memory.

In:    Ops
Out:   BUFFER Ops that hold their values; `realized`

    plan = make_plan(graphs, ...)            engine/plan.py: by road.py, and kept
    plan.run(inputs, outputs, variables)     here
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from picograd.autodiff.gradient import WRITTEN_LATER, written_out
from picograd.autodiff.unrolled import ORDER_OPS_MIN, from_memory, rolled
from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR, compiler_for, counted, default_device
from picograd.engine.host_memory import forget_copies, reads_shared, shared
from picograd.engine.known import Families, Known, Repeats, Scalars, Seen, look_at, with_symbols
from picograd.engine.lengths import TooWide
from picograd.engine.pieces import OPS_OF_LARGE, is_for_pieces, note_planning, note_recurrence, pieces_of, single_operations
from picograd.engine.plan import Template, make_evaluator_plan, make_plan, order_of, template
from picograd.errors import DeviceError, OutOfMemoryError, ShapeError, UnsupportedOp
from picograd.interrupts import Latest
from picograd.ir.bodies import NEEDS_GRAD, substitute
from picograd.ir.build import row_of
from picograd.ir.checks import Refused
from picograd.ir.op import CODE, Buffer, Op, greatest, memory_op, realized, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, OpCode
from picograd.ir.origin import Graphless, Lines, like_its_sources
from picograd.ir.shape import check_array, numel
from picograd.ir.stages import FixedMemory, Plan
from picograd.ir.symbolic import dim_value
from picograd.look import Profiling, active
from picograd.record import replace

# ---- graphs that are computed together ----
# Two tables in one: (device, tune, key of a form) -> Plan, and the short key of graphs -> Known (engine/known.py).
_plans: Latest[Hashable, Any] = Latest(1024)
_scalars = Scalars()
_repeats = Repeats()
_families = Families()
# Kinds of values that a later graph computed again -> the user's lines that made them: the next ones of these are kept.
_computed_again: dict[Hashable, Latest[Lines, None]] = {}
LINES_AGAIN_MAX = 256  # of each kind: cells of a notebook are new lines each time


def realize(ops: Sequence[Op]) -> list[Op]:
    """Returns for each graph a BUFFER Op with its value, contiguous; each root then has it as `realized`.

    Graphs are computed together, by one plan for each device. A plan is made once for each form of graph.
    """
    missing = [op for op in dict.fromkeys(ops) if op.code is not OpCode.BUFFER and op.realized is None]
    if not missing:
        return [op.realized or op for op in ops]
    seen, kept = None if shared.data else look_at(missing), list[Op]()
    if seen is not None and seen.costly:
        again, kept = _recurring(missing, seen)
        if again:
            _compute(again, [], look_at(again))
            kept, seen = [op for op in kept if op.realized is None], look_at(missing)
    made = _compute(missing, kept, seen)
    return [made.get(op) or op.realized or op for op in ops]  # a BUFFER is its own


def _compute(missing: Sequence[Op], kept: Sequence[Op], seen: Seen | None) -> dict[Op, Op]:
    """Computes graphs and the Ops in `kept`; returns the BUFFER Ops of graphs that get no `realized`: constants."""
    if seen is not None and run_known(missing, seen, keeps=bool(kept)):
        return {}
    seen, varied = _with_lengths(seen)
    if varied is not None and _ran_for_lengths(missing, varied, keeps=bool(kept)):
        if len(varied.ops) >= OPS_OF_LARGE:
            note_recurrence(missing)
        return {}
    if seen is not None and seen.is_alone and _computed_in_loops([*missing, *kept], seen):
        return {}
    if seen is not None and seen.is_alone and is_for_pieces(missing, seen):
        return _computed_in_pieces(missing)
    kept = _carried(missing, kept)
    if kept and seen is not None:
        seen, varied = seen.keeping(kept), varied and varied.keeping(kept)
    if varied is not None and _computed_for_lengths(varied):
        note_recurrence(missing)
        return {}
    return _compute_by_device([*missing, *kept], seen)


def _compute_by_device(missing: Sequence[Op], seen: Seen | None) -> dict[Op, Op]:
    """Computes graphs through their Templates, one for each device; returns for each the BUFFER Op with its value.

    Args:
      seen:  the short key under which the plan is found the next time
    """
    blocks, graphs, left = seen.parts or seen.blocks if seen is not None else (), dict(zip(missing, missing)), missing
    order = order_of(missing)
    if len(order) >= ORDER_OPS_MIN or not WRITTEN_LATER.isdisjoint(map(CODE, order)):
        written = _written(missing, blocks, () if seen is None else frozenset(seen.numbers))
        graphs, blocks = dict(zip(missing, written)), written[len(missing) :]
        left = [op for op in dict.fromkeys(graphs.values()) if op.code is not OpCode.BUFFER and op.realized is None]
        order = order_of(left)
    devices = dict(zip(left, devices_of(left, order)))
    constants = {graph for graph, device in devices.items() if device is None}
    read_before: dict[Op, str | None] = {}
    if constants and left is not missing:  # a constant gradient is on the device of the memory its graph read
        read_before = dict(zip(missing, devices_of(missing, toposort(missing, stop=realized))))
        devices |= {graph: read_before[op] for op, graph in graphs.items() if graph in constants}
    by_device: dict[str | None, list[Op]] = {}
    for op, device in devices.items():
        by_device.setdefault(device, []).append(op)
    whole = len(by_device) == 1 and OpCode.COPY not in {op.code for op in order}
    place = {graph: i for i, graph in enumerate(left)}
    if seen is not None:
        is_plain = whole and None not in by_device and place.keys() >= {*graphs.values()}
        results = [place[graph] for graph in graphs.values()] if is_plain else []
        seen = replace(seen, parts=blocks, results=results) if is_plain else None
    made: dict[Op, Op] = {}
    for name, roots in by_device.items():
        form, buffers = _compute_on(roots, name or default_device(), order if whole else None, seen)
        made.update(zip(roots, buffers))
        # A graph of constants alone is one Op for all devices; shared memory may hold another value the next time.
        if name is not None and not (shared.data and reads_shared(form.buffers)):
            for op in roots:
                op.realized = None if op in constants else made[op]
    for op, graph in graphs.items():
        value = graph if graph.code is OpCode.BUFFER else graph.realized
        made[op] = value or made[graph]
        op.realized = value if read_before.get(op) is None else made[op]
    if shared.data:
        forget_copies(order)
    return made


def devices_of(roots: Sequence[Op], order: Sequence[Op] | None = None) -> list[str | None]:
    """Returns for each graph the device whose memory it reads, or None; makes the copies between devices among their Ops.

    Args:
      order:  order_of(roots), where that is known

    Raises:
      DeviceError: a graph reads memory of two devices.
    """
    found: dict[Op, Op | None] = {}  # an Op -> some memory that it reads
    for op in order_of(roots) if order is None else order:
        if op.code is OpCode.COPY and op.realized is None:
            op.realized = _copied_across(op)
        buffer = op if op.code is OpCode.BUFFER else op.realized
        if buffer is None and op.code is not OpCode.BIND:
            for source in op.src:
                other = found[source]
                if buffer is None:
                    buffer = other
                elif other is not None and other is not buffer and other.arg[0].device != buffer.arg[0].device:
                    names = ", ".join(f"{read.shape} on {read.arg[0].device}" for read in (buffer, other))
                    raise DeviceError(f"operands are on different devices: {names}.", '.to("CPU") moves a tensor')
        found[op] = buffer
    return [None if buffer is None else buffer.arg[0].device for buffer in map(found.__getitem__, roots)]


def run_known(roots: Sequence[Op], seen: Seen, keeps: bool = False) -> bool:
    """Runs the plan of graphs if it is known; each root then has its value as `realized`. False if it is not known.

    Args:
      keeps:  True: only a plan that keeps values of Ops within the graphs will do
    """
    known: Known | None = _plans.get(seen.key) if Profiling.recorder is None else None
    if known is None or keeps and not known.kept or (variables := known.variables(seen)) is None:
        return False
    if known.kept:
        roots = [*roots, *[seen.ops[number] for number in known.kept]]
        Carries.turn += 1
    plan, name = known.plan, seen.buffers[0].device
    read, numbers = [*seen.buffers, *known.made], seen.numbers
    inputs = [read[i] if i >= 0 else _stored(numbers[~i], name).arg[0] for i in known.takes]
    outputs = new_outputs(plan, name, variables, inputs)
    run(plan, inputs, outputs, variables, lambda report: template(_written(roots)).error(report))
    for op, value in zip(roots, _results(roots, plan, inputs, outputs, known.results)):
        op.realized = value
    return True


def _stored(constant: Op, name: str) -> Op:
    """Returns a BUFFER Op that holds a constant."""
    return from_host(np.array(constant.arg), constant.dtype, name)


def _compute_on(
    roots: Sequence[Op], name: str, order: Sequence[Op] | None, seen: Seen | None = None
) -> tuple[Template, list[Op]]:
    """Returns the form of graphs on one device, and the BUFFER Ops with their values.

    Args:
      seen:  the short key under which the plan is found the next time
    """
    form = template(roots, order)
    plan = _plans.get((name, False, form.key))
    if plan is None:
        form, plan = find_general_plan(roots, form, name, _scalars, _repeats, seen)
    elif Profiling.recorder is not None:
        Profiling.recorder.learn(plan, roots, form, name, None)
    known = None if seen is None else Known.of(seen, form, plan)
    if seen is not None and known is not None:
        _plans.put(seen.key, known)
    inputs = [form.buffers[op.arg[0]] for op in plan.schedule.inputs]
    outputs = new_outputs(plan, name, form.variables, inputs)
    run(plan, inputs, outputs, form.variables, form.error)
    return form, _results(roots, plan, inputs, outputs)


def find_general_plan(
    roots: Sequence[Op], exact: Template, name: str, scalars: Scalars, repeats: Repeats | None = None,
    seen: Seen | None = None,
) -> tuple[Template, Plan]:  # fmt: skip
    """Returns a form with changing numbers and lengths as inputs, and its plan; lengths that an Op needs stay numbers.

    Args:
      scalars:  knowledge of graphs that differ in numbers, offsets and lengths
      repeats:  counts plannings of lengths that stay numbers
      seen:     tells lengths that are symbolic already, and whether the graphs are alone with theirs
    """
    if name == EVALUATOR:
        return exact, find_plan(roots, exact, name)
    varied = None if seen is None else seen.varied
    while True:
        form = scalars.generalized(exact, name, lambda op: _stored(op, name), varied, seen is not None and seen.has_own)
        if (name, False, form.key) not in _plans:
            if repeats is not None and varied is None and form.sizes is None:
                repeats.note(exact, roots[0])
            if seen is not None and seen.is_alone:
                note_planning(roots, len(form.order))
        try:
            return form, find_plan(roots, form, name)
        except (ShapeError, UnsupportedOp) as error:  # an Op needs a number, or equal lengths
            if form.sizes is None:
                raise
            scalars.refuse(form, getattr(error, "unequal", ()))


def _results(
    roots: Sequence[Op], plan: Plan, inputs: Sequence[Buffer], outputs: Sequence[Buffer],
    places: Sequence[int] | None = None,
) -> list[Op]:  # fmt: skip
    """Returns the BUFFER Ops with the values of graphs that a plan has computed.

    Args:
      places:  for each graph its number among the plan's results; None: they are in the same order
    """
    indices = plan.schedule.outputs
    results = []
    for root, index in zip(roots, indices if places is None else [indices[i] for i in places]):
        use = plan.schedule.buffers[index]
        buffer = outputs[use.source] if use.role == "output" else inputs[use.source]
        if Graphless.living:
            buffer = like_its_sources(buffer, root, inputs)
        results.append(memory_op(buffer, root.shape))
    return results


def find_plan(roots: Sequence[Op], form: Template, name: str, tune: bool = False) -> Plan:
    """Returns the plan for a form of graph; makes it if the form is new.

    Args:
      tune:  whether candidates are timed
    """
    plan: Plan | None = _plans.get((name, tune, form.key))
    began = None
    if plan is None:
        began = perf_counter()
        if name == EVALUATOR:
            plan = make_evaluator_plan(roots, form)
        else:
            plan = make_plan(roots, form, compiler_for(name), tune)
        _plans.put((name, tune, form.key), plan)
    if Profiling.recorder is not None:
        Profiling.recorder.learn(plan, roots, form, name, began)
    return plan


def new_outputs(
    plan: Plan, name: str, variables: Mapping[str, int], inputs: Sequence[Buffer], numbers: Sequence[int] | None = None
) -> list[Buffer]:
    """Returns fresh memory for all outputs of a plan, or for those with these numbers.

    An output that the plan writes only in part begins as a copy of its input.
    """
    fixed, lengths = plan.fixed_outputs, plan.fixed_lengths
    if fixed is None:
        fixed = tuple((use.dtype, dim_value(use.numel, variables)) for use in plan.outputs)
        lengths = tuple(numel * dtype.itemsize for dtype, numel in fixed)
    if numbers is None:
        numbers = range(len(fixed))
    else:
        lengths = tuple([lengths[i] for i in numbers])
    if name == EVALUATOR:  # makes the memory itself
        return [Buffer(name, *fixed[i]) for i in numbers]
    device = compiler_for(name).device
    made = []
    for i, memory in zip(numbers, device.allocate_all(lengths)):
        made.append(Buffer(name, *fixed[i], memory))
        use = plan.outputs[i]
        if use.keeps:
            assert use.over is not None
            device.copy(memory, inputs[use.over].memory, made[-1].nbytes)
    return made


def copy_of(buffer: Buffer) -> Buffer:
    """Returns other memory of the same device with the same values."""
    if buffer.device == EVALUATOR:
        return Buffer(buffer.device, buffer.dtype, buffer.numel, counted(buffer.memory.copy()))
    device = compiler_for(buffer.device).device
    memory = device.allocate(buffer.nbytes)
    device.copy(memory, buffer.memory, buffer.nbytes)
    return Buffer(buffer.device, buffer.dtype, buffer.numel, memory)


def run(
    plan: Plan, inputs: Sequence[Buffer], outputs: Sequence[Buffer], variables: Mapping[str, int],
    error: Callable[[Refused], Refused], may_stop: bool = True, fixed: FixedMemory | None = None,
) -> None:  # fmt: skip
    """Runs a plan once, and counts it where somebody watches.

    Args:
      variables: values of symbolic integers
      error:     turns a report of the plan into the error to raise
      may_stop:  whether an interrupt may leave outputs half-written
      fixed:     a promise about memory; None: any of it may have moved since an earlier run

    Raises:
      Refused: an index is outside its axis, or a matrix has no result; the outputs are not to be used, and nothing
               else has changed.
    """
    recorder = Profiling.recorder
    try:
        if recorder is None:
            plan.run(inputs, outputs, variables, may_stop, fixed)
        else:
            recorder.run(plan, inputs, outputs, variables, may_stop)
    except Refused as report:
        raise error(report) from None
    for counts in active():
        counts.add_run(plan)


# ---- graphs as they are planned ----
def _written(roots: Sequence[Op], blocks: Sequence[Op] = (), inputs: Collection[Op] = ()) -> list[Op]:
    """Returns graphs with LOOPs and without formulas and gradients, followed by the blocks that they then have.

    Args:
      blocks:  SHRINKs and PADs of the graphs
      inputs:  constants that may have other values the next time
    """
    if any(map(NEEDS_GRAD, roots)):
        roots, blocks = from_memory(roots, blocks)
    found, parts = rolled(roots, inputs, blocks)
    return written_out([*found, *parts])


# ---- graphs of many lengths ----
WIDE_NBYTES = 1 << 30  # of a value at the greatest lengths: with more, graphs with convolutions have closer bounds
PLANS_MIN = 4  # plans of a process before lengths are compared: its first graphs have nothing to be compared with


def _with_lengths(seen: Seen | None) -> tuple[Seen | None, Seen | None]:
    """Returns graphs with what is known of their lengths, and the same with symbolic lengths, as `Families.varied` does."""
    return (seen, None) if seen is None or len(_plans) < PLANS_MIN else _families.varied(seen)


def _ran_for_lengths(missing: Sequence[Op], varied: Seen, keeps: bool) -> bool:
    """Runs the plan of graphs for many lengths if it is known; False if it is not, or refuses a value, or lacks memory."""
    try:
        return run_known(missing, varied, keeps)
    except (Refused, OutOfMemoryError):  # its words have symbolic lengths: a plan of these numbers says it again
        return False


def _computed_for_lengths(varied: Seen) -> bool:
    """Computes graphs by a new plan for symbolic lengths; False if none can be made, or it refuses a value."""
    try:
        form = with_symbols(varied)
        if form is None:
            return False
        if varied.varied is not None and varied.varied.sizes.is_wide and _is_large(form.graphs):
            raise TooWide
        made = _compute_by_device(form.graphs, form)
    except Refused:
        return False
    except Exception as error:  # an Op needs a number, equal lengths or memory; any other error comes again with numbers
        another = _families.other_than(varied, error)
        return another is not None and _computed_for_lengths(another)
    for op, graph in zip((*varied.graphs, *varied.kept), form.graphs):
        op.realized = memory_op(made[graph].arg[0], op.shape)
    return True


def _is_large(graphs: Sequence[Op]) -> bool:
    """True where a value is so large at the greatest lengths that no run is likely to have it."""
    computed = [op for op in toposort(graphs, stop=realized) if op.code not in MOVEMENT]
    return any(greatest(numel(op.shape)) * op.dtype.itemsize > WIDE_NBYTES for op in computed)


# ---- loops of many numbers of steps ----
def _computed_in_loops(missing: Sequence[Op], seen: Seen) -> bool:
    """Computes a loop that has come with another number of steps; False if it has not, or if there is no loop.

    Its steps become one LOOP, the values that they read from memory one value. Their number is a length then, so a third
    number needs no plan. The first one has a plan of its own, since most loops always have as many steps.
    """
    if len(seen.ops) < ORDER_OPS_MIN:
        return False
    given, _ = from_memory(missing, ()) if any(map(NEEDS_GRAD, missing)) else (missing, ())
    graphs, _ = rolled(given, frozenset(seen.numbers), stack=_in_rows)
    if graphs is given:
        return False
    rows = [_step_of_loop(graph) for graph in graphs]
    roots = [*dict.fromkeys([graph if row is None else row[0] for graph, row in zip(graphs, rows)])]
    known = look_at(roots)
    _, varied = (None, None) if known is None else _families.varied(known)
    if varied is None or not (_ran_for_lengths(roots, varied, keeps=False) or _computed_for_lengths(varied)):
        return False
    values = dict[Op, Any]()
    for op, graph, row in zip(missing, graphs, rows):
        whole, step = row or (graph, 0)
        op.realized = whole.realized
        if row is not None and op.realized is not None:
            if whole not in values:
                values[whole] = to_host(op.realized)
            op.realized = from_host(values[whole][step].reshape(op.shape), op.dtype, op.realized.arg[0].device)
    return True


def _step_of_loop(graph: Op) -> tuple[Op, int] | None:
    """Returns the value that a LOOP makes of all steps, and the step whose value a graph is; None for any other graph."""
    whole, step = row_of(graph)
    is_of_loop = whole is not None and whole.code is OpCode.OUTPUT and whole.src[0].code is OpCode.LOOP
    return (whole, step) if whole is not None and is_of_loop else None


def _in_rows(column: Sequence[Op]) -> Op:
    """Returns memory that has a row for each of some constants or values in memory."""
    held = [op.realized or op for op in column]
    values = [op.arg if op.code is OpCode.CONST else to_host(op) for op in held]
    devices = [op.arg[0].device for op in held if op.code is OpCode.BUFFER]
    return from_host(np.stack(values), column[0].dtype, devices[0] if devices else default_device())


# ---- graphs in pieces ----
def _computed_in_pieces(missing: Sequence[Op]) -> dict[Op, Op]:
    """Computes a graph in pieces (engine/pieces.py); returns BUFFER Ops of the roots not `realized`."""
    graphs, made = written_out(missing, formulas_stay=True), dict[Op, Op]()
    for piece in pieces_of(graphs):
        made.update(_computed_piece(piece))
    for op, graph in zip(missing, graphs):
        op.realized = graph if graph.code is OpCode.BUFFER else graph.realized
    return {op: made[graph] for op, graph in zip(missing, graphs) if op.realized is None}  # constants


def _computed_piece(piece: Sequence[Op]) -> dict[Op, Op]:
    known = look_at(piece)
    if known is None:
        return _compute_by_device(piece, None)
    if run_known(piece, known):
        return {}
    known, varied = _families.varied(known)
    if varied is not None and _ran_for_lengths(piece, varied, keeps=False):
        return {}
    made: dict[Op, Op] = {}
    if (singles := single_operations(piece, known)) is not None:
        for single in singles:
            made.update(_computed_piece(single))
        return made
    if varied is not None and _computed_for_lengths(varied):
        return {}
    return _compute_by_device(piece, replace(known, is_alone=False))  # only plannings of whole graphs are counted


# ---- values that later graphs ask for ----
CARRIED = ELEMENTWISE - {OpCode.CHECK, OpCode.THREEFRY} | {OpCode.GATHER, OpCode.PAD, OpCode.CONTIGUOUS}
AT_TIMES_CARRIED = MOVEMENT - {OpCode.PAD, OpCode.EXPAND} | {OpCode.FORMULA, OpCode.OUTPUT}
CARRIED_NUMEL_MAX = 1 << 26  # of a value that is kept for the next turn of a loop
TURN_DEPTH_MIN = 4  # of the graph of a value that a loop carries
TURN_OPS_MAX = 16  # of such a graph, above the value that the turn before has kept
VIEW_STEPS_MAX = 8  # in a row, that each turn may take again


class Carries:
    """Knowledge of loops that carry a value.

    depth:  the least depth of a graph that may be part of such a loop; no graph is that deep until a loop has been seen
    turn:   number of runs that have kept values of Ops within their graphs
    lines:  number of lines known to make values that later graphs need
    """

    depth = sys.maxsize
    turn = 0
    lines = 0


def on_memory(op: Op) -> Op:
    """Returns a graph that begins at the nearest kept values; `op` itself if there are none, or only distant ones.

    Otherwise the graph of a loop's value would keep the values of all earlier turns alive.
    """
    ends: dict[Op, Op] = {}
    walked, stack = {op}, [op]
    while stack and len(walked) <= TURN_OPS_MAX:
        source = stack.pop()
        if source.needs_grad or source.code is OpCode.GRADIENT:
            return op
        if source.realized is not None:
            ends[source] = source.realized
        elif source.code is not OpCode.DETACH:
            for below in source.src:
                if below not in walked:
                    walked.add(below)
                    stack.append(below)
    return op if stack or not ends else substitute([op], ends)[0]


def is_carried(op: Op) -> bool:
    """True for a graph of constants alone from a line that makes values which a loop carries."""
    made_by = _computed_again.get(_kind(op))
    return made_by is not None and op.lines[:1] in made_by and devices_of([op])[0] is None


def _recurring(missing: Sequence[Op], seen: Seen) -> tuple[list[Op], list[Op]]:
    """Returns Ops whose values are to be kept: those that an earlier graph has computed, and those a later one will need.

    Otherwise data that are normalized or shuffled and then read in batches would be normalized again for every batch, and
    a network would run twice for a loss and an accuracy.
    """
    again, fresh = set[Op](), set[Op]()
    for op in seen.costly:
        # A drawn value is kept from the third graph on: drawing twice is cheaper than keeping it.
        if op.times_computed >= (2 if op.code is OpCode.FORMULA and op.arg.is_drawn else 1):
            again.add(op)
            continue
        op.times_computed += 1
        if _computed_again and (made_by := _computed_again.get(_kind(op))) and (not op.lines or op.lines[:1] in made_by):
            fresh.add(op)
    if fresh and (known := _plans.get(seen.key)) is not None and known.kept:
        fresh.clear()  # that plan keeps them
    return _learned(missing, again) if again else [], _known_to_recur(missing, fresh) if fresh else []


def _carried(missing: Sequence[Op], kept: Sequence[Op]) -> list[Op]:
    """Returns the Ops whose values a new plan keeps: those in `kept`, and values that a loop carries.

    A loop such as  t = t + dt  that reads f(t) would otherwise make every graph longer than the one before it. A value
    that two plans have computed on the way to others is kept by the third, and from then on by the line that made it.
    """
    again, fresh, missing = set[Op](), set[Op](), [*missing, *kept]
    for op in order_of(missing):
        if op.needs_grad or op.realized is not None or op.numel > CARRIED_NUMEL_MAX:
            continue
        if op.code not in CARRIED and (op.code not in AT_TIMES_CARRIED or not _is_carried_too(op)):
            continue
        if op.times_computed >= 2:
            again.add(op)
            continue
        op.times_computed += 1
        if _computed_again and (made_by := _computed_again.get(_kind(op))) and op.lines[:1] in made_by:
            fresh.add(op)
    before, found = Carries.lines, _learned(missing, again) if again else []
    for key in [*_plans] if Carries.lines > before else ():
        if isinstance(_plans.get(key), Known):  # it does not keep the values of the new line
            _plans.pop(key, None)  # another thread may have removed it
    kept = [*kept, *found, *(_known_to_recur(missing, fresh) if fresh else ())]
    Carries.turn += bool(kept)
    return kept


def _is_carried_too(op: Op) -> bool:
    """True if one of AT_TIMES_CARRIED may be a loop's value: a result, a cheap formula, or a view far from memory."""
    if op.code is OpCode.OUTPUT:
        return op.src[0].code is not OpCode.GRADIENT
    if op.code is OpCode.FORMULA:
        return len(op.arg.kinds) == 1 and not op.arg.is_costly
    return _is_far_from_memory(op)


def _is_far_from_memory(view: Op) -> bool:
    """True for a view of a view, and so on, VIEW_STEPS_MAX times."""
    for _ in range(VIEW_STEPS_MAX):
        view = view.src[0]
        if view.code not in MOVEMENT or view.realized is not None:
            return False
    return True


def _learned(missing: Sequence[Op], again: set[Op]) -> list[Op]:
    """Returns the first Op of `again` on each path from the roots; values of their lines are kept at once from now on."""
    found = _nearest(missing, again)
    for op, lines in found.items():
        if lines:
            made_by = _computed_again.setdefault(_kind(op), Latest(LINES_AGAIN_MAX))
            Carries.lines += lines not in made_by
            made_by.put(lines, None)
            Carries.depth = TURN_DEPTH_MIN
    return _on_a_device(found)


def _known_to_recur(missing: Sequence[Op], fresh: set[Op]) -> list[Op]:
    """Returns the Ops of `fresh` whose lines make values that later graphs need: on each path the first of a line."""
    return _on_a_device(_nearest(missing, fresh, _computed_again))


def _on_a_device(ops: Iterable[Op]) -> list[Op]:
    """Returns the Ops that read memory: values of constants belong to no device, and are not kept."""
    ops = [*ops]
    return [op for op, device in zip(ops, devices_of(ops)) if device is not None]


def _kind(op: Op) -> Hashable:
    return op.arg.name if op.code is OpCode.FORMULA else op.code, op.dtype, len(op.shape)


def _nearest(
    missing: Sequence[Op], wanted: set[Op], made_by: Mapping[Hashable, Collection[Lines]] | None = None
) -> dict[Op, Lines]:
    """Returns the first wanted Op on each path from the roots, with the user's line that made it, or else its reader.

    Args:
      made_by:  lines by kind of Op: on each path only the first Op of each of these lines counts; None: any line
    """
    wanted.difference_update(missing)
    found: dict[Op, Lines] = {}
    stack: list[tuple[Op, Lines, Lines]] = [(op, op.lines[:1], ()) for op in missing] if wanted else []
    walked = set(missing)
    while stack:
        op, lines, above = stack.pop()
        if op in wanted and (made_by is None or lines in made_by[_kind(op)] and lines not in above):
            found[op] = lines
            if made_by is None:
                continue
            above = (*above, lines)
        if op.realized is None or op.needs_grad:
            fresh = [source for source in op.src if source not in walked]
            walked.update(fresh)
            stack += [(source, source.lines[:1] or lines, above) for source in fresh]
    return found


# ---- host memory ----
def from_host(array: np.ndarray[Any, Any], dtype: DType, device: str) -> Op:
    """Returns a BUFFER Op with a copy of `array`.

    Raises:
      DeviceError:      there is no such device here.
      OutOfMemoryError: the device, or the host, has no memory for it.
    """
    try:
        data = (np.array if device == EVALUATOR else np.asarray)(array, dtype=dtype.numpy, order="C")
    except MemoryError as error:
        raise OutOfMemoryError.of_host(error) from None
    if device == EVALUATOR:
        memory: Any = counted(data)
    else:
        target = compiler_for(device).device
        memory = target.allocate(data.nbytes)
        target.copy_in(memory, data)
    return memory_op(Buffer(device, dtype, data.size, memory), data.shape)


def to_host(buffer: Op) -> np.ndarray[Any, Any]:
    """Returns a copy of a BUFFER Op's content."""
    owner = buffer.arg[0]
    shape = [dim_value(dim, {}) for dim in buffer.shape]
    if owner.device == EVALUATOR:
        held: np.ndarray[Any, Any] = owner.memory.reshape(shape)
        return held.copy()
    check_array("host", tuple(shape), buffer.dtype.itemsize)
    array = np.empty(shape, dtype=buffer.dtype.numpy)
    compiler_for(owner.device).device.copy_out(owner.memory, array)
    return array


def _copied_across(copy: Op) -> Op:
    """Returns the BUFFER Op of a COPY's value; symbolic lengths stay symbolic."""
    made = from_host(to_host(realize(copy.src)[0]), copy.dtype, copy.arg)
    return memory_op(made.arg[0], copy.shape)
