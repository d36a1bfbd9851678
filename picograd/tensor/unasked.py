"""Values that join a plan unasked: waiting gradients, gradients that backward() will want, readers of old parameters.

In:    the graphs that a plan is made for; `wait_for`: gradients that backward() has made graphs of
Out:   `sharing`: the cells that are computed with them;  `readers_of_writes`, `living_readers`: those computed before new
       values are stored;  `take_prepared`: gradients that have been computed already

A scalar loss and its gradients share the forward pass, and a program that asks for one of them, or for an accuracy, will
ask for the others. So they are computed together, whichever value a step reads first. That holds even for a loss that is
read before backward() is called, if backward() has followed such a read before.

Parameters get new values by a step of an optimizer (optim/updates.py) or by the user's own writes in place. A loss that is
not computed yet reads the old values, and is computed in the plan of the update: the forward pass runs once, and the old
memory can be reused. Any other result, such as an activation that a local variable still names, is put off: it is computed
from the old parameters only if somebody asks for it, which is rare. Once somebody has asked, later results of that line are
computed with the update. The state that a recurrent network hands to its next batch is one: otherwise each step would
compute all states before it. So the plan of a step does not depend on which locals are alive, and stores none of them.

A result that several reads depend on before backward(), such as embeddings whose distances decide which triplets a loss
has, would be computed by each of these plans. The second one stores it, and from then on the first one does, by its maker.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from picograd.autodiff.gradient import FREE, gradients_expected, reached
from picograd.errors import PicogradError
from picograd.interrupts import LivingKeys, LivingSet, LivingValues
from picograd.ir.op import Op
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.tensor.anomaly import Anomaly
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, pending, read_through
from picograd.tensor.hooks import LeafNumber

# ---- results that read parameters which get new values ----
Maker = tuple[Hashable, ...]  # the line that made a result, and the result's kind
BY_HAND = "by hand"  # a user's write; a step of an optimizer puts the number of a leaf in its place

leaf_tensors: LivingValues[int, Any] = LivingValues()  # for each leaf the tensor whose .grad is its gradient
differentiable_cells: LivingSet[Cell] = LivingSet()  # values that need gradients, computed or not
asked_for: set[Maker] = set()
read_again: set[Maker] = set()  # of results that a second plan computed since values that depend on them were read
put_off: LivingKeys[Cell, tuple[Maker, Hashable]] = LivingKeys()  # with the leaf whose update put them off


class PutOff(Cell):
    """Storage of a result that was put off: the first reader of its value makes it a Cell again."""

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
        """Notes that results of this maker are asked for."""
        maker, _ = put_off.pop(self, ((), None))
        asked_for.add(maker)
        self.__class__ = Cell  # type: ignore[assignment]  # of the same slots


def put_off_until_asked(cell: Cell, op: Op, owner: Hashable) -> None:
    """Puts off a result, whose graph is `op`, until somebody reads it; that its maker was asked for is then noted."""
    put_off[cell] = maker_of(op), owner
    cell.__class__ = PutOff


def maker_of(op: Op) -> Maker:
    """Returns the maker of a result: its line, and its kind."""
    return op.lines[:1], op.arg.name if op.code is OpCode.FORMULA else op.code, op.dtype, len(op.shape)


def living_readers(replaced: set[Op]) -> tuple[dict[Cell, Op], dict[Cell, Op]]:
    """Returns the live results that read replaced leaves: those to compute with the update, and the others."""
    # NOTE: other threads make results meanwhile, so the walk needs a copy.
    living = {cell: cell.op for cell in differentiable_cells.living() if cell.__class__ is Cell}
    readers = _readers(living, replaced)
    wanted = {cell: op for cell, op in readers.items() if op.shape == () or maker_of(op) in asked_for}
    return wanted, {cell: op for cell, op in readers.items() if cell not in wanted}


def readers_of_writes() -> list[Cell]:
    """Returns the results to compute together with pending writes to parameters; puts off other results that read these.

    Their graphs stay, for backward(): a user's write may be undone, or be one of several on the way to the next value.
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

    Cost: all Ops of graphs that reach none, in other graphs the Ops up to the first path to a leaf.
    """
    reads: dict[Op, bool] = dict.fromkeys(replaced, True)
    for op in cells.values():
        path = [] if op in reads else [(op, iter(op.src))]
        while path:
            here, sources = path[-1]
            for source in sources:
                if source.needs_grad and reads.get(source) is not False:
                    break
            else:
                reads[here] = False
                path.pop()
                continue
            if source not in reads:
                path.append((source, iter(source.src)))
                continue
            for above, _ in path:
                reads[above] = True
            path = []
    return {cell: op for cell, op in cells.items() if reads[op]}


# ---- gradients that wait, and graphs that share work with them ----
class Waiting:
    """Gradients of one backward() that were not computed yet.

    roots:  the graphs that they are gradients of
    cells:  the cells of the gradients, and of roots that are scalars
    is_on:  backward() was called in this process
    """

    __slots__ = ("roots", "cells")
    is_on = False

    def __init__(self, roots: Iterable[Op], cells: Iterable[Cell]):
        self.roots = [*roots]
        self.cells = dict.fromkeys(map(weakref.ref, cells))

    def graphs(self) -> dict[Cell, Op]:
        """Returns the cells that are not computed yet, with their graphs."""
        living = [cell for reference in self.cells if (cell := reference()) is not None]
        return {cell: op for cell in living if isinstance(op := cell.content, Op) and op.realized is None}

    def work(self) -> dict[Op, None]:
        """Returns the Ops through which the gradients flow."""
        return _work_of(self.roots)


waiting: dict[Waiting, None] = {}


def wait_for(roots: Iterable[Op], cells: Iterable[Cell]) -> None:
    """Marks gradients to be computed with the next value that shares work with them, also those added to earlier ones."""
    one = Waiting(roots, cells)
    for other in [*waiting]:
        is_sum = not one.cells.keys().isdisjoint(other.cells)
        if is_sum:
            one.roots += other.roots
            one.cells |= other.cells
        if is_sum or not other.graphs():  # else dead gradients would keep their graph alive
            waiting.pop(other, None)
    waiting[one] = None
    Waiting.is_on = True


def sharing(graphs: Sequence[Op]) -> tuple[list[Cell], dict[Op, dict[Op, Cell]]]:
    """Returns the cells that are computed with graphs, unasked, since they share most of the work.

    They are waiting gradients, which PyTorch would have computed by now, with the scalars on their way; and gradients that
    backward() will want, whose cells are also returned by root and leaf. Other results of the same work are seldom read
    later. If one was, and so was computed twice, later results of its maker join, too.

    Cost: a walk over the Ops of the graphs, and over those of waiting gradients if they need gradients.
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
        asked_for.update([maker_of(op) for op in again if shared or op.times_computed >= 2])
    expected = _expected(work, differentiated) if followed and work else {}
    for root, grads in expected.items():
        shared += [Cell(root, None), *grads.values()]
        differentiated |= _work_of([root])
    if not shared:
        return _read_again(graphs, work, again) if again or read_again else [], {}
    results = _living_results()
    for op in {**work, **differentiated}:
        op.times_computed = 2  # with its gradients: if another graph has it, it was asked for
        is_asked = asked_for and maker_of(op) in asked_for
        if (is_asked or (op in results and not op.shape)) and op.realized is None and _has_value(op):
            shared.append(results.get(op) or Cell(op, None))
    return shared, expected


