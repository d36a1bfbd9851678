"""Writes a product by warpgroups as CUDA C: constants for kernels/cuda/hopper_product.h, and what it does with sums.

In:    Written, the parameters of its kernel
Out:   `function_of`: a function's text, and its Launch with maps of tiles
Called by: engine/written.py.    Next: picograd/render/hopper_attention.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.dtype import dtype_named
from picograd.ir.opts import Matrix, PlainProduct, WarpgroupTile, Written
from picograd.ir.stages import Launch, Param, TileMap
from picograd.render.cuda import param_type

HEADER = '#include "hopper_product.h"\n#include "hopper_fma.h"\n'
SLAB_ROWS, SLAB_NBYTES, ROW_NBYTES = 64, 8192, 128


def function_of(choice: Written, params: Sequence[Param], symbol: str) -> tuple[str, Launch]:
    """Returns the function of a product, behind HEADER, and its launch."""
    product, tile = choice.product, choice.tile
    given = [f"{param_type(param)} p{slot}" for slot, param in enumerate(params)]
    cut, call, result, maps = f"Cut_{symbol}", "multiply", "out", [_left(product, tile), _right(product, tile)]
    if product.adds:
        call, result = "multiply_add", f"p{product.out}"
    else:
        maps.append(_result(product))
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
    wide = tile.columns if product.b.is_turned else -(-tile.columns // line) * line
    stage = (tile.rows + wide) * ROW_NBYTES
    return tile.stages * stage + tile.multipliers * tile.slabs * SLAB_NBYTES


def _constants(product: PlainProduct, tile: WarpgroupTile) -> dict[str, int]:
    return {
        "BATCH": product.batch, "PARTS": product.parts, "M": product.m, "N": product.n, "K": product.k,
        "LHS_ACROSS": int(product.a.is_turned), "RHS_ACROSS": int(not product.b.is_turned),
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
    if a.is_turned:
        return _operand(a, product, product.k, product.m, _line(product))
    return _operand(a, product, product.m, product.k, tile.rows)


def _right(product: PlainProduct, tile: WarpgroupTile) -> TileMap:
    b = product.b
    if b.is_turned:
        return _operand(b, product, product.n, product.k, tile.columns)
    return _operand(b, product, product.k, product.n, _line(product))


def _operand(matrix: Matrix, product: PlainProduct, count: int, length: int, rows: int) -> TileMap:
    """Returns the map of an operand that lies in memory as a batch of `count` rows of `length` elements."""
    stride = matrix.stride if count > 1 else -(-length // 8) * 8
    is_one = _is_one(matrix, product)
    shape = (1 if is_one else product.batch, count, length)
    strides = (count * stride if is_one else matrix.batch_stride, stride, 1)
    box = (1, rows, _line(product))
    return TileMap(matrix.slot, shape, box, offset=matrix.offset, strides=strides, rounds=product.tf32)


def _result(product: PlainProduct) -> TileMap:
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
