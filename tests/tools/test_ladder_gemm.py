"""The ladder of products on GPUs: what each idea saves, in counts; bugs that the simulator finds; times on a GPU."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.errors import DeviceError
from picograd.record import replace
from picograd_lab.ladder import gpu, gpu_table, roofline
from picograd_lab.ladder.gemm import LADDER as GEMM
from picograd_lab.ladder.gpu import Rung
from picograd_lab.ladder.runnable import Runnable
from tests.fake_driver import HEAD, TENSORS, build, run_on
from tests.host_compilers import needs_compiler
from tests.ladders import counts_of_rung, found_with_bug

# ---- counts of the products ----
FLOPS = 2 * 128 * 128 * 64


def of(*names: str) -> list[dict[str, int]]:
    """Returns the counts of rungs of a product of 128 x 128 x 64."""
    return [counts_of_rung("gemm", name, 128, 128, 64) for name in names]


@needs_compiler
def test_neighbours_along_a_row_ask_for_an_eighth_of_the_sectors() -> None:
    naive, coalesced = of("naive", "coalesced")
    assert coalesced["stored_sectors"] * 8 == naive["stored_sectors"]
    # a column of a and an element of b against an element of a and a row of b: 32 + 1 and 1 + 4 sectors a step of K
    assert (naive["loaded_sectors"], coalesced["loaded_sectors"]) == (33 * 512 * 64, 5 * 512 * 64)


@needs_compiler
def test_a_shared_tile_reads_memory_once_for_32_threads() -> None:
    coalesced, tile = of("coalesced", "shared tile")
    assert coalesced["global_loads"] == 32 * tile["global_loads"]
    assert tile["shared_loads"] == coalesced["global_loads"] and tile["bank_conflicts"] == 0


@needs_compiler
def test_registers_serve_several_multiply_adds() -> None:
    tile, column, square = of("shared tile", "register column", "register tile")
    assert [FLOPS / 64 / each["shared_loads"] for each in (tile, column, square)] == [1 / 2, 8 / 9, 4]
    assert tile["loaded_sectors"] == 2 * column["loaded_sectors"] == 4 * square["loaded_sectors"]


@needs_compiler
def test_vectors_are_a_quarter_of_the_instructions() -> None:
    scalars, vectors = of("register tile", "vectors")
    for name in ("global_loads", "global_stores", "shared_loads"):
        assert scalars[name] == 4 * vectors[name], name
    assert scalars["shared_bytes"] == vectors["shared_bytes"] and scalars["loaded_sectors"] == vectors["loaded_sectors"]
    assert scalars["bank_conflicts"] == 4 * vectors["bank_conflicts"] > 0


@needs_compiler
def test_a_warp_tile_has_no_conflicts_and_reads_two_thirds() -> None:
    vectors, warp = of("vectors", "warp tile")
    assert warp["bank_conflicts"] == 0 and warp["shared_loads"] == vectors["shared_loads"]
    filled = 2 * 128 * 64 * 4  # both tiles are stored once
    assert (warp["shared_bytes"] - filled) * 144 == (vectors["shared_bytes"] - filled) * 96


@needs_compiler
def test_async_copies_pass_no_register_and_want_fewer_barriers() -> None:
    before, copies = of("warp tile", "async copies")
    assert copies["async_copies"] == copies["global_loads"] == before["global_loads"]
    assert copies["loaded_sectors"] == before["loaded_sectors"]
    assert copies["barriers"] * 4 == before["barriers"], "one for 16 of K, where two were for 8"


@needs_compiler
def test_matrix_instructions_multiply_all_and_nothing_else_does() -> None:
    mma, wgmma = of("mma", "wgmma and tma")
    assert mma["mmas"] * 2 * 16 * 16 * 8 == wgmma["wgmmas"] * 2 * 64 * 128 * 16 == FLOPS
    assert mma["multiply_adds"] == wgmma["multiply_adds"] == 0


@needs_compiler
def test_the_copy_engine_leaves_threads_nothing_to_load() -> None:
    for counts in of("wgmma and tma", "warp specialised", "persistent", "wide tile", "clusters"):
        assert counts["global_loads"] == counts["shared_loads"] == 0 and counts["tile_loads"] >= 3
        assert counts["loaded_sectors"] == 2 * 128 * 64 * 2 // 32, "each element comes once"
    plain, roles, stays = of("wgmma and tma", "warp specialised", "persistent")
    assert plain["global_stores"] and not plain["tile_stores"]
    assert stays["tile_stores"] == 2 * 4 and not stays["global_stores"]
    assert roles["barriers"] == 12, "one, of twelve warps, and none for a step"


@needs_compiler
def test_blocks_of_a_cluster_read_what_they_share_once() -> None:
    alone, together = (counts_of_rung("gemm", name, 256, 256, 64) for name in ("wide tile", "clusters"))
    of_a = of_b = 256 * 64 * 2 // 32
    assert (alone["loaded_sectors"], together["loaded_sectors"]) == (of_a + 2 * of_b, of_a + of_b)
    assert (alone["tile_loads"], together["tile_loads"]) == (2 * (1 + 4), 2 * (1 + 2))
    assert alone["shared_bytes"] == together["shared_bytes"] and alone["wgmmas"] == together["wgmmas"]


@needs_compiler
@pytest.mark.parametrize("rung", GEMM.rungs[-3:], ids=lambda rung: rung.name)
def test_blocks_that_stay_compute_one_tile_after_the_other(rung: Rung) -> None:
    lengths = {"M": 136, "N": 520, "K": 72}
    source = GEMM.source(rung, lengths)
    (launch,) = source.launches
    assert launch.grid == (10 if "persistent" in rung.file else 6)
    binary = simulated.compile_source(replace(source, launches=(replace(launch, grid=2),)), TARGET)
    given = GEMM.given(rung, lengths)
    for order in ORDERS:
        device = CudaSimDevice(order, seed=1)
        made = Runnable(device, device.load(binary), given)
        made.run()
        gpu.checked(GEMM, rung, lengths, given, made.results())


def test_rungs_that_move_16_bytes_say_which_lengths_they_take() -> None:
    rules = {rung.name: rung.accepts({"M": 3, "N": 12, "K": 6}) for rung in GEMM.rungs}
    assert not any(rules[name] for name in ("naive", "coalesced", "shared tile", "register column", "register tile"))
    assert rules["vectors"] == "N and K must be multiples of 4" and rules["mma"] == "N and K must be multiples of 8"
    assert GEMM.rungs[-1].launches({"M": 4096, "N": 4096, "K": 8})[0].grid == 132


# ---- bugs ----
LENGTHS = {"M": 72, "N": 72, "K": 328}
BESIDE, TOO_EARLY = "race|on its way", "copies to .* which a wgmma"
# The rung; what is replaced, by what; what the simulator says in one of the orders, "" where only the result shows it.
BUGS = {
    "threads without an element": ("coalesced", r"  if \(row >= M\) return;\n", "", "reads p0|writes p2"),
    "no barrier before a tile is read": ("shared tile", r"__syncthreads\(\);", "", "race|not written"),
    "no barrier after a tile is read": ("register tile", r"(for .int32 k[^$]*)__syncthreads\(\);", r"\1", "race"),
    "rows of a tile that overlap": ("vectors", r"LINE = TILE \+ 4", "LINE = TILE - 4", "race"),
    "groups of a warp that overlap": ("warp tile", r"beyond = WIDE \* 4", "beyond = WIDE * 2", "^$"),
    "a wait for too few copies": ("async copies", r"STAGES - 2>", "STAGES - 1>", "on its way"),
    "copies without a group": ("async copies", r"    commit_copies\(\);\n", "", "on its way|ends while"),
    "no barrier in the ring": ("async copies", r"    __syncthreads\(\);\n", "", "race|on its way|not written"),
    "a copy to the tile that is read": ("mma", r"copy_step\(step \+ STAGES - 1\)", "copy_step(step + STAGES)", BESIDE),
    "halves of matrices exchanged": ("mma", r"lane % 16, beyond = lane / 16", "lane / 2, beyond = lane % 2", "^$"),
    "no wait for the copy engine": ("wgmma and tma", r"    mbarrier_wait.*\n", "", "on its way|not written"),
    "no barrier before the next copy": ("wgmma and tma", r"    __syncthreads\(\);\n  }\n#", "  }\n#", TOO_EARLY),
    "sums read too early": ("wgmma and tma", r"wgmma_wait<0", "wgmma_wait<1", f"wgmma adds|{TOO_EARLY}"),
    "the wrong tile is given back": ("warp specialised", r"\(step - 1\) %", "step %", f"deadlock|{TOO_EARLY}"),
    "a parity too late": ("warp specialised", r"step / STAGES % 2 \^ 1", "step / STAGES % 2", "deadlock"),
    "a tile that nobody gives back": ("warp specialised", r"      if \(step > 0 .*\n", "", "deadlock"),
}


@needs_compiler
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_rung_is_found(bug: str) -> None:
    name, pattern, becomes, says = BUGS[bug]
    found = found_with_bug(GEMM, name, LENGTHS, pattern, becomes)
    assert any(re.search(says, each) for each in found), found


NOT_EMPTY = f"{TOO_EARLY}|copies to .* to which a copy is on its way|arrives at .* of this phase have arrived"
OWN_PART = r"{} \+ \(int32\)\(blockIdx.x % {}\) \* "
WAITS = r"if constexpr \(Cut::CLUSTER > 1\) sync_cluster\(\);"
OF_A_CLUSTER = {
    "no barrier when a block begins": (WAITS + r"\n  else ", "", "another block, which|not initialised"),
    "no barrier when a block ends": (WAITS + "  // ", "// ", "which may have ended"),
    "a stage is given back to its own block": (r"_arrive_at\(empty, stage, rank\)", "_arrive(empty, stage)", NOT_EMPTY),
    "a stage is given back to the other block": (r"stage, rank\);", "stage, (int32)(1 - blockIdx.x % 2));", NOT_EMPTY),
    "one block's readers are enough": (r"arrivals \* Cut::CLUSTER", "arrivals", NOT_EMPTY),
    "both bring the same half": (OWN_PART.format("first", "BLOCKS") + "STEP", "first", "on its way|bytes more come"),
    "a half comes to one block": (r"load_tile_to_all<BLOCKS>", "load_tile_to_all<1>", "deadlock"),
    "both have the same rows": (OWN_PART.format("", "Cut::CLUSTER") + "Cut::ROWS", "", "^$"),
}  # fmt: skip


@needs_compiler
@pytest.mark.variants(every=4, first=2)
@pytest.mark.parametrize("bug", OF_A_CLUSTER)
def test_a_bug_in_a_cluster_is_found(bug: str) -> None:
    pattern, becomes, says = OF_A_CLUSTER[bug]
    headers = ("hopper_product.h", "hopper_stages.h")
    found = found_with_bug(GEMM, "clusters", {"M": 200, "N": 72, "K": 328}, pattern, becomes, headers)
    assert any(re.search(says, each) for each in found), found


@needs_compiler
def test_a_grid_that_is_no_multiple_of_a_cluster_is_refused() -> None:
    rung, lengths = GEMM.rungs[-1], {"M": 40, "N": 40, "K": 24}
    source = GEMM.source(rung, lengths)
    binary = simulated.compile_source(replace(source, launches=(replace(source.launches[0], grid=3),)), TARGET)
    device = CudaSimDevice()
    with pytest.raises(DeviceError, match="clusters of 2 blocks of 384 threads: the grid is no multiple"):
        Runnable(device, device.load(binary), GEMM.given(rung, lengths)).run()


# ---- a GPU ----
@needs_compiler
def test_a_gpu_is_timed(tmp_path: Path) -> None:
    build(tmp_path)
    code = """
