"""Kernels offered for an operation: offered where they fit, taken where they win, found by verify where they are wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
import picograd.nn.functional as F
from picograd import Tensor
from picograd.device import Target
from picograd.devices.cuda import compile as nvrtc
from picograd.engine import choose
from picograd.engine.devices import compiler_for
from picograd.errors import ArgumentError, ArgumentTypeError
from picograd.ir.host import offers
from picograd.ir.opts import Opts
from picograd.look import watch
from picograd.record import replace
from picograd.road import source_of
from picograd_lab.kernels.kernel import Kernel
from picograd_lab.kernels.offer import LAUNCH_CLOCKS, clocks_of
from picograd_lab.ladder.offer import offer_rung
from tests.helpers import forgotten
from tests.host_compilers import empty_cache, kernels_asked_for, needs_compiler
from tests.ladders import ladder_of

pytestmark = needs_compiler

ROWS = """
__global__ void __launch_bounds__(32) rows(float *out, const float *x, int columns) {
  const float *row = x + blockIdx.x * columns;
  float greatest = -3.4028235e38f, sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 32) greatest = fmaxf(greatest, row[i]);
  for (int d = 16; d > 0; d /= 2) greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, d));
  for (int i = threadIdx.x; i < columns; i += 32) sum += expf(row[i] - greatest);
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  for (int i = threadIdx.x; i < columns; i += 32) out[blockIdx.x * columns + i] = expf(row[i] - greatest) / sum;
}
"""
OF_ROWS: dict[str, Any] = {
    "output": lambda x: x, "inputs": lambda x: (x, x.shape[1]), "grid": lambda x: x.shape[0], "block": 32,
    "implements": lambda x: x.softmax(1), "accepts": lambda x: x.shape[1] % 2 == 0,
}  # fmt: skip
TAPS = 9
AVERAGE = """
__global__ void average(float *out, const float *x, int n) {
  __shared__ float tile[256 + 8];
  int first = blockIdx.x * 256, i = first + threadIdx.x;
  for (int at = threadIdx.x; at < 264; at += 256) tile[at] = first + at < n + 8 ? x[first + at] : 0.0f;
  __syncthreads();
  float sum = tile[threadIdx.x];
  for (int tap = 1; tap < 9; tap++) sum += tile[threadIdx.x + tap];
  if (i < n) out[i] = sum / 9.0f;
}
"""


def windows(x: Tensor) -> Tensor:
    """Returns the average of each element and its eight successors."""
    length = x.shape[0] - TAPS + 1
    total = x[:length]
    for tap in range(1, TAPS):
        total = total + x[tap : tap + length]
    return total / TAPS


average = pg.kernel(
    AVERAGE,
    output=lambda x: ((x.shape[0] - 8,), x.dtype),
    inputs=lambda x: (x, x.shape[0] - 8),
    grid=lambda x: -(-(x.shape[0] - 8) // 256),
    implements=windows,
)
IN_C = """
void rows(float *out, const float *x, long long rows, long long columns) {
  for (long long i = 0; i < rows; i++) {
    float sum = 0.0f;
    for (long long j = 0; j < columns; j++) sum += x[i * columns + j];
    out[i] = sum;
  }
}
"""


def rows(text: str = ROWS) -> Kernel:
    """Returns a kernel that is a softmax of rows with an even number of elements."""
    return pg.kernel(text, **OF_ROWS)


def normal(*shape: int, device: str = "CUDASIM") -> Tensor:
    """Returns normal numbers in memory."""
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32), device=device).realize()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Holds that a test withdraws what it offers."""
    yield
    assert offers.by_name == {} and offers.key == ()


