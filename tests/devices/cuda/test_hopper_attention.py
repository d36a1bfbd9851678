"""Attention by warpgroups, devices/cuda/hopper_attention.h: on the simulator, as machine code, on a GPU."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.hopper import attention_tiles, contiguous_heads
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.render_hopper import functions_of, header_of
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import dtype_named
from picograd.engine import devices
from picograd.evaluator.graph import visible
from picograd.ir.opts import HeadNumbers, HeadsDraws, HeadsMatrix, HeadsShape, HeadsTile, PlainAttention, WrittenAttention
from picograd.ir.stages import Param, Source
from picograd.record import replace
from picograd.tensor.generator import threefry
from tests.devices.cuda.test_render_hopper import HOPPER
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.on_devices import device_params


@dataclass(frozen=True)
class Given:
    """An attention, and what it is computed of."""

    attention: PlainAttention
    arrays: tuple[Array, ...]
    params: tuple[Param, ...]
    averages: Array
    sums: Array


def given(
    queries: int, keys: int, features: int = 64, heads: tuple[int, int] = (2, 2), batch: int = 1, causal: bool = True,
    values: int | None = None, dtype: str = "bfloat16", seed: int = 0, window: int = 0, soft_cap: float = 0.0,
    dropout: float = 0.0,
) -> Given:  # fmt: skip
    """Returns an attention of q, k, v that lie as (B, T, H, D), and its results of float64."""
    rng, narrow, (H, G), E = np.random.default_rng(seed), dtype_named(dtype), heads, values or features
    shapes = (batch, queries, H, features), (batch, keys, G, features), (batch, keys, G, E)
    held = tuple((2 * rng.standard_normal(shape)).astype(narrow.numpy) for shape in shapes)
    q, k, v = (each.astype(np.float64).transpose(0, 2, 1, 3) for each in held)
    k, v = (np.repeat(each, H // G, axis=1) for each in (k, v))
    scale = features**-0.5
    scores = scale * q @ k.swapaxes(2, 3)
    scores = soft_cap * np.tanh(scores / soft_cap) if soft_cap else scores
    scores = np.where(visible(queries, keys, causal, window), scores, -np.inf)
    greatest = np.maximum(scores.max(-1, keepdims=True), -1e30)
    powers = np.exp(scores - greatest)
    total = powers.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        sums = (greatest + np.log(total))[..., 0]
    of_q, of_k, of_v = (HeadsMatrix(slot, 0, (t * h * d, d, h * d)) for slot, (_, t, h, d) in enumerate(shapes))
    params = tuple(Param(narrow, each.size, "in") for each in held)
    params += Param(narrow, batch * H * queries * E, "out"), Param(dtypes.float32, batch * H * queries, "out")
    shape = HeadsShape(batch, H, G, queries, keys, features, E, dtype, scale, causal, window, soft_cap, dropout)
    factors, seeds, draws = draws_of(shape, 3)
    if draws is not None:
        held, params = (*held, seeds), (*params[:3], Param(dtypes.uint64, 1, "in"), *params[3:])
    out = len(held)
    attention = PlainAttention(shape, of_q, of_k, of_v, contiguous_heads(out, (batch, H, queries, E)), out + 1, draws)
    return Given(attention, held, params, factors * powers @ v / np.where(total == 0, 1, total), sums)


def draws_of(shape: HeadsShape, slot: int) -> tuple[Any, Array, HeadsDraws | None]:
    """Returns the factors (B, H, T, S) of weights with dropout, one seed for all heads, and what says so of that slot."""
    seeds = np.array([0x0123456789ABCDEF], np.uint64)
    if not shape.dropout:
        return 1.0, seeds, None
    count = shape.batch * shape.heads * shape.queries * shape.keys
    bits = threefry(np.arange(count, dtype=np.uint64), int(seeds[0])).reshape(
        shape.batch, shape.heads, shape.queries, shape.keys
    )
    kept = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24) >= np.float32(shape.dropout)
    draws = HeadsDraws(HeadNumbers(slot, 0, (0, 0)), HeadNumbers(None, 0, (shape.heads, 1)))
    return kept / (1 - shape.dropout), seeds, draws


def source_of(problem: Given, tile: HeadsTile) -> Source:
    choice = WrittenAttention(problem.attention, tile)
    text, *launches = functions_of(choice, problem.params, "attention_0")
    return Source("attention", "cuda", f"{header_of(choice)}\n{text}", problem.params, (), tuple(launches))


def check(device: Any, binary: Any, problem: Given) -> None:
    found = np.full(problem.averages.shape, np.nan, problem.params[-2].dtype.numpy)
    sums = np.full(problem.sums.shape, np.nan, np.float32)
    run(device, device.load(binary), [*problem.arrays, found, sums])
    np.testing.assert_allclose(found.astype(np.float64), problem.averages, rtol=2e-2, atol=2e-2)
    np.testing.assert_allclose(sums, problem.sums, rtol=1e-5, atol=1e-5)


THREE, TWO = HeadsTile(3, 128, 2, 2, 2, 2), HeadsTile(2, 128, 2, 2, 1, 1)
CASES = {
    "causal, edges": (given(200, 200), THREE),
    "all see all, two warpgroups": (given(136, 200, causal=False), TWO),
    "128 features, several turns": (given(260, 260, 128, (1, 1)), TWO),
    "grouped": (given(72, 136, 64, (4, 2), dtype="float16"), THREE),
    "a batch, odd features": (given(72, 72, 72, (1, 1), 2, values=48), TWO),
    "more queries than keys": (given(264, 136, 64, (1, 1)), THREE),
    "one row more": (given(193, 129, 64, (1, 1), causal=False), THREE),
    "a window": (given(400, 400, window=130), THREE),
    "a window, more keys than queries": (given(200, 600, 128, (1, 1), window=70), TWO),
    "a window, more queries than keys": (given(264, 136, 64, (1, 1), window=20), THREE),
    "a window of all that follow": (given(200, 330, 64, (1, 1), causal=False, window=150), THREE),
    "a soft cap": (given(136, 200, soft_cap=3.0), THREE),
    "256 features": (given(136, 200, 256, (1, 1)), HeadsTile(2, 64, 2, 1, 1)),
    "160 features, values of 256, several turns": (given(264, 264, 160, (1, 1), values=256), HeadsTile(2, 64, 2, 1, 1)),
    "values of 192": (given(136, 136, 256, (2, 1), values=192, dropout=0.2), HeadsTile(2, 64, 2, 2, 2)),
    "dropout": (given(136, 200, 64, (4, 2), 2, dropout=0.3), THREE),
    "dropout, 128 features, a window": (given(200, 200, 128, window=100, dropout=0.7), TWO),
}


@pytest.mark.variants(every=6)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_it_is_right_in_every_order(name: str) -> None:
    problem, tile = CASES[name]
    binary = hostcxx.compile_source(source_of(problem, tile), TARGET)
    for order in ORDERS:
        check(CudaSimDevice(order, 1), binary, problem)


@pytest.mark.parametrize("device", device_params("CUDA"))
@pytest.mark.parametrize("name", CASES)
def test_it_on_a_gpu(name: str, device: str) -> None:
    compiler, (problem, tile) = devices.compiler_for(device), CASES[name]
    if not compiler.device.target.has_warpgroups:
        pytest.skip(f"wgmma is of sm_90a, this GPU is {compiler.device.target.arch}")
    check(compiler.device, compiler.backend.compile(source_of(problem, tile), compiler.device.target), problem)


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("features", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"window": 1000, "dropout": 0.2}, {"window": 1000, "soft_cap": 50.0}], ids=str)
def test_it_is_machine_code_that_waits_for_nothing(features: int, causal: bool, options: dict[str, Any]) -> None:
    """No register is spilled, and ptxas puts no waits between matrix instructions, of which it tells: C7510 and others."""
    problem = given(72, 72, features, causal=causal, **options)
    shape = replace(problem.attention.shape, queries=4096, keys=4096)
    large = dataclasses.replace(problem, attention=replace(problem.attention, shape=shape))
    tiles = attention_tiles(shape, HOPPER)
    assert tiles
    for tile in tiles:
        _, log = nvrtc.compiled(source_of(large, tile), HOPPER, "--ptxas-options=-v")
        (usage,) = nvrtc.read_usage(log).values()
        assert usage.spill_nbytes == usage.stack_nbytes == 0, (str(tile), usage)
        assert "(C75" not in log, log
