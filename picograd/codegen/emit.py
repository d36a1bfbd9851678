"""Writes the loops of a Kernel: an emitter for each nest.

In:    Kernel, Target, Opts
Out:   Program in the free form
Called by: road.py.    Next: picograd/codegen/builder.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Scratch
from picograd.codegen.cpu.attention import emit_attention
from picograd.codegen.cpu.attention_grad import emit_attention_grad
from picograd.codegen.cpu.convolution import emit_convolution
from picograd.codegen.cpu.convolution_direct import emit_direct
from picograd.codegen.cpu.direct_tiles import is_direct
from picograd.codegen.cpu.few_rows import as_reduction, emit_few_rows, has_few_rows
from picograd.codegen.cpu.matmul import emit_matmul
from picograd.codegen.cpu.reduce import emit_reduce
from picograd.codegen.cpu.reduce_both import emit_reduce_both, in_one_pass
from picograd.codegen.cpu.scan import emit_scan
from picograd.codegen.cpu.sort import emit_sort
from picograd.codegen.cpu.sort_network import emit_sort_network, has_network
from picograd.codegen.elementwise import emit_elementwise
from picograd.codegen.gpu.attention import emit_attention_gpu
from picograd.codegen.gpu.attention_few import emit_attention_few
from picograd.codegen.gpu.attention_grad import emit_attention_grad_gpu
from picograd.codegen.gpu.convolution import emit_convolution_gpu
from picograd.codegen.gpu.matmul import emit_matmul_gpu
from picograd.codegen.gpu.reduce import emit_reduce_gpu
from picograd.codegen.gpu.scan import emit_scan_gpu
from picograd.codegen.gpu.scatter import emit_scatter_gpu, sorts_updates
from picograd.codegen.gpu.sort import Phase, emit_sort_gpu
from picograd.codegen.scatter import emit_scatter
from picograd.codegen.update import emit_update
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.attention_cuts import as_it_is_cut
from picograd.ir.attention_parts import parts_of
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Opts, RegisterTile, Tile
from picograd.ir.stages import REPORT_WORDS, Kernel, Nest, NestKind, Param, Program
from picograd.ir.statements import Check, For, If, Let, Statement
from picograd.record import replace


def emit(kernel: Kernel, target: Target, opts: Opts) -> Program:
    """Returns the loops of a kernel as its emitters write them."""
    params = [Op(OpCode.PARAM, p.dtype, (), (slot, (p.numel,))) for slot, p in enumerate(kernel.params)]
    scratch: list[Param] = []

    def new_scratch(dtype: DType, numel: Dim) -> Op:
        scratch.append(Param(dtype, numel, "scratch"))
        return Op(OpCode.PARAM, dtype, (), (len(kernel.params) + len(scratch) - 1, (numel,)))

    tiles = iter(opts.products)
    phases: list[tuple[Statement, ...]] = []
    planned, both = in_one_pass(kernel.phases, params, target, new_scratch)
    for nests in planned:
        builders = [Builder(), Builder(), Builder()]
        for nest in nests:
            if both and nest in both:
                emit_reduce_both(both[nest], builders[0])
            else:
                _emit(nest, params, builders, target, tiles, new_scratch)
        phases += [statements for statements in (builder.finish() for builder in builders) if statements]
    return Program(kernel.name, (*kernel.params, *scratch), kernel.variables, tuple(phases))


def each_phase(program: Program, of_phase: Callable[[Sequence[Statement]], tuple[Statement, ...]]) -> Program:
    """Returns a Program whose phases have gone through a pass, one after the other."""
    return replace(program, phases=tuple(map(of_phase, program.phases)))


def with_report(program: Program) -> Program:
    """Returns the Program with a parameter for what its CHECKs find, if it has any."""
    if not any(map(_has_check, program.phases)):
        return program
    return replace(program, params=(*program.params, Param(dtypes.int64, REPORT_WORDS, "report")))


def _has_check(statements: Sequence[Statement]) -> bool:
    for statement in statements:
        if isinstance(statement, Let):  # most are
            continue
        if isinstance(statement, Check) or (isinstance(statement, For | If) and _has_check(statement.body)):
            return True
    return False


def _emit(
    nest: Nest, params: Sequence[Op], builders: list[Builder], target: Target, tiles: Iterator[Tile], scratch: Scratch
) -> None:
    """Writes one nest: into the first of `builders`, or where it has phases of its own into as many of them."""
    first, second, third, *_ = builders
    if nest.kind is NestKind.ELEMENTWISE:
        emit_elementwise(nest, params, first, target)
    elif nest.kind is NestKind.REDUCE and target.is_gpu:
        emit_reduce_gpu(nest, params, first, second, target, scratch)
    elif nest.kind is NestKind.REDUCE:
        emit_reduce(nest, params, first, target)
    elif nest.kind is NestKind.SCAN and target.is_gpu:
        emit_scan_gpu(nest, params, builders, target, scratch)
    elif nest.kind is NestKind.SCAN:
        emit_scan(nest, params, first, target)
    elif nest.kind is NestKind.SORT:
        _emit_sort(nest, params, builders, target, scratch)
    elif nest.kind is NestKind.SCATTER and target.is_gpu and sorts_updates(nest):
        emit_scatter_gpu(nest, params, _phases(builders), target, scratch)
    elif nest.kind is NestKind.SCATTER:
        emit_scatter(nest, params, first, second, target)
    elif nest.kind is NestKind.ATTENTION:
        _emit_attention(nest, params, builders, target, scratch)
    elif nest.kind is NestKind.UPDATE:
        emit_update(nest, params, first, target)
    elif nest.kind is NestKind.CONV and target.is_gpu:
        emit_convolution_gpu(nest, params, first, second, target, scratch)
    elif nest.kind is NestKind.CONV and nest.anchor is not None and is_direct(nest.anchor, target):
        emit_direct(nest, params, first, second, third, target, scratch)
    elif nest.kind is NestKind.CONV:
        emit_convolution(nest, params, first, second, target, scratch)
    elif has_few_rows(nest, target) and target.is_gpu:
        emit_reduce_gpu(as_reduction(nest), params, first, second, target, scratch)
    elif has_few_rows(nest, target):
        emit_few_rows(nest, params, first, second, target, scratch)
    elif not isinstance(tile := next(tiles), RegisterTile):
        emit_matmul_gpu(nest, params, first, second, target, tile, scratch)
    else:
        emit_matmul(nest, params, first, second, target, tile, scratch)


def _emit_attention(nest: Nest, params: Sequence[Op], builders: list[Builder], target: Target, scratch: Scratch) -> None:
    """Writes an ATTENTION or the gradients of one."""
    assert nest.anchor is not None
    first, second, *_ = builders
    parts = parts_of(nest.anchor, target)
    if parts is not None:
        emit_attention_few(nest, params, first, second, target, scratch, parts)
    elif nest.anchor.code is OpCode.ATTENTION and target.is_gpu:
        emit_attention_gpu(replace(nest, anchor=as_it_is_cut(nest.anchor, target)), params, first, second, target, scratch)
    elif nest.anchor.code is OpCode.ATTENTION:
        emit_attention(nest, params, first, target)
    elif target.is_gpu:
        emit_attention_grad_gpu(replace(nest, anchor=as_it_is_cut(nest.anchor, target)), params, builders, target, scratch)
    else:
        emit_attention_grad(nest, params, first, second, target, scratch)


def _emit_sort(nest: Nest, params: Sequence[Op], builders: list[Builder], target: Target, scratch: Scratch) -> None:
    """Writes a SORT; on a GPU it has as many phases as there are merges."""
    if target.is_gpu:
        emit_sort_gpu(nest, params, _phases(builders), target, scratch)
    elif has_network(nest, target):
        emit_sort_network(nest, params, builders[0], target, scratch)
    else:
        emit_sort(nest, params, builders[0], scratch)


def _phases(builders: list[Builder]) -> Phase:
    """Returns what gives the builder of a phase, and makes those that are not there yet."""

    def phase(number: int) -> Builder:
        builders.extend(Builder() for _ in range(len(builders), number + 1))
        return builders[number]

    return phase
