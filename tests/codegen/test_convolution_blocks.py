"""How a convolution is cut: every row, column and k in one block, and no block larger than it may be."""

from __future__ import annotations

import pytest

from picograd import dtype as dtypes
from picograd.codegen.convolution_cpu import (
    BLOCK_CHANNELS_MAX,
    BLOCK_K_MAX,
    BLOCK_VECTORS_MIN,
    Blocks,
    _num_splits,
    blocks_of,
)
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from tests.same_meaning import CPU_TARGETS


def blocks(
    x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, padding: int = 0, dilation: int = 1, wide: int = 0,
    of_weight: bool = False,
) -> Blocks:  # fmt: skip
    axes = len(x) - 2
    arg = ConvArg((stride,) * axes, ((padding, padding),) * axes, (dilation,) * axes, (1,) * axes, 1, of_weight)
    x_op, w_op = (Op(OpCode.PARAM, dtypes.float32, (), (slot, shape)) for slot, shape in enumerate((x, w)))
    return blocks_of(Op(OpCode.CONV, dtypes.float32, (x_op, w_op), arg), CPU_TARGETS[wide])


@pytest.mark.parametrize(
    ("channels", "kernel"),
    [(1, 1), (3, 3), (31, 3), (32, 3), (33, 3), (288, 1), (289, 1), (600, 1), (1, 17), (2, 17), (5, 40), (64, 16), (0, 3)],
)
def test_blocks_of_k_hold_all_of_it_and_are_of_one_length(channels: int, kernel: int) -> None:
    cut = blocks((2, channels, 50, 50), (4, channels, kernel, kernel))
    taps = kernel * kernel
    assert 1 <= cut.depth == cut.channels * cut.taps <= BLOCK_K_MAX
    assert cut.num_tap_blocks == -(-taps // cut.taps) == -(-taps // BLOCK_K_MAX)
    assert cut.num_tap_blocks * cut.taps - taps < cut.num_tap_blocks, "one block much shorter than the others"
    if cut.num_tap_blocks > 1:
        assert cut.channels == 1 and cut.num_k_blocks == channels * cut.num_tap_blocks
    elif channels:
        fewest = -(-channels // (BLOCK_K_MAX // taps))
        assert cut.num_k_blocks == fewest and fewest * cut.channels - channels < fewest
    else:
        assert cut.num_k_blocks == 0


@pytest.mark.parametrize("outputs", [1, 5, 6, 12, 13, 131, 132, 133, 264, 265, 1000])
@pytest.mark.parametrize("wide", [0, 2])
def test_blocks_of_rows_hold_all_output_channels(outputs: int, wide: int) -> None:
    cut = blocks((2, 3, 20, 20), (outputs, 3, 3, 3), wide=wide)
    assert cut.row_panels == -(-outputs // cut.rows)
    assert cut.panels * cut.rows <= max(BLOCK_CHANNELS_MAX, cut.rows)
    assert (cut.num_pieces - 1) * cut.panels < cut.row_panels <= cut.num_pieces * cut.panels
    assert cut.num_pieces == -(-cut.row_panels // (BLOCK_CHANNELS_MAX // cut.rows))
    assert cut.num_pieces * cut.panels - cut.row_panels < cut.num_pieces, "one block much shorter than the others"


@pytest.mark.parametrize(
    ("x", "w", "arg", "first_inner", "inner", "by_rows"),
    [
        ((2, 3, 8, 16), (4, 3, 3, 3), {"padding": 1}, 1, 16, True),
        ((2, 3, 8, 18), (4, 3, 3, 3), {}, 1, 16, True),
        ((2, 3, 8, 8), (4, 3, 3, 3), {"padding": 1}, 1, 8, False),  # half of 16 lanes
        ((2, 3, 8, 10), (4, 3, 3, 3), {"padding": 1}, 1, 10, True),
        ((2, 3, 8, 19), (4, 3, 3, 3), {"padding": 1}, 1, 19, False),  # 19 of 32
        ((2, 3, 8, 20), (4, 3, 3, 3), {"padding": 1}, 1, 20, True),
        ((2, 3, 8, 8), (4, 3, 1, 1), {}, 0, 64, True),  # positions lie one after the other through all axes
        ((2, 3, 8, 8), (4, 3, 1, 1), {"padding": 1}, 1, 10, True),
        ((2, 3, 15, 15), (4, 3, 1, 1), {"stride": 2}, 1, 8, False),
        ((2, 3, 8, 8), (4, 3, 1, 1), {"dilation": 2}, 0, 64, True),
        ((2, 3, 8, 8), (4, 3, 3, 1), {}, 1, 8, False),
        ((2, 3, 4, 5, 6), (4, 3, 2, 1, 1), {}, 1, 30, True),
        ((2, 3, 40), (4, 3, 4), {"stride": 3}, 0, 13, True),
    ],
)  # fmt: skip
def test_vectors_of_positions(
    x: tuple[int, ...], w: tuple[int, ...], arg: dict[str, int], first_inner: int, inner: int, by_rows: bool
) -> None:
    cut = blocks(x, w, **arg, wide=2)
    assert cut.lanes == 16 and (cut.first_inner, cut.inner, cut.by_rows) == (first_inner, inner, by_rows)
    positions = cut.num_positions
    assert isinstance(positions, int) and isinstance(cut.num_vectors, int) and isinstance(cut.num_columns, int)
    rows, each = (positions // inner, inner) if by_rows else (1, positions)
    assert cut.num_vectors == rows * -(-each // 16)
    assert cut.width >= BLOCK_VECTORS_MIN > cut.width - cut.vectors and cut.width % cut.vectors == 0
    assert (cut.num_columns - 1) * cut.width < cut.num_vectors <= cut.num_columns * cut.width


@pytest.mark.parametrize(
    ("x", "w", "arg"),
    [
        ((2, 3, 8, 19), (4, 3, 3, 3), {"padding": 1}), ((2, 3, 8, 20), (4, 3, 3, 3), {"padding": 1}),
        ((3, 2, 5, 5), (4, 2, 1, 1), {}), ((2, 3, 40), (4, 3, 4), {"stride": 3}), ((2, 3, 4, 5, 6), (4, 3, 2, 1, 1), {}),
    ],
)  # fmt: skip
def test_every_position_is_one_lane_of_one_vector(x: tuple[int, ...], w: tuple[int, ...], arg: dict[str, int]) -> None:
    cut = blocks(x, w, **arg)
    assert isinstance(cut.num_vectors, int)
    spatial, found = cut.windows.spatial, []
    for vector in range(cut.num_vectors + 1):  # a block may run on beyond the last
        lanes = [cut.position(vector, lane) for lane in range(cut.lanes)]
        inside = [(b, *at) for b, at, known in lanes if known is True and all(p < n for p, n in zip(at, spatial))]
        assert vector == cut.num_vectors or len(inside) == cut.count(vector)
        found += inside
    assert len(found) == len(set(found)) == cut.num_positions


@pytest.mark.parametrize(("wide", "rows"), [(0, 6), (1, 6), (2, 12)])
def test_a_tile_holds_as_many_rows_as_the_registers_allow(wide: int, rows: int) -> None:
    assert blocks((2, 32, 50, 50), (60, 32, 3, 3), wide=wide).rows == rows


@pytest.mark.parametrize(("length", "columns", "splits"), [(23, 16, 1), (22, 13, 5)])
def test_a_long_sum_is_split_where_there_are_fewer_than_sixteen_iterations(length: int, columns: int, splits: int) -> None:
    cut = blocks((1, 300, length, length), (1, 300, 3, 3), of_weight=True)
    assert (cut.num_columns, _num_splits(cut)) == (columns, splits)
    assert _num_splits(blocks((1, 300, length, length), (1, 300, 3, 3))) == 1, "axis 0 may be a batch"
