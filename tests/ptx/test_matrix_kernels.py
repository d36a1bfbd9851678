"""Generated kernels that multiply by matrix instructions and copy in the background, by NVRTC's PTX and by LLVM's.

Small ones that take every way: several stages, edges of tiles, a K that blocks share, masks; compared with the evaluator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import matmul_gpu
from picograd.device import Target
from picograd.dtype import DType
from picograd.evaluator import evaluate_kernel
from picograd.ir.opts import Opts, WarpTile
from picograd.ir.shape import AttentionArg, ConvArg
from picograd.ir.stages import Kernel
from picograd.record import replace
from picograd.road import lower
from tests.codegen import test_attention_few as few
from tests.codegen.test_attention_cpu import ARGS, Lengths
from tests.codegen.test_attention_gpu import OF_TF32, TOLERANCES, attentions
from tests.codegen.test_attention_gpu import check as check_attention
from tests.codegen.test_block_product import convolution, product
from tests.gpu_programs import Array, run
from tests.ptx.background import working
from tests.ptx.copies import When
from tests.ptx.device import LLVM, NVRTC, ROADS, TARGETS, PtxDevice
from tests.ptx.machine import Order, running

MOMENTS = ((Order.TOGETHER, When.AT_ONCE), (Order.LAST_WARP, When.LATE))
both_roads = pytest.mark.parametrize("road", [NVRTC, LLVM])


def found_by(
    road: str,
    kernel: Kernel,
    memory: Sequence[Array],
    calls: Sequence[str],
    choices: Opts | None = None,
    threads: int = 256,
) -> list[list[Array]]:
    """Returns what a kernel leaves in memory; twice, where copies may be there at two moments.

    Args:
      calls:  instructions that its PTX has to have
    """
    target: Target = replace(TARGETS[road], block_threads=threads)
    program = lower(kernel, target) if choices is None else lower(kernel, target, choices)
    source = ROADS[road].render(program, target)
    binary = ROADS[road].compile(source, target)
    text = binary.data.decode()
    assert not [call for call in calls if call not in text], "the kernel does not take the way that is asked for"
    device, found = PtxDevice(road, target), []
    for order, when in MOMENTS if "cp.async" in text else MOMENTS[-1:]:
        given = [array.copy() for array in memory]
        with running(order), working(when):
            run(device, device.load(binary), given)
        found.append(given)
    return found


def check(road: str, kernel: Kernel, calls: Sequence[str], choices: Opts | None = None, threads: int = 256) -> None:
    """Compares a product of small whole numbers, which is exact until it is rounded."""
    rng = np.random.default_rng(0)
    memory = [rng.integers(-3, 4, int(p.numel)).astype(p.dtype.numpy) for p in kernel.params]  # type: ignore[arg-type]
    expected = [array.copy() for array in memory]
    evaluate_kernel(kernel, expected, {})
    for given in found_by(road, kernel, memory, calls, choices, threads):
        np.testing.assert_array_equal(given[2].astype(np.float32), expected[2].astype(np.float32))


PRODUCTS = {
    "float16, tiles with edges": (dtypes.float16, "NN", (70, 200, 50)),
    "bfloat16, transposed": (dtypes.bfloat16, "TN", (40, 136, 72)),
    "TF32, transposed": (dtypes.float32, "NT", (40, 100, 72)),
    "float16, rows of odd length": (dtypes.float16, "TT", (19, 75, 13)),
}


@pytest.mark.variants(every=7)
@both_roads
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, road: str) -> None:
    dtype, letters, shape = PRODUCTS[name]
    kernel = product(*shape, letters, dtype, tf32=dtype == dtypes.float32)
    for tile in (WarpTile(1, 1, 2, 4, 16), WarpTile(2, 2, 1, 2, 32)):
        calls = ["mma.sync", *(["cp.async"] if shape[1] % 4 == 0 else [])]
        check(road, kernel, calls, Opts((tile,)), tile.threads)


@pytest.mark.variants(every=3)
@both_roads
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=str)
def test_blocks_share_a_long_k(dtype: DType, road: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_gpu, "PART_K_MIN", 40)
    kernel = product(20, 100, 16, dtype=dtype)
    assert len(lower(kernel, TARGETS[road]).phases) == 2
    check(road, kernel, ["cp.async", *(["mma.sync"] if dtype.is_narrow else [])])


FLAT = ConvArg((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, False)
CONVOLUTIONS = {
    "bfloat16": ((2, 3, 4, 5), (9, 3, 3, 3), FLAT, dtypes.bfloat16),
    "TF32": ((2, 3, 4, 5), (9, 3, 3, 3), replace(FLAT, tf32=True), dtypes.float32),
    "float16, groups": ((1, 8, 9), (16, 4, 2), ConvArg((2,), ((0, 1),), (2,), (1,), 2, False), dtypes.float16),
}


@pytest.mark.variants(every=5)
@both_roads
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, road: str) -> None:
    check(road, convolution(*CONVOLUTIONS[name]), ["mma.sync"], Opts(), 32)


# ---- attention ----
ATTENTIONS: dict[str, tuple[Lengths, AttentionArg, DType]] = {
    "float16, causal, of odd lengths": ((1, 2, 1, 20, 33, 5, 7), ARGS[1], dtypes.float16),
    "float16, a window": ((1, 2, 1, 40, 70, 32, 16), ARGS[3], dtypes.float16),
    "bfloat16, a soft cap": ((1, 1, 1, 20, 40, 16, 24), ARGS[5], dtypes.bfloat16),
    "bfloat16, dropout": ((1, 2, 1, 20, 40, 16, 24), ARGS[6], dtypes.bfloat16),
    "bfloat16, queries that see nothing": ((1, 1, 1, 70, 35, 16, 16), ARGS[1], dtypes.bfloat16),
    "TF32": ((1, 2, 1, 20, 33, 8, 8), replace(ARGS[1], tf32=True), dtypes.float32),
}


@pytest.mark.variants(every=10)
@both_roads
@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_and_its_gradients(name: str, road: str) -> None:
    lengths, arg, dtype = ATTENTIONS[name]
    for kernel, memory in attentions(lengths, arg, dtype, TARGETS[road]):
        calls = ["mma.sync"] if arg.tf32 or lengths[5] % 8 else ["mma.sync", "ldmatrix"]
        for given in found_by(road, kernel, memory, calls):
            check_attention(given, kernel, memory, OF_TF32 if arg.tf32 else TOLERANCES[dtype])


FEW_QUERIES: dict[str, tuple[Lengths, AttentionArg, DType]] = {
    "float16": ((1, 4, 2, 1, 260, 32, 16), ARGS[0], dtypes.float16),
    "bfloat16, a soft cap": ((1, 2, 1, 3, 140, 20, 33), ARGS[5], dtypes.bfloat16),
    "float32, causal": ((1, 1, 1, 9, 4, 3, 5), ARGS[1], dtypes.float32),
}


@pytest.mark.variants(every=3, first=2)
@both_roads
@pytest.mark.parametrize("name", FEW_QUERIES)
def test_attention_of_few_queries(name: str, road: str) -> None:
    lengths, arg, dtype = FEW_QUERIES[name]
    kernel = few.kernel_of(lengths, arg, dtype, TARGETS[road], lengths[4])
    memory = few.memory_of(lengths, dtype)
    for given in found_by(road, kernel, memory, ["shfl.sync"]):
        few.check(given, kernel, memory, few.TOLERANCES[dtype], lengths[4])
