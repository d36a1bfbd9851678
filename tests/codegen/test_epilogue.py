"""Epilogues of products by warpgroups: what is one, that it means the same, and that it is one launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import picograd as pg
import picograd.nn.functional as F
from picograd import Tensor
from picograd.codegen.epilogue import Values, why_no_epilogue
from picograd.codegen.hopper import columns_of, product_tiles
from picograd.codegen.unfuse import unfuse_operands
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render import render
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import DType
from picograd.engine.choose import Parts, merged, parts_of, written_candidates
from picograd.evaluator import evaluate_kernel
from picograd.ir.opts import WarpgroupTile, Written
from picograd.ir.stages import Kernel, Source
from picograd.record import replace
from picograd.road import source_of
from tests.devices.cuda.test_render_hopper import HOPPER
from tests.gpu_programs import Array, run
from tests.helpers import forgotten
from tests.host_compilers import kernels_asked_for, needs_compiler
from tests.null_gpu import null_gpu

h = pg.bfloat16
M, N, K = 136, 136, 136
Form = Callable[[], object]


def whole(*shape: int, seed: int = 1) -> Tensor:
    """Returns small whole numbers: sums of their products are exact, whatever their order."""
    return Tensor(np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32))


def held(*shape: int) -> Tensor:
    return whole(*shape).cast(h).realize()


def product(dtype: DType = h) -> Tensor:
    """Returns a product that is exact in 16 bits, too."""
    few = whole(M, K) * (whole(K, seed=4) > 2)
    return few.cast(dtype).realize() @ whole(K, N, seed=2).cast(dtype).realize()


def several(x: Tensor) -> tuple[Tensor, ...]:
    other = whole(M, N, seed=3).realize()
    return x, x.float() * other, other + x.float(), x > other


def long(x: Tensor) -> tuple[Tensor, ...]:
    """Returns more operations than there is room for in the cache of instructions, for each of a thread's elements."""
    y = x.float()
    for i in range(16):
        y = (y * (i % 3 - 1)).abs() + (y - i).relu()
        y = y.minimum(Tensor(100.0 + i))
    return x, y


def updated(grad: Tensor) -> tuple[Tensor, ...]:
    """Returns a weight and its averages after a step of AdamW."""
    average, squares, weight = (whole(M, N, seed=seed).abs().realize() for seed in (5, 6, 7))
    g, scale = grad.float(), whole(1, seed=8).realize()
    average, squares = average + (g - average) * 0.5, squares * 0.5 + g * g * 0.5
    return average, squares, weight * scale - scale * average / (squares.sqrt() + 1.0)


