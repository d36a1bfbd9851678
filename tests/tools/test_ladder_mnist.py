"""The ladder of MNIST: all programs have the same losses; planted mistakes are found, clean programs raise no alarm."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from picograd.errors import DataError
from picograd_lab.ladder.mnist import run, rungs
from picograd_lab.ladder.mnist.blame import compared, read_dump, read_problem
from picograd_lab.ladder.mnist.climb import STEPS, Climb, Figure, chosen_rungs, climbed, prepared, trained
from picograd_lab.ladder.mnist.faults import FAULTS, Fault, edited
from picograd_lab.ladder.mnist.rungs import BY_NAME, PROGRAMS, read_report
from picograd_lab.ladder.mnist.table import bits_of, picture, place_of, sentence, step_rows, time_rows
from picograd_programs import cli
from tests.helpers import in_full
from tests.host_compilers import needs_compiler

pytestmark = [pytest.mark.req("F1"), pytest.mark.req("F2")]
RUNGS, MORE_RUNGS = "torch,numpy,c-O0,c-O3,cuda-naive,picograd,jit", "torch,cuda-half,cuda-double,cuda-tf32"
IMAGES, TESTS = 128, 50


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mnist")


@pytest.fixture(scope="module")
def climb(folder: Path) -> Climb:
    """The small network on a few images."""
    return prepared("small", folder, 2, 2, lengths=(IMAGES, TESTS))


@pytest.fixture(scope="module")
def figures(climb: Climb, folder: Path) -> dict[str, Figure]:
    return {figure.rung.name: figure for figure in climbed(climb, chosen_rungs(RUNGS), folder)}


# ---- the rungs agree ----
def test_losses_are_the_gold_standards(figures: dict[str, Figure]) -> None:
    assert list(figures) == RUNGS.split(",")
    check_losses(figures)


@in_full
def test_losses_of_more_rungs_are_the_gold_standards(climb: Climb, folder: Path) -> None:
    check_losses({figure.rung.name: figure for figure in climbed(climb, chosen_rungs(MORE_RUNGS), folder)})


def check_losses(figures: dict[str, Figure]) -> None:
    for figure in figures.values():
        assert figure.is_right, f"{figure.failed}{figure.wrong}"
        assert figure.off <= (1e-6 if figure.rung.unit == 2.0**-24 else 1e-3)  # after two epochs of 16 steps
        assert figure.outcome is not None
        assert len(figure.outcome.steps) == 2
        if not rungs.is_simulated(figure.rung):
            assert len(figure.outcome.epochs) == 2
            assert figure.outcome.epochs[1] < figure.outcome.epochs[0]


def test_a_run_of_a_few_steps_reports_no_accuracy(figures: dict[str, Figure], climb: Climb, folder: Path) -> None:
    few = Climb(climb.path, climb.problem, 0, 2)
    for figure in climbed(few, chosen_rungs("numpy,c-O3,cuda-cublas"), folder):
        assert figure.is_right and figure.outcome is not None
        assert (figure.outcome.accuracy, figure.outcome.epochs) == (None, ())
        assert figure.outcome.steps == pytest.approx(figures["torch"].outcome.steps, abs=1e-6)


def test_c_has_the_same_bits_however_it_is_optimised(figures: dict[str, Figure]) -> None:
    assert bits_of(list(figures.values()))["c-O3"] == "c-O0"


def test_cuda_has_the_bits_of_c_on_the_simulator(climb: Climb, folder: Path) -> None:
    few = Climb(climb.path, climb.problem, 0, 2)
    same = bits_of(list(climbed(few, chosen_rungs("c-O3,cuda-naive"), folder)))
    assert same == {"c-O3": "", "cuda-naive": "" if rungs.has_gpu() else "c-O3"}  # a GPU's exp is its own


def test_products_by_cublas_have_the_losses_of_other_rungs(
    climb: Climb, figures: dict[str, Figure], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the simulator, where a stand-in computes them."""
    monkeypatch.setattr(rungs, "has_gpu", lambda: False)
    rung, gold = BY_NAME["cuda-cublas"], figures["torch"].outcome
    figure, _ = trained(climb, rung, rungs.built(rung, folder), folder, [], climb.epochs)
    assert figure.wrong is None and figure.outcome is not None and gold is not None
    assert len(figure.findings) == 22
    assert figure.outcome.steps == pytest.approx(gold.steps, abs=1e-6)
    assert figure.outcome.epochs == pytest.approx(gold.epochs, abs=1e-6)
    assert figure.outcome.accuracy == gold.accuracy


