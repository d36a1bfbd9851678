"""Epilogues of products by warpgroups: statements about the part of a row that a thread has in registers.

In:    the nest of a product, the places of a thread's columns (`Columns`)
Out:   `emit_epilogue`: a Program in the free form;  `why_no_epilogue`

A thread has groups of neighbouring columns of a row (devices/cuda/hopper_product.h, hopper_fma.h). The surrounding kernel
gives their matrix, row and piece of columns, and the thread's first column in each group. In the Program these four are
loops, the only ones that are not loops in the text.

    for matrix, row, piece, own:
        values that are the same for a row are loaded
        for each group, for each lane:  loaded[group, lane] = LOAD at (row, column)
        for each group, for each lane:  STORE f(sums[group, lane], loaded[group, lane]) at (row, column)

All loads come before the first store, which may be to the same memory, so that they are under way together. Results that
a copy of tiles stores are put in registers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from picograd.codegen.builder import Builder
from picograd.codegen.index import elements_within, put_in_all
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import DONE, SUMS, Columns
from picograd.ir.stages import Nest, Param, Program
from picograd.ir.symbolic import add, flatten, from_op, less, mul, placeholders, subtract, unflatten, with_values

# Only the loops of codegen/elementwise.py can read at places that depend on values, and report errors.
NOT_HERE = frozenset({OpCode.GATHER, OpCode.CHECK})

# Instructions of a function; any other Op counts as one.
INSTRUCTIONS = {
    OpCode.ERF: 23, OpCode.TANH: 20, OpCode.SIN: 20, OpCode.POW: 30, OpCode.EXP: 9, OpCode.EXP2: 4, OpCode.LOG: 12,
    OpCode.DIV: 8, OpCode.SQRT: 8, OpCode.THREEFRY: 120,
}  # fmt: skip


class Values:
    """The values computed of a product, at placeholders of its axes.

    marks:      the placeholders
    product:    stands for the product's element
    roots:      values of the outputs
    of_row:     loads that are the same for a whole row
    of_columns: the other loads
    """

    def __init__(self, nest: Nest):
        anchor = nest.anchor
        self.marks = placeholders(anchor.shape)
        self.product = Op(OpCode.PARAM, anchor.dtype, (), (-1, ()))  # no kernel has such a slot
        outputs = [value for _, value in nest.outputs]
        self.roots = elements_within(outputs, self.marks, {anchor: self.product}, range(len(anchor.shape)))
        loads = [op for op in toposort(self.roots) if op.code is OpCode.LOAD]
        self.of_columns = [load for load in loads if self.marks[-1] in toposort([load])]
        self.of_row = [load for load in loads if load not in self.of_columns]

    @property
    def of_elements(self) -> list[Op]:
        """Loads of matrices, which read other elements for each row."""
        rows = [mark for mark in self.marks[:-1] if isinstance(mark, Op)]
        return [load for load in self.of_columns if not set(rows).isdisjoint(toposort([load]))]

    @property
    def itemsize(self) -> int:
        """Bytes of the widest element that is read or stored for each row and column."""
        return max(op.dtype.itemsize for op in (*self.roots, *self.of_elements))

    @property
    def by_threads(self) -> bool:
        """True if threads store the results: there are several, or a copy of tiles would overlap memory that is read."""
        return len(self.roots) > 1 or bool(self.of_elements)

    @property
    def nbytes(self) -> int:
        """Bytes that are read and stored for each row and column."""
        return sum(op.dtype.itemsize for op in (*self.roots, *self.of_elements))

    @property
    def num_instructions(self) -> int:
        """The approximate number of instructions for an element."""
        order = toposort(self.roots, sources=lambda op: () if op.code is OpCode.LOAD else op.src)
        return sum(INSTRUCTIONS.get(op.code, 1 if op.src else 0) for op in order)


def why_no_epilogue(nest: Nest) -> str | None:
    """Returns the reason why the values computed from a product are not an epilogue; None if they are."""
    anchor = nest.anchor
    for op in toposort([value for _, value in nest.outputs], stop={anchor}):
        if op.code in NOT_HERE:
            return f"its epilogue has a {op.code.name}"
    if any(not _is_read_along(load, Values(nest).marks[-1]) for load in Values(nest).of_columns):
        return "its epilogue reads a transposed matrix"
    return None


def _is_read_along(load: Op, column: Dim) -> bool:
    """True for a load whose first two columns are neighbours, or the same element."""
    starts: dict[Op, Dim] = {op: 0 for op in toposort([load.src[1]]) if op.code is OpCode.RANGE}
    assert isinstance(column, Op)
    first, second = (with_values(from_op(load.src[1]), starts | {column: at}) for at in (0, 1))
    return subtract(second, first) in (0, 1)


def emit_epilogue(nest: Nest, params: Sequence[Param], columns: Columns, whole: AxisKind) -> Program:
    """Returns the statements that a thread runs for its columns of a piece of a row.

    Args:
      whole: the kind of a loop over registers
    """
    anchor, build = nest.anchor, Builder()
    *_, m, n = anchor.shape
    of_matrix, of_row, of_piece, of_own = columns.extents.values()
    with (
        build.loop(of_matrix, AxisKind.LOOP) as matrix, build.loop(of_row, AxisKind.LOOP) as row,
        build.loop(of_piece, AxisKind.LOOP) as piece, build.loop(of_own, AxisKind.LOOP) as own,
    ):  # fmt: skip
        part = _PartOfRow(nest, params, columns, (matrix, row, piece, own), build)
        with build.when(less(row, m)), build.when(less(mul(piece, columns.piece), n) if part.is_whole else True):
            part.load_shared()
            if part.loaded:
                part.each(whole, part.load)
            part.each(whole, part.store)
    return Program("epilogue", tuple(params), (), (build.finish(),))


class _PartOfRow:
    """The columns of a piece of a row that a thread has, in groups of neighbours, and the values loaded for them.

    place:     matrix, row, piece, and the first of the thread's columns in each group
    is_whole:  a piece is entirely inside or outside of the row
    shared:    registers of the loads that are the same for the row
    loaded:    registers of the other loads, for each column
    """

    def __init__(
        self, nest: Nest, params: Sequence[Param], columns: Columns, place: tuple[Dim, Dim, Dim, Dim], build: Builder
    ):
        self.nest, self.columns, self.place, self.build, self.values = nest, columns, place, build, Values(nest)
        self.shape, self.is_whole = nest.anchor.shape, nest.anchor.shape[-1] % columns.piece == 0
        self.memories = [Op(OpCode.PARAM, param.dtype, (), (slot, (param.numel,))) for slot, param in enumerate(params)]
        self.sums, self.done = (
            Op(OpCode.ALLOC, dtype, (), (f"{name}.at", columns.count, MemorySpace.REGISTER))
            for name, dtype in ((SUMS, nest.anchor.dtype), (DONE, self.values.roots[0].dtype))
        )
        self.shared: list[Op] = []
        self.loaded: list[Op] = []

    def at(self, group: Dim, lane: Dim) -> list[Dim]:
        """Returns the coordinates of a column."""
        columns, (matrix, row, piece, own) = self.columns, self.place
        first = add(add(mul(piece, columns.groups * columns.apart), own), mul(group, columns.apart))
        return [*unflatten(matrix, self.shape[:-2]), row, add(mul(first, columns.lanes), lane)]

    def put_in(
        self, values: Sequence[Op], coords: Sequence[Dim], known: Mapping[Op, Dim] = MappingProxyType({})
    ) -> list[Op]:
        """Returns values at coordinates, with some of the loads `known`."""
        there = {mark: coord for mark, coord in zip(self.values.marks, coords) if isinstance(mark, Op)}
        return put_in_all(values, {**there, **known})

    def each(self, whole: AxisKind, body: Callable[[Dim, Sequence[Dim]], None]) -> None:
        """Emits body(number, coordinates) for every column inside of the row."""
        build, columns = self.build, self.columns
        with build.loop(columns.groups, whole) as group:
            inside = True if self.is_whole else less(self.at(group, 0)[-1], self.shape[-1])
            with build.when(inside), build.loop(columns.lanes, AxisKind.VECTOR) as lane:
                body(add(mul(group, columns.lanes), lane), self.at(group, lane))

    def load_shared(self) -> None:
        """Loads the values of the row, and allocates registers for those of elements."""
        build, of_row, of_columns = self.build, self.values.of_row, self.values.of_columns
        self.shared = [build.alloc(load.dtype, 1, MemorySpace.REGISTER) for load in of_row]
        for memory, value in zip(self.shared, self.put_in(of_row, self.at(0, 0))):
            build.store(memory, 0, value)
        self.loaded = [build.alloc(load.dtype, self.columns.count, MemorySpace.REGISTER) for load in of_columns]

    def load(self, place: Dim, coords: Sequence[Dim]) -> None:
        for memory, value in zip(self.loaded, self.put_in(self.values.of_columns, coords)):
            self.build.store(memory, place, value)

    def store(self, place: Dim, coords: Sequence[Dim]) -> None:
        """Computes the outputs of a column, and stores them, or puts them in registers for a copy of tiles."""
        build, values = self.build, self.values
        known = dict(zip(values.of_row, [build.load(memory, 0) for memory in self.shared]))
        known |= dict(zip(values.of_columns, [build.load(memory, place) for memory in self.loaded]))
        known[values.product] = build.load(self.sums, place)
        for (slot, _), value in zip(self.nest.outputs, self.put_in(values.roots, coords, known)):
            if self.columns.stores:
                build.store(self.memories[slot], flatten(coords, self.nest.domain), value)
            else:
                build.store(self.done, place, value)
