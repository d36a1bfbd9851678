"""What lowering costs: calls of functions, of which it makes some 30 for a statement of a Program."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from picograd.codegen.passes.bounds import prove_bounds
from picograd.device import Target
from picograd.devices.cpu.render import render
from picograd.engine.plan import parametrize, template
from picograd.ir.op import Op
from picograd.ir.stages import Kernel, Program
from picograd.ir.statements import walk
from picograd.ir.symbolic import forget_sums
from picograd.road import create_schedule, lower, schedule_graphs
from tests.calls import calls
from tests.codegen.test_convolution_cpu import conv, param
from tests.codegen.test_convolution_direct import images
from tests.counts.workloads import WORKLOADS
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

# workload -> most calls of functions on the way from its kernels to Programs: for a CPU, and for a GPU
MOST: dict[str, tuple[int, int]] = {
    "exp": (1_410, 810),
    "product layer": (14_750, 22_500),
    "softmax rows": (7_580, 6_270),
    "sum columns": (1_970, 3_360),
    "layer conv": (33_400, 44_400),
    "layer layer_norm": (14_270, 9_400),
    "sort rows": (5_620, 11_820),
    "cumsum rows": (1_560, 7_980),
    "index scatter": (4_240, 5_030),
    "random": (5_730, 7_870),
    "sin float16": (11_850, 1_430),
    "attention": (42_540, 44_000),
    "padded": (2_060, 3_150),
    "symbolic dot": (43_700, 35_650),
    "written in place": (2_550, 3_270),
}

# workload -> which part of the calls of lowering for a CPU the proof of bounds may make, where it is more than PROOF_PART
PROOF_PART = 0.23
PROOF = {
    "sort rows": 0.32, "index scatter": 0.47, "symbolic dot": 0.5, "layer conv": 0.29, "padded": 0.32, "cumsum rows": 0.29,
}  # fmt: skip
RENDERED_MOST = 21  # calls for a statement that is written as LLVM IR


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", MOST)
def test_lowering_calls_few_functions(name: str) -> None:
    for target, most in zip((CPU_TARGETS[1], GPU_TARGET), MOST[name]):
        kernels = kernels_of(name, target)
        kept = lowered(kernels, target)  # so that no Op is new
        assert calls(partial(lowered, kernels, target)) <= most
        del kept


@pytest.mark.parametrize(("target", "most"), [(CPU_TARGETS[1], 102_000), (CPU_TARGETS[2], 79_600)], ids=["avx2", "avx512"])
def test_lowering_a_convolution_of_images_of_many_sizes_calls_few_functions(target: Target, most: int) -> None:
    """Places in a block are divided without signs: with signs, which proofs take apart, it is 133,800 and 231,100 calls."""
    (item,) = create_schedule([conv(images(), param(1, 20, 20, 3, 3), padding=1)], target).kernel_items()
    kept = lowered([item.kernel], target)  # so that no Op is new
    assert calls(partial(lowered, [item.kernel], target)) <= most
    del kept


def kernels_of(name: str, target: Target) -> list[Kernel]:
    roots = [tensor.op for tensor in WORKLOADS[name]()]
    return [item.kernel for item in schedule_graphs(parametrize(roots, template(roots)), target).kernel_items()]


def lowered(kernels: Sequence[Kernel], target: Target) -> list[Program]:
    forget_sums()  # as where a plan is made
    return [lower(kernel, target) for kernel in kernels]


@pytest.mark.variants
@pytest.mark.parametrize("name", MOST)
def test_a_proof_of_bounds_is_a_small_part_of_lowering(name: str) -> None:
    """In calls; most of the time of the whole way to machine code is LLVM's."""
    kernels = kernels_of(name, CPU_TARGETS[1])
    programs = lowered(kernels, CPU_TARGETS[1])
    proof = calls(lambda: [prove_bounds(program, itertools.count(10**6)) for program in programs])
    whole = calls(partial(lowered, kernels, CPU_TARGETS[1]))
    assert proof <= PROOF.get(name, PROOF_PART) * whole


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", MOST)
def test_rendering_calls_few_functions_a_statement(name: str) -> None:
    programs = lowered(kernels_of(name, CPU_TARGETS[1]), CPU_TARGETS[1])
    num_statements = sum(len(walk(statements)) for program in programs for statements in program.phases)
    assert calls(lambda: [render(program, CPU_TARGETS[1]) for program in programs]) <= RENDERED_MOST * num_statements


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", MOST)
@pytest.mark.parametrize("target", [CPU_TARGETS[1], GPU_TARGET], ids=["cpu", "gpu"])
def test_scheduling_and_lowering_leave_no_op_in_a_cycle(name: str, target: Target) -> None:
    """It would live until Python looks for garbage, and looking took a tenth of a training's first epoch."""
    assert ops_in_cycles(lambda: lowered(kernels_of(name, target), target)) == []


def ops_in_cycles(work: Callable[[], object]) -> list[Op]:
    """Returns the Ops that only the garbage collector can free once `work` is done."""
    gc.collect()
    gc.disable()
    try:
        work()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [found for found in gc.garbage if isinstance(found, Op)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