@pytest.fixture
def last_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Has the last candidate need the least time, in a cache of its own; the candidates are in the list."""
    found: list[str] = []

    def timed(kernel: Any, candidates: Any, device: Any, make: Callable[..., Any]) -> list[list[float]]:
        found.extend(map(str, candidates))
        return [[2.0] * 9] * (len(candidates) - 1) + [[1.0] * 9]

    monkeypatch.setattr(choose, "time_candidates", timed)
    monkeypatch.setenv("PICOGRAD_CACHE", empty_cache(tmp_path))
    return found


def names_of(function: Callable[..., Any], *args: Tensor) -> tuple[list[str], Any]:
    """Returns the names of the kernels that a function runs, and what it gives."""
    with watch() as counts:
        found = function(*args)
        list(map(Tensor.realize, found if isinstance(found, tuple) else (found,)))
    return list(counts.names), found


# ---- where a kernel is taken ----
def test_it_is_timed_with_the_others_and_taken_where_it_wins(last_wins: list[str]) -> None:
    x = normal(6, 40)
    meant = x.softmax(1).numpy()
    with rows().offer(pg.ones(2, 2)):
        names, found = names_of(pg.jit(lambda x: x.softmax(1), tune=True), x)
        assert names == ["reduce_6_40_by_rows"]
        np.testing.assert_allclose(found.numpy(), meant, rtol=1e-6)
        assert len(last_wins) == 2 and last_wins[1].startswith("rows of float32 2-d, offered")
        assert names_of(lambda: x.softmax(1))[0] == ["reduce_6_40"]  # never untimed
    assert names_of(pg.jit(lambda x: x.softmax(1), tune=True), x)[0] == ["reduce_6_40"]
    with rows().offer(pg.ones(2, 2)):  # another kernel of the same text
        names, _ = names_of(pg.jit(lambda x: x.softmax(1), tune=True), x)
        assert names == ["reduce_6_40_by_rows"] and len(last_wins) == 2  # the winner is remembered


CASES: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "scaled and shifted": (lambda x: x.softmax(1) * 2 + x[:, :1], "reduce_6_40_by_rows"),
    "activation": (lambda x: (x.softmax(1) - 0.1).relu().exp(), "reduce_6_40_by_rows"),
    "computed operand": (lambda x: (x * 2).sin().softmax(1), "reduce_6_40_by_rows"),
    "view of its operand": (lambda x: x[1:5, 2:8].softmax(1), "reduce_4_6_by_rows"),
    "operand read behind it": (lambda x: x.softmax(1) + x, "reduce_6_40_by_rows"),
    "short rows": (lambda x: x[:, :2].softmax(1), "reduce_6_2_by_rows"),
    "odd rows": (lambda x: x[:, :39].softmax(1), "reduce_6_39"),
    "empty": (lambda x: x[:, :0].softmax(1), "elementwise_6_0"),
    "another axis": (lambda x: x.softmax(0), "reduce_6_40"),
    "of products": (lambda x: (x @ x.T).softmax(1), ""),
    "a sum behind it": (lambda x: (x.softmax(1) * x).sum(1), "reduce_6_40"),
    "another rank": (lambda x: x.reshape(2, 3, 40).softmax(2), "reduce_2_3_40"),
    "another dtype": (lambda x: x.double().softmax(1), "reduce_6_40"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_around_it_is_generated_or_a_reason_to_refuse(case: str, last_wins: list[str]) -> None:
    function, name = CASES[case]
    x = normal(6, 40)
    meant = function(x).numpy()
    with rows().offer(pg.ones(2, 2)):
        names, found = names_of(pg.jit(function, tune=True), x)
    assert name in names or not name
    assert any(each.endswith("by_rows") for each in names) == (name.endswith("by_rows") or not name)
    np.testing.assert_allclose(found.numpy(), meant, rtol=1e-5, atol=1e-6)


def test_a_number_of_the_operation_must_be_the_same(last_wins: list[str]) -> None:
    text = "__global__ void twice(float *out, const float *x) { int i = threadIdx.x; out[i] = 2.5f * x[i] * x[i]; }"
    kernel = pg.kernel(text, lambda x, by: x, grid=1, block=lambda x, by: x.numel(), inputs=lambda x, by: (x,),
                       implements=lambda x, by: x * x * by)  # fmt: skip
    x = normal(7)
    with kernel.offer(x, 2.5):
        for by, is_taken in ((2.5, True), (3.0, False)):
            names, found = names_of(pg.jit(lambda x, by=by: x * x * by, tune=True), x)
            assert (names == ["elementwise_7_by_twice"]) == is_taken
            np.testing.assert_allclose(found.numpy(), x.numpy() ** 2 * np.float32(by), rtol=1e-6)


def test_a_result_that_may_be_in_the_memory_of_an_input_is_stored_elsewhere_first(last_wins: list[str]) -> None:
    backwards = """
    __global__ void turned(float *out, const float *x, int n) {
      for (int i = 0; i < n; i++) out[n - 1 - i] = x[n - 1 - i] + 1;
    }
    """
    kernel = pg.kernel(backwards, lambda x: x, grid=1, block=1, inputs=lambda x: (x, x.numel()), implements=lambda x: x + 1)
    with kernel.offer(pg.ones(3)):
        step = pg.jit(lambda x: x + 1, tune=True, donate="x")
        x = normal(9)
        meant = x.numpy() + 3
        with watch() as counts:
            for _ in range(3):
                x = step(x)
        assert counts.launches == 6 and set(counts.names) == {"elementwise_9_by_turned"}
    np.testing.assert_allclose(x.numpy(), meant, rtol=1e-6)


def test_it_is_the_guess_where_counts_have_shown_that_it_wins() -> None:
    x, y = normal(16384 + 8), normal(2048 + 8)
    meant = windows(x).numpy()
    with average.offer(x) as offer:
        assert names_of(lambda: windows(x))[0] == ["elementwise_16384"]
        clocks = offer.count()
        assert clocks["average"] < 0.97 * clocks["picograd"]
        names, found = names_of(lambda: windows(x))
        assert names == ["elementwise_16384_by_average"]
        np.testing.assert_allclose(found.numpy(), meant, rtol=1e-6)
        assert names_of(lambda: windows(y))[0] == ["elementwise_2048"]  # which nobody has counted
        assert names_of(lambda: windows(x).exp())[0] == ["elementwise_16384"]  # nor this
    assert names_of(lambda: windows(x))[0] == ["elementwise_16384"]


def test_it_is_no_guess_where_counts_have_not() -> None:
    with rows().offer(x := normal(6, 40)) as offer:
        clocks = offer.count()
        assert clocks["rows"] >= 0.97 * clocks["picograd"]  # rows as short as these are a launch, and little else
        assert names_of(lambda: x.softmax(1))[0] == ["reduce_6_40"]


def test_the_model_of_clocks_has_few_blocks_wait_for_the_busiest_multiprocessor() -> None:
    assert clocks_of(Counter(multiply_adds=32 * 4 * 1320), 132) == LAUNCH_CLOCKS + 10
    assert clocks_of(Counter(multiply_adds=32 * 4 * 1320), 1) == LAUNCH_CLOCKS + 1320
    assert clocks_of(Counter(multiply_adds=32 * 4 * 1320), 133) == LAUNCH_CLOCKS + 20
    assert clocks_of(Counter(loaded_sectors=66 * 1320, bank_conflicts=132), 132) == LAUNCH_CLOCKS + 1320


# ---- plans ----
def test_plans_are_made_anew_where_offers_change(last_wins: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    x, step = normal(6, 40), pg.jit(lambda x: x.softmax(1), tune=True)
    own, given = ["reduce_6_40"], ["reduce_6_40_by_rows"]
    assert [names_of(step, x)[0] for _ in range(3)] == [own] * 3
    offer = rows().offer(x)
    assert [names_of(step, x)[0] for _ in range(3)] == [given] * 3
    offer.withdraw()
    offer.withdraw()  # which changes nothing
    assert [names_of(step, x)[0] for _ in range(3)] == [own] * 3
    monkeypatch.setenv("PICOGRAD_TUNE", "1")  # eager code, too
    y = normal(6, 42)
    assert names_of(lambda: y.softmax(1))[0] == ["reduce_6_42"]
    with rows().offer(x):
        assert names_of(lambda: y.softmax(1))[0] == ["reduce_6_42_by_rows"]
    assert names_of(lambda: y.softmax(1))[0] == ["reduce_6_42"]


def test_a_changed_kernel_is_another(last_wins: list[str]) -> None:
    x, found = normal(6, 40), []
    for text in (ROWS, ROWS.replace("/ sum", "/ sum * 2.0f"), ROWS):
        with rows(text).offer(x):
            found.append(pg.jit(lambda x: x.softmax(1), tune=True)(x).sum().item())
    np.testing.assert_allclose(found, [6, 12, 6], rtol=1e-6)


def test_kernels_are_kept_on_disk_and_plans_are_not(last_wins: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")
    x = normal(6, 40)

    def computed(x: Tensor) -> Tensor:
        return (x.softmax(1) @ x.T).softmax(1)

    counts = []
    for is_offered in (False, True, True, False):
        forgotten()  # as another process has
        monkeypatch.setattr(compiler_for("CUDASIM"), "_made", {})
        monkeypatch.setattr(compiler_for("CUDASIM"), "_by_entry", {})
        offer = rows().offer(x) if is_offered else None
        with watch() as seen:
            pg.jit(computed, tune=True)(x).realize()
        if offer is not None:
            offer.withdraw()
        counts.append((seen.scheduled > 0, seen.compiled > 0, any("by_rows" in name for name in seen.names)))
    assert counts == [(True, True, False), (True, True, True), (True, False, True), (False, False, False)]


def test_a_kernel_is_offered_for_several_ranks(last_wins: list[str]) -> None:
    kernel = pg.kernel(
        ROWS, lambda x: x, inputs=lambda x: (x, x.shape[-1]), grid=lambda x: x.numel() // x.shape[-1], block=32,
        implements=lambda x: x.softmax(-1),
    )  # fmt: skip
    with kernel.offer(pg.ones(2, 2)), kernel.offer(pg.ones(2, 2, 2)):
        assert len(offers.by_name) == 2
        for x in (normal(6, 40), normal(2, 3, 40)):
            names, found = names_of(pg.jit(lambda x: x.softmax(-1), tune=True), x)
            assert [name.partition("_by_")[2] for name in names] == ["rows"]
            np.testing.assert_allclose(found.sum(-1).numpy(), 1, rtol=1e-5)


# ---- devices ----
@pytest.mark.parametrize("name", ["CPU", "C"])
def test_a_kernel_in_c_is_a_candidate_on_processors(name: str, last_wins: list[str]) -> None:
    kernel = pg.kernel(
        IN_C, lambda x: ((x.shape[0],), x.dtype), inputs=lambda x: (x, *x.shape), implements=lambda x: x.sum(1)
    )
    x = normal(6, 40, device=name)
    with kernel.offer(pg.ones(2, 2)):
        names, found = names_of(pg.jit(lambda x: x.sum(1), tune=True), x)
        assert names == ["reduce_6_40_by_rows"]
        np.testing.assert_allclose(found.numpy(), x.numpy().sum(1), rtol=1e-5, atol=1e-6)
        names, found = names_of(pg.jit(lambda x: x.sum(1).exp(), tune=True), x)
        assert (names == ["reduce_6_40_by_rows"]) == (name == "C")  # where what is around it is C, too
        np.testing.assert_allclose(found.numpy(), np.exp(x.numpy().sum(1)), rtol=1e-4)


def test_a_gpu_is_given_one_text_of_generated_functions_and_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC, which compiles CUDA, is not installed")
    x, kernels, compiler = normal(6, 40), kernels_asked_for(monkeypatch), compiler_for("CUDASIM")
    ((x * 2).sin().softmax(1) * 3 + 1).realize()
    with rows().offer(x) as offer:
        cut = choose.cut_of(kernels[-1], offer, compiler.device.target)
        assert not isinstance(cut, str)
        generated = source_of(cut.generated, compiler.device.target, Opts(), compiler.backend.render)
        source = choose.with_given(cut, generated, compiler.writes)
    usages = nvrtc.resource_usage(source, Target("CUDA", "cuda", "sm_80", block_threads=256))
    assert sorted(usages) == [f"reduce_6_40_split_{name}" for name in ("0", "1", "given_0")]
    assert [launch.symbol for launch in source.launches] == [f"reduce_6_40_split_{name}" for name in ("0", "given_0", "1")]
    assert all(usage.spill_nbytes == 0 for usage in usages.values())


def test_a_rung_with_maps_of_tiles_is_one_text_with_what_is_around_it_on_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC, which compiles CUDA, is not installed")
    kernels, compiler = kernels_asked_for(monkeypatch), compiler_for("CUDASIM")
    a, b = (normal(256, 256).bfloat16().realize() for _ in range(2))
    ((a @ b) * 3 + 1).realize()
    hopper = Target("CUDASIM", "cuda", "sm_90a", block_threads=256, has_warpgroups=True, multiprocessors=132)
    with offer_rung("gemm", "persistent") as offer:
        cut = choose.cut_of(kernels[-1], offer, hopper)
        assert not isinstance(cut, str)
        source = choose.with_given(cut, source_of(cut.generated, hopper, Opts(), compiler.backend.render), compiler.writes)
        older = replace(hopper, arch="sm_80", has_warpgroups=False)
        assert not choose.offered_candidates(kernels[-1], older, compiler.writes)
    (usage,) = [usage for name, usage in nvrtc.resource_usage(source, hopper).items() if "given" in name]
    assert usage.registers == 168 and usage.spill_nbytes == usage.stack_nbytes == 0
    launch = next(launch for launch in source.launches if "given" in launch.symbol)
    assert [tile_map.param for tile_map in launch.tile_maps] == [0, 1, 3]  # the result is scratch of what is behind it
    assert launch.tile_maps[2].box == (1, 64, 64)  # 128 bytes of bfloat16


def test_a_kernel_in_cuda_is_none_on_a_processor(last_wins: list[str]) -> None:
    x = normal(6, 40, device="CPU")
    with rows().offer(x):
        assert names_of(pg.jit(lambda x: x.softmax(1), tune=True), x)[0] == ["reduce_6_40"]
    assert not any("offered" in each for each in last_wins)


# ---- faults ----
def test_verify_names_an_offered_kernel_that_is_wrong(last_wins: list[str]) -> None:
    x = normal(6, 40)
    for text, is_right in ((ROWS, True), (ROWS.replace("/ sum", "/ (sum + 0.5f)"), False)):
        with rows(text).offer(x):
            verdict = pg.verify(pg.jit(lambda x: x.softmax(1) * 2, tune=True), x)
        assert bool(verdict) == is_right
        assert ("computed by rows, which was offered" in str(verdict)) == (not is_right)


def test_a_fault_in_an_offered_kernel_is_an_error_that_names_its_line(last_wins: list[str]) -> None:
    with (
        rows(ROWS.replace("row[i] - greatest) / sum", "row[i + 1] - greatest) / sum")).offer(x := normal(6, 40)),
        pytest.raises(pg.DeviceError, match=r"rows\.cu line 9: reads x\[240\]"),
    ):
        pg.jit(lambda x: x.softmax(1), tune=True)(x).realize()


def test_a_kernel_without_an_operation_and_one_that_is_several_kernels_are_refused() -> None:
    with pytest.raises(ArgumentError, match="only a kernel that implements an operation can be offered"):
        pg.kernel(AVERAGE, average.output, grid=average.grid, inputs=average.inputs).offer(pg.ones(9))
    several = {**OF_ROWS, "implements": lambda x: (x.softmax(1) @ x.T).softmax(1)}
    with pg.kernel(ROWS, **several).offer(pg.ones(4, 4)) as offer, pytest.raises(ArgumentError, match="is 3 kernels"):
        offer.count()


def test_the_reason_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_SHOW", "choice")
    x = normal(6, 39)
    with rows().offer(x):
        x.softmax(1).realize()
    assert "reduce_6_39: rows of float32 2-d is not a candidate: rows does not accept" in capsys.readouterr().out


# ---- rungs of ladders ----
def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Returns causal attention of (heads, rows, features), with two queries for each key."""
    q, k, v = (each.unsqueeze(0) for each in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True) * 2


