"""When values are computed: what is asked for, and in the same plan what has been decided already.

Two things join a plan unasked. A write in place is state: if it stayed a graph, x += 1 in a loop would build an ever
longer one. And a loss, a scalar, and its gradients, once backward() was called, share the forward pass: who asks for
one of them, or for an accuracy, will ask for the others. So a step computes as much wherever its values are read; also
where a loss is read before backward(), which is expected where it has followed before. What joins unasked and fails is left
out: a failure belongs to who asks for what fails.

A graph that grows without bound is computed early, with the same results; one that needs gradients is kept for
backward(), and mentioned. A formula is a function whose graph is made with its plan.

Parameters get new values by a step of an optimizer (optim/updates.py) or by a program's own writes in place. A loss that
nobody has computed yet reads the old ones, and is computed in the plan of the update: the forward pass runs once, and the
old memory can be used again. Any other result, an activation that a local variable still names, is put off: it is computed
from the old parameters if somebody asks for it, and mostly nobody does. Where somebody has asked, results of that line are
computed with the update from then on, such as the state that a recurrent network hands to its next batch: else each step
would compute all states before it. So the plan of a step does not depend on which locals are alive, and stores none.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, cast

import numpy as np

from picograd.autodiff.gradient import FREE, gradients_expected, reached, written_out
from picograd.autodiff.unrolled import rolled
from picograd.dtype import DType
from picograd.engine.first_values import evaluate_first
from picograd.engine.realize import default_device, devices_of, from_host, realize, realized
from picograd.errors import Line, OutOfMemoryError, PicogradError, VerifyError, user_line
from picograd.interrupts import LivingKeys, LivingSet, LivingValues
from picograd.ir import bodies as later
from picograd.ir.bodies import Kind, bodies_in
from picograd.ir.host import Refused
from picograd.ir.op import Buffer, Op, toposort, unshared
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.ir.shape import ConvArg
from picograd.tensor.anomaly import Anomaly, look_at
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, grad_mode, pending, read_through, replace_op, replace_ops, trace
from picograd.tensor.hooks import LeafNumber

# ---- computing ----
SMALL_NBYTES = 1 << 16  # of a tensor that may be copied at each write
_failed: LivingSet[Op] = LivingSet()  # graphs that joined a plan unasked, and failed: they join no other


def compute_together(cells: Iterable[Cell], others: Iterable[Cell] = ()) -> None:
    """When one of these cells, or of `others`, is computed, all of these are: most of the work is the same."""
    cells = list(cells)
    references = [weakref.ref(cell) for cell in cells]
    for cell in (*cells, *others):
        cell.computed_with = references


def compute_first(starts: Iterable[tuple[Op, str | None]]) -> None:
    """Has values computed before the next plan, in a plan of their own; constants only if they `begin_apart`.

    They are what a network begins with: random numbers are made by one kernel and not by each that reads them. Its first
    step is planned like those after it, which read all of that in memory.

    Args:
      starts:  values, each with the device of the tensor that begins with it
    """
    pending.starts += [
        (weakref.ref(op), device)
        for op, device in starts
        if not _known(op) and (begins_apart(op) or devices_of([op])[0] is not None)
    ]


def begin_apart(cell: Cell) -> None:
    """Lets a constant that is about to be trained or written to, as zeros and ones are, have memory of its own.

    Equal constants are one Op. This one is another, so that memory which holds it is this tensor's.
    """
    op = cell.op
    if is_fill(op) and trace.get() is None:
        replace_op(cell, op, apart(op))


def apart(fill: Op) -> Op:
    """Returns the same constant as an Op that no other tensor has."""
    return unshared(fill.code, fill.dtype, fill.src, fill.arg, fill.shape, False)


def begins_apart(op: Op) -> bool:
    """True for a constant that is an Op of its own."""
    return is_fill(op) and Op(op.code, op.dtype, op.src, op.arg) is not op


def is_fill(op: Op) -> bool:
    """True for one value in a fixed shape."""
    return op.code is OpCode.EXPAND and op.src[0].code is OpCode.CONST and all(dim.__class__ is int for dim in op.shape)


def compute(cells: Iterable[Cell], ops: Sequence[Op] = (), unasked: Sequence[Cell] = ()) -> list[Op]:
    """Computes cells, and Ops for which it returns the BUFFER Ops, in one plan with what is pending.

    A cell that needs gradients keeps its graph, for backward(); later readers find its value all the same. Where a gradient
    or a loss that joins the plan fails, the plan is made without it; that fails again where somebody asks for it.

    Args:
      unasked:  cells that join the plan as `beside` do

    Raises:
      Refused:          an index is outside its axis, or a matrix has no result. Nothing is computed then; writes in place
                        that needed it have not happened, others are still pending.
      OutOfMemoryError: of pending writes, those for which there is memory are computed; other writes in place have not
                        happened.
      PicogradError:    all is still pending.
    """
    # NOTE: that a cell has its value is seen without an Op for it, which jit makes for nobody.
    wanted: dict[Cell, Op] = {}
    for cell in cells:
        content = cell.content
        if type(content) is not tuple:
            op = content if type(content) is Op else cell.op
            if op.code is not OpCode.BUFFER:
                wanted[cell] = op
    if not wanted and not ops and not unasked:
        return []
    asked, joining = list(wanted), [cell for cell in unasked if type(cell.content) is not tuple]
    written: list[Cell] = []
    expected: dict[Op, dict[Op, Cell]] = {}
    if joining or not all(map(_known, [*wanted.values(), *ops])):
        if pending.starts:
            _compute_starts()
        references: Sequence[weakref.ref[Cell]] = ()
        for cell in (*asked, *joining):
            if cell.computed_with is not references:  # which cells that are computed together share
                references = cell.computed_with
                joining += [other for reference in references if (other := reference()) is not None]
        if pending.writes.data:
            joining += readers_of_writes()
            written = pending.writes.living()
        if Waiting.is_on and not unasked:
            shared, expected = _sharing([*wanted.values(), *ops, *([cell.op for cell in written] if written else ())])
            joining += shared
        given = frozenset(ops)
        for other in [*joining, *written]:
            if other in wanted:
                continue
            content = other.content
            op = content if type(content) is Op else other.op
            if op.code is not OpCode.BUFFER and op not in given and not (_failed and _failed.has(op)):
                wanted[other] = op
    try:
        results = _compute_but_failures(wanted, ops, asked, written)
    except Refused as error:
        _undo_writes_of(error)
        raise
    except OutOfMemoryError:
        _undo_writes_that_fail()
        raise
    if Anomaly.is_on:
        look_at([*wanted.values(), *ops], "result")
    for root, grads in expected.items():
        if all(type(cell.content) is tuple for cell in grads.values()):
            prepared[root] = {leaf: cell.op for leaf, cell in grads.items()}
    if written:
        _forget_writes(written)
    if joining:
        for cell in (*asked, *unasked):
            cell.computed_with = ()
    return results


def compute_unasked(ops: Sequence[Op]) -> list[Op | None]:
    """Computes graphs that somebody may ask for later; returns the BUFFER Ops, None for each that fails."""
    try:
        return [*realize(ops)]
    except VerifyError:
        raise
    except PicogradError as error:
        failing = {*_that_fail(ops, error)}
        if not failing:
            raise
        rest = [op for op in ops if op not in failing]
        found = dict(zip(rest, compute_unasked(rest)))
        return [found.get(op) for op in ops]


def look_at_gradients(roots: Iterable[Op], grads: Iterable[Op]) -> None:
    """Computes results and their gradients, and looks for NaN in both.

    Raises:
      AnomalyError: there is one.
    """
    results, found = list(roots), list(grads)
    realize([*results, *found])
    look_at(results, "result")
    look_at(found, "gradient")


def compute_writes(cell: Cell) -> None:
    """Computes what was written in place to a cell.

    What is small and in memory is written step by step: each write has the form of the others, where all of them together
    have a form, and so a plan, that depends on which elements they meet.
    """
    first, *others = pending.writes[cell]
    try:
        if _known(first) and first.nbytes <= SMALL_NBYTES:
            for op in others:
                realize([op])
    except Refused as error:
        _undo_writes_of(error)
        raise
    compute([cell])


def _compute_starts() -> None:
    """Computes the first values of leaves, and of what is written to; constants are stored from the host."""
    starts, pending.starts = [(reference(), device) for reference, device in pending.starts], []
    left = {op: device for op, device in starts if op is not None and not _known(op)}
    for op, device in left.items():
        if begins_apart(op):
            with suppress(OutOfMemoryError):  # then it stays a constant
                op.realized = stored_fill(op, device)
    rest = [op for op in left if not begins_apart(op)]
    evaluate_first(rest)
    compute_unasked(rest)


def stored_fill(fill: Op, device: str | None) -> Op:
    """Returns memory that holds a constant in a fixed shape, written by the host: a kernel would run once."""
    value = np.broadcast_to(np.asarray(fill.src[0].arg, fill.dtype.numpy), cast("tuple[int, ...]", fill.shape))
    return from_host(value, fill.dtype, device or default_device())


def evaluate_beginnings() -> None:
    """Computes what was written before anything was computed, such as random weights, where that needs no kernel."""
    evaluate_first([cell.op for cell in pending.writes.living()])


def _compute_but_failures(
    wanted: dict[Cell, Op], ops: Sequence[Op], asked: Sequence[Cell], written: Sequence[Cell]
) -> list[Op]:
    """Computes cells and Ops in one plan, without what nobody has asked for and fails: it is taken out of `wanted`.

    A write in place by hand counts as asked for: it is undone, where PyTorch would not have made it.
    """
    while True:
        try:
            return _compute_all(wanted, ops)
        except VerifyError:
            raise
        except PicogradError as error:
            by_hand = [cell for cell in written if not cell.computed_with]
            needed = {cell: op for cell in (*asked, *by_hand) if (op := wanted.get(cell)) is not None}
            rest = {cell: op for cell, op in wanted.items() if cell not in needed}
            if not rest or _that_reach(error, [*ops, *needed.values()]):
                raise
            failing = {*_that_fail([*rest.values()], error)}
            for op in failing:
                _failed.add(op)
            if not failing:  # each alone
                _compute_all(rest, ())
            for cell, op in rest.items():
                if op in failing or not failing:
                    del wanted[cell]


def _that_fail(graphs: Sequence[Op], error: PicogradError) -> list[Op]:
    """Returns those of some graphs, computed together with this error, that fail.

    Where the error does not say which, they are computed, those that have work in common together.
    """
    failing = _that_reach(error, graphs)
    for group in [] if failing else _connected(graphs):
        try:
            realize(group)
        except VerifyError:
            raise
        except PicogradError:
            failing += group
    return failing


def _that_reach(error: PicogradError, graphs: Sequence[Op]) -> list[Op]:
    """Returns those of some graphs in which a value was refused."""
    if not isinstance(error, Refused) or error.check is None:
        return []
    found = []
    for op, whole in zip(graphs, written_out(rolled(graphs))):
        order = toposort([whole], stop=realized)
        if error.check in order or any(error.check in toposort(body.src) for body in bodies_in(order)):
            found.append(op)
    return found


def _forget_writes(written: Sequence[Cell]) -> None:
    """Takes note that writes in place have been computed, all but those that were left out."""
    if not _failed:
        pending.writes.data.clear()
        return
    for cell in written:
        if not _failed.has(cell.op):
            pending.writes.pop(cell, None)


def _compute_all(wanted: Mapping[Cell, Op], ops: Sequence[Op]) -> list[Op]:
    """Computes cells and Ops in one plan; the cells then hold memory. Returns the BUFFERs of the Ops."""
    at_home = [op if _reads_memory(op) else placed(cell, op) for cell, op in wanted.items()]
    buffers = realize([*at_home, *ops])
    replace_ops([(cell, op, buffer) for (cell, op), buffer in zip(wanted.items(), buffers) if not op.needs_grad])
    return buffers[len(wanted) :]


def _reads_memory(op: Op) -> bool:
    """True for a graph whose first source is memory, or the last leaf of a gradient; others may read some, too."""
    while op.src:
        op = op.src[-1 if op.code is OpCode.GRADIENT else 0]
        if op.code is OpCode.BUFFER or op.realized is not None:
            return True
    return False


def placed(cell: Cell, op: Op) -> Op:
    """Returns the graph of a cell; one of constants alone, which live everywhere, as a copy where the cell says it is."""
    if cell.device in (None, default_device()) or devices_of([op])[0] is not None:
        return op
    return Op(OpCode.COPY, op.dtype, (op,), cell.device)


def cell_buffer(cell: Cell) -> Buffer:
    """Returns the buffer that holds the value of a cell, computed now if need be."""
    held = cell.held()
    if held is not None:
        return held[0]
    op = before = cell.op
    if op.code is not OpCode.BUFFER:
        op = realize([placed(cell, op)])[0]
        if not before.needs_grad:
            replace_op(cell, before, op)
    return cast(Buffer, op.arg[0])


def _undo_writes_of(error: Refused) -> None:
    """Takes back what was written in place and needs the index that is wrong: or it would fail for ever after."""
    for cell, before in pending.writes.items():
        while before and _that_reach(error, [cell.op]):
            cell.op = before.pop()
        if not before:
            del pending.writes[cell]


def _undo_writes_that_fail() -> None:
    """Computes what is pending by itself; where that fails it takes back the last writes, and tries those before them.

    Or all that is asked for would fail with them ever after.
    """
    holders = {cell.op: cell for cell in pending.writes.living()}
    for group in _connected([*holders]):
        cells = [holders[op] for op in group]
        while cells:
            try:
                _compute_all({cell: cell.op for cell in cells}, [])
                break
            except PicogradError:
                for cell in cells:
                    cell.op = pending.writes[cell].pop()
                cells = [cell for cell in cells if pending.writes[cell]]
    pending.writes.data.clear()


def _connected(graphs: Sequence[Op]) -> list[list[Op]]:
    """Returns graphs in groups that have no work in common: a training step's writes are one."""
    groups: list[tuple[set[Op], list[Op]]] = []
    for root in graphs:
        work = {op for op in toposort([root], stop=realized) if op.src and op not in realized}
        shared = [group for group in groups if not group[0].isdisjoint(work)]
        groups = [group for group in groups if group not in shared]
        groups.append((work.union(*[ops for ops, _ in shared]), [*[op for _, others in shared for op in others], root]))
    return [together for _, together in groups]


