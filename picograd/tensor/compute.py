"""The time when values are computed: those that the user asks for, and in the same plan others that are known to be needed.

Two kinds of values join a plan unasked. Writes in place are state: if they stayed graphs, x += 1 in a loop would build an
ever longer one. And a loss and its gradients share most of their work (tensor/unasked.py). A graph that joins unasked and
fails is left out; the user sees its error on asking for it.

A graph that grows without bound is computed early, with the same results. If it needs gradients it is kept for backward()
and a warning says so.
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
from picograd.tensor.first_values import is_fill, store_if_apart, take_starts
from picograd.tensor.unasked import Waiting, prepared, readers_of_writes, sharing

# ---- computing ----
STEPWISE_NBYTES_MAX = 1 << 16  # a larger tensor is not copied at each write
_failed: LivingSet[Op] = LivingSet()  # graphs that joined a plan unasked and failed: they join no other


def compute_together(cells: Iterable[Cell], others: Iterable[Cell] = ()) -> None:
    """Marks `cells` to be computed as soon as one of them, or of `others`, is: they share most of their work."""
    cells = list(cells)
    references = [weakref.ref(cell) for cell in cells]
    for cell in (*cells, *others):
        cell.computed_with = references


def compute(cells: Iterable[Cell], ops: Sequence[Op] = (), unasked: Sequence[Cell] = ()) -> list[Op]:
    """Computes cells, and Ops for which it returns the BUFFER Ops, in one plan with pending writes.

    A cell that needs gradients keeps its graph, for backward(); later readers find its value all the same. If a gradient
    or a loss that joins the plan fails, the plan is made without it; its error is raised when somebody asks for it.

    Args:
      unasked:  cells that join the plan, and are left out if they fail

    Raises:
      Refused:          an index is outside its axis, or a matrix has no result. Nothing is computed then; writes in place
                        that depend on it are undone, others are still pending.
      OutOfMemoryError: pending writes for which there is memory are computed, the others are undone.
      PicogradError:    all is still pending.
    """
    # NOTE: `content` tells whether a cell has its value; `op` would make an Op for its memory, which jit avoids.
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
      shares:  True: cells that share work with the plan join it, too

    Returns:   the cells that were written in place, and the gradients that backward() will want, by root and leaf
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
        if (code := op.code) is OpCode.BUFFER or op in given or (_failed and _failed.has(op)):
            continue
        if code is OpCode.EXPAND and is_fill(op):
            continue  # it reads nothing, so that nothing is lost if it waits; a plan with it would not be found again
        wanted[other] = op
    return written, expected


def compute_unasked(ops: Sequence[Op]) -> list[Op | None]:
    """Computes graphs that may be wanted later; returns their BUFFER Ops, None for each that fails."""
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
      AnomalyError: one of them has a NaN.
    """
    results, found = list(roots), list(grads)
    realize([*results, *found])
    look_at(results, "result")
    look_at(found, "gradient")


def compute_writes(cell: Cell) -> None:
    """Computes the pending writes in place to a cell.

    A small value in memory is written step by step: all single writes have one form, while several together have a form,
    and so a plan, that depends on which of their elements overlap.
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
    """Removes from `wanted` the cells that joined unasked and cause this error; False if something asked for causes it.

    A write in place by the user counts as asked for, and is undone: PyTorch would have raised before it.
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
    """Returns the graphs that cause the error of a plan of all of them.

    If the error does not say which, they are computed again in groups that share work.
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
    """Returns the graphs that depend on the value that was refused."""
    if not isinstance(error, Refused) or error.check is None:
        return []
    found = []
    for op, whole in zip(graphs, written_out(rolled(graphs)[0])):
        order = toposort([whole], stop=realized)
        if error.check in order or any(error.check in toposort(body.src) for body in bodies_in(order)):
            found.append(op)
    return found


def _forget_writes(written: Sequence[Cell]) -> None:
    """Notes that writes in place are no longer pending, except those that were left out."""
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
    """True if a graph's first source, or the last leaf of a gradient, is memory; False for some that read it elsewhere."""
    while op.src:
        op = op.src[-1 if op.code is OpCode.GRADIENT else 0]
        if op.code is OpCode.BUFFER or op.realized is not None:
            return True
    return False


def placed(cell: Cell, op: Op) -> Op:
    """Returns the graph of a cell; one of constants alone, which belong to no device, with a copy to the cell's device."""
    if store_if_apart(op, cell.device):
        return op
    if cell.device in (None, default_device()) or devices_of([op])[0] is not None:
        return op
    return Op(OpCode.COPY, op.dtype, (op,), cell.device)


def cell_buffer(cell: Cell) -> Buffer:
    """Returns the buffer that holds the value of a cell; computes it now if it is a graph."""
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
    """Undoes the writes in place that depend on the refused value: every later plan would fail because of them."""
    for cell, before in pending.writes.items():
        while before and _that_reach(error, [cell.op]):
            cell.op = before.pop()
        if not before:
            del pending.writes[cell]


