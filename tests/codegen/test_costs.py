"""What lowering costs: calls of functions, of which it makes some 30 for a statement of a Program."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

import pytest

from picograd.codegen.lower import lower
from picograd.codegen.passes.bounds import prove_bounds
from picograd.device import Target
from picograd.engine.plan import parametrize, schedule_graphs, template
from picograd.ir.stages import Kernel, Program
from picograd.render.llvm import render
from tests.calls import calls
from tests.counts.workloads import WORKLOADS
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

# workload -> most calls of functions on the way from its kernels to Programs: for a CPU, and for a GPU
MOST: dict[str, tuple[int, int]] = {
    "exp": (2_270, 1_410),
    "product layer": (18_550, 29_130),
    "softmax rows": (9_160, 7_700),
    "sum columns": (2_380, 3_710),
    "layer conv": (43_300, 64_210),
    "layer layer_norm": (16_580, 12_420),
    "sort rows": (6_100, 20_850),
    "cumsum rows": (1_890, 9_280),
    "index scatter": (4_280, 5_660),
    "random": (8_890, 10_320),
    "sin float16": (14_970, 1_610),
    "attention": (56_560, 60_880),
    "padded": (2_400, 3_490),
    "symbolic dot": (47_410, 42_520),
    "written in place": (3_330, 3_950),
}

# workload -> which part of the calls of lowering and rendering for a CPU the proof of bounds may make, where it is more
PROOF = {
    "sum columns": 0.17, "sort rows": 0.17, "index scatter": 0.28, "symbolic dot": 0.29, "layer conv": 0.2, "padded": 0.18,
}  # fmt: skip


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
    return [lower(kernel, target) for kernel in kernels]


@pytest.mark.parametrize("name", MOST)
def test_a_proof_of_bounds_is_a_small_part_of_lowering_and_rendering(name: str) -> None:
    """In calls; of the time of the whole way to machine code, most of which is LLVM's, it is a third of that part."""
    kernels = kernels_of(name, CPU_TARGETS[1])
    programs = lowered(kernels, CPU_TARGETS[1])
    proof = calls(lambda: [prove_bounds(program, itertools.count(10**6)) for program in programs])
    whole = calls(partial(lowered, kernels, CPU_TARGETS[1]))
    whole += calls(lambda: [render(program, CPU_TARGETS[1]) for program in programs])
    assert proof <= PROOF.get(name, 0.15) * whole
