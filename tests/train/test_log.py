"""What training says on its way."""

from __future__ import annotations

import io
import json
from pathlib import Path

from rich.console import Console

from picograd_programs.train.loop import TrainingLog


def run_log(terminal: bool, first: int = 0) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120, highlight=False)
    log = TrainingLog("mnist", "images", first, 100, console=console)
    with log:
        for step in range(first + 1, 101):
            log.step_done(step, 256)
            if step % 5 == 0:
                log.show(step, {"loss": 1 / step, "accuracy": 0.5})
    assert log.items_per_second() > 0
    return text.getvalue()


def test_without_a_terminal_ten_lines_are_printed() -> None:
    lines = run_log(terminal=False).splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("mnist  10/100  loss 0.1000  accuracy 0.5000  ")
    assert lines[-1].startswith("mnist  100/100  loss 0.0100  accuracy 0.5000  ")
    assert all(line.endswith(" images/s") for line in lines)


def test_resumed_run_counts_from_where_it_was() -> None:
    assert run_log(terminal=False, first=50).splitlines()[0].startswith("mnist  55/100  ")


def test_lines_come_even_if_figures_come_at_other_steps() -> None:
    text = io.StringIO()
    log = TrainingLog("names", "windows", 0, 1409, console=Console(file=text, width=120))
    for step in range(20, 1409, 20):
        log.show(step, {"loss": 1.0})
    assert len(text.getvalue().splitlines()) == 10


def test_on_a_terminal_a_bar_is_drawn() -> None:
    text = run_log(terminal=True)
    assert "mnist" in text
    assert "100/100" in text
    assert "images/s" in text


def test_rate_is_0_before_two_steps_are_done() -> None:
    log = TrainingLog("mnist", "images", 0, 10)
    assert log.items_per_second() == 0
    log.step_done(1, 256)
    assert log.items_per_second() == 0


def test_figures_go_to_a_file_as_json_lines_to_which_a_resumed_run_adds(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("of an earlier training\n")
    console = Console(file=io.StringIO())
    for first in (0, 40):
        log = TrainingLog("gpt", "characters", first, 100, console=console, file=file)
        for step in (first + 20, first + 40):
            log.step_done(step, 8)
            log.show(step, {"loss": 1 / step, "validation at 20": 0.5})
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["step"] for row in rows] == [20, 40, 60, 80]
    assert rows[0] == {"step": 20, "characters_per_second": 0.0, "loss": 0.05, "validation": 0.5, "validation_step": 20}
