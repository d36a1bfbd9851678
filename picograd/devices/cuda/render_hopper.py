"""Writes warpgroup kernels for products, attention and its gradients as CUDA C: constants for the headers hopper_*.h.

In:    Written, WrittenAttention or WrittenGradients; the parameters of their kernel
Out:   `functions_of`: the text of functions, and their Launches with tile maps;  `header_of`
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.device import Target
from picograd.devices.cuda.render import CudaWriter, param_type
from picograd.devices.render_grids import Phase
from picograd.dtype import DType, dtype_named
from picograd.ir.attention import least_kept
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import (
    DONE,
    PIECE_NBYTES,
    ROW_NBYTES,
    SLAB_NBYTES,
    SUMS,
    SWIZZLED,
    ByHand,
    Columns,
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
    Written,
    WrittenAttention,
    attention_nbytes,
    gradients_nbytes,
)
from picograd.ir.stages import Launch, Param, Program, TileMap
from picograd.ir.statements import For
from picograd.ir.symbolic import ceildiv
from picograd.record import Record

SLAB_ROWS = SLAB_NBYTES // ROW_NBYTES


def header_of(choice: ByHand) -> str:
    """Returns the lines before the functions."""
    if isinstance(choice, Written):
        return '#include "hopper_product.h"\n#include "hopper_fma.h"\n'
    return f'#include "hopper_attention{"" if isinstance(choice, WrittenAttention) else "_grad"}.h"\n'


def functions_of(
    choice: ByHand, params: Sequence[Param], symbol: str, epilogue: WrittenEpilogue | None = None
) -> tuple[str, *tuple[Launch, ...]]:
    """Returns the functions of a product, an attention or its gradients, which follow `header_of`, and their launches.

    Args:
      epilogue: epilogue of a product
    """
    if isinstance(choice, Written):
        assert epilogue is not None, "a product has an epilogue, which may be empty"
        return _product(choice.product, choice.tile, params, symbol, epilogue)
    if isinstance(choice, WrittenAttention):
        return _averages(choice.plain, choice.tile, params, symbol)
    parts = [
        _gradients(choice.plain, tile, by_keys, params, f"{symbol}_{name}")
        for tile, by_keys, name in ((choice.by_keys, True, "keys"), (choice.by_queries, False, "queries"))
    ]
    return "\n".join(text for text, _ in parts), *(launch for _, launch in parts)


# ---- products ----
class WrittenEpilogue(Record):
    """The statements of a thread for its columns of a product (codegen/epilogue.py).

    program: the statements, in the linear form
    """

    columns: Columns
    program: Program
    target: Target


def _product(
    product: PlainProduct, tile: WarpgroupTile, params: Sequence[Param], symbol: str, epilogue: WrittenEpilogue
) -> tuple[str, Launch]:
    given = [f"{param_type(param)} p{slot}" for slot, param in enumerate(params)]
    columns, cut = epilogue.columns, f"Cut_{symbol}"
    maps = {"lhs": _left(product, tile), "rhs": _right(product, tile)}
    if not columns.stores:
        maps["out"] = _result_map(product)
    given += [f"TILE_MAP({name})" for name in maps]
    values = f"Lanes<{columns.dtype}, {columns.count}> {SUMS}"
    text = "\n".join([
        f"struct {cut} {{",
        f"  typedef {product.dtype} T;",
        f"  typedef {columns.dtype} Held;",
        f"  typedef {product.out_dtype} Out;",
        *[f"  static const int32 {name} = {value};" for name, value in _constants(product, tile, columns).items()],
        "};",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1) {symbol}({", ".join(given)}) {{',
        f"  {'multiply_add' if product.adds else 'multiply'}<{cut}>({', '.join(maps)},",
        f"      [&]({', '.join(f'int32 {name}' for name in columns.extents)}, {values}) {{",
        *_finish(epilogue, product),
        "  });",
        "}",
        "",
    ])  # fmt: skip
    work = 2 * product.batch * product.m * product.n * product.k
    return text, Launch(symbol, tile.blocks, tile.threads, work, shared_nbytes(product, tile), tuple(maps.values()))


def _finish(epilogue: WrittenEpilogue, product: PlainProduct) -> list[str]:
    """Returns the text of an epilogue's statements."""
    columns, writer = epilogue.columns, _EpilogueWriter(epilogue)
    writer.write(epilogue.program.phases[0])
    if columns.stores:
        return writer.lines
    done = f"Lanes<{product.out_dtype}, {columns.count}> {DONE};"
    return [f"    {done}", *writer.lines, f"    return {DONE};"]


