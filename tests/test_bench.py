"""The benchmark's own judgement: what it accepts, what it rejects, what it writes. Times nothing, imports no peer."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import growth  # noqa: E402
from bench.driver import ROOT, Worker, WorkerError, without_paths  # noqa: E402
from bench.grids import Figures, all_grids, step_grids  # noqa: E402
from bench.kernels import KernelTimes  # noqa: E402
from bench.peers import VARIANTS, has, load  # noqa: E402
from bench.plots import draw, lines_of, write_svg  # noqa: E402
from bench.reference import NUM_LOSSES, losses, make_judge, sampled_places  # noqa: E402
from bench.report import read_json, update_docs, write_json  # noqa: E402
from bench.rounds import Measured  # noqa: E402
from bench.runner import make_runner  # noqa: E402
from bench.startup import Startup, measure_depths  # noqa: E402
from bench.survey import LARGE, enlarged  # noqa: E402
from bench.survey_rows import ROWS  # noqa: E402
from bench.workloads import WORKLOADS, Forward, Training, operands, select  # noqa: E402


def test_launches_and_bytes_of_a_step_on_a_gpu_are_counted() -> None:
    """A step of two layers of GPT-2, in a process of its own without a GPU, has no more launches than before."""
    command = [sys.executable, "-W", "error", "-m", "bench.gpu_counts", "--small", "--top", "3"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    launches, _, nbytes, unit = said[1].split()
    assert 60 < int(launches) <= 78 and float(nbytes) > 0 and unit == "GB"
    assert len(said) == 5 and " of matmul_503_32_0: " in "\n".join(said)


@pytest.mark.parametrize("name", ["mlp_2_16", "mlp_300", "names"])
def test_losses_rounded_to_float32_are_right_and_one_off_by_a_thousandth_is_not(name: str) -> None:
    workload = WORKLOADS[name]
    assert isinstance(workload, Training)
    expected = losses(workload)
    judge = make_judge(workload)
    assert judge([float(np.float32(loss)) for loss in expected]).is_right
    assert not judge([*expected[:-1], expected[-1] * 1.001]).is_right
    assert not judge([float("nan")] * NUM_LOSSES).is_right


def test_losses_fall_when_the_same_batch_is_repeated() -> None:
    workload = Training("repeated", "mlp", (4, 8, 3), "tanh", "cross_entropy", 16, 0.1, num_batches=1)
    found = losses(workload)
    assert all(later < earlier for earlier, later in zip(found, found[1:]))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_float32_matmul_is_right_and_a_bfloat16_like_one_is_not(layout: str) -> None:
    workload = WORKLOADS[f"matmul_256_{layout}"]
    assert isinstance(workload, Forward)
    lhs, rhs = operands(workload, 0)
    coarse = [(stored.view(np.uint32) & 0xFFFF0000).view(np.float32) for stored in (lhs, rhs)]
    judge, places = make_judge(workload), sampled_places(workload)
    assert judge(_product(layout, lhs, rhs)[places].tolist()).is_right
    assert not judge(_product(layout, *coarse)[places].tolist()).is_right


def _product(layout: str, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    return (lhs.T if layout[0] == "T" else lhs) @ (rhs.T if layout[1] == "T" else rhs)


def test_unknown_selection_names_the_groups() -> None:
    with pytest.raises(ValueError, match="--only: 'diffusion' is no workload or group; groups: depth, elementwise"):
        select(["diffusion"])


def test_messages_keep_no_absolute_path() -> None:
    assert without_paths("ImportError: /opt/x/lib/libfoo.so: bad") == "ImportError: libfoo.so: bad"
    assert without_paths("--json bench/results/a.json --to=/opt/x/b.json") == "--json bench/results/a.json --to=b.json"


def test_a_worker_whose_time_was_over_says_so_when_it_is_asked_again() -> None:
    """And the run goes on: before, the pipe that was closed ended it."""
    worker = Worker("picograd", 1)
    worker.close()
    with pytest.raises(WorkerError, match="the process was ended"):
        worker.ask("drop")


def test_tables_replace_only_what_stands_between_their_markers(tmp_path: Path) -> None:
    steps = [Measured("names", "torch", [2e-4, 1e-4, 3e-4], 100, 0.1, 0.5, "tight")]
    assert step_grids(steps)["training"].rows[0][:2] == ["names", "200 us 1.00x (100 us..300 us)"]
    result, page = tmp_path / "r.json", tmp_path / "page.md"
    machine = {"processor": "p", "cores": 2, "memory_nbytes": 2**30, "system": "s", "python": "3", "load_average": 0.0}
    head = {"command": "c", "commit": "0" * 40, "is_modified": False, "date": "d", "wall_s": 1.0, "machine": machine}
    settings = {"num_threads": 2, "rounds": 7}
    rows = [vars(measured) for measured in steps]
    write_json({**head, "versions": {}, "settings": settings, "steps": rows, "startup": []}, result)
    page.write_text("before\n<!-- bench:training -->\nold\n<!-- /bench:training -->\nafter\n")
    assert update_docs(result, page, ["matmul"]) == [] and "old" in page.read_text()
    assert update_docs(result, page) == ["training"]
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text and "200 us" in text
    assert "*p, 2 cores; commit 000000000000, d; *" in text  # what the table was measured on
    assert read_json(result)[1] == Figures(steps)  # a run from before there were kernels in it


# ---- the headline ----


@pytest.mark.req("B4")
@pytest.mark.parametrize("variant", ["lists", "numpy"])
def test_lists_and_numpy_have_the_losses_of_float64(variant: str) -> None:
    workload = WORKLOADS["headline_21"]
    assert isinstance(workload, Training) and workload.sizes == (3, 4, 1)
    peer = load(variant)
    runner = make_runner(peer, workload, variant)
    verdict = make_judge(workload)(runner.values())
    assert verdict.is_right, verdict


@pytest.mark.req("B4")
def test_perceptrons_of_21_to_ten_million_parameters_run_in_everything() -> None:
    names = [workload.name for workload in select(["headline"])]
    assert names[0] == "headline_21" and "headline_180901" in names and names[-1] == "headline_9997156"
    everything = {"picograd", "torch", "torch_compile", "jax", "picograd_cuda", "torch_cuda", "numpy", "lists"}
    assert all(everything <= {variant for variant in VARIANTS if has(WORKLOADS[name], variant)} for name in names)
    assert not has(WORKLOADS["names"], "lists")


@pytest.mark.req("B4")
def test_a_picture_has_a_line_for_each_variant_that_ran(tmp_path: Path) -> None:
    steps = [_measured("headline_21", "picograd", 1e-5), _measured("headline_21", "lists", 1e-3)]
    steps += [Measured("headline_231", "lists", problem="left out: slow"), _measured("headline_231", "picograd", 2e-5)]
    assert lines_of([_measured("names", "torch", 1.0), *steps]) == {
        "picograd": [(21, 1e-5), (231, 2e-5)], "lists": [(21, 1e-3)],
    }  # fmt: skip
    paths = [tmp_path / name for name in ("a.svg", "b.svg")]
    for path in paths:
        write_svg(draw(steps, "a processor"), path)
    text = paths[0].read_text()
    assert all(f">{word}<" in text for word in ("picograd, jit", "Python's lists", "parameters", "a processor"))
    assert text == paths[1].read_text()
    with pytest.raises(ValueError, match="no workload of the group 'headline'"):
        draw([], "")


# ---- tables ----


def _measured(workload: str, variant: str, time_s: float) -> Measured:
    return Measured(workload, variant, [time_s], 1, 0.1, 0.5, "tight")


def test_overhead_table_ends_with_what_one_more_kernel_and_argument_cost() -> None:
    times = {"chain_1": 5e-6, "chain_1000": 1.004e-3, "sum_10": 6e-6, "sum_100": 1.5e-5}
    steps = [_measured(name, "picograd", time_s) for name, time_s in times.items()]
    rows = step_grids([*steps, _measured("chain_1", "jax", 1e-5)])["overhead"].rows
    assert rows[-2:] == [["one more kernel", "1 us", "-", ""], ["one more argument", "0.1 us", "-", ""]]


def test_language_models_are_shown_in_tokens_a_second() -> None:
    grids = step_grids([_measured("nanogpt", "picograd", 0.768), _measured("decode_32", "picograd", 0.05)])
    assert [grids[name].rows[0][-1] for name in ("language", "generation")] == ["1,000 tokens/s", "20 tokens/s"]


def test_a_variant_that_was_left_out_says_so_in_every_table() -> None:
    steps = [_measured("lstm", "torch", 1.0), Measured("lstm", "tinygrad", problem="left out: it unrolls")]
    figures = {"cold": {"import_s": 1.0, "first_s": 2.0, "kernels": 7, "binaries": 5}}
    warm = [{"import_s": 0.5, "first_s": 0.5, "start_nbytes": 0, "resident_nbytes": 2**20}]
    deep = [Startup("gpt_1", "picograd", **figures, warm=warm), Startup("gpt_12", "torch", problem="left out: slow")]
    grids = all_grids(Figures([*steps, _measured("mlp_300", "tinygrad", 1.0)], deep, [KernelTimes("a", "small", [0.1])]))
    assert "startup" not in grids and grids["kernels"].rows[-1][:4] == ["all small", "", "", "100 ms"]
    assert grids["depth"].rows[0] == ["picograd", "1", "3 s", "1 s", "1 MiB", "7", "5"]
    assert grids["depth"].rows[1][:3] == ["torch", "12", "left out: slow"]
    assert step_grids([*steps, _measured("nanogpt", "tinygrad", 1.0)])["language"].rows[0][2] == "left out"


def test_each_variant_shows_only_what_is_its_own() -> None:
    def of(name: str) -> list[str]:
        return [variant for variant in VARIANTS if has(WORKLOADS[name], variant)]

    loops = {"picograd_loop", "jax_scan"}
    assert loops <= set(of("nanogpt")) and loops <= set(of("chain_10")) and not loops & set(of("gelu_16m"))
    assert "jax_scan" in of("decode_32") and not loops & set(of("prefill_256"))
    assert "torch_compile" not in of("decode_32") and "torch_compile" not in of("chain_10")
    assert of("gpt_12") == ["picograd", "torch", "torch_compile", "jax", "tinygrad", "picograd_layers", "jax_layers"]


def test_a_variant_too_slow_at_one_depth_is_left_out_of_deeper_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(workload: str, variants: list[str], num_warm: int, num_threads: int) -> list[Startup]:
        took = {"jax": 5.0, "torch_compile": 50.0}
        return [Startup(workload, variant, {"import_s": 0.0, "first_s": took[variant]}) for variant in variants]

    monkeypatch.setattr("bench.startup.measure", measure)
    found = {(s.workload, s.variant): s.problem for s in measure_depths(["gpt_1", "gpt_12"], ["jax", "torch_compile"], 2)}
    assert found.pop(("gpt_12", "torch_compile")) == "left out: gpt_1 took 50 s"
    assert set(found.values()) == {""} and len(found) == 3


def test_cost_against_size_names_every_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["growth", "--alone", "--sizes", "20", "200"])
    growth.main()
    printed = capsys.readouterr().out
    assert all(name in printed for name in growth.CALLS) and "picograd 200" in printed


# ---- the survey of all operations ----
def test_rows_of_the_survey_name_their_operands_and_use_them() -> None:
    rows = [line for line in ROWS.strip().splitlines() if not line.startswith("#")]
    assert len(rows) > 300 and len(set(rows)) == len(rows)
    for row in rows:
        text, _, given = row.partition(";")
        names = {node.id for node in ast.walk(ast.parse(text.removeprefix("d ").strip())) if isinstance(node, ast.Name)}
        operands = [part.partition("=")[0].strip() for part in given.split(",")]
        assert set(operands) <= names, row
        assert names - set(operands) <= {"L", "F", "P", "C", "p", "int", "float"}, row


def test_large_operands_of_the_survey_fit_each_other_as_the_small_ones_do() -> None:
    x, y, row, one = enlarged([np.ones((4, 5)), np.ones((4, 1)), np.arange(5), np.array(2.0)])
    assert x.shape[0] == y.shape[0] and x.shape[1] == row.shape[0] and y.shape[1] == 1 and one.shape == ()
    assert LARGE // 2 < x.size <= LARGE and row[5] == 0