def _undo_writes_that_fail() -> None:
    """Computes the pending writes alone; undoes the last ones that fail, one after the other, until the rest succeeds.

    Every later plan would fail because of them.
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
    """Returns graphs in groups that share no work; all writes of a training step are one group."""
    groups: list[tuple[set[Op], list[Op]]] = []
    for root in graphs:
        work = {op for op in toposort([root], stop=realized) if op.src and op not in realized}
        shared = [group for group in groups if not group[0].isdisjoint(work)]
        groups = [group for group in groups if group not in shared]
        groups.append((work.union(*[ops for ops, _ in shared]), [*[op for _, others in shared for op in others], root]))
    return [together for _, together in groups]


@contextmanager
def all_or_nothing(cells: Iterable[Cell]) -> Iterator[None]:
    """Undoes every write to these cells within the block if it ends in an error or an interrupt."""
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
DEPTH_MAX = 8_000  # of a graph that waits to be computed: twice that of a network of 100 layers without its gradients
LIVE_OPS_MAX = 100_000  # with more Ops alive, some graphs are measured: does one of them have most of the Ops?
WRITES_MAX = 32  # in place to one tensor, as in  counts[a, b] += 1  in a loop, before they are computed
CHOICE_OPS_MAX = 64  # a longer graph is computed as soon as something is chosen by it
STEP_OPS_MAX = 256  # a longer graph is computed before numbers are drawn again
NEWEST_MAX = 16  # latest values, among which a loop's carry is looked for
KERNELS_TO_MENTION = 256  # a warning says so if the plan of a long graph has more: that of one step would have fewer
DEPTH_STRIDE = 16  # a graph is measured only if the depth of its root is a multiple of this

long_gradients: LivingSet[Cell] = LivingSet()  # gradients of deep networks, some perhaps computed already
# The latest cells made without gradients; some are computed or dead by now, since a finalizer for each would cost too much.
plain_cells: deque[weakref.ref[Cell]] = deque(maxlen=1 << 16)
_orders: LivingSet[Buffer] = LivingSet()  # results of sorting that were computed as choices
_mentioned: set[Line | None] = set()


class NextLook:
    """The next time to look for a long graph.

    depth:  graphs at least that deep are measured
    limit:  number of Ops alive from which on graphs are measured
    left:   number of Ops that may still be counted, in graphs that are not long, before `limit` is raised
    """

    depth = DEPTH_MAX
    limit = LIVE_OPS_MAX
    left = DEPTH_STRIDE * LIVE_OPS_MAX


def settle(cell: Cell, op: Op, num_writes: int = 0) -> None:
    """Computes `op`, the value of `cell`, if it is a graph that has grown step by step. Usually three comparisons.

    Args:
      num_writes:  number of pending writes in place to the cell
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
    """Computes `op`, the value of `cell`, if it is a graph of constants that a loop carries.

    Constants belong to no device, so the engine cannot keep their value for the loop's next turn; a tensor can.
    """
    if not op.needs_grad and trace.get() is None and is_carried(op):
        compute([cell])


def settle_choice(chosen: Cell) -> None:
    """Computes values drawn or chosen without gradients, and all live values made without them.

    A loop that continues from its own choices, such as one that generates text, would be one graph of all its steps.
    PyTorch would have the live values, such as a cache, in memory, too. A sort is often only a step towards a random
    choice, so its result is computed only if it depends on an earlier one.
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
    """Computes all live values before numbers are drawn again without gradients, if one of the latest is a long graph.

    A loop that removes noise step by step would be one graph of all its steps, each with a network and its own random
    numbers; computed one by one, the steps share one form.
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
    """Returns the live cells made without gradients.

    Fills are left out: they belong to no device, and a plan with them would not be found again. So are values that a
    program keeps from a trace: their graphs have inputs without memory.
    """
    references = plain_cells.copy()
    living = [cell for reference in references if (cell := reference()) is not None and cell.made_in is None]
    return [cell for cell in living if not (type(op := cell.content) is Op and op.code is OpCode.EXPAND and is_fill(op))]


def expect(cell: Cell) -> None:
    """Leaves the gradient in `cell` as a graph; a long one is computed together with the next value."""
    if cell.op.depth >= NextLook.depth // 2:
        long_gradients.add(cell)


def _has_most(op: Op) -> bool:
    """True if the graph of `op` alone has at least half of `NextLook.limit` Ops."""
    most = NextLook.limit // 2
    num_ops = unrealized(op, most)
    NextLook.left -= num_ops
    has_most = num_ops >= most
    if has_most and not op.needs_grad:
        return True
    # A graph for backward() is not computed here, and many small graphs are not a long one: in both cases the Ops stay
    # alive. The next look is when there are half as many more, lest they are measured again and again.
    if has_most or NextLook.left < 0:
        NextLook.limit = 3 * max(NextLook.limit, len(Op.interned)) // 2
        NextLook.left = DEPTH_STRIDE * NextLook.limit
    return has_most


def unrealized(root: Op, most: int) -> int:
    """Returns the number of Ops below a root, counted up to `most`; a formula counts as one in a graph for backward()."""
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
        hint = "add loss.detach() or loss.item() to totals, or call backward() now and then."
    else:
        fact = (
            f"a value of shape {op.shape} depends on a very long graph that was never computed, such as one carried through"
            f" a loop; it is computed now, by a plan of {num_kernels} kernels, and again whenever it has grown as long."
        )
        hint = "x.realize() in the loop computes each step by a plan of one step."
    text = "\n".join([fact, *([f"  at {line}"] if line is not None else []), f"  hint: {hint}"])
    if line is None:
        warnings.warn(text, UserWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, UserWarning, line.file, line.number)
