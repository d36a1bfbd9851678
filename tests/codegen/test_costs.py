"""What lowering costs: calls of functions, of which it makes some 30 for a statement of a Program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import pytest

from picograd.codegen.passes.bounds import prove_bounds
from picograd.device import Target
from picograd.devices.cpu.render import render
from picograd.engine.plan import parametrize, template
from picograd.ir.stages import Kernel, Program
from picograd.ir.symbolic import forget_sums
from picograd.road import lower, schedule_graphs
from tests.calls import calls
from tests.counts.workloads import WORKLOADS
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

# workload -> most calls of functions on the way from its kernels to Programs: for a CPU, and for a GPU
MOST: dict[str, tuple[int, int]] = {
    "exp": (1_410, 780),
    "product layer": (14_870, 21_610),
    "softmax rows": (7_750, 6_120),
    "sum columns": (1_960, 3_340),
    "layer conv": (31_500, 43_910),
    "layer layer_norm": (14_540, 9_250),
    "sort rows": (4_860, 17_890),
    "cumsum rows": (1_560, 7_920),
    "index scatter": (3_710, 4_980),
    "random": (5_740, 7_880),
    "sin float16": (10_770, 1_230),
    "attention": (45_120, 41_660),
    "padded": (1_940, 2_770),
    "symbolic dot": (39_450, 32_420),
    "written in place": (2_450, 3_130),
}

# workload -> which part of the calls of lowering and rendering for a CPU the proof of bounds may make, where it is more
PROOF = {
    "sum columns": 0.17, "sort rows": 0.19, "index scatter": 0.3, "symbolic dot": 0.31, "layer conv": 0.2, "padded": 0.2,
    "cumsum rows": 0.17,
}  # fmt: skip


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", MOST)
def test_lowering_calls_few_functions(name: str) -> None:
    for target, most in zip((CPU_TARGETS[1], GPU_TARGET), MOST[name]):
        kernels = kernels_of(name, target)
        kept = lowered(kernels, target)  # so that no Op is new
        assert calls(partial(lowered, kernels, target)) <= most
        del kept


def kernels_of(name: str, target: Target) -> list[Kernel]:
    roots = [tensor.op for tensor in WORKLOADS[name]()]
    return [item.kernel for item in schedule_graphs(parametrize(roots, template(roots)), target).kernel_items()]


def lowered(kernels: Sequence[Kernel], target: Target) -> list[Program]:
    forget_sums()  # as where a plan is made
    return [lower(kernel, target) for kernel in kernels]


@pytest.mark.variants
@pytest.mark.parametrize("name", MOST)
def test_a_proof_of_bounds_is_a_small_part_of_lowering_and_rendering(name: str) -> None:
    """In calls; of the time of the whole way to machine code, most of which is LLVM's, it is a third of that part."""
    kernels = kernels_of(name, CPU_TARGETS[1])
    programs = lowered(kernels, CPU_TARGETS[1])
    proof = calls(lambda: [prove_bounds(program, itertools.count(10**6)) for program in programs])
    whole = calls(partial(lowered, kernels, CPU_TARGETS[1]))
    whole += calls(lambda: [render(program, CPU_TARGETS[1]) for program in programs])
    assert proof <= PROOF.get(name, 0.15) * whole
