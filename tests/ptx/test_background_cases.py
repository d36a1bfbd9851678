"""Matrices, copies, mbarriers, tiles and warpgroups: the PTX bodies of the headers run here and do what NumPy says.

The cases are those of tests/devices/cuda/primitive_cases.py and hopper_cases.py; the text is NVRTC's for each generation
that has them, run in several orders. Clusters are left out: a block is alone here.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from picograd.device import Target
from picograd.ir.stages import Binary
from tests.devices.cuda.test_primitives import CASES, check, outcome, source_of
from tests.ptx.background import working
from tests.ptx.copies import When
from tests.ptx.device import NVRTC, PtxDevice, compile_nvrtc
from tests.ptx.machine import Order, running

CALLS = re.compile(r"copy_async|load_matrices|mma_m16n8k16")
OF_THIS = [
    name for name, (header, case) in CASES.items()
    if case.cluster == 1 and (header == "hopper.h" or CALLS.search(case.body))
]  # fmt: skip


# Every order of warps, and every moment, of those that the rules allow, at least once.
MOMENTS = [
    *((Order.TOGETHER, when) for when in When),
    (Order.FIRST_WARP, When.LATE), (Order.FIRST_WARP, When.AT_ONCE), (Order.LAST_WARP, When.LATE),
]  # fmt: skip


def target_of(arch: str) -> Target:
    return Target(NVRTC, "cuda", arch, block_threads=256, shared_bytes=99 * 1024)


@cache
def compiled(header: str, arch: str) -> Binary:
    return compile_nvrtc(source_of(header, arch, most_blocks=1), target_of(arch))


@pytest.mark.variants(every=49)
@pytest.mark.parametrize("name", OF_THIS)
def test_it_does_what_is_meant(name: str) -> None:
    header, case = CASES[name]
    for arch in case.archs:
        for order, when in MOMENTS:
            with running(order), working(when):
                found = outcome(PtxDevice(NVRTC, target_of(arch)), compiled(header, arch), name)
            check(found, case.expected, case)
