"""Kernels that go around the simulator's accessors: test_sanitizers.py has the sanitizers find them."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import TARGET, CudaSimDevice
from picograd.ir.stages import Launch, Param, Source
from tests.gpu_programs import run

BODIES = {
    "address": "p0.elements[64 + threadIdx.x] = 1;",
    "shift": "p0[threadIdx.x] = 1 << (40 + (int32)threadIdx.x);",
    "stack": "volatile int32 own[4]; own[threadIdx.x + 3] = 1; p0[threadIdx.x] = own[0];",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_seeded(body: str) -> None:
    text = f'#include "primitives.h"\n\nextern "C" __global__ void seeded_0(Global<int32> p0) {{ {body} }}\n'
    source = Source("seeded", "cuda", text, (Param(dtypes.int32, 64, "out"),), (), (Launch("seeded_0", 1, 32, 1),))
    device = CudaSimDevice()
    run(device, device.load(hostcxx.compile_source(source, TARGET)), [np.zeros(64, np.int32)])