@pytest.mark.req("F3")
def test_timers_tell_phases_apart(figures: dict[str, Figure]) -> None:
    for name, figure in figures.items():
        assert figure.outcome is not None
        seconds = figure.outcome.seconds
        if rungs.is_simulated(figure.rung):
            continue
        phases = {"load", "copy", "step"} if name == "jit" else {"load", "copy", "forward", "loss", "backward", "update"}
        assert {phase for phase, spent in seconds.items() if spent} == phases
        assert figure.outcome.total == pytest.approx(sum(seconds.values()) - seconds["load"])


def test_the_gold_standards_own_tensors_pass(figures: dict[str, Figure]) -> None:
    """The formulas that kernels are compared with are PyTorch's."""
    findings = figures["torch"].findings
    assert {finding.name for finding in findings} >= {"z1", "dlogits", "dz1", "dw1", "new w1"}
    assert all(finding.is_right for finding in findings)


# ---- planted mistakes ----
# file, edit: the first step, tensor and kernel that deviate, and words of the guess
PLANTED = [
    ("mlp.c", FAULTS["missing-batch-division"]["mlp.c"], 1, "dlogits", "loss_gradient", "division by the batch (8)"),
    ("mlp.c", FAULTS["transposed-layout"]["mlp.c"], 1, "dh", "input_gradient", "reads w2 as (10, 256)"),
    ("mlp.c", FAULTS["stale-buffer"]["mlp.c"], 2, "h", "relu", "still holds the step before's"),
    ("mlp.c", Fault("memcpy(x, images", "if (step == 0) memcpy(x, images"), 2, "x", "memcpy", "still holds"),
    ("mlp.c", Fault("weight_gradient(dw1, x,", "weight_gradient(dw1, images,"), 2, "dw1", "weight_gradient", "before's x"),
    ("mlp.c", Fault("linear(logits, h, w2, b2, ", "linear(logits, h, w2, b1, "), 2, "logits", "linear", ""),
    ("mlp.c", Fault("update(b2, db2, outputs);", ""), 1, "new b2", "update", "all zeros"),
    ("mlp.c", Fault("memset(dw, 0", "if (step == 0) memset(dw, 0"), 2, "dw2", "weight_gradient", "not cleared"),
    ("mlp.c", Fault("dw[k * columns + c] += in", "dw[c * depth + k] += in"), 1, "dw2", "weight_gradient", "as (10, 256)"),
    ("mlp.c", Fault("w[i] -= LEARNING_RATE", "w[i] += LEARNING_RATE"), 1, "new w1", "update", ""),
    ("mlp.c", Fault("h[i] > 0 ? dh[i] : 0", "dh[i]"), 1, "dz1", "relu_gradient", ""),
    ("mlp.c", Fault("sum -= logf", "sum += logf"), 1, "loss", "cross_entropy", "sign"),
    ("mlp_naive.cu", FAULTS["missing-batch-division"]["mlp_naive.cu"], 1, "dlogits", "loss_gradient", "the batch (8)"),
    ("mlp_naive.cu", FAULTS["transposed-layout"]["mlp_naive.cu"], 1, "dh", "input_gradient", "reads w2 as (10, 256)"),
    ("mlp_naive.cu", FAULTS["stale-buffer"]["mlp_naive.cu"], 2, "x", "to_device", "still holds the step before's"),
    ("mlp_fused.cu", FAULTS["stale-buffer"]["mlp_fused.cu"], 2, "x", "to_device", "still holds the step before's"),
    ("mlp_fused.cu", FAULTS["missing-batch-division"]["mlp_fused.cu"], 1, "dlogits", "softmax_loss", "the batch (8)"),
    ("mlp_fused.cu", FAULTS["transposed-layout"]["mlp_fused.cu"], 1, "dz1", "hidden_gradient", "reads w2 as (10, 256)"),
    ("mlp_cublas.cu", FAULTS["stale-buffer"]["mlp_cublas.cu"], 2, "x", "to_device", "still holds the step before's"),
    ("mlp_cublas.cu", FAULTS["missing-batch-division"]["mlp_cublas.cu"], 1, "dlogits", "softmax_loss", "the batch (8)"),
    ("mlp_cublas.cu", FAULTS["transposed-layout"]["mlp_cublas.cu"], 1, "dh", "product", "reads w2 as (10, 256)"),
    ("mlp_numpy.py", FAULTS["missing-batch-division"]["mlp_numpy.py"], 1, "dlogits", "line:dlogits", "the batch (8)"),
    ("mlp_numpy.py", FAULTS["transposed-layout"]["mlp_numpy.py"], 1, "dh", "line:dh", "reads w2 as (10, 256)"),
    ("mlp_numpy.py", FAULTS["stale-buffer"]["mlp_numpy.py"], 2, "h", "line:h", "still holds the step before's"),
]


