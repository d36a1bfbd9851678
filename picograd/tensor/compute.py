"""When values are computed: what is asked for, and in the same plan what has been decided already.

Two things join a plan unasked. A write in place is state: if it stayed a graph, x += 1 in a loop would build an ever
longer one. And most of the work of a loss and its gradients is the same (tensor/unasked.py). A graph that joins unasked
and fails is left out: its failure is shown to the user who asks for it.

A graph that grows without bound is computed early, with the same results; one that needs gradients is kept for
backward(), and mentioned.
"""

from __future__ import annotations

import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from picograd.autodiff.gradient import written_out
from picograd.autodiff.unrolled import rolled
from picograd.engine.devices import default_device
from picograd.engine.realize import devices_of, is_carried, realize
from picograd.errors import Line, OutOfMemoryError, PicogradError, VerifyError, user_line
from picograd.interrupts import LivingSet
from picograd.ir.bodies import at_once, bodies_in
from picograd.ir.checks import Refused
from picograd.ir.op import Buffer, Op, is_memory, realized, toposort
from picograd.ir.opcode import OpCode
from picograd.look import watch
from picograd.tensor.anomaly import Anomaly, look_at
from picograd.tensor.cell import Cell, grad_mode, pending, replace_op, replace_ops, trace
from picograd.tensor.first_values import is_fill, take_starts
from picograd.tensor.unasked import Waiting, prepared, readers_of_writes, sharing

# ---- computing ----
STEPWISE_NBYTES_MAX = 1 << 16  # of a tensor that may be copied at each write
_failed: LivingSet[Op] = LivingSet()  # graphs that joined a plan unasked, and failed: they join no other


def compute_together(cells: Iterable[Cell], others: Iterable[Cell] = ()) -> None:
    """When one of these cells, or of `others`, is computed, all of these are: most of the work is the same."""
    cells = list(cells)
    references = [weakref.ref(cell) for cell in cells]
    for cell in (*cells, *others):
        cell.computed_with = references


def compute(cells: Iterable[Cell], ops: Sequence[Op] = (), unasked: Sequence[Cell] = ()) -> list[Op]:
    """Computes cells, and Ops for which it returns the BUFFER Ops, in one plan with what is pending.

    A cell that needs gradients keeps its graph, for backward(); later readers find its value all the same. Where a gradient
    or a loss that joins the plan fails, the plan is made without it; that fails again where somebody asks for it.

    Args:
      unasked:  cells that join the plan, and are left out where they fail

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
    if joining or not all(map(is_memory, [*wanted.values(), *ops])):
        written, expected = _join(wanted, ops, joining, shares=not unasked)
    try:
        while True:
            try:
                results = _compute_all(wanted, ops)
                break
            except PicogradError as error:
                if not _leave_out_failures(error, wanted, ops, asked, written):
                    raise
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


def _join(
    wanted: dict[Cell, Op], ops: Sequence[Op], joining: list[Cell], shares: bool
) -> tuple[list[Cell], dict[Op, dict[Op, Cell]]]:
    """Adds to `joining` the other cells that join a plan unasked, and to `wanted` all of these.

    Args:
      shares:  so do those that share work with the plan

    Returns:   the cells that were written in place, and the gradients for which backward() will ask, by root and leaf
    """
    if pending.starts:
        compute_unasked(take_starts())
    written: list[Cell] = []
    expected: dict[Op, dict[Op, Cell]] = {}
    references: Sequence[weakref.ref[Cell]] = ()
    for cell in (*wanted, *joining):
        if cell.computed_with is not references:  # cells that are computed together share one list
            references = cell.computed_with
            joining += [other for reference in references if (other := reference()) is not None]
    if pending.writes.data:
        joining += readers_of_writes()
        written = pending.writes.living()
    if Waiting.is_on and shares:
        shared, expected = sharing([*wanted.values(), *ops, *[cell.op for cell in written]])
        joining += shared
    given = frozenset(ops)
    for other in [*joining, *written]:
        if other in wanted:
            continue
        content = other.content
        op = content if type(content) is Op else other.op
        if op.code is not OpCode.BUFFER and op not in given and not (_failed and _failed.has(op)):
            wanted[other] = op
    return written, expected


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
    """Computes the pending writes in place to a cell.

    A small value in memory is written step by step: each write has the form of the others, while all of them together
    have a form, and so a plan, that depends on the elements that they meet.
    """
    first, *others = pending.writes[cell]
    try:
        if is_memory(first) and first.nbytes <= STEPWISE_NBYTES_MAX:
            for op in others:
                realize([op])
    except Refused as error:
        _undo_writes_of(error)
        raise
    compute([cell])


def _leave_out_failures(
    error: PicogradError, wanted: dict[Cell, Op], ops: Sequence[Op], asked: Sequence[Cell], written: Sequence[Cell]
) -> bool:
    """Takes out of `wanted` what joined unasked and fails with this error; False where something asked for fails.

    A write in place by hand counts as asked for: it is undone, where PyTorch would not have made it.
    """
    by_hand = [cell for cell in written if not cell.computed_with]
    needed = {cell: op for cell in (*asked, *by_hand) if (op := wanted.get(cell)) is not None}
    rest = {cell: op for cell, op in wanted.items() if cell not in needed}
    if isinstance(error, VerifyError) or not rest or _that_reach(error, [*ops, *needed.values()]):
        return False
    failing = {*_that_fail([*rest.values()], error)}
    for op in failing:
        _failed.add(op)
    if not failing:  # each alone
        _compute_all(rest, ())
    for cell, op in rest.items():
        if op in failing or not failing:
            del wanted[cell]
    return True


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
    for op, whole in zip(graphs, written_out(rolled(graphs)[0])):
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
    """Takes back the writes in place that need the wrong index: each later plan would fail by them."""
    for cell, before in pending.writes.items():
        while before and _that_reach(error, [cell.op]):
            cell.op = before.pop()
        if not before:
            del pending.writes[cell]


def _undo_writes_that_fail() -> None:
    """Computes the pending writes alone; where that fails it takes back the last ones, and tries those before them.

    Each later plan would fail by them.
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


