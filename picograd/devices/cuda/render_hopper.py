"""Writes products, attention and its gradients by warpgroups as CUDA C: constants for the headers hopper_*.h.

In:    Written, WrittenAttention or WrittenGradients; the parameters of their kernel
Out:   `functions_of`: the text of functions, and their Launches with maps of tiles;  `header_of`
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.devices.cuda.render import param_type
from picograd.dtype import dtype_named
from picograd.ir.opts import (
    SWIZZLED,
    ByHand,
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
from picograd.ir.stages import Launch, Param, TileMap

SLAB_ROWS, SLAB_NBYTES, ROW_NBYTES = 64, 8192, 128


def header_of(choice: ByHand) -> str:
    """Returns the lines before the functions."""
    if isinstance(choice, Written):
        return '#include "hopper_product.h"\n#include "hopper_fma.h"\n'
    return f'#include "hopper_attention{"" if isinstance(choice, WrittenAttention) else "_grad"}.h"\n'


def functions_of(choice: ByHand, params: Sequence[Param], symbol: str) -> tuple[str, *tuple[Launch, ...]]:
    """Returns the functions of a product, an attention or its gradients, behind `header_of`, and their launches."""
    if isinstance(choice, Written):
        return _product(choice.product, choice.tile, params, symbol)
    if isinstance(choice, WrittenAttention):
        return _averages(choice.plain, choice.tile, params, symbol)
    parts = [
        _gradients(choice.plain, tile, by_keys, params, f"{symbol}_{name}")
        for tile, by_keys, name in ((choice.by_keys, True, "keys"), (choice.by_queries, False, "queries"))
    ]
    return "\n".join(text for text, _ in parts), *(launch for _, launch in parts)


# ---- products ----
def _product(product: PlainProduct, tile: WarpgroupTile, params: Sequence[Param], symbol: str) -> tuple[str, Launch]:
    given = [f"{param_type(param)} p{slot}" for slot, param in enumerate(params)]
    cut, call, result, maps = f"Cut_{symbol}", "multiply", "out", [_left(product, tile), _right(product, tile)]
    if product.adds:
        call, result = "multiply_add", f"p{product.out}"
    else:
        maps.append(_result_map(product))
    given += [f"TILE_MAP({name})" for name, _ in zip(("lhs", "rhs", "out"), maps)]
    text = "\n".join([
        f"struct {cut} {{",
        f"  typedef {product.dtype} T;",
        f"  typedef {product.out_dtype} Out;",
        *[f"  static const int32 {name} = {value};" for name, value in _constants(product, tile).items()],
        "};",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1) {symbol}({", ".join(given)}) {{',
        f"  {call}<{cut}>(lhs, rhs, {result}, [&](int32 matrix, int32 row, int32 column, Lanes<float32, 2> sums) {{",
        *[f"    {line}" for line in _finish(product)],
        "    return sums;",
        "  });",
        "}",
        "",
    ])  # fmt: skip
    work = 2 * product.batch * product.m * product.n * product.k
    return text, Launch(symbol, tile.blocks, tile.threads, work, shared_nbytes(product, tile), tuple(maps))


def shared_nbytes(product: PlainProduct, tile: WarpgroupTile) -> int:
    """Returns the bytes of shared memory that a block asks for."""
    line = _line(product)
    wide = tile.columns if product.b.is_column_major else -(-tile.columns // line) * line
    stage = (tile.rows + wide) * ROW_NBYTES
    return tile.stages * stage + tile.multipliers * tile.slabs * SLAB_NBYTES


def _constants(product: PlainProduct, tile: WarpgroupTile) -> dict[str, int]:
    return {
        "BATCH": product.batch, "PARTS": product.parts, "M": product.m, "N": product.n, "K": product.k,
        "LHS_ACROSS": int(product.a.is_column_major), "RHS_ACROSS": int(not product.b.is_column_major),
        "LHS_SHARED": int(_is_one(product.a, product)), "RHS_SHARED": int(_is_one(product.b, product)),
        "ROWS": tile.rows, "COLUMNS": tile.columns, "MULTIPLIERS": tile.multipliers, "STAGES": tile.stages,
        "SLABS": tile.slabs, "GROUP": tile.group, "MULTIPLY_ADDS": int(product.adds),
    }  # fmt: skip


def _line(product: PlainProduct) -> int:
    """Returns the elements in 128 bytes: of K in a stage, and of rows across K in a tile."""
    return ROW_NBYTES // dtype_named(product.dtype).itemsize


def _is_one(matrix: Matrix, product: PlainProduct) -> bool:
    """True where all of the batch have the same matrix."""
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
    """Returns the map of an operand that is in memory a batch of `count` rows of `length` elements."""
    stride = matrix.stride if count > 1 else -(-length // 8) * 8
    is_one = _is_one(matrix, product)
    shape = (1 if is_one else product.batch, count, length)
    strides = (count * stride if is_one else matrix.batch_stride, stride, 1)
    box = (1, rows, _line(product))
    return TileMap(matrix.slot, shape, box, offset=matrix.offset, strides=strides, rounds=product.tf32)


def _result_map(product: PlainProduct) -> TileMap:
    columns = ROW_NBYTES // dtype_named(product.out_dtype).itemsize
    return TileMap(product.out, (product.batch * product.parts, product.m, product.n), (1, SLAB_ROWS, columns))


# ---- what is done with sums ----
def _finish(product: PlainProduct) -> list[str]:
    """Returns statements that compute what is stored of `sums`; of 16 bits each operation rounds, as it does in a graph."""
    epilogue, lines = product.epilogue, []
    if epilogue.scale != 1:
        lines += _each(f"{_number(epilogue.scale)} * sums.at[i]")
    if epilogue.bias is not None or epilogue.added is not None:
        other = "as_float32(other.at[i])"
        if epilogue.added is not None and epilogue.factor != 1:
            other = f"rounded<{product.out_dtype}>({_number(epilogue.factor)} * {other})"
        lines.append(f"const auto other = {_bias(product) or _added(product)};")
        lines += _each(f"rounded<{product.out_dtype}>(sums.at[i]) + {other}")
    if epilogue.relu:
        lines += _each("sums.at[i] <= 0.0f ? 0.0f : sums.at[i]")
    if epilogue.bias is None and epilogue.added is None:
        return lines
    return [f"if (row >= {product.m} || column >= {product.n}) return sums;", *lines]


def _bias(product: PlainProduct) -> str | None:
    bias = product.epilogue.bias
    return None if bias is None else f"load_lanes<2>(p{bias.slot}, {bias.offset} + column)"


def _added(product: PlainProduct) -> str | None:
    added = product.epilogue.added
    if added is None:
        return None
    index = f"{added.offset} + matrix * {added.batch_stride}ll + row * {added.stride}ll + column"
    return f"load_lanes<2>(p{added.slot}, {index})"


def _each(value: str) -> list[str]:
    return [f"for (int32 i = 0; i < 2; i++) sums.at[i] = {value};"]


def _number(value: float) -> str:
    return f"{float(value)!r}f"


# ---- attention ----
def _averages(plain: PlainAttention, tile: HeadsTile, params: Sequence[Param], symbol: str) -> tuple[str, Launch]:
    shape, slot = plain.shape, plain.logsumexp
    call = [
        f"  attend<Cut_{symbol}>(q, k, v, out, [&](int64 index, float32 logsumexp) {{",
        *([] if slot is None else [f"    p{slot}[index] = logsumexp;"]),
        "  });",
    ]
    maps = {
        "q": _of_queries(plain.q, shape, shape.features, tile.rows),
        "k": _of_keys(plain.k, shape, shape.features, tile.columns),
        "v": _of_keys(plain.v, shape, shape.values, tile.columns),
        "out": _stored_map(plain.out, shape, shape.heads, shape.queries, shape.values),
    }
    text = _function(shape, tile, {}, maps, params, symbol, call)
    return text, Launch(symbol, tile.blocks, tile.threads, plain.work, attention_nbytes(shape, tile), tuple(maps.values()))


def _gradients(
    plain: PlainGradients, tile: HeadsTile, by_keys: bool, params: Sequence[Param], symbol: str
) -> tuple[str, Launch]:
    """Returns the function that makes the gradients of keys and values, or of queries, and its launch."""
    shape = plain.shape
    queries, keys = (tile.columns, tile.rows) if by_keys else (tile.rows, tile.columns)
    maps = {
        "q": _of_queries(plain.q, shape, shape.features, queries),
        "grad": _of_queries(plain.grad, shape, shape.values, queries),
        "k": _of_keys(plain.k, shape, shape.features, keys),
        "v": _of_keys(plain.v, shape, shape.values, keys),
    }
    if by_keys:
        maps["dk"] = _stored_map(plain.dk, shape, shape.groups, shape.keys, shape.features)
        maps["dv"] = _stored_map(plain.dv, shape, shape.groups, shape.keys, shape.values)
    else:
        maps["dq"] = _stored_map(plain.dq, shape, shape.heads, shape.queries, shape.features)
    given = "k, v, q, grad, dk, dv" if by_keys else "q, grad, k, v, dq, dq"
    call = [f"  differentiate<Cut_{symbol}>({given}, p{plain.logsumexp}, p{plain.delta});"]
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
        "FEATURES": shape.features, "VALUES": shape.values, "CAUSAL": int(shape.causal), "LOOKERS": tile.lookers,
        "COLUMNS": tile.columns, "STAGES": tile.stages, "TOGETHER": tile.together, "KEEPS": tile.keeps,
        **others,
    }  # fmt: skip
    return "\n".join([
        f"struct Cut_{symbol} {{",
        f"  typedef {shape.dtype} T;",
        *[f"  static const int32 {name} = {value};" for name, value in constants.items()],
        f"  static constexpr float32 SCALE = {shape.scale!r}f;",
        "};",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1) {symbol}({", ".join(given)}) {{',
        *call,
        "}",
        "",
    ])  # fmt: skip


# ---- maps of tiles ----
def _of_queries(matrix: HeadsMatrix, shape: HeadsShape, features: int, rows: int) -> TileMap:
    return _heads_map(matrix, (shape.batch, shape.heads, shape.queries, features), rows)


def _of_keys(matrix: HeadsMatrix, shape: HeadsShape, features: int, rows: int) -> TileMap:
    return _heads_map(matrix, (shape.batch, shape.groups, shape.keys, features), rows)


def _heads_map(matrix: HeadsMatrix, shape: tuple[int, int, int, int], rows: int) -> TileMap:
    return TileMap(matrix.slot, shape, (1, 1, rows, SWIZZLED), offset=matrix.offset, strides=(*matrix.strides, 1))


def _stored_map(slot: int, shape: HeadsShape, heads: int, length: int, features: int) -> TileMap:
    return TileMap(slot, (shape.batch, heads, length, features), (1, 1, SWIZZLED, SWIZZLED))
