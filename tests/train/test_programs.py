"""Every `picograd train` and `picograd sample`, on little data: it learns, says so, stops, goes on, shows what it knows."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import tyro

import picograd as pg
from picograd.errors import DataError, FileError
from picograd_programs import cli
from picograd_programs.data.mnist import Mnist
from picograd_programs.models import digits, names
from picograd_programs.train import callbacks, program
from picograd_programs.train.program import HEARD_CTRL_C, newest
from picograd_programs.train.trainer import Trainer
from tests.helpers import mostly_evaluated
from tests.little import NAMES, TEXT, put_in_place

NUMBER = r"\d+\.\d+"

# command -> options of a small run, what its results say, and what `picograd sample` is asked and answers
SMALL: dict[str, tuple[str, str, str, str]] = {
    "linear": (
        "", rf"mean squared error by gradient descent: {NUMBER}; by least squares: {NUMBER}\nheld out: .*%", "--num 3",
        r"( +-?\d+ is expected, +-?\d+ was measured\n){3}",
    ),
    "logistic": (
        "", rf"by Newton's method: {NUMBER}\nheld-out accuracy: \d+\.\d\d%", "--num 2",
        r"( *\d+\.\d% benign; it is (benign|malignant)\n){2}",
    ),
    "bigram": ("", rf"loss by counting: {NUMBER}; by gradient descent: {NUMBER}\nnew names: .+", "--num 3", r"(\w+\n){3}"),
    "sentiment": (
        "--embedding 8 --batch 16", r"held-out accuracy: \d+\.\d\d% \(\d+\.\d\d% by always", "--text 'good film'",
        r".*% praise .*\n",
    ),
    "names": (
        "--hidden 16 --lr 0.1", rf"loss: train {NUMBER}, dev {NUMBER}, test {NUMBER}\nnew names: .+", "--num 3",
        r"(\w*\n){3}",
    ),
    "bag": ("--width 8", "new names: .+", "--num 3", r"(\w*\n){3}"),
    "rnn": ("--width 8", "new names: .+", "--num 3", r"(\w*\n){3}"),
    "gru": ("--width 8", "new names: .+", "--num 3", r"(\w*\n){3}"),
    "lstm": ("--width 8 --layers 2", "new names: .+", "--num 3 --temperature 0", r"(\w*\n){3}"),
    "wavenet": ("--width 8", "new names: .+", "--num 3", r"(\w*\n){3}"),
    "transformer": ("--width 8 --layers 1 --dropout 0.1 --precision float16", "new names: .+", "--num 3", r"(\w*\n){3}"),
    "mnist": (
        "--hidden 16 --batch 32 --lr 0.01", r"test accuracy: \d+\.\d\d%; picture: .*test\.png",
        "--num 9 --picture {out}/a.png", r"\d of 9 images are read right: .*a\.png\n",
    ),
    "cnn": (
        "--channels 2 --batch 16 --shift 2", r"test accuracy: \d+\.\d\d%; picture: .*test\.png", "--picture {out}/a.png",
        r"\d+ of 40 images are read right: .*a\.png\n",
    ),
    "bert": (
        "--width 16 --layers 1 --heads 2 --block 8 --text {text}", rf"validation loss: {NUMBER}; hidden characters told",
        "--text 'qu_ck'", r"qu.ck\n",
    ),
    "gpt": (
        "--width 16 --layers 1 --heads 2 --block 8 --sample 20 --text {text}", rf"validation loss: {NUMBER}\n(.|\n)*",
        "--prompt the --length 10 --num 2", r"the(.|\n){10}\n-{20}\nthe(.|\n){10}\n",
    ),
    "diffusion": (
        "--channels 8 --times 3 --batch 2 --ema 0.5", r"test loss: .*; pictures: .*",
        "--num 4 --times 2 --picture {out}/a.png", "4 images.*\n",
    ),
    "vae": (
        "--hidden 8 --code 2 --batch 16", r"test loss: .*; pictures: .*", "--num 4 --picture {out}/a.png", "4 images.*\n"
    ),
}  # fmt: skip


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Little data; returns a file of text."""
    return put_in_place(monkeypatch, tmp_path)


