"""Products and attentions that hand-written kernels for Hopper compute, and their tiles.

In:    PlainProduct, or Kernel; Target
Out:   products: `why_not`, `in_parts`, `product_tiles`, ordered by cost;  attentions: `split_attention`, an
       `AttentionSplit` or the reason why there is none, `attention_tiles`, `gradient_tiles`

Products: a menu of tiles, and a model of their costs. A step is 128 bytes of K. It costs its multiplications, or its bytes
from the L2 cache if that is more; for TF32 also those of shared memory, where it is transposed. The cost of a product is
that of the block with most tiles: a tile is stored while the next one is computed, except a block's last tile, and
products of one slab. By multiply-adds each step is also waited for, and the multiplying threads store the tile. If two
warpgroups take turns, one finishes and stores its tile while the other multiplies: a tile costs the longer of both, or its
bytes of memory. The constants for tiles that both multiply are fitted to the times of 22 products of bfloat16 and 36 of
float32 on an H100 (bench/results/2026-11-26-h100-products.json, 2026-11-27-h100-products-float32.json): the tile of least
cost has at least 86 % of the fastest one's speed, 97 % on average.

Attentions, and their gradients:

    phase 0   operands (q, k, v, the gradient) that tile copies cannot read from their memory are stored
    phase 1   the attention; or the gradients of keys and values, and those of queries

codegen/attention_gpu.py computes windows, soft caps, masks, more than 128 features, and gradients of which only some are
requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from math import prod

from picograd.codegen.attention import matrix_at, places_of
from picograd.codegen.epilogue import Values
from picograd.codegen.index import element_anywhere
from picograd.codegen.unfuse import NotPlain, known_numbers
from picograd.device import Target
from picograd.dtype import dtype_named
from picograd.ir.attention import lengths, mask_of, parts_of
from picograd.ir.bodies import param
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.opts import (
    PIECE_NBYTES,
    ROW_NBYTES,
    SLAB_NBYTES,
    SWIZZLED,
    WARPGROUP_ROWS,
    Columns,
    Epilogue,
    HeadNumbers,
    HeadsDraws,
    HeadsMatrix,
    HeadsShape,
    HeadsTile,
    Matrix,
    PlainAttention,
    PlainGradients,
    PlainProduct,
    WarpgroupTile,
    attention_nbytes,
    gradients_nbytes,
)
from picograd.ir.shape import AttentionArg, draws_of, numel
from picograd.ir.stages import Kernel, Nest, NestKind, Param
from picograd.ir.symbolic import affine, ceildiv, from_op, placeholder
from picograd.record import Record, replace

# ---- products: tiles and their costs ----
DTYPES = ("float16", "bfloat16", "float32")
ELEMENTS_MAX = 1 << 31
BARRIER_NBYTES = 1024  # size of mbarriers, before the first tile
MENU = (
    (128, 256), (256, 128), (256, 192), (128, 192), (256, 160), (128, 224), (128, 208), (128, 160), (128, 128), (256, 64),
    (128, 96), (128, 64), (64, 256), (64, 192), (64, 128), (64, 64),
)  # fmt: skip
MENU_OF_ADDS = ((256, 128), (128, 256), (128, 192), (128, 128), (256, 64), (128, 64), (64, 256), (64, 128), (64, 64))
TILE_GROUP_ROWS = 8  # rows of tiles that run together
# Two warpgroups that take turns with tiles; on an H100 0.75 to 0.84 of the time for K = 768, and 1.05 for 3072, or for 768
# in parts.
IN_TURN, IN_TURN_MARGIN = True, 1.15
MENU_IN_TURN = ((128, 160), (128, 128), (64, 256), (64, 192), (64, 128), (64, 64))
# If threads store results: neighbouring columns of a piece that all threads of a row have; maximum of a thread's sums with
# loaded elements of each matrix.
GROUP_COLUMNS, PIECE_COLUMNS, SUMS_MAX, LOADED = 4, 64, 160, 16
LONG_SUMS_MAX = 96
INSTRUCTIONS_MAX = 20  # per element; up to it the text is repeated for each: it fits the instruction cache
PRODUCT_STAGES_MIN, PRODUCT_STAGES_MAX = 3, 8
EXTENT_MIN, MULTIPLICATIONS_MIN = 64, 1 << 21  # multiplications
PARTS_MAX, WIDE_PARTS_MAX, PART_K_MIN = 8, 24, 512  # of K
# Per clock a multiprocessor of an H100 does: FLOPs; bytes from the L2 cache, from memory, of shared memory.
FLOPS, FLOPS_OF_ADDS, L2_NBYTES, MEMORY_NBYTES, SHARED_NBYTES = 4096, 256, 51, 12, 110
# For multiply-adds: clocks that a step waits; clocks per transposed byte, by the number of multiplying warpgroups; results
# stored per clock.
ADDS_WAIT, ADDS_TRANSPOSED, ADDS_STORED = 745, {1: 0.0044, 2: 0.0266}, 2.06
# Results stored per clock: while the next tile is computed; besides, for one slab; for a block's last tile.
STORED, STORED_ALONE, STORED_LAST = 18, 6, 1.5
# The same by a single warpgroup; instructions of lanes per clock, by both and by one; clocks until an element of memory
# arrives. Not fitted yet.
STORED_IN_TURN, ISSUED, ISSUED_IN_TURN, MEMORY_WAIT = 12, 110, 70, 700
TILE_CLOCKS, SUM_CLOCKS = 1800, 4000  # to begin a tile; to launch the sum of parts


def why_not(product: PlainProduct, params: tuple[Param, ...]) -> str | None:
    """Returns why a product cannot be computed this way, or None."""
    itemsize, out_itemsize = (dtype_named(name).itemsize for name in (product.dtype, product.out_dtype))
    if product.dtype not in DTYPES:
        return f"its operands are {product.dtype}"
    if product.n % GROUP_COLUMNS or product.n * out_itemsize % PIECE_NBYTES:
        return f"a row of its result has {product.n * out_itemsize} bytes"
    for matrix in (product.a, product.b):
        if any(each * itemsize % PIECE_NBYTES for each in (matrix.offset, *_strides(matrix, product.batch))):
            return "rows of an operand do not start at multiples of 16 bytes"
    for slot in (product.a.slot, product.b.slot, product.out):
        param = params[slot]
        if not isinstance(param.numel, int) or param.numel >= ELEMENTS_MAX or param.nbytes % PIECE_NBYTES:
            return "a parameter is too large, or its bytes are not a multiple of 16"
    if product.epilogue != Epilogue():
        return "its epilogue is one that a library computes"
    return None


def _strides(matrix: Matrix, batch: int) -> tuple[int, ...]:
    return (matrix.stride, matrix.batch_stride) if batch > 1 else (matrix.stride,)


def is_worth_it(product: PlainProduct) -> bool:
    """True for a product large enough to fill tiles; smaller ones wait for memory anyway."""
    extents = product.m, product.n, product.k
    return min(extents) >= EXTENT_MIN and product.batch * prod(extents) >= MULTIPLICATIONS_MIN


def product_tiles(product: PlainProduct, target: Target, values: Values | None = None) -> list[WarpgroupTile]:
    """Returns the menu for a product, by estimated cost.

    Args:
      values: of the epilogue; threads store them if there are several, or if it reads matrices
    """
    menu = [(rows, columns, False) for rows, columns in (MENU_OF_ADDS if product.adds else MENU)]
    if IN_TURN and not product.adds and product.parts == 1:
        menu += [(rows, columns, True) for rows, columns in MENU_IN_TURN]
    by_threads = product.adds or (values is not None and values.by_threads)
    is_long = values is not None and values.num_instructions > INSTRUCTIONS_MAX and product.dtype == "float32"
    found = [tile for each in menu for tile in _cut_product(product, *each, by_threads, target)]
    if is_long and by_threads and not product.adds:
        found = [tile for tile in found if tile.num_sums <= LONG_SUMS_MAX]  # each thread has a copy of them
    if values is not None and by_threads:
        room = SUMS_MAX - LOADED * len(values.of_elements)
        found = [tile for tile in found if tile.num_sums <= room] or [min(found, key=lambda tile: tile.num_sums)]
    return sorted(found, key=lambda tile: clocks_of(product, tile, values))


def _cut_product(
    product: PlainProduct, rows: int, columns: int, in_turn: bool, by_threads: bool, target: Target
) -> Iterator[WarpgroupTile]:
    """Gives a tile with these rows and columns as many stages as fit into memory."""
    room = target.shared_bytes - BARRIER_NBYTES
    for slabs in (0,) if by_threads else (2, 1):
        blocks = min(num_tiles(product, rows, columns), target.multiprocessors)
        tile = WarpgroupTile(rows, columns, 0, slabs, TILE_GROUP_ROWS, blocks, in_turn)
        if not product.adds and slabs == 0 and (columns % PIECE_COLUMNS or tile.num_sums > SUMS_MAX):
            return
        if in_turn and num_tiles(product, rows, columns) <= blocks:
            return  # a block with one tile takes no turns
        if product.dtype != "float32" and product.a.is_column_major and tile.num_sums > SUMS_MAX:
            return  # ptxas spills two registers
        stages = (room - tile.multipliers * slabs * SLAB_NBYTES) // stage_nbytes(product, rows, columns)
        if stages >= PRODUCT_STAGES_MIN + (slabs == 2):
            yield replace(tile, stages=min(stages, PRODUCT_STAGES_MAX))
            return


def columns_of(product: PlainProduct, tile: WarpgroupTile, nest: Nest) -> Columns:
    """Returns the columns that a thread handles at a time, as in hopper_product.h and hopper_fma.h.

    If a tile copy stores elements, they are two neighbours, as matrix instructions have them. Else threads exchange them
    for as many as are 16 bytes, so that those of a row read and store whole sectors of 32 bytes.
    """
    values = Values(nest)
    if product.adds:
        lanes, groups, apart = GROUP_COLUMNS, tile.columns // 64, 8
    elif tile.slabs:
        lanes, groups, apart = 2, 2, 4
    else:
        lanes = 8 if values.itemsize <= 2 and product.n % 8 == 0 else GROUP_COLUMNS
        groups, apart = PIECE_COLUMNS // (4 * lanes), 4
    high, wide = ceildiv(product.m, tile.rows), ceildiv(product.n, tile.columns)
    pieces = wide * tile.columns // (lanes * groups * apart)
    return Columns(
        product.batch * product.parts, high * tile.rows, pieces, lanes, groups, apart, nest.anchor.dtype.name,
        stores=tile.slabs == 0, is_long=values.num_instructions > INSTRUCTIONS_MAX,
    )  # fmt: skip


def stage_nbytes(product: PlainProduct, rows: int, columns: int) -> int:
    """Returns the bytes of both operands per stage: a tile across K has whole rows of 128 bytes."""
    step = product.step
    return (rows + (columns if product.b.is_column_major else ceildiv(columns, step) * step)) * ROW_NBYTES


def num_tiles(product: PlainProduct, rows: int, columns: int) -> int:
    """Returns the number of tiles."""
    return product.batch * product.parts * ceildiv(product.m, rows) * ceildiv(product.n, columns)


def clocks_of(product: PlainProduct, tile: WarpgroupTile, values: Values | None = None) -> float:
    """Returns the estimated time of a product, in clocks of a multiprocessor."""
    turns, numel = ceildiv(num_tiles(product, tile.rows, tile.columns), tile.blocks), tile.rows * tile.columns
    step = max(_multiplied(product, tile), stage_nbytes(product, tile.rows, tile.columns) / L2_NBYTES)
    if product.adds:
        return turns * (product.steps * step + numel / ADDS_STORED)
    if product.tf32:
        step = max(step, _shared_nbytes(product, tile) / SHARED_NBYTES)
    stored, moved = _clocks_to_finish(tile, values)
    if tile.in_turn:
        multiplied = product.steps * step
        return IN_TURN_MARGIN * (turns * max(multiplied, (multiplied + stored) / 2, moved) + stored + TILE_CLOCKS)
    last = numel / STORED_LAST if tile.slabs else 0
    return turns * (product.steps * step + TILE_CLOCKS + max(stored, moved)) + last


def _clocks_to_finish(tile: WarpgroupTile, values: Values | None) -> tuple[float, float]:
    """Returns the clocks for computing and storing a tile's results, and those for reading and moving them."""
    numel = tile.rows * tile.columns
    stored = numel / (STORED_IN_TURN if tile.in_turn else STORED) + (numel / STORED_ALONE if tile.slabs == 1 else 0)
    if values is None:
        return stored, 0
    stored = (stored if tile.slabs else 0) + numel * values.num_instructions / (ISSUED_IN_TURN if tile.in_turn else ISSUED)
    if tile.slabs:
        return stored, 0
    waited = tile.num_sums // 16 * MEMORY_WAIT if values.of_elements else 0
    return stored + waited, numel * values.nbytes / MEMORY_NBYTES


