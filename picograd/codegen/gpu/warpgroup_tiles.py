"""How a product is cut for warpgroups: a menu of tiles, and a model of what each costs.

In:    PlainProduct, Target
Out:   `why_not`; `in_parts`; `tiles_of`, the one of least cost first
Called by: engine/choose.py.    Next: picograd/codegen/plain_product.py

A step is 128 bytes of K. It costs what its multiplications take, or its bytes from the L2 cache if that is more; of
TF32 also those of shared memory, for it is transposed there. A product costs what the blocks with most tiles do: a
tile is stored while the next one is computed, but for a block's last, and where there is one slab. By multiply-adds a
step is waited for, too, and a tile is stored by those who multiply. The constants are fitted to what 22 products of
bfloat16 and 36 of float32 took on an H100 (bench/results/2026-11-26-h100-products.json,
2026-11-27-h100-products-float32.json): the tile of least cost has 86 % of the fastest one's speed or more, 97 % in
the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from picograd.device import Target
from picograd.dtype import dtype_named
from picograd.ir.opts import WARPGROUP_ROWS, Matrix, PlainProduct, WarpgroupTile
from picograd.ir.stages import Param
from picograd.record import replace

ROW_NBYTES, SLAB_NBYTES = 128, 8192  # of K in a stage; of a slab: devices/cuda/hopper_product.h
PIECE_NBYTES = 16  # of which copies of tiles need multiples: rows and first elements
DTYPES = ("float16", "bfloat16", "float32")
MOST_ELEMENTS = 1 << 31
BARRIER_NBYTES = 1024  # what mbarriers take, up to where a tile may begin
MENU = (
    (128, 256), (256, 128), (256, 192), (128, 192), (256, 160), (128, 224), (128, 208), (128, 160), (128, 128), (256, 64),
    (128, 96), (128, 64), (64, 256), (64, 192), (64, 128), (64, 64),
)  # fmt: skip
MENU_OF_ADDS = ((256, 128), (128, 256), (128, 192), (128, 128), (256, 64), (128, 64), (64, 256), (64, 128), (64, 64))
GROUP = 8  # rows of tiles
LEAST_STAGES, MOST_STAGES = 3, 8
LEAST_EXTENT, LEAST_WORK = 64, 1 << 21  # multiplications
MOST_PARTS, MOST_WIDE_PARTS, LEAST_PART = 8, 24, 512  # of K
# Of one multiprocessor of an H100, each clock: FLOPs, bytes from the L2 cache, from memory, of shared memory.
FLOPS, FLOPS_OF_ADDS, L2_NBYTES, MEMORY_NBYTES, SHARED_NBYTES = 4096, 256, 51, 12, 110
# Of multiply-adds: clocks that a step waits; that a transposed byte takes, by how many warpgroups multiply; results stored
# each clock.
ADDS_WAIT, ADDS_TURNED, ADDS_STORED = 745, {1: 0.0044, 2: 0.0266}, 2.06
# Results stored each clock: while the next tile is computed; besides, where there is one slab; by a block's last tile.
STORED, STORED_ALONE, STORED_LAST = 18, 6, 1.5
TILE_CLOCKS, SUM_CLOCKS = 1800, 4000  # to begin a tile; to launch what adds parts up


def why_not(product: PlainProduct, params: tuple[Param, ...]) -> str | None:
    """Returns why a product cannot be computed this way, or None."""
    itemsize, out_itemsize = (dtype_named(name).itemsize for name in (product.dtype, product.out_dtype))
    epilogue = product.epilogue
    if product.dtype not in DTYPES:
        return f"its operands are {product.dtype}"
    if product.n * out_itemsize % PIECE_NBYTES:
        return f"a row of its result has {product.n * out_itemsize} bytes"
    for matrix in (product.a, product.b):
        if any(each * itemsize % PIECE_NBYTES for each in (matrix.offset, *_strides(matrix, product.batch))):
            return "rows of an operand do not begin at multiples of 16 bytes"
    for slot in (product.a.slot, product.b.slot, product.out):
        numel = params[slot].numel
        if not isinstance(numel, int) or numel >= MOST_ELEMENTS or numel * params[slot].dtype.itemsize % PIECE_NBYTES:
            return "a parameter is too large, or ends between multiples of 16 bytes"
    if epilogue.added is not None and epilogue.bias is not None or out_itemsize == 2 and epilogue.scale != 1:
        return "its epilogue rounds in an order that is not written down"
    return None


def _strides(matrix: Matrix, batch: int) -> tuple[int, ...]:
    return (matrix.stride, matrix.batch_stride) if batch > 1 else (matrix.stride,)


def is_worth_it(product: PlainProduct) -> bool:
    """True for a product large enough to fill tiles: others wait for memory whatever multiplies them."""
    extents = product.m, product.n, product.k
    return min(extents) >= LEAST_EXTENT and product.batch * prod(extents) >= LEAST_WORK


def tiles_of(product: PlainProduct, target: Target) -> list[WarpgroupTile]:
    """Returns the menu for a product, by what each tile is thought to cost."""
    menu = MENU_OF_ADDS if product.adds else MENU
    found = [tile for rows, columns in menu for tile in _cut(product, rows, columns, target)]
    return sorted(found, key=lambda tile: clocks_of(product, tile))


def _cut(product: PlainProduct, rows: int, columns: int, target: Target) -> Iterator[WarpgroupTile]:
    """Gives the tile of so many rows and columns with as many stages as there is memory for."""
    if product.epilogue.added is not None and columns % (ROW_NBYTES // dtype_named(product.out_dtype).itemsize):
        return  # the last slab overlaps the one before, and what is added may lie where that was stored
    room = target.shared_bytes - BARRIER_NBYTES
    multipliers = min(2, rows // WARPGROUP_ROWS)
    for slabs in (0,) if product.adds else (2, 1):
        stages = (room - multipliers * slabs * SLAB_NBYTES) // stage_nbytes(product, rows, columns)
        if stages >= LEAST_STAGES + (slabs == 2):
            blocks = min(num_tiles(product, rows, columns), target.multiprocessors)
            yield WarpgroupTile(rows, columns, min(stages, MOST_STAGES), slabs, GROUP, blocks)
            return


def stage_nbytes(product: PlainProduct, rows: int, columns: int) -> int:
    """Returns the bytes of both operands in a stage: a tile across K has whole rows of 128 bytes."""
    step = product.step
    return (rows + (columns if product.b.is_turned else -(-columns // step) * step)) * ROW_NBYTES


def num_tiles(product: PlainProduct, rows: int, columns: int) -> int:
    """Returns how many tiles there are."""
    return product.batch * product.parts * -(-product.m // rows) * -(-product.n // columns)


def clocks_of(product: PlainProduct, tile: WarpgroupTile) -> float:
    """Returns how long a product is thought to take, in clocks of a multiprocessor."""
    turns, numel = -(-num_tiles(product, tile.rows, tile.columns) // tile.blocks), tile.rows * tile.columns
    step = max(_multiplied(product, tile), stage_nbytes(product, tile.rows, tile.columns) / L2_NBYTES)
    if product.adds:
        return turns * (product.steps * step + numel / ADDS_STORED)
    if product.tf32:
        step = max(step, _shared_nbytes(product, tile) / SHARED_NBYTES)
    stored = numel / STORED + (numel / STORED_ALONE if tile.slabs == 1 else 0)
    return turns * (product.steps * step + TILE_CLOCKS + stored) + numel / STORED_LAST


def _multiplied(product: PlainProduct, tile: WarpgroupTile) -> float:
    """Returns the clocks in which a step is multiplied, if nothing is waited for."""
    work = 2 * tile.rows * tile.columns * product.step
    if not product.adds:
        return work / (FLOPS // (2 if product.tf32 else 1))
    return work / FLOPS_OF_ADDS + ADDS_WAIT + ADDS_TURNED[tile.multipliers] * _turned_nbytes(product, tile)


def _turned_nbytes(product: PlainProduct, tile: WarpgroupTile) -> int:
    """Returns the bytes of a step that are transposed in shared memory."""
    if product.dtype != "float32":
        return 0
    is_lhs, is_rhs = product.a.is_turned != product.adds, product.b.is_turned == product.adds
    return ROW_NBYTES * (is_lhs * tile.rows + is_rhs * tile.columns)


def _shared_nbytes(product: PlainProduct, tile: WarpgroupTile) -> int:
    """Returns the bytes of shared memory that are written and read in a step, in all."""
    read = tile.rows // WARPGROUP_ROWS * (WARPGROUP_ROWS + tile.columns) * ROW_NBYTES
    return stage_nbytes(product, tile.rows, tile.columns) + read + 2 * _turned_nbytes(product, tile)


def clocks_to_add(product: PlainProduct, target: Target) -> float:
    """Returns how long it is thought to take to add up the results of parts of K."""
    nbytes = 4 * product.parts * product.m * product.n
    return SUM_CLOCKS + nbytes / (MEMORY_NBYTES * target.multiprocessors) if product.parts > 1 else 0.0


def in_parts(product: PlainProduct, target: Target) -> list[PlainProduct]:
    """Returns a product as a whole and, where there are fewer tiles than multiprocessors, with its K in parts."""
    if product.batch > 1 or num_tiles(product, 128, 128) * 3 // 2 > target.multiprocessors:
        return [product]
    is_wide = product.dtype == "float32"
    most = min(MOST_WIDE_PARTS if is_wide else MOST_PARTS, product.k // LEAST_PART)
    found = [replace(product, parts=parts) for parts in range(2, most + 1)]
    return [product, *(each for each in found if is_wide or product.k % (each.parts * product.step) == 0)]
