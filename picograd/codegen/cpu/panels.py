"""Panels: the columns of an operand, or its rows, copied such that what the micro-kernel reads next lies next.

In:    an operand, and how wide a panel is
Out:   `pack_columns`, what it is made of, and which operands are packed quickly
Called by: codegen/cpu/convolution_direct.py, codegen/cpu/few_rows.py, codegen/cpu/head_strips.py,
           codegen/cpu/matmul.py, codegen/cpu/points.py, codegen/cpu/register_tiles.py.
Next: picograd/codegen/cpu/matmul.py

Packing evaluates the operand's expression, so whatever stands before a product (a transpose, a mask, an activation) costs
one pass over the operand and no memory of its own. Where K is contiguous and columns are wanted side by side, squares of as
many lines as a vector has lanes are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.cpu.squares import columns_apart, squares_of
from picograd.codegen.index import element_anywhere, element_within
from picograd.codegen.loops import along, in_squares, split
from picograd.codegen.operands import contiguous_axis, is_plain, last_axes
from picograd.dtype import DType
from picograd.ir.build import cast
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import AxisKind
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, less, minimum, mod, mul, subtract

PACK_ROWS = 32  # rows of K that one GRID iteration packs
PACK_TRANSPOSED = 16  # the same where packing transposes: a cache line of each column ...
PACK_LINES = 64  # ... or four, which come faster one after the other, of a K long enough to be shared out all the same
BETWEEN_ROWS = 16  # elements that rows are stored longer than K: of a K of a power of two, all would share one cache set

# One operand as the micro-kernel reads it: (batch, panel, position in the panel, k) -> its expression.
Operand = Callable[[Sequence[Dim], Dim, Dim, Dim], Op]


def pack_columns(
    b: Op, nr: int, lanes: int, dtype: DType, pack: Builder, scratch: Scratch, k_axes: int = 1
) -> Operand:
    """Packs b (..., K, N) in panels of nr columns, row after row of K; the last is filled up with columns of zeros.

    Args:
      k_axes:  that K consists of; the last of them is walked in one go
    """
    *batch, k, n = b.shape
    panels = floordiv(add(n, nr - 1), nr)
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
    """Copies columns and rows of K to a panel: along rows of it, or where K is contiguous square by square.

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
    """Fills panels of `width` a block of K at a time: what is written together stays in cache, what is read in the TLB.

    fill(batch, panel, how much of its width, first k, how many)
    """
    blocks, whole, rest = floordiv(add(k, block - 1), block), floordiv(length, width), mod(length, width)
    with pack.loop(numel((*batch, blocks)), AxisKind.GRID) as position:
        *at, number = split(position, [*batch, blocks])
        first = mul(number, block)
        count = minimum(subtract(k, first), block)
        with pack.loop(whole, AxisKind.LOOP) as panel:
            fill(at, panel, width, first, count)
        with pack.when(less(0, rest)):
            fill(at, whole, rest, first, count)


def rows_to_transpose(k: Dim) -> int:
    """Returns how many rows of K packing transposes at a time."""
    return PACK_LINES if isinstance(k, int) and k >= 8 * PACK_LINES else PACK_TRANSPOSED


def rows_to_clear(count: Dim, width: Dim, whole: int) -> Dim:
    """Returns in how many rows of a panel zeros stand for missing columns: in all, or in none where none is missing.

    What is made of these zeros is never stored. But what lies in memory before may be subnormal numbers, which take a
    processor a hundred times as long to multiply.
    """
    return mul(count, minimum(subtract(whole, width), 1))


def shares_cache_sets(k: Dim) -> bool:
    """True where rows of k elements, one after the other, begin in few sets of a cache, or may."""
    return not isinstance(k, int) or k % 1024 == 0


def packs_slowly(rhs: Op, dtype: DType, lanes: int) -> bool:
    """True where packing transposes columns element by element."""
    return contiguous_axis(rhs) == -2 and lines_apart(rhs, dtype, lanes) is None


def lines_apart(b: Op, dtype: DType, lanes: int) -> int | None:
    """Returns the distance in memory between columns of b (..., K, N) whose elements along K lie side by side, or None.

    None too where squares of them cannot be transposed: in another dtype, or with single lanes.
    """
    if b.dtype is not dtype or lanes == 1 or not is_plain(b):
        return None
    return columns_apart(element_anywhere(b), *last_axes(b), lanes)
