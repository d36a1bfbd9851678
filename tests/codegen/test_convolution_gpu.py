"""Convolutions on a GPU whose blocks bring a box of images once for all taps: every cut means the same, and pays."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import matmul_gpu
from picograd.codegen.block_product import Box
from picograd.codegen.convolution import Windows
from picograd.codegen.matmul_gpu import box_of
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.evaluator import evaluate_kernel
from picograd.ir.build import static_shape
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import BlockTile
from picograd.ir.shape import ConvArg
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel
from picograd.ir.statements import CopyAsync, walk
from picograd.record import replace
from picograd.road import create_schedule, lower
from picograd_lab.ladder.counts import compile_counted, take_counts
from tests.codegen.test_block_product import compare, convolution
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.same_meaning import GPU_TARGET

Cut = tuple[BlockTile, Box, int]
NO_MMA = replace(TARGET, has_mma=False)
Case = tuple[tuple[int, ...], tuple[int, ...], ConvArg]


def arg(axes: int = 2, stride: int = 1, padding: int = 1, dilation: int = 1, groups: int = 1) -> ConvArg:
    return ConvArg((stride,) * axes, ((padding, padding),) * axes, (dilation,) * axes, (1,) * axes, groups, False)


CASES: dict[str, Case] = {
    "padded": ((2, 5, 6, 9), (7, 5, 3, 3), arg()),
    "whole accesses": ((2, 9, 8, 32), (20, 9, 3, 3), arg()),
    "strides": ((1, 3, 9, 16), (6, 3, 3, 3), arg(stride=2)),
    "gaps between taps": ((1, 4, 8, 12), (9, 4, 3, 2), arg(dilation=2, padding=2)),
    "groups": ((2, 6, 5, 8), (8, 3, 2, 3), arg(padding=0, groups=2)),
    "one axis": ((3, 5, 37), (5, 5, 4), arg(1, padding=2)),
    "three axes": ((1, 3, 3, 4, 9), (4, 3, 2, 2, 3), arg(3)),
    "windows beyond an image": ((1, 2, 3, 4), (4, 2, 5, 5), arg(padding=4)),
    "taps as many as places": ((9, 3, 8, 10), (6, 3, 6, 8), arg(padding=0)),
    "many taps": ((20, 2, 18, 40), (5, 2, 16, 40), arg(padding=1)),
    "less than an image": ((1, 3, 9, 12), (5, 3, 3, 3), arg(padding=-1)),
}


def anchor_of(kernel: Kernel) -> Op:
    (anchor,) = [nest.anchor for nests in kernel.phases for nest in nests if nest.anchor is not None]
    return anchor


def cut_of(kernel: Kernel, target: Target = TARGET) -> Cut | None:
    return box_of(Windows(anchor_of(kernel)), target)


def cuts_of(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cut]:
    """Yields some of the cuts that are looked at, of each kind of columns, depth of K and length of an access."""
    kinds: dict[object, list[Cut]] = {}
    original = matmul_gpu._block_tiles

    def spy(m: int, box: Box, *rest: object) -> list[BlockTile]:
        tiles = list(original(m, box, *rest))  # type: ignore[arg-type]
        kinds.setdefault((box.along_images, box.depth, box.lanes), []).extend((tile, box, 1) for tile in tiles)
        return tiles

    with monkeypatch.context() as patched:
        matmul_gpu._best_box.cache_clear()
        patched.setattr(matmul_gpu, "_block_tiles", spy)
        cut_of(kernel)
    for cuts in kinds.values():
        yield from cuts[:: max(1, len(cuts) // 3)][1:3]


def simulate(kernel: Kernel, memory: list[Array]) -> None:
    """Compares what the simulator computes, in each order of threads, with what the evaluator makes of the Kernel."""
    expected = [array.copy() for array in memory]
    evaluate_kernel(kernel, expected, {})
    program = lower(kernel, TARGET)
    verify_program(program, after="lower")
    binary = hostcxx.compile_source(render(program, TARGET), TARGET)
    for order in ORDERS:
        device, found = CudaSimDevice(order, seed=3), [array.copy() for array in memory]
        run(device, device.load(binary), found)
        for p, one, other in zip(kernel.params, found, expected):
            if p.role == "out":
                np.testing.assert_array_equal(one, other)


def whole_numbers(kernel: Kernel) -> list[Array]:
    """Returns numbers so small that every sum is exact."""
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, int(p.numel)).astype(p.dtype.numpy) for p in kernel.params]  # type: ignore[arg-type]


@pytest.mark.variants(every=3)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_every_cut_means_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = convolution(*CASES[name], dtypes.float32)
    cuts = list(cuts_of(kernel, monkeypatch))
    assert cuts
    for cut in cuts:
        with monkeypatch.context() as patched:
            patched.setattr(matmul_gpu, "box_of", lambda *_, cut=cut: cut)
            simulate(kernel, whole_numbers(kernel))


@pytest.mark.variants(every=3)
@needs_compiler
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16], ids=str)
@pytest.mark.parametrize("name", ["padded", "taps as many as places"])
def test_what_is_chosen_means_the_same_of_any_dtype(name: str, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are computed, with a bias behind; halves are multiplied as float32 where there is no instruction."""
    x_shape, w_shape, how = CASES[name]
    x, w = (Op(OpCode.PARAM, dtype, (), (slot, shape)) for slot, shape in enumerate((x_shape, w_shape)))
    rectified = Op(OpCode.MAX, dtype, (x, x * 0))
    (item,) = create_schedule([Op(OpCode.CONV, dtype, (rectified, w), how) + 1], TARGET).items
    cuts = list(cuts_of(item.kernel, monkeypatch)) if dtype is not dtypes.float16 else [cut_of(item.kernel, NO_MMA)]
    for cut in cuts[:2]:
        with monkeypatch.context() as patched:
            patched.setattr(matmul_gpu, "box_of", lambda *_, cut=cut: cut)
            simulate(item.kernel, whole_numbers(item.kernel))