class _EpilogueWriter(CudaWriter):
    """Writes statements inside loops of the kernel, with the kernel's numbers for them."""

    def __init__(self, epilogue: WrittenEpilogue):
        super().__init__(epilogue.program, Phase((), (), (0,), 1), epilogue.target)
        self.given = [name for name, extent in epilogue.columns.extents.items() if extent > 1]
        self.depth = 2

    def access(self, text: str, dtype: DType, lanes: int, memory: Op, index: Op, value: str = "") -> str:
        """Returns the text of an access; memory of whole 16-byte units is aligned, also as a row of a larger buffer."""
        if memory.code is OpCode.PARAM and memory.arg[1][0] * memory.dtype.itemsize % PIECE_NBYTES == 0:
            text = text.replace("{memory}", "aligned({memory})")
        return super().access(text, dtype, lanes, memory, index, value)

    def write_for(self, loop: For) -> None:
        if not self.given:
            super().write_for(loop)
            return
        self.intervals[loop.range] = 0, int(loop.range.src[0].arg) - 1
        self.line(f"const {loop.range.dtype} {self.operand(loop.range)} = {self.given.pop(0)};")
        self.write(loop.body)


def shared_nbytes(product: PlainProduct, tile: WarpgroupTile) -> int:
    """Returns the bytes of shared memory that a block requests."""
    line = _line(product)
    wide = tile.columns if product.b.is_column_major else ceildiv(tile.columns, line) * line
    stage = (tile.rows + wide) * ROW_NBYTES
    return tile.stages * stage + tile.multipliers * tile.slabs * SLAB_NBYTES


def _constants(product: PlainProduct, tile: WarpgroupTile, columns: Columns) -> dict[str, int]:
    return {
        "BATCH": product.batch, "PARTS": product.parts, "M": product.m, "N": product.n, "K": product.k,
        "LHS_ACROSS": int(product.a.is_column_major), "RHS_ACROSS": int(not product.b.is_column_major),
        "LHS_SHARED": int(_is_one(product.a, product)), "RHS_SHARED": int(_is_one(product.b, product)),
        "ROWS": tile.rows, "COLUMNS": tile.columns, "MULTIPLIERS": tile.multipliers, "STAGES": tile.stages,
        "SLABS": tile.slabs, "GROUP": tile.group, "CLUSTER": 1, "IN_TURN": int(tile.in_turn), "LANES": columns.lanes,
        "ROLLED": int(columns.is_long),
        "MULTIPLY_ADDS": int(product.adds),
    }  # fmt: skip


def _line(product: PlainProduct) -> int:
    """Returns the elements in 128 bytes: of K in a stage, or of rows across K in a tile."""
    return ROW_NBYTES // dtype_named(product.dtype).itemsize


def _is_one(matrix: Matrix, product: PlainProduct) -> bool:
    """True if the whole batch has the same matrix."""
    return product.batch == 1 or matrix.batch_stride == 0


# ---- maps ----
def _left(product: PlainProduct, tile: WarpgroupTile) -> TileMap:
    a = product.a
    if a.is_column_major:
        return _matrix_map(a, product, product.k, product.m, _line(product))
    return _matrix_map(a, product, product.m, product.k, tile.rows)


def _right(product: PlainProduct, tile: WarpgroupTile) -> TileMap:
    b = product.b
    if b.is_column_major:
        return _matrix_map(b, product, product.n, product.k, tile.columns)
    return _matrix_map(b, product, product.k, product.n, _line(product))


def _matrix_map(matrix: Matrix, product: PlainProduct, count: int, length: int, rows: int) -> TileMap:
    """Returns the tile map of an operand stored as a batch of `count` rows of `length` elements."""
    stride = matrix.stride if count > 1 else ceildiv(length, 8) * 8
    is_one = _is_one(matrix, product)
    shape = (1 if is_one else product.batch, count, length)
    strides = (count * stride if is_one else matrix.batch_stride, stride, 1)
    box = (1, rows, _line(product))
    return TileMap(matrix.slot, shape, box, offset=matrix.offset, strides=strides, rounds=product.tf32)


def _result_map(product: PlainProduct) -> TileMap:
    columns = ROW_NBYTES // dtype_named(product.out_dtype).itemsize
    return TileMap(product.out, (product.batch * product.parts, product.m, product.n), (1, SLAB_ROWS, columns))


# ---- attention ----
def _averages(plain: PlainAttention, tile: HeadsTile, params: Sequence[Param], symbol: str) -> tuple[str, Launch]:
    shape, slot = plain.shape, plain.logsumexp
    call = [
        f"  attend<Cut_{symbol}>(q, k, v, out, {_draws(plain.draws, shape)}, [&](int64 index, float32 logsumexp) {{",
        *([] if slot is None else [f"    p{slot}[index] = logsumexp;"]),
        "  });",
    ]
    maps = {
        "q": _of_queries(plain.q, shape, shape.features, tile.rows),
        "k": _of_keys(plain.k, shape, shape.features, tile.columns),
        "v": _of_keys(plain.v, shape, shape.values, tile.columns),
        "out": _stored_map(plain.out, (shape.batch, shape.heads, shape.queries, shape.values)),
    }
    text = _function(shape, tile, {}, maps, params, symbol, call)
    return text, Launch(symbol, tile.blocks, tile.threads, plain.work, attention_nbytes(shape, tile), tuple(maps.values()))


