"""Convolutions that read windows where they lie: which they are, how they are cut, and the same meaning at every level."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.transposes import conv_w, conv_x
from picograd.codegen.convolution_tiles import direct_of, is_direct
from picograd.codegen.winograd import PLAIN, Winograd
from picograd.ir.build import maximum
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.statements import For, Let, Load, Transpose, lanes_of, walk
from picograd.ir.symbolic import dim_value
from picograd.road import create_schedule, lower
from tests.codegen.test_convolution_boxes import drawn_length
from tests.codegen.test_convolution_cpu import check, conv, param, whole
from tests.same_meaning import CPU_TARGETS, check_same_meaning

AVX2 = CPU_TARGETS[1]

Case = tuple[tuple[int, ...], tuple[int, ...], dict[str, int]]
SHAPES: list[Case] = [
    ((2, 3, 9, 11), (16, 3, 3, 3), {}),
    ((2, 3, 9, 11), (16, 3, 3, 3), {"padding": 1}),
    ((1, 8, 20, 21), (24, 8, 5, 5), {"padding": 2, "stride": 2}),
    ((2, 6, 14, 15), (32, 3, 3, 3), {"groups": 2, "padding": 2, "dilation": 2}),
    ((3, 5, 60), (20, 5, 4), {"stride": 3, "padding": 3}),
    ((2, 2, 5, 6, 7), (16, 2, 2, 3, 2), {"padding": 1}),
    ((1, 40, 30, 31), (80, 40, 3, 3), {"padding": 1}),  # several blocks of K, panels, chunks of positions
    ((9, 20, 5, 5), (72, 20, 3, 3), {}),  # several images in an iteration
    ((1, 12, 12, 12), (300, 12, 1, 1), {}),
    ((2, 500, 7, 7), (256, 500, 3, 3), {"padding": 1}),  # a weight that each iteration packs for itself
    ((2, 384, 2, 3), (400, 384, 3, 3), {"padding": 1}),  # such a weight, as it is and turned around, without transforms
    ((3, 2, 4, 70), (16, 2, 3, 9), {"padding": 4}),  # more taps along the last axis than are written out
]


def operands(case: Case) -> tuple[Op, Op, Op]:
    x, w = param(0, *case[0]), param(1, *case[1])
    return x, w, conv(x, w, **case[2])


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_convolutions_and_their_gradients(case: Case, rng: np.random.Generator) -> None:
    x, w, out = operands(case)
    assert is_direct(out, AVX2)
    check(rng, out, x, w)
    grad = param(2, *out.shape)
    check(rng, conv_x(grad, out), w, grad)
    check(rng, conv_w(grad, out), x, grad)


@pytest.mark.parametrize("padding", [0, 1])
def test_programs_on_each_width_of_vectors(padding: int, rng: np.random.Generator) -> None:
    x, w = param(0, 2, 2, 3, 5), param(1, 19, 2, 2, 2)
    check(rng, conv(x, w, padding=padding), x, w, targets=CPU_TARGETS)


def test_a_split_sum_is_added_up_in_a_third_phase(rng: np.random.Generator) -> None:
    x, w = param(0, 1, 260, 6, 6), param(1, 16, 260, 5, 5)  # of four positions, over 6500 terms each
    assert direct_of(conv(x, w), AVX2).splits == 1, "axis 0 may be a batch"
    out = conv(x, w, of_weight=True)
    assert direct_of(out, AVX2).splits > 1
    (item,) = create_schedule([out]).kernel_items()
    assert len(lower(item.kernel, AVX2).phases) == 3
    check(rng, out, x, w)


@pytest.mark.parametrize(("channels", "splits"), [(640, 16), (620, 15), (260, 6)])
def test_a_long_sum_is_split_for_sixteen_iterations(channels: int, splits: int) -> None:
    direct = direct_of(conv(param(0, 1, channels, 6, 6), param(1, 16, channels, 5, 5), of_weight=True), AVX2)
    assert direct.num_image_blocks == direct.num_pieces == direct.num_chunks == 1
    assert direct.splits == splits == min(16, direct.num_k_blocks // 2)


def test_what_is_computed_before_and_after_joins_the_kernel(rng: np.random.Generator) -> None:
    x, w, bias = param(0, 2, 3, 6, 7), param(1, 16, 3, 3, 3), param(2, 16)
    repeated = Op(OpCode.EXPAND, x.dtype, (Op(OpCode.RESHAPE, x.dtype, (bias,), (1, 16, 1, 1)),), (2, 16, 4, 5))
    root = maximum(conv(x * x, w + 1.0) + repeated, 0.0)
    schedule = check_same_meaning([root], {op: whole(rng, op) for op in (x, w, bias)}, targets=())
    assert len(schedule.items) == 1


@pytest.mark.parametrize("stride", [1, 2])  # values at points, and an x as it is
def test_no_vector_is_computed_for_padding_alone(stride: int, rng: np.random.Generator) -> None:
    """Rows of 16 between zeros: two vectors of eight lanes, where 18 would take three."""
    x, w = param(0, 2, 16, 16, 16), param(1, 16, 16, 3, 3)
    root = conv(x * x + 1.0, w, padding=1, stride=stride)
    assert (direct_of(root, AVX2).scheme == PLAIN) == (stride == 2)
    (item,) = create_schedule([root]).kernel_items()
    extents = [int(loop.range.src[0].arg) for loop in walk(lower(item.kernel, AVX2).phases[1]) if isinstance(loop, For)
               and any(isinstance(one, Load) and one.memory.arg[0] == 0 for one in loop.body)]  # fmt: skip
    assert extents == [2]
    check(rng, root, x, w)


@pytest.mark.parametrize("length", [12, 6])  # values at points, and a weight as it is
def test_a_computed_gradient_is_turned_in_squares(length: int, rng: np.random.Generator) -> None:
    """A gradient that passes a norm is computed along the images, as they lie in memory, and not across channels."""
    x, w = param(0, 3, 16, length, length), param(1, 16, 16, 3, 3)
    grad = param(2, *conv(x, w, padding=1).shape)
    root = conv_w(grad * grad + 1.0, conv(x, w, padding=1))
    programs = [lower(item.kernel, AVX2) for item in create_schedule([root]).kernel_items()]
    packing = next(walk(program.phases[0]) for program in programs if len(program.phases) > 1)
    assert any(isinstance(one, Transpose) for one in packing)
    check(rng, root, x, grad)


def test_a_batch_known_only_when_a_plan_runs(rng: np.random.Generator) -> None:
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 9))
    for height in (12, 3):  # some positions of an image, and several images, in an iteration
        x, w = param(0, n, 2, height, 14), param(1, 16, 2, 3, 3)
        arrays = {x: rng.integers(-4, 5, (7, 2, height, 14)).astype(np.float32), w: whole(rng, w)}
        check_same_meaning([conv(x, w, padding=1)], arrays, targets=(), variables={"n": 7})


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (((1, 2, 5, 5), (16, 2, 3, 3), {"apart": 2}), "gaps in x"),
        (((1, 2, 9, 9), (9, 2, 3, 3), {}), "lanes without a channel"),
        (((1, 8, 9, 9), (8, 1, 3, 3), {"groups": 8}), "a channel a group"),
        (((4, 2, 3, 3), (16, 2, 2, 3), {}), "two positions an image"),
        (((1, 1, 3, 300, 400), (16, 1, 2, 2, 2), {"padding": 1}), "planes too large for a stack"),
    ],
)
def test_others_pack_their_windows(case: Case, why: str, rng: np.random.Generator) -> None:
    x, w, out = operands(case)
    assert not is_direct(out, AVX2), why
    check(rng, out, x, w)


def test_how_it_is_cut() -> None:
    def cut(case: Case) -> dict[str, Any]:
        direct = direct_of(operands(case)[2], AVX2)
        names = ("scheme", "num_pieces", "num_chunks", "channels", "taps", "splits", "is_staged")
        of_unit = {name: getattr(direct, f"unit_{name}") for name in ("panels", "positions", "images")}
        tile = (direct.tile.rows, direct.tile.vectors)
        return {"tile": tile, **of_unit, **{name: getattr(direct, name) for name in names}}

    assert cut(((128, 8, 24, 24), (32, 8, 5, 5), {})) == {
        "tile": (5, 2), "scheme": PLAIN, "panels": 2, "num_pieces": 1, "positions": 80, "num_chunks": 5, "images": 1,
        "channels": 8, "taps": 5, "splits": 1, "is_staged": False,
    }  # fmt: skip
    of_weight = {"of_weight": True}
    gradient = cut(((8, 128, 24, 24), (32, 128, 20, 20), of_weight))  # of that weight: 51,200 terms, 25 positions
    assert (gradient["scheme"], gradient["tile"], gradient["positions"], gradient["images"]) == (PLAIN, (5, 2), 25, 8)
    assert (gradient["channels"], gradient["taps"]) == (1, 20) and gradient["splits"] > 1
    assert cut(((128, 32, 24, 24), (32, 32, 5, 5), {})) == {
        "tile": (5, 2), "scheme": Winograd(2, 5), "panels": 2, "num_pieces": 1, "positions": 80, "num_chunks": 3,
        "images": 1, "channels": 32, "taps": 1, "splits": 1, "is_staged": True,
    }  # fmt: skip
    gradient = cut(((32, 128, 24, 24), (32, 128, 20, 20), of_weight))
    assert (gradient["scheme"], gradient["tile"]) == (Winograd(5, 2), (5, 2))
    assert (gradient["positions"], gradient["images"]) == (5, 32)
    assert (gradient["channels"], gradient["taps"]) == (1, 10) and gradient["splits"] > 1
    panels = {width: cut(((1, 32, 6, width), (256, 32, 3, 3), {"padding": 1}))["panels"] for width in (224, 448, 896)}
    assert panels == {224: 4, 448: 3, 896: 1}  # 84, 168, 336 KiB of sums each
    assert cut(((1, 8, 9, 9), (8, 8, 3, 3), {"padding": 1}))["tile"] == (9, 1)  # one vector, so twice the rows


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_nothing_is_guarded(case: Case) -> None:
    _, _, out = operands(case)
    grad = param(2, *out.shape)
    for root in (out, conv_x(grad, out), conv_w(grad, out)):
        for item in create_schedule([root]).kernel_items():
            assert [program.num_guards for program in map(partial(lower, item.kernel), CPU_TARGETS)] == [0, 0, 0]


@pytest.mark.parametrize(("length", "lanes"), [(8, {8}), (16, {16}), (12, {8, 4})])
def test_what_comes_behind_short_rows_is_computed_in_shorter_vectors(length: int, lanes: set[int]) -> None:
    x, w = param(0, 2, 16, length, length), param(1, 16, 16, 3, 3)
    root = conv(x, w, padding=1) * param(2, 2, 16, length, length)
    assert direct_of(root.src[0], CPU_TARGETS[-1]).scheme != PLAIN
    (item,) = create_schedule([root]).kernel_items()
    program = lower(item.kernel, CPU_TARGETS[-1])
    loads = [one for one in walk(program.phases[-1]) if isinstance(one, Load) and one.memory.arg[0] == 2]
    assert {lanes_of(one.var) for one in loads} == lanes


# ---- images of symbolic lengths ----
@pytest.mark.variants(every=10)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_convolutions_by_blocks_of_images(seed: int) -> None:
    rng, values = np.random.default_rng(seed), dict[str, int]()
    spatial = [drawn_length(rng, name, values) for name in "dhw"[-int(rng.choice([2, 2, 2, 3])) :]]
    groups, batch = int(rng.choice([1, 1, 1, 2])), int(rng.choice([1, 2, 3, 9]))
    channels, outputs = groups * int(rng.integers(12, 20)), groups * int(rng.choice([10, 16, 17, 32, 40]))
    taps = [int(n) for n in rng.choice([1, 2, 3, 3, 5], len(spatial))]
    x, w = param(0, batch, channels, *spatial), param(1, outputs, channels // groups, *taps)
    stride, padding, dilation = (int(rng.choice(few)) for few in ([1, 1, 1, 2, 3], [0, 1, 2], [1, 1, 1, 2]))
    reached = [dim_value(n, values) + 2 * padding - (t - 1) * dilation for n, t in zip(spatial, taps)]
    padding += max(0, 1 - min(reached))  # the windows are no longer than what they look at
    out = conv(x, w, groups=groups, padding=padding, stride=stride, dilation=dilation)
    shapes = [tuple(dim_value(dim, values) for dim in op.shape) for op in (x, w)]
    inputs = {op: rng.integers(-3, 4, shape).astype(np.float32) for op, shape in zip((x, w), shapes)}
    check_same_meaning([out], inputs, targets=(), variables=values)


def images(batch: Dim = 2, least: int = 8) -> Op:
    return param(0, batch, 20, *(Op(OpCode.VARIABLE, dtypes.int64, (), (name, least, 4095)) for name in "hw"))


def test_blocks_on_each_width_of_vectors(rng: np.random.Generator) -> None:
    x, w, values = images(), param(1, 20, 20, 3, 3), {"h": 9, "w": 21}
    out = conv(x, w, padding=1)
    inputs = {op: rng.integers(-3, 4, shape).astype(np.float32) for op, shape in ((x, (2, 20, 9, 21)), (w, w.shape))}
    assert all(is_direct(out, target) and direct_of(out, target).is_blocked for target in CPU_TARGETS[1:])
    check_same_meaning([out], inputs, targets=CPU_TARGETS, variables=values)


def test_places_within_a_block_are_divided_without_signs() -> None:
    """A block has a position along each axis: a division by a number that may be negative is twenty operations."""
    (item,) = create_schedule([conv(images(), param(1, 20, 20, 3, 3), padding=1)]).kernel_items()
    for target in CPU_TARGETS[1:]:
        lets = [one.value for phase in lower(item.kernel, target).phases for one in walk(phase) if isinstance(one, Let)]
        assert {value.dtype for value in lets if value.code in (OpCode.IDIV, OpCode.MOD)} == {dtypes.int64}


@pytest.mark.parametrize(("batch", "least"), [(2, 8), (50, 2), (3, 40)])
def test_no_read_of_a_staged_block_is_guarded(batch: int, least: int) -> None:
    (item,) = create_schedule([conv(images(batch, least), param(1, 20, 20, 3, 3), padding=1)]).kernel_items()
    assert all(lower(item.kernel, target).num_guards <= 2 for target in CPU_TARGETS[1:]), "two stores of results"


def test_how_images_are_cut_into_blocks() -> None:
    w, n = param(1, 32, 20, 3, 3), Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 64))
    direct = direct_of(conv(images(), w, padding=1), CPU_TARGETS[2])
    assert (direct.spatial, direct.padded, direct.scheme.outputs) == ((4, 14), (16,), 4), "windows fill a vector of 16"
    assert direct_of(conv(images(50, least=2), w, padding=1), CPU_TARGETS[2]).unit_images == 12, "of 2 rows of 4 positions"
    starts, lengths = direct.block(Op(OpCode.VARIABLE, dtypes.int64, (), ("k", 0, 6 * 2 - 1)))
    cut = [[dim_value(d, {"h": 90, "w": 25, "k": k}) for d in (*starts, *lengths)] for k in range(6 * 2)]
    assert [row[1::2] for row in cut[:2]] == [[0, 13], [13, 12]] and [row[::2] for row in cut[::2]] == [
        [first, min(4, 23 - first)] for first in range(0, 23, 4)
    ], "23 tiles of 4 rows in six blocks, 25 columns in two"
    alone = [direct_of(conv(images(batch), w, padding=1), CPU_TARGETS[2]) for batch in (1, 7, n)]
    assert len({(each.scheme, each.channels, each.taps, each.is_shared) for each in alone}) == 1, "sums add in one order"


@pytest.mark.parametrize("case", ["few channels", "one tap", "a line", "the gradient of a weight"])
def test_images_that_boxes_are_better_for(case: str) -> None:
    x = images()
    few = param(0, 2, 8, *x.shape[2:])
    out = {
        "few channels": conv(few, param(1, 32, 8, 3, 3)), "one tap": conv(x, param(1, 32, 20, 1, 1), stride=2),
        "a line": conv(param(0, 2, 20, x.shape[2]), param(1, 32, 20, 3)),
        "the gradient of a weight": conv_w(param(2, 2, 32, *x.shape[2:]), conv(x, param(1, 32, 20, 3, 3), padding=1)),
    }[case]  # fmt: skip
    (anchor,) = [op for op in toposort([out]) if op.code is OpCode.CONV]
    assert not is_direct(anchor, AVX2)