RUNGS: dict[tuple[str, str], tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    ("conv", "implicit product"): (lambda x, w: F.conv2d(x, w, padding=1).relu(), ((1, 5, 9, 7), (3, 5, 3, 3))),
    ("gemm", "warp tile"): (lambda a, b: (a @ b) * 2 + 1, ((70, 40), (40, 68))),
    ("attention", "online"): (attention, ((4, 40, 64), (2, 40, 64), (2, 40, 64))),
    ("conv", "mma"): (lambda x, w: F.conv2d(x, w, padding=1).relu(), ((1, 8, 9, 7), (3, 8, 3, 3))),
    ("gemm", "mma"): (lambda a, b: (a @ b) * 2 + 1, ((70, 40), (40, 72))),
    ("attention", "mma"): (attention, ((4, 40, 64), (2, 40, 64), (2, 40, 64))),
    # of several launches
    ("conv", "im2col"): (lambda x, w: F.conv2d(x, w, padding=1).relu(), ((1, 5, 9, 7), (3, 5, 3, 3))),
    ("conv", "winograd"): (lambda x, w: F.conv2d(x, w, padding=1) * 2, ((1, 5, 9, 7), (3, 5, 3, 3))),
    ("attention", "naive"): (attention, ((4, 40, 64), (2, 40, 64), (2, 40, 64))),
    ("attention", "tiled"): (attention, ((4, 40, 64), (2, 40, 64), (2, 40, 64))),
    # with maps of tiles
    ("gemm", "wgmma and tma"): (lambda a, b: (a @ b) * 2 + 1, ((70, 40), (40, 72))),
    ("gemm", "warp specialised"): (lambda a, b: (a @ b) * 2 + 1, ((70, 40), (40, 72))),
    ("gemm", "persistent"): (lambda a, b: (a.float() * 2).bfloat16() @ b, ((150, 136), (136, 200))),
    ("gemm", "wide tile"): (lambda a, b: (a @ b) * 2 + 1, ((70, 40), (40, 72))),
}
BY_TENSOR_CORES = ("mma", "wgmma and tma", "warp specialised", "persistent", "wide tile")
NARROW = {"conv": pg.float16, "gemm": pg.bfloat16, "attention": pg.float16}  # what `mma` of a ladder is given