def _gradients(
    plain: PlainGradients, tile: HeadsTile, by_keys: bool, params: Sequence[Param], symbol: str
) -> tuple[str, Launch]:
    """Returns the kernel for the gradients of keys and values, or of queries, and its launch."""
    shape = plain.shape
    queries, keys = (tile.columns, tile.rows) if by_keys else (tile.rows, tile.columns)
    maps = {
        "q": _of_queries(plain.q, shape, shape.features, queries),
        "grad": _of_queries(plain.grad, shape, shape.values, queries),
        "k": _of_keys(plain.k, shape, shape.features, keys),
        "v": _of_keys(plain.v, shape, shape.values, keys),
    }
    if by_keys:
        maps["dk"] = _stored_map(plain.dk, (shape.batch, shape.groups, shape.keys, shape.features))
        maps["dv"] = _stored_map(plain.dv, (shape.batch, shape.groups, shape.keys, shape.values))
    else:
        maps["dq"] = _stored_map(plain.dq, (shape.batch, shape.heads, shape.queries, shape.features))
    given = "k, v, q, grad, dk, dv" if by_keys else "q, grad, k, v, dq, dq"
    call = [f"  differentiate<Cut_{symbol}>({given}, {_draws(plain.draws, shape)}, p{plain.logsumexp}, p{plain.delta});"]
    text = _function(shape, tile, {"BY_KEYS": int(by_keys), "LAGS": int(tile.lags)}, maps, params, symbol, call)
    work = 2 * shape.pairs * (2 if by_keys else 1) * (shape.features + shape.values)
    work += 0 if by_keys else 2 * shape.pairs * shape.features
    nbytes = gradients_nbytes(shape, tile, by_keys)
    return text, Launch(symbol, tile.blocks, tile.threads, work, nbytes, tuple(maps.values()))


# ---- text ----
def _function(
    shape: HeadsShape, tile: HeadsTile, others: dict[str, int], maps: dict[str, TileMap], params: Sequence[Param],
    symbol: str, call: list[str],
) -> str:  # fmt: skip
    given = [f"{param_type(param)} p{slot}" for slot, param in enumerate(params)]
    given += [f"TILE_MAP({name})" for name in maps]
    constants = {
        "BATCH": shape.batch, "HEADS": shape.heads, "GROUPS": shape.groups, "QUERIES": shape.queries, "KEYS": shape.keys,
        "FEATURES": shape.features, "VALUES": shape.values, "CAUSAL": int(shape.causal), "WINDOW": shape.window,
        "IS_CAPPED": int(shape.soft_cap > 0), "LEAST_KEPT": least_kept(shape.dropout), "LOOKERS": tile.lookers,
        "COLUMNS": tile.columns, "STAGES": tile.stages, "TOGETHER": tile.together, "KEEPS": tile.keeps,
        **others,
    }  # fmt: skip
    factors = {"SCALE": shape.scale, "CAP": shape.soft_cap, "KEPT": 1.0 / (1.0 - shape.dropout)}
    return "\n".join([
        f"struct Cut_{symbol} {{",
        f"  typedef {shape.dtype} T;",
        *[f"  static const int32 {name} = {value};" for name, value in constants.items()],
        *[f"  static constexpr float32 {name} = {float(value)!r}f;" for name, value in factors.items()],
        "};",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1) {symbol}({", ".join(given)}) {{',
        *call,
        "}",
        "",
    ])  # fmt: skip


def _draws(draws: HeadsDraws | None, shape: HeadsShape) -> str:
    """Returns the text of a function that returns a head's seed and number for dropout."""
    if draws is None:
        return "[](int32, int32) { return Draws{0, 0}; }"
    seed, number = (_of_head(numbers) for numbers in (draws.seeds, draws.numbers))
    return f"[&](int32 batch, int32 head) {{ return Draws{{{seed}, (uint64)({number}) * {shape.queries * shape.keys}}}; }}"


def _of_head(numbers: HeadNumbers) -> str:
    batch, head = numbers.strides
    place = f"(int64)batch * {batch} + head * {head} + {numbers.offset}"
    return place if numbers.slot is None else f"p{numbers.slot}[{place}]"


# ---- maps of tiles ----
def _of_queries(matrix: HeadsMatrix, shape: HeadsShape, features: int, rows: int) -> TileMap:
    return _heads_map(matrix, (shape.batch, shape.heads, shape.queries, features), rows)


def _of_keys(matrix: HeadsMatrix, shape: HeadsShape, features: int, rows: int) -> TileMap:
    return _heads_map(matrix, (shape.batch, shape.groups, shape.keys, features), rows)


def _heads_map(matrix: HeadsMatrix, shape: tuple[int, int, int, int], rows: int) -> TileMap:
    return TileMap(matrix.slot, shape, (1, 1, rows, SWIZZLED), offset=matrix.offset, strides=(*matrix.strides, 1))


def _stored_map(matrix: HeadsMatrix, shape: tuple[int, int, int, int]) -> TileMap:
    return _heads_map(matrix, shape, SWIZZLED)
