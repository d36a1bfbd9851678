"""Panels: columns or rows of an operand, copied so that the micro-kernel reads contiguous memory.

Packing evaluates the operand's expression, so a transpose, a mask or an activation before a product costs one pass over
the operand and no memory of its own. If K is contiguous but columns should be, `Squares` of as many lines as a vector
has lanes are transposed in registers, in the dtype of the memory: sixteen int8 are a quarter of
sixteen float32. Values that depend on them, such as int8 times the scale of its column, are computed after that.
(One row times int8 is added up along K instead: rewrites/products.py.)

    int8 w (N, K): w[n + i, k + j] in lines  ->  transposed, j after j  ->  float32(w) * scale[n + lane]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.index import element_anywhere, element_within, put_in_all
from picograd.codegen.loops import along, in_squares
from picograd.codegen.matmul import contiguous_axis, is_plain, last_axes
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.op import Dim, Op, Shape, const, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import (
    Coords,
    add,
    affine,
    ceildiv,
    flatten,
    floordiv,
    less,
    minimum,
    mod,
    mul,
    placeholder,
    subtract,
    unflatten,
)
from picograd.record import Record

# ---- panels ----
PACK_ROWS = 32  # rows of K that one GRID iteration packs
PACK_LINES_TRANSPOSED = 16  # the same if packing transposes: one cache line of each column ...
PACK_LINES = 64  # ... or four, which are read faster, if K is long enough to give all threads work all the same
BETWEEN_ROWS = 16  # elements between stored rows: with a K of a power of two all rows would share one cache set

# An operand as the micro-kernel reads it: (batch, panel, position in the panel, k) -> its expression.
Operand = Callable[[Sequence[Dim], Dim, Dim, Dim], Op]


def pack_columns(b: Op, nr: int, lanes: int, dtype: DType, pack: Builder, scratch: Scratch, k_axes: int = 1) -> Operand:
    """Packs b (..., K, N) in panels of nr columns, row after row of K; the last panel is filled up with columns of zeros.

    Args:
      k_axes:  number of axes that K consists of; the last of them is walked in one loop
    """
    *batch, k, n = b.shape
    panels = ceildiv(n, nr)
    own = len(batch) - (k_axes - 1)
    outer_k = batch[own:]
    shape: Shape = (*batch[:own], panels, mul(numel(outer_k), k), nr)
    memory, zero = scratch(dtype, numel(shape)), const(0, dtype)
    along_k = contiguous_axis(b) == -2

    def fill(at: Sequence[Dim], panel: Dim, width: Dim, first: Dim, count: Dim) -> None:
        def place(kk: Dim, c: Dim) -> Dim:
            return flatten((*at[:own], panel, flatten((*at[own:], add(first, kk)), (*outer_k, k)), c), shape)

        def coords(kk: Dim, c: Dim) -> Coords:
            return (*at, add(first, kk), add(mul(panel, nr), c))

        with pack.loop(rows_to_clear(count, width, nr), AxisKind.LOOP) as kk:
            along(pack, 0, nr, lanes, lambda c: pack.store(memory, place(kk, c), zero))
        fill_panel(b, memory, nr, lanes, along_k, (width, count), place, coords, pack)

    in_blocks(pack, batch, k, rows_to_transpose(k) if along_k else PACK_ROWS, n, nr, fill)
    return lambda at, panel, c, kk: read(memory, flatten((*at, panel, kk, c), shape))


def fill_panel(
    b: Op, memory: Op, nr: int, lanes: int, along_k: bool, extents: tuple[Dim, Dim], place: Callable[[Dim, Dim], Dim],
    coords: Callable[[Dim, Dim], Coords], pack: Builder,
) -> None:  # fmt: skip
    """Copies columns and rows of K to a panel: along its rows, or if K is contiguous square by square.

    Args:
      extents:       columns, and rows of K
      place, coords: where an element (row of K, column) goes in memory, and where it is in b
    """
    width, count = extents
    dtype = memory.dtype

    def put(kk: Dim, c: Dim) -> None:
        pack.store(memory, place(kk, c), cast(element_within(b, coords(kk, c)), dtype))

    if not along_k:
        with pack.loop(count, AxisKind.LOOP) as kk:
            along(pack, 0, width, lanes, lambda c: put(kk, c))
        return
    apart = lines_apart(b, dtype, lanes)

    def square(c: Dim, kk: Dim) -> None:
        if apart is not None:
            load = element_within(b, coords(kk, c))
            pack.transpose(memory, place(kk, c), nr, load.src[0], load.src[1], apart, lanes)
            return
        element = squares_of(b, dtype, lanes).at(pack, coords(kk, c))
        with pack.loop(lanes, AxisKind.UNROLL) as i, pack.loop(lanes, AxisKind.VECTOR) as lane:
            pack.store(memory, place(add(kk, i), add(c, lane)), element(i, lane))

    if lanes > 1:
        in_squares(pack, width, count, lanes, square, lambda c, kk: put(kk, c))
    else:
        with pack.loop(width, AxisKind.LOOP) as c, pack.loop(count, AxisKind.LOOP) as kk:
            put(kk, c)


def in_blocks(
    pack: Builder, batch: Sequence[Dim], k: Dim, block: int, length: Dim, width: int,
    fill: Callable[[Sequence[Dim], Dim, Dim, Dim, Dim], None],
) -> None:  # fmt: skip
    """Fills panels of `width` one block of K at a time, so that panels stay in the cache and read pages in the TLB.

    fill(batch, panel, filled part of its width, first k, number of k)
    """
    blocks, whole, rest = ceildiv(k, block), floordiv(length, width), mod(length, width)
    with pack.loop(numel((*batch, blocks)), AxisKind.GRID) as position:
        *at, number = unflatten(position, [*batch, blocks])
        first = mul(number, block)
        count = minimum(subtract(k, first), block)
        with pack.loop(whole, AxisKind.LOOP) as panel:
            fill(at, panel, width, first, count)
        with pack.when(less(0, rest)):
            fill(at, whole, rest, first, count)


def rows_to_transpose(k: Dim) -> int:
    """Returns the number of rows of K that packing transposes at a time."""
    return PACK_LINES if isinstance(k, int) and k >= 8 * PACK_LINES else PACK_LINES_TRANSPOSED


def rows_to_clear(count: Dim, width: Dim, whole: int) -> Dim:
    """Returns the number of rows of a panel that get zeros for missing columns: all, or 0 if no column is missing.

    Products of these zeros are never stored. But without them the memory may hold subnormal numbers, which take a
    processor a hundred times as long to multiply.
    """
    return mul(count, minimum(subtract(whole, width), 1))


def shares_cache_sets(k: Dim) -> bool:
    """True if rows of k elements, one after the other, may begin in few sets of a cache."""
    return not isinstance(k, int) or k % 1024 == 0


def packs_slowly(rhs: Op, dtype: DType, lanes: int) -> bool:
    """True if packing transposes columns element by element."""
    return contiguous_axis(rhs) == -2 and lines_apart(rhs, dtype, lanes) is None


def lines_apart(b: Op, dtype: DType, lanes: int) -> int | None:
    """Returns the distance in memory between columns of b (..., K, N) if elements along K are contiguous, else None.

    None, too, if squares of them cannot be transposed: in another dtype, or with single lanes.
    """
    if b.dtype is not dtype or lanes == 1 or not is_plain(b):
        return None
    return columns_apart(element_anywhere(b), *last_axes(b), lanes)


# ---- squares, transposed in registers ----
Element = Callable[[Dim, Dim], Op]  # (k, column), counted from the first place of a square -> the element, in a register


class Squares(Record):
    """Reads squares of an operand.

    marks:  placeholders of its axes
    value:  value of an element there
    apart:  for each LOAD the distance between its columns; None if a LOAD is not contiguous along K
    """

    marks: tuple[Op, ...]
    value: Op
    apart: dict[Op, int] | None
    lanes: int

    def at(self, build: Builder, place: Sequence[Dim], columns: Dim | None = None) -> Element:
        """Transposes the square whose first element is at `place`; returns the function that computes its elements.

        Args:
          columns: number of columns that the operand has there; the others are zeros. By default all.
        """
        columns = self.lanes if columns is None else columns
        if self.apart is None or columns != self.lanes:
            return self._computed(build, place, columns)
        return self._loaded(build, place, self.apart)

    def element(self, place: Sequence[Dim], k: Dim, column: Dim, loads: dict[Op, Op]) -> Op:
        """Returns the value of an element of the square at `place`, given the values of its LOADs."""
        *batch, first_k, first_column = place
        coords = (*batch, add(first_k, k), add(first_column, column))
        there: dict[Op, Dim] = {**dict(zip(self.marks, coords)), **loads}
        return put_in_all([self.value], there)[0]

    def _loaded(self, build: Builder, place: Sequence[Dim], apart: dict[Op, int]) -> Element:
        """Returns the elements of one square, whose strided loads were transposed in registers."""
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
            continue  # it is the same for a whole line or column, or its index depends on another load
        distance = columns_apart(load, k, column, lanes)
        if distance is None or load.dtype is dtypes.int64:  # put_in_all takes int64 for places
            return Squares(marks, value, None, lanes)
        apart[load] = distance
    return Squares(marks, value, apart or None, lanes)


def _differs_in_a_square(load: Op, k: Op, column: Op, lanes: int) -> bool:
    """True if the address of the load depends on both k and the column."""
    order = toposort(load.src[1:])
    if column not in order or k not in order or any(op.code is OpCode.LOAD for op in order):
        return False
    atoms = [atom for atom in affine(load.src[1])[0] if k in toposort([atom])]
    return len(load.src) > 2 or any(not _is_one_block(atom, k, lanes) for atom in atoms)


def _is_one_block(atom: Op, k: Op, lanes: int) -> bool:
    """True for k // n with an n that is divisible by `lanes`: the number of a block, such as a group of weights."""
    if atom.code is not OpCode.IDIV or atom.src[0] is not k or atom.src[1].code is not OpCode.CONST:
        return False
    return int(atom.src[1].arg) % lanes == 0


def columns_apart(load: Op, k: Op, column: Op, lanes: int) -> int | None:
    """Returns the distance in memory between columns of a LOAD whose elements along K are contiguous, else None."""
    if len(load.src) > 2:  # a condition
        return None
    terms = affine(load.src[1])[0]
    if any({k, column} & {*toposort([atom])} for atom in terms if atom not in (k, column)):  # an axis in a quotient
        return None
    apart = terms.get(column, 0)
    return apart if terms.get(k) == 1 and apart >= lanes else None
