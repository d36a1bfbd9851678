"""When values are computed: what is asked for, and in the same plan what has been decided already.

In:    cells and Ops somebody wants the values of
Out:   `compute`; the cells then hold memory; `compute_together`, `compute_first`, `placed`, `cell_buffer`, `all_or_nothing`
Next:  picograd/ir/opcode.py

Two things join a plan unasked. A write in place is state: if it stayed a graph, x += 1 in a loop would build an ever
longer one. And a loss, a scalar, and its gradients, once backward() was called, share the forward pass: who asks for one of
them will ask for the others.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

from picograd.engine.realize import default_device, devices_of, realize, realized
from picograd.errors import OutOfMemoryError, PicogradError
from picograd.ir.checks import Refused
from picograd.ir.op import Buffer, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.tensor.anomaly import Anomaly, look_at
from picograd.tensor.cell import Cell, pending, replace_op

SMALL_NBYTES = 1 << 16  # of a tensor that may be copied at each write


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


def compute(cells: Iterable[Cell], ops: Sequence[Op] = ()) -> list[Op]:
    """Computes cells, and Ops for which it returns the BUFFER Ops, in one plan with what is pending.

    A cell that needs gradients keeps its graph, for backward(); later readers find its value all the same.

    Raises:
      Refused:          an index is outside its axis, or a matrix has no result. Nothing is computed then; writes in place
                        that needed it have not happened, others are still pending.
      OutOfMemoryError: of what is pending, what there is memory for is computed; other writes in place have not happened.
      PicogradError:    all is still pending.
    """
    # NOTE: that a cell has its value is seen without an Op for it, which jit makes for nobody.
    graphs = [cell for cell in cells if type(cell.content) is not tuple]
    if not graphs and not ops:
        return []
    wanted = {cell: op for cell in graphs if (op := cell.op).code is not OpCode.BUFFER}
    asked, joined = list(wanted), not all(map(_known, [*wanted.values(), *ops]))
    others: list[Cell | None] = []
    written: list[Cell | None] = []
    if joined:
        if pending.starts:
            starts, pending.starts = [reference() for reference in pending.starts], []
            realize([op for op in starts if op is not None])
        given = frozenset(ops)
        references: Sequence[weakref.ref[Cell]] = ()
        for cell in asked:
            if cell.beside is not references:  # which cells that are computed together share
                references = cell.beside
                others += [reference() for reference in references]
        if pending.writes.data:
            written = [*pending.writes.living()]
        for other in [*others, *written]:
            if other is None or other in wanted:
                continue
            op = other.op
            if op.code is not OpCode.BUFFER and op not in given:
                wanted[other] = op
    try:
        results = _compute_all(wanted, ops)
    except Refused as error:
        _undo_writes_of(error)
        raise
    except OutOfMemoryError:
        _undo_writes_that_fail()
        raise
    if Anomaly.is_on:
        look_at([*wanted.values(), *ops], "result")
    if written:
        pending.writes.data.clear()
    if others:
        for cell in asked:
            cell.beside = ()
    return results


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
        while before and error.check in toposort([cell.op], stop=realized):
            cell.op = before.pop()
        if not before:
            del pending.writes[cell]


def _undo_writes_that_fail() -> None:
    """Computes what is pending by itself; where that fails it takes back the last writes, and tries those before them.

    Or all that is asked for would fail with them ever after.
    """
    for cells in _connected(pending.writes.living()):
        while cells:
            try:
                _compute_all({cell: cell.op for cell in cells}, [])
                break
            except PicogradError:
                for cell in cells:
                    cell.op = pending.writes[cell].pop()
                cells = [cell for cell in cells if pending.writes[cell]]
    pending.writes.data.clear()


def _connected(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Returns cells in groups that have no work in common: a training step's writes are one."""
    groups: list[tuple[set[Op], list[Cell]]] = []
    for cell in cells:
        work = {op for op in toposort([cell.op], stop=realized) if op.src and op not in realized}
        shared = [group for group in groups if not group[0].isdisjoint(work)]
        groups = [group for group in groups if group not in shared]
        groups.append((work.union(*[ops for ops, _ in shared]), [*[c for _, others in shared for c in others], cell]))
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
