"""What a warp's registers hold of a matrix, and the products of such matrices: mma, ldmatrix, stmatrix, movmatrix.

In:    registers as arrays of uint32, (warps, 32 threads, registers); rows in shared memory as arrays of uint16
Out:   the same, after the instruction

Written from the ISA alone (PTX ISA 9.0, 9.7.15, "Matrix Fragments for mma.m16n8k16", "... mma.m16n8k8", "ldmatrix",
"stmatrix", "movmatrix"), where g = lane / 4 is called groupID and t = lane % 4 threadID_in_group. Products are exact; their
sum with the accumulator is made in float64 and rounded once to float32: hardware leaves its order and last bits open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Place = Callable[[Array, Array, Array], tuple[Array, Array]]
LANE = np.arange(32)


def _table(elements: int, place: Place) -> tuple[Array, Array]:
    """Returns row and column of each element of each thread, (32, elements), from a rule in g, t and the element."""
    g, t, i = LANE[:, None] // 4, LANE[:, None] % 4, np.arange(elements)[None]
    row, column = place(g, t, i)
    return np.broadcast_to(row, (32, elements)), np.broadcast_to(column, (32, elements))


# ---- kinds of numbers ----
def halves(registers: Array) -> Array:
    """Returns the 16-bit halves of registers along the last axis, the lower one first."""
    return np.ascontiguousarray(registers, "<u4").view("<u2")


def float16_numbers(registers: Array) -> Array:
    return halves(registers).view(np.float16).astype(np.float64)


def bfloat16_numbers(registers: Array) -> Array:
    return (halves(registers).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def tf32_numbers(registers: Array) -> Array:
    """Of a .b32 register the instruction reads 19 bits; the lower 13 are not looked at."""
    return (np.ascontiguousarray(registers, np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def exact_product(lhs: Array, rhs: Array, acc: Array) -> Array:
    """Returns lhs @ rhs + acc of float64 matrices, rounded once to float32."""
    with np.errstate(all="ignore"):
        return (lhs @ rhs + acc.astype(np.float64)).astype(np.float32)


# ---- mma.sync ----
@dataclass(frozen=True)
class WarpProduct:
    """How mma.sync of one shape and type spreads its matrices over a warp.

    lhs, rhs:  (row, column) of each element of each thread, each (32, elements)
    numbers:   registers -> elements
    """

    k: int
    lhs: tuple[Array, Array]
    rhs: tuple[Array, Array]
    numbers: Callable[[Array], Array]


ACCUMULATOR = _table(4, lambda g, t, i: (np.where(i < 2, g, g + 8), 2 * t + (i & 1)))
_OF_16_BITS = (
    # a_i: row g for i of 0, 1, 4, 5, else g + 8; columns 2t, 2t + 1, from i = 4 on 8 further.   b_i: so along its rows.
    _table(8, lambda g, t, i: (np.where(np.isin(i, (0, 1, 4, 5)), g, g + 8), 2 * t + (i & 1) + np.where(i < 4, 0, 8))),
    _table(4, lambda g, t, i: (2 * t + (i & 1) + np.where(i < 2, 0, 8), g)),
)
_OF_TF32 = (
    # a_i: row g for i of 0 and 2, else g + 8; column t for i of 0 and 1, else t + 4.   b_i: row t, then t + 4.
    _table(4, lambda g, t, i: (np.where((i == 0) | (i == 2), g, g + 8), np.where(i < 2, t, t + 4))),
    _table(2, lambda g, t, i: (np.where(i == 0, t, t + 4), g)),
)
WARP_PRODUCTS = {
    "m16n8k16.row.col.f32.f16.f16.f32": WarpProduct(16, *_OF_16_BITS, float16_numbers),
    "m16n8k16.row.col.f32.bf16.bf16.f32": WarpProduct(16, *_OF_16_BITS, bfloat16_numbers),
    "m16n8k8.row.col.f32.tf32.tf32.f32": WarpProduct(8, *_OF_TF32, tf32_numbers),
}


def multiply(name: str, lhs: Array, rhs: Array, acc: Array) -> Array:
    """Returns the accumulators after mma.sync.aligned.<name>.

    Args:
      lhs:  (W, 32, 4)  uint32
      rhs:  (W, 32, 2)  uint32
      acc:  (W, 32, 4)  float32
    """
    product, warps = WARP_PRODUCTS[name], len(acc)
    left, right, sums = np.empty((warps, 16, product.k)), np.empty((warps, product.k, 8)), np.empty((warps, 16, 8))
    left[:, *product.lhs] = product.numbers(lhs)
    right[:, *product.rhs] = product.numbers(rhs)
    sums[:, *ACCUMULATOR] = acc
    return exact_product(left, right, sums)[:, *ACCUMULATOR]


# ---- 8 x 8 matrices of 16 bits ----
_OF_EIGHT = _table(2, lambda g, t, i: (g, 2 * t + i))
_OF_EIGHT_TURNED = _OF_EIGHT[::-1]


def load_matrices(rows: Array, count: int, turned: bool) -> Array:
    """Returns what ldmatrix leaves in the registers of a warp.

    Args:
      rows:   (W, 32, 8)  uint16, what lies where each thread points; those of threads 8 count and on are not read
      count:  matrices: 1, 2 or 4

    Returns:  (W, 32, count)  uint32
    """
    matrices = rows[:, : 8 * count].reshape(len(rows), count, 8, 8)
    own = matrices[:, :, *(_OF_EIGHT_TURNED if turned else _OF_EIGHT)]  # (W, count, 32, 2)
    return np.ascontiguousarray(own, "<u2").view("<u4")[..., 0].transpose(0, 2, 1)


def store_matrices(registers: Array, turned: bool) -> Array:
    """Returns the rows that stmatrix stores, (W, 8 count, 8) uint16: row r of matrix m where thread 8 m + r points.

    Args:
      registers:  (W, 32, count)  uint32
    """
    warps, _, count = registers.shape
    matrices = np.empty((warps, count, 8, 8), np.uint16)
    own = halves(np.ascontiguousarray(registers.transpose(0, 2, 1))[..., None])  # (W, count, 32, 2)
    matrices[:, :, *(_OF_EIGHT_TURNED if turned else _OF_EIGHT)] = own
    return matrices.reshape(warps, 8 * count, 8)


def turn_matrix(registers: Array) -> Array:
    """Returns what movmatrix.trans makes of a matrix that a warp holds, (W, 32) uint32."""
    rows = store_matrices(registers[..., None], turned=False)
    return load_matrices(np.concatenate([rows] * 4, axis=1), 1, turned=True)[..., 0]