TAKEN: dict[str, Form] = {
    "AdamW": lambda: updated(product()),
    "AdamW, of float32": lambda: updated(product(pg.float32)),
    "AdamW, TF32": lambda: updated(product(pg.float32)),
    "long": lambda: long(product()),
    "long, of float32": lambda: long(product(pg.float32)),
    "long, TF32": lambda: long(product(pg.float32)),
    "nothing": product,
    "a bias": lambda: product() + held(N),
    "a bias of float32": lambda: product() + whole(N).realize().cast(h),
    "a bias and relu": lambda: (product() + held(N)).relu(),
    "a scale": lambda: product() * 0.5,
    "another dtype": lambda: product().float(),
    "a matrix": lambda: product() + held(M, N),
    "a matrix of float32": lambda: product().float() + whole(M, N).realize(),
    "a row's and a column's": lambda: product() * held(M, 1) - held(1, N),
    "a number": lambda: product() * held(1),
    "several": lambda: several(product()),
    "a part of a matrix": lambda: product() + held(M + 3, N + 8)[2 : M + 2, 8:],
    "heads": lambda: product() + held(2, M, N // 2).transpose(0, 1).reshape(M, N),
    "a batch": lambda: held(3, M, 72) @ held(3, 72, 80) + held(M, 80),
    "whole tiles": lambda: (held(128, 64) @ held(64, 256)).float() + whole(128, 256).realize(),
    "float32": lambda: several(product(pg.float32)),
    "TF32": lambda: several(product(pg.float32)),
}  # fmt: skip
COMPILED = (
    "whole tiles", "several", "a matrix", "a bias", "float32", "TF32", "long", "long, TF32", "AdamW", "AdamW, of float32",
)  # fmt: skip
REFUSED: dict[str, tuple[Form, str]] = {
    "a gather": (lambda: product().float() + F.embedding(Tensor(np.arange(M) % 5), whole(5, N).realize()), "has a "),
    "a matrix across": (lambda: product() + held(N, M).T, "reads a transposed matrix"),
}


@cache
def kernel_of(name: str) -> Kernel:
    """Returns the kernel of a form's product."""
    form = TAKEN[name] if name in TAKEN else REFUSED[name][0]
    forgotten()
    with null_gpu(replace(HOPPER, multiprocessors=4)), pytest.MonkeyPatch.context() as patch:
        pg.set_float32_matmul_precision("high" if "TF32" in name else "highest")
        kernels = kernels_asked_for(patch)
        roots = form()
        pg.realize(roots if isinstance(roots, tuple) else (roots,))
        pg.set_float32_matmul_precision("highest")
    forgotten()
    return next(kernel for kernel in kernels if kernel.name.startswith("matmul"))


def choices(kernel: Kernel) -> list[Written]:
    """Returns a choice of each kind of tile: the smallest that has edges, and the smallest that is taken in turn."""
    target = replace(HOPPER, multiprocessors=2)
    choice = written_candidates(kernel, target)[0]
    assert isinstance(choice, Written) and choice.is_whole
    split = unfuse_operands(kernel)
    assert not isinstance(split, str)
    kinds: dict[bool, WarpgroupTile] = {}
    tiles = product_tiles(choice.product, target, Values(split.nest))
    for tile in sorted(tiles, key=lambda tile: tile.rows * tile.columns):
        kinds.setdefault(tile.in_turn, tile)
    return [replace(choice, tile=replace(tile, stages=3)) for tile in kinds.values()]


def source_by(kernel: Kernel, choice: Written) -> Source:
    parts = parts_of(kernel, choice, HOPPER)
    assert isinstance(parts, Parts)
    rest = source_of(parts.generated, HOPPER, parts.opts, render) if parts.generated is not None else None
    return merged(kernel, parts, choice, rest, HOPPER)


def inputs(kernel: Kernel) -> list[Array]:
    rng, found = np.random.default_rng(0), []
    for param in kernel.params:
        assert isinstance(param.numel, int)
        values = rng.integers(-2, 3, param.numel).astype(np.float32)
        values *= rng.random(param.numel) < 0.3
        found.append((values if param.role == "in" else np.full(param.numel, 77)).astype(param.dtype.numpy))
    return found


@needs_compiler
@pytest.mark.variants(every=7)
@pytest.mark.parametrize("name", TAKEN)
def test_it_means_the_same_in_one_launch(name: str) -> None:
    kernel = kernel_of(name)
    expected = inputs(kernel)
    evaluate_kernel(kernel, expected)
    for choice in choices(kernel):
        source = source_by(kernel, choice)
        assert len(source.launches) == 1
        binary = hostcxx.compile_source(source, TARGET)
        for order in ORDERS:
            device, found = CudaSimDevice(order, 1), inputs(kernel)
            run(device, device.load(binary), found)
            for got, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_none_is_a_launch_of_its_own(name: str) -> None:
    kernel, reason = kernel_of(name), REFUSED[name][1]
    split, choice = unfuse_operands(kernel), written_candidates(kernel, HOPPER)[0]
    assert not isinstance(split, str) and reason in (why_no_epilogue(split.nest) or "")
    assert isinstance(choice, Written) and not choice.is_whole
    parts = parts_of(kernel, choice, HOPPER)
    assert parts.generated is not None and len(parts.generated.phases) == 1


@pytest.mark.parametrize("name", TAKEN)
def test_a_thread_has_columns_by_what_is_read_and_stored(name: str) -> None:
    """Whole sectors of 32 bytes for each row where threads store; what a copy of tiles stores has two neighbours."""
    kernel = kernel_of(name)
    split = unfuse_operands(kernel)
    assert not isinstance(split, str)
    values = Values(split.nest)
    for choice in choices(kernel):
        columns = columns_of(choice.product, choice.tile, split.nest)
        assert columns.stores == values.by_threads or choice.product.adds
        if columns.stores and not choice.product.adds:
            assert columns.lanes * values.itemsize in (16, 32) and columns.piece == 64
        elif not columns.stores:
            assert columns.lanes == 2 and columns.piece == 16


@pytest.mark.variants(every=13)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("name", COMPILED)
def test_it_is_machine_code_that_waits_for_nothing(name: str, part: int) -> None:
    kernel = kernel_of(name)
    split = unfuse_operands(kernel)
    assert not isinstance(split, str)
    choice = choices(kernel)[0]
    target = replace(HOPPER, multiprocessors=1)
    for tile in product_tiles(choice.product, target, Values(split.nest))[part::3]:
        _, log = nvrtc.compiled(source_by(kernel, replace(choice, tile=tile)), HOPPER, "--ptxas-options=-v")
        (usage,) = nvrtc.read_usage(log).values()
        assert usage.spill_nbytes == usage.stack_nbytes == 0, str(tile)
        assert "(C75" not in log, log
