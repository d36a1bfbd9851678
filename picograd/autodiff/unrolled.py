"""Rolls recurrences that a Python loop has written out into LOOPs: the body is planned and compiled once.

    for t in range(1000): h = cell(x[:, t], h); out.append(head(h))      ->  LOOP(h, W, ..., rows of x), stacked results

A graph alone tells nothing of the user's loop, so steps are found by their form. A chain of Ops, each below the next, that
look alike and are equally deep apart are the seeds of the steps. From all seeds at once the walk goes down: the sources at
one place, one for each step, are a column. A column is

    one Op                               what no step changes, a source of the LOOP; its views are made in the body
    what another column has a step ago   a carry
    blocks of one value, equally apart   a stacked source
    Ops of one opcode, dtype and shape   an Op of the body, whose sources are columns again
    small values of other graphs         a stacked source, too, joined

Steps that do not read each other, but end in one list, are found from the list: its members are the seeds.

    for x in data: out.append(net(x))    ->  LOOP(W, data), which carries nothing;  torch.stack(out) is its result

Columns above these that have an Op in each step join them: the output and the loss of a step. Where the first or the last
steps differ they stay outside. No weights are stacked, so layers of one form are not steps.

Derivatives come after this: those of a LOOP (autodiff/loops.py) need no unrolled steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

from picograd.autodiff.gradient import built, graph_sources, written_out
from picograd.interrupts import Latest
from picograd.ir.bodies import by_formula, output, param, sink, substitute
from picograd.ir.build import flip, joined, joined_ops, pad_axis, permute, reshape, row_of, shrink, shrink_axis, stacked_ops
from picograd.ir.op import Op, Shape, toposort
from picograd.ir.opcode import COSTLY, ELEMENTWISE, MOVEMENT, SEVERAL_RESULTS, OpCode
from picograd.ir.origin import copy_lines
from picograd.record import Struct

STEPS_MIN = 4  # fewer are written out
CHEAP_STEPS_MIN = 16  # where no step has a product or a sum: some of them are a few instructions of one kernel
FORMULA_OPS_MIN = 256  # of all steps that differ in constants: fewer are one kernel's
OPERANDS_MAX = 8  # of a FORMULA: one of more, as a list that is stacked, is written out behind the loops
ORDER_OPS_MIN = 16  # of a graph: a shorter one has no steps
LEVELS = (3, 9)  # levels below an Op that its form consists of: the first few, and all if these tell two Ops not apart
LAG_STEPS_MAX = 4  # steps back that a step may look
TRIALS_MAX = 8  # chains whose steps are compared; also how often one chain is cut at its ends
LOOPS_MAX = 16  # in one graph
JOINED_NBYTES = 1 << 16  # at most, of a step's own value in memory: those of all steps are copied into one
OF_STEPS = ELEMENTWISE | MOVEMENT | {
    OpCode.DETACH, OpCode.CONTIGUOUS, OpCode.CONST, OpCode.IOTA, OpCode.REDUCE, OpCode.SCAN, OpCode.SORT, OpCode.GATHER,
    OpCode.SCATTER, OpCode.MATMUL, OpCode.CONV, OpCode.ATTENTION, OpCode.OUTPUT, OpCode.CALL, OpCode.LOOP, OpCode.FORMULA,
    OpCode.CUSTOM,
}  # fmt: skip
OF_FORMULAS = ELEMENTWISE | {OpCode.CONST, OpCode.EXPAND, OpCode.DETACH}
VIEWED = MOVEMENT | {OpCode.CAST, OpCode.CONTIGUOUS}  # between a weight and its product
JOINS = frozenset({joined_ops, stacked_ops})  # formulas whose operands are a list
Column = tuple[Op, ...]  # for each step one
Stacking = Callable[[Column], Op]  # makes one value of those that each step reads from memory
_without_loops: Latest[tuple[int, bool], None] = Latest(1024)  # outlines of graphs without loops, and if these are written


def _stacked(column: Column) -> Op:
    """Returns values joined along a new first axis, as a graph."""
    return joined([reshape(op, (1, *op.shape)) for op in column], 0)


def rolled(
    roots: Sequence[Op], inputs: Collection[Op] = (), blocks: Sequence[Op] = (), stack: Stacking | None = None
) -> tuple[Sequence[Op], Sequence[Op]]:
    """Returns graphs in which recurrences are LOOPs, and for each block the one that it is part of there, or itself.

    Both are the given ones where there is no recurrence.

    Args:
      inputs:  constants that may be others the next time, and stay outside of bodies
      blocks:  SHRINKs and PADs in the graphs
      stack:   makes one value in memory of those that each step reads there; formulas and gradients then stay, so the
               graphs are the same for any number of steps.  None: they are written out, and such values joined in the graph
    """
    order = toposort(roots, sources=graph_sources)
    if len(order) < ORDER_OPS_MIN or (searched := (_outline(order), stack is None)) in _without_loops:
        return roots, blocks
    graphs, has_loops = _with_lists([*roots, *blocks], order), False
    if stack is None:
        graphs, stack = written_out(graphs, most_operands=OPERANDS_MAX), _stacked
    else:  # a value that was computed between two steps is one Op in the steps before, and memory in those after
        graphs = _replaced(graphs, {op: op.realized for op in order if op.realized is not None and not op.needs_grad})
    for _ in range(LOOPS_MAX):
        became, stacked = _one_loop(graphs[: len(roots)], inputs, stack)
        if not became:
            break
        parts = [stacked.get(op, op) for op in graphs[len(roots) :]]
        graphs, has_loops = _replaced([*graphs[: len(roots)], *parts], became), True
    if has_loops:
        return graphs[: len(roots)], graphs[len(roots) :]
    _without_loops.put(searched, None)
    return roots, blocks


def from_memory(roots: Sequence[Op], blocks: Sequence[Op]) -> tuple[Sequence[Op], Sequence[Op]]:
    """Returns graphs that read values from memory where these have been computed; those of gradients go on below them.

    A loop that reads its loss in each turn would otherwise compute all turns before it, as one LOOP.
    """
    order = toposort(roots, sources=lambda op: op.src if op.realized is None else ())
    ends = {op: op.realized for op in order if op.realized is not None and op.needs_grad}
    if not ends or any(op.code is OpCode.GRADIENT for op in order):
        return roots, blocks
    cut = _replaced([*roots, *blocks], ends)
    return cut[: len(roots)], cut[len(roots) :]


def _outline(order: Sequence[Op]) -> int:
    """Returns a hash of a graph but for numbers and lengths: which Ops there are, which share a shape, what they read."""
    number, shapes = dict[Op, int](), dict[Shape, int]()
    outline: list[Hashable] = []
    for i, op in enumerate(order):
        number[op] = i
        name = op.arg.name if op.code is OpCode.FORMULA else None
        shape = shapes.setdefault(op.shape, len(shapes))
        outline.append((op.code, name, op.dtype, shape, *[number[s] for s in graph_sources(op)]))
    return hash(tuple(outline))


def _replaced(roots: Sequence[Op], places: Mapping[Op, Op]) -> list[Op]:
    became = dict(places)
    for op in toposort(roots, stop=places, sources=lambda op: () if op in places else graph_sources(op)):
        src = tuple([became.get(s, s) for s in op.src])
        if op not in became and src != op.src:
            became[op] = op.arg.function(op.arg.options, *src)[0] if _joins_rows(op, src) else built(op, src)
            copy_lines(op, became[op])
            became[op].realized = op.realized or became[op].realized
    return [became.get(root, root) for root in roots]


def _joins_rows(op: Op, src: Sequence[Op]) -> bool:
    """True for a list of values that LOOPs have made for each step, but for those of a few steps that differ."""
    if op.code is not OpCode.FORMULA or op.arg.function not in JOINS:
        return False
    return sum(row_of(s)[0] is None for s in src) <= min(LAG_STEPS_MAX, len(src) - 2)


def _one_loop(roots: Sequence[Op], inputs: Collection[Op], stack: Stacking) -> tuple[dict[Op, Op], dict[Op, Op]]:
    """Makes the first recurrence of a graph that is worth it a LOOP.

    Returns:   for each Op of the recurrence that others read the LOOP's result; for each block of memory that a step reads
               the block of all steps. Both are empty where there is no recurrence.
    """
    order = toposort(roots, sources=graph_sources)
    for steps in _recurrences(order, inputs, CHEAP_STEPS_MIN if stack is _stacked else STEPS_MIN):
        steps.go_up()
        became, blocks = _loop(steps, roots, stack)
        if became:
            return became, blocks
    return {}, {}


def _recurrences(order: Sequence[Op], inputs: Collection[Op], cheap_min: int) -> Iterator[_Steps]:
    """Yields steps that are worth a LOOP: those that end in one list, then those that read the one before.

    Args:
      cheap_min:  so many steps without a product or a sum
    """
    for members in _lists(order):
        steps = _alike(members, order, inputs)
        if steps is not None and steps.is_costly():
            yield steps
    for seeds in _chains(order):
        steps = _alike(seeds, order, inputs)
        while steps is not None and (longer := _with_one_before(steps)) is not None:
            steps = longer
        if steps is not None and steps.are_worth_a_loop(cheap_min):
            yield steps


def _lists(order: Sequence[Op]) -> list[Column]:
    """Returns the members of each list that a graph joins, if most of them are computed."""
    lists = [op.src for op in order if op.code is OpCode.FORMULA and op.arg.function in JOINS]
    return [members for members in lists if len(members) >= STEPS_MIN and members[len(members) // 2].code in OF_STEPS]


def _alike(seeds: Sequence[Op], order: Sequence[Op], inputs: Collection[Op]) -> _Steps | None:
    """Returns the steps of a chain, or of a part of it, that are alike."""
    for _ in range(TRIALS_MAX):
        if len(seeds) < STEPS_MIN:
            break
        steps = _Steps(seeds, order, inputs)
        try:
            steps.go_down()
            return steps
        except _Differ as cut:
            seeds = seeds[cut.first : cut.end]
    return None


def _with_one_before(steps: _Steps) -> _Steps | None:
    """Returns the same steps and one before them, where that is alike."""
    first, second = steps.seeds[:2]
    apart, kind = second.depth - first.depth, (first.code, first.dtype, first.shape)
    near = {op for op in steps.order if op.depth == first.depth - apart and (op.code, op.dtype, op.shape) == kind}
    for op in near and [_below(first, first.depth - apart, near)]:
        if op is None:
            break
        longer = _Steps((op, *steps.seeds), steps.order, steps.inputs)
        with suppress(_Differ):
            longer.go_down()
            return longer
    return None


# ---- lists ----
def _with_lists(roots: Sequence[Op], order: Sequence[Op]) -> list[Op]:
    """Returns graphs in which blocks that were written one by one, and lists that were joined again and again, are joins.

        out = zeros(T, n);  for t in range(T): out[t] = f(x[t])        ->  joined_ops(f(x[0]), f(x[1]), ...)
        out = cat([out, f(x[t])])
    """
    if sum(op.code is OpCode.WHERE and _margins(op) is not None for op in order) >= STEPS_MIN:
        roots = _with_read_blocks(roots, order)
        order = toposort(roots, sources=graph_sources)
    lists, inner = dict[Op, Op](), set[Op]()
    for op in reversed(order):
        if op.code in (OpCode.FORMULA, OpCode.WHERE) and op not in inner and op.realized is None:
            axis, members = _grown(op, inner) if op.code is OpCode.FORMULA else _written(op, inner)
            if len(members) >= STEPS_MIN:
                (lists[op],) = by_formula(joined_ops, (axis, op.dtype), members, ((op.dtype, op.shape),))
                copy_lines(op, lists[op])
    return _replaced(roots, lists) if lists else [*roots]


def _with_read_blocks(roots: Sequence[Op], order: Sequence[Op]) -> list[Op]:
    """Returns graphs in which a block that is read is the one that was written there, as in out[t] = f(out[t - 1])."""
    became = dict[Op, Op]()
    for op in order:
        src = tuple([became.get(s, s) for s in op.src])
        new = op if src == op.src else built(op, src)
        if new.code is OpCode.SHRINK and new.realized is None:
            new = _read_block(new)
        if new is not op:
            became[op] = new
            copy_lines(op, new)
            new.realized = op.realized or new.realized
    return [became.get(root, root) for root in roots]


def _read_block(read: Op) -> Op:
    """Returns the source of a SHRINK among written blocks: a part of the last block there, or of the value below them."""
    source, wanted = read.src[0], read.arg
    while source.code is OpCode.WHERE and source.realized is None and (margins := _margins(source)) is not None:
        block = source.src[1].src[0]
        inner = [(start - before, end - before) for (start, end), (before, _) in zip(wanted, margins)]
        if all(start >= 0 and end <= length for (start, end), length in zip(inner, block.shape)):
            return shrink(block, tuple(inner))
        if not any(end <= 0 or start >= length for (start, end), length in zip(inner, block.shape)):
            break
        source = source.src[2]
    return read if source is read.src[0] else shrink(source, wanted)


def _grown(op: Op, inner: set[Op]) -> tuple[int, list[Op]]:
    """Returns the axis and the members of a list that joins a list to which it adds; adds the inner lists to `inner`."""
    members, kind = list[Op](), (op.arg.function, op.arg.options)
    while op.code is OpCode.FORMULA and (op.arg.function, op.arg.options) == kind and kind[0] is joined_ops:
        members += op.src[:0:-1]
        op = op.src[0]
        inner.add(op)
    return (kind[1][0], [op, *reversed(members)]) if members else (0, [])


def _written(op: Op, inner: set[Op]) -> tuple[int, list[Op]]:
    """Returns the axis along which blocks of a value were written, and all of its blocks; no blocks for any other Op."""
    axis, shape, starts = None, op.shape, dict[int, Op]()
    while op.code is OpCode.WHERE and op.shape == shape and op.realized is None and (margins := _margins(op)) is not None:
        along = [i for i, (before, after) in enumerate(margins) if before or after]
        if len(along) != 1 or axis not in (None, along[0]):
            break
        axis = along[0]
        start, block = margins[axis][0], op.src[1].src[0]
        if block.shape[axis] != 1:
            break
        starts.setdefault(start, block)  # of two writes to one place the last one counts
        op = op.src[2]
        inner.add(op)
    if axis is None or len(starts) < STEPS_MIN or not isinstance(shape[axis], int):
        return 0, []
    return axis, [starts.get(i) or shrink_axis(op, axis, i, i + 1) for i in range(shape[axis])]


def _margins(write: Op) -> tuple[tuple[int, int], ...] | None:
    """Returns the lengths before and after the block that a WHERE writes, along each axis; None for any other WHERE."""
    inside, block, _ = write.src
    if not inside.code is block.code is OpCode.PAD or inside.arg != block.arg or block.realized is not None:
        return None
    margins: tuple[tuple[int, int], ...] = inside.arg
    holds = _viewed(inside.src[0])
    is_whole = holds.code is OpCode.CONST and holds.arg is True
    return margins if is_whole and all(type(end) is int for cut in margins for end in cut) else None


# ---- chains of equal forms ----
def _chains(order: Sequence[Op]) -> Iterator[list[Op]]:
    """Yields chains of Ops of one form, of each part of a graph the longest and uppermost first, lower parts first."""
    for groups in _by_form(order):
        runs = [(*_longest_run(sorted({op.depth for op in group})), group) for group in groups]
        runs = [run for run in runs if run[1] >= STEPS_MIN]
        for _ in range(TRIALS_MAX):
            if not runs:
                break
            lowest = min(runs, key=lambda run: run[0])
            near = [run for run in runs if run[0] < lowest[0] + 2 * lowest[2]]
            for _, _, apart, group in sorted(near, key=lambda run: (-run[1], -run[0]))[:TRIALS_MAX]:
                chain = _chain(group, apart)
                if len(chain) >= STEPS_MIN:
                    yield chain
            runs = [run for run in runs if run not in near]


def _by_form(order: Sequence[Op]) -> Iterator[list[list[Op]]]:
    """Yields the Ops that steps may have, those of one form in one list: they are equal some levels down.

    Few levels leave out no step, since the first ones are soon another form. Where two Ops of one form are equally deep,
    as those of two layers are, one might be taken for the other: they wait for more levels.
    """
    number = {op: i for i, op in enumerate(order)}
    own = [hash(_form(op)) for op in order]
    sources = [[number[s] for s in graph_sources(op)] for op in order]
    forms, left = own, [op for op in order if op.code in OF_STEPS]
    for levels in LEVELS:
        for _ in range(levels):
            form_of = forms.__getitem__
            forms = [hash((form, *map(form_of, src))) for form, src in zip(own, sources)]
        groups: dict[int, list[Op]] = {}
        for op in left:
            groups.setdefault(forms[number[op]], []).append(op)
        found = [group for group in groups.values() if len(group) >= STEPS_MIN]
        unclear = [group for group in found if len({op.depth for op in group}) < len(group)]
        left = [op for group in unclear for op in group]
        yield found if levels == LEVELS[-1] else [group for group in found if group not in unclear]


def _form(op: Op) -> tuple[object, ...]:
    if _is_leaf(op):
        return op.dtype, op.shape
    if op.code not in OF_STEPS:
        return (id(op),)
    if op.code is OpCode.SHRINK:
        return op.code, op.dtype, op.shape
    return op.code, op.dtype, op.shape, op.arg


def _longest_run(depths: Sequence[int]) -> tuple[int, int, int]:
    """Returns first depth, length and distance of the longest run of depths that are equally far apart."""
    best, start = (0, 0, 0), 0
    apart = [b - a for a, b in pairwise(depths)]
    for i, distance in enumerate(apart):
        if distance != apart[start]:
            start = i
        if i - start + 2 > best[1]:
            best = depths[start], i - start + 2, distance
    return best


def _chain(group: Sequence[Op], apart: int) -> list[Op]:
    """Returns the longest chain of Ops of a group, each so much below the next one, the lowest first."""
    members, best = set(group), list[Op]()
    for op in sorted(group, key=lambda op: -op.depth):
        chain, at = list[Op](), op if op in members else None
        while at is not None:
            chain.append(at)
            members.discard(at)
            at = _below(at, at.depth - apart, members)
        best = max(best, chain, key=len)
    return best[::-1]


def _below(op: Op, depth: int, members: Collection[Op]) -> Op | None:
    """Returns a member of that depth below an Op."""
    stack, seen = [op], {op}
    while stack:
        for s in graph_sources(stack.pop()):
            if s.depth >= depth and s not in seen:
                if s.depth == depth and s in members:
                    return s
                seen.add(s)
                stack.append(s)
    return None


# ---- steps ----
class _Differ(Exception):
    """Steps are not alike; those from `first` to `end` may be."""

    def __init__(self, first: int = 0, end: int = 0):
        self.first, self.end = first, end


class _Lag(Struct, eq=False):
    """A column that another one has some steps ago.

    column:  itself
    steps:   how many
    """

    column: Column
    steps: int


class _Rows(Struct, eq=False):
    """A column that is a stacked source.

    column:   itself
    stacked:  makes the source, which has a row for each step, and the block of all steps; None for values in memory
    """

    column: Column
    stacked: Callable[[], tuple[Op, Op]] | None = None


Place = int | _Lag | _Rows | Op  # an Op of the body by number; what no step changes is the Op itself


class _Steps:
    """The steps of a recurrence.

    columns:  Ops of the body
    sources:  of each, where its sources are
    place:    Op -> its column, and its step
    found:    the place of each column looked at so far
    since:    Ops below the seeds -> the first step that needs them
    above:    Ops that read any of the columns
    """

    def __init__(self, seeds: Sequence[Op], order: Sequence[Op], inputs: Collection[Op]):
        self.seeds, self.order, self.inputs, self.num_steps = tuple(seeds), order, inputs, len(seeds)
        self.columns: list[Column] = []
        self.sources: list[list[Place]] = []
        self.place: dict[Op, tuple[int, int]] = {}
        self.found: dict[Column, Place] = {}
        self.since: dict[Op, int] = {}
        self.above: set[Op] = set()
        self.readers: dict[Op, list[Op]] = {}

    def go_down(self) -> None:
        """Finds all that the seeds need."""
        for step, seed in enumerate(self.seeds):
            stack = [seed]
            while stack:
                op = stack.pop()
                if op not in self.since:
                    self.since[op] = step
                    stack += graph_sources(op)
        for op in self.order:
            for s in graph_sources(op):
                self.readers.setdefault(s, []).append(op)
        self._add(self.seeds)
        self._complete()

    def _add(self, column: Column) -> int:
        """Makes a column an Op of the body: the last step's stands for all, so they are alike but for their sources."""
        kind = _kind(column[-1])
        if any(_is_leaf(op) or _kind(op) != kind for op in column):
            middle = _kind(column[self.num_steps // 2])
            raise _Differ(*_longest_true([not _is_leaf(op) and _kind(op) == middle for op in column]))
        number = len(self.columns)
        self.columns.append(column)
        self.found[column] = number
        for step, op in enumerate(column):
            if self.place.setdefault(op, (number, step)) != (number, step):
                raise _Differ
        return number

    def _complete(self) -> None:
        """Finds the sources of the columns that have none yet."""
        looked_at = len(self.sources)
        while len(self.sources) < len(self.columns):
            column = self.columns[len(self.sources)]
            self.sources.append([])
            columns = [*zip(*map(graph_sources, column))]
            values = len(columns) - _num_numbers(column[0])
            if any(len({*numbers}) > 1 for numbers in columns[values:]):
                raise _Differ
            self.sources[-1] += [self._look_at(sources) for sources in columns[:values]]
        stack = [op for column in self.columns[looked_at:] for op in column]
        while stack:
            fresh = [reader for reader in self.readers.get(stack.pop(), ()) if reader not in self.above]
            self.above.update(fresh)
            stack += fresh
        for places in self.sources[looked_at:]:
            self._check(places)

    def _check(self, places: Sequence[Place]) -> None:
        """Raises _Differ where a source from elsewhere needs a step, or a carry is not a value of the step before."""
        for place in places:
            if isinstance(place, _Lag):
                number, lag = self.origin(place), place.steps
                kinds = {(op.dtype, op.shape) for op in (*place.column[:lag], self.columns[number][0])}
                if len(kinds) > 1:
                    raise _Differ(1, self.num_steps)
            outside = place.column[: place.steps] if isinstance(place, _Lag) else ()
            outside = place.column if isinstance(place, _Rows) else (place,) if isinstance(place, Op) else outside
            if any(op in self.place or op in self.above for op in outside):
                raise _Differ

    def origin(self, lag: _Lag) -> int:
        """Returns the number of the column that a carry has been."""
        number, step = self.place.get(lag.column[lag.steps], (0, -1))
        if step != 0 or self.columns[number][: -lag.steps] != lag.column[lag.steps :]:
            raise _Differ
        return number

    def _look_at(self, column: Column) -> Place:
        """Returns the place of the values of a column."""
        found = self.found.get(column)
        if found is None:
            first = column[0]
            if all(op is first for op in column):
                return first
            lag = self._lag(column)
            found = _Lag(column, lag) if lag else self._of_steps(column)
            self.found[column] = found
        return found

    def _lag(self, column: Column) -> int:
        """Returns how many steps ago another column has been this one; 0 if none has."""
        last, end = self.num_steps - 1, column[-1]
        if end.code is OpCode.OUTPUT and end not in self.place and end.src[0] in self.place:
            self._add_result(self.place[end.src[0]][0], end)
        number, step = self.place.get(column[-1], (None, self.since.get(column[-1], last)))
        lag = last - step
        if not 0 < lag <= LAG_STEPS_MAX:
            return 0
        for i in range(lag + 1, last):
            if self.place.get(column[i], (number, i - lag)) != (number, i - lag):
                raise _Differ
            if number is None and self.since.get(column[i]) != i - lag:
                return 0
        return lag

    def _of_steps(self, column: Column) -> Place:
        """Returns the place of the values of a column that no other one has had before."""
        like = column[self.num_steps // 2]
        code, kind, is_leaf = like.code, (like.dtype, like.shape), _is_leaf(like)
        if is_leaf:
            alike = [_is_leaf(op) and (op.dtype, op.shape) == kind for op in column]
        else:
            arg, count = None if code is OpCode.SHRINK else like.arg, len(like.src)
            alike = [
                op.code is code and (op.dtype, op.shape) == kind and len(op.src) == count
                and not _is_leaf(op) and (arg is None or op.arg == arg)
                for op in column
            ]  # fmt: skip
        if not all(alike):
            raise _Differ(*_longest_true(alike))
        if is_leaf and like.nbytes <= JOINED_NBYTES:
            return _Rows(column)
        if is_leaf or code not in OF_STEPS:
            raise _Differ
        if code is OpCode.SHRINK and any(op.arg != like.arg for op in column):
            if any(op.src[0] is not like.src[0] for op in column):
                raise _Differ
            return _Rows(column, _blocks(column))
        producers = self._look_at(tuple([op.src[0] for op in column])) if code is OpCode.OUTPUT else None
        if isinstance(producers, _Lag):  # a result is carried, not the Op that has several
            self._add_result(self.origin(producers), like)
            return _Lag(column, producers.steps)
        return self._add(column)

    def _add_result(self, number: int, output: Op) -> None:
        """Adds result `output` of a column's Ops as a column of its own; in some steps nothing may read it."""
        column = tuple([self._result(op, output) for op in self.columns[number]])
        if column not in self.found:
            self._add(column)

    def _result(self, op: Op, output: Op) -> Op:
        """Returns the result of an Op that has the number of `output`."""
        found = [reader for reader in self.readers.get(op, ()) if reader.code is OpCode.OUTPUT and reader.arg == output.arg]
        return found[0] if found else built(output, (op,))

    def is_costly(self) -> bool:
        """True where a step has kernels of its own."""
        return any(map(_is_costly, [column[0] for column in self.columns]))

    def are_formula(self) -> bool:
        """True for a few steps of elements that differ in their inputs: Horner's rule, a sum of many tensors.

        They are a kernel's, or a few kernels'; a loop would read constants from memory, and join the tensors first.
        """
        rows = [place.column[0] for places in self.sources for place in places if isinstance(place, _Rows)]
        is_short = self.num_steps * len(self.columns) < FORMULA_OPS_MIN
        are_elements = all(column[0].code in OF_FORMULAS for column in self.columns)
        return is_short and are_elements and all(row.code is OpCode.CONST or _is_leaf(row) for row in rows)

    def are_worth_a_loop(self, cheap_min: int) -> bool:
        """True for steps with kernels of their own, for those that read what another loop's made, and for many others."""
        if self.is_costly():
            return True
        rows = [place.column[0] for places in self.sources for place in places if isinstance(place, _Rows)]
        if any(row.code is OpCode.SHRINK and _viewed(row).code is OpCode.OUTPUT for row in rows):
            return True
        return self.num_steps >= cheap_min and not self.are_formula()

    # ---- what reads them ----
    def go_up(self) -> None:
        """Adds the columns above that have an Op in each step, and the results of those that have several."""
        for op in self.order:
            if op.code is OpCode.OUTPUT and op not in self.place and op.src[0] in self.place:
                self._add_result(self.place[op.src[0]][0], op)
        self._complete()
        for column in self._columns_above():
            before = len(self.columns)
            places, found, above = dict(self.place), dict(self.found), set(self.above)
            try:
                self._add(column)
                self._complete()
            except _Differ:
                self.place, self.found, self.above = places, found, above
                del self.columns[before:], self.sources[before:]

    def _columns_above(self) -> list[Column]:
        """Returns columns of Ops that read these, in each step in the same way; a column comes behind those it reads."""
        numbers: dict[tuple[object, ...], int] = {}
        known: dict[Op, tuple[int, int]] = dict(self.place)
        members: dict[int, dict[int, Op]] = {}
        for op in self.order:
            if op not in self.above or op in known or op.code not in OF_STEPS:
                continue
            reads = [known.get(s) for s in graph_sources(op)]
            step = max([read[1] for read in reads if read is not None], default=None)
            if step is None:
                continue
            form = (op.code, op.dtype, op.shape, op.arg, *[read and (read[0], step - read[1]) for read in reads])
            for again in range(LAG_STEPS_MAX):
                number = numbers.setdefault((form, again), len(self.columns) + len(numbers))
                if step not in members.setdefault(number, {}):
                    members[number][step] = op
                    known[op] = number, step
                    break
        found = [[by_step[step] for step in sorted(by_step)] for by_step in members.values()]
        return [tuple(column) for column in found if len(column) == self.num_steps]


def _is_costly(op: Op) -> bool:
    if op.code is OpCode.FORMULA:
        return op.arg.is_costly or len(op.arg.kinds) > 1
    return op.code in COSTLY or op.code in SEVERAL_RESULTS


def _num_numbers(op: Op) -> int:
    """Returns how many of an Op's sources, the last ones, are constants that its formula takes as Python's numbers."""
    return len(op.arg.numbers) if op.code is OpCode.FORMULA else 0


def _is_leaf(op: Op) -> bool:
    """True for a constant, and for memory."""
    return op.code in (OpCode.CONST, OpCode.BUFFER, OpCode.PARAM) or (op.realized is not None and not op.needs_grad)


def _kind(op: Op) -> tuple[object, ...]:
    return op.code, op.dtype, op.shape, op.arg


def _longest_true(flags: Sequence[bool]) -> tuple[int, int]:
    best, start = (0, 0), 0
    for i, flag in enumerate([*flags, False]):
        if not flag:
            best, start = max(best, (start, i), key=lambda run: run[1] - run[0]), i + 1
    return best


def _blocks(column: Column) -> Callable[[], tuple[Op, Op]]:
    """Returns a function that makes the stacked source of blocks of one value, and the block of all of them.

    Raises:
      _Differ: they are not equally apart along one axis.
    """
    starts = list(zip(*[[start for start, _ in op.arg] for op in column]))
    axes = [axis for axis, along in enumerate(starts) if len(set(along)) > 1]
    source, block = column[0].src[0], column[0].arg
    axis = axes[0] if len(axes) == 1 else None
    if axis is None or any(not isinstance(dim, int) for dim in (*starts[axis], column[0].shape[axis])):
        raise _Differ
    distance, width = starts[axis][1] - starts[axis][0], column[0].shape[axis]
    if abs(distance) < width or {b - a for a, b in pairwise(starts[axis])} != {distance}:
        raise _Differ

    def made() -> tuple[Op, Op]:
        first, apart = min(starts[axis]), abs(distance)
        bounds = [*block]
        bounds[axis] = first, min(first + apart * len(column), source.shape[axis])
        whole = part = shrink(source, tuple(bounds))
        part = pad_axis(part, axis, 0, apart * len(column) - part.shape[axis])
        split = reshape(part, (*part.shape[:axis], len(column), apart, *part.shape[axis + 1 :]))
        rows = shrink_axis(split, axis + 1, 0, width)
        rows = permute(rows, (axis, *[i for i in range(len(rows.shape)) if i != axis]))
        return flip(rows, (0,)) if distance < 0 else rows, whole

    return made


# ---- the loop ----
def _loop(steps: _Steps, roots: Sequence[Op], stack: Stacking) -> tuple[dict[Op, Op], dict[Op, Op]]:
    """Makes steps a LOOP; returns what `_one_loop` does, nothing for layers."""
    place, last = steps.place, len(steps.seeds) - 1
    read = {s for op in steps.order if op not in place for s in graph_sources(op) if s in place}
    read.update([root for root in roots if root in place])
    wanted = [op for op in steps.order if op in read]
    rows = dict.fromkeys([place[op][0] for op in wanted if place[op][1] != last])
    ends = dict.fromkeys([place[op][0] for op in wanted if place[op][0] not in rows])
    body = _Body(steps, stack)
    loop, result_of = body.made([*rows], [*ends])
    became: dict[Op, Op] = {}
    if body.are_layers(loop):
        return became, {}
    for op in wanted:
        number, step = place[op]
        result = output(loop, result_of[number])
        became[op] = result if number in ends else reshape(shrink_axis(result, 0, step, step + 1), op.shape)
        copy_lines(op, became[op])
        became[op].realized = op.realized or became[op].realized
    return became, body.blocks


class _Body:
    """The body of a LOOP.

    begin:    sources that are carried
    carries:  what each of them is after a step: a column, another carry (~ its number), itself (None)
    slot:     of carries and invariants, by what they are
    stacked:  the stacked sources, by their columns
    blocks:   block of a step -> that of all steps
    """

    def __init__(self, steps: _Steps, stack: Stacking):
        self.steps = steps
        self.begin: list[Op] = []
        self.carries: list[int | None] = []
        self.slot: dict[object, int] = {}
        self.stacked: dict[Column, Op] = {}
        self.blocks: dict[Op, Op] = {}
        for places in steps.sources:
            for place in places:
                if isinstance(place, _Rows) and place.column not in self.stacked:
                    source, whole = (stack(place.column), None) if place.stacked is None else place.stacked()
                    self.stacked[place.column] = source
                    if whole is not None and whole.code is OpCode.SHRINK:
                        self.blocks |= dict.fromkeys(place.column, whole)
                elif isinstance(place, _Lag):
                    self.lag(place.column, place.steps, steps.origin(place))
                elif isinstance(place, Op):
                    self.invariant(place)

    def carried(self, key: object, begin: Op, after: int | None) -> int:
        """Returns the slot of a carry."""
        if key not in self.slot:
            self.slot[key] = len(self.begin)
            self.begin.append(begin)
            self.carries.append(after)
        return self.slot[key]

    def lag(self, column: Column, lag: int, number: int) -> int:
        """Returns the slot of a value some steps ago: a carry that takes over, in each step, that of one step less."""
        after = number if lag == 1 else ~self.lag(column[1:], lag - 1, number)
        return self.carried((column[:lag], number), column[0], after)

    def invariant(self, op: Op) -> None:
        """Makes a source of what no step changes, below its views."""
        base = _viewed(op)
        if base.code is not OpCode.CONST or base in self.steps.inputs:
            self.carried(base, base, None)

    def end(self, number: int) -> int:
        """Returns the slot of a carry that ends as the value of a column in the last step."""
        if number in self.carries:
            return self.carries.index(number)
        op = self.steps.columns[number][-1]
        return self.carried(("end", number), op.filled(0), number)

    def made(self, rows: Sequence[int], ends: Sequence[int]) -> tuple[Op, dict[int, int]]:
        """Returns the LOOP, and which of its results each column is.

        Args:
          rows:  columns of which all steps are wanted
          ends:  columns of which the last step is
        """
        result_of = {number: self.end(number) for number in ends}
        carries = [param(op, slot) for slot, op in enumerate(self.begin)]
        stacked = {column: param(op, len(carries) + i, True) for i, (column, op) in enumerate(self.stacked.items())}
        values: dict[int, Op] = {}

        def value(place: Place) -> Op:
            if isinstance(place, int):
                return values[place]
            if isinstance(place, _Rows):
                return stacked[place.column]
            if isinstance(place, _Lag):
                number = self.steps.origin(place)
                return carries[self.slot[place.column[: place.steps], number]]
            base = _viewed(place)
            return place if base not in self.slot else substitute([place], {base: carries[self.slot[base]]})[0]

        columns = self.steps.columns
        for number in sorted(range(len(columns)), key=lambda number: columns[number][-1].depth):
            op = columns[number][-1]
            numbers = op.src[len(op.src) - _num_numbers(op) :]
            values[number] = built(op, (*map(value, self.steps.sources[number]), *numbers))
            copy_lines(op, values[number])
        after = [
            carries[slot] if then is None else values[then] if then >= 0 else carries[~then]
            for slot, then in enumerate(self.carries)
        ]
        body = sink(tuple(written_out([*after, *[values[number] for number in rows]])))
        src = (*self.begin, *self.stacked.values())
        loop = Op(OpCode.LOOP, body.dtype, src, (body, len(carries), len(self.steps.seeds)))
        return loop, result_of | {number: len(carries) + i for i, number in enumerate(rows)}

    def are_layers(self, loop: Op) -> bool:
        """True where the right side of a product is other memory in each step, which would have to be joined."""
        joined_slots = {len(self.begin) + i for i, column in enumerate(self.stacked) if _is_leaf(column[0])}
        for op in toposort([loop.arg[0]]):
            if op.code in (OpCode.MATMUL, OpCode.CONV):
                right = op.src[1]
                while right.code in VIEWED:
                    right = right.src[0]
                if right.code is OpCode.PARAM and right.arg[0] in joined_slots:
                    return True
        return False


def _viewed(op: Op) -> Op:
    """Returns the value that an Op is a view of."""
    while op.code in MOVEMENT and op.realized is None:
        op = op.src[0]
    return op
