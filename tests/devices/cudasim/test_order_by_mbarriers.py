"""Threads that mbarriers and warps order, with no barrier of the block between: who says too little has a race.

The kernels are hopper_cases.py's: a thread copies tiles to two stages, two warps read them and give them back.
"""

from __future__ import annotations

import re

import pytest

from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.errors import DeviceError
from picograd.record import replace
from tests.devices.cuda import test_primitives
from tests.devices.cuda.test_primitives import outcome, source_of
from tests.host_compilers import needs_compiler

WARP, ALL = "a stream that a thread a warp give back", "a stream that all threads give back"
# Of which kernel what is replaced, by what, and what is said in one of the orders.
BUGS = {
    "a warp that does not wait for its threads": (WARP, r"sync_warp\(\); ", "", "race: copies to tiles"),
    "a thread arrives before it reads": (
        ALL,
        r"(mbarrier_wait\(full.*\n)(.*\n.*)mbarrier_arrive\(empty, k % 2\);",
        r"\1 mbarrier_arrive(empty, k % 2);\n\2",
        "race: copies to tiles",
    ),
    "one thread arrives for all": (
        ALL,
        r"mbarrier_arrive\(empty, k % 2\);",
        "if (i == 0) for (int32 n = 0; n < 64; n++) mbarrier_arrive(empty, k % 2);",
        "race: copies to tiles",
    ),
    "a wait by one thread a warp": (
        WARP,
        r"mbarrier_wait\(full",
        "if (i % 32 == 0) mbarrier_wait(full",
        "no wait for full",
    ),
    "written for the next thread": (
        ALL,
        r"(float32 sum = 0.0f;)",
        r"\1 tiles[i] = sum;",
        "race: copies|race: writes|on its way",
    ),
    "read by a warp that is not waited for": (
        ALL,
        r"if \(i < 64\) \{",
        "if (i >= 65) {\n    mbarrier_wait(full, 0, 0);\n    p2[0] = tiles[i];\n  }\n  if (i < 64) {",
        "race: copies to tiles",
    ),
    "initialised by each thread": (ALL, r"  if \(i == 0\) \{", "  {", "which is initialised"),
    "for no arrival": (ALL, r"empty, stage, \d+\)", "empty, stage, 0)", "for 0 arrivals"),
    "a parity of 2": (ALL, r"k / 2 % 2\);", "2 + k / 2 % 2);", "with parity 2; it is 0 or 1"),
    "an atomic beside a copy": (
        ALL,
        r"(float32 sum = 0.0f;)",
        r"\1 atomic_add(tiles, i, sum);",
        "not written|on its way|race",
    ),
}


@pytest.mark.variants(every=3)
@needs_compiler
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, pattern, becomes, says = BUGS[bug]
    header, case = test_primitives.CASES[name]
    body, count = re.subn(pattern, becomes, case.body, count=1)
    assert count == 1, "the kernel has no such place any more"
    monkeypatch.setitem(test_primitives.CASES, name, (header, replace(case, body=body)))
    text = f'#include "hopper.h"\n\n{test_primitives.kernel_of(name)}'
    whole = source_of(header)
    launches = tuple(launch for launch in whole.launches if launch.symbol == test_primitives.symbol_of(name))
    binary, messages = hostcxx.compile_source(replace(whole, text=text, launches=launches), TARGET), []
    for order in ORDERS:
        try:
            outcome(CudaSimDevice(order, 2), binary, name)
        except DeviceError as error:
            messages.append(error.fact)
    assert any(re.search(says, message) for message in messages), messages
