"""The loops of a scatter: a copy of the base, then the updates in their order.

In:    Nest (kind SCATTER), whose anchor is the SCATTER
Out:   two phases of statements in the free form: copy, update
Called by: codegen/lower.py.    Next: picograd/codegen/gpu/scatter.py

Updates of one element follow each other in one thread, so a sum has the same bits on every run; where many go to few
places, a CPU adds up runs of them (codegen/runs.py). On a GPU that is a thread a column: for few updates, many rows of
indices, and lengths known only when it runs. All else is codegen/gpu/scatter.py's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from picograd import dtype as dtypes
from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Builder
from picograd.codegen.index import element_within
from picograd.codegen.loops import along, emit_blocks, grid_of_threads, nested, split
from picograd.codegen.runs import in_runs, longest
from picograd.codegen.scalar import combined
from picograd.device import Target
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, floordiv, from_op, less, minimum, mul, subtract
from picograd.record import Record

PIECE = 1024  # elements of the axes right of the scattered one in one GRID iteration
RUN_UPDATES = 512  # that are added to one sum before it is added to another
RUN_PLACES = 8  # times as many updates as places in a run: so adding up all places is little beside them
MOST_OWN = 1 << 14  # elements of the sums of a run, which are on the stack


def emit_scatter(nest: Nest, params: Sequence[Op], copy: Builder, build: Builder, target: Target) -> None:
    """Writes `out = base` in phase `copy` and `out[..., index, ...] op= updates` in phase `build`."""
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    base, _, updates = anchor.src
    code, axis, _ = anchor.arg
    shape, out = base.shape, params[nest.outputs[0][0]]
    left, right = shape[:axis], shape[axis + 1 :]
    num_index = len(updates.shape) - len(left) - len(right)
    total = numel(shape)

    def put_base(position: Dim) -> None:
        build_at = split(position, list(shape))
        copy.store(out, flatten(build_at, shape), element_within(base, tuple(build_at)))

    index_shape = list(updates.shape[len(left) : len(left) + num_index])
    if target.is_gpu:
        with grid_of_threads(copy, total, target) as position:
            put_base(position)
        with grid_of_threads(build, numel((*left, *right)), target) as position:
            *at, column = split(position, [*left, numel(right)])

            def put(where: Dim, column: Dim, value: Op) -> None:
                _combine(code, out, flatten((*at, where, *split(column, list(right))), shape), value, build)

            nested(build, index_shape, [], lambda index_at: _update(anchor, at, index_at, column, put, build))
        return
    lanes = vector_lanes([updates], target)
    emit_blocks(copy, [total], lanes, lambda positions: put_base(positions[0]))
    columns = numel(right)
    pieces = floordiv(add(columns, PIECE - 1), PIECE)
    with build.loop(numel((*left, pieces)), AxisKind.GRID) as position:
        *at, piece = split(position, [*left, pieces])
        start = mul(piece, PIECE)
        strip = _Strip(anchor, at, start, minimum(subtract(columns, start), PIECE), lanes, build)
        whole = _Totals(out, lambda where, column: flatten((*at, where, *split(column, list(right))), shape))
        strip.write(index_shape, whole)


class _Totals(Record):
    """What updates are combined with: the result itself, or sums of a run of updates on the stack.

    place:  (place along the axis, column) -> where in memory
    """

    memory: Op
    place: Callable[[Dim, Dim], Dim]


class _Strip(Record):
    """Some columns right of the scattered axis, to which one thread adds the updates of all places in their order.

    Sums of many updates to few places are added up in runs, so that their rounding errors do not pile up.

    at:     position left of the axis
    start:  the first column, of `count`
    """

    anchor: Op
    at: Sequence[Dim]
    start: Dim
    count: Dim
    lanes: int
    build: Builder

    def write(self, index_shape: Sequence[Dim], total: _Totals) -> None:
        """Adds all updates to totals."""
        build, count, run = self.build, numel(index_shape), self.run
        if run == 0 or longest(count) <= run:
            nested(build, index_shape, [], partial(self.update, total))
            return

        def one_run(total: _Totals, at: list[Dim]) -> None:
            own, first = self.fresh(), mul(at[0], run)
            with build.loop(minimum(subtract(count, first), run), AxisKind.LOOP) as i:
                self.update(own, split(add(first, i), list(index_shape)))
            self.join(own, total)

        in_runs(build, [floordiv(add(count, run - 1), run)], total, self.fresh, self.join, one_run)

    @property
    def width(self) -> Dim:
        return min(PIECE, longest(self.count))

    @property
    def run(self) -> int:
        """Returns how many updates make a run, 0: all."""
        base, (code, axis, _) = self.anchor.src[0], self.anchor.arg
        places = base.shape[axis]
        if code is not OpCode.ADD or not base.dtype.is_float or not isinstance(places, int):
            return 0
        return max(RUN_UPDATES, RUN_PLACES * places) if places * self.width <= MOST_OWN else 0

    def fresh(self) -> _Totals:
        """Returns sums of no updates."""
        build, dtype, width = self.build, self.anchor.dtype.compute_dtype, self.width
        own = build.alloc(dtype, self.anchor.shape[self.anchor.arg[1]] * width, MemorySpace.SHARED)
        along(build, 0, own.arg[1], self.lanes, lambda i: build.store(own, i, const(0, dtype)))
        return _Totals(own, lambda where, column: add(mul(where, width), subtract(column, self.start)))

    def join(self, part: _Totals, total: _Totals) -> None:
        """Adds sums to others, or to the result."""
        with self.build.loop(self.anchor.shape[self.anchor.arg[1]], AxisKind.LOOP) as where:
            self.across(lambda c: self.combine(total, where, c, self.build.load(part.memory, part.place(where, c))))

    def update(self, total: _Totals, index_at: list[Dim]) -> None:
        self.across(
            lambda column: _update(self.anchor, self.at, index_at, column, partial(self.combine, total), self.build)
        )

    def across(self, body: Callable[[Dim], None]) -> None:
        """Runs body(column) for all columns."""
        along(self.build, self.start, self.count, self.lanes, body)

    def combine(self, total: _Totals, where: Dim, column: Dim, value: Op) -> None:
        _combine(self.anchor.arg[0], total.memory, total.place(where, column), value, self.build)


def _combine(code: OpCode | None, memory: Op, place: Dim, value: Op, build: Builder) -> None:
    """Stores what a place in memory and a value are together, or with no code the value."""
    value = cast(value, memory.dtype)
    build.store(memory, place, value if code is None else combined(code, build.load(memory, place), value))


def _update(
    anchor: Op, at: Sequence[Dim], index_at: Sequence[Dim], column: Dim, put: Callable[[Dim, Dim, Op], None],
    build: Builder,
) -> None:  # fmt: skip
    """Writes put(place along the axis, column, value) for one update, where its index is inside the base."""
    base, index, updates = anchor.src
    _, axis, batch = anchor.arg
    where = from_op(cast(element_within(index, (*at[:batch], *index_at)), dtypes.int64))
    with build.when(both(less(-1, where), less(where, base.shape[axis]))):
        put(where, column, element_within(updates, (*at, *index_at, *split(column, list(base.shape[axis + 1 :])))))
