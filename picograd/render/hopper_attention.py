"""Writes an attention by warpgroups as CUDA C: constants for kernels/cuda/hopper_attention.h.

In:    WrittenAttention, the parameters of its kernel
Out:   `function_of`: a function's text, and its Launch with maps of tiles
Called by: engine/written.py.    Next: picograd/render/blocks.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.ir.opts import SWIZZLED, HeadsMatrix, HeadsTile, PlainAttention, WrittenAttention
from picograd.ir.stages import Launch, Param, TileMap
from picograd.render.cuda import param_type

HEADER = '#include "hopper_attention.h"\n'
MAPS = ("q", "k", "v", "out")


def function_of(choice: WrittenAttention, params: Sequence[Param], symbol: str) -> tuple[str, Launch]:
    """Returns the function of an attention, behind HEADER, and its launch."""
    attention, tile = choice.attention, choice.tile
    given = [f"{param_type(param)} p{slot}" for slot, param in enumerate(params)]
    given += [f"TILE_MAP({name})" for name in MAPS]
    cut, slot = f"Cut_{symbol}", attention.logsumexp
    text = "\n".join([
        f"struct {cut} {{",
        f"  typedef {attention.dtype} T;",
        *[f"  static const int32 {name} = {value};" for name, value in _constants(attention, tile).items()],
        f"  static constexpr float32 SCALE = {attention.scale!r}f;",
        "};",
        f'extern "C" __global__ void __launch_bounds__({tile.threads}, 1) {symbol}({", ".join(given)}) {{',
        f"  attend<{cut}>({', '.join(MAPS)}, [&](int64 index, float32 logsumexp) {{",
        *([] if slot is None else [f"    p{slot}[index] = logsumexp;"]),
        "  });",
        "}",
        "",
    ])  # fmt: skip
    nbytes = shared_nbytes(attention, tile)
    return text, Launch(symbol, tile.blocks, tile.threads, attention.work, nbytes, _maps(attention, tile))


def shared_nbytes(attention: PlainAttention, tile: HeadsTile) -> int:
    """Returns the bytes of shared memory that a block asks for."""
    return attention.nbytes(tile.rows) + tile.stages * attention.nbytes(tile.columns)


def _constants(attention: PlainAttention, tile: HeadsTile) -> dict[str, int]:
    return {
        "BATCH": attention.batch, "HEADS": attention.heads, "GROUPS": attention.groups, "QUERIES": attention.queries,
        "KEYS": attention.keys, "FEATURES": attention.features, "VALUES": attention.values, "CAUSAL": int(attention.causal),
        "LOOKERS": tile.lookers, "COLUMNS": tile.columns, "STAGES": tile.stages, "TOGETHER": tile.together,
    }  # fmt: skip


def _maps(attention: PlainAttention, tile: HeadsTile) -> tuple[TileMap, ...]:
    batch, heads, groups = attention.batch, attention.heads, attention.groups
    keys = (batch, groups, attention.keys)
    return (
        _operand(attention.q, (batch, heads, attention.queries, attention.features), tile.rows),
        _operand(attention.k, (*keys, attention.features), tile.columns),
        _operand(attention.v, (*keys, attention.values), tile.columns),
        TileMap(attention.out, (batch, heads, attention.queries, attention.values), (1, 1, SWIZZLED, SWIZZLED)),
    )


def _operand(matrix: HeadsMatrix, shape: tuple[int, int, int, int], rows: int) -> TileMap:
    return TileMap(matrix.slot, shape, (1, 1, rows, SWIZZLED), offset=matrix.offset, strides=(*matrix.strides, 1))
