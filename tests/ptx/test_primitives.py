"""Every primitive of the CUDA headers by the PTX that NVRTC makes of its body for the GPU, inline PTX among it.

The kernels and what they mean are those of tests/devices/cuda/primitive_cases.py; those that call matrix instructions or
copy in the background are in test_background_cases.py.
"""

from __future__ import annotations

from functools import cache

import pytest

from picograd.ir.stages import Binary
from picograd.record import replace
from tests.devices.cuda.primitive_cases import CASES
from tests.devices.cuda.test_primitives import check, outcome, source_of
from tests.ptx.device import NVRTC, TARGETS, PtxDevice, compile_nvrtc
from tests.ptx.test_background_cases import OF_THIS

ARCHS = ("sm_80", "sm_90a")


@cache
def compiled(arch: str) -> Binary:
    return compile_nvrtc(source_of("primitives.h", arch), replace(TARGETS[NVRTC], arch=arch))


@pytest.mark.variants(every=15)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", [name for name in CASES if name not in OF_THIS])
def test_the_body_for_a_gpu_does_what_is_meant(name: str, arch: str) -> None:
    case = CASES[name]
    check(outcome(PtxDevice(NVRTC), compiled(arch), name), case.expected, case)
