"""Convolutions of few places, or few elements, are products; gradients by channels of their own are sums along planes."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w, conv_x
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.record import replace
from picograd.rewrites.contract import contract
from picograd.rewrites.convolutions import without_places_in_padding, without_taps_in_padding
from picograd.road import create_schedule, lower
from tests.codegen.test_convolution_cpu import check, conv, param
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

TARGET = CPU_TARGETS[-1]  # 16 lanes


# ---- taps and places that meet padding alone ----
@pytest.mark.parametrize(
    ("length", "taps", "arg", "expected"),
    [
        (1, 3, {"padding": 1}, (1, 1)),
        (2, 3, {"padding": 1}, (3, 2)),
        (2, 7, {"padding": 3}, (3, 2)),
        (1, 3, {"padding": 2, "dilation": 2}, (1, 1)),
        (1, 3, {"padding": 3, "dilation": 2}, (1, 1)),
        (3, 5, {"padding": 2, "stride": 2}, (5, 2)),
        (1, 2, {"padding": 3, "apart": 2}, (2, 2)),
        (4, 1, {"padding": 2, "stride": 3}, (1, 3)),  # less padding than a step would be left behind
        (3, 1, {"padding": 5}, (1, 3)),
        (6, 3, {"padding": -1}, (3, 2)),
    ],
)
def test_what_meets_padding_alone_is_left_out(
    length: int, taps: int, arg: dict[str, int], expected: tuple[int, int], rng: np.random.Generator
) -> None:
    x, w = param(0, 2, 3, length, length), param(1, 4, 3, taps, taps)
    few, zeros = without_places_in_padding(without_taps_in_padding(conv(x, w, **arg)))
    assert (few.src[1].shape[2], few.shape[2]) == expected
    assert few.shape[2] + sum(zeros[2]) == conv(x, w, **arg).shape[2]
    check(rng, conv(x, w, **arg), x, w)


# ---- products ----
Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]
FEW: list[Case] = [
    ((3, 20, 1, 1), (17, 20, 1, 1), {}),
    ((2, 20, 1, 1), (18, 20, 3, 3), {"padding": 1}),
    ((2, 20, 1, 1), (18, 10, 3, 3), {"padding": 2, "dilation": 2, "groups": 2}),
    ((2, 6, 5, 5), (10, 6, 5, 5), {}),  # a window as large as its image
    ((2, 6, 6, 6), (10, 6, 3, 3), {"stride": 4}),
    ((2, 6, 5), (10, 6, 2), {"dilation": 3, "stride": 2}),
    ((1, 12, 3), (20, 6, 3), {"padding": 1, "groups": 2}),
    ((2, 12, 3), (20, 12, 1), {}),
    ((2, 3, 1, 2, 1), (5, 3, 3, 3, 1), {"padding": 1}),
]


def operands(case: Case, dtype: DType = dtypes.float32) -> tuple[Op, Op, Op, Op]:
    """Returns x, w, their CONV and a gradient of it."""
    x, w = param(0, *case[0], dtype=dtype), param(1, *case[1], dtype=dtype)
    out = conv(x, w, **case[2])
    return x, w, out, param(2, *out.shape, dtype=dtype)


def kinds(root: Op, target: Target = TARGET) -> set[OpCode]:
    """Returns which of products, convolutions and sums a graph becomes."""
    return {op.code for op in toposort(contract([root], target))} & {OpCode.MATMUL, OpCode.CONV, OpCode.REDUCE}


@pytest.mark.parametrize("case", FEW, ids=str)
def test_few_places_are_a_product(case: Case, rng: np.random.Generator) -> None:
    x, w, out, grad = operands(case)
    assert kinds(out) == {OpCode.MATMUL}
    assert kinds(out, GPU_TARGET) == {OpCode.CONV}
    check(rng, out, x, w)
    check(rng, conv_x(grad, out), w, grad)
    check(rng, conv_w(grad, out), x, grad)


@pytest.mark.parametrize("case", [FEW[1], FEW[2], FEW[6], FEW[7]], ids=str)
def test_so_is_a_gradient_of_few_elements_whose_weight_is_turned_around(case: Case) -> None:
    _, _, out, grad = operands(case)
    assert kinds(conv_x(grad, out)) == {OpCode.MATMUL}


@pytest.mark.parametrize("case", [FEW[1], FEW[2], FEW[7]], ids=str)
def test_so_is_the_gradient_of_a_weight_for_one_place_that_no_padding_is_under(case: Case) -> None:
    _, _, out, grad = operands(case)
    assert kinds(conv_w(grad, out)) == {OpCode.MATMUL}
    assert kinds(conv_w(grad, out), replace(TARGET, plain_sums=True)) == {OpCode.CONV}


def test_so_is_the_gradient_of_a_large_weight_over_few_elements(rng: np.random.Generator) -> None:
    """Windows of a small one would be as many as its elements."""
    x, _, out, grad = operands(((2, 256, 2, 3), (260, 256, 3, 3), {"padding": 1}))
    assert kinds(conv_w(grad, out)) == {OpCode.MATMUL}
    check(rng, conv_w(grad, out), x, grad)
    _, _, out, grad = operands(((2, 32, 2, 3), (40, 32, 3, 3), {"padding": 1}))
    assert kinds(conv_w(grad, out)) == {OpCode.CONV}


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.bfloat16])
def test_products_of_every_float(dtype: DType, rng: np.random.Generator) -> None:
    x, w, out, grad = operands(FEW[2], dtype)
    values = {op: rng.integers(0, 3, op.shape).astype(dtype.numpy) for op in (x, w, grad)}
    check_same_meaning([out, conv_x(grad, out), conv_w(grad, out)], values, targets=())


# ---- sums along planes ----
PLANES: list[Case] = [
    ((2, 3, 9, 7), (3, 1, 3, 3), {"padding": 1, "groups": 3}),
    ((2, 3, 13, 12), (3, 1, 3, 3), {"padding": 1, "groups": 3, "stride": 2}),
    ((2, 3, 20, 17), (3, 1, 3, 2), {"padding": 2, "groups": 3, "dilation": 2, "stride": 3}),
    ((3, 2, 8, 8), (4, 1, 2, 5), {"groups": 2, "padding": 2}),  # two outputs a group
    ((2, 6, 7, 7), (3, 2, 3, 3), {"groups": 3}),  # two channels a group
    ((2, 3, 110), (3, 1, 4), {"groups": 3, "stride": 3}),
    ((2, 2, 6, 5, 7), (2, 1, 2, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
]


@pytest.mark.parametrize("case", PLANES, ids=str)
def test_a_gradient_with_few_outputs_a_group_is_a_sum_along_planes(case: Case, rng: np.random.Generator) -> None:
    """And none of the elements of a plane is looked for: each access is proved to be inside."""
    x, _, out, grad = operands(case)
    root = conv_w(grad, out)
    assert kinds(root) == {OpCode.REDUCE}
    assert OpCode.CONV in kinds(root, replace(TARGET, plain_sums=True)) | kinds(root, GPU_TARGET)
    check(rng, root, x, grad)
    for target in (TARGET, CPU_TARGETS[1]):
        sums = [item.kernel for item in create_schedule([root], target).kernel_items()][-1]
        assert lower(sums, target).num_guards == 0


def test_more_outputs_a_group_share_what_they_read() -> None:
    _, _, out, grad = operands(((2, 2, 8, 8), (6, 1, 3, 3), {"groups": 2}))
    assert kinds(conv_w(grad, out)) == {OpCode.CONV}
