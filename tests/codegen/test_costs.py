"""What lowering costs: calls of functions, of which it makes some 30 for a statement of a Program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from picograd.codegen.lower import lower
from picograd.device import Target
from picograd.engine.plan import parametrize, schedule_graphs, template
from picograd.ir.stages import Kernel, Program
from tests.calls import calls
from tests.counts.workloads import WORKLOADS
from tests.same_meaning import CPU_TARGETS, GPU_TARGET

# workload -> most calls of functions on the way from its kernels to Programs: for a CPU, and for a GPU
MOST: dict[str, tuple[int, int]] = {
    "exp": (2_510, 1_060),
    "product layer": (14_780, 16_330),
    "softmax rows": (11_530, 5_360),
    "sum columns": (2_250, 1_120),
    "layer conv": (24_050, 11_790),
    "layer layer_norm": (10_730, 6_760),
    "sort rows": (4_810, 4_290),
    "cumsum rows": (1_650, 1_710),
    "index scatter": (2_930, 2_580),
    "random": (19_920, 12_920),
    "sin float16": (18_410, 980),
    "attention": (49_850, 54_660),
    "padded": (2_050, 2_320),
    "symbolic dot": (28_000, 30_560),
    "written in place": (3_000, 2_650),
}


@pytest.mark.parametrize("name", MOST)
def test_lowering_calls_few_functions(name: str) -> None:
    roots = [tensor.op for tensor in WORKLOADS[name]()]
    kernels = [item.kernel for item in schedule_graphs(parametrize(roots, template(roots))).kernel_items()]
    for target, most in zip((CPU_TARGETS[1], GPU_TARGET), MOST[name]):
        kept = lowered(kernels, target)  # so that no Op is new
        assert calls(partial(lowered, kernels, target)) <= most
        del kept


def lowered(kernels: Sequence[Kernel], target: Target) -> list[Program]:
    return [lower(kernel, target) for kernel in kernels]
