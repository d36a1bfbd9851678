"""The loop all trainings share: when it saves, when it stops, what it says to type next."""

from __future__ import annotations

import io
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from picograd.errors import ArgumentError, DataError
from picograd.tensor.tensor import Tensor
from picograd_programs.train.loop import TrainingLog, check_counts, check_files, check_writable, command_line, run_steps


@dataclass(frozen=True)
class Settings:
    """Settings of a training."""

    epochs: int = 6
    batch: int = 8
    weight_decay: float = 0.01
    seed: int = 0
    resume: Path | None = None


def run(last: int, save_every: int, first: int = 0, stop_at: int | None = None) -> tuple[int, list[int], list[int]]:
    """Runs steps and returns the steps done, the numbers of the steps made, and when it saved."""
    made: list[int] = []
    saved: list[int] = []

    def make_step(number: int) -> dict[str, Tensor]:
        made.append(number)
        if number == stop_at:
            signal.raise_signal(signal.SIGINT)
        return {"loss": Tensor([1.0]).sum()}

    log = TrainingLog("test", "items", first, last, console=Console(file=io.StringIO()))
    return run_steps(log, 8, make_step, saved.append, save_every), made, saved


def test_every_step_is_made_once_and_the_end_is_saved() -> None:
    assert run(last=5, save_every=2) == (5, [0, 1, 2, 3, 4], [2, 4, 5])


def test_end_is_saved_once() -> None:
    assert run(last=4, save_every=2) == (4, [0, 1, 2, 3], [2, 4])


def test_resumed_run_goes_on_where_it_was() -> None:
    assert run(last=5, save_every=10, first=3) == (5, [3, 4], [5])


def test_run_that_is_complete_makes_no_step() -> None:
    assert run(last=5, save_every=10, first=5) == (5, [], [5])


def test_ctrl_c_ends_the_step_then_saves_and_stops() -> None:
    assert run(last=9, save_every=100, stop_at=3) == (4, [0, 1, 2, 3], [4])


def test_command_line_leaves_defaults_out_and_quotes() -> None:
    assert command_line("mnist", Settings()) == "picograd train mnist"
    settings = Settings(seed=3, weight_decay=0.5, resume=Path("my runs/a"))
    assert command_line("mnist", settings) == ("picograd train mnist --weight-decay 0.5 --seed 3 --resume 'my runs/a'")
    assert command_line("mnist", settings, seed=0, resume=Path("b")) == (
        "picograd train mnist --weight-decay 0.5 --resume b"
    )


@pytest.mark.parametrize(
    ("settings", "fact"),
    [
        (Settings(epochs=0), "--epochs: got 0, it must be at least 1."),
        (Settings(batch=-1), "--batch: got -1, it must be 1 to 1,000."),
        (Settings(batch=1001), "--batch: got 1,001, it must be 1 to 1,000."),
    ],
)
def test_counts_out_of_range_are_named(settings: Settings, fact: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        check_counts(settings, batch=1000)
    assert caught.value.fact == fact


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1])
def test_rates_out_of_range_are_named(rate: float) -> None:
    with pytest.raises(ArgumentError) as error:
        check_counts(Settings(weight_decay=rate))
    assert error.value.fact == f"--weight-decay: got {rate}, it must be a finite number, 0 or more."


def test_counts_in_range_and_seed_0_pass() -> None:
    check_counts(Settings(batch=1000), batch=1000)


def test_place_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    check_writable(tmp_path / "runs" / "a")
    assert list((tmp_path / "runs").iterdir()) == []


def test_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        check_writable(tmp_path / "runs" / "a")
    assert caught.value.fact.startswith(f"{tmp_path / 'runs' / 'a'}: cannot be written: ")


def test_place_that_is_a_folder_is_found_before_training(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        check_writable(tmp_path)
    assert error.value.fact == f"{tmp_path}: is a folder."
    assert list(tmp_path.iterdir()) == []


def test_an_earlier_checkpoint_is_replaced_with_a_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a.safetensors"
    check_files(out, None, None)
    out.write_bytes(b"")
    check_files(out, tmp_path / "log.jsonl", out)
    assert capsys.readouterr().err == ""
    check_files(out, None, None)
    with pytest.raises(DataError, match="is a folder"):
        check_files(out, tmp_path, out)
    said = f"{out} is of an earlier training and will be replaced; --resume {out} goes on with it.\n"
    assert capsys.readouterr().err == said