@contextmanager
def all_or_nothing(cells: Iterable[Cell]) -> Iterator[None]:
    """Takes back every write of the block to these cells if it ends in an error, or an interrupt."""
    values = [(cell, cell.op) for cell in cells]
    num_writes = {cell: len(before) for cell, before in pending.writes.items()}
    try:
        yield
    except BaseException:
        for cell, op in values:
            cell.op = op
            before = pending.writes.get(cell, [])[: num_writes.get(cell, 0)]
            pending.writes.pop(cell, None)
            if before:
                pending.writes[cell] = before
        raise


def _known(op: Op) -> bool:
    return op.code is OpCode.BUFFER or op.realized is not None


# ---- gradients that wait, and graphs that share work with them ----
class Waiting:
    """Gradients that backward() has made graphs of, and that nobody has read.

    roots:  the graphs that they are gradients of
    cells:  theirs, and those of roots that are scalars
    is_on:  backward() was called in this process
    """

    __slots__ = ("roots", "cells")
    is_on = False

    def __init__(self, roots: Iterable[Op], cells: Iterable[Cell]):
        self.roots = [*roots]
        self.cells = dict.fromkeys(map(weakref.ref, cells))

    def graphs(self) -> dict[Cell, Op]:
        """Returns the cells that are still to be computed, with their graphs."""
        living = [cell for reference in self.cells if (cell := reference()) is not None]
        return {cell: op for cell in living if isinstance(op := cell.content, Op) and op.realized is None}

    def work(self) -> dict[Op, None]:
        """Returns the Ops that gradients go through."""
        return _work_of(self.roots)


