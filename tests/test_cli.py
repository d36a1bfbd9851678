"""The command line: what each command prints, and its exit status."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from picograd import __version__
from picograd.errors import DataError
from picograd_lab import doctor
from picograd_lab.doctor import Finding, examine_devices, processor_name
from picograd_programs import cli
from picograd_programs.models.characters import CharacterGPT, GptSettings
from picograd_programs.models.digits import MnistSettings
from picograd_programs.models.names import BengioSettings
from picograd_programs.models.recurrent import Lstm, LstmSettings

COMMANDS = ["train", "sample", "embed", "pronounce", "transcribe", "chat", "perplexity", "serve", "doctor", "cache"]
COMMANDS += ["fuzz", "ladder", "verify", "bisect"]
TRAINED = [program.name for program in cli.PROGRAMS]
SAMPLED = [program.name for program in cli.SAMPLED.values()]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PICOGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(command in out for command in COMMANDS)


def test_help_says_where_to_begin_and_version_which_one_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "Begin with `picograd train mnist`" in capsys.readouterr().out
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"picograd {__version__}\n"
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], f"Expected one of {{{', '.join(COMMANDS)}}}"),
        (["train"], "{linear, logistic, bigram,"),
        (["train", "mnist", "--epoch", "3"], "--epochs INT"),
        (["train", "mnist", "--epochs", "three"], "Error parsing --epochs"),
        (["sample"], "{linear, logistic, bigram, sentiment,"),
        (["sample", "gpt", "--length", "x"], "Error parsing --length"),
        (["cache"], "Expected one of {ls, clear}"),
    ],
)
def test_wrong_command_line_says_what_is_expected(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert said in " ".join((captured.out + captured.err).split())  # lines are broken


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["foo"], f"picograd: there is no command foo; there are {', '.join(COMMANDS)}.\n"),
        (["train", "cifar"], "picograd train: there is no command cifar; there are " + ", ".join(TRAINED) + ".\n"),
        (["sample", "gtp", "--length", "3"],
         "picograd sample: there is no command gtp; there are " + ", ".join(SAMPLED)
         + ".\n  hint: picograd sample gpt\n"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_command_is_called_none(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chat", "my folder"], "picograd chat: 'my folder' does not belong to an option.\n"
         "  hint: picograd chat --model 'my folder'\n"),
        (["serve", "--port", "80", "a"], "picograd serve: a does not belong to an option.\n"
         "  hint: picograd serve --port 80 --model a\n"),
        (["chat", "a", "--model", "b"], "picograd chat: a does not belong to an option.\n"),
        (["embed", "a", "--json", "b"], "picograd embed: b does not belong to an option.\n"
         "  hint: picograd embed a --json --model b\n"),
        (["sample", "gpt2", "w.pt", "--num", "2"],
         "picograd sample: w.pt does not belong to an option.\n"
         "  hint: picograd sample gpt2 --num 2 --weights w.pt\n"),
        (["sample", "gpt", "w"], "picograd sample: w does not belong to an option.\n"
         "  hint: picograd sample gpt --checkpoint w\n"),
        (["train", "gpt", "book.txt"], "picograd train: book.txt does not belong to an option.\n"
         "  hint: picograd train gpt --text book.txt\n"),
        (["doctor", "cuda"], "picograd doctor: cuda does not belong to an option.\n"),
    ],
)  # fmt: skip
def test_a_word_that_belongs_to_no_option_is_named_with_the_option_it_may_mean(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", ["numpy", "picograd.nn", "tyro"])
def test_an_interrupt_while_the_command_is_loaded_ends_it_without_a_word(name: str) -> None:
    code = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, *more):
        if name == {name!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv = ["/usr/bin/picograd", "doctor"]
import picograd_programs.cli
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (made.returncode, made.stdout, made.stderr) == (-signal.SIGINT, "", "")
    program = subprocess.run(
        [sys.executable, "-c", code.replace("/usr/bin/picograd", "/usr/bin/train.py")], capture_output=True, text=True
    )
    assert "KeyboardInterrupt" in program.stderr


def test_settings_reach_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(cli, "train_program", lambda settings: seen.append(settings) or 0)
    assert cli.main(["train", "mnist", "--epochs", "3", "--resume"]) == 0
    assert cli.main(["train", "names", "--steps", "200000"]) == 0
    assert cli.main(["train", "lstm", "--layers", "2"]) == 0
    assert cli.main(["train", "gpt", "--text", "shakespeare", "--dropout", "0.1"]) == 0
    assert seen == [
        MnistSettings(epochs=3, resume=True),
        BengioSettings(steps=200_000),
        LstmSettings(layers=2),
        GptSettings(text="shakespeare", dropout=0.1),
    ]


def test_settings_of_samples_reach_their_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in (CharacterGPT, Lstm):
        shown = classmethod(lambda cls, settings: f"{cls.name} {settings.checkpoint} {settings.num} {settings.seed}")
        monkeypatch.setattr(program, "sample", shown)
    assert cli.main(["sample", "gpt", "--num", "2"]) == 0
    assert cli.main(["sample", "lstm", "--checkpoint", "a", "--seed", "5"]) == 0
    assert capsys.readouterr().out == "gpt runs/gpt 2 0\nlstm a 20 5\n"


def test_status_of_a_stopped_training_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "train_program", lambda settings: 130)
    assert cli.main(["train", "mnist"]) == 130


def test_error_is_printed_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(settings: object) -> int:
        raise DataError("a.idx: truncated: 5 bytes.", hint="replace it.")

    monkeypatch.setattr(cli, "train_program", fails)
    assert cli.main(["train", "mnist"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "DataError: a.idx: truncated: 5 bytes.\n  hint: replace it.\n"
    assert captured.out == ""


def test_second_ctrl_c_ends_without_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(settings: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "train_program", interrupted)
    assert cli.main(["train", "mnist"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def warns(settings: object) -> int:
        warnings.simplefilter("default")
        warnings.warn("the cache is full", stacklevel=1)
        return 0

    monkeypatch.setattr(cli, "train_program", warns)
    assert cli.main(["train", "mnist"]) == 0
    assert capsys.readouterr().err == "warning: the cache is full\n"


# ---- cache ----
def test_cache_is_listed_and_cleared(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cache / "data" / "mnist").mkdir(parents=True)
    (cache / "data" / "mnist" / "a").write_bytes(bytes(2048))
    assert cli.main(["cache", "ls"]) == 0
    assert capsys.readouterr().out.split("\n") == [
        "data             1 files     2.0 KiB  data sets",
        f"2.0 KiB in {cache}",
        "",
    ]
    assert cli.main(["cache", "clear", "data"]) == 0
    assert capsys.readouterr().out.endswith(f"2.0 KiB removed from {cache}\n")
    assert cli.main(["cache", "ls"]) == 0
    assert capsys.readouterr().out == f"{cache} is empty\n"


def test_part_that_does_not_exist_is_an_error(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache", "clear", "dta"]) == 1
    assert capsys.readouterr().err.startswith(
        "DataError: clear_cache: the cache has no part 'dta'; its parts are data,"
    )


def test_cache_that_is_turned_off_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PICOGRAD_CACHE", "off")
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == "the cache is turned off (PICOGRAD_CACHE=off)\n"


# ---- doctor ----
def test_doctor_reports_every_topic(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    topics = "python", "package", "llvm", "processor", "threads", "cache", "data", "device CPU", "library cuBLASLt"
    for topic in (*topics, "extra [cuda]"):
        assert f"  {topic} " in out, topic
    assert f"{cache}, writable" in out


def test_doctor_looks_for_all_that_picograd_needs_and_offers() -> None:
    project = tomllib.loads((Path(cli.__file__).parents[1] / "pyproject.toml").read_text())["project"]
    needed = [re.split("[>=]", name)[0] for name in project["dependencies"]]
    assert sorted(doctor.PACKAGES) == sorted(needed)
    assert doctor.EXTRAS.keys() <= project["optional-dependencies"].keys()


def test_doctor_says_that_the_cache_cannot_be_written(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.write_bytes(b"a file where the folder should be")
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert f"{cache}: cannot be written: File exists" in out
    assert "hint: set PICOGRAD_CACHE to a writable folder" in out


def test_doctor_gives_the_reason_and_one_hint_for_a_device_that_is_not_usable() -> None:
    assert examine_devices({"CPU": None, "CUDA": "cuInit failed with 100", "MINE": "no such chip"}) == [
        Finding("device CPU", True, "usable"),
        Finding(
            "device CUDA",
            False,
            "cuInit failed with 100",
            "install or update the NVIDIA driver, then pip install 'picograd[cuda]'",
        ),
        Finding("device MINE", False, "no such chip"),
    ]


def test_processor_without_a_name_is_called_by_its_architecture(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nBogoMIPS\t: 50.00\n")
    assert processor_name(tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("model name\t: Some Chip: 2 GHz\n")
    assert processor_name(tmp_path / "cpuinfo") == "Some Chip: 2 GHz"


def test_command_runs_as_a_process(cache: Path) -> None:
    command = [sys.executable, "-c", "import sys; from picograd_programs.cli import main; sys.exit(main())", "cache", "ls"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{cache} is empty\n", "")


@pytest.mark.parametrize("words", ["cache ls", "cache --help"])
def test_output_that_nobody_reads_any_more_ends_without_a_traceback(words: str, cache: Path) -> None:
    program = "import sys; from picograd_programs.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *words.split()]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
