"""Ladders of what moves memory: what each idea saves, in counts; edges of their inputs; a table of times."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import TARGET, CudaSimDevice
from picograd.engine.devices import compiler_for
from picograd.record import replace
from picograd_lab.ladder import gpu, gpu_table
from picograd_lab.ladder.gpu import Ladder
from picograd_lab.ladder.runnable import Array, Runnable
from tests.helpers import in_full
from tests.host_compilers import needs_compiler
from tests.ladders import counted, found_with_bug, ladder_of, rung_of

LENGTHS = {
    "softmax": (4, 1024), "gemv": (32, 1024), "layernorm": (8, 1024), "layernorm_grad": (16, 512), "adamw": (2048,),
    "attention": (2, 1, 64, 64, 1),
}  # fmt: skip


@cache
def counts(name: str) -> dict[str, dict[str, int]]:
    """Returns the counts of every rung of a ladder, at the lengths above."""
    ladder = ladder_of(name)
    lengths = dict(zip(ladder.lengths, LENGTHS[name], strict=True))
    return counted(ladder, lengths)


def run(name: str, rung: str, lengths: dict[str, int], *arrays: Array) -> list[Array]:
    """Returns the results of a rung for given arrays."""
    ladder, device = ladder_of(name), CudaSimDevice()
    source = ladder.source(rung_of(ladder, rung), lengths)
    made = Runnable(device, device.load(simulated.compile_source(source, TARGET)), arrays)
    made.run()
    return made.results()


# ---- softmax ----
@needs_compiler
def test_a_softmax_reads_x_once_less_online_and_once_in_all_from_registers() -> None:
    found, once = counts("softmax"), 4 * 1024 // 8  # sectors of x
    sectors = {name: each["loaded_sectors"] // once for name, each in found.items()}
    assert sectors == {"thread a row": 24, "block a row": 3, "warp shuffles": 3, "online": 2, "vectors": 2, "registers": 1}
    assert found["vectors"]["global_loads"] * 4 == found["online"]["global_loads"]
    assert found["registers"]["exponentials"] == 4 * 1024 < found["warp shuffles"]["exponentials"]


@needs_compiler
def test_shuffles_take_the_place_of_barriers() -> None:
    found = counts("softmax")
    assert found["block a row"]["barriers"] == 5 * found["warp shuffles"]["barriers"]
    assert found["warp shuffles"]["shuffles"] == 4 * 8 * 2 * 5  # rows, warps, joins, levels


@needs_compiler
@pytest.mark.variants(every=2, first=1)
@pytest.mark.parametrize("rung", ladder_of("softmax").rungs, ids=lambda rung: rung.name)
def test_a_softmax_of_masked_rows_is_that_of_numpy(rung: gpu.Rung) -> None:
    x = np.full((3, 8), -np.inf, np.float32)
    x[0, 6:] = 100.0, 101.0
    x[2, 0] = np.nan
    (y,) = run("softmax", rung.name, {"ROWS": 3, "COLS": 8}, x)
    y = y.reshape(3, 8)
    assert np.allclose(y[0], [0.0] * 6 + [0.26894143, 0.73105857]) and np.isnan(y[1:]).all()


# ---- gemv ----
@needs_compiler
def test_what_a_warp_loads_of_x_serves_four_rows() -> None:
    found, of_a, of_x = counts("gemv"), 32 * 1024 // 8, 1024 // 8
    sectors = {name: each["loaded_sectors"] for name, each in found.items()}
    assert sectors["thread a row"] == 8 * of_a + 1024  # a sector for each element of a and each step of the warp along x
    assert sectors["warp a row"] == sectors["vectors"] == of_a + 32 * of_x
    assert sectors["rows of a warp"] == sectors["split k"] == of_a + 8 * of_x


# ---- layer norm ----
@needs_compiler
def test_a_layer_norm_reads_x_three_times_then_twice_then_once() -> None:
    once, shared = 8 * 1024 // 8, 2 * 8 * 1024 // 8  # sectors of x; of weight and bias, for each row
    found = counts("layernorm")
    times = {name: (each["loaded_sectors"] - shared) / once for name, each in found.items()}
    assert times == {"two passes": 3, "welford": 2, "warps": 2, "vectors": 2, "registers": 1}
    assert found["warps"].keys() >= {"barriers"} and not found["warps"]["barriers"] and not found["warps"]["shared_bytes"]


@needs_compiler
@pytest.mark.variants(every=2, first=1)
@pytest.mark.parametrize("rung", ladder_of("layernorm").rungs, ids=lambda rung: rung.name)
def test_a_large_mean_does_not_drown_the_variance(rung: gpu.Rung) -> None:
    x = np.float32(4096) + np.arange(8, dtype=np.float32)[None] / 8  # its squares need 2 * 15 bits, of which float32 has 24
    (y,) = run("layernorm", rung.name, {"ROWS": 1, "COLS": 8}, x, np.ones(8, np.float32), np.zeros(8, np.float32))
    assert np.allclose(y, (x[0] - x.mean()) / np.sqrt(x.var() + 1e-5), atol=1e-5)


# ---- the gradients of layer norm ----
@needs_compiler
def test_partial_sums_read_x_and_g_once_and_need_no_atomics() -> None:
    found, of_x = counts("layernorm_grad"), 16 * 512 // 8
    assert found["atomics"]["global_atomics"] == 2 * 16 * 512 // 32, "two for each element"
    assert not any(each["global_atomics"] for name, each in found.items() if name != "atomics")
    # weight twice for each row, mean and scale; then two partial rows of two sums, or each row once more
    rows = 2 * 16
    assert found["atomics"]["loaded_sectors"] == (2 + 2 + 2) * of_x + rows + 2 * 16 * 512 // 8
    assert found["columns"]["loaded_sectors"] == (2 + 2 + 2 + 2) * of_x + rows + 2 * 16 * 512 // 32
    assert found["partial sums"]["loaded_sectors"] == (2 + 2) * of_x + rows + 2 * 2 * 512 // 8
    assert found["vectors"]["loaded_sectors"] == found["partial sums"]["loaded_sectors"]
    assert found["vectors"]["global_stores"] < found["partial sums"]["global_stores"] / 2


# ---- AdamW ----
@needs_compiler
def test_a_fused_step_moves_seven_numbers_where_four_formulas_move_twelve() -> None:
    found, of_all = counts("adamw"), (2048 + 1024 + 512 + 256) // 8  # sectors of one operand
    moved = {name: (each["loaded_sectors"] + each["stored_sectors"]) / of_all for name, each in found.items()}
    assert moved == {"kernel a formula": 12, "fused": 7, "vectors": 7, "one launch": 7}
    assert found["vectors"]["global_loads"] * 4 == found["fused"]["global_loads"]
    launches = [len(rung.launches({"N": 2048})) for rung in ladder_of("adamw").rungs]
    assert launches == [16, 4, 4, 1]


# ---- attention ----
BY_MMA = [(ladder_of(name), ladder_of(name).rungs[-1]) for name in ("attention", "attention_grad")]


@needs_compiler
@in_full
def test_attention_without_stored_scores_stores_what_it_gives() -> None:
    found, given = counts("attention"), 2 * 64 * 64 * 4 // 32  # sectors of the result
    logarithms = 2 * 64 * 4 // 32
    assert (
        found["naive"]["stored_sectors"] == found["tiled"]["stored_sectors"] == given + 2 * 64 + 2 * 2 * 64 * 64 * 4 // 32
    )
    assert found["mma"]["stored_sectors"] == given + logarithms
    assert found["tiled"]["loaded_sectors"] * 10 < found["naive"]["loaded_sectors"]
    assert found["mma"]["loaded_sectors"] * 2 < found["online"]["loaded_sectors"] < found["tiled"]["loaded_sectors"] / 4


@needs_compiler
def test_tiles_that_come_in_the_background_need_half_the_barriers() -> None:
    online, copies = (counts("attention")[name] for name in ("online", "async copies"))
    assert copies["barriers"] * 2 == online["barriers"] and copies["bank_conflicts"] == 0
    assert copies["async_copies"] * 4 == online["global_loads"] - copies["global_loads"] + copies["async_copies"]
    assert copies["loaded_sectors"] == online["loaded_sectors"], "the same bytes"


@needs_compiler
@pytest.mark.variants(every=4)
@pytest.mark.parametrize(
    ("pattern", "becomes"),
    [
        (r"    wait_copies<0>\(\);\n", ""),
        (r"(?s)(done with\n.*)    wait_copies<0>\(\);\n", r"\1"),
        (r"start_tile\(v_tile", "start_tile(k_tile"),
        (r"if \(key \+ KEYS < end\) ", ""),
    ],
)
def test_a_bug_of_copies_is_found(pattern: str, becomes: str) -> None:
    lengths = {"HEADS": 2, "KV_HEADS": 1, "T": 70, "D": 8, "CAUSAL": 0}
    found = found_with_bug(ladder_of("attention"), "async copies", lengths, pattern, becomes)
    assert any(re.search("on its way|race|not written|ends while", each) for each in found), found


@needs_compiler
def test_matrix_instructions_take_the_place_of_shared_loads() -> None:
    found = counts("attention")
    assert found["mma"]["mmas"] * 16 * 8 * 16 == 2 * 2 * 64 * 64 * 64, "two products of each head, none of them half"
    assert found["mma"]["shared_loads"] * 50 < found["online"]["shared_loads"]
    assert found["mma"]["bank_conflicts"] == 0


@pytest.mark.parametrize("name", ["attention", "attention_grad"])
def test_memory_of_attention_grows_with_t_from_the_third_rung_on(name: str) -> None:
    ladder = ladder_of(name)
    for rung in ladder.rungs:
        short, long = (sum(n for _, n in rung.scratch({**ladder.lengths, "T": rows})) for rows in (1000, 2000))
        assert long > 3 * short if rung.name in ("naive", "tiled") else long == 2 * short


@needs_compiler
def test_causal_attention_skips_tiles_right_of_the_diagonal() -> None:
    ladder = ladder_of("attention")
    some = replace(ladder, rungs=ladder.rungs[-1:])
    lengths = {**ladder.lengths, "HEADS": 1, "KV_HEADS": 1, "T": 256}
    whole, half = (counted(some, {**lengths, "CAUSAL": causal})["mma"] for causal in (0, 1))
    assert (
        half["mmas"] * 8 == whole["mmas"] * 5
    )  # of 4 blocks the first walks along a quarter of the keys, the last along all


@needs_compiler
@pytest.mark.variants
@pytest.mark.parametrize(("ladder", "rung"), BY_MMA, ids=lambda each: each.name)
def test_matrix_instructions_of_attention_take_bfloat16(ladder: Ladder, rung: gpu.Rung) -> None:
    lengths = {"HEADS": 2, "KV_HEADS": 1, "T": 37, "D": 32, "CAUSAL": 1}
    ladder = replace(ladder, rungs=(replace(rung, dtype=dtypes.bfloat16, roundoff=2.0**-8),))
    (figure,) = gpu.climb(ladder, lengths, compiler_for("CUDASIM"))
    assert 0 < figure.error <= 1 and figure.registers is not None


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("ladder", "rung"), BY_MMA, ids=lambda each: each.name)
def test_heads_of_128_spill_nothing(ladder: Ladder, rung: gpu.Rung, arch: str) -> None:
    assert gpu.machine_code(ladder, rung, {**ladder.lengths, "D": 128}, arch).spill_nbytes == 0


def test_lengths_that_attention_does_not_take_are_refused() -> None:
    ladder = ladder_of("attention")
    *_, mma = ladder.rungs
    for changed, says in (
        ({"KV_HEADS": 3}, "HEADS must be a multiple of KV_HEADS"),
        ({"D": 24}, "D must be a multiple of 16"),
        ({"D": 144}, "D must be at most 128"),
        ({"CAUSAL": 2}, "CAUSAL must be 0 or 1"),
        ({"T": 0}, "T must be at least 1"),
        ({"CAUSAL": 0}, ""),
    ):
        assert gpu.why_not(ladder, mma, {**ladder.lengths, **changed}, TARGET) == says


# ---- the table of a GPU ----
def test_a_gpu_has_bandwidth_and_its_part_of_a_copy() -> None:
    ladder = ladder_of("gemv")
    figures = [
        gpu.Figure("a", "slow", nbytes=2_000_000, samples_s=(2e-3,), copy_s=5e-4, registers=9),
        gpu.Figure("b", "fast", nbytes=2_000_000, samples_s=(1e-3,), copy_s=5e-4, registers=9),
        gpu.Figure("c", "new", left_out="needs sm_90a"),
    ]
    heads, rows = gpu_table.table_of(ladder, {"M": 250_000, "K": 1}, figures, "CUDA")
    assert heads == ("", "what it adds", "us", "GFLOP/s", "GB/s", "of a copy", "gain", "registers")
    assert rows[0] == ("a", "slow", "2000", "0.25", "1", "25.0%", "", "9")
    assert rows[1] == ("b", "fast", "1000", "0.5", "2", "50.0%", "2x", "9")
    assert rows[2] == ("c", "left out: needs sm_90a", *[""] * 6)


def test_a_copy_moves_as_many_bytes_as_the_ladder() -> None:
    class Device:
        """A device that copies 1000 bytes a second and tells how long its work took."""

        def __init__(self) -> None:
            self.seconds = 0.0

        def allocate_all(self, lengths: list[int]) -> list[int]:
            return lengths

        def copy(self, target: int, source: int, nbytes: int) -> None:
            assert target == source == nbytes
            self.seconds += 2 * nbytes / 1000

        def timed(self, work) -> float:
            before = self.seconds
            work()
            return self.seconds - before

    assert gpu._copy_seconds(Device(), 500) == pytest.approx(0.5)