def _multiplied(product: PlainProduct, tile: WarpgroupTile) -> float:
    """Returns the clocks for multiplying a step, without waiting."""
    work = 2 * tile.rows * tile.columns * product.step
    if not product.adds:
        return work / (FLOPS // (2 if product.tf32 else 1))
    return work / FLOPS_OF_ADDS + ADDS_WAIT + ADDS_TRANSPOSED[tile.multipliers] * _transposed_nbytes(product, tile)


def _transposed_nbytes(product: PlainProduct, tile: WarpgroupTile) -> int:
    """Returns the bytes per step that are transposed in shared memory."""
    if product.dtype != "float32":
        return 0
    is_lhs, is_rhs = product.a.is_column_major != product.adds, product.b.is_column_major == product.adds
    return ROW_NBYTES * (is_lhs * tile.rows + is_rhs * tile.columns)


def _shared_nbytes(product: PlainProduct, tile: WarpgroupTile) -> int:
    """Returns the bytes of shared memory written and read per step."""
    read = tile.rows // WARPGROUP_ROWS * (WARPGROUP_ROWS + tile.columns) * ROW_NBYTES
    return stage_nbytes(product, tile.rows, tile.columns) + read + 2 * _transposed_nbytes(product, tile)


def clocks_to_add(product: PlainProduct, target: Target) -> float:
    """Returns the estimated time to add the results of parts of K."""
    nbytes = 4 * product.parts * product.m * product.n
    return SUM_CLOCKS + nbytes / (MEMORY_NBYTES * target.multiprocessors) if product.parts > 1 else 0.0


def in_parts(product: PlainProduct, target: Target) -> list[PlainProduct]:
    """Returns a product as a whole and, if there are fewer tiles than multiprocessors, with its K in parts."""
    if product.batch > 1 or num_tiles(product, 128, 128) * 3 // 2 > target.multiprocessors:
        return [product]
    is_wide = product.dtype == "float32"
    most = min(WIDE_PARTS_MAX if is_wide else PARTS_MAX, product.k // PART_K_MIN)
    found = [replace(product, parts=parts) for parts in range(2, most + 1)]
    return [product, *(each for each in found if is_wide or product.k % (each.parts * product.step) == 0)]


# ---- attentions and their gradients ----
PIECE_ELEMENTS = 8  # 16-bit elements that a tile copy moves at once: rows begin at multiples
FEATURES_MIN, FEATURES_MAX, GRADIENT_FEATURES_MAX = 40, 256, 128  # with fewer, most of a tile would be zeros
ROWS_MIN = 64
COLUMNS, ATTENTION_STAGES_MAX, ATTENTION_STAGES_MIN = 128, 4, 2
# Warpgroups, rows of a tile, whether its products lag: for tiles of keys or not, rows of more than 64 elements or not. The
# first was fastest on an H100 (bench/results/2026-11-27-h100-attention.json); most missing ones spill, or ptxas serializes
# them.
GRADIENTS = {
    (True, False): ((2, 96, False), (2, 64, False), (2, 80, True)),
    (True, True): ((2, 64, False),),
    (False, False): ((3, 64, True), (2, 128, False), (3, 96, False)),
    (False, True): ((2, 96, True), (2, 64, True)),
}
SPILLING_WITH_CAP = ((3, 96, False),)
CACHED_NBYTES = 24 << 20  # of keys and values in use together: they stay in the L2 cache


class AttentionSplit(Record):
    """A kernel in phases, one of which is written by hand.

    kernel:  equivalent to the original; its params are the original's, then intermediate results
    plain:   the attention, by slots of `kernel`
    place:   number of the attention's phase
    rest:    later phases that run; the attention stores the results of the others
    """

    kernel: Kernel
    plain: PlainAttention | PlainGradients
    place: int
    rest: tuple[tuple[Nest, ...], ...]

    @property
    def generated(self) -> Kernel:
        """Returns the kernel without its attention."""
        return replace(self.kernel, phases=self.kernel.phases[: self.place] + self.rest)

    def __str__(self) -> str:
        stored = len(self.kernel.phases[0]) if self.place else 0
        return f"with {stored} of its operands stored before" if stored else "as the only phase"


@lru_cache(maxsize=256)
def split_attention(kernel: Kernel, target: Target) -> AttentionSplit | str:
    """Returns how hand-written kernels compute a kernel's attention or its gradients, or why none can."""
    (nest, *others), *rest = kernel.phases
    if nest.kind is not NestKind.ATTENTION or others:
        return "it is not one attention"
    try:
        _check(nest.anchor, kernel, target)
        return _split(kernel, nest, nest.anchor)
    except NotPlain as reason:
        return str(reason)


def _check(anchor: Op, kernel: Kernel, target: Target) -> None:
    """Raises NotPlain for an attention without a hand-written kernel."""
    arg: AttentionArg = anchor.arg
    if kernel.variables or not all(isinstance(dim, int) for source in anchor.src for dim in source.shape):
        raise NotPlain("it reads a symbolic integer")
    if not anchor.dtype.is_narrow or anchor.dtype.itemsize != 2:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    if mask_of(anchor) is not None or not arg.scale > 0:
        raise NotPlain("it has a mask, or a scale that is not positive")
    _, _, T, S, D, E = lengths(anchor)
    most = FEATURES_MAX if anchor.code is OpCode.ATTENTION else GRADIENT_FEATURES_MAX
    if not all(FEATURES_MIN <= each <= most and each % PIECE_ELEMENTS == 0 for each in (D, E)):
        raise NotPlain(f"it has {D} features, and values of {E} features")
    is_wide_grad = anchor.code is OpCode.ATTENTION_GRAD and max(D, E) > SWIZZLED
    if arg.soft_cap and (arg.dropout or (arg.window and is_wide_grad)):
        raise NotPlain("registers cannot hold a cap with dropout, or a cap with a window in gradients of many features")
    if min(T, S) < ROWS_MIN or parts_of(anchor, target) is not None:
        raise NotPlain("it has few queries or keys")
    for value in (*anchor.src, anchor):
        count = numel(value.shape)
        if not isinstance(count, int) or not 0 < count < ELEMENTS_MAX:
            raise NotPlain("it is empty, or too large")


def _split(kernel: Kernel, nest: Nest, anchor: Op) -> AttentionSplit:
    """Returns the split of an attention or its gradients; raises NotPlain unless all of its results are requested."""
    slots = {value.arg: slot for slot, value in nest.outputs}
    shapes = {value.arg: value.shape for _, value in nest.outputs}
    needed = range(1) if anchor.code is OpCode.ATTENTION else range(3)
    if not slots.keys() >= {*needed} or any(value.code is not OpCode.OUTPUT for _, value in nest.outputs):
        raise NotPlain("its averages, or some of its gradients, are not requested")
    params, before, operands = [*kernel.params], [], []

    def stored(operand: Op) -> Op:
        params.append(Param(operand.dtype, numel(operand.shape), "scratch"))
        held = param(operand, len(params) - 1)
        before.append(Nest(NestKind.ELEMENTWISE, operand.shape, (), None, ((held.arg[0], operand),)))
        return held

    for operand in anchor.src:
        operands.append(operand if _is_at_hand(operand, params) else stored(operand))
    read = anchor.replace(src=tuple(operands))
    outputs = tuple((slot, value.replace(src=(read,))) for slot, value in nest.outputs)
    places, rest = places_of(kernel, partial(_matrix_at, params=kernel.params))
    own = (replace(nest, anchor=read, outputs=outputs),)
    phases = [phase for phase in (tuple(before), own, *kernel.phases[1:]) if phase]
    whole = Kernel(f"{kernel.name}_split", tuple(params), (), tuple(phases))
    results = [places.get(slots[each]) or contiguous_heads(slots[each], shapes[each]) for each in needed]
    H, G, T, S, D, E = lengths(anchor)
    (batch,) = known_numbers(anchor.src[0].shape[:1])
    arg: AttentionArg = anchor.arg
    said = float(arg.scale), arg.causal, arg.window, float(arg.soft_cap), arg.dropout
    shape = HeadsShape(batch, H, G, T, S, D, E, anchor.dtype.name, *said)
    of_heads = [_numbers_of(operand) for operand in draws_of(read)]
    draws = HeadsDraws(*of_heads) if of_heads else None
    q, k, v, *grads = (_matrix_of(operand, params) for operand in operands if len(operand.shape) == 4)
    if anchor.code is OpCode.ATTENTION:
        return AttentionSplit(whole, PlainAttention(shape, q, k, v, results[0], slots.get(1), draws), len(before[:1]), rest)
    logsumexp, delta = (operand.arg[0] for operand in operands[4:6])
    dq, dk, dv = results
    plain = PlainGradients(shape, q, k, v, grads[0], logsumexp, delta, dq, dk, dv, draws)
    return AttentionSplit(whole, plain, len(before[:1]), rest)


def _is_at_hand(operand: Op, params: list[Param]) -> bool:
    """True for a matrix whose memory tile copies can read, and for numbers that a kernel finds."""
    try:
        if len(operand.shape) == 4:
            _matrix_of(operand, params)
        elif len(operand.shape) == 2:
            _numbers_of(operand)
    except NotPlain:
        return False
    return len(operand.shape) != 3 or operand.code is OpCode.PARAM


def _numbers_of(operand: Op) -> HeadNumbers:
    """Returns the address of a number per head (B, H); raises NotPlain unless it is read or a multiple of the position."""
    value = element_anywhere(operand)
    is_read = value.code is OpCode.LOAD and value.src[0].code is OpCode.PARAM and len(value.src) == 2
    terms, offset = affine(from_op(value.src[1] if is_read else value))
    axes = [placeholder(axis, extent) for axis, extent in enumerate(known_numbers(operand.shape))]
    if not terms.keys() <= {*axes}:
        raise NotPlain("the numbers of the draws' heads are computed")
    batch, head = (terms.get(axis, 0) for axis in axes)
    return HeadNumbers(value.src[0].arg[0] if is_read else None, offset, (batch, head))


def _matrix_of(operand: Op, params: list[Param]) -> HeadsMatrix:
    """Returns the strides of an operand (B, H, T, D); raises NotPlain if tile copies cannot read it."""
    load = element_anywhere(operand)
    if load.code is not OpCode.LOAD or load.dtype is not operand.dtype or len(load.src) > 2:
        raise NotPlain("an operand is computed")
    return _matrix_at(load.src[0].arg[0], from_op(load.src[1]), operand.shape, params)


def _matrix_at(slot: int, index: Dim, shape: Shape, params: Sequence[Param]) -> HeadsMatrix:
    """Returns the matrix (B, H, T, D) with an element at `index`; raises NotPlain if tile copies cannot read it."""
    extents, matrix = known_numbers(shape), matrix_at(slot, index, shape)
    alone = ceildiv(extents[-1], PIECE_ELEMENTS) * PIECE_ELEMENTS  # stride of an axis of length 1, never used
    strides = [alone if extent == 1 else each for extent, each in zip(extents, matrix.strides)]
    count = params[slot].numel
    if matrix.offset % PIECE_ELEMENTS or any(each <= 0 or each % PIECE_ELEMENTS for each in strides):
        raise NotPlain("rows of an operand do not start at multiples of 16 bytes")
    if not isinstance(count, int) or count >= ELEMENTS_MAX or count % PIECE_ELEMENTS:
        raise NotPlain("a parameter is too large, or its bytes are not a multiple of 16")
    return replace(matrix, strides=(strides[0], strides[1], strides[2]))


def contiguous_heads(slot: int, shape: Shape) -> HeadsMatrix:
    """Returns a contiguous matrix (B, H, T, D)."""
    _, heads, rows, columns = known_numbers(shape)
    return HeadsMatrix(slot, 0, (heads * rows * columns, rows * columns, columns))


# ---- how it is cut ----
def attention_tiles(shape: HeadsShape, target: Target) -> list[HeadsTile]:
    """Returns possible tiles of an attention, the likely fastest first.

    Three consumer warpgroups have 160 registers a thread: too few for accumulators of 128 features, or a soft cap.
    """
    is_large = max(shape.features, shape.values) > SWIZZLED or shape.soft_cap
    return [tile for lookers in ((2,) if is_large else (2, 3)) for tile in _cut_attention(shape, lookers, target)]


def _cut_attention(shape: HeadsShape, lookers: int, target: Target) -> list[HeadsTile]:
    """Returns the tile for a number of warpgroups, if shared memory holds one.

    In a causal attention the longest blocks of all heads come first, which matters more than the L2 cache does (H100,
    4 x 16 x 4096 x 128: 508 instead of 484 TFLOP/s); if all blocks are equally long it is the reverse (514 instead of 614).
    """
    heads, pair = shape.batch * shape.heads, shape.features + shape.values
    group_nbytes = shape.keys * pair * 2 * shape.groups // shape.heads
    together = heads if shape.causal else max(1, min(heads, CACHED_NBYTES // max(1, group_nbytes)))
    blocks = min(target.multiprocessors, heads * ceildiv(shape.queries, WARPGROUP_ROWS * lookers))
    columns = COLUMNS if max(shape.features, shape.values) <= 2 * SWIZZLED else COLUMNS // 2
    tile = HeadsTile(lookers, columns, ATTENTION_STAGES_MAX, together, blocks)
    return fitted(tile, lambda each: attention_nbytes(shape, each), target)


def fitted(tile: HeadsTile, nbytes: Callable[[HeadsTile], int], target: Target) -> list[HeadsTile]:
    """Returns a tile with as many stages as shared memory holds, then two sets of own rows; None with too few stages."""
    room = target.shared_bytes - BARRIER_NBYTES
    sizes = ((stages, keeps) for stages in range(tile.stages, ATTENTION_STAGES_MIN - 1, -1) for keeps in (2, 1))
    tiles = (replace(tile, stages=stages, keeps=keeps) for stages, keeps in sizes)
    return next(([each] for each in tiles if nbytes(each) <= room), [])


def gradient_tiles(shape: HeadsShape, by_keys: bool, target: Target) -> list[HeadsTile]:
    """Returns possible tiles for the gradients of keys and values, or of queries; the fastest first."""
    wide = max(shape.features, shape.values) > SWIZZLED
    cuts = [each for each in GRADIENTS[by_keys, wide] if not (shape.soft_cap and each in SPILLING_WITH_CAP)]
    return [tile for each in cuts for tile in cut_gradients(shape, by_keys, *each, target)]


def cut_gradients(
    shape: HeadsShape, by_keys: bool, lookers: int, columns: int, lags: bool, target: Target
) -> list[HeadsTile]:
    """Returns the tile for a number of warpgroups and of rows, if shared memory holds one."""
    heads, length, other = shape.batch * shape.heads, shape.queries, shape.keys
    if by_keys:
        heads, length, other = shape.batch * shape.groups, shape.keys, shape.queries
    together = heads if shape.causal else max(1, min(heads, CACHED_NBYTES // shape.nbytes(other)))
    blocks = min(target.multiprocessors, heads * ceildiv(length, WARPGROUP_ROWS * lookers))
    tile = HeadsTile(lookers, columns, ATTENTION_STAGES_MAX, together, blocks, lags=lags)
    return fitted(tile, lambda each: gradients_nbytes(shape, each, by_keys), target)
