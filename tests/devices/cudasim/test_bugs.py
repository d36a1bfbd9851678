"""Bugs put into generated kernels, one at a time, are all found by the simulator; without them there is no alarm.

The kernels: a softmax of rows by several warps, a sum down the columns, running sums, an argsort, a scatter, a transpose,
and in registers and by matrix instructions a product and an attention. Each bug is a change of the text of one, as somebody
makes it by mistake.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.errors import DeviceError
from picograd.evaluator import evaluate_kernel
from picograd.ir.attention import outputs
from picograd.ir.build import expand, permute, reduce, scan, scatter, unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import BlockTile, Opts, WarpTile
from picograd.ir.shape import AttentionArg
from picograd.ir.stages import Binary, Kernel, Source
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.codegen.test_block_product import product
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler
# A value read too early is one that another thread writes in the meantime, or has not yet: it depends on the order.
BARRIER, TOO_EARLY = r"__syncthreads\(\);", "race|not written|on its way"


def softmax() -> Kernel:
    x = Op(OpCode.PARAM, dtypes.float32, (), (0, (3, 1000)))
    powers = unary(OpCode.EXP, x - expand(reduce(x, OpCode.MAX, (1,), keepdim=True), x.shape))
    return kernel_of(powers / expand(reduce(powers, OpCode.ADD, (1,), keepdim=True), x.shape))


def attention(dtype: DType, keys: int, causal: bool) -> Kernel:
    shapes = [(1, 1, 150, 16), (1, 1, keys, 16), (1, 1, keys, 16)]
    q, k, v = (Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, shape in enumerate(shapes))
    return kernel_of(outputs(Op(OpCode.ATTENTION, dtype, (q, k, v), AttentionArg(0.125, causal)))[0])


def sums_by_index() -> Op:
    shapes = ((3,), dtypes.float32), ((1100,), dtypes.int64), ((1100,), dtypes.float32)
    base, index, updates = (Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, (shape, dtype) in enumerate(shapes))
    return scatter(base, index, updates, OpCode.ADD, 0, 0)


def kernel_of(root: Op) -> Kernel:
    (item,) = create_schedule([root], TARGET).items
    return item.kernel


KERNELS: dict[str, tuple[Kernel, Opts | None]] = {
    "softmax": (softmax(), None),
    "columns": (kernel_of(reduce(Op(OpCode.PARAM, dtypes.float32, (), (0, (300, 40))), OpCode.ADD, (0,))), None),
    "product": (product(40, 20, 24, dtype=dtypes.float32), Opts((BlockTile(8, 8, 4, 4, 8),))),
    "scan": (kernel_of(scan(Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 2500))), OpCode.ADD, 1)), None),
    "sort": (
        kernel_of(Op(OpCode.SORT, dtypes.int64, (Op(OpCode.PARAM, dtypes.int32, (), (0, (700,))),), (0, False))), None
    ),
    "scatter": (kernel_of(sums_by_index()), None),
    "transpose": (kernel_of(permute(Op(OpCode.PARAM, dtypes.float32, (), (0, (180, 190))), (1, 0))), None),
    "mma": (product(40, 40, 24), Opts((WarpTile(1, 2, 1, 2, 16),))),
    "attention": (attention(dtypes.float32, 40, causal=False), None),
    "attention by mma": (attention(dtypes.float16, 150, causal=True), None),
}
# float32 exponentials of a C library and of NumPy's; weights of narrow floats; the rest is exact.
TOLERANCES = {"softmax": 1e-5, "attention": 1e-5, "attention by mma": 2e-3}


@dataclass(frozen=True)
class Bug:
    """A change of a kernel's text.

    pattern, becomes:  what is replaced, and by what, as in re.sub
    number:            which of the places the pattern is found at; -1 is the last
    says:              what the simulator's message must contain; "" where only the result shows it
    """

    kernel: str
    pattern: str
    becomes: str
    number: int = 0
    says: str = ""


BUGS = {
    # ---- barriers ----
    "no barrier before partial maxima are read": Bug("softmax", BARRIER, "", 0, TOO_EARLY),
    "no barrier before partial sums are read": Bug("softmax", BARRIER, "", 1, TOO_EARLY),
    "no barrier before parts of a column are read": Bug("columns", BARRIER, "", 0, TOO_EARLY),
    "no barrier before the first tile is read": Bug("product", BARRIER, "", 0, TOO_EARLY),
    "no barrier after a step of K": Bug("product", BARRIER, "", 1, TOO_EARLY),
    "no barrier before the first fragment is read": Bug("mma", BARRIER, "", 0, TOO_EARLY),
    "no barrier after a step of K by matrix instructions": Bug("mma", BARRIER, "", 1, TOO_EARLY),
    "a barrier for some threads": Bug(
        "product", BARRIER, "if (threadIdx.x < 40) __syncthreads();", -1, "diverg|" + TOO_EARLY,
    ),
    "a barrier for one warp": Bug("softmax", BARRIER, "if (threadIdx.x < 32) __syncthreads();", 0, "diverg|" + TOO_EARLY),
    "a return before a barrier": Bug(
        "product", BARRIER, "if (threadIdx.x == 63) return;\n__syncthreads();", 1, "ended|written|ends while",
    ),
    "no barrier before a step of a scan": Bug("scan", BARRIER, "", 3, TOO_EARLY),
    "no barrier after a tile of a scan": Bug("scan", BARRIER, "", -1, TOO_EARLY),
    "no barrier before tiles are sorted": Bug("sort", BARRIER, "", 0, TOO_EARLY),
    "no barrier after a merge": Bug("sort", BARRIER, "", 1, TOO_EARLY),
    "no barrier before a tile is read across": Bug("transpose", BARRIER, "", 0, TOO_EARLY),
    "lines of a tile that overlap": Bug("transpose", r"= (v\d+) \* 33;", r"= \1 * 31;", 0, TOO_EARLY),
    # ---- runs of updates ----
    "no barrier before indices are sorted": Bug("scatter", BARRIER, "", 0, TOO_EARLY),
    "a run from the next place": Bug("scatter", r"p6\[t2\];", "p6[t2 + 1];", -1),
    "updates as they came": Bug("scatter", r"p5\[(v\d+)\];", r"p4[\1];", -1),
    "a total that lacks an update": Bug("scatter", r"< 32;", "< 31;", -1),
    # ---- the stages of shared memory ----
    "the stage that is read is written": Bug("product", r"(i\d+) \+ 2;", r"\1 + 0;", 0, TOO_EARLY),
    "a stage that was never filled": Bug("product", r"= (i\d+) \* 288;", r"= (\1 + 1) * 288;", 0, TOO_EARLY),
    "the same of fragments": Bug("mma", r"(load_matrices<true>\(.*, v\d+)\)", r"\1 + 640)", 0, TOO_EARLY),
    "no wait for the first copies": Bug("product", r"wait_copies<1>\(\);", "", 0, "on its way"),
    "no wait for later copies": Bug("mma", r"wait_copies<1>\(\);", "", -1, "on its way"),
    "a wait that leaves a group too many": Bug("mma", r"wait_copies<1>", "wait_copies<2>", 0, "on its way"),
    "a group that is not closed": Bug("product", r"commit_copies\(\);", "", 0, "on its way"),
    "a copy after the last wait": Bug(
        "mma", r"(copy_async<8>\(s2, v\d+, p0, v\d+, v\d+\);)((.|\n)*)\}", r"\1\2\1}", 0, "ends while|race|on its way",
    ),
    "rows of shared memory too short": Bug("product", r"= (v\d+) \* 36;", r"= \1 * 28;", 0, TOO_EARLY),
    "shared memory too small": Bug("product", r"(SHARED\(float32, s2, )864", r"\g<1>800", 0, "which has 800"),
    # ---- warps ----
    "a shuffle in a branch": Bug(
        "softmax", r"const float32 (v\d+) = shuffle_xor\((v\d+), 16\);",
        r"float32 \1 = \2; if (threadIdx.x % 32 < 16) \1 = shuffle_xor(\2, 16);", 0, "divergent shuffle",
    ),
    "a shuffle over the wrong distance": Bug("softmax", r"(shuffle_xor\(v\d+, )16\)", r"\g<1>8)", 1),
    "a shuffle left out": Bug("softmax", r"shuffle_xor\((v\d+), 4\)", r"\1", 1),
    "an Mma for half a warp": Bug("mma", r"(mma_m16n8k16\()", r"if (threadIdx.x % 32 < 16) \1", 0, "divergent"),
    "an Mma of a part too far on": Bug("mma", r"(mma_m16n8k16\(r\d+, v\d+, r\d+, )0", r"\g<1>1", 0, "which has 8"),
    "matrices for half a warp": Bug("mma", r"(load_matrices<)", r"if (threadIdx.x % 32 < 16) \1", 0, "divergent"),
    "matrices from an odd place": Bug("mma", r"(load_matrices<false>\(.*, v\d+)\)", r"\1 + 4)", 0, "no multiple of 8"),
    "matrices that are not turned": Bug("mma", "load_matrices<true>", "load_matrices<false>", 0),
    # ---- memory ----
    "an operand read past its end": Bug(
        "product", r"(copy_async<1>\(s2, v\d+, p0, v\d+, )v\d+", r"\1true", 0, "reads p0",
    ),
    "K read past its end": Bug("product", r"(copy_async<4>\(s3, v\d+, p1, v\d+, )v\d+", r"\1true", -1, "reads p1"),
    "a result written past its end": Bug("product", r"if \(v\d+\) \{\n(\s*const Lanes)", r"{\n\1", -1, "writes p2"),
    "the last access of a row written twice": Bug("softmax", r"store_lanes\(p1, (v\d+),", r"store_lanes(p1, \1 + 4,", -1),
    "a block further on": Bug("product", r"(= g\d+ \* )(\d+);", r"\1(\2 + 1000);", 0, "reads p0"),
    "a register past the end": Bug("product", r"(r\d+)\[(i\d+)\] = 0\.0f", r"\1[\2 + 1] = 0.0f", 0, "which has 16"),
    "an accumulator that starts from nothing": Bug("mma", r"r\d+\[i\d+\] = 0\.0f;", "", 0, "has not written"),
    "partial results of one warp for all": Bug("softmax", r"(s\d+)\[v\d+\];", r"\1[0];", -1),
    # ---- attention ----
    "no barrier before keys are read": Bug("attention", BARRIER, "", 0, TOO_EARLY),
    "no barrier before weights are read": Bug("attention", BARRIER, "", 2, TOO_EARLY),
    "no barrier before keys are fragments": Bug("attention by mma", BARRIER, "", 0, TOO_EARLY),
    "keys that are read while they are written": Bug("attention", r"(v\d+) % 2;", r"\1 % 1;", 0, TOO_EARLY),
    "keys of the tile before": Bug("attention by mma", r"(v\d+) % 2;", r"1 - \1 % 2;", -1, TOO_EARLY),
    "no wait for keys": Bug("attention", r"wait_copies<0>\(\);", "", 0, "on its way"),
    "keys behind the last one are seen": Bug("attention", r"(v\d+) < 40;\n", r"\1 < 48;\n", -1),
    "what is seen is one key too many": Bug("attention by mma", r"(v\d+) <= (v\d+);", r"\1 <= \2 + 1;", 0),
    "a maximum of half a row": Bug("attention by mma", r"shuffle_xor\((v\d+), 2\)", r"\1", 0),
    "a sum of half a row": Bug("attention", r"shuffle_xor\((v\d+), 8\)", r"\1", -1),
    "sums that do not follow the maximum": Bug("attention", r"expf\(v\d+\)", "1.0f", 0),
    "nobody stores": Bug("columns", r"= (v\d+) < 1;", r"= \1 < 0;", 0),
    "every thread stores, in any order": Bug("softmax", r"(s\d+)\[v\d+\] = (v\d+);", r"\1[0] = \2;", 0, "race"),
}


@cache
def source_of(name: str) -> Source:
    kernel, opts = KERNELS[name]
    return render(lower(kernel, TARGET, opts), TARGET)


@cache
def binary_of(name: str) -> Binary:
    return hostcxx.compile_source(source_of(name), TARGET)


@cache
def memory_of(name: str) -> tuple[list[Array], Array]:
    """Returns inputs of small whole numbers, and what the evaluator computes from them."""
    kernel, _ = KERNELS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, int(p.numel)).astype(p.dtype.numpy) for p in kernel.params]  # type: ignore[arg-type]
    expected = [array.copy() for array in arrays]
    evaluate_kernel(kernel, expected, {})
    return arrays, expected[-1]


def changed(bug: Bug) -> Source:
    source = source_of(bug.kernel)
    places = list(re.finditer(bug.pattern, source.text))
    assert places, "the kernel has no such place any more"
    at = places[bug.number]
    return replace(source, text=source.text[: at.start()] + at.expand(bug.becomes) + source.text[at.end() :])


def outcome(binary: Binary, name: str, order: str) -> str | bool:
    """Returns the simulator's message, or whether the result is right."""
    device = CudaSimDevice(order, seed=5)
    arrays, expected = memory_of(name)
    found = np.zeros_like(arrays[-1])
    try:
        run(device, device.load(binary), [*arrays[:-1], found])
    except DeviceError as error:
        return error.fact
    tolerance = TOLERANCES.get(name, 1e-6)
    return np.allclose(found.astype(np.float64), expected.astype(np.float64), tolerance, tolerance, equal_nan=True)


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", KERNELS)
def test_there_is_no_false_alarm(name: str, order: str) -> None:
    assert outcome(binary_of(name), name, order) is True


@pytest.mark.variants(every=11)
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    binary = hostcxx.compile_source(changed(bug), TARGET)
    found = [outcome(binary, bug.kernel, order) for order in ORDERS]
    if bug.says:
        assert any(isinstance(each, str) and re.search(bug.says, each) for each in found), found
    else:
        assert any(each is False or isinstance(each, str) for each in found), found
