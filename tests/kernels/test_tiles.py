"""The layer of tiles that a user's kernel can be written with: a product on the simulator, for a GPU, and its mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd.errors import DeviceError
from picograd_lab.kernels.kernel import Kernel
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler
PRODUCT = """
#include "tiles.h"
using namespace tiles;

__global__ void __launch_bounds__(64) product(float *out, const T *a, const T *b, int rows, int columns, int depth) {
  BLOCK_TILE(T, left, 32, 16);
  BLOCK_TILE(T, right, 16, 32);
  Accumulators<1, 4> sums;
  const int top = blockIdx.y * 32, first = blockIdx.x * 32, own = threadIdx.x / 32 * 16;
  clear(sums);
  for (int k = 0; k < depth; k += 16) {
    load(left, matrix(a, rows, depth), top, k);
    load(right, matrix(b, depth, columns), k, first);
    barrier();
    mma(sums, left, own, right, 0);
    barrier();
  }
  store(matrix(out, rows, columns), top + own, first, sums, [](float x) { return fmaxf(x, 0.0f); });
}
"""
COPY = """
#include "tiles.h"
using namespace tiles;
__global__ void copy(float *out, const float *x, int rows, int columns) {
  BLOCK_TILE(float, tile, 16, 8);
  load(tile, matrix(x, rows, columns), 0, 0);
  barrier();
  store(matrix(out, rows, columns), 0, 0, tile);
}
__global__ void zeros(float *out, int rows, int columns) {
  Accumulators<1, 1> sums;
  clear(sums);
  store(matrix(out, rows, columns), 0, 0, sums);
}
"""


def product(text: str, dtype: str) -> Kernel:
    return pg.kernel(
        text.replace("T *", f"{dtype} *").replace("TILE(T", f"TILE({dtype}"),
        output=lambda a, b: ((a.shape[0], b.shape[1]), pg.float32),
        inputs=lambda a, b: (a, b, a.shape[0], b.shape[1], a.shape[1]),
        grid=lambda a, b: (-(-b.shape[1] // 32), -(-a.shape[0] // 32)),
        block=64,
        meaning=lambda a, b: np.maximum(a.astype(np.float64) @ b.astype(np.float64), 0),
    )


def operands(dtype: pg.DType) -> tuple[pg.Tensor, pg.Tensor]:
    rng = np.random.default_rng(0)
    # Of six bits, so that TF32 and bfloat16 have them all.
    a, b = (rng.integers(-32, 32, shape) / 16 for shape in ((35, 40), (40, 50)))
    return pg.Tensor(a, dtype=dtype, device="CUDASIM"), pg.Tensor(b, dtype=dtype, device="CUDASIM")


@pytest.mark.parametrize(("name", "dtype"), [("__nv_bfloat16", pg.bfloat16), ("float", pg.float32), ("half", pg.float16)])
def test_a_product_of_tiles(name: str, dtype: pg.DType) -> None:
    kernel, (a, b) = product(PRODUCT, name), operands(dtype)
    report = kernel.check(a, b)
    assert report, report
    pytest.importorskip("cuda.bindings.nvrtc")
    for arch in ("sm_80", "sm_90a"):
        assert kernel.prepare(a, b).resources(arch).spill_nbytes == 0


def test_tiles_are_copied_within_a_matrix() -> None:
    options = {"output": lambda x: x, "grid": 1, "block": 32}
    copy = pg.kernel(COPY, entry="copy", inputs=lambda x: (x, *x.shape), meaning=lambda x: x, **options)
    zeros = pg.kernel(COPY, entry="zeros", inputs=lambda x: x.shape, meaning=np.zeros_like, **options)
    x = pg.arange(33).float().reshape(11, 3)
    assert copy.check(x) and zeros.check(x)


@pytest.mark.parametrize(("before", "after", "said"), [
    ("    barrier();\n    mma", "    mma", "left_tile.1., which this block has not written"),
    ("b, depth, columns", "b, depth, columns + 1", r"product\.cu line 13: reads b.2000., which has 2000 el.*\n.*13 \|"),
])  # fmt: skip
def test_the_simulator_finds_mistakes_in_tiles(before: str, after: str, said: str) -> None:
    with pytest.raises(DeviceError, match=said):
        product(PRODUCT.replace(before, after), "float").check(*operands(pg.float32))
