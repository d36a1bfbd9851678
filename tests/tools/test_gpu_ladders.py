"""Ladders on GPUs: every rung is right in the simulator and is machine code; what it counts; what the command says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.devices.cudasim import compile as simulated
from picograd.devices.cudasim.device import ORDERS, TARGET, CudaSimDevice
from picograd.engine.devices import compiler_for
from picograd.errors import DeviceError, VerifyError
from picograd.ir.stages import Binary, Launch, Param, Source
from picograd.record import replace
from picograd_lab.ladder import gemm, gpu, gpu_table, run
from picograd_lab.ladder.counts import compile_counted, take_counts
from picograd_lab.ladder.gpu import Ladder, Rung
from picograd_lab.ladder.own import climb_own
from picograd_lab.ladder.run import ON_GPU
from picograd_lab.ladder.runnable import Runnable
from picograd_programs import cli
from tests.host_compilers import needs_compiler
from tests.ladders import counted, missing

GEMM = gemm.LADDER
DOCS = Path(__file__).resolve().parents[2] / "docs"
LADDERS = {name: import_module(f"picograd_lab.ladder.{name}").LADDER for name in ON_GPU}
# Lengths that tiles do not divide, that they do, the least, and others; a rung that refuses some is tried with the next.
LENGTHS: dict[str, list[tuple[int, ...]]] = {
    "adamw": [(37,), (2048,), (1,), (4128,), (300,)],
    "attention": [(2, 1, 35, 16, 1), (2, 2, 70, 64, 0), (1, 1, 1, 1, 0), (4, 2, 64, 128, 1), (3, 3, 33, 5, 1)],
    "attention_grad": [(2, 1, 35, 16, 1), (2, 2, 66, 64, 0), (1, 1, 1, 1, 0), (4, 2, 64, 128, 1), (3, 3, 33, 5, 1)],
    "conv": [
        (2, 8, 7, 9, 5, 3, 1), (1, 3, 12, 10, 9, 5, 2), (1, 1, 1, 1, 1, 1, 1), (1, 16, 16, 16, 64, 3, 1),
        (1, 8, 6, 7, 3, 4, 3), (2, 9, 33, 6, 70, 3, 1), (1, 8, 1, 1, 1, 3, 1),
    ],
    "gemm": [(130, 136, 24), (33, 70, 37), (1, 1, 1), (8, 8, 328), (5, 264, 8)],
    "gemv": [(13, 35), (35, 300), (1, 1), (64, 1028), (3, 4)],
    "layernorm": [(13, 35), (9, 300), (1, 1), (2, 1024), (17, 4)],
    "layernorm_grad": [(13, 35), (70, 300), (1, 1), (9, 1024), (17, 4)],
    "softmax": [(13, 35), (3, 300), (1, 1), (2, 2052), (300, 4)],
    "topk": [(5, 301, 30), (2, 1028, 33), (1, 1, 1), (5, 36, 7), (5, 64, 64), (1, 8192, 1), (2, 4, 4)],
}  # fmt: skip
BY_DEFAULT = 1  # problems of a rung; --full tries the others, too
RUNGS = [
    pytest.param(ladder, rung, id=f"{ladder.name} {rung.name}") for ladder in LADDERS.values() for rung in ladder.rungs
]


def problems(ladder: Ladder, rung: Rung) -> Iterator[dict[str, int]]:
    """Yields the lengths that a rung takes."""
    for values in LENGTHS[ladder.name]:
        lengths = dict(zip(ladder.lengths, values, strict=True))
        if not rung.accepts(lengths):
            yield lengths


def cases() -> Iterator[object]:
    """Yields each rung with each of its problems."""
    for ladder in LADDERS.values():
        for rung in ladder.rungs:
            for number, lengths in enumerate(problems(ladder, rung)):
                name = f"{ladder.name} {rung.name} {'x'.join(map(str, lengths.values()))}"
                yield pytest.param(
                    ladder, rung, lengths, id=name, marks=[pytest.mark.variants] if number >= BY_DEFAULT else []
                )


COMPILED = [
    pytest.param(ladder, rung, arch, id=f"{ladder.name} {rung.name} {arch}")
    for ladder in LADDERS.values()
    for rung in ladder.rungs
    for arch in (["sm_90a"] if rung.oldest == 90 else ["sm_80", "sm_90a"])
]


# ---- every rung ----
@needs_compiler
@pytest.mark.parametrize(("ladder", "rung", "lengths"), [*cases()])
def test_a_rung_is_right_in_every_order(ladder: Ladder, rung: Rung, lengths: dict[str, int]) -> None:
    binary = simulated.compile_source(ladder.source(rung, lengths), TARGET)
    given = ladder.given(rung, lengths, seed=1)
    for order in ORDERS:
        device = CudaSimDevice(order, seed=3)
        made = Runnable(device, device.load(binary), given)
        made.run()
        gpu.checked(ladder, rung, lengths, given, made.results())


OWN = {
    "adamw": (300,), "attention": (2, 1, 35, 16, 1), "attention_grad": (2, 2, 66, 64, 0), "conv": (2, 8, 7, 9, 5, 3, 2),
    "gemm": (33, 70, 40), "gemv": (13, 35), "layernorm": (9, 300), "layernorm_grad": (13, 35), "softmax": (3, 300),
    "topk": (5, 301, 30),
}  # fmt: skip


@needs_compiler
@pytest.mark.variants(every=5)
@pytest.mark.parametrize("name", OWN)
def test_the_compilers_kernels_are_a_row_for_each_dtype(name: str) -> None:
    ladder = LADDERS[name]
    found = list(climb_own(ladder, dict(zip(ladder.lengths, OWN[name], strict=True)), compiler_for("CUDASIM")))
    dtypes_of_rungs = {rung.dtype.name for rung in ladder.rungs}
    assert len(found) == len(dtypes_of_rungs) and found[0].name == "picograd"
    for figure in found:
        assert not figure.left_out and figure.counts["loaded_sectors"] > 0 and figure.error <= 1


@needs_compiler
@pytest.mark.parametrize(("name", "number"), [(name, i) for name, values in OWN.items() for i in range(len(values))])
def test_what_has_no_problem_of_some_lengths_is_left_out_with_the_rule(name: str, number: int) -> None:
    ladder = LADDERS[name]
    lengths = dict(zip(ladder.lengths, OWN[name], strict=True))
    wrong = {**lengths, list(lengths)[number]: 2 if list(lengths)[number] in ladder.switches else 0}
    rungs, own = (climb(ladder, wrong, compiler_for("CUDASIM")) for climb in (gpu.climb, climb_own))
    assert {figure.left_out for figure in (*rungs, *own)} == {gpu.why_no_problem(ladder, wrong)} != {""}


@needs_compiler
@pytest.mark.parametrize(("name", "wrong"), [("attention", {"HEADS": 3, "KV_HEADS": 2}), ("topk", {"COLS": 3, "K": 5})])
def test_what_the_compiler_refuses_is_left_out(name: str, wrong: dict[str, int]) -> None:
    lengths = {**LADDERS[name].lengths, **wrong}
    assert all(figure.left_out for figure in climb_own(LADDERS[name], lengths, compiler_for("CUDASIM")))


# Sectors, shared loads, shuffles and barriers of the compiler's kernels, at most; each sector is moved once but for a few.
MOST_COUNTS: dict[str, tuple[tuple[int, ...], tuple[int, int, int, int]]] = {
    "gemv of the ladder": ((256, 1024), (41_024, 0, 576, 0)),
    "gemv of few rows": ((64, 1024), (16_448, 0, 320, 0)),
    "gemv of odd lengths": ((255, 1023), (48_161, 256, 2_816, 256)),
    "layernorm of the ladder": ((64, 1024), (32_768, 0, 960, 0)),
    "layernorm of many rows": ((512, 1024), (196_608, 0, 4_608, 0)),
    "softmax of the ladder": ((64, 1024), (16_384, 0, 640, 0)),
    "topk of the ladder": ((8, 2048, 32), (2_462, 6_024, 0, 1_152)),
    "topk of long rows": ((2, 12600, 50), (3_761, 16_888, 0, 1_408)),
    "topk of odd lengths": ((8, 513, 7), (747, 1_679, 0, 480)),
}  # fmt: skip


# Lengths at which no rung that is given the same dtype moves fewer sectors.
BEST = {"conv": (2, 16, 16, 16, 64, 3, 1), "layernorm_grad": (64, 512), "adamw": (4096,)}


@needs_compiler
@pytest.mark.parametrize("name", BEST)
def test_no_rung_moves_fewer_sectors_than_the_compiler(name: str) -> None:
    ladder = LADDERS[name]
    lengths, rungs = dict(zip(ladder.lengths, BEST[name], strict=True)), {rung.name: rung for rung in ladder.rungs}
    best: dict[str, int] = {}
    for rung, counts in counted(ladder, lengths).items():
        sectors, dtype = counts["loaded_sectors"] + counts["stored_sectors"], rungs[rung].dtype.name
        best[dtype] = min(sectors, best.get(dtype, sectors))
    own = [one.counts["loaded_sectors"] + one.counts["stored_sectors"] for one in climb_own(
        ladder, lengths, compiler_for("CUDASIM")
    )]  # fmt: skip
    assert all(one <= limit for one, limit in zip(own, best.values(), strict=True)), f"{own} of {best}"


@needs_compiler
@pytest.mark.variants(every=3)
@pytest.mark.parametrize("case", MOST_COUNTS)
def test_the_compilers_kernels_count_no_more_than_they_did(case: str) -> None:
    ladder, (lengths, most) = LADDERS[case.split()[0]], MOST_COUNTS[case]
    (figure,) = climb_own(ladder, dict(zip(ladder.lengths, lengths, strict=True)), compiler_for("CUDASIM"))
    counts = figure.counts
    sectors = counts["loaded_sectors"] + counts["stored_sectors"]
    found = (sectors, counts["shared_loads"], counts["shuffles"], counts["barriers"])
    assert all(one <= limit for one, limit in zip(found, most)), f"{found} of {most}"


@needs_compiler
def test_a_wrong_result_of_the_compiler_is_no_figure() -> None:
    wrong = replace(LADDERS["gemv"], tensors=lambda lengths, a, x: (a[:, 1:] @ x[1:],))
    with pytest.raises(VerifyError, match="gemv"):
        list(climb_own(wrong, {"M": 2, "K": 5}, compiler_for("CUDASIM")))


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(("ladder", "rung", "arch"), COMPILED)
def test_a_rung_is_machine_code_that_spills_nothing(ladder: Ladder, rung: Rung, arch: str) -> None:
    usage = gpu.machine_code(ladder, rung, ladder.lengths, arch)
    assert usage.spill_nbytes == 0 and usage.stack_nbytes == 0
    for launch in rung.launches(ladder.lengths):
        assert usage.registers * launch.block <= 64 * 1024, "a block fits"
        assert usage.shared_nbytes + launch.shared_nbytes <= (227 if arch == "sm_90a" else 163) * 1024


@pytest.mark.parametrize(("ladder", "rung"), RUNGS)
def test_a_file_says_its_idea_first(ladder: Ladder, rung: Rung) -> None:
    first, second, *_ = ladder.text(rung).splitlines()
    assert first.lower().startswith(f"// {rung.name}: ") and first.endswith(".") and second == "//"
    assert len(ladder.idea(rung)) <= 70, "it has room in a table"


@pytest.mark.parametrize("ladder", LADDERS.values(), ids=LADDERS)
def test_every_file_is_a_rung_and_on_the_page(ladder: Ladder) -> None:
    files = [rung.file for rung in ladder.rungs]
    assert files == sorted(path.name for path in ladder.folder.glob("*.cu"))
    text = (DOCS / ("ladder_gpu.md" if ladder is GEMM else "ladders.md")).read_text()
    for file in files:
        assert f"picograd_lab/ladder/{ladder.name}/{file}" in text, file


@needs_compiler
@pytest.mark.variants(every=19, first=17)
@pytest.mark.parametrize(("ladder", "rung"), RUNGS)
def test_a_rungs_counts_are_those_of_the_page(ladder: Ladder, rung: Rung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "machine_code", missing)
    (figure,) = gpu.climb(replace(ladder, rungs=(rung,)), ladder.lengths, compiler_for("CUDASIM"))
    heads, (row,) = gpu_table.table_of(ladder, ladder.lengths, [figure], "CUDASIM")
    lines = (DOCS / ("ladder_gpu.md" if ladder is GEMM else "ladders.md")).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line == f"<!-- ladder:{ladder.name} on CUDASIM -->")
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:] if line.startswith("|")]
    written = next(dict(zip(table[0], cells)) for cells in table if cells[0].startswith(f"[{rung.name}]"))
    assert {head: written[head] for head in heads[1:]} == dict(zip(heads[1:], row[1:]))


# ---- counting ----
# Bodies of kernels with memory p and q of float32, and the counts of a warp.
ACCESSES: dict[str, dict[str, int]] = {
    "q[t] = p[t];": {"global_loads": 1, "global_stores": 1, "loaded_sectors": 4, "stored_sectors": 4},
    "q[t] = p[t + 1];": {"global_loads": 1, "global_stores": 1, "loaded_sectors": 5, "stored_sectors": 4},
    "q[t * 8] = p[0];": {"global_loads": 1, "global_stores": 1, "loaded_sectors": 1, "stored_sectors": 32},
    "if (t < 9) q[t] = 1.0f;": {"global_stores": 1, "stored_sectors": 2},
    "store_lanes(q, t * 4, load_lanes<4>(p, t * 4));": {
        "global_loads": 1, "global_stores": 1, "loaded_sectors": 16, "stored_sectors": 16
    },
    # 32 bytes of a thread are two accesses of 16
    "load_lanes<8>(p, t * 8);": {"global_loads": 2, "loaded_sectors": 64},
    "for (int32 i = 0; i < t; i++) q[i * 32 + t] = 1.0f;": {"global_stores": 31, "stored_sectors": 76},
    "atomic_add(q, 0, 1.0f);": {"global_atomics": 1, "loaded_sectors": 1, "stored_sectors": 1},
    # a turn of a loop is an instruction, whichever threads take part
    "REGISTERS(float32, r, 4); for (int32 i = 0; i < 4; i++) r[i] = (t + i) % 4 ? p[1024 * i + t] : 0.0f;": {
        "global_loads": 4, "loaded_sectors": 16, "register_bytes": 32 * 4 * 4
    },
    "REGISTERS(float32, r, 4); for (int32 i = 0; i < 4; i++) r[i] = t < 9 && i == 2 ? 1.0f : p[1024 * i + t];": {
        "global_loads": 4, "loaded_sectors": 15, "register_bytes": 32 * 4 * 4
    },
    # another place of the text is another instruction, though each thread has one access
    "if (t % 2) q[t] = 1.0f; else q[t] = 2.0f;": {"global_stores": 2, "stored_sectors": 8},
    "q[t] = fmaf(1.0f, 2.0f, 3.0f);": {"global_stores": 1, "stored_sectors": 4, "multiply_adds": 32},
    "shuffle_xor(t, 1); __syncthreads();": {"shuffles": 1, "barriers": 1},
    "REGISTERS(float32, r, 2); r[0] = 1.0f; r[1] = r[0];": {"register_bytes": 32 * 3 * 4},
}  # fmt: skip
# Reads of shared memory: conflicts of banks, and bytes.
READS = {
    "s[t]": (0, 128),
    "s[0]": (0, 4),  # one word goes to all
    "s[t * 2]": (1, 128),
    "s[t * 32]": (31, 128),
    "s[t * 33]": (0, 128),
    "s[t % 2 * 32]": (1, 8),
    "load_lanes<4>(s, t * 4).at[0]": (0, 512),
    "load_lanes<4>(s, t * 8).at[0]": (4, 512),
    "load_lanes<2>(s, t * 2).at[0]": (0, 256),
    "load_lanes<4>(s, t % 8 * 128).at[0]": (4 * 7, 128),
}
READING = "SHARED(float32, s, 2048); for (int32 i = t; i < 2048; i += 32) s[i] = 0.0f; __syncthreads(); q[t] = {};"
HALVES = (
    "SHARED(float16, s, 128); for (int32 i = t; i < 128; i += 32) s[i] = narrowed(0.0f, float16{}); __syncthreads(); "
    "q[t] = to_float32(s[t]);"
)
BLOCKS = "q[blockIdx.x * 64 + t] = 1.0f;"
BODIES = [*ACCESSES, *map(READING.format, READS), HALVES, BLOCKS]
LENGTH = 4096


@cache
def counting() -> Binary:
    """Returns the library of a kernel for each body."""
    head = 'extern "C" __global__ void kernel_{}(Global<const float32> p, Global<float32> q)'
    kernels = [f"{head.format(i)} {{\n  const int32 t = threadIdx.x;\n  {body}\n}}\n" for i, body in enumerate(BODIES)]
    params = (Param(dtypes.float32, LENGTH, "in"), Param(dtypes.float32, LENGTH, "out"))
    launches = tuple(Launch(f"kernel_{i}", 1, 32, 1) for i in range(len(BODIES)))
    return compile_counted(Source("kernels", "cuda", '#include "primitives.h"\n' + "".join(kernels), params, (), launches))


def counts_of(body: str, threads: int = 32, blocks: int = 1) -> dict[str, int]:
    """Returns what the simulator counts of a kernel."""
    device, launch = CudaSimDevice(), Launch(f"kernel_{BODIES.index(body)}", blocks, threads, 1)
    executable = device.load(replace(counting(), launches=(launch,)))
    Runnable(device, executable, [np.zeros(LENGTH, np.float32)]).run()
    return {name: count for name, count in take_counts(executable).items() if count}


@needs_compiler
@pytest.mark.parametrize("body", ACCESSES)
def test_accesses_of_a_warp_are_instructions(body: str) -> None:
    assert counts_of(body) == ACCESSES[body]


@needs_compiler
@pytest.mark.parametrize("read", READS)
def test_banks_of_shared_memory_answer_a_word_each(read: str) -> None:
    found, (conflicts, nbytes) = counts_of(READING.format(read)), READS[read]
    assert found.get("bank_conflicts", 0) == conflicts
    assert found["shared_loads"] == 1 and found["shared_stores"] == 64
    assert found["shared_bytes"] == nbytes + 64 * 128


@needs_compiler
def test_neighbouring_halves_share_a_word() -> None:
    found = counts_of(HALVES)
    assert "bank_conflicts" not in found and found["shared_bytes"] == 64 * 5


@needs_compiler
def test_warps_and_blocks_add_up() -> None:
    assert counts_of(BLOCKS, threads=64, blocks=3) == {"global_stores": 6, "stored_sectors": 24}


@needs_compiler
def test_counts_begin_anew_once_taken() -> None:
    rung, lengths = GEMM.rungs[0], {"M": 4, "N": 4, "K": 4}
    device = CudaSimDevice()
    executable = device.load(compile_counted(GEMM.source(rung, lengths)))
    made = Runnable(device, executable, GEMM.given(rung, lengths))
    made.run()
    first = take_counts(executable)
    assert not any(take_counts(executable).values()) and any(first.values())
    made.run()
    assert take_counts(executable) == first


@needs_compiler
def test_nobody_counts_in_what_others_compile() -> None:
    source = GEMM.source(GEMM.rungs[2], {"M": 4, "N": 4, "K": 4})
    data = [compile_(source).data for compile_ in (compile_counted, lambda each: simulated.compile_source(each, TARGET))]
    assert [b"picograd_take_counts" in each for each in data] == [True, False]
    assert b"parts_of_one" not in data[1] and b"counters" not in data[1]


# ---- what goes wrong ----
@needs_compiler
def test_a_wrong_rung_is_no_figure(tmp_path: Path) -> None:
    bad = GEMM.text(GEMM.rungs[1]).replace("k < K", "k < K - 1")
    (tmp_path / "02_coalesced.cu").write_text(bad)
    ladder = replace(GEMM, folder=tmp_path, rungs=GEMM.rungs[1:2])
    with pytest.raises(VerifyError, match=r"rung coalesced of .* with M = 4, N = 4, K = 4 is off by .* times what"):
        list(gpu.climb(ladder, {"M": 4, "N": 4, "K": 4}, compiler_for("CUDASIM")))


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.51])
def test_one_wrong_element_is_no_figure(value: float) -> None:
    rung, lengths = GEMM.rungs[0], {"M": 2, "N": 2, "K": 1}
    given = (np.full((2, 1), 0.5, np.float32), np.ones((1, 2), np.float32))
    right = np.full(4, 0.5, np.float32)
    assert gpu.checked(GEMM, rung, lengths, given, [right]) == 0
    with pytest.raises(VerifyError):
        gpu.checked(GEMM, rung, lengths, given, [np.array([0.5, 0.5, value, 0.5], np.float32)])


@needs_compiler
def test_a_rung_that_does_not_compile_is_left_out_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "02_coalesced.cu").write_text(GEMM.text(GEMM.rungs[1]).replace("row * N + column", "row * N + colum"))
    (figure,) = gpu.climb(replace(GEMM, folder=tmp_path, rungs=GEMM.rungs[1:2]), GEMM.lengths, compiler_for("CUDASIM"))
    assert "coalesced.cu:14:" in figure.left_out and "colum" in figure.left_out


@needs_compiler
def test_a_race_is_said() -> None:
    text = GEMM.text(GEMM.rungs[2])
    source = replace(GEMM.source(GEMM.rungs[2], GEMM.lengths), text="static const int M = 64, N = 64, K = 64;" + text)
    source = replace(source, text=source.text.replace("    __syncthreads();\n  }", "  }"))
    device = CudaSimDevice("shuffled")
    made = Runnable(device, device.load(simulated.compile_source(source, TARGET)), GEMM.given(GEMM.rungs[2], GEMM.lengths))
    with pytest.raises(DeviceError, match="race"):
        made.run()


def test_what_a_gpu_has_not_is_left_out() -> None:
    hopper = replace(GEMM.rungs[0], oldest=90)
    says_of = {"sm_80": "needs sm_90a; this GPU is sm_80", "sm_120": "needs sm_90a", "sm_90a": "", "sim": ""}
    for arch, says in says_of.items():
        reason = gpu.why_not(GEMM, hopper, GEMM.lengths, Target("CUDA", "cuda", arch, block_threads=256))
        assert reason.startswith(says) and bool(reason) == bool(says)
    assert gpu.why_not(GEMM, GEMM.rungs[0], {"M": 0, "N": 3, "K": 0}, TARGET) == "M and K must be at least 1"
    odd = replace(GEMM.rungs[0], accepts=lambda lengths: "K must be even" if lengths["K"] % 2 else "")
    assert gpu.why_not(GEMM, odd, {"M": 1, "N": 1, "K": 3}, TARGET) == "K must be even"


@needs_compiler
def test_without_nvrtc_a_figure_has_no_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "machine_code", missing)
    ladder = replace(GEMM, rungs=GEMM.rungs[:1])
    (figure,) = gpu.climb(ladder, {"M": 4, "N": 4, "K": 4}, compiler_for("CUDASIM"))
    assert figure.registers is None and figure.counts


# ---- the command ----
@needs_compiler
def test_the_command_prints_counts_and_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = replace(GEMM, rungs=(*GEMM.rungs[:2], GEMM.rungs[5]))
    monkeypatch.setattr(gemm, "LADDER", few)
    page, file = tmp_path / "page.md", tmp_path / "gemm.json"
    page.write_text("a <!-- ladder:gemm on CUDASIM -->old<!-- /ladder:gemm on CUDASIM --> b")
    words = ["--device", "CUDASIM", "--lengths", "M=8, K=20", "--size", "15", "--json", str(file), "--docs", str(page)]
    assert cli.main(["ladder", "gemm", *words]) == 0
    out = capsys.readouterr().out
    assert "M = 8, N = 15, K = 20, on CUDASIM" in out and "replaced ladder:gemm on CUDASIM" in out
    record = json.loads(file.read_text())
    own = ["picograd"]  # one dtype, one row
    assert [figure["name"] for figure in record["figures"]] == [*(rung.name for rung in few.rungs), *own]
    assert record["figures"][-1]["counts"]["multiply_adds"] > 0
    assert record["lengths"] == {"M": 8, "N": 15, "K": 20} and record["flops"] == 2 * 8 * 15 * 20
    first = record["figures"][0]
    assert first["counts"]["multiply_adds"] == 8 * 15 * 20 and first["error"] <= 1
    assert record["figures"][2]["left_out"] == "N and K must be multiples of 4"
    text = page.read_text()
    assert "| [naive](../picograd_lab/ladder/gemm/01_naive.cu) | a thread" in text
    assert "| [vectors](../picograd_lab/ladder/gemm/06_vectors.cu) | left out: N and K must be multiples of 4 |" in text
    assert "| picograd | the compiler's own kernels |" in text


@needs_compiler
def test_the_command_climbs_the_rungs_that_are_named(tmp_path: Path) -> None:
    file = tmp_path / "gemm.json"
    words = ["--device", "CUDASIM", "--size", "4", "--json", str(file)]
    assert cli.main(["ladder", "gemm", *words, "--rungs", " naive, mma"]) == 0
    assert [figure["name"] for figure in json.loads(file.read_text())["figures"]] == ["naive", "mma"]
    assert cli.main(["ladder", "gemm", *words, "--rungs", "picograd"]) == 0
    assert [figure["name"] for figure in json.loads(file.read_text())["figures"]] == ["picograd", "picograd, bfloat16"]


@pytest.mark.parametrize("rung", GEMM.rungs, ids=lambda rung: rung.name)
def test_the_command_shows_a_file_though_nothing_can_run_it(
    rung: Rung, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "compiler_for", None)
    assert cli.main(["ladder", "gemm", "--device", "CUDASIM", "--show", rung.name]) == 0
    assert capsys.readouterr().out == GEMM.text(rung)


@needs_compiler
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lengths", "Q=3"], "ArgumentError: ladder: lengths are M=256, N=256, K=256, say; 'Q=3' is not one.\n"),
        (["--lengths", "M=-1"], "ArgumentError: ladder: lengths are M=256, N=256, K=256, say; 'M=-1' is not one.\n"),
        (["--show", "simd"], "ArgumentError: ladder: there is no rung 'simd'; the rungs are naive, coalesced, "),
        (["--size", "0"], "ArgumentError: ladder: size must be at least 1, got 0.\n"),
        (["--docs", "no_page.md"], "DataError: ladder: no_page.md: there is no such page.\n"),
    ],
)
def test_what_cannot_be_climbed_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ladder", "gemm", "--device", "CUDASIM", *words]) == 1
    assert capsys.readouterr().err.startswith(said)
