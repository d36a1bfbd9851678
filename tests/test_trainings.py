"""The page of trainings is made of what runs wrote."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bench import beside, kept_networks, trainings
from picograd_programs import cli
from tests.little import put_in_place

KEPT = trainings.PAGE.with_suffix("")


def test_a_run_becomes_an_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "some-bigrams"
    with pytest.raises(SystemExit, match="has no result.json: `picograd train` writes it at the end"):
        trainings.keep(tmp_path, tmp_path / "kept")
    assert cli.main(["train", "bigram", "--steps", "40", "--eval-every", "20", "--out", str(out)]) == 0
    result = capsys.readouterr().out
    trainings.keep(out, tmp_path / "kept")
    trainings.keep(out, tmp_path / "kept")  # again: the entry is replaced
    text = trainings.page(tmp_path / "kept")
    loss = next(line for line in result.splitlines() if line.startswith("loss by counting: 2.4545768"))
    assert text.count(f"    {loss}\n") == 1 and f"| [some-bigrams](#some-bigrams) | {loss} |" in text
    assert "    picograd train bigram --steps 40 --eval-every 20\n" in text and str(tmp_path) not in text
    assert "40 steps in" in text and "![Losses of some-bigrams against steps](models/some-bigrams.svg)" in text
    entry = json.loads((tmp_path / "kept" / "some-bigrams.json").read_text())
    steps, values = entry["curves"]["loss"]
    assert steps == [20, 40] and values[0] > values[1] > 2.45
    assert (tmp_path / "kept" / "some-bigrams.svg").stat().st_size < 40_000


def test_curves_are_thinned_and_only_losses_are_kept() -> None:
    lines: list[dict[str, Any]] = [{"step": n, "seconds": n / 10, "loss": 5.0 - n / 1000, "norm": 1.0} for n in range(1000)]
    lines.append({"step": 1000, "seconds": 100.0, "validation loss": 4.0})
    curves = trainings.curves_of(lines)
    assert [*curves] == ["loss", "validation loss"] and curves["validation loss"] == [[1000], [4.0]]
    assert len(curves["loss"][0]) == len(curves["loss"][1]) == trainings.POINTS_MAX


def test_a_whole_run_is_made_in_pytorch_too_and_its_log_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(monkeypatch, tmp_path)
    out, kept = tmp_path / "few", tmp_path / "kept"
    assert cli.main(["train", "names", "--steps", "50", "--eval-every", "20", "--hidden", "8", "--out", str(out)]) == 0
    result = json.loads((out / "result.json").read_text())
    (out / "result.json").write_text(json.dumps({**result, "changed": ["from step 20 on: lr 1.0 (50.0 before)"]}))
    beside.main(out)
    ours, theirs = (trainings.lines_of(out / name) for name in ("log.jsonl", trainings.BESIDE_FILE))
    assert [line["step"] for line in theirs] == [20, 40, 50] and theirs[2].keys() == {"step", "seconds", "loss", "dev loss"}
    trainings.keep(out, kept)
    entry = json.loads((kept / "few.json").read_text())
    assert 0 < max(entry["in_pytorch"]["apart"].values()) < 1e-5
    found = [json.loads(line) for line in gzip.decompress((kept / "few.jsonl.gz").read_bytes()).splitlines()]
    assert found == [{name: pytest.approx(value, rel=1e-6) for name, value in line.items()} for line in ours]
    text = trainings.page(kept)
    assert "\n\nOn the way, from step 20 on: lr 1.0 (50.0 before).\n\n" in text
    assert "[Its log](models/few.jsonl.gz)." in text and "All 50 steps (dots in the picture): loss " in text
    (axes,) = trainings.drawn(entry["curves"], entry["in_pytorch"]["curves"]).axes
    assert sorted(axes.get_legend_handles_labels()[1]) == ["dev loss", "in PyTorch", "loss"]


def test_the_table_of_networks_is_that_of_the_kept_results() -> None:
    assert kept_networks.PAGE.read_text() == kept_networks.page()
    assert {*kept_networks.kept()} == {program.name for program in cli.PROGRAMS}


def test_the_page_is_that_of_the_kept_runs_and_its_commands_are_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trainings.PAGE.read_text() == trainings.page(KEPT)
    seen: list[Any] = []
    monkeypatch.setattr(cli, "train_program", lambda settings: seen.append(settings) or 0)
    entries = [json.loads(path.read_text()) for path in KEPT.glob("*.json")]
    for entry in entries:
        assert cli.main(entry["command"].split()[1:]) == 0
    assert len(seen) == len(entries) >= 4
