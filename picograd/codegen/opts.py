"""Proposes the choices of a kernel: the one a rule of thumb takes, then the few that are worth timing.

In:    Kernel, Target
Out:   Opts, the best guess first

The guess looks at shapes and the target alone. No proposal changes a bit of the result: the order of the sum over K
is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.matmul_cpu import better_transposed, has_few_rows, register_tile, register_tiles
from picograd.codegen.matmul_gpu import gpu_tile, other_block_tiles, other_warp_tiles
from picograd.device import Target
from picograd.ir.opts import BlockTile, Opts, Tile, WarpTile
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Kernel, Nest, NestKind


def candidates(kernel: Kernel, target: Target) -> tuple[Opts, ...]:
    """Returns the candidates of tuning: the best guess first, then others that cut one product differently."""
    best = guess(kernel, target)
    found = [best]
    for place, (nest, tile) in enumerate(zip(_products(kernel, target), best.products)):
        for other in _others(nest, tile, target):
            found.append(Opts((*best.products[:place], other, *best.products[place + 1 :])))
    return tuple(dict.fromkeys(found))


def _others(nest: Nest, tile: Tile, target: Target) -> Sequence[Tile]:
    """Returns other tiles of a product."""
    if isinstance(tile, BlockTile):
        return other_block_tiles(tile)
    return other_warp_tiles(tile) if isinstance(tile, WarpTile) else register_tiles(nest, tile, target)


def guess(kernel: Kernel, target: Target) -> Opts:
    """Returns the choices that a rule of thumb takes."""
    return Opts(tuple(best_guess(nest, target) for nest in _products(kernel, target)))


def _products(kernel: Kernel, target: Target) -> list[Nest]:
    """Returns the matrix products whose tile can be tuned."""
    nests = [nest for phase in kernel.phases for nest in phase if nest.kind is NestKind.MATMUL]
    return [nest for nest in nests if not has_few_rows(nest, target)]


def best_guess(nest: Nest, target: Target) -> Tile:
    """Returns the tile of a product that a rule of thumb takes."""
    if target.is_gpu:
        anchor = nest.anchor
        assert anchor is not None
        *batch, m, n = anchor.shape
        return gpu_tile(m, n, anchor.src[0].shape[-1], numel(batch), anchor.dtype, target, takes_tf32(anchor))
    return register_tile(nest, better_transposed(nest), target)