def test_the_loops_mean_what_the_kernel_means() -> None:
    """Evaluated step by step, where tiles are copied in the background and where they wait in registers."""
    kernel = convolution((1, 3, 4, 8), (4, 3, 3, 3), arg(), dtypes.float32)
    for has_async_copies in (False, True):
        target = replace(GPU_TARGET, has_async_copies=has_async_copies)
        assert cut_of(kernel, target)
        program = lower(kernel, target)
        assert has_async_copies == any(isinstance(s, CopyAsync) for phase in program.phases for s in walk(phase))
        compare(kernel, program)


@needs_compiler
@pytest.mark.parametrize("along_images", [False, True])
def test_blocks_share_a_long_k(along_images: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_gpu, "PART_K_MIN", 40)
    kernel = convolution((9, 7, 8, 10), (6, 7, 6, 8), arg(padding=0), dtypes.float32)
    tile, box, _ = next(cut for cut in cuts_of(kernel, monkeypatch) if cut[1].along_images == along_images)
    monkeypatch.setattr(matmul_gpu, "box_of", lambda *_: (tile, box, 3))
    assert [p.role for p in lower(kernel, TARGET).params] == ["in", "in", "out", "scratch"]
    simulate(kernel, whole_numbers(kernel))


@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_sums_have_the_order_of_k(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution by boxes has the bits of one by columns; numbers that no window sees stay out of every sum."""
    kernel = convolution(*CASES[name], dtypes.float32)
    memory = [np.random.default_rng(1).standard_normal(array.shape).astype(np.float32) for array in whole_numbers(kernel)]
    memory[0][:: 7 if name != "many taps" else 10**6] = np.inf
    monkeypatch.setattr(matmul_gpu, "PART_K_MIN", 1 << 20)
    results = []
    for cut in (None, next(cuts_of(kernel, monkeypatch))):
        with monkeypatch.context() as patched:
            patched.setattr(matmul_gpu, "box_of", lambda *_, cut=cut: cut)
            binary = hostcxx.compile_source(render(lower(kernel, TARGET), TARGET), TARGET)
        device, found = CudaSimDevice(), [array.copy() for array in memory]
        run(device, device.load(binary), found)
        results.append(found[2])
    np.testing.assert_array_equal(*results)


def test_matrix_instructions_and_unknown_lengths_keep_their_way() -> None:
    for shapes, how, dtype in [
        (CASES["whole accesses"], arg(), dtypes.bfloat16),
        (CASES["whole accesses"], replace(arg(), tf32=True), dtypes.float32),
    ]:
        assert cut_of(convolution(*shapes[:2], how, dtype)) is None
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 9))
    x, w = (Op(OpCode.PARAM, dtypes.float32, (), place) for place in [(0, (n, 9, 8, 32)), (1, (20, 9, 3, 3))])
    (item,) = create_schedule([Op(OpCode.CONV, dtypes.float32, (x, w), arg())], TARGET).items
    assert cut_of(item.kernel) is None


LARGE: list[Case] = [
    ((2, 32, 16, 16), (64, 32, 3, 3), arg()),
    ((32, 64, 56, 56), (64, 64, 3, 3), arg()),
    ((32, 3, 224, 224), (64, 3, 7, 7), arg(stride=2, padding=3)),
    ((32, 512, 7, 7), (512, 512, 3, 3), arg()),
    ((32, 128, 56, 56), (128, 128, 3, 3), arg(stride=2)),
    ((64, 32, 56, 56), (64, 32, 56, 56), arg()),  # gradients of weights: taps as many as places
    ((512, 32, 7, 7), (512, 32, 7, 7), arg()),
    ((16, 64, 1000), (64, 64, 5), arg(1, padding=2)),
]


@pytest.mark.parametrize("case", LARGE, ids=str)
def test_a_block_brings_an_element_for_several_taps(case: Case) -> None:
    """A stage brings of images at most 0.6 of its windows' elements, and few multiply-adds are of no result."""
    kernel = convolution(*case, dtypes.float32)
    cut = cut_of(kernel)
    assert cut is not None
    tile, box, _ = cut
    assert math.prod(box.shape) < 0.6 * box.columns * box.depth and tile.columns == box.columns and tile.depth == box.depth
    images, _, *places = static_shape(anchor_of(kernel).shape)
    columns = math.prod(-(-extent // own) for extent, own in zip((images, *places), (box.images, *box.places)))
    assert columns * box.columns <= 1.2 * images * math.prod(places)


@pytest.mark.variants(every=6)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_registers_hold_what_a_thread_has(case: Case, arch: str) -> None:
    target = replace(TARGET, device="CUDA", arch=arch)
    source = render(lower(convolution(*case, dtypes.float32), target), target)
    for usage in nvrtc.resource_usage(source, target).values():
        assert usage.spill_nbytes == usage.stack_nbytes == 0


@needs_compiler
@pytest.mark.parametrize(
    ("x", "w", "how", "less"),
    [
        ((2, 32, 16, 16), (64, 32, 3, 3), arg(), 2.4),
        ((3, 2, 64, 64), (32, 2, 32, 32), arg(padding=3, dilation=2), 2.8),  # the gradient of a weight
        ((2, 64, 16, 16), (64, 16, 3, 3), arg(groups=4), 3.0),
    ],
)
def test_it_reads_memory_less_often(
    x: tuple[int, ...], w: tuple[int, ...], how: ConvArg, less: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sectors of 32 bytes, and instructions that read shared memory, beside those of a product by columns."""
    kernel, counts = convolution(x, w, how, dtypes.float32), []
    for is_boxed in (False, True):
        with monkeypatch.context() as patched:
            if not is_boxed:
                patched.setattr(matmul_gpu, "box_of", lambda *_: None)
            executable = CudaSimDevice().load(compile_counted(render(lower(kernel, TARGET), TARGET)))
        run(CudaSimDevice(), executable, whole_numbers(kernel))
        counts.append(take_counts(executable))
    by_columns, by_boxes = counts
    assert by_columns["loaded_sectors"] >= less * by_boxes["loaded_sectors"]
    assert by_columns["shared_loads"] >= 1.9 * by_boxes["shared_loads"]
