"""Epilogues of products by warpgroups: statements about the part of a row that a thread has in registers.

In:    the nest of a product, where a thread's columns are (`Columns`)
Out:   `emit_epilogue`: a Program in the free form;  `why_no_epilogue`

A thread has groups of neighbouring columns of a row (devices/cuda/hopper_product.h, hopper_fma.h). The kernel says which
matrix, row and piece of columns these are of, and where its own columns begin in each group: in the Program these are
four loops, the only ones that are no loops in the text.

    for matrix, row, piece, own:
        what is the same for a row is loaded
        for each group, for each lane:  loaded[group, lane] = LOAD at (row, column)
        for each group, for each lane:  STORE f(sums[group, lane], loaded[group, lane]) at (row, column)

All loads stand before the first store, which may be to the same memory: so they are on their way together. What a copy of
tiles stores goes to registers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder
from picograd.codegen.index import elements_within, put_in_all
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import DONE, SUMS, Columns
from picograd.ir.stages import Nest, Param, Program
from picograd.ir.symbolic import add, flatten, from_op, less, mul, placeholders, subtract, unflatten, with_values

# What is read where an element that was read says, or where it is an error; the loops of codegen/elementwise.py can do it.
NOT_HERE = frozenset({OpCode.GATHER, OpCode.CHECK})

# Of functions; others count as one.
INSTRUCTIONS = {
    OpCode.ERF: 23, OpCode.TANH: 20, OpCode.SIN: 20, OpCode.POW: 30, OpCode.EXP: 9, OpCode.EXP2: 4, OpCode.LOG: 12,
    OpCode.DIV: 8, OpCode.SQRT: 8, OpCode.THREEFRY: 120,
}  # fmt: skip


class Values:
    """The values computed of a product, at placeholders of its axes.

    marks:      the placeholders
    product:    in place of the product's element
    roots:      values of the outputs
    of_row:     loads that are the same for a row
    of_columns: the others
    """

    def __init__(self, nest: Nest):
        anchor = nest.anchor
        assert anchor is not None, "a product has an anchor"
        self.marks = placeholders(anchor.shape)
        self.product = Op(OpCode.PARAM, anchor.dtype, (), (-1, ()))  # no kernel has such a slot
        outputs = [value for _, value in nest.outputs]
        self.roots = elements_within(outputs, self.marks, {anchor: self.product}, range(len(anchor.shape)))
        loads = [op for op in toposort(self.roots) if op.code is OpCode.LOAD]
        self.of_columns = [load for load in loads if self.marks[-1] in toposort([load])]
        self.of_row = [load for load in loads if load not in self.of_columns]

    @property
    def of_elements(self) -> list[Op]:
        """Loads of matrices: of other elements for each row."""
        rows = [mark for mark in self.marks[:-1] if isinstance(mark, Op)]
        return [load for load in self.of_columns if not set(rows).isdisjoint(toposort([load]))]

    @property
    def itemsize(self) -> int:
        """Bytes of the widest element that is read or stored for each row and column."""
        return max(op.dtype.itemsize for op in (*self.roots, *self.of_elements))


    @property
    def by_threads(self) -> bool:
        """True where threads store results: a copy of tiles would overlap what it reads, or there are several."""
        return len(self.roots) > 1 or bool(self.of_elements)

    @property
    def nbytes(self) -> int:
        """Bytes that are read and stored for each row and column."""
        return sum(op.dtype.itemsize for op in (*self.roots, *self.of_elements))

    @property
    def num_instructions(self) -> int:
        """About how many instructions an element takes."""
        order = toposort(self.roots, sources=lambda op: () if op.code is OpCode.LOAD else op.src)
        return sum(INSTRUCTIONS.get(op.code, 1 if op.src else 0) for op in order)


def why_no_epilogue(nest: Nest) -> str | None:
    """Returns why what is computed of a product is no epilogue, or None."""
    anchor = nest.anchor
    assert anchor is not None
    for op in toposort([value for _, value in nest.outputs], stop={anchor}):
        if op.code in NOT_HERE:
            return f"its epilogue has a {op.code.name}"
    if any(not _is_read_along(load, Values(nest).marks[-1]) for load in Values(nest).of_columns):
        return "its epilogue reads a matrix across"
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
    anchor = nest.anchor
    assert anchor is not None
    values, build = Values(nest), Builder()
    *outer, m, n = anchor.shape
    memories = [Op(OpCode.PARAM, param.dtype, (), (slot, (param.numel,))) for slot, param in enumerate(params)]
    sums = Op(OpCode.ALLOC, anchor.dtype, (), (f"{SUMS}.at", columns.count, MemorySpace.REGISTER))
    done = Op(OpCode.ALLOC, values.roots[0].dtype, (), (f"{DONE}.at", columns.count, MemorySpace.REGISTER))
    of_matrix, of_row, of_piece, of_own = columns.extents.values()

    def at(group: Dim, lane: Dim) -> list[Dim]:
        place = add(add(mul(piece, columns.groups * columns.apart), own), mul(group, columns.apart))
        return [*unflatten(matrix, tuple(outer)), row, add(mul(place, columns.lanes), lane)]

    def there(coords: Sequence[Dim]) -> dict[Op, Dim]:
        return {mark: coord for mark, coord in zip(values.marks, coords) if isinstance(mark, Op)}

    with (
        build.loop(of_matrix, AxisKind.LOOP) as matrix, build.loop(of_row, AxisKind.LOOP) as row,
        build.loop(of_piece, AxisKind.LOOP) as piece, build.loop(of_own, AxisKind.LOOP) as own,
    ):  # fmt: skip
        is_whole = n % columns.piece == 0
        with build.when(less(row, m)), build.when(less(mul(piece, columns.piece), n) if is_whole else True):
            same = [build.alloc(load.dtype, 1, MemorySpace.REGISTER) for load in values.of_row]
            for memory, value in zip(same, put_in_all(values.of_row, there(at(0, 0)))):
                build.store(memory, 0, value)
            loaded = [build.alloc(load.dtype, columns.count, MemorySpace.REGISTER) for load in values.of_columns]

            def each(body: Callable[[Dim, Sequence[Dim]], None]) -> None:
                with build.loop(columns.groups, whole) as group:
                    inside = True if is_whole else less(at(group, 0)[-1], n)
                    with build.when(inside), build.loop(columns.lanes, AxisKind.VECTOR) as lane:
                        body(add(mul(group, columns.lanes), lane), at(group, lane))

            def load(place: Dim, coords: Sequence[Dim]) -> None:
                for memory, value in zip(loaded, put_in_all(values.of_columns, there(coords))):
                    build.store(memory, place, value)

            def store(place: Dim, coords: Sequence[Dim]) -> None:
                held = dict(zip(values.of_row, [build.load(memory, 0) for memory in same]))
                held |= dict(zip(values.of_columns, [build.load(memory, place) for memory in loaded]))
                held[values.product] = build.load(sums, place)
                results = put_in_all(values.roots, {**there(coords), **held})
                for (slot, _), value in zip(nest.outputs, results):
                    if columns.stores:
                        build.store(memories[slot], flatten(coords, nest.domain), value)
                    else:
                        build.store(done, place, value)

            if loaded:
                each(load)
            each(store)
    return Program("epilogue", tuple(params), (), (build.finish(),))