waiting: dict[Waiting, None] = {}


def wait_for(roots: Iterable[Op], cells: Iterable[Cell]) -> None:
    """Has gradients computed with the next value that shares work with them; those that were added to others, together."""
    one = Waiting(roots, cells)
    for other in [*waiting]:
        is_sum = not one.cells.keys().isdisjoint(other.cells)
        if is_sum:
            one.roots += other.roots
            one.cells |= other.cells
        if is_sum or not other.graphs():  # else gradients that are gone would keep their graph
            waiting.pop(other, None)
    waiting[one] = None
    Waiting.is_on = True


def _sharing(graphs: Sequence[Op]) -> tuple[list[Cell], dict[Op, dict[Op, Cell]]]:
    """Returns the cells that are computed with graphs, unasked, since most of the work is the same.

    They are gradients that wait, as PyTorch has computed them by then, with the scalars on their way; and gradients for
    which backward() will ask: the cells of these are returned by root and leaf, too. Other results of the same work are
    asked for later, mostly not. Those that were, so that they were computed twice, are kept from then on, by their makers.

    Cost: a look at the Ops of the graphs, and where they need gradients at those that the gradients are of.
    """
    unread = {one: one.graphs() for one in [*waiting]} if waiting else {}
    holder = {op: one for one, cells in unread.items() for op in cells.values()} if unread else {}
    work, found, again = _differentiable_in(graphs, holder)
    shared: list[Cell] = []
    differentiated: dict[Op, None] = {}
    for one, cells in unread.items():
        own = one.work() if cells and (one in found or work) else {}
        if not cells or one in found or not work.keys().isdisjoint(own):
            shared += cells
            differentiated |= own
            waiting.pop(one, None)
    if again:
        asked_for.update([maker_of(op) for op in again if shared or op.was_computed])
    expected = _expected(work, differentiated) if followed and work else {}
    for root, grads in expected.items():
        shared += [Cell(root, None), *grads.values()]
        differentiated |= _work_of([root])
    if not shared:
        return [], {}
    results = {op: cell for cell in differentiable_cells.living() if type(op := cell.content) is Op}
    for op in {**work, **differentiated}:
        op.was_computed = True
        is_asked = asked_for and maker_of(op) in asked_for
        if (is_asked or (op in results and not op.shape)) and op.realized is None and _has_value(op):
            shared.append(results.get(op) or Cell(op, None))
    return shared, expected