@pytest.mark.req("F4")
@pytest.mark.variants(every=5)
@pytest.mark.parametrize(("file", "fault", "step", "tensor", "kernel", "words"), PLANTED, ids=lambda value: str(value)[:40])
def test_a_planted_mistake_is_named(
    climb: Climb, tmp_path: Path, file: str, fault: Fault, step: int, tensor: str, kernel: str, words: str
) -> None:
    rung = next(rung for rung in rungs.RUNGS if rung.file == file and rung.name != "c-O0")
    at = edited(rung, fault, tmp_path)
    figure, _ = trained(climb, rung, rungs.built(rung, tmp_path, at.source), tmp_path, [])
    wrong = figure.wrong
    assert wrong is not None
    assert (wrong.step, wrong.name, wrong.kernel) == (step, tensor, kernel)
    assert words in wrong.guess
    text = sentence(rung, wrong, at)
    assert f"step {step}" in text and f"tensor {tensor}" in text and at.after in text


def test_a_second_buffer_that_is_not_filled_holds_the_step_before_last(climb: Climb, folder: Path) -> None:
    few, rung = Climb(climb.path, climb.problem, 0, 3), BY_NAME["numpy"]
    _, steps = trained(few, rung, rungs.built(rung, folder), folder, [])
    steps[2]["x"] = steps[0]["x"]
    wrong = next(finding for finding in compared(climb.problem, steps, rung.unit, []) if not finding.is_right)
    assert (wrong.step, wrong.name) == (3, "x")
    assert wrong.guess == "a stale buffer: it still holds the step before last's values"


