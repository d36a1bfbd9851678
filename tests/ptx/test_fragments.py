"""What the interpreter of PTX knows of matrices in registers and in shared memory, against CuTe's layouts of the same.

CuTe (CUTLASS 3, mma_traits_sm80.hpp and mma_traits_sm90_gmma.hpp) writes as shape and stride what the ISA draws.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.ptx import fragments
from tests.ptx.descriptors import accumulator_places, decode, places, swizzled
from tests.ptx.fragments import WARP_PRODUCTS, Array
from tests.ptx.module import PtxError

Nest = Any  # a number, or a tuple of nests


def flat(nest: Nest) -> list[int]:
    return [nest] if isinstance(nest, int) else [each for part in nest for each in flat(part)]


def offsets(shape: Nest, stride: Nest) -> Array:
    """Returns the offset of each coordinate of a layout's two axes; the first number within an axis runs fastest."""
    axes = []
    for extents, steps in zip(map(flat, shape), map(flat, stride)):
        places = product(*map(range, extents[::-1]))
        axes.append(np.array([np.dot(place, steps[::-1]) for place in places]))
    return axes[0][:, None] + axes[1][None]


A16, B16 = (((4, 8), (2, 2, 2)), ((32, 1), (16, 8, 128))), (((4, 8), (2, 2)), ((16, 1), (8, 64)))
A_TF32, B_TF32 = (((4, 8), (2, 2)), ((16, 1), (8, 64))), (((4, 8), 2), ((8, 1), 32))
C = (((4, 8), (2, 2)), ((32, 1), (16, 8)))


@pytest.mark.parametrize("name", WARP_PRODUCTS)
def test_fragments_of_a_warp_are_those_of_cute(name: str) -> None:
    known = WARP_PRODUCTS[name]
    lhs, rhs = (A_TF32, B_TF32) if "tf32" in name else (A16, B16)
    np.testing.assert_array_equal(known.lhs[0] + 16 * known.lhs[1], offsets(*lhs))
    np.testing.assert_array_equal(known.rhs[1] + 8 * known.rhs[0], offsets(*rhs))
    rows, columns = fragments.ACCUMULATOR
    np.testing.assert_array_equal(rows + 16 * columns, offsets(*C))


@pytest.mark.parametrize("columns", [8, 64, 192, 256])
def test_accumulators_of_a_warpgroup_are_those_of_cute(columns: int) -> None:
    of_all = offsets(((4, 8, 4), (2, 2, columns // 8)), ((128, 1, 16), (64, 8, 512)))
    rows, of = accumulator_places(columns)
    for warp in range(4):
        np.testing.assert_array_equal(rows + 16 * warp + 64 * of, of_all[32 * warp : 32 * warp + 32])


def test_a_product_is_one_of_matrices() -> None:
    """Of two warps, whose numbers are whole, by a walk over every element of every thread."""
    rng = np.random.default_rng(0)
    lhs, rhs, acc = (rng.integers(-9, 9, shape).astype(np.float16) for shape in ((2, 32, 8), (2, 32, 4), (2, 32, 4)))
    a, b, c = np.zeros((2, 16, 16)), np.zeros((2, 16, 8)), np.zeros((2, 16, 8))
    for warp, lane in product(range(2), range(32)):
        g, t = divmod(lane, 4)
        for i in range(8):
            a[warp, g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)] = lhs[warp, lane, i]
        for i in range(4):
            b[warp, 2 * t + i % 2 + 8 * (i // 2), g] = rhs[warp, lane, i]
            c[warp, g + 8 * (i // 2), 2 * t + i % 2] = acc[warp, lane, i]
    name = "m16n8k16.row.col.f32.f16.f16.f32"
    found = fragments.multiply(name, lhs.view(np.uint32), rhs.view(np.uint32), acc.astype(np.float32))
    whole = a @ b + c
    for warp, lane, i in product(range(2), range(32), range(4)):
        assert found[warp, lane, i] == whole[warp, lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2]


def test_tf32_has_no_bits_but_its_own() -> None:
    numbers = np.array([1.0 + 2.0**-10 + 2.0**-11], np.float32)
    assert fragments.tf32_numbers(numbers.view(np.uint32)) == [1.0 + 2.0**-10]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_of_eight_come_and_go(count: int, turned: bool) -> None:
    rows = np.arange(256, dtype=np.uint16).reshape(1, 32, 8)
    registers = fragments.load_matrices(rows, count, turned)
    for lane, matrix, i in product(range(32), range(count), range(2)):
        row, column = (2 * (lane % 4) + i, lane // 4) if turned else (lane // 4, 2 * (lane % 4) + i)
        assert registers[0, lane, matrix] >> 16 * i & 0xFFFF == 64 * matrix + 8 * row + column
    np.testing.assert_array_equal(fragments.store_matrices(registers, turned), rows[:, : 8 * count])


def test_a_matrix_is_turned() -> None:
    rows = np.arange(256, dtype=np.uint16).reshape(1, 32, 8)
    plain, turned = (fragments.load_matrices(rows, 1, each)[..., 0] for each in (False, True))
    np.testing.assert_array_equal(fragments.turn_matrix(plain), turned)


# ---- descriptors ----
def descriptor(start: int, leading: int, stride: int, swizzle: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | swizzle << 62


@pytest.mark.parametrize("swizzle, wide", [(0, 1), (1, 8), (2, 4), (3, 2)])
def test_matrices_in_shared_memory_are_those_of_cute(swizzle: int, wide: int) -> None:
    """In units of 16 bytes: 64 rows of 32 bytes along K, or 16 of K with 128 bytes of rows."""
    start, leading, stride, span = 3072, 4096, 8192, 16 * wide
    matrix = decode(descriptor(start, leading, stride, swizzle))
    first = offsets(((8, 8), 2), ((wide, stride // 16), leading // 16 if wide == 1 else 1))
    np.testing.assert_array_equal(places(matrix, 64, 16, 2, True)[:, ::8], swizzled(start + 16 * first, span))
    over, down = (stride, leading) if wide == 1 else (leading, stride)
    first = offsets(((wide, 8 // wide), (8, 2)), ((1, over // 16), (wide, down // 16)))
    np.testing.assert_array_equal(places(matrix, 64, 16, 2, False)[::8], swizzled(start + 16 * first, span))


def test_a_tile_of_128_bytes_a_row_is_read_as_it_was_copied() -> None:
    """All 64 rows and 4 steps along K of a tile that a copy has swizzled: start address + 32 bytes a step."""
    for step in range(4):
        matrix = decode(descriptor(2048 + 32 * step, 16, 1024, 1))
        row, k = np.meshgrid(np.arange(64), np.arange(16), indexing="ij")
        where = 2048 + 128 * row + 2 * (16 * step + k)
        expected = where ^ (where // 128 % 8 * 16)
        np.testing.assert_array_equal(places(matrix, 64, 16, 2, True), expected)


@pytest.mark.parametrize("bits, says", [(1 << 15, "belong to no field"), (1 << 50, "base offset 2")])
def test_a_descriptor_that_is_none(bits: int, says: str) -> None:
    with pytest.raises(PtxError, match=says):
        decode(bits)
