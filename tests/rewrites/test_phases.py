"""Convolutions over an x with gaps are several over x itself, exactly."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w, conv_x
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.rewrites.contract import contract
from picograd.rewrites.convolutions import has_phases
from tests.codegen.test_convolution_cpu import check, conv, param
from tests.same_meaning import CPU_TARGETS, check_same_meaning


def convolutions(root: Op) -> list[Op]:
    return [op for op in toposort(contract([root])) if op.code is OpCode.CONV]


@pytest.mark.variants
@pytest.mark.parametrize("length", [5, 8, 9])
@pytest.mark.parametrize("taps", [1, 2, 3, 5])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("stride", [2, 3])
def test_gradients_of_convolutions_with_a_stride(
    length: int, taps: int, padding: int, stride: int, rng: np.random.Generator
) -> None:
    x, w = param(0, 2, 4, length, length + 1), param(1, 16, 2, taps, taps)
    out = conv(x, w, stride=stride, padding=padding, groups=2)
    grad = param(2, *out.shape)
    check(rng, conv_x(grad, out), w, grad)


def test_each_phase_has_its_own_taps() -> None:
    x, w = param(0, 1, 8, 6, 6), param(1, 8, 8, 3, 3)
    root = conv(x, w, apart=2, padding=1)
    assert has_phases(root)
    found = convolutions(root)
    assert sorted(op.src[1].shape[2:] for op in found) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert {op.arg.input_dilation for op in found} == {(1, 1)}


def test_a_phase_without_a_tap_is_zero() -> None:
    """Of one tap, three of four positions meet nothing."""
    assert len(convolutions(conv(param(0, 1, 2, 6, 6), param(1, 8, 2, 1, 1), apart=2))) == 1


@pytest.mark.parametrize(("taps", "padding", "least"), [(1, 0, 2), (1, 0, 4), (3, 1, 4), (5, 2, 6)])
def test_gradients_by_images_of_a_symbolic_length_have_phases(taps: int, padding: int, least: int) -> None:
    """A phase begins with an element that the shortest image has: only phases that meet a tap ask for one."""
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", least, 31))
    x, w = Op(OpCode.PARAM, dtypes.float32, (), (0, (2, 4, n, n))), param(1, 8, 4, taps, taps)
    out = conv(x, w, stride=2, padding=padding)
    grad = Op(OpCode.PARAM, dtypes.float32, (), (2, out.shape))
    root = conv_x(grad, out)
    assert {op.arg.input_dilation for op in convolutions(root)} == {(1, 1)}
    for length in (least, least + 1, 9):
        places = (length + 2 * padding - taps) // 2 + 1
        shapes, rng = {w: w.shape, grad: (2, 8, places, places)}, np.random.default_rng(length)
        values = {op: rng.standard_normal(shape, np.float32) for op, shape in shapes.items()}
        check_same_meaning([root], values, targets=CPU_TARGETS, variables={"n": length}, tolerance=1e-4)


@pytest.mark.parametrize(("length", "taps", "padding"), [(1, 1, 2), (1, 3, 3), (2, 2, 3), (1, 5, 4)])
def test_phases_that_meet_padding_alone(length: int, taps: int, padding: int, rng: np.random.Generator) -> None:
    """Of an x shorter than its padding some phases see nothing."""
    x, w = param(0, 2, 3, length, length + 2), param(1, 8, 3, taps, taps)
    for apart in (2, 3):
        check(rng, conv(x, w, apart=apart, padding=padding), x, w)


def test_what_has_gaps_and_a_stride_or_a_dilation_stays() -> None:
    x, w = param(0, 1, 2, 9, 9), param(1, 3, 2, 2, 2)
    for options in ({"stride": 2}, {"dilation": 2}):
        root = conv(x, w, apart=2, **options)
        assert not has_phases(root) and len(convolutions(root)) == 1


def products(root: Op) -> list[Op]:
    return [op for op in toposort(contract([root])) if op.code is OpCode.MATMUL]


@pytest.mark.parametrize(
    ("taps", "apart", "padding", "groups"), [(2, 2, 0, 1), (3, 4, 2, 1), (8, 8, 3, 2), (7, 5, 6, 1), (13, 6, 4, 2)]
)
def test_windows_as_wide_as_gaps_are_patches_of_one_product(
    taps: int, apart: int, padding: int, groups: int, rng: np.random.Generator
) -> None:
    """So are those of more phases than are worth a kernel each, whose patches overlap."""
    x, w = param(0, 2, 4 * groups, 3, 2), param(1, 2 * groups, 4, taps, taps)
    root = conv(x, w, apart=apart, padding=padding, groups=groups)
    assert len(products(root)) == 1 and not convolutions(root)
    check(rng, root, x, w)


def test_windows_wider_than_few_gaps_keep_their_phases() -> None:
    root = conv(param(0, 2, 4, 5, 5), param(1, 2, 4, 3, 3), apart=2)
    assert len(convolutions(root)) == 4 and not products(root)


def test_a_weight_of_a_transposed_convolution_with_many_gaps_is_one_convolution_without(rng: np.random.Generator) -> None:
    x, w = param(0, 2, 3, 4, 5), param(1, 2, 3, 5, 6)
    out = conv(x, w, apart=5, padding=4)
    grad = param(2, *out.shape)
    root = conv_w(grad, out)
    assert [max(op.arg.input_dilation) for op in convolutions(root)] == [1]
    check(rng, root, x, grad)
