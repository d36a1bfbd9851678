"""Products by matrix instructions mean the same as others, whatever the tile, and are taken where they pay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen import matmul_gpu
from picograd.codegen.emit import candidates, guess
from picograd.codegen.matmul_gpu import block_tile, num_parts, warp_tile
from picograd.dtype import DType
from picograd.evaluator import evaluate_kernel, evaluate_program
from picograd.ir.build import shrink, swap_last
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import BlockTile, Opts, WarpTile
from picograd.ir.shape import ConvArg, MatmulArg
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel, Program
from picograd.ir.statements import CopyAsync, Mma, walk
from picograd.record import replace
from picograd.road import create_schedule, lower
from tests.same_meaning import GPU_TARGET, ByTurns


def product(
    m: int, k: int, n: int, letters: str = "NN", dtype: DType = dtypes.float16, tf32: bool = False
) -> Kernel:
    """x = a @ b; T says that an operand lies transposed."""
    a = Op(OpCode.PARAM, dtype, (), (0, (m, k) if letters[0] == "N" else (k, m)))
    b = Op(OpCode.PARAM, dtype, (), (1, (k, n) if letters[1] == "N" else (n, k)))
    sides = (a if letters[0] == "N" else swap_last(a), b if letters[1] == "N" else swap_last(b))
    arg = MatmulArg(tf32=True) if tf32 else None
    (item,) = create_schedule([Op(OpCode.MATMUL, dtype, sides, arg)]).items
    return item.kernel


def convolution(x: tuple[int, ...], w: tuple[int, ...], arg: ConvArg, dtype: DType) -> Kernel:
    sides = (Op(OpCode.PARAM, dtype, (), (0, x)), Op(OpCode.PARAM, dtype, (), (1, w)))
    (item,) = create_schedule([Op(OpCode.CONV, dtype, sides, arg)]).items
    return item.kernel


def check(kernel: Kernel, choices: Opts, threads: int) -> None:
    """Compares a product by matrix instructions."""
    target = replace(GPU_TARGET, block_threads=threads)
    program = lower(kernel, target, choices)
    assert any(isinstance(statement, Mma) for phase in program.phases for statement in walk(phase))
    compare(kernel, program)


def compare(kernel: Kernel, program: Program) -> None:
    """On whole numbers, so that every sum is exact and fits its dtype."""
    verify_program(program, after="lower")
    rng = np.random.default_rng(0)
    memory = [rng.integers(-3, 4, int(p.numel)).astype(p.dtype.numpy) for p in kernel.params]  # type: ignore[arg-type]
    expected = [array.copy() for array in memory]
    evaluate_kernel(kernel, expected, {})
    evaluate_program(program, memory, {}, ByTurns())
    np.testing.assert_array_equal(memory[2].astype(np.float32), expected[2].astype(np.float32))


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("letters", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("shape", [(16, 16, 8), (32, 48, 24), (19, 37, 13)])
def test_every_way_an_operand_can_lie(letters: str, shape: tuple[int, int, int]) -> None:
    check(product(*shape, letters), Opts((WarpTile(1, 1, 1, 2, 16),)), 32)
    check(product(*shape, letters, dtypes.float32, tf32=True), Opts((WarpTile(1, 1, 1, 2, 16),)), 32)


@pytest.mark.variants(every=3, first=1)
@pytest.mark.parametrize("tile", [WarpTile(1, 1, 2, 6, 32), WarpTile(1, 2, 1, 2, 16), WarpTile(2, 1, 1, 4, 32)], ids=str)
def test_every_tile(tile: WarpTile) -> None:
    check(product(40, 50, 30, dtype=dtypes.bfloat16), Opts((tile,)), tile.threads)
    check(product(40, 50, 30, dtype=dtypes.float32, tf32=True), Opts((tile,)), tile.threads)


def test_warps_of_multiply_adds_lie_beside_and_below_each_other() -> None:
    kernel = product(20, 4, 40, dtype=dtypes.float32)
    compare(kernel, lower(kernel, replace(GPU_TARGET, block_threads=128), Opts((BlockTile(8, 16, 2, 1, 4),))))


@pytest.mark.parametrize(("m", "k", "n"), [(5, 1, 8), (6, 12, 8)])
def test_operands_are_parts_of_wider_ones(m: int, k: int, n: int) -> None:
    """Copies of several elements begin at multiples: not where rows are 65 elements apart."""
    for letters in ("NN", "TT"):
        for wider in (1, 4):
            shapes = [(m, k) if letters[0] == "N" else (k, m), (k, n) if letters[1] == "N" else (n, k)]
            sides = []
            for slot, (rows, columns) in enumerate(shapes):
                whole = Op(OpCode.PARAM, dtypes.float32, (), (slot, (rows, columns + wider)))
                part = shrink(whole, ((0, rows), (wider, wider + columns)))
                sides.append(part if letters[slot] == "N" else swap_last(part))
            (item,) = create_schedule([Op(OpCode.MATMUL, dtypes.float32, tuple(sides))], GPU_TARGET).items
            compare(item.kernel, lower(item.kernel, GPU_TARGET))


@pytest.mark.variants(every=2)
@pytest.mark.parametrize(
    ("x", "w", "arg"),
    [
        ((2, 3, 4, 5), (9, 3, 3, 3), ConvArg((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1, False)),
        ((1, 8, 9), (16, 4, 2), ConvArg((2,), ((0, 1),), (2,), (1,), 2, False)),
    ],
)
def test_so_are_convolutions(x: tuple[int, ...], w: tuple[int, ...], arg: ConvArg) -> None:
    check(convolution(x, w, arg, dtypes.bfloat16), Opts(), 32)
    check(convolution(x, w, replace(arg, tf32=True), dtypes.float32), Opts(), 32)


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=str)
def test_blocks_share_a_long_k(dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_gpu, "PART_K_MIN", 40)
    kernels = [product(20, 100, 9, dtype=dtype)]
    kernels.append(convolution((1, 34, 5), (9, 34, 3), ConvArg((1,), ((1, 1),), (1,), (1,), 1, False), dtype))
    for kernel in kernels:
        program = lower(kernel, GPU_TARGET)
        assert len(program.phases) == 2 and [p.role for p in program.params] == ["in", "in", "out", "scratch"]
        compare(kernel, program)


def test_how_many_share_it_follows_from_the_shape() -> None:
    target = replace(GPU_TARGET, block_threads=256)
    half = dtypes.float16
    assert num_parts(768, 768, 16384, 1, half, target) == 3  # 36 tiles, and 108 blocks in one go
    assert num_parts(768, 768, 1023, 1, half, target) == 1  # too short for two parts
    assert num_parts(4096, 4096, 16384, 1, half, target) == 1  # enough tiles
    assert num_parts(64, 64, 1 << 20, 1, half, target) == 16
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 64))
    for m, columns, k, batch in ((n, 64, 1 << 20, 1), (64, n, 1 << 20, 1), (64, 64, n, 1), (64, 64, 1 << 20, n)):
        assert num_parts(m, columns, k, batch, half, target) == 1


@pytest.mark.parametrize(
    ("tile_of", "dtype", "expected"),
    [
        (block_tile, dtypes.float32, [(128, 128), (128, 128), (128, 64), (64, 64), (64, 32)]),
        (block_tile, dtypes.float64, [(64, 64), (64, 64), (64, 64), (64, 64), (64, 32)]),
        (warp_tile, dtypes.float16, [(128, 128), (128, 128), (64, 128), (64, 64), (64, 64)]),
    ],
)
def test_tiles_are_cut_until_there_are_as_many_as_wanted_and_no_further(
    tile_of: Callable[..., Any], dtype: DType, expected: list[tuple[int, int]]
) -> None:
    """3 x 512 x 256 has 24 tiles of 128 x 128."""
    target = replace(GPU_TARGET, block_threads=256)
    tiles = [tile_of(512, 256, 3, dtype, target, wanted) for wanted in (1, 24, 25, 49, 97)]
    assert [(tile.rows, tile.columns) for tile in tiles] == expected


@pytest.mark.parametrize(
    ("threads", "lines", "warps"), [(64, (8, 8), (1, 2)), (128, (8, 16), (2, 2)), (512, (16, 32), (4, 4))]
)
def test_threads_and_warps_of_a_block_are_as_square_as_can_be(
    threads: int, lines: tuple[int, int], warps: tuple[int, int]
) -> None:
    target = replace(GPU_TARGET, block_threads=threads)
    tiles = block_tile(4096, 4096, 1, dtypes.float16, target), warp_tile(4096, 4096, 1, dtypes.float16, target)
    assert [(tile.high, tile.wide) for tile in tiles] == [lines, warps]


@pytest.mark.parametrize("has_async_copies", [True, False])
def test_tiles_are_copied_in_the_background_where_the_target_can(has_async_copies: bool) -> None:
    target = replace(GPU_TARGET, has_async_copies=has_async_copies)
    statements = [one for phase in lower(product(64, 64, 64), target).phases for one in walk(phase)]
    assert any(isinstance(one, CopyAsync) for one in statements) == has_async_copies


@pytest.mark.req("G13")
def test_it_is_taken_for_16_bits_where_the_target_has_it() -> None:
    large = replace(GPU_TARGET, block_threads=256)
    assert guess(product(4096, 64, 4096), large).products == (WarpTile(2, 4, 4, 4, 32),)
    assert isinstance(guess(product(512, 64, 512, dtype=dtypes.float32), large).products[0], BlockTile)
    assert isinstance(guess(product(512, 64, 512), replace(large, has_mma=False)).products[0], BlockTile)
    assert isinstance(guess(product(512, 64, 3), large).products[0], BlockTile)
    tiles = [one.products[0] for one in candidates(product(4096, 64, 4096), large)]
    assert tiles[1:] == [WarpTile(2, 4, 2, 4, 32), WarpTile(2, 4, 4, 4, 16)]


@pytest.mark.req("G13")
def test_float32_takes_it_where_that_is_asked_for() -> None:
    large = replace(GPU_TARGET, block_threads=256)
    kernel = product(4096, 64, 4096, dtype=dtypes.float32, tf32=True)
    assert [one.products[0] for one in candidates(kernel, large)] == [
        WarpTile(2, 4, 4, 4, 16), WarpTile(2, 4, 2, 4, 16), WarpTile(2, 4, 4, 4, 32),
    ]  # fmt: skip
    assert isinstance(guess(kernel, replace(large, has_mma=False)).products[0], BlockTile)