# ---- graphs that grow without bound ----
DEPTH_MAX = 8_000  # of a graph that is not computed yet: twice that of a network of 100 layers without its gradients
LIVE_OPS_MAX = 100_000  # Ops alive: with more of them, it is measured now and then whether one graph has most of them
WRITES_MAX = 32  # in place to one tensor, as in  counts[a, b] += 1  in a loop, before they are computed
CHOICE_OPS_MAX = 64  # of a graph that is computed once something is chosen by it
STEP_OPS_MAX = 256  # of a graph that is computed before numbers are drawn again
NEWEST_MAX = 16  # values, one of which may be a loop's carry
KERNELS_TO_MENTION = 256  # of the plan of a long graph that is made now: to make that of one step takes less
DEPTH_STRIDE = 16  # a graph is measured where the depth of its root is a multiple of this

long_gradients: LivingSet[Cell] = LivingSet()  # of a deep network, maybe not computed yet
# The latest made where no gradients are recorded, maybe not computed yet, maybe dead: a finalizer for each costs too much.
plain_cells: deque[weakref.ref[Cell]] = deque(maxlen=1 << 16)
_orders: LivingSet[Buffer] = LivingSet()  # first places that were computed, as a choice
_mentioned: set[Line | None] = set()


class NextLook:
    """When to look for a long graph next.

    depth:  graphs are measured where their depth is that
    limit:  number of Ops alive at which graphs are measured
    left:   how many Ops may still be counted, in graphs that share few of them, before `limit` is raised
    """

    depth = DEPTH_MAX
    limit = LIVE_OPS_MAX
    left = DEPTH_STRIDE * LIVE_OPS_MAX


