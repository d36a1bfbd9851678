"""Callbacks of a training: the bar, the log, evaluations, checkpoints."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import AnomalyError, ArgumentError, DataError, FileError
from picograd_programs.train import callbacks, peaks
from picograd_programs.train.callbacks import Checkpoints, Every, Log, Progress, TensorBoard, num_items, rate_text
from picograd_programs.train.curve import curve
from picograd_programs.train.peaks import peak_flops
from picograd_programs.train.trainer import Trainer
from tests.train.test_trainer import rows, same, trainer


def progress(terminal: bool, steps: int = 100, first: int = 0, width: int = 160) -> str:
    text = io.StringIO()
    ours = trainer()
    ours.done = first
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    ours.fit(rows, steps, [Progress("moons", "points", console=console)])
    return text.getvalue()


# ---- the bar ----
def test_without_a_terminal_some_lines_are_printed() -> None:
    *lines, last = progress(terminal=False).splitlines()
    assert last == "the peak of cpu is unknown, so FLOP/s are shown instead of MFU.", "to a user of the library, too"
    assert [line.split("  ")[1] for line in lines] == ["20/100", "40/100", "60/100", "80/100", "100/100"]
    assert all(line.startswith("moons  ") and " points/s  " in line and "FLOP/s" in line for line in lines[1:])
    assert all(re.search(r"B peak  .*  ETA \d+:\d\d:\d\d$", line) for line in lines[1:-1]) and "ETA" not in lines[-1]
    assert progress(terminal=False, first=90).startswith("moons  100/100  loss ")


@pytest.mark.parametrize("width", [80, 160])
def test_on_a_terminal_a_bar_figures_and_a_curve_are_drawn(width: int) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", progress(terminal=True, width=width))
    assert re.search(r"moons .* 100/100 ETA 0:00:00\s*\nloss .* points/s  .*B peak  .*FLOP/s", text)
    assert any(0x2800 < ord(letter) < 0x2900 for letter in text)


def test_rows_or_elements_are_counted() -> None:
    batch = [{"x": Tensor.zeros(3, 4)}, Tensor.zeros(2)]
    assert num_items(batch, "row") == 3 and num_items(batch, "element") == 12 and num_items(Tensor(1.0), "row") == 1
    with pytest.raises(ArgumentError, match='per must be "row" or "element"'):
        Progress(per="token")


def test_rates_have_units() -> None:
    assert [rate_text(rate) for rate in (12.0, 5e3, 2.5e9, 1.5e12)] == [
        "0.0 KFLOP/s", "5.0 KFLOP/s", "2.5 GFLOP/s", "1.5 TFLOP/s",
    ]  # fmt: skip


def test_peaks_are_known_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peak_flops("cpu", None) is peak_flops(None, None) is None
    monkeypatch.setattr(peaks, "get_device_name", lambda device=None: "NVIDIA H100 80GB HBM3")
    assert peak_flops("cuda:0", pg.bfloat16) == 989e12 and peak_flops("cuda:0", None) == 494e12
    monkeypatch.setattr(peaks, "get_device_name", lambda device=None: "something new")
    assert peak_flops("cuda:0", None) is None


def test_a_curve_falls_from_its_greatest_to_its_least_value() -> None:
    lines = curve([3.0, float("nan"), 2.0, 1.0], 2, 2).splitlines()
    assert lines[0].startswith("3.000 ") and lines[1].startswith("1.000 ")
    assert curve([], 2, 2) == "" and len(curve(list(np.linspace(1, 0, 999)), 3, 20).splitlines()[0]) == 6 + 20


# ---- figures ----
def test_the_log_has_a_line_for_each_reading_and_each_evaluation(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "log.jsonl"
    trainer().fit(rows, 40, [Log(path), Every(30, lambda model: {"held out": 0.5})])
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["step"], sorted(line)) for line in lines] == [
        (20, ["loss", "seconds", "step"]),
        (30, ["held out", "seconds", "step"]),
        (40, ["held out", "seconds", "step"]),
        (40, ["loss", "seconds", "step"]),
    ]


def test_samples_are_lines_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    trainer().fit(rows, 4, [Every(2, lambda model: "two\nlines"), Log(path)])
    assert [json.loads(line).get("text") for line in path.read_text().splitlines()] == ["two\nlines"] * 2 + [None]
    assert capsys.readouterr().err == "after step 2:\ntwo\nlines\nafter step 4:\ntwo\nlines\n"


def test_a_resumed_run_takes_lines_away_that_it_writes_again(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    trainer().fit(rows, 60, [Log(path)])
    ours = trainer()
    ours.done = 30
    ours.fit(rows, 80, [Log(path)])
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [20, 40, 60, 80]
    path.write_text("no log\n")
    with pytest.raises(DataError, match="is not a log of a training"):
        ours.fit(rows, 90, [Log(path)])
    assert path.read_text() == "no log\n"


@pytest.mark.parametrize(
    ("damaged", "num", "kept"),
    [
        (lambda data: data[:-9], 1, [20, 60]),
        (lambda data: data[:5], 1, [60]),
        (lambda data: data[:1], 1, [60]),
        (lambda data: data + b"\0" * 40, 1, [20, 40, 60]),
        (lambda data: b"\xff" + data + b"[1]\n{}\n", 3, [40, 60]),
    ],
)
def test_damaged_lines_of_the_log_are_dropped_and_said(
    damaged: Callable[[bytes], bytes], num: int, kept: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    trainer().fit(rows, 40, [Log(path)])
    path.write_bytes(damaged(path.read_bytes()))
    ours = trainer()
    ours.done = 40
    ours.fit(rows, 60, [Log(path)])
    assert f"{path}: {num} of its lines cannot be read and are dropped." in capsys.readouterr().err
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == kept


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of a file's length")
def test_a_full_disk_costs_lines_of_the_log_and_not_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import resource

    path, limits = tmp_path / "log.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(model: Any) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9, limits[1]))

    try:
        assert trainer().fit(rows, 80, [Log(path), Every(30, fill)]) == 80
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err.count("The training continues without these figures.") == 1
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [20]


def test_a_run_that_is_done_is_not_evaluated_again(tmp_path: Path) -> None:
    asked: list[int] = []
    ours = trainer()
    for steps in (30, 30, 40):
        ours.fit(rows, steps, [Every(30, lambda model: asked.append(ours.done))])
    assert asked == [30, 40]


def test_texts_of_every_are_printed_and_a_number_below_1_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    trainer().fit(rows, 4, [Every(2, lambda model: f"a sample in {'training' if model.training else 'evaluation'}")])
    said = capsys.readouterr().err.splitlines()
    assert said == [f"after step {step}: a sample in evaluation" for step in (2, 4)]
    with pytest.raises(ArgumentError, match="steps must be at least 1, got 0"):
        Every(0, lambda model: None)


def test_tensorboard_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("tensorboard", "tensorboard.compat", "tensorboard.compat.proto", "tensorboard.compat.proto.event_pb2"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArgumentError) as caught:
        TensorBoard(tmp_path)
    assert caught.value.hint == "pip install tensorboard"


def test_tensorboard_has_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is no dependency")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):  # an earlier one is moved, and no part of this one
        checkpoints = Checkpoints(tmp_path, others=("events.out.tfevents.*",))
        trainer().fit(rows, 40, [checkpoints, TensorBoard(tmp_path)])
    assert len([*tmp_path.glob("events.*")]) == 1 == len([*tmp_path.glob("earlier-1/events.*")])
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [event.step for event in events.Scalars("loss")] == [20, 40]


# ---- checkpoints ----
def test_the_last_checkpoints_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new", every=10, keep=2, facts={"seed": 3})
    trainer().fit(rows, 45, [checkpoints])
    assert [path.name for path in checkpoints.paths()] == ["step-00000040.safetensors", "step-00000045.safetensors"]
    assert pg.load(checkpoints.paths()[-1])["facts"] == {"seed": 3}


def test_earlier_trainings_are_kept_and_one_that_goes_on_from_step_0_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path, every=10, lowest="held-out", others=["*.jsonl"])
    others = [losses_at(dict.fromkeys(range(10, 99, 10), 1.0)), checkpoints, Log(tmp_path / "log.jsonl")]
    (tmp_path / "mine.txt").write_text("stays")
    before = []
    for steps in (20, 5, 30):
        trainer().fit(rows, steps, others)
        before.append({path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()})
    names = ["step-00000000.safetensors", "step-00000005.safetensors"]
    assert sorted(before[1]) == ["best.safetensors", "log.jsonl", "mine.txt", *names]
    for number in (1, 2):
        kept = {path.name: path.read_bytes() for path in (tmp_path / f"earlier-{number}").iterdir()}
        assert kept == {name: data for name, data in before[number - 1].items() if name != "mine.txt"}
    assert capsys.readouterr().err.count(f"{tmp_path}: the earlier training there is now in {tmp_path}/earlier-") == 2
    ours = trainer()
    fresh = Checkpoints(tmp_path / "fresh")
    trainer().fit(rows, 0, [fresh])
    assert fresh.restore(ours) and ours.done == 0
    ours.fit(rows, 5, [fresh])
    assert fresh.paths() == sorted(fresh.folder.iterdir()) and len(fresh.paths()) == 2
    trainer().fit(rows, 5, [fresh])
    assert (fresh.folder / "earlier-1").is_dir()


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write in every folder")
def test_a_folder_that_cannot_be_changed_is_named(tmp_path: Path) -> None:
    trainer().fit(rows, 5, [Checkpoints(tmp_path)])
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(FileError, match="the earlier training there cannot be moved: Permission denied"):
            trainer().fit(rows, 5, [Checkpoints(tmp_path)])
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("fault", ["truncated", "flipped", "empty"])
def test_of_a_broken_checkpoint_the_one_before_is_used_and_said(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unbroken, ours, again = (trainer(dropout=0.2) for _ in range(3))
    unbroken.fit(rows, 30, [])
    checkpoints = Checkpoints(tmp_path, every=10)
    ours.fit(rows, 25, [checkpoints])
    newest = checkpoints.paths()[-1]
    data = bytearray(newest.read_bytes())
    data[-3] ^= 4
    newest.write_bytes({"truncated": bytes(data[:-40]), "flipped": bytes(data), "empty": b""}[fault])
    assert checkpoints.restore(again) and again.done == 20
    said = capsys.readouterr().err
    assert str(newest) in said and said.endswith("The checkpoint before it is used.\n")
    again.fit(rows, 30, [checkpoints])
    assert same(unbroken, again)


def test_a_full_disk_costs_a_checkpoint_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = callbacks.save

    def full(state: Any, path: Path) -> None:
        if "00000020" in path.name:
            raise FileError(f"save: {path}: cannot be written: No space left on device.")
        whole(state, path)

    monkeypatch.setattr(callbacks, "save", full)
    checkpoints = Checkpoints(tmp_path, every=10)
    assert trainer().fit(rows, 30, [checkpoints]) == 30
    assert "No space left on device. The training goes on." in capsys.readouterr().err
    assert [path.name[5:13] for path in checkpoints.paths()] == ["00000000", "00000010", "00000030"]


def test_the_oldest_checkpoints_make_space_on_a_full_disk_down_to_one_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, room = callbacks.save, 3

    def full(state: Any, path: Path) -> None:
        if len([*tmp_path.glob("step-*")]) >= room:
            raise FileError.of(OSError(errno.ENOSPC, "No space left on device"), f"save: {path}: cannot be written")
        whole(state, path)

    monkeypatch.setattr(callbacks, "save", full)
    checkpoints = Checkpoints(tmp_path, every=10, keep=9)
    assert trainer().fit(rows, 50, [checkpoints]) == 50
    said = capsys.readouterr().err
    assert "step-00000030.safetensors: cannot be written: No space left on device." in said
    assert "step-00000000.safetensors is removed to free space." in said and "goes on" not in said
    assert [path.name[5:13] for path in checkpoints.paths()] == ["00000030", "00000040", "00000050"]

    newest, again = checkpoints.paths()[-1], trainer()
    newest.write_bytes(newest.read_bytes()[:-40])
    room = 1
    checkpoints.restore(again)
    with pytest.raises(FileError, match="No space left on device"):
        checkpoints.write(again)
    assert [path.name[5:13] for path in checkpoints.paths()] == ["00000040"], "the one that is whole"


def losses_at(steps: Mapping[int, float]) -> Every:
    """An evaluation every ten steps whose figures are given."""
    values = iter(steps.values())
    return Every(10, lambda model: {"held-out": next(values)})


def test_the_state_of_the_lowest_figure_is_kept_apart_and_known_after_resuming(tmp_path: Path) -> None:
    best, checkpoints = tmp_path / "best.safetensors", Checkpoints(tmp_path, every=10, lowest="held-out")
    ours = trainer()
    ours.fit(rows, 30, [losses_at({10: 2.0, 20: 1.0, 30: 1.5}), checkpoints])
    assert (checkpoints.least, checkpoints.least_at, pg.load(best)["done"]) == (1.0, 20, 20)
    again, resumed = trainer(), Checkpoints(tmp_path, every=10, lowest="held-out")
    assert resumed.restore(again) and (resumed.least, resumed.least_at) == (1.0, 20)
    again.fit(rows, 50, [losses_at({40: 1.25, 50: 0.5}), resumed])
    assert (resumed.least_at, pg.load(best)["done"]) == (50, 50)
    trainer().fit(rows, 5, [checkpoints])  # a training from the start has no evaluation yet
    assert not best.exists() and checkpoints.least_at == 0 and (tmp_path / "earlier-1" / best.name).exists()


def test_a_lowest_figure_that_could_not_be_kept_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = callbacks.save

    def full(state: Any, path: Path) -> None:
        if path.name == "best.safetensors" and state["done"] == 20:
            raise FileError(f"save: {path}: cannot be written: No space left on device.")
        whole(state, path)

    monkeypatch.setattr(callbacks, "save", full)
    checkpoints = Checkpoints(tmp_path, lowest="held-out")
    trainer().fit(rows, 20, [losses_at({10: 2.0, 20: 1.0}), checkpoints])
    assert "No space left on device. The training goes on." in capsys.readouterr().err
    assert (checkpoints.least, pg.load(tmp_path / "best.safetensors")["least"]) == (2.0, 2.0)


@pytest.mark.parametrize(
    ("every", "said"),
    [(1, "a weight after step 1 is not finite. It comes"), (5, "the loss of step 2 is nan. It comes from step 1")],
)
def test_weights_that_are_not_finite_are_not_kept(every: int, said: str, tmp_path: Path) -> None:
    pg.manual_seed(0)
    model = nn.Linear(1, 1)
    ours = Trainer(model, pg.optim.SGD(model.parameters(), lr=1.0), lambda model, x: (model(x) * 0.0).sqrt().sum())
    checkpoints = Checkpoints(tmp_path, every=every)
    with pytest.raises(AnomalyError, match=said):
        ours.fit([Tensor([[1.0]])], 10, [checkpoints])
    assert [path.name[5:13] for path in checkpoints.paths()] == ["00000000"]


def test_a_state_of_another_model_is_refused_and_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, every=10)
    trainer().fit(rows, 5, [checkpoints])
    before = checkpoints.paths()[-1].read_bytes()
    model = nn.Linear(2, 2)
    other = Trainer(model, pg.optim.SGD(model.parameters(), lr=0.1), lambda model, x, y: model(x).sum())
    with pytest.raises(pg.PicogradError):
        checkpoints.restore(other)
    assert checkpoints.paths()[-1].read_bytes() == before


@pytest.mark.parametrize("wrong", [{"every": 0}, {"keep": 0}])
def test_numbers_of_checkpoints_are_checked(wrong: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="every and keep must be at least 1"):
        Checkpoints(tmp_path, **wrong)


PROGRAM = """
    import sys
    from picograd_programs.train.callbacks import Checkpoints
    from tests.train.test_trainer import rows, trainer

    ours, checkpoints = trainer(dropout=0.3, ema=0.9), Checkpoints(sys.argv[1], every=1, keep=2)
    checkpoints.restore(ours)
    print(ours.done, flush=True)
    ours.fit(rows, 40, [checkpoints])
"""


@pytest.mark.variants(every=12, first=2)
@pytest.mark.parametrize("seed", range(12))
def test_a_run_that_is_killed_again_and_again_is_the_unbroken_one(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    for _ in range(2):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline().strip().isdecimal()
            time.sleep(rng.uniform(0.0, 0.8))
            process.send_signal(signal.SIGKILL)
    subprocess.run(command, env=environment, check=True, capture_output=True)
    unbroken, ours = trainer(dropout=0.3, ema=0.9), trainer(dropout=0.3, ema=0.9)
    unbroken.fit(rows, 40, [])
    assert Checkpoints(tmp_path).restore(ours) and ours.done == 40
    assert same(unbroken, ours)


def test_one_training_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    seen: list[str] = []

    def train_there_too(model: Any) -> None:
        with pytest.raises(DataError) as caught:
            trainer().fit(rows, 2, [Checkpoints(tmp_path)])
        seen.append(caught.value.fact)

    trainer().fit(rows, 4, [Every(2, train_there_too), Checkpoints(tmp_path)])
    assert seen == [f"Checkpoints: {tmp_path}: another training is writing there."] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000000.safetensors", "step-00000004.safetensors"]
    trainer().fit(rows, 2, [Checkpoints(tmp_path)])