@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_a_rung_is_a_candidate(name: str, rung: str, last_wins: list[str]) -> None:
    function, shapes = RUNGS[name, rung]
    dtype = NARROW[name] if rung in BY_TENSOR_CORES else pg.float32
    arrays = [(normal(*shape) / 2).cast(dtype).realize() for shape in shapes]
    meant = function(*[Tensor(array.numpy(), device="NUMPY") for array in arrays]).numpy()
    with offer_rung(name, rung):
        names, found = names_of(pg.jit(function, tune=True), *arrays)
    symbol = {"im2col": "patches_of", "winograd": "filters", "naive": "scores", "tiled": "scores"}.get(rung, rung)
    assert any(each.endswith(f"by_{symbol.replace(' ', '_')}") for each in names), names
    most = 1e-5 if rung not in BY_TENSOR_CORES else 2.0 ** (4 - dtype.precision)  # roundings of stored results
    np.testing.assert_allclose(found.float().numpy(), np.asarray(meant, np.float32), rtol=most, atol=most)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(("name", "rung"), [("softmax", "registers"), ("layernorm", "welford"), ("gemv", "split k")])
def test_few_rows_have_as_many_blocks_as_those_of_the_best_rung(name: str, rung: str) -> None:
    """64 rows in eight blocks of eight warps would keep eight multiprocessors busy, and 124 idle."""
    with offer_rung(name, rung) as offer:
        of_rung, own = offer.count().values()
    assert own <= of_rung