def settle(cell: Cell, op: Op, num_writes: int = 0) -> None:
    """Computes `op`, the value of `cell`, if that is a graph that has grown step by step. Mostly three comparisons.

    Args:
      num_writes:  in place that it consists of
    """
    if num_writes >= WRITES_MAX and not op.needs_grad:
        compute_writes(cell)
        return
    if op.depth >= NextLook.depth and not op.needs_grad:
        is_long = unrealized(op, NextLook.depth // 4) >= NextLook.depth // 4
    elif len(Op.interned) >= NextLook.limit and op.depth % DEPTH_STRIDE == 0:
        is_long = _has_most(op)
    else:
        return
    if not is_long or trace.get() is not None or at_once.get():
        return
    line = user_line()
    with watch() as counts:
        if not op.needs_grad:
            compute([cell], (), [*long_gradients.living(), *_living_plain()])  # what they share is computed once
            long_gradients.clear()
            plain_cells.clear()
            NextLook.limit, NextLook.left = LIVE_OPS_MAX, DEPTH_STRIDE * LIVE_OPS_MAX
    if line not in _mentioned and (op.needs_grad or counts.scheduled and counts.kernels >= KERNELS_TO_MENTION):
        _mentioned.add(line)
        _mention(op, line, counts.kernels)


def settle_constants(cell: Cell, op: Op) -> None:
    """Computes `op`, the value of `cell`, if that is a graph of constants that a loop carries.

    Constants are on no device, so the engine keeps no value of theirs for the next turn; a tensor does.
    """
    if not op.needs_grad and trace.get() is None and is_carried(op):
        compute([cell])


def settle_choice(chosen: Cell) -> None:
    """Computes values drawn or chosen where no gradients are recorded, and all that is alive of values made there.

    A loop that goes on from its own choices, as one that writes text does, would be one graph of all its steps. PyTorch
    would hold the values that live on, such as a cache, in memory, too. The first of an order are often on the way to a
    choice by chance, so they are computed where they go on from others.
    """
    if grad_mode.get() or trace.get() is not None or unrealized(op := chosen.op, CHOICE_OPS_MAX) < CHOICE_OPS_MAX:
        return
    are_first = op.code is OpCode.SORT
    if are_first and not any(map(_is_order, toposort(op.src, stop=realized))):
        return
    compute([chosen], (), _living_plain())
    plain_cells.clear()
    if are_first:
        _orders.add(cell_buffer(chosen))


def _is_order(op: Op) -> bool:
    return op.code is OpCode.SORT or op.code is OpCode.BUFFER and _orders.has(op.arg[0])


def settle_step() -> None:
    """Computes all live values where numbers are drawn again and no gradients are recorded, if that is a long graph.

    A loop that removes noise step by step would be one graph of all its steps, each a network and each with numbers of its
    own; step by step, they have one form.
    """
    if grad_mode.get() or trace.get() is not None:
        return
    living = _living_plain()
    plain_cells.clear()
    graphs = [op for cell in living[-NEWEST_MAX:] if isinstance(op := cell.content, Op) and op.depth >= STEP_OPS_MAX // 8]
    if any(unrealized(op, STEP_OPS_MAX) >= STEP_OPS_MAX for op in graphs):
        compute((), (), living)
    else:
        plain_cells.extend(map(weakref.ref, living))


def _living_plain() -> list[Cell]:
    """Returns the values that are alive, without fills: those have no device, so that no plan is known by them.

    A value that a program keeps from a trace, which has ended by now, is made of inputs without memory.
    """
    references = plain_cells.copy()
    living = [cell for reference in references if (cell := reference()) is not None and cell.made_in is None]
    return [cell for cell in living if not (type(op := cell.content) is Op and op.code is OpCode.EXPAND and is_fill(op))]


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
    # A graph for backward() is not computed here, and many small graphs are not a long one: either way the Ops stay. So
    # that they are not measured again and again, the next look is when half as many more are alive.
    if has_most or NextLook.left < 0:
        NextLook.limit = 3 * max(NextLook.limit, len(Op.interned)) // 2
        NextLook.left = DEPTH_STRIDE * NextLook.limit
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


def _mention(op: Op, line: Line | None, num_kernels: int) -> None:
    """Warns of a graph that grows, on the user's line."""
    if op.needs_grad:
        fact = (
            f"a result of shape {op.shape} has a graph of more than {LIVE_OPS_MAX // 2} operations that grows from step to"
            " step and is kept for backward()."
        )
        hint = "total += loss.detach() or loss.item(), or backward() now and then, lets go of it."
    else:
        fact = (
            f"a value of shape {op.shape} depends on a very long graph that was never computed, as one carried through a "
            f"loop does; it is computed now, by a plan of {num_kernels} kernels, and every time it has grown as long again."
        )
        hint = "x.realize() in the loop computes it step by step, by a plan of one step."
    text = "\n".join([fact, *([f"  at {line}"] if line is not None else []), f"  hint: {hint}"])
    if line is None:
        warnings.warn(text, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, line.file, line.number)
