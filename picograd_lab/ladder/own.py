"""The compiler's own kernels for the problem of a ladder, checked and counted or timed like its rungs.

In:    a Ladder with `tensors`, lengths, a Compiler
Out:   `climb_own`: a `Figure` for each dtype of the ladder's rungs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from picograd.codegen.emit import guess
from picograd.engine.compiler import Compiler
from picograd.engine.plan import parametrize, template
from picograd.errors import ArgumentError, CompileError, ShapeError
from picograd.ir.stages import Executable
from picograd.record import replace
from picograd.road import source_of
from picograd.tensor.tensor import Tensor
from picograd_lab.ladder.counts import compile_counted
from picograd_lab.ladder.gpu import Figure, Ladder, Lengths, Rung, greatest_usage, measured, why_no_problem
from picograd_lab.ladder.runnable import Planned

NAME, IDEA = "picograd", "the compiler's own kernels"


def climb_own(ladder: Ladder, lengths: Lengths, compiler: Compiler) -> Iterator[Figure]:
    """Yields a figure of the compiler's kernels for each float dtype of the rungs.

    Raises:
      VerifyError: a result differs by more than its roundings explain.
    """
    first = {rung.dtype: rung for rung in reversed(ladder.rungs)}
    for dtype, rung in reversed(first.items()):
        name = NAME if dtype.itemsize == 4 else f"{NAME}, {dtype.name}"
        if reason := why_no_problem(ladder, lengths):
            yield Figure(name, IDEA, reason)
            continue
        try:
            yield _figure(Figure(name, IDEA), ladder, rung, lengths, compiler)
        except (ArgumentError, CompileError, ShapeError) as error:
            yield Figure(name, IDEA, error.fact)


def _figure(figure: Figure, ladder: Ladder, rung: Rung, lengths: Lengths, compiler: Compiler) -> Figure:
    device, given = compiler.device, ladder.given(rung, lengths)
    found = ladder.tensors(lengths, *[Tensor(array, device=device.target.device) for array in given])
    results = [result if isinstance(result, list) else [result] for result in found]
    roots = [part.op for result in results for part in result]
    form = template(roots)
    schedule = compiler.schedule(parametrize(roots, form))
    kernels = [item.kernel for item in schedule.kernel_items()]
    is_simulated, registers = device.target.arch == "sim", None
    if is_simulated:
        sources = [source_of(k, device.target, guess(k, device.target), compiler.backend.render) for k in kernels]
        executables: Sequence[Executable] = [device.load(compile_counted(source)) for source in sources]
        with suppress(CompileError):  # without NVRTC
            registers = greatest_usage(sources, "sm_80").registers
    else:
        executables = compiler.executables(kernels)
    inputs = [form.buffers[op.arg[0]] for op in schedule.inputs]
    made = Planned(device, schedule, executables, inputs, [len(result) for result in results])
    return measured(replace(figure, registers=registers), ladder, rung, lengths, device, made)
