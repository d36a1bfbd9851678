"""Gradients of attention by warpgroups, hopper_attention_grad.h: on the simulator, as machine code, on a GPU."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.codegen.hopper import contiguous_heads, gradient_tiles
from picograd.devices.cuda import compile as nvrtc
from picograd.devices.cuda.compile import HEADERS
from picograd.devices.cuda.render_hopper import functions_of, header_of
from picograd.devices.cudasim import compile as hostcxx
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.dtype import dtype_named
from picograd.engine import devices
from picograd.errors import DeviceError
from picograd.evaluator.graph import visible
from picograd.ir.opts import HeadsMatrix, HeadsShape, HeadsTile, PlainGradients, WrittenGradients
from picograd.ir.stages import Param, Source
from picograd.record import replace
from tests.devices.cuda.test_hopper_attention import draws_of
from tests.devices.cuda.test_render_hopper import HOPPER
from tests.gpu_programs import Array, run
from tests.host_compilers import needs_compiler
from tests.on_devices import device_params


@dataclass(frozen=True)
class Given:
    """Gradients of an attention, and what they are computed of."""

    plain: PlainGradients
    arrays: tuple[Array, ...]
    params: tuple[Param, ...]
    expected: tuple[Array, ...]


def given(
    queries: int, keys: int, features: int = 64, heads: tuple[int, int] = (1, 1), batch: int = 1, causal: bool = True,
    values: int | None = None, dtype: str = "bfloat16", seed: int = 0, window: int = 0, soft_cap: float = 0.0,
    dropout: float = 0.0,
) -> Given:  # fmt: skip
    """Returns gradients of q, k, v that lie as (B, T, H, D), and what they are in float64."""
    rng, narrow, (H, G), E = np.random.default_rng(seed), dtype_named(dtype), heads, values or features
    shapes = (batch, queries, H, features), (batch, keys, G, features), (batch, keys, G, E), (batch, queries, H, E)
    held = tuple(rng.standard_normal(shape).astype(narrow.numpy) for shape in shapes)
    q, k, v, grad = (each.astype(np.float64).transpose(0, 2, 1, 3) for each in held)
    k, v = (np.repeat(each, H // G, axis=1) for each in (k, v))
    scale = features**-0.5
    scores = scale * q @ k.swapaxes(2, 3)
    bent = np.tanh(scores / soft_cap) if soft_cap else np.zeros(())
    scores = np.where(visible(queries, keys, causal, window), soft_cap * bent if soft_cap else scores, -np.inf)
    greatest = np.maximum(scores.max(-1, keepdims=True), -1e30)
    powers = np.exp(scores - greatest)
    total = powers.sum(-1, keepdims=True)
    weights = powers / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        logsumexp = (greatest + np.log(total))[..., 0].astype(np.float32)
    shape = HeadsShape(batch, H, G, queries, keys, features, E, dtype, scale, causal, window, soft_cap, dropout)
    factors, seeds, draws = draws_of(shape, 6)
    dropped = factors * weights
    delta = (grad * (dropped @ v)).sum(-1).astype(np.float32)
    slopes = scale * weights * (factors * (grad @ v.swapaxes(2, 3)) - delta[..., None]) * (1 - bent * bent)
    shared = (batch, G, H // G, keys, -1)
    dk, dv = ((left.swapaxes(2, 3) @ right).reshape(shared).sum(2) for left, right in ((slopes, q), (dropped, grad)))
    expected = slopes @ k, dk, dv
    matrices = [HeadsMatrix(slot, 0, (t * h * d, d, h * d)) for slot, (_, t, h, d) in enumerate(shapes)]
    arrays = (*held, logsumexp, delta, *([] if draws is None else [seeds]))
    kinds = [*[narrow] * 4, *[dtypes.float32] * 2, dtypes.uint64]
    params = tuple(Param(kind, each.size, "in") for kind, each in zip(kinds, arrays))
    params += tuple(Param(narrow, each.size, "out") for each in expected)
    out = len(arrays)
    results = [contiguous_heads(out + number, each.shape) for number, each in enumerate(expected)]
    return Given(PlainGradients(shape, *matrices, 4, 5, *results, draws), arrays, params, expected)


def source_of(problem: Given, by_keys: HeadsTile, by_queries: HeadsTile) -> Source:
    choice = WrittenGradients(problem.plain, by_keys, by_queries)
    text, *launches = functions_of(choice, problem.params, "gradients_0")
    return Source("gradients", "cuda", f"{header_of(choice)}\n{text}", problem.params, (), tuple(launches))


def check(device: Any, binary: Any, problem: Given) -> bytes:
    """Holds what is found against float64, and returns its bits."""
    narrow = problem.params[-1].dtype.numpy
    found = [np.full(each.shape, np.nan, narrow) for each in problem.expected]
    run(device, device.load(binary), [*problem.arrays, *found])
    for own, expected in zip(found, problem.expected):
        np.testing.assert_allclose(own.astype(np.float64), expected, rtol=2e-2, atol=2e-2 * np.abs(expected).max())
        distance = np.linalg.norm(own.astype(np.float64) - expected) / np.linalg.norm(expected)
        assert distance < (4e-3 if narrow == np.float16 else 8e-3)
    return b"".join(each.tobytes() for each in found)


TWO, WIDE = HeadsTile(2, 64, 2, 2, 2, 1, True), HeadsTile(2, 96, 2, 2, 1, 2)
THREE = HeadsTile(3, 64, 3, 2, 2, 2, True)
CASES = {
    "causal, edges": (given(200, 200, heads=(2, 2)), TWO, THREE),
    "all see all": (given(136, 200, causal=False, heads=(2, 2)), WIDE, TWO),
    "128 features, several turns": (given(260, 260, 128), TWO, TWO),
    "grouped": (given(72, 136, 64, (4, 2), dtype="float16"), TWO, THREE),
    "a batch, odd features": (given(72, 72, 72, (1, 1), 2, values=48), TWO, TWO),
    "more queries than keys": (given(264, 136), WIDE, TWO),
    "one row more": (given(193, 129, causal=False), TWO, WIDE),
    "a window": (given(400, 400, window=130), WIDE, THREE),
    "a window, more keys than queries": (given(200, 600, 128, window=70), TWO, TWO),
    "a window, more queries than keys": (given(264, 136, window=20), TWO, THREE),
    "a window of all that follow": (given(200, 330, causal=False, window=150), TWO, THREE),
    "a soft cap": (given(136, 200, soft_cap=3.0), TWO, WIDE),
    "dropout": (given(136, 200, 64, (4, 2), 2, dropout=0.3), TWO, THREE),
    "dropout, 128 features, a window": (given(200, 200, 128, window=100, dropout=0.7), TWO, TWO),
}


@pytest.mark.variants(every=11)
@needs_compiler
@pytest.mark.parametrize("name", CASES)
def test_they_are_right_and_the_same_in_every_order(name: str) -> None:
    problem, by_keys, by_queries = CASES[name]
    binary = hostcxx.compile_source(source_of(problem, by_keys, by_queries), TARGET)
    assert len({check(CudaSimDevice(order, 1), binary, problem) for order in ORDERS}) == 1


# Each: what is in a header, what it becomes, and what the simulator says or what is found to be wrong.
BUGS = {
    "a stage given back by one thread": (
        r"    sync_warp\(\);\n    if \(arrives\)", "    if (arrives)", "race: writes numbers",
    ),
    "numbers of one thread": (r"                sync_warp\(\);\n", "", "race: reads numbers|numbers.*not written"),
    "a tile given back too early": (
        r"if \(i > 0\) give_back\(stage_of<Cut>\(use - 1\)\)", "give_back(stage)", "race: copies to|writes numbers",
    ),
    "the other set of rows": (r"turn / Cut::KEEPS % 2 \^ 1", "turn / Cut::KEEPS % 2", "deadlock|initialised|race"),
    "slabs that have not left": (
        r"  if \(thread == 0\) wait_stores<LEFT>\(\);.*\n", "", "race: writes slabs|ends while it stores",
    ),
    "nothing hidden": (r"scores\[i\] = below_all\(\)", "scores[i] = scores[i]", "Mismatched elements"),
    "nothing hidden before a window": (
        r"== BY_KEYS\) scores\[i( \+ 1)?\] = below_all\(\)", r"== BY_KEYS) scores[i\1] = scores[i\1]",
        "Mismatched elements",
    ),
    "tiles behind a window that are not waited for": (
        r"if constexpr \(Cut::WINDOW > 0\) skip.*\n", "", "deadlock|race|Mismatched elements",
    ),
    "draws of the other axis": (r"BY_KEYS \? 1 : Cut::KEYS", "BY_KEYS ? Cut::KEYS : Cut::KEYS", "Mismatched elements"),
    "dropped weights without dropped slopes": (
        r"dropped<Cut>\(slopes\[at\] \* Cut::KEPT, drawn, at\)", "slopes[at] * Cut::KEPT", "Mismatched elements",
    ),
    "deltas of other columns": (r"index \+ COLUMNS, deltas", "index + COLUMNS - 2, deltas", "Mismatched|not written"),
    "sums that do not begin at 0": (r" sums\[i\] = 0\.0f", " sums[i] += 0.0f", "reads sums.* not written"),
}  # fmt: skip


@pytest.mark.variants(every=11)
@needs_compiler
@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_found(name: str) -> None:
    problem, (pattern, becomes, says) = given(200, 200, heads=(2, 2), window=90, dropout=0.2), BUGS[name]
    source = source_of(problem, TWO, THREE)
    heads, gradients = ((HEADERS / each).read_text() for each in ("hopper_heads.h", "hopper_attention_grad.h"))
    inlined = gradients.replace('#include "hopper_heads.h"\n', heads)
    text, count = re.subn(pattern, becomes, inlined)
    assert count, "the kernel has no such place any more"
    wrong = replace(source, text=source.text.replace('#include "hopper_attention_grad.h"', text))
    binary = hostcxx.compile_source(wrong, TARGET)
    with pytest.raises((DeviceError, AssertionError), match=says):
        for order in ORDERS:
            check(CudaSimDevice(order, 1), binary, problem)


@pytest.mark.parametrize("device", device_params("CUDA"))
@pytest.mark.parametrize("name", CASES)
def test_them_on_a_gpu(name: str, device: str) -> None:
    compiler, (problem, by_keys, by_queries) = devices.compiler_for(device), CASES[name]
    if not compiler.device.target.has_warpgroups:
        pytest.skip(f"wgmma is of sm_90a, this GPU is {compiler.device.target.arch}")
    source = source_of(problem, by_keys, by_queries)
    check(compiler.device, compiler.backend.compile(source, compiler.device.target), problem)


@pytest.mark.variants(every=4, first=1)
@pytest.mark.parametrize("features", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("options", [{}, {"window": 1000, "dropout": 0.2}, {"soft_cap": 50.0}], ids=str)
def test_they_are_machine_code_that_waits_for_nothing(features: int, causal: bool, options: dict[str, Any]) -> None:
    """No register is spilled, and ptxas puts no waits between matrix instructions, of which it tells: C7510 and others."""
    problem = given(72, 72, features, causal=causal, **options)
    shape = replace(problem.plain.shape, queries=4096, keys=4096)
    large = dataclasses.replace(problem, plain=replace(problem.plain, shape=shape))
    by_keys, by_queries = (gradient_tiles(shape, each, HOPPER) for each in (True, False))
    for i in range(max(len(by_keys), len(by_queries))):
        source = source_of(large, by_keys[min(i, len(by_keys) - 1)], by_queries[min(i, len(by_queries) - 1)])
        _, log = nvrtc.compiled(source, HOPPER, "--ptxas-options=-v")
        for symbol, usage in nvrtc.read_usage(log).items():
            assert usage.spill_nbytes == usage.stack_nbytes == 0, (symbol, usage, str(by_keys), str(by_queries))
        assert "(C75" not in log, log
