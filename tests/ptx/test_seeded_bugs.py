"""Bugs in the PTX of a product with stages in shared memory: each must show as a wrong result or an error.

What is changed is the text that NVRTC makes of a generated kernel, as a slip of the pen in a PTX body would change it.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from picograd.errors import DeviceError
from picograd.evaluator import evaluate_kernel
from picograd.ir.opts import Opts, WarpTile
from picograd.ir.stages import Binary, Source
from picograd.record import replace
from picograd.road import lower
from tests.codegen.test_block_product import product
from tests.devices.cuda.primitive_cases import CASES
from tests.devices.cuda.test_primitives import check, kernel_of, launch_of, params_of
from tests.gpu_programs import Array, run
from tests.ptx.background import working
from tests.ptx.copies import When
from tests.ptx.device import NVRTC, ROADS, TARGETS, PtxDevice, compile_nvrtc
from tests.ptx.machine import Order, running
from tests.ptx.test_background_cases import target_of

ONE_WARP, TWO_WARPS = WarpTile(1, 1, 2, 4, 16), WarpTile(1, 2, 1, 2, 16)
FOUR, TWO = r"\{(.*?), (.*?), (.*?), (.*?)\}", r"\{(.*?), (.*?)\}"
MMA = rf"(mma\.sync\.aligned\.m16n8k16\S+) {FOUR}, {FOUR}, {TWO}, ({{.*?}})"
BUGS = {  # what is replaced everywhere, by what, and what is said
    "rows of the left operand change places": (MMA, r"\1 {\2, \3, \4, \5}, {\7, \6, \8, \9}, {\10, \11}, \12", "wrong"),
    "halves of K change places on the left": (MMA, r"\1 {\2, \3, \4, \5}, {\8, \9, \6, \7}, {\10, \11}, \12", "wrong"),
    "the four in the order of memory": (MMA, r"\1 {\2, \3, \4, \5}, {\6, \8, \7, \9}, {\10, \11}, \12", "wrong"),
    "halves of K change places on the right": (MMA, r"\1 {\2, \3, \4, \5}, {\6, \7, \8, \9}, {\11, \10}, \12", "wrong"),
    "accumulators change places": (MMA, r"\1 {\2, \4, \3, \5}, {\6, \7, \8, \9}, {\10, \11}, \12", "wrong"),
    "a matrix that is not turned": (r"x4\.trans", "x4", "wrong"),
    "a matrix that is turned": (r"x4\.shared", "x4.trans.shared", "wrong"),
    "matrices in another order": (r"(x4\S+) \{(.*?), (.*?), ", r"\1 {\3, \2, ", "wrong"),
    "no wait for copies": (r"cp\.async\.wait_group \d;", "", "which nobody wrote"),
    "a wait for one group less": (r"cp\.async\.wait_group 2", "cp.async.wait_group 3", "which nobody wrote"),
    "groups that are not closed": (r"cp\.async\.commit_group;", "", "which nobody wrote"),
    "edges that are not zeros": (r"(cp\.async\.cg\S+ .*?, 16), %r\d+;", r"\1;", "outside of it"),
    "eight bytes past the first cache": (r"(cp\.async\.cg\S+ .*?), 16,", r"\1, 8,", "with .cg 16; not 8"),
    "copies of half as many bytes": (
        r"(cp\.async\.cg)(\S+ .*?), 16, %r\d+;",
        r"cp.async.ca\2, 8;",
        "which nobody wrote|outside",
    ),
}


@cache
def right_one(tile: WarpTile) -> Binary:
    target = replace(TARGETS[NVRTC], block_threads=tile.threads)
    return ROADS[NVRTC].compile(ROADS[NVRTC].render(lower(product(70, 200, 50), target, Opts((tile,))), target), target)


@cache
def memory() -> tuple[list[Array], Array]:
    """Returns what goes in, small whole numbers, and the product."""
    kernel = product(70, 200, 50)
    rng = np.random.default_rng(0)
    given = [rng.integers(-3, 4, int(p.numel)).astype(p.dtype.numpy) for p in kernel.params]  # type: ignore[arg-type]
    after = [array.copy() for array in given]
    evaluate_kernel(kernel, after, {})
    return given, after[2]


def outcome(text: str, tile: WarpTile = ONE_WARP, order: Order = Order.TOGETHER) -> str:
    """Returns "right", "wrong", or what is said."""
    given = [array.copy() for array in memory()[0]]
    device = PtxDevice(NVRTC)
    try:
        with running(order), working(When.LATE):
            run(device, device.load(replace(right_one(tile), data=text.encode())), given)
    except DeviceError as error:
        return error.fact
    return "right" if np.array_equal(given[2], memory()[1]) else "wrong"


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("tile", [ONE_WARP, TWO_WARPS], ids=str)
def test_it_is_right_as_it_is(tile: WarpTile, order: Order) -> None:
    assert outcome(right_one(tile).data.decode(), tile, order) == "right"


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    pattern, becomes, says = BUGS[name]
    text, count = re.subn(pattern, becomes, right_one(ONE_WARP).data.decode())
    assert count, "the text has no such place any more"
    said = outcome(text)
    assert re.search(says, said), said


@pytest.mark.parametrize("order", [Order.FIRST_WARP, Order.LAST_WARP])
@pytest.mark.parametrize("missing", [0, 1], ids=["before the first stage", "behind a stage"])
def test_a_barrier_that_is_missing_is_found(missing: int, order: Order) -> None:
    *parts, last = re.split(r"bar\.sync\s+0;", right_one(TWO_WARPS).data.decode())
    assert len(parts) == 2, "a product has a barrier before the first stage, and one behind each"
    text = "".join(part + ("" if i == missing else "bar.sync 0;") for i, part in enumerate(parts)) + last
    assert "which nobody wrote" in outcome(text, TWO_WARPS, order)


# ---- what a primitive is made of ----
OF_PRIMITIVES = {
    "TF32 that is cut": ("mma of float32, rough numbers", r"cvt\.rna\.tf32\.f32", "mov.b32"),
    "K of TF32 in the other order": (
        "mma of float32, whole numbers",
        r"(tf32\.f32 \{.*?\}, .*?, \{)(.*?), (.*?)\}",
        r"\1\3, \2}",
    ),
    "another thread is given": ("matrices", r"ldmatrix\.sync\.aligned\.m8n8\.x4", "ldmatrix.sync.aligned.m8n8.x4.trans"),
    "zeros that are not asked for": ("a copy of 4 float32", r", 16, %r\d+;", ", 16;"),
}


@pytest.mark.parametrize("name", OF_PRIMITIVES)
def test_a_bug_in_a_primitive_is_found(name: str) -> None:
    case_name, pattern, becomes = OF_PRIMITIVES[name]
    case = CASES[case_name]
    text = f'#include "primitives.h"\n{kernel_of(case_name)}'
    source = Source("case", "cuda", text, params_of(case), (), (launch_of(case_name),))
    binary, outcomes = compile_nvrtc(source, target_of("sm_80")), []
    for changed in (binary.data.decode(), re.sub(pattern, becomes, binary.data.decode())):
        found = np.zeros_like(case.expected)
        device = PtxDevice(NVRTC)
        with working(When.LATE):
            run(device, device.load(replace(binary, data=changed.encode())), [*case.inputs, found])
        outcomes.append(found)
    check(outcomes[0], case.expected, case)
    with pytest.raises(AssertionError):
        check(outcomes[1], case.expected, case)