from picograd_lab.ladder import gpu, gpu_table
from picograd_lab.ladder.gemm import LADDER
from picograd.errors import CompileError
from picograd.record import replace
def missing(*_): raise CompileError("nvrtc: is not here")
gpu.machine_code, gpu.LEAST_S, gpu.clock_hz = missing, 0.0, lambda: 1e9
few = replace(LADDER, rungs=(LADDER.rungs[1], LADDER.rungs[-1]))
lengths = {"M": 40, "N": 40, "K": 24}
figures = list(gpu.climb(few, lengths, devices._compilers["CUDA"]))
assert all(f.error <= 1 and min(f.samples_s) > 0 and f.least_s >= f.copy_s > 0 and not f.library_s for f in figures)
print(gpu_table.table_of(few, lengths, figures, "CUDA")[0])
"""
    heads = ("", "what it adds", "us", "GFLOP/s", "GB/s", "of a copy", "of the roofline", "gain")
    assert run_on(tmp_path, code, head=HEAD + TENSORS) == str(heads)


def test_shares_are_of_the_roofline_and_of_the_library() -> None:
    figure = gpu.Figure("a", "fast", nbytes=10**6, samples_s=(1e-3,), copy_s=1e-4, least_s=5e-4, library_s=9e-4)
    heads, (row,) = gpu_table.table_of(GEMM, {"M": 100, "N": 100, "K": 100}, [figure], "CUDA")
    assert dict(zip(heads, row))["of the roofline"] == "50.0%" and dict(zip(heads, row))["of cuBLAS"] == "90.0%"


def test_the_roofline_is_arithmetic_or_memory() -> None:
    at = (dtypes.bfloat16, "sm_90a", 100, 1e9)
    assert roofline.least_seconds(4096 * 100 * 10**9, *at, copy_s=0.5) == 1.0
    assert roofline.least_seconds(4096 * 100 * 10**9, *at, copy_s=2.0) == 2.0
    assert roofline.least_seconds(1, dtypes.bfloat16, "sm_86", 100, 1e9, 1.0) == 0.0, "its rate is not known"
    assert roofline.least_seconds(1, dtypes.float32, "sm_90a", 100, -1.0, 1.0) == 0.0, "the driver knows no clock"


def test_a_library_is_timed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        """A moment of a clock that a call advances by a millisecond."""

        def __init__(self, enable_timing: bool) -> None:
            self.at = 0

        def record(self) -> None:
            self.at = len(calls)

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, other: Event) -> int:
            return other.at - self.at

    class Tensor:
        def __init__(self, array: np.ndarray) -> None:
            self.dtypes = [str(array.dtype)]

        def cuda(self) -> Tensor:
            return self

        def to(self, dtype: str) -> Tensor:
            self.dtypes.append(dtype)
            return self

    calls: list[list[str]] = []
    cuda = SimpleNamespace(is_available=lambda: True, Event=Event, _sleep=lambda clocks: None)
    torch = SimpleNamespace(cuda=cuda, from_numpy=Tensor, bfloat16="bfloat16", int32="int32", __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", torch)
    given = [np.zeros(2, dtypes.bfloat16.numpy), np.zeros(2, np.int32)]
    seconds = roofline.library_seconds(lambda torch, *tensors: calls.append([t.dtypes for t in tensors]), given)
    assert seconds == pytest.approx(1e-3) and calls[0] == [["float32", "bfloat16"], ["int32", "int32"]]
    cuda.is_available = lambda: False
    assert roofline.library_seconds(lambda torch: None, []) == roofline.library_seconds(None, []) == 0.0
