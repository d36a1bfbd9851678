"""Writes the loops of a Kernel: an emitter for each nest, and a tile for each product.

In:    Kernel, Target
Out:   `guess`, `candidates`: Opts, the best guess first;  `emit`: Program in the free form

The guess depends on shapes and the target alone. All candidates add up K in the same order, and so give the same bits.

A file whose name ends in _cpu or _gpu is for one kind of machine and imports none for the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from picograd import dtype as dtypes
from picograd.codegen.attention import matrix_at, places_of
from picograd.codegen.attention_cpu import emit_attention, emit_attention_grad
from picograd.codegen.attention_gpu import emit_attention_few, emit_attention_gpu, emit_attention_grad_gpu
from picograd.codegen.builder import Context
from picograd.codegen.convolution_boxes import emit_boxes, has_boxes
from picograd.codegen.convolution_cpu import emit_convolution, emit_planes, has_planes
from picograd.codegen.convolution_direct import emit_direct
from picograd.codegen.convolution_tiles import is_direct
from picograd.codegen.elementwise import emit_elementwise, emit_update
from picograd.codegen.matmul_cpu import (
    as_reduction,
    better_transposed,
    emit_few_rows,
    emit_matmul,
    has_few_rows,
    register_tile,
    register_tiles,
)
from picograd.codegen.matmul_gpu import emit_convolution_gpu, emit_matmul_gpu, gpu_tile, other_block_tiles, other_warp_tiles
from picograd.codegen.reduce import Both, in_one_pass
from picograd.codegen.reduce_cpu import emit_reduce, emit_reduce_both, walk_both
from picograd.codegen.reduce_gpu import emit_reduce_both_gpu, emit_reduce_gpu, walk_both_gpu
from picograd.codegen.scan import emit_scan, emit_scan_gpu
from picograd.codegen.scatter import emit_scatter, emit_scatter_gpu, sorts_updates
from picograd.codegen.sort import emit_first_places, emit_ranks_gpu, emit_sort_gpu, keeps_few
from picograd.codegen.sort_cpu import emit_sort_network, emit_sort_row, has_network
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.attention import parts_of
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import BlockTile, Opts, Tile, WarpTile
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import REPORT_WORDS, Kernel, Nest, NestKind, Param, Program
from picograd.ir.statements import Check, Statement, walk
from picograd.record import replace


# ---- choices ----
def candidates(kernel: Kernel, target: Target) -> tuple[Opts, ...]:
    """Returns the candidates of tuning: the best guess first, then others that differ in the tile of one product."""
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
    """Returns the choices for a kernel by rule of thumb."""
    return Opts(tuple(best_guess(nest, target) for nest in _products(kernel, target)))


def _products(kernel: Kernel, target: Target) -> list[Nest]:
    """Returns the matrix products whose tile can be tuned."""
    nests = [nest for phase in kernel.phases for nest in phase if nest.kind is NestKind.MATMUL]
    return [nest for nest in nests if not has_few_rows(nest, target)]


def best_guess(nest: Nest, target: Target) -> Tile:
    """Returns the tile of a product by rule of thumb."""
    if target.is_gpu:
        anchor = nest.anchor
        *batch, m, n = anchor.shape
        return gpu_tile(m, n, anchor.src[0].shape[-1], numel(batch), anchor.dtype, target, takes_tf32(anchor))
    return register_tile(nest, better_transposed(nest), target)


# ---- emitters ----
# The emitters of each kind of nest: the first whose condition holds writes it.
Condition = Callable[[Nest, Target], bool]
Emit = Callable[[Nest, Context], None]


def _always(nest: Nest, target: Target) -> bool:
    return True


def _on_gpu(condition: Condition) -> Condition:
    """Returns a condition that holds on GPUs alone."""
    return lambda nest, target: target.is_gpu and condition(nest, target)


def _of_anchor(condition: Callable[[Op, Target], bool]) -> Condition:
    """Returns a condition on the Op that a nest is built around."""
    return lambda nest, target: nest.anchor is not None and condition(nest.anchor, target)


def _emit_few_rows_gpu(nest: Nest, context: Context) -> None:
    emit_reduce_gpu(as_reduction(nest), context)


_gpu = _on_gpu(_always)
_has_parts = _of_anchor(lambda anchor, target: parts_of(anchor, target) is not None)
_has_ranks = _of_anchor(lambda anchor, target: len(anchor.src) > 1)
_is_gradient = _of_anchor(lambda anchor, target: anchor.code is OpCode.ATTENTION_GRAD)
EMITTERS: dict[NestKind, tuple[tuple[Condition, Emit], ...]] = {
    NestKind.ELEMENTWISE: ((_always, emit_elementwise),),
    NestKind.REDUCE: ((_gpu, emit_reduce_gpu), (_always, emit_reduce)),
    NestKind.SCAN: ((_gpu, emit_scan_gpu), (_always, emit_scan)),
    NestKind.SORT: (
        (keeps_few, emit_first_places),
        (_on_gpu(_has_ranks), emit_ranks_gpu),
        (_gpu, emit_sort_gpu),
        (has_network, emit_sort_network),
        (_always, emit_sort_row),
    ),
    NestKind.SCATTER: ((sorts_updates, emit_scatter_gpu), (_always, emit_scatter)),
    NestKind.UPDATE: ((_always, emit_update),),
    NestKind.ATTENTION: (
        (_has_parts, emit_attention_few),
        (_on_gpu(_is_gradient), emit_attention_grad_gpu),
        (_is_gradient, emit_attention_grad),
        (_gpu, emit_attention_gpu),
        (_always, emit_attention),
    ),
    NestKind.CONV: (
        (_gpu, emit_convolution_gpu),
        (_of_anchor(is_direct), emit_direct),
        (_of_anchor(has_boxes), emit_boxes),
        (_of_anchor(has_planes), emit_planes),
        (_always, emit_convolution),
    ),
    NestKind.MATMUL: (
        (_on_gpu(has_few_rows), _emit_few_rows_gpu),
        (has_few_rows, emit_few_rows),
        (_gpu, emit_matmul_gpu),
        (_always, emit_matmul),
    ),
}


def emit(kernel: Kernel, target: Target, opts: Opts) -> Program:
    """Returns the loops of a kernel, written by its emitters."""
    params = [Op(OpCode.PARAM, p.dtype, (), (slot, (p.numel,))) for slot, p in enumerate(kernel.params)]
    scratch, phases = list[Param](), list[tuple[Statement, ...]]()

    def new_scratch(dtype: DType, numel: Dim) -> Op:
        scratch.append(Param(dtype, numel, "scratch"))
        return Op(OpCode.PARAM, dtype, (), (len(kernel.params) + len(scratch) - 1, (numel,)))

    context = Context(params, target, new_scratch, iter(opts.products))
    planned, both = kernel.phases, dict[Nest, Both]()
    if target.is_gpu and planned[0][0].kind is NestKind.ATTENTION:
        context.places, rest = places_of(kernel, matrix_at)
        planned = (planned[0], *rest)
    # Reductions over the rows and over the columns of one input are written together, all other nests by the table.
    if sum(map(len, planned)) > 1:
        walk_of = partial(walk_both_gpu if target.is_gpu else walk_both, params=params, target=target)
        planned, both = in_one_pass(planned, params, walk_of, new_scratch)
    for nests in planned:
        context.is_alone = len(nests) == 1
        for nest in nests:
            if both and nest in both:
                write_both = partial(emit_reduce_both_gpu, target=target) if target.is_gpu else emit_reduce_both
                write_both(both[nest], context.phase(0))
            else:
                next(write for holds, write in EMITTERS[nest.kind] if holds(nest, target))(nest, context)
        phases += context.finish()
    return Program(kernel.name, (*kernel.params, *scratch), kernel.variables, tuple(phases))


def each_phase(program: Program, of_phase: Callable[[Sequence[Statement]], tuple[Statement, ...]]) -> Program:
    """Returns a Program with each phase transformed by a pass."""
    return replace(program, phases=tuple(map(of_phase, program.phases)))


def with_report(program: Program) -> Program:
    """Returns the Program with a parameter for the reports of its CHECKs, if it has any."""
    checks = any(Check in map(type, walk(phase)) for phase in program.phases)
    return replace(program, params=(*program.params, Param(dtypes.int64, REPORT_WORDS, "report"))) if checks else program
