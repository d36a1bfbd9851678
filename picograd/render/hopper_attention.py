"""Writes an attention or its gradients by warpgroups as CUDA C: constants for kernels/cuda/hopper_attention*.h.

In:    WrittenAttention or WrittenGradients, the parameters of their kernel
Out:   `functions_of`: the text of functions, and their Launches with maps of tiles;  `header_of`
Called by: engine/written.py.    Next: picograd/render/blocks.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.ir.heads_opts import (
    SWIZZLED,
    HeadsMatrix,
    HeadsShape,
    HeadsTile,
    PlainAttention,
    PlainGradients,
    WrittenAttention,
    WrittenGradients,
    attention_nbytes,
    gradients_nbytes,
)
from picograd.ir.stages import Launch, Param, TileMap
from picograd.render.cuda import param_type


def header_of(choice: WrittenAttention | WrittenGradients) -> str:
    """Returns the line that stands before the functions."""
    return f'#include "hopper_attention{"" if isinstance(choice, WrittenAttention) else "_grad"}.h"\n'


def functions_of(
    choice: WrittenAttention | WrittenGradients, params: Sequence[Param], symbol: str
) -> tuple[str, *tuple[Launch, ...]]:
    """Returns the functions of an attention or of its gradients, behind `header_of`, and their launches."""
    if isinstance(choice, WrittenAttention):
        return _averages(choice.plain, choice.tile, params, symbol)
    parts = [
        _gradients(choice.plain, tile, by_keys, params, f"{symbol}_{name}")
        for tile, by_keys, name in ((choice.by_keys, True, "keys"), (choice.by_queries, False, "queries"))
    ]
    return "\n".join(text for text, _ in parts), *(launch for _, launch in parts)


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
        "out": _result(plain.out, shape, shape.heads, shape.queries, shape.values),
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
        maps["dk"] = _result(plain.dk, shape, shape.groups, shape.keys, shape.features)
        maps["dv"] = _result(plain.dv, shape, shape.groups, shape.keys, shape.values)
    else:
        maps["dq"] = _result(plain.dq, shape, shape.heads, shape.queries, shape.features)
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
    return _operand(matrix, (shape.batch, shape.heads, shape.queries, features), rows)


def _of_keys(matrix: HeadsMatrix, shape: HeadsShape, features: int, rows: int) -> TileMap:
    return _operand(matrix, (shape.batch, shape.groups, shape.keys, features), rows)


def _operand(matrix: HeadsMatrix, shape: tuple[int, int, int, int], rows: int) -> TileMap:
    return TileMap(matrix.slot, shape, (1, 1, rows, SWIZZLED), offset=matrix.offset, strides=(*matrix.strides, 1))


def _result(slot: int, shape: HeadsShape, heads: int, length: int, features: int) -> TileMap:
    return TileMap(slot, (shape.batch, heads, length, features), (1, 1, SWIZZLED, SWIZZLED))