def _work_of(roots: Sequence[Op]) -> dict[Op, None]:
    return dict.fromkeys([op for op in reached(roots) if op.code not in FREE or op.code is OpCode.OUTPUT])


def _differentiable_in(
    graphs: Sequence[Op], holder: Mapping[Op, Waiting]
) -> tuple[dict[Op, None], dict[Waiting, None], list[Op]]:
    """Returns the Ops to compute for graphs through which gradients flow, those who wait for some of the graphs, and the
    results among the Ops that a plan has computed before."""
    work: dict[Op, None] = {}
    found: dict[Waiting, None] = {}
    again: list[Op] = []
    seen: set[Op] = set()
    stack = [*graphs]
    while stack:
        op = stack.pop()
        if op in seen or op.realized is not None:
            continue
        seen.add(op)
        if (one := holder.get(op)) is not None:
            found[one] = None
            continue
        if op.needs_grad and (op.code not in FREE or op.code is OpCode.OUTPUT):
            work[op] = None
            if op.was_computed is None:
                op.was_computed = False
            elif _has_value(op):
                again.append(op)
                continue
        stack += op.src
    return work, found, again


def _has_value(op: Op) -> bool:
    """True for a result of a line of the user's, and not for several results in one."""
    is_one = op.code not in SEVERAL_RESULTS or (op.code is OpCode.FORMULA and len(op.arg.kinds) == 1)
    return is_one and bool(op.lines)