def options(name: str, text: Path, out: Path, *more: str) -> list[str]:
    words = SMALL[name][0].format(text=text).split()
    return ["train", name, *words, "--steps", "12", "--eval-every", "6", "--save-every", "4", "--out", str(out), *more]


def is_option(takes: type, name: str) -> bool:
    """True for a setting that the command line has."""
    hint = get_type_hints(takes, include_extras=True)[name]
    return tyro.conf.Suppress not in getattr(hint, "__metadata__", ())


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of settings that programs read from here on, but for those that read all of them."""
    names: set[str] = set()

    def get(self: Any, name: str) -> Any:
        code = sys._getframe(1).f_code
        if code.co_name not in ("plain", "check_settings", "command_line") and "picograd_programs" in code.co_filename:
            names.add(name)
        return object.__getattribute__(self, name)

    for base in (program.Settings, program.SampleSettings):
        monkeypatch.setattr(base, "__getattribute__", get, raising=False)
    return names


def check_options(takes: type, read: set[str]) -> None:
    """Checks that every option was read: another would change nothing, in silence."""
    assert {each.name for each in fields(takes) if is_option(takes, each.name)} <= read


@pytest.mark.req("D3", "D5", "D6", "J4")
@mostly_evaluated(every=17, evaluated=3)
@pytest.mark.parametrize("name", SMALL)
def test_a_run_says_its_results_and_a_sample_shows_what_was_learned(
    name: str, device: str, little: Path, read: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, kind = tmp_path / "run", next(each for each in cli.PROGRAMS if each.name == name)
    assert cli.main(options(name, little, out)) == 0
    sources = [inspect.getsource(each.build) for each in kind.__mro__ if hasattr(each, "build")]
    check_options(kind.takes, read | {*re.findall(r'"(\w+)"', "".join(sources))})  # build is given a dict
    read.clear()
    printed = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    _, results, asked, answer = SMALL[name]
    assert re.match(rf"{name}: .*[\d,]+ parameters\n", printed)
    assert "trained 12 of 12 steps in " in printed and f"checkpoint: {out}/step-00000012.safetensors" in printed
    assert re.search(results, printed), printed
    assert (out / "log.jsonl").is_file()
    for picture in re.findall(r"\S+\.png", printed):
        assert Path(picture).read_bytes()[:4] == b"\x89PNG"
    assert cli.main(["sample", name, "--checkpoint", str(out), *shlex.split(asked.format(out=out))]) == 0
    assert re.fullmatch(answer, capsys.readouterr().out)
    check_options(next(takes for takes, each in cli.SAMPLED.items() if each is kind), read)


def test_an_option_that_a_program_would_not_read_is_refused(little: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        cli.main(options("linear", little, tmp_path, "--batch", "7"))
    assert "--batch (applied to " in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def pressed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Presses Ctrl-C after a step, once, or sends another signal."""
    made = Trainer.make_step

    def press_at(step: int, number: int = signal.SIGINT) -> None:
        def make_step(self: Trainer, parts: Any) -> Any:
            figures = made(self, parts)
            if self.done == step:
                monkeypatch.setattr(Trainer, "make_step", made)
                signal.raise_signal(number)
            return figures

        monkeypatch.setattr(Trainer, "make_step", make_step)

    return press_at


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("name", SMALL)
def test_a_run_resumed_after_ctrl_c_ends_as_an_unbroken_one(
    name: str, little: Path, tmp_path: Path, pressed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(options(name, little, tmp_path / "unbroken")) == 0
    capsys.readouterr()
    out = tmp_path / "stopped"
    pressed(7)
    assert cli.main(options(name, little, out)) == HEARD_CTRL_C
    said = capsys.readouterr().out
    assert "trained 7 of 12 steps in " in said
    go_on = said.splitlines()[-1]
    assert go_on.startswith(f"go on with: picograd train {name} ") and " --resume" in go_on
    assert cli.main(shlex.split(go_on.removeprefix("go on with: picograd "))) == 0
    expected, actual = (list(_arrays(newest(place)[1])) for place in (tmp_path / "unbroken", out))
    assert [name for name, _ in expected] == [name for name, _ in actual]
    for (key, before), (_, after) in zip(expected, actual):
        assert before.tobytes() == after.tobytes(), key


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_to_end_the_process_saves_and_says_how_to_go_on(
    name: str, status: int, little: Path, tmp_path: Path, pressed: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, signal.SIG_DFL)  # a shell in the background may have had it ignored
    try:
        pressed(7, number)
        assert cli.main(options("rnn", little, tmp_path)) == status
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    said = capsys.readouterr().out
    assert "trained 7 of 12 steps in " in said and " --resume" in said.splitlines()[-1]
    assert newest(tmp_path)[1]["done"] == 7


@pytest.mark.parametrize(
    ("word", "found", "device", "said"),
    [
        ("/bin/picograd", {"picograd": "/bin/picograd", "/bin/picograd": "/bin/picograd"}, None, "picograd"),
        (".venv/bin/picograd", {".venv/bin/picograd": ".venv/bin/picograd"}, None, ".venv/bin/picograd"),
        ("a b/picograd", {"picograd": "/bin/picograd", "a b/picograd": "a b/picograd"}, None, "'a b/picograd'"),
        ("lib/picograd/__main__.py", {"python": sys.executable}, None, "python -m picograd"),
        ("lib/picograd/__main__.py", {}, "CUDA", f"PICOGRAD_DEVICE=CUDA {shlex.quote(sys.executable)} -m picograd"),
        ("own_program.py", {}, None, "picograd"),
    ],
)
def test_a_command_to_go_on_is_one_that_this_shell_finds(
    word: str, found: dict[str, str], device: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [word])
    monkeypatch.setattr(program.shutil, "which", found.get)
    monkeypatch.delenv("PICOGRAD_DEVICE", raising=False)
    if device:
        monkeypatch.setenv("PICOGRAD_DEVICE", device)
    assert program.started_as() == said


def test_what_differs_from_the_steps_before_is_said(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main(options("rnn", little, out)) == 0
    words = options("rnn", little, out, "--resume", "--lr", "0.125", "--keep", "2")
    assert cli.main(words) == 0
    assert "from step" not in capsys.readouterr().err  # nothing is left to train
    words[words.index("--steps") + 1] = "14"
    assert cli.main(words) == 0
    said = capsys.readouterr().err
    assert f"{out}/step-00000012.safetensors: from step 12 on: steps 14 (12 before), lr 0.125 (0.002 before).\n" in said
    words[words.index("--steps") + 1] = "16"
    assert cli.main(words) == 0
    assert json.loads((out / "result.json").read_text())["changed"] == [
        "from step 12 on: steps 14 (12 before), lr 0.125 (0.002 before)", "from step 14 on: steps 16 (14 before)",
    ]  # fmt: skip
    words[words.index("--steps") + 1] = "12"
    assert cli.main(words) == 1
    assert "the training has made 16 steps, 12 are requested." in capsys.readouterr().err


def _arrays(state: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yields the tensors of a checkpoint and their places."""
    if isinstance(state, pg.Tensor):
        yield path, state.detach().numpy()
    elif isinstance(state, dict):
        for name, value in state.items():
            yield from _arrays(value, f"{path}.{name}")


@pytest.mark.usefixtures("little")
def test_a_result_begins_with_the_lowest_loss_where_that_is_not_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = iter((3.0, 2.0, 2.5))
    monkeypatch.setattr(names.NamesProgram, "evaluate", lambda self, model: {"dev loss": next(losses)})
    out = tmp_path / "run"
    assert cli.main(["train", "bag", "--steps", "3", "--eval-every", "1", "--width", "8", "--out", str(out)]) == 0
    assert f"lowest dev loss 2.0000 after step 2; checkpoint: {out}/best.safetensors\n" in capsys.readouterr().out
    lowest, final, *_ = json.loads((out / "result.json").read_text())["report"]
    assert lowest == "lowest dev loss 2.0000 after step 2" and final.startswith("loss: train")


# ---- what is refused ----
@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        (["--batch", "5"], "made with batch 12, this run has batch 5: the next batch would not be", "--batch 12"),
        (["--seed", "1"], "made with seed 0, this run has seed 1", "--seed 0"),
        (["--block", "4"], "made with block 8, this run has block 4", "--block 8"),
        (["--heads", "1"], "made with heads 2, this run has heads 1", "--heads 2"),
        (["--text", "OTHER"], "the characters that it was made with are not", "/text\n"),
        (["--width", "32"], "step-00000012.safetensors: its weights are not those of this model: ", "--width 16"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_kept(
    more: list[str], said: str, hint: str | None, little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    cli.main(options("gpt", little, out))
    before = newest(out)[0].read_bytes()
    (tmp_path / "other").write_text(TEXT.upper())
    more = [word.replace("OTHER", str(tmp_path / "other")) for word in more]
    capsys.readouterr()
    assert cli.main([*options("gpt", little, out, "--resume"), *more]) == 1
    printed = capsys.readouterr().err
    assert said in printed and (hint is None or hint in printed)
    assert newest(out)[0].read_bytes() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "mnist", "--batch", "81"], "--batch: got 81, it must be 1 to 80."),
        (["train", "names", "--steps", "0"], "--steps: got 0, it must be at least 1."),
        (["train", "names", "--seed", "-1"], "--seed: got -1, it must be at least 0."),
        (["train", "names", "--lr", "nan"], "--lr: got nan, it must be a finite number, 0 or more."),
        (["train", "wavenet", "--context", "6"], "context must be a power of two, got 6."),
        (["train", "gpt", "--heads", "3"], "--heads: got 3, it must divide --width, 128."),
        (["train", "bert", "--heads", "7"], "--heads: got 7, it must divide --width, 128."),
        (["train", "gpt", "--dropout", "2"], "--dropout: got 2.0, it must be below 1."),
        (["train", "gpt", "--beta2", "1"], "--beta2: got 1.0, it must be below 1."),
        (["train", "linear", "--lr", "1e39"], "--lr: got 1e+39, it must be at most 2e+38."),
        (["train", "names", "--samples", str(2**31)], "--samples: got 2,147,483,648, it must be at most 2,147,483,647."),
        (["train", "nano", "--vocabulary", "100"], "--vocabulary: a vocabulary of 100 tokens is too small"),
        (["train", "gpt", "--text", "/nowhere"], "/nowhere: "),
        (["train", "names", "--resume"], "no checkpoint is there."),
        (["train", "names", "--out", "FILE"], "cannot be written"),
        (["train", "names", "--resume", "--out", "new"], "new: no checkpoint is there."),
        (["sample", "gpt"], "no checkpoint is there."),
        (["sample", "gpt", "--checkpoint", "FILE"], "FILE"),
    ],
)
def test_wrong_settings_are_named_before_any_time_is_spent(
    words: list[str],
    said: str,
    little: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([str(little) if word == "FILE" else word for word in words]) == 1
    printed = capsys.readouterr().err
    assert said.replace("FILE", str(little)) in printed and "Traceback" not in printed
    assert not Path("new").exists(), "where a training is to go on, no folder is made"


def test_a_checkpoint_of_another_program_is_named(little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(options("rnn", little, tmp_path / "run"))
    capsys.readouterr()
    assert cli.main(["sample", "gru", "--checkpoint", str(tmp_path / "run")]) == 1
    assert "a checkpoint of `train rnn`, not of `train gru`." in capsys.readouterr().err
    with pytest.raises(DataError, match="no checkpoint is there"):
        newest(tmp_path)


def test_of_a_damaged_checkpoint_the_one_before_is_gone_on_from_and_sampled(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main(options("rnn", little, out)) == 0
    last = out / "step-00000012.safetensors"
    whole = last.read_bytes()
    last.write_bytes(whole[:1000])
    capsys.readouterr()
    assert cli.main(["sample", "rnn", "--checkpoint", str(out)]) == 0
    assert capsys.readouterr().err.count("The checkpoint before it is used.") == 1
    assert cli.main(options("rnn", little, out, "--resume", "--keep", "1")) == 0
    printed = capsys.readouterr()
    assert printed.err.count("The checkpoint before it is used.") == 1 and "trained 4 of 12 steps" in printed.out
    assert pg.load(last)["done"] == 12
    last.write_bytes(b"")
    assert cli.main(options("rnn", little, out, "--resume")) == 1
    assert "none of its checkpoints is whole." in capsys.readouterr().err


def test_a_folder_of_another_model_is_refused_and_an_earlier_training_of_the_same_is_kept(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    cli.main(options("rnn", little, out))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    capsys.readouterr()
    assert cli.main(options("gru", little, out)) == 1
    said = capsys.readouterr().err
    assert "a checkpoint of `train rnn`, not of `train gru`." in said and "--out names another folder" in said
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert cli.main(options("rnn", little, out)) == 0
    assert f"{out}: the earlier training there is now in {out}/earlier-1." in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (out / "earlier-1").iterdir()} == before
    assert cli.main(["sample", "rnn", "--checkpoint", str(out / "earlier-1")]) == 0
    assert cli.main(options("rnn", little, out / "earlier-1", "--resume")) == 0


PREVIEWS = {
    "gpt": r"after step 6:[ \n](.|\n)+", "bert": r"after step 6: \S(.|\n)*", "bag": r"after step 6: \w*(, \w*){4}\n",
    "bigram": r"after step 6: \w*(, \w*){4}\n", "wavenet": r"after step 6: \w*(, \w*){4}\n",
    "vae": r"after step 6: 20 new images: .*/new-00000006\.png\n",
    "diffusion": r"after step 6: 20 new images: .*/new-00000006\.png\n", "mnist": "",
}  # fmt: skip


@pytest.mark.variants(every=4, first=1)
@pytest.mark.parametrize("name", PREVIEWS)
def test_samples_are_shown_at_evaluations_but_the_last_and_change_nothing(
    name: str, little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for choice in ("never", "terminal", "always"):  # what the tests print to is no terminal
        assert cli.main(options(name, little, tmp_path / choice, "--preview", choice)) == 0
        said = capsys.readouterr().err
        assert "after step" not in said if choice != "always" else re.search(PREVIEWS[name], said)
    assert said.count("after step") == bool(PREVIEWS[name])
    lines = [json.loads(line) for line in (tmp_path / "always" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "text" in line] == [6] * bool(PREVIEWS[name])
    for path in re.findall(r"\S+\.png", said):
        assert Path(path).read_bytes()[:4] == b"\x89PNG"
    never, always = (list(_arrays(newest(tmp_path / choice)[1])) for choice in ("never", "always"))
    assert [value.tobytes() for _, value in never] == [value.tobytes() for _, value in always]


def test_a_terminal_is_shown_samples(
    little: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program.sys.stderr, "isatty", lambda: True)
    assert cli.main(options("bag", little, tmp_path)) == 0
    assert "after step 6: " in capsys.readouterr().err


def test_a_disk_that_is_full_at_the_end_is_an_error_that_says_how_to_go_on(
    little: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = callbacks.save

    def full(state: Any, path: Path) -> None:
        if state["done"] == 12:
            raise FileError(f"save: {path}: cannot be written: No space left on device.")
        whole(state, path)

    monkeypatch.setattr(callbacks, "save", full)
    assert cli.main(options("rnn", little, tmp_path / "run")) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    monkeypatch.undo()
    monkeypatch.setattr(names, "load_names", lambda: NAMES)
    assert cli.main(shlex.split(said.partition("go on with: picograd ")[2])) == 0
    assert "trained 4 of 12 steps" in capsys.readouterr().out


def test_the_line_of_a_loss_that_is_not_finite_is_printed(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(options("rnn", little, tmp_path / "run", "--lr", "1e38")) == 1
    said = capsys.readouterr().err
    assert "AnomalyError: fit: " in said and re.search(r"\n  at names\.py:\d+    \S.*\n  hint: ", said), said


def test_a_text_to_fill_is_checked(little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(options("bert", little, tmp_path / "run"))
    for text, said in (("q" * 9, "--text: 9 characters; the model reads 1 to 8."), ("QU_", "--text: 'Q' is not one of")):
        capsys.readouterr()
        assert cli.main(["sample", "bert", "--checkpoint", str(tmp_path / "run"), "--text", text]) == 1
        assert said in capsys.readouterr().err


# ---- figures on published data ----
@pytest.mark.req("D4")
@pytest.mark.variants(first=1)
def test_names_reach_the_published_loss_of_so_many_steps(
    published_names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(names, "load_names", lambda: published_names)
    assert cli.main(["train", "names", "--steps", "3000", "--out", str(tmp_path)]) == 0
    losses = re.search(rf"loss: train ({NUMBER}), dev ({NUMBER})", capsys.readouterr().out)
    assert losses is not None and float(losses[2]) < 2.55


@pytest.mark.req("B8")
@pytest.mark.variants(first=1)
def test_mnist_reaches_98_percent(
    published_mnist: Mnist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(digits, "load_images", lambda name: published_mnist)
    assert cli.main(["train", "mnist", "--out", str(tmp_path)]) == 0
    accuracy = re.search(r"^test accuracy: (\d+\.\d\d)%", capsys.readouterr().out, re.M)
    assert accuracy is not None and float(accuracy[1]) >= 98


def test_moved_images_show_the_same_and_each_move_is_as_likely(rng: np.random.Generator) -> None:
    images = np.zeros((900, 7, 7), np.float32)
    images[:, 3, 3] = np.arange(1, 901)
    found = digits.moved(images.reshape(900, 49), 1, rng).reshape(900, 7, 7)
    assert (found.sum((1, 2)) == np.arange(1, 901)).all()
    places, counts = np.unique(np.argwhere(found)[:, 1:], axis=0, return_counts=True)
    assert places.tolist() == [[y, x] for y in (2, 3, 4) for x in (2, 3, 4)] and 60 < counts.min() <= counts.max() < 140


def test_a_checkpoint_from_before_a_setting_was_there_is_gone_on_from(
    little: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main(options("mnist", little, out)) == 0
    path = out / "step-00000012.safetensors"
    state = pg.load(path)
    del state["facts"]["shift"]
    pg.save(state, path)
    words = options("mnist", little, out, "--resume")
    words[words.index("--steps") + 1] = "16"
    assert cli.main([*words, "--shift", "1"]) == 1
    assert "made with shift 0, this run has shift 1" in capsys.readouterr().err
    assert cli.main(words) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diffusion", "--channels", "3"], ["UNet: channels must be a multiple of 8, got 3.", "--channels 8"]),
        (["gpt", "--ema", "1.5"], ["--ema: got 1.5, it must be below 1."]),
        (["gpt", "--ema", "1"], ["--ema: got 1.0, it must be below 1."]),
    ],
)
def test_a_setting_out_of_its_range_is_named_as_its_option(
    words: list[str], said: list[str], little: Path, tmp_path: Path, capsys: Any
) -> None:
    assert cli.main(["train", *words, "--out", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert all(each in err for each in said), err


@pytest.mark.parametrize("peak", [None, 1e12])
def test_an_end_says_where_mfu_is_unknown(
    peak: float | None, little: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "peak_flops", lambda device, precision: peak)
    assert cli.main(options("bag", little, tmp_path / "run")) == 0
    assert ("FLOP/s are shown instead of MFU" in capsys.readouterr().err) == (peak is None)
