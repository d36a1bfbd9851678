"""A product by warps that copy and warpgroups that multiply, as NVRTC's PTX, run here; and what is wrong in it is found.

The kernel is tests/devices/cuda/hopper_product.cu; most bugs are changes of its text, the others of its PTX.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from picograd.errors import DeviceError
from picograd.ir.stages import Binary, TileMap
from picograd.record import replace
from tests.devices.cuda.test_hopper_product import BUGS, MAPS, TEXT, changed, operands, source_of
from tests.gpu_programs import run
from tests.ptx.background import working
from tests.ptx.copies import When
from tests.ptx.device import NVRTC, PtxDevice, compile_nvrtc
from tests.ptx.machine import Order, running
from tests.ptx.test_background_cases import MOMENTS, target_of

TARGET = target_of("sm_90a")


def right_one() -> Binary:
    return compile_nvrtc(source_of(), TARGET)


def of_one_block(binary: Binary) -> Binary:
    """Returns a launch of the first block of four: 128 rows of 64 columns are enough to see what is wrong."""
    return replace(binary, launches=(replace(binary.launches[0], grid=1),))


def outcome(binary: Binary, order: Order, when: When) -> np.ndarray:
    lhs, rhs, expected = operands()
    found = np.zeros_like(expected)
    device = PtxDevice(NVRTC, TARGET)
    with running(order), working(when):
        run(device, device.load(binary), [lhs, rhs, found])
    return found


def found_wrong(binary: Binary) -> str | None:
    """Returns what is said of the first block, "wrong" where only its numbers say it, None where nothing does."""
    _, _, expected = operands()
    for order, when in MOMENTS:
        try:
            found = outcome(of_one_block(binary), order, when)
        except DeviceError as error:
            return error.fact
        if not np.array_equal(found[:128, :64], expected[:128, :64]):
            return "wrong"
    return None


@pytest.mark.variants(every=7)
@pytest.mark.parametrize(("order", "when"), MOMENTS)
def test_it_is_exact_at_every_moment(order: Order, when: When) -> None:
    np.testing.assert_array_equal(outcome(right_one(), order, when), operands()[2])


# ---- seeded bugs ----
SAYS = {  # where a rule is broken, how it is said; else the result shows it, or a wait that never ends
    "no wait for a stage": "read in the background: not written",
    "a consumer's parity": "read in the background: not written",
    "no wait for an empty stage": "1 more, where 1 of 1 have arrived|nobody can go on",
    "no fence before a wgmma": "before any wgmma.fence",
    "sums written without a fence": "was written with no wgmma.fence behind it",
    "sums changed on their way": "was written while a wgmma adds to it",
    "a group that is left open": "ends while a wgmma adds to its registers",
    "no wait before the sums are read": "ends while a wgmma adds to its registers",
    "warps that go apart": "did not execute the same instructions",
    "no fence behind initialising": "no fence.mbarrier_init",
    "no barrier behind initialising": "which nobody wrote",
    "no fence of the proxy": "no fence.proxy.async shows it",
    "a fence before what it is for": "no fence.proxy.async shows it",
    "no wait for a store": "a store still reads its shared memory",
    "a store that is not committed": "no group was closed over",
    "written while it is stored": "was written while a store still reads it",
    "a copy nobody waits for": "copies to its shared memory are on their way",
    "two threads copy": "1 more, where 1 of 1 have arrived",
}


@pytest.mark.variants(every=10)
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    said = found_wrong(compile_nvrtc(source_of(changed(name)), TARGET))
    assert said is not None and re.search(SAYS.get(name, "wrong|nobody can go on|background"), said), said


# A descriptor: 128 bytes of swizzle, 1024 bytes from eight rows to the next eight, and a field that is not looked at.
WORD = 1 << 62 | 64 << 32 | 1 << 16
OF_PTX = {
    "half the distance of eight rows": (str(WORD), str(WORD - (32 << 32)), "wrong"),
    "the other distance": (str(WORD), str(1 << 62 | 1 << 32 | 64 << 16), "wrong"),
    "a swizzle of 64 bytes": (str(WORD), str(WORD + (1 << 62)), "wrong|background"),
    "no swizzle": (str(WORD), str(WORD - (1 << 62)), "wrong|background"),
    "an unknown field": (str(WORD), str(WORD | 1 << 46), "belong to no field"),
    "the operand on the right turned": (r"p, 1, 1, 0, 0;", "p, 1, 1, 0, 1;", "wrong|background"),
    "the operand on the left negated": (r"p, 1, 1, 0, 0;", "p, -1, 1, 0, 0;", "wrong"),
    "two accumulators change places": (r"bf16 \{(%f\d+), (%f\d+),", r"bf16 {\2, \1,", "wrong"),
    "nobody waits for products": (
        r"wgmma.wait_group.sync.aligned 0",
        "wgmma.wait_group.sync.aligned 1",
        "ends while a wgmma",
    ),
    "a wait for one group less": (r"wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 2", "wrong|written"),
    "a store that is not waited for": (
        r"bulk.wait_group.read 0",
        "bulk.wait_group.read 1",
        "still reads its shared memory",
    ),
    "the wait is asked once": (r"(mbarrier\.try_wait.*\n.*\n.*\n)\s*@%p\d+ bra\s+\S+;", r"\1", "background|wrong"),
    "a swizzle of two bits": (r"(and\.b64\s+%rd\d+, %rd\d+), 112;", r"\1, 48;", "wrong"),
}


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("name", OF_PTX)
def test_a_bug_in_its_ptx_is_found(name: str) -> None:
    pattern, becomes, says = OF_PTX[name]
    binary = right_one()
    text, count = re.subn(pattern, becomes, binary.data.decode())
    assert count, "the text has no such place any more"
    said = found_wrong(replace(binary, data=text.encode()))
    assert said is not None and re.search(says, said), said


@pytest.mark.parametrize(
    ("number", "wrong"),
    [
        (0, TileMap(0, MAPS[0].shape, (128, 64), swizzles=False)),
        (1, TileMap(1, (50, 608), (64, 64))),
        (2, replace(MAPS[2], shape=(100, 200))),
    ],
    ids=["no swizzle", "rows of another length", "rows for columns"],
)
def test_a_wrong_map_is_found(number: int, wrong: TileMap) -> None:
    maps = (*MAPS[:number], wrong, *MAPS[number + 1 :])
    assert found_wrong(replace(right_one(), launches=source_of(TEXT, maps).launches)) == "wrong"