# ---- gradients for which backward() will ask ----
# Where a program reads a loss, or a value that shares work with it, and calls backward() then, the gradients are computed
# with that value, from the second time on. A counter that saturates, as a processor has for each branch, says whether
# backward() follows: it goes up where it does, and down where gradients were computed in vain.
MOST_FOLLOWED = 2
followed: dict[Maker, int] = {}  # where it is not 0
not_there: set[Maker] = set()  # of losses that are made after the values are read that share work with them
prepared: LivingKeys[Op, dict[Op, Op]] = LivingKeys()  # root -> leaf -> memory of its gradient


def take_prepared(root: Op, on_the_way: Sequence[Op]) -> dict[Op, Op]:
    """Returns the gradients of a scalar that have been computed already, at leaves; notes that backward() has followed."""
    made = prepared.pop(root, None)
    if made is not None:
        followed[maker_of(root)] = MOST_FOLLOWED
    elif Waiting.is_on and {op.was_computed for op in on_the_way} != {None} and (maker := maker_of(root)) not in not_there:
        if followed.pop(maker, 0):
            not_there.add(maker)
        else:
            followed[maker] = MOST_FOLLOWED
    return made or {}


def _expected(work: Mapping[Op, None], differentiated: Mapping[Op, None]) -> dict[Op, dict[Op, Cell]]:
    """Returns the scalars that share work with a plan and for whose gradients backward() will ask, with these by leaf."""
    if LeafNumber.hooked or Anomaly.is_on:
        return {}
    newest = [cell for reference in [*differentiable_cells.values()][-NEWEST:] if (cell := reference()) is not None]
    scalars = [op for op in [*work, *[cell.content for cell in newest]] if type(op) is Op and not op.shape]
    found: dict[Op, dict[Op, Cell]] = {}
    for op in dict.fromkeys(scalars):
        times = followed.get(maker_of(op), 0)
        if not times or not op.needs_grad or op.realized is not None or op in differentiated:
            continue
        if work.keys().isdisjoint(_work_of([op])):
            continue
        followed[maker_of(op)] = times - 1
        if times == 1:
            del followed[maker_of(op)]
        with suppress(PicogradError):  # which backward() raises
            found[op] = {leaf: Cell(detached(grad), None) for leaf, grad in gradients_expected(op).items()}
    return {op: grads for op, grads in found.items() if grads}