def test_a_rung_of_16_bits_is_taken_at_lengths_at_which_its_counts_win() -> None:
    lengths = ladder_of("conv").lengths
    x, w = (normal(*(lengths[name] for name in axes)).half().realize() for axes in ("NCHW", "FCRR"))
    with offer_rung("conv", "mma") as offer:
        assert names_of(lambda: F.conv2d(x, w, padding=1))[0] == ["conv_2_64_16_16"]
        clocks = offer.count()
        assert clocks["conv, mma"] < 0.97 * clocks["picograd"]
        assert names_of(lambda: F.conv2d(x, w, padding=1))[0] == ["conv_2_64_16_16_by_mma"]
        assert pg.verify(lambda: F.conv2d(x, w, padding=1))


@pytest.mark.parametrize("dtype", [pg.float16, pg.bfloat16, pg.int8], ids=str)
def test_narrow_operands_and_results(dtype: pg.DType, last_wins: list[str]) -> None:
    text = """
__global__ void pairs(T *out, const T *x, int n) {
  int i = blockIdx.x * 32 + threadIdx.x;
  if (i < n) out[i] = TO(FROM(x[2 * i]) + FROM(x[2 * i + 1]));
}"""
    ctype, up, down = {
        pg.float16: ("half", "__half2float", "__float2half"),
        pg.bfloat16: ("__nv_bfloat16", "__bfloat162float", "__float2bfloat16"),
        pg.int8: ("int8_t", "", ""),
    }[dtype]
    pairs = pg.kernel(
        text.replace("T *", f"{ctype} *").replace("TO", down).replace("FROM", up),
        output=lambda x: ((x.shape[0] // 2,), x.dtype), inputs=lambda x: (x, x.shape[0] // 2),
        grid=lambda x: -(-x.shape[0] // 64), block=32, implements=lambda x: x[::2] + x[1::2],
    )  # fmt: skip
    x = (normal(202) * 20).cast(dtype).realize()
    meant = (x[::2] + x[1::2]).numpy()
    with pairs.offer(x):
        names, found = names_of(pg.jit(lambda x: x[::2] + x[1::2], tune=True), x)
    assert names == ["elementwise_101_by_pairs"]
    np.testing.assert_array_equal(found.numpy(), meant)


@pytest.mark.parametrize(
    ("name", "rung", "reason"),
    [
        ("gemv", "vectors", "K must be a multiple of 4"),
        ("conv", "winograd", "R must be 3 and STRIDE 1"),
        ("gemm", "clusters", "come in clusters"),
        ("conv", "direct", "R is 3 and 1"),
    ],
)
def test_a_rung_is_refused_by_its_rule(name: str, rung: str, reason: str, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("PICOGRAD_SHOW", "choice")
    with offer_rung(name, rung, **({"M": 8, "K": 8} if name == "gemv" else {})):
        if name == "gemv":
            (normal(8, 6) @ normal(6)).realize()
        elif name == "gemm":
            (normal(256, 256).bfloat16() @ normal(256, 256).bfloat16()).realize()
        else:
            w = normal(3, 5, *((3, 1) if rung == "direct" else (5, 5)))
            F.conv2d(normal(1, 5, 9, 7), w, padding=(1, 0) if rung == "direct" else 2).realize()
    assert reason in capsys.readouterr().out


def test_what_is_no_rung_is_refused() -> None:
    for name, rung, lengths, match in (
        ("nothing", "x", {}, "no ladder"), ("conv", "x", {}, "no rung 'x'"), ("topk", "sort", {}, "several"),
        ("conv", "direct", {"Z": 1}, "lengths of conv are N, C"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=match):
            offer_rung(name, rung, **lengths)


# ---- functions of the user's that fail ----
def failing(**options: Any) -> Kernel:
    text = "__global__ void k(float *out, const float *x) { out[threadIdx.x] = 2 * x[threadIdx.x]; }"
    return pg.kernel(text, output=lambda x: x, **{"grid": 1, "block": lambda x: x.numel(), **options})


def test_an_operation_that_fails_is_told_where_it_is_offered_and_is_not_offered() -> None:
    x = pg.ones(4, device="CUDASIM")
    with pytest.raises(ZeroDivisionError):
        failing(implements=lambda x: x * (1 // 0)).offer(x)
    with pytest.raises(ArgumentTypeError, match=r"k: implements must return Tensors, got 3\."):
        failing(implements=lambda x: 3).offer(x)
    assert not offers.by_name


@pytest.mark.parametrize("option", ["implements", "accepts", "grid"])
def test_functions_that_fail_at_other_lengths_leave_other_kernels_alone(option: str) -> None:
    def of_four(x: Any) -> Any:
        at_four = {"implements": lambda: x * 2, "accepts": lambda: True, "grid": lambda: 1}
        return at_four[option]() if len(x) == 4 else 1 // 0

    made = failing(**{"implements": lambda x: x * 2, option: of_four})
    with made.offer(pg.ones(4, device="CUDASIM")) as offer:
        with pg.device("CUDASIM"):
            assert (pg.ones(7, device="CUDASIM") * 2).tolist() == [2.0] * 7
        assert offer.count()