def _living_results() -> dict[Op, Cell]:
    return {op: cell for cell in differentiable_cells.living() if type(op := cell.content) is Op}


def _read_again(graphs: Sequence[Op], work: Mapping[Op, None], again: Sequence[Op]) -> list[Cell]:
    """Returns results on the way to graphs whose values are kept: a plan computed them before, or others of their makers.

    Each distance between two rows of a network's result, read one by one, would otherwise run the network.
    """
    read_again.update([maker_of(op) for op in again])
    results, twice = _living_results(), {*again}
    kept = [op for op in work if op in twice or (op in results and maker_of(op) in read_again)]
    return [results.get(op) or Cell(op, None) for op in kept if op.realized is None and _has_value(op) and op not in graphs]


def _work_of(roots: Sequence[Op]) -> dict[Op, None]:
    return dict.fromkeys([op for op in reached(roots) if op.code not in FREE or op.code is OpCode.OUTPUT])


def _differentiable_in(
    graphs: Sequence[Op], holder: Mapping[Op, Waiting]
) -> tuple[dict[Op, None], dict[Waiting, None], list[Op]]:
    """Returns the Ops of graphs through which gradients flow, the waiting gradients among the graphs, and the results that
    a plan has computed before."""
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
            if not op.times_computed:
                op.times_computed = 1
            elif _has_value(op):
                again.append(op)
                continue
        stack += op.src
    return work, found, again


def _has_value(op: Op) -> bool:
    """True for an Op with a single result that a line of the user's made."""
    is_one = op.code not in SEVERAL_RESULTS or (op.code is OpCode.FORMULA and len(op.arg.kinds) == 1)
    return is_one and bool(op.lines)


# ---- gradients for which backward() will ask ----
# If a program reads a loss, or a value that shares work with it, and then calls backward(), the gradients are computed
# with that value from the second time on. A saturating counter, as in a processor's branch predictor, says whether
# backward() will follow: it rises when backward() follows, and falls when gradients were computed in vain.
FOLLOWED_MAX = 2
NEWEST_RESULTS = 16  # among which a loss is looked for
followed: dict[Maker, int] = {}  # the counters that are not 0
not_there: set[Maker] = set()  # makers of losses that do not exist yet when values that share work with them are read
prepared: LivingKeys[Op, dict[Op, Op]] = LivingKeys()  # root -> leaf -> memory of its gradient


def take_prepared(root: Op, on_the_way: Sequence[Op]) -> dict[Op, Op]:
    """Returns the gradients of a scalar that are computed already, by leaf; notes that backward() has followed."""
    made = prepared.pop(root, None)
    if made is not None:
        followed[maker_of(root)] = FOLLOWED_MAX
    elif Waiting.is_on and {op.times_computed for op in on_the_way} != {0} and (maker := maker_of(root)) not in not_there:
        if followed.pop(maker, 0):
            not_there.add(maker)
        else:
            followed[maker] = FOLLOWED_MAX
    return made or {}


def _expected(work: Mapping[Op, None], differentiated: Mapping[Op, None]) -> dict[Op, dict[Op, Cell]]:
    """Returns the scalars that share work with a plan and whose gradients backward() will want, with these by leaf."""
    if LeafNumber.hooked or Anomaly.is_on:
        return {}
    newest = [cell for reference in [*differentiable_cells.values()][-NEWEST_RESULTS:] if (cell := reference()) is not None]
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
        with suppress(PicogradError):  # backward() will raise it
            found[op] = {leaf: Cell(detached(grad), None) for leaf, grad in gradients_expected(op).items()}
    return {op: grads for op, grads in found.items() if grads}
