"""Squares of an operand whose elements along K lie side by side, turned so that its columns do.

In:    an operand (..., K, N), and a place in it
Out:   `Squares`
Called by: codegen/cpu/panels.py, codegen/cpu/few_rows.py.    Next: picograd/codegen/cpu/panels.py

What is transposed is memory as it lies, in its own dtype: sixteen int8 are a quarter of sixteen float32. What is made of
it, such as int8 times the scale of its column, is computed from lanes that stand side by side already. (One row times int8
is added up along K instead: rewrites/contract.py.)

    int8 w (N, K): w[n + i, k + j] in lines  ->  transposed, j after j  ->  float32(w) * scale[n + lane]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.codegen.index import element_anywhere, put_in_all
from picograd.codegen.operands import last_axes
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.symbolic import add, affine, mul, subtract
from picograd.record import Record

Element = Callable[[Dim, Dim], Op]  # of a square: (k, column) from its first place on; they are in registers


class Squares(Record):
    """How squares of an operand are read.

    marks:  placeholders of its axes
    value:  of an element there
    apart:  of the LOADs in it that lie in lines along K, the distance between columns; None where some do not
    """

    marks: tuple[Op, ...]
    value: Op
    apart: dict[Op, int] | None
    lanes: int

    def at(self, build: Builder, place: Sequence[Dim], columns: Dim | None = None) -> Element:
        """Turns the square whose first element is at `place`, and returns how its elements are computed.

        Args:
          columns: that the operand has there; the others are zeros. By default it has all.
        """
        columns = self.lanes if columns is None else columns
        if self.apart is None or columns != self.lanes:
            return self._computed(build, place, columns)
        return self._loaded(build, place, self.apart)

    def element(self, place: Sequence[Dim], k: Dim, column: Dim, loads: dict[Op, Op]) -> Op:
        """Returns the value of an element of the square at `place`, with what its LOADs read."""
        *batch, first_k, first_column = place
        coords = (*batch, add(first_k, k), add(first_column, column))
        there: dict[Op, Dim] = {**dict(zip(self.marks, coords)), **loads}
        return put_in_all([self.value], there)[0]

    def _loaded(self, build: Builder, place: Sequence[Dim], apart: dict[Op, int]) -> Element:
        """Returns the elements of one square, whose loads that lie apart were turned in registers."""
        lanes, there = self.lanes, dict(zip(self.marks, place))
        squares = {load: build.alloc(load.dtype, lanes * lanes, MemorySpace.REGISTER) for load in apart}
        for load, square in squares.items():
            build.transpose(square, 0, lanes, load.src[0], put_in_all([load.src[1]], there)[0], apart[load], lanes)

        def element(k: Dim, column: Dim) -> Op:
            where = add(mul(k, lanes), column)
            return self.element(place, k, column, {load: build.load(square, where) for load, square in squares.items()})

        return element

    def _computed(self, build: Builder, place: Sequence[Dim], columns: Dim) -> Element:
        lanes, zero = self.lanes, const(0, self.value.dtype)
        lines = build.alloc(self.value.dtype, lanes * lanes, MemorySpace.SHARED)
        square = build.alloc(self.value.dtype, lanes * lanes, MemorySpace.REGISTER)
        with build.loop(columns, AxisKind.LOOP) as column, build.loop(lanes, AxisKind.VECTOR) as k:
            build.store(lines, add(mul(column, lanes), k), self.element(place, k, column, {}))
        with build.loop(subtract(lanes, columns), AxisKind.LOOP) as column, build.loop(lanes, AxisKind.VECTOR) as k:
            build.store(lines, add(mul(add(columns, column), lanes), k), zero)
        build.transpose(square, 0, lanes, lines, 0, lanes, lanes)
        return lambda k, column: build.load(square, add(mul(k, lanes), column))


def squares_of(b: Op, dtype: DType, lanes: int) -> Squares:
    """Returns how squares of b (..., K, N), in another dtype, are read."""
    value, (k, column) = cast(element_anywhere(b), dtype), last_axes(b)
    marks = tuple([placeholder(axis, dim) for axis, dim in enumerate(b.shape)])
    apart: dict[Op, int] = {}
    for load in toposort([value]):
        if load.code is not OpCode.LOAD or not _differs_in_a_square(load, k, column, lanes):
            continue  # it is the same for all of a line or of a column, or chosen by what is read there
        distance = columns_apart(load, k, column, lanes)
        if distance is None or load.dtype is dtypes.int64:  # put_in_all takes int64 for places
            return Squares(marks, value, None, lanes)
        apart[load] = distance
    return Squares(marks, value, apart or None, lanes)


def _differs_in_a_square(load: Op, k: Op, column: Op, lanes: int) -> bool:
    """True for what is read at places that each element of a square has of its own."""
    order = toposort(load.src[1:])
    if column not in order or k not in order or any(op.code is OpCode.LOAD for op in order):
        return False
    atoms = [atom for atom in affine(load.src[1])[0] if k in toposort([atom])]
    return len(load.src) > 2 or any(not _is_one_block(atom, k, lanes) for atom in atoms)


def _is_one_block(atom: Op, k: Op, lanes: int) -> bool:
    """True for k // n with an n that lines divide: the number of a block, such as that of a group of weights."""
    if atom.code is not OpCode.IDIV or atom.src[0] is not k or atom.src[1].code is not OpCode.CONST:
        return False
    return int(atom.src[1].arg) % lanes == 0


def columns_apart(load: Op, k: Op, column: Op, lanes: int) -> int | None:
    """Returns the distance in memory of columns that a LOAD reads, where elements along K lie side by side, or None."""
    if len(load.src) > 2:  # a condition
        return None
    terms = affine(load.src[1])[0]
    if any({k, column} & {*toposort([atom])} for atom in terms if atom not in (k, column)):  # an axis in a quotient
        return None
    apart = terms.get(column, 0)
    return apart if terms.get(k) == 1 and apart >= lanes else None