# ---- graphs made when their plan is ----
P = ParamSpec("P")
PLAIN = frozenset({bool, int, float, str, type(None), tuple, DType, ConvArg})  # arguments of formulas besides Ops


def formula(function: Callable[P, Op]) -> Callable[P, Op]:
    """Lets a function give one Op whose graph is made later, in a trace the graph itself.

    It takes Ops first, by position, and behind them what else decides its graph (hashable; of 0.0 and -0.0 the graph is the
    same), and reads nothing else: no mode, no value. It gives an Op through which gradients flow where they flow through
    one of its results. What it says of dtypes and shapes it says at the call: the first one with such operands makes the
    graph on trial.
    """
    count = _num_ops(function)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Op:
        others = args[count:]
        if trace.get() is not None or later.at_once.get() or not PLAIN.issuperset(map(type, others)):
            return function(*args, **named)
        src = args[:count]
        kinds, depth, needs_grad = [], 0, False  # in one loop: every function of several Ops comes by here
        for s in src:
            kinds.append((s.dtype, s.shape))
            if s.depth > depth:
                depth = s.depth
            if s.needs_grad:
                needs_grad = True
        known = later.formula_of((function, others, tuple(named.items()) if named else ()), tuple(kinds))
        dtype, shape = known.kinds[0]
        op = object.__new__(Op)  # `unshared` written out
        op.code, op.dtype, op.src, op.arg, op.lines = OpCode.FORMULA, dtype, src, known, ()
        op.realized = op.was_computed = None
        op.shape, op.needs_grad, op.depth = shape, needs_grad and dtype.kind == "f", depth + known.depth
        return op

    return call


def _num_ops(function: Callable[..., Op]) -> int:
    """Returns how many Ops a function takes before anything else."""
    count = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.annotation != "Op":
            break
        if parameter.kind is parameter.VAR_POSITIONAL:
            return sys.maxsize
        count += 1
    return count


def by_formula(
    function: Callable[..., Sequence[Op]], options: Hashable, operands: Sequence[Op | float], kinds: tuple[Kind, ...]
) -> Sequence[Op]:
    """Returns function(options, *operands), as graphs that are made later: in a trace, which is read, now.

    Args:
      kinds:  dtype and shape of each result
    """
    if trace.get() is None and not later.at_once.get():
        return later.by_formula(function, options, operands, kinds)
    return function(options, *operands)


# ---- graphs that grow without bound ----
MAX_DEPTH = 8_000  # of a graph that is not computed yet: twice that of a network of 100 layers without its gradients
MAX_LIVE = 100_000  # Ops alive: with more of them, it is measured now and then whether one graph has most of them
MOST_WRITES = 32  # in place to one tensor, as in  counts[a, b] += 1  in a loop, before they are computed
CHOICE_OPS = 64  # of a graph that is computed once something is chosen by it
STEP_OPS = 256  # of a graph that is computed before numbers are drawn again
NEWEST = 16  # values, one of which may be a loop's carry
EVERY = 16  # a graph is measured where the depth of its root is a multiple of this

long_gradients: LivingSet[Cell] = LivingSet()  # of a deep network, maybe not computed yet
# The latest made where no gradients are recorded, maybe not computed yet, maybe dead: a finalizer for each costs too much.
plain_cells: deque[weakref.ref[Cell]] = deque(maxlen=1 << 16)
_mentioned: set[Line | None] = set()