def test_no_compiler_is_the_reason_that_no_mistake_is_planted(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(run, "why_not", lambda rung: "needs a C compiler")
    monkeypatch.setattr(run, "prepared", lambda *_: None)
    monkeypatch.setattr(run, "injected", lambda *_: [])
    assert cli.main(["ladder", "mnist", "--inject", "stale-buffer", "--rungs", "c-O3"]) == 1
    said = capsys.readouterr()
    assert said.out == "c-O3 is left out: needs a C compiler\n"
    assert said.err.startswith("ArgumentError: ladder: stale")


def test_a_kernel_is_named_with_its_line() -> None:
    rung = BY_NAME["c-O3"]
    file, _, line = place_of(rung, "relu_gradient").partition(":")
    assert file == "mlp.c"
    assert rung.source.read_text().splitlines()[int(line) - 1].startswith("static void relu_gradient(")
    assert place_of(BY_NAME["torch"], "torch") == "mlp_torch.py"


def test_every_fault_has_its_place_in_each_hand_written_file() -> None:
    by_hand = {rung.file for rung in rungs.RUNGS if rung.is_by_hand}
    for name, places in FAULTS.items():
        assert set(places) == by_hand, name
        for file, fault in places.items():
            assert (PROGRAMS / file).read_text().count(fault.before) == 1


# ---- what is missing, and formats ----
def test_a_rung_without_its_compiler_is_left_out_and_says_so(
    climb: Climb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    (figure,) = climbed(climb, chosen_rungs("c-O3"), tmp_path)
    assert figure.left_out == "ladder: needs a C compiler, and none of cc, gcc, clang is on PATH."
    assert figure.is_right
    assert step_rows([figure])[0][1] == f"left out: {figure.left_out}"
    assert time_rows([figure]) == []


@needs_compiler
def test_products_by_cublas_need_the_library_on_a_gpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the simulator a stand-in multiplies."""
    rung = BY_NAME["cuda-cublas"]
    monkeypatch.setattr(rungs, "has_gpu", lambda: False)
    assert rungs.why_not(rung) == ""
    monkeypatch.setattr(rungs, "has_gpu", lambda: True)
    monkeypatch.setattr(rungs, "cublas_options", tuple)
    assert rungs.why_not(rung) == "nvcc finds no cuBLAS: neither its toolkit nor a package nvidia-cublas has it"


def test_cublas_of_a_package_is_found_where_the_toolkit_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in ("nvidia/cu13/include/cublas_v2.h", "nvidia/cu13/lib/libcublas.so.13"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    (tmp_path / "nvcc").write_text('#!/bin/sh\ncase "$*" in *libcublas.so.13*) exit 0;; *) exit 1;; esac\n')
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(rungs, "find_spec", lambda name: package)
    options = rungs.cublas_options.__wrapped__()
    library = tmp_path / "nvidia" / "cu13" / "lib"
    assert options[1:] == (f"-L{library}", "-l:libcublas.so.13", "-Xlinker", f"-rpath={library}")
    monkeypatch.setattr(rungs, "find_spec", lambda name: None)
    assert rungs.cublas_options.__wrapped__() == ()


def test_a_short_stride_is_refused_as_cublas_does(climb: Climb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rungs, "has_gpu", lambda: False)
    rung = BY_NAME["cuda-cublas"]
    at = edited(rung, Fault("left_is == PLAIN ? depth : rows", "rows"), tmp_path)
    with pytest.raises(DataError, match="cuBLAS: a stride is shorter than a column"):
        trained(climb, rung, rungs.built(rung, tmp_path, at.source), tmp_path, [])


def test_a_file_of_wrong_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "dump.bin"
    path.write_bytes(b"0 z1 linear 2 2\n" + np.zeros(3, np.float32).tobytes())
    with pytest.raises(DataError, match="z1 of step 0 has 3 of 4 elements"):
        read_dump(path)
    path.write_bytes(b"nonsense\n")
    with pytest.raises(DataError, match="expected 'step name kernel rows columns', found b'nonsense"):
        read_dump(path)
    path.write_bytes(b"1 z1 linear 1 1\n" + bytes(4))
    with pytest.raises(DataError, match="step 1 follows step -1"):
        read_dump(path)
    with pytest.raises(DataError, match="rung c printed no line that begins with 'weights'"):
        read_report("c", "test accuracy 90 %\n")


def test_a_program_that_fails_says_so(climb: Climb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "mlp_numpy.py"
    broken.write_text("raise SystemExit('no such thing')")
    monkeypatch.setattr(rungs, "PROGRAMS", tmp_path)
    (figure,) = climbed(climb, chosen_rungs("numpy"), tmp_path)
    assert figure.failed == "ladder: rung numpy ended with status 1:\nno such thing"
    assert not figure.is_right


def test_the_problem_is_what_the_requirement_says(climb: Climb) -> None:
    p = read_problem(climb.path)
    assert (p.inputs, p.hidden, p.outputs, p.batch, len(p.images)) == (784, 256, 10, 8, IMAGES)
    limit = np.sqrt(2 / 784)
    assert 0.99 * limit < np.abs(p.start["w1"]).max() <= limit
    assert not p.start["b1"].any()
    black = np.float32(-0.1307) / np.float32(0.3081)
    assert p.images.min() == pytest.approx(black) and p.images.max() == pytest.approx((1 - 0.1307) / 0.3081)


# ---- the command ----
def test_the_command_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- ladder:mnist small -->\n<!-- /ladder:mnist small -->")
    monkeypatch.setitem(STEPS, "small", 3)
    words = ["--epochs", "0", "--rungs", "numpy,c-O3", "--json", str(tmp_path / "a.json"), "--docs", str(page)]
    assert cli.main(["ladder", "mnist", *words]) == 0
    record = json.loads((tmp_path / "a.json").read_text())
    assert [figure["rung"] for figure in record["figures"]] == ["numpy", "c-O3"]
    steps = [figure["outcome"]["steps"] for figure in record["figures"]]
    assert len(steps[0]) == 3
    assert steps[1] == pytest.approx(steps[0], abs=1e-5)
    assert "replaced ladder:mnist small" in capsys.readouterr().out


def test_the_command_finds_a_planted_mistake(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(STEPS, "small", 2)
    assert cli.main(["ladder", "mnist", "--rungs", "c-O3", "--inject", "transposed-layout"]) == 0
    assert "guess: a transposed layout: it reads w2 as (10, 256), not (256, 10)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rungs", "rust"], "mnist has no rung 'rust'"),
        (["--size", "7"], "mnist comes in sizes small, large, got 7."),
        (["--epochs", "-1"], "epochs must be at least 0, got -1."),
        (["--inject", "typo", "--rungs", "numpy"], "there is no fault 'typo'"),
    ],
)
def test_a_wrong_word_is_refused(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ladder", "mnist", *words]) != 0
    assert message in capsys.readouterr().err


def test_the_other_ladders_have_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ladder", "gemm", "--size", "small"]) != 0
    assert "gemm takes a length" in capsys.readouterr().err


@pytest.mark.req("F3")
def test_times_are_a_table_and_a_picture(climb: Climb, figures: dict[str, Figure]) -> None:
    trained = [name for name, figure in figures.items() if figure.epochs]
    rows = time_rows(list(figures.values()))
    assert [row[0] for row in rows] == trained
    assert rows[trained.index("c-O3")][10].endswith("x c-O0")
    plot = picture(climb, list(figures.values()))
    assert plot is not None and all(name in plot.text() for name in [*trained, "backward"])
    assert picture(climb, []) is None
