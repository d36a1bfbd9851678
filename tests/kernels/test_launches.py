"""Users' kernels of several launches, and with maps of tiles: values, plans, gradients, what is refused, and offers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.devices.cuda import compile as nvrtc
from picograd.errors import ArgumentError, ArgumentTypeError, CompileError, DeviceError, DTypeError, ShapeError
from picograd.look import watch
from tests.host_compilers import needs_compiler

pytestmark = needs_compiler

PARTS = 4
SPLIT = """
__global__ void partial(float *parts, const float *a, const float *b, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, part = blockIdx.y, each = (k + gridDim.y - 1) / gridDim.y;
  if (i >= m * n) return;
  float sum = 0.0f;
  for (int at = part * each; at < k && at < (part + 1) * each; at++) sum += a[i / n * k + at] * b[at * n + i % n];
  parts[part * m * n + i] = sum;
}
__global__ void total(float *out, const float *parts, int m, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float sum = 0.0f;
  for (int part = 0; part < 4; part++) sum += parts[part * m * n + i];
  out[i] = sum;
}
"""


def blocks(a: Any, b: Any) -> Any:
    return -(-a.shape[0] * b.shape[1] // 64)


SPLIT_OPTIONS: dict[str, Any] = {
    "output": lambda a, b: ((a.shape[0], b.shape[1]), a.dtype),
    "inputs": lambda a, b: (a, b, a.shape[0], b.shape[1], a.shape[1]),
    "entry": "partial", "grid": lambda a, b: (blocks(a, b), PARTS), "block": 64,
    "then": [{"entry": "total", "grid": blocks, "block": 64}],
    "scratch": {"parts": lambda a, b: ((PARTS, a.shape[0], b.shape[1]), a.dtype)},
    "meaning": lambda a, b: a @ b, "implements": lambda a, b: a @ b,
}  # fmt: skip
split = pg.kernel(
    SPLIT, gradient=lambda grad, a, b: (split(grad, b.T), split(a.T, grad)), name="split", **SPLIT_OPTIONS
)  # fmt: skip

TILES = """
#include "hopper.h"
__global__ void __launch_bounds__(128) twice(float *out, const float *x, TILE_MAP(of_x), TILE_MAP(of_out)) {
  SHARED_TILE(float32, tile, 64 * 32);
  MBARRIERS(full, 1);
  int t = threadIdx.x, column = blockIdx.x * 32, row = blockIdx.y * 64;
  if (t == 0) { mbarrier_init(full, 0, 1); fence_mbarriers(); }
  __syncthreads();
  if (t == 0) {
    mbarrier_arrive_expecting(full, 0, 64 * 32 * 4);
    load_tile(tile, 0, of_x, full, 0, column, row);
  }
  mbarrier_wait(full, 0, 0);
  for (int i = t; i < 64 * 32; i += 128) tile[i] = 2.0f * tile[i];
  fence_async_proxy();
  __syncthreads();
  if (t == 0) { store_tile(of_out, tile, 0, column, row); commit_stores(); wait_stores<0>(); }
}
"""
TILES_OPTIONS: dict[str, Any] = {
    "output": lambda x: x, "grid": lambda x: (-(-x.shape[1] // 32), -(-x.shape[0] // 64)), "block": 128,
    "tile_maps": {"of_x": lambda x: ("x", (64, 32)), "of_out": lambda x: ("out", (64, 32))},
    "meaning": lambda x: 2 * x, "implements": lambda x: x * 2,
}  # fmt: skip


def nvrtc_or_skip() -> None:
    try:
        nvrtc.version()
    except CompileError as error:
        pytest.skip(error.fact)


def normal(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32), device="CUDASIM").realize()


def test_memory_between_two_launches_is_part_of_the_plan() -> None:
    a, b = normal(9, 30), normal(30, 7)
    report = split.check(a, b)
    assert report, report
    with watch() as counts:
        found = pg.jit(lambda a, b: split(a, b) + 1)(a, b).realize()
    assert "split_9_7" in counts.names
    np.testing.assert_allclose(found.numpy(), a.numpy() @ b.numpy() + 1, rtol=1e-5, atol=1e-5)


def test_the_evaluator_and_vmap_know_results_alone() -> None:
    a, b = normal(5, 3, 8), normal(8, 4)
    found = pg.vmap(lambda a: split(a, b))(a)
    np.testing.assert_allclose(found.numpy(), a.numpy() @ b.numpy(), rtol=1e-5, atol=1e-5)
    on_host = split(Tensor(a.numpy()[0], device="NUMPY"), Tensor(b.numpy(), device="NUMPY"))
    np.testing.assert_allclose(on_host.numpy(), found.numpy()[0], rtol=1e-5, atol=1e-5)


def test_lengths_of_several_launches_may_be_symbolic() -> None:
    n, table, b = pg.Variable("n", 1, 20), normal(20, 6), normal(6, 5)
    for length in (3, 20):
        found = split(table[: n.bind(length)], b)[: n.bind(length)].sum()
        assert abs(found.item() - (table.numpy()[:length] @ b.numpy()).sum()) < 1e-4


def test_a_race_in_the_second_launch_is_named() -> None:
    racing = pg.kernel(SPLIT.replace("out[i] = sum;", "out[i / 2] = sum;"), name="split", **SPLIT_OPTIONS)
    with pytest.raises(DeviceError, match=r"split.cu line 14: race: writes out"):
        racing(normal(2, 3), normal(3, 64)).realize()


def test_results_without_elements_need_no_launch_whatever_memory_is_between() -> None:
    always = pg.kernel(SPLIT, name="split", **{**SPLIT_OPTIONS, "scratch": {"parts": ((PARTS, 64), pg.float32)}})
    assert always(normal(0, 3), normal(3, 4)).tolist() == []


def test_what_does_not_fit_is_refused() -> None:
    a, b = normal(2, 3), normal(3, 4)
    for options, match in (
        ({"then": [{"entry": "total"}]}, "has entry and grid"),
        ({"scratch": {"parts": ((1,), pg.float32), "others": ((1,), pg.float32)}}, "others in `scratch` is not a"),
        ({"then": [{"entry": "nothing", "grid": 1}]}, "no kernel 'nothing'"),
        ({"tile_maps": {"of_x": lambda a, b: ("a", (8, 8))}}, "tile_maps has of_x, the source no map"),
    ):
        with pytest.raises(ArgumentError, match=match):
            pg.kernel(SPLIT, **{**SPLIT_OPTIONS, **options})(a, b)
    with pytest.raises(ArgumentError, match="x is 'float' in one function, and 'int'"):
        pg.kernel(
            "__global__ void f(float *out, float x) {}\n__global__ void g(float *out, int x) {}", lambda x: x, grid=1,
            entry="f", then=[{"entry": "g", "grid": 1}],
        )  # fmt: skip
    with pytest.raises(DTypeError, match=r"parts is 'float \*' in the kernel, scratch says float16"):
        pg.kernel(SPLIT, **{**SPLIT_OPTIONS, "scratch": {"parts": ((PARTS, 8), pg.float16)}})(a, b)
    for memory, error, match in (
        (8, ArgumentTypeError, r"scratch\['parts'\] must give a Tensor or a pair"),
        ((8, pg.float32), ArgumentTypeError, r"scratch\['parts'\] must give a Tensor or a pair"),
        (((-8,), pg.float32), ShapeError, r"the shape of parts must be of lengths, got \(-8,\)"),
    ):
        with pytest.raises(error, match=match):
            pg.kernel(SPLIT, **{**SPLIT_OPTIONS, "scratch": {"parts": memory}})(a, b)
    x = normal(4, 32)
    for maps, error, match in (
        ({}, ArgumentError, "of_x is a map of tiles, but tile_maps has no entry"),
        ({"of_x": lambda x: ("y", (64, 32))}, ArgumentError, "of_x is of 'y'"),
        ({"of_x": lambda x: ("x", (64,))}, ShapeError, "their lengths differ"),
        ({"of_x": lambda x: ()}, ArgumentTypeError, "must give a parameter and a box, optionally a shape, got "),
    ):
        with pytest.raises(error, match=match):
            pg.kernel(TILES, **{**TILES_OPTIONS, "tile_maps": maps})(x)
    with pytest.raises(DeviceError, match="not all multiples of 16"):
        pg.kernel(TILES, **TILES_OPTIONS)(normal(4, 33)).realize()


@pytest.mark.parametrize("shape", [(64, 32), (70, 100), (1, 4)])
def test_the_copy_engine_moves_tiles(shape: tuple[int, int]) -> None:
    report = pg.kernel(TILES, **TILES_OPTIONS).check(normal(*shape))
    assert report, report


def test_both_become_machine_code() -> None:
    nvrtc_or_skip()
    usage = split.prepare(normal(9, 30), normal(30, 7)).resources()
    assert usage.registers > 0 and usage.spill_nbytes == 0
    usage = pg.kernel(TILES, **TILES_OPTIONS).prepare(normal(64, 32)).resources()
    assert usage.shared_nbytes >= 64 * 32 * 4 and usage.spill_nbytes == 0


def test_a_store_of_tiles_without_its_fence_is_named() -> None:
    text = TILES.replace("  fence_async_proxy();\n", "")
    assert text != TILES
    with pytest.raises(DeviceError, match="fence_async_proxy"):
        pg.kernel(text, **TILES_OPTIONS)(normal(64, 32)).realize()


def test_the_memory_between_is_not_counted_against_an_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which it would be otherwise: it is many times what the product reads."""
    a, b = normal(64, 8), normal(8, 64)
    with split.offer(pg.ones(2, 2), pg.ones(2, 2)) as offer:
        clocks = offer.count()
        assert clocks["split"] >= 2 * 3500 and clocks["picograd"] > 0  # two launches
        monkeypatch.setattr(offer, "wins", lambda call: True)
        with watch() as counts:
            found = (a @ b).realize()
    assert counts.names == ["matmul_64_64_by_split"]
    np.testing.assert_allclose(found.numpy(), a.numpy() @ b.numpy(), rtol=1e-4, atol=1e-5)


def test_memory_between_launches_is_no_result_of_an_operation() -> None:
    """Of which it has the dtype and the shape here."""
    text = """
__global__ void sums(float *out, float *spare, const float *x) {
  spare[threadIdx.x] = x[3 * threadIdx.x];
  out[threadIdx.x] = x[3 * threadIdx.x] + x[3 * threadIdx.x + 1] + x[3 * threadIdx.x + 2];
}
"""
    sums = pg.kernel(
        text, lambda x: ((x.shape[0],), x.dtype), grid=1, block=lambda x: x.shape[0],
        scratch={"spare": lambda x: ((x.shape[0],), x.dtype)}, implements=lambda x: (x.sum(1), x.amax(1)),
    )  # fmt: skip
    with sums.offer(pg.ones(4, 3)) as offer, pytest.raises(ArgumentError, match="results have other"):
        offer.count()
