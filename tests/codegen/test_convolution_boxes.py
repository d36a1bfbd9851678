"""Convolutions of images of symbolic lengths, by boxes and by planes of numbers: the same meaning at every level."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w, conv_x
from picograd.codegen.convolution_boxes import Boxes, has_boxes
from picograd.codegen.convolution_cpu import has_planes
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, dim_value, mul
from tests.codegen.test_convolution_cpu import conv, param
from tests.same_meaning import CPU_TARGETS, check_same_meaning

AVX512 = CPU_TARGETS[2]
H, W = (Op(OpCode.VARIABLE, dtypes.int64, (), (name, 8, 4095)) for name in "hw")
VALUES = {"h": 9, "w": 110}

Case = tuple[tuple[Dim, ...], tuple[int, ...], dict[str, int]]
SHAPES: list[Case] = [
    ((1, 3, H, W), (16, 3, 3, 3), {"padding": 1}),  # one vector of output channels, two boxes of a row
    ((2, 4, H, W), (40, 4, 3, 3), {"padding": 1}),  # two panels
    ((1, 3, H, W), (16, 3, 7, 7), {"padding": 3, "stride": 2}),
    ((2, 6, H, 11), (32, 3, 3, 2), {"groups": 2, "padding": 2, "dilation": 2}),  # boxes of eight rows
    ((2, 3, 5, W), (12, 3, 1, 1), {}),
    ((3, 5, W), (20, 5, 3), {"stride": 2, "padding": 1}),  # lines
    ((1, 130, 8, W), (16, 130, 2, 2), {}),  # two boxes of K
    ((1, 2, 3, H, 20), (16, 2, 2, 2, 9), {"padding": 1}),  # more taps along the last axis than are written out
]


def arrays_of(rng: np.random.Generator, *operands: Op, values: Mapping[str, int] = VALUES) -> dict[Op, np.ndarray]:
    shapes = [tuple(dim_value(dim, values) for dim in op.shape) for op in operands]
    return {op: rng.integers(-3, 4, shape).astype(np.float32) for op, shape in zip(operands, shapes)}


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_convolutions_and_gradients_of_weights(case: Case, rng: np.random.Generator) -> None:
    x, w = param(0, *case[0]), param(1, *case[1])
    out = conv(x, w, **case[2])
    grad = param(2, *out.shape)
    of_weight = conv_w(grad, out)
    assert has_boxes(out, AVX512)
    check_same_meaning([out], arrays_of(rng, x, w), targets=(), variables=VALUES)
    check_same_meaning([of_weight], arrays_of(rng, x, grad), targets=(), variables=VALUES)


def test_programs_on_each_width_of_vectors(rng: np.random.Generator) -> None:
    x, w, values = param(0, 2, 2, 3, W), param(1, 17, 2, 2, 2), {"w": 9}
    out = conv(x, w, padding=1)
    grad = param(2, *out.shape)
    for root, operands in ((out, (x, w)), (conv_w(grad, out), (x, grad))):
        check_same_meaning([root], arrays_of(rng, *operands, values=values), targets=CPU_TARGETS, variables=values)


PLANES: list[Case] = [
    ((2, 3, H, W), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    ((1, 3, H, W), (4, 3, 3, 3), {"padding": 1}),  # few output channels
    ((1, 2, H, W), (4, 1, 5, 5), {"groups": 2, "padding": 2, "stride": 2}),
    ((1, 3, H, 11), (3, 1, 3, 3), {"groups": 3, "padding": 1, "dilation": 2}),  # whole rows
    ((1, 3, 12, W), (3, 1, 3, 3), {"groups": 3}),
    ((2, 3, W), (3, 1, 5), {"groups": 3, "stride": 2}),  # lines
]


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("case", PLANES, ids=str)
def test_windows_of_few_output_channels_are_read_in_planes(case: Case, rng: np.random.Generator) -> None:
    x, w = param(0, *case[0]), param(1, *case[1])
    out = conv(x, w, **case[2])
    assert has_planes(out, CPU_TARGETS[0])
    for values in (VALUES, {"h": 70, "w": 300}):  # two parts of a row
        check_same_meaning([out], arrays_of(rng, x, w, values=values), targets=(), variables=values)


def test_a_plane_on_each_width_of_vectors(rng: np.random.Generator) -> None:
    """Also where the longest row ends within a vector: tiles of its last row reach beyond the plane."""
    w = param(1, 1, 1, 3, 3)
    x = param(0, 1, 1, *(Op(OpCode.VARIABLE, dtypes.int64, (), ends) for ends in (("h", 9, 40), ("w", 33, 70))))
    for stride, height, width in ((1, 9, 33), (2, 9, 41), (2, 40, 70)):
        out, values = conv(x, w, padding=1, stride=stride), {"h": height, "w": width}
        check_same_meaning([out], arrays_of(rng, x, w, values=values), targets=CPU_TARGETS, variables=values)


@pytest.mark.parametrize("most", [58, 60, 64, 66])
def test_the_longest_row_of_a_plane_touches_no_other(most: int, rng: np.random.Generator) -> None:
    """The vectors behind the end of its last row are of the same phase of the stride."""
    values, w = {"h": 9, "w": most}, param(1, 1, 1, 3, 3)
    h, width = (Op(OpCode.VARIABLE, dtypes.int64, (), bounds) for bounds in (("h", 5, 9), ("w", 32, most)))
    x = param(0, 2, 1, h, width)
    out = conv(x, w, padding=1, stride=2)
    assert all(has_planes(out, target) for target in CPU_TARGETS)
    check_same_meaning([out], arrays_of(rng, x, w, values=values), targets=CPU_TARGETS, variables=values)


def drawn_length(rng: np.random.Generator, name: str, values: dict[str, int]) -> Dim:
    """Returns a number, or an expression of a symbolic integer within narrow bounds; its value is put in `values`."""
    if rng.random() < 0.25:
        return int(rng.integers(5, 20))
    least = int(rng.integers(4, 24))
    most = least + int(rng.choice([0, 1, 2, 3, 5, 8, 13, 21, 40]))
    values[name] = int(rng.choice([least, most, most, rng.integers(least, most + 1)]))
    symbol = Op(OpCode.VARIABLE, dtypes.int64, (), (name, least, most))
    return [symbol, symbol, mul(symbol, 2), add(mul(symbol, 2), 1), mul(symbol, 4)][int(rng.integers(5))]


@pytest.mark.variants(every=10)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions_of_lengths_within_narrow_bounds(seed: int) -> None:
    rng, values = np.random.default_rng(seed), dict[str, int]()
    spatial = [drawn_length(rng, name, values) for name in "dhw"[-int(rng.choice([1, 2, 2, 2])) :]]
    groups, of_group = int(rng.choice([1, 1, 2, 3, 4])), (1, 1) if rng.random() < 0.5 else rng.choice([1, 2, 5, 17, 40], 2)
    channels, outputs = (groups * int(n) for n in of_group)
    batch, taps = int(rng.integers(1, 5)), [int(n) for n in rng.choice([1, 2, 3, 3, 5], len(spatial))]
    x, w = param(0, batch, channels, *spatial), param(1, outputs, channels // groups, *taps)
    stride, padding, dilation = (int(rng.choice(few)) for few in ([1, 1, 2, 2, 3], [0, 1, 2], [1, 1, 1, 2]))
    reached = [dim_value(n, values) + 2 * padding - (t - 1) * dilation for n, t in zip(spatial, taps)]
    padding += max(0, 1 - min(reached))  # the windows are no longer than what they look at
    out = conv(x, w, groups=groups, padding=padding, stride=stride, dilation=dilation)
    grad = param(2, *out.shape)
    for root, operands in ((out, (x, w)), (conv_w(grad, out), (x, grad)), (conv_x(grad, out), (w, grad))):
        check_same_meaning([root], arrays_of(rng, *operands, values=values), targets=(), variables=values)


def test_how_it_is_cut() -> None:
    x, w = param(0, 2, 3, H, W), param(1, 16, 3, 3, 3)
    out = conv(x, w, padding=1)
    boxes = Boxes.of(out, AVX512)
    assert (boxes.positions, boxes.taps, boxes.channels, boxes.span, boxes.splits) == ((1, 96), (3, 3), 3, (3, 98), 1)
    (gradient,) = [op for op in toposort([conv_w(param(2, *out.shape), out)]) if op.code is OpCode.CONV]
    boxes = Boxes.of(gradient, AVX512)
    assert (boxes.positions, boxes.taps, boxes.channels, boxes.span) == ((3, 3), (2, 128), 1, (4, 130))
    assert boxes.images == 3 and boxes.splits == 16


def test_an_image_is_cut_alone_as_among_others() -> None:
    """So that its sums add in one order."""
    w, n = param(1, 40, 60, 3, 3), Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 64))
    cuts = [Boxes.of(conv(param(0, batch, 60, H, W), w, padding=1), AVX512) for batch in (1, 7, n)]
    assert len({(boxes.taps, boxes.channels, boxes.splits, boxes.tile) for boxes in cuts}) == 1
    assert cuts[0].channels == 30


def test_a_box_that_no_stack_has_room_for_is_not_staged() -> None:
    x, w = param(0, 1, 3, H, W), param(1, 16, 3, 7, 7)
    assert has_boxes(conv(x, w, dilation=8), AVX512) and not has_boxes(conv(x, w, dilation=160), AVX512)