class NextLook:
    """When to look for a long graph next.

    depth:  graphs are measured where their depth is that
    limit:  graphs are measured once so many Ops are alive
    left:   how many Ops may still be counted, in graphs that share few of them, before `limit` is raised
    """

    depth = MAX_DEPTH
    limit = MAX_LIVE
    left = EVERY * MAX_LIVE


def settle(cell: Cell, op: Op, num_writes: int = 0) -> None:
    """Computes `op`, the value of `cell`, if that is a graph that has grown step by step. Mostly three comparisons.

    Args:
      num_writes:  in place that it consists of
    """
    if num_writes >= MOST_WRITES and not op.needs_grad:
        compute_writes(cell)
        return
    if op.depth >= NextLook.depth and not op.needs_grad:
        is_long = unrealized(op, NextLook.depth // 4) >= NextLook.depth // 4
    elif len(Op.interned) >= NextLook.limit and op.depth % EVERY == 0:
        is_long = _has_most(op)
    else:
        return
    if not is_long or trace.get() is not None:
        return
    line = user_line()
    if not op.needs_grad:
        compute([cell], (), [*long_gradients.living(), *_living_plain()])  # what they share is computed once
        long_gradients.clear()
        plain_cells.clear()
        NextLook.limit, NextLook.left = MAX_LIVE, EVERY * MAX_LIVE
    if line not in _mentioned:
        _mentioned.add(line)
        _mention(op, line)


def settle_choice(chosen: Cell) -> None:
    """Computes values drawn or chosen where no gradients are recorded, and all that is alive of values made there.

    A loop that goes on from its own choices, as one that writes text does, would be one graph of all its steps. What lives
    on, such as a cache, is what PyTorch would hold in memory.
    """
    if not grad_mode.get() and trace.get() is None and unrealized(chosen.op, CHOICE_OPS) >= CHOICE_OPS:
        compute([chosen], (), _living_plain())
        plain_cells.clear()


def settle_step() -> None:
    """Computes what is alive where numbers are drawn again and no gradients are recorded, if that is a long graph.

    A loop that removes noise step by step would be one graph of all its steps, each a network and each with numbers of its
    own; step by step, they have one form.
    """
    if grad_mode.get() or trace.get() is not None:
        return
    living = _living_plain()
    plain_cells.clear()
    graphs = [op for cell in living[-NEWEST:] if isinstance(op := cell.content, Op) and op.depth >= STEP_OPS // 8]
    if any(unrealized(op, STEP_OPS) >= STEP_OPS for op in graphs):
        compute((), (), living)
    else:
        plain_cells.extend(map(weakref.ref, living))


def _living_plain() -> list[Cell]:
    return [cell for reference in plain_cells.copy() if (cell := reference()) is not None]


def expect(cell: Cell) -> None:
    """Leaves the gradient in `cell` a graph; if it is a long one, it is computed with the next value that is."""
    if cell.op.depth >= NextLook.depth // 2:
        long_gradients.add(cell)


def _has_most(op: Op) -> bool:
    """True when the graph of `op` alone has half as many Ops as `limit`."""
    most = NextLook.limit // 2
    num_ops = unrealized(op, most)
    NextLook.left -= num_ops
    has_most = num_ops >= most
    if has_most and not op.needs_grad:
        return True
    # A graph for backward() is not computed here, and many small graphs are no long one: either way the Ops stay. So that
    # they are not measured again and again, the next look is when half as many more are alive.
    if has_most or NextLook.left < 0:
        NextLook.limit = 3 * max(NextLook.limit, len(Op.interned)) // 2
        NextLook.left = EVERY * NextLook.limit
    return has_most


def unrealized(root: Op, most: int) -> int:
    """Returns how many Ops a root needs, counted up to `most`; in a graph that is kept a formula is one Op."""
    seen = {root}
    stack = [root]
    left = most
    while stack and len(seen) < left:
        op = stack.pop()
        if op.realized is None:
            if op.code is OpCode.FORMULA and not root.needs_grad:
                left -= op.arg.num_ops - 1
            for s in op.src:
                if s not in seen:
                    seen.add(s)
                    stack.append(s)
    return len(seen) + most - left


def _mention(op: Op, line: Line | None) -> None:
    """Warns of a graph that grows, on the user's line."""
    if op.needs_grad:
        fact = (
            f"a result of shape {op.shape} has a graph of more than {MAX_LIVE // 2} operations that grows from step to step"
            " and is kept for backward()."
        )
        hint = "total += loss.detach() or loss.item(), or backward() now and then, lets go of it."
    else:
        fact = (
            f"a value of shape {op.shape} depends on a very long graph that was never computed, as one carried through a "
            "loop does; it is computed now, and every time it has grown as long again."
        )
        hint = "x.realize() in the loop computes it step by step."
    text = "\n".join([fact, *([f"  at {line}"] if line is not None else []), f"  hint: {hint}"])
    if line is None:
        warnings.warn(text, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, line.file, line.number)


# ---- results that read parameters which get new values ----
Maker = tuple[Hashable, ...]  # the line that made a result, and the result's kind
BY_HAND = "by hand"  # where a step of an optimizer has the number of a leaf

leaf_tensors: LivingValues[int, Any] = LivingValues()  # for each leaf the tensor whose .grad is its gradient
differentiable_cells: LivingSet[Cell] = LivingSet()  # values that need gradients, maybe unrealized
asked_for: set[Maker] = set()
put_off: LivingKeys[Cell, tuple[Maker, Hashable]] = LivingKeys()  # with the leaf whose update has put them off


class PutOff(Cell):
    """Storage of a result that was put off: the first who asks for its value makes it a Cell again."""

    __slots__ = ()

    @property
    def op(self) -> Op:
        """The value, as a graph over the old parameters."""
        self.ask()
        return self.op

    @op.setter
    def op(self, op: Op) -> None:
        self.ask()
        self.op = op

    def ask(self) -> None:
        """Takes note that results of this maker are asked for."""
        maker, _ = put_off.pop(self, ((), None))
        asked_for.add(maker)
        self.__class__ = Cell  # type: ignore[assignment]  # of the same slots


def put_off_until_asked(cell: Cell, op: Op, owner: Hashable) -> None:
    """Has a result of the graph `op` computed if somebody asks for it, and that noted."""
    put_off[cell] = maker_of(op), owner
    cell.__class__ = PutOff


def maker_of(op: Op) -> Maker:
    """Returns the maker of a result: its line, and its kind."""
    return op.lines[:1], op.arg.name if op.code is OpCode.FORMULA else op.code, op.dtype, len(op.shape)


def living_readers(replaced: set[Op]) -> tuple[dict[Cell, Op], dict[Cell, Op]]:
    """Returns the live results that read replaced leaves: those to compute with the update, and the others."""
    # NOTE: other threads make results meanwhile; only a copy made at once can be walked.
    living = {cell: cell.op for cell in differentiable_cells.living() if cell.__class__ is Cell}
    readers = _readers(living, replaced)
    wanted = {cell: op for cell, op in readers.items() if op.shape == () or maker_of(op) in asked_for}
    return wanted, {cell: op for cell, op in readers.items() if cell not in wanted}


def readers_of_writes() -> list[Cell]:
    """Returns the results to compute with the writes in place that wait, of those to parameters; others are put off.

    Their graphs stay, for backward(): a write by hand may be undone, or be one of several on the way to the next value.
    """
    writes = pending.writes
    written = [leaf for leaf in leaf_tensors.values() if id(leaf.cell) in writes.data]
    if not written:
        return []
    before = [(leaf, writes.get(leaf.cell)) for leaf in written]
    wanted, others = living_readers({read_through(ops[0], leaf.steps) for leaf, ops in before if ops})
    for cell, op in others.items():
        put_off_until_asked(cell, op, BY_HAND)
    return [*wanted]


def _readers(cells: Mapping[Cell, Op], replaced: set[Op]) -> dict[Cell, Op]:
    """Returns the cells, with their contents, whose graphs reach a replaced leaf through differentiable Ops.

    Cost: the Ops of the graphs that reach none, and of the others those on the first way down that does.
    """
    reads: dict[Op, bool] = dict.fromkeys(replaced, True)
    for op in cells.values():
        path = [] if op in reads else [(op, iter(op.src))]
        while path:
            here, sources = path[-1]
            source = next((s for s in sources if s.needs_grad and reads.get(s) is not False), None)
            if source is None:
                reads[here] = False
                path.pop()
            elif source in reads:
                reads.update((above, True) for above, _ in path)
                path = []
            else:
                path.append((source, iter(source.src)))
    return {cell: op for cell, op in cells.items() if reads[op]}
