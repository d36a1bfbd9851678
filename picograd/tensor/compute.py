"""When values are computed: what is asked for, and in the same plan what has been decided already.

In:    cells and Ops somebody wants the values of
Out:   `compute`; the cells then hold memory; `compute_together`, `compute_first`, `compute_unasked`, `placed`,
       `cell_buffer`, `all_or_nothing`
Next:  picograd/ir/opcode.py

Two things join a plan unasked. A write in place is state: if it stayed a graph, x += 1 in a loop would build an ever
longer one. And a loss, a scalar, and its gradients, once backward() was called, share the forward pass: who asks for one of
them will ask for the others. What joins unasked and fails is left out: a failure belongs to who asks for what fails.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from picograd.autodiff.gradient import written_out
from picograd.engine.realize import default_device, devices_of, realize, realized
from picograd.errors import OutOfMemoryError, PicogradError, VerifyError
from picograd.ir.bodies import bodies_in
from picograd.ir.checks import Refused
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.living import LivingSet
from picograd.tensor.anomaly import Anomaly, look_at
from picograd.tensor.cell import Cell, pending, replace_op

SMALL_NBYTES = 1 << 16  # of a tensor that may be copied at each write
_failed: LivingSet[Op] = LivingSet()  # graphs that joined a plan unasked, and failed: they join no other


def compute_together(cells: Iterable[Cell], others: Iterable[Cell] = ()) -> None:
    """Lets whoever asks for one of these cells, or of `others`, get all these: most of the work is the same."""
    cells = list(cells)
    references = [weakref.ref(cell) for cell in cells]
    for cell in (*cells, *others):
        cell.beside = references


def compute_first(ops: Iterable[Op]) -> None:
    """Has values computed before whatever is computed next, in a plan of their own; not constants, which cost nothing.

    They are the random numbers that a network begins with: made by one kernel and not by each that reads them. Its first
    step is planned like those after it, which read them in memory.
    """
    pending.starts += [weakref.ref(op) for op in ops if not _known(op) and devices_of([op])[0] is not None]


def compute(cells: Iterable[Cell], ops: Sequence[Op] = (), unasked: Sequence[Cell] = ()) -> list[Op]:
    """Computes cells, and Ops for which it returns the BUFFER Ops, in one plan with what is pending.

    A cell that needs gradients keeps its graph, for backward(); later readers find its value all the same. Where a gradient
    or a loss that joins the plan fails, the plan is made without it; that fails again where somebody asks for it.

    Args:
      unasked:  cells that join the plan as those `beside` do

    Raises:
      Refused:          an index is outside its axis, or a matrix has no result. Nothing is computed then; writes in place
                        that needed it have not happened, others are still pending.
      OutOfMemoryError: of what is pending, what there is memory for is computed; other writes in place have not happened.
      PicogradError:    all is still pending.
    """
    # NOTE: that a cell has its value is seen without an Op for it, which jit makes for nobody.
    graphs = [cell for cell in cells if type(cell.content) is not tuple]
    if not graphs and not ops and not unasked:
        return []
    wanted = {cell: op for cell in graphs if (op := cell.op).code is not OpCode.BUFFER}
    asked, joining = list(wanted), [cell for cell in unasked if type(cell.content) is not tuple]
    written: list[Cell] = []
    if joining or not all(map(_known, [*wanted.values(), *ops])):
        _compute_starts()
        references: Sequence[weakref.ref[Cell]] = ()
        for cell in (*asked, *joining):
            if cell.beside is not references:  # which cells that are computed together share
                references = cell.beside
                joining += [other for reference in references if (other := reference()) is not None]
        if pending.writes.data:
            written = pending.writes.living()
        given = frozenset(ops)
        for other in [*joining, *written]:
            if other in wanted:
                continue
            op = other.op
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
    if written:
        _forget_writes(written)
    if joining:
        for cell in (*asked, *unasked):
            cell.beside = ()
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
        if _known(first) and first.numel * first.dtype.itemsize <= SMALL_NBYTES:
            for op in others:
                realize([op])
    except Refused as error:
        _undo_writes_of(error)
        raise
    compute([cell])


def _compute_starts() -> None:
    """Computes the first values of leaves."""
    if pending.starts:
        starts, pending.starts = [reference() for reference in pending.starts], []
        compute_unasked([op for op in starts if op is not None])


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
            by_hand = [cell for cell in written if not cell.beside]
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
    for op, whole in zip(graphs, written_out(graphs)):
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
    for (cell, op), buffer in zip(wanted.items(), buffers):
        if not op.needs_grad:
            replace_op(cell, op, buffer)
    return buffers[len(wanted) :]


def _reads_memory(op: Op) -> bool:
    """True for a graph of which the first source is memory, or the last leaf of a gradient; others may read some, too."""
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
