"""Programs: `picograd train NAME` and `picograd sample NAME`, for every model alike.

A `Program` is a model, its data and its loss; `train` makes it a run: it checks settings, saves checkpoints to a folder,
shows figures, and reports results. Each program is in the file of its model (picograd_programs/models).
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import tyro

from picograd import dtype as dtypes
from picograd.config import num_threads
from picograd.cuda import get_device_name
from picograd.errors import ArgumentError, DataError, FileError, PicogradError
from picograd.files import write_whole
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_formats.state_file import load
from picograd_lab.doctor import processor_name
from picograd_programs.train.callbacks import BEST, Checkpoints, Every, Log, Progress, TensorBoard
from picograd_programs.train.trainer import Batch, Callback, Trainer, cosine

PRECISIONS = {"float32": None, "bfloat16": dtypes.bfloat16, "float16": dtypes.float16}
BELOW_ONE = frozenset({"ema", "dropout", "beta2"})  # settings that are shares below 1
AT_MOST_ONE = frozenset({"top_p"})
FLOAT_MAX = 2.0**127  # larger numbers may be infinite in float32
WHOLE_MAX = 2**31 - 1
# Settings without effect on the weights.
ASIDE = frozenset({
    "eval_every", "save_every", "keep", "out", "resume", "tensorboard", "preview", "eval_batches", "samples", "sample",
    "times",
})  # fmt: skip
T = TypeVar("T")
NoOption = Annotated[T, tyro.conf.Suppress, tyro.conf.Fixed]  # a setting that this program ignores
HEARD_CTRL_C = 130  # exit status, as a shell reports SIGINT


# ---- settings ----
@dataclass(frozen=True)
class Settings:
    """Settings of every training."""

    steps: int = 1000  # updates of the weights
    batch: int = 32  # examples per step
    lr: float = 1e-3  # highest learning rate
    warmup: int = 0  # steps with a rising learning rate
    weight_decay: float = 0.01  # of weights with two axes or more
    clip: float = 0.0  # limit of the norm of all gradients; 0: none
    accumulate: int = 1  # batches per step, with averaged gradients
    # precision of products, by autocast; with float16 the loss is scaled
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    ema: float = 0.0  # decay of a moving average of the weights, such as 0.999; 0: no average
    seed: int = 0  # of initial weights, batches and draws
    eval_every: int = 500  # steps between evaluations
    save_every: int = 500  # steps between checkpoints
    keep: int = 3  # number of checkpoints to keep
    out: Path = Path("runs")  # folder for checkpoints, log.jsonl and pictures
    resume: bool = False  # continue from the newest checkpoint in that folder
    tensorboard: bool = False  # also write figures for TensorBoard
    # samples at evaluations, printed and logged, or pictures: on a terminal, always, or never
    preview: Literal["terminal", "always", "never"] = "terminal"


@dataclass(frozen=True)
class SampleSettings:
    """Settings of every `picograd sample`."""

    checkpoint: Path = Path("runs")  # a checkpoint, or the folder of a training with its newest one
    num: int = 1  # number of samples
    temperature: float = 1.0  # below 1 prefers likely values; 0 always takes the likeliest
    seed: int = 0  # seed of the draws


def option_name(name: str) -> str:
    """Returns the command line option of a setting.

    >>> option_name("save_every")
    '--save-every'
    """
    return f"--{name.replace('_', '-')}"


def check_settings(settings: Any, named: Callable[[str], str] = option_name) -> None:
    """Checks that every integer is at least 1, or 0 if that is a default, and every rate finite and at least 0.

    Shares, such as ema, are below 1; a number of heads divides the width. Only a seed may be any integer.

    Args:
      settings:  a dataclass instance
      named:     a setting's name -> its name in error messages

    Raises:
      ArgumentError: a setting is out of its range.
    """
    for field in fields(settings):
        value = getattr(settings, field.name)
        flag = named(field.name)
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise ArgumentError(f"{flag}: got {value}, it must be a finite number, 0 or more.")
        if isinstance(value, float) and value > FLOAT_MAX:
            raise ArgumentError(f"{flag}: got {value}, it must be at most {FLOAT_MAX:.0e}.")
        if field.name in BELOW_ONE and value >= 1:
            raise ArgumentError(f"{flag}: got {value}, it must be below 1.")
        if field.name in AT_MOST_ONE and value is not None and value > 1:
            raise ArgumentError(f"{flag}: got {value}, it must be at most 1.")
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        defaults = [vars(base).get(field.name) for base in type(settings).__mro__]  # 0 may mean no limit
        least = int(0 not in defaults)
        if value < least:
            raise ArgumentError(f"{flag}: got {value:,}, it must be at least {least}.")
        if value > WHOLE_MAX and field.name != "seed":
            raise ArgumentError(f"{flag}: got {value:,}, it must be at most {WHOLE_MAX:,}.")
    width, heads = (getattr(settings, name, None) for name in ("width", "heads"))
    if width and heads and width % heads:
        raise ArgumentError(f"{named('heads')}: got {heads:,}, it must divide {named('width')}, {width:,}.")


NEW = "leave out --resume to start a training."


def check_folder(path: Path, makes: bool = True) -> None:
    """Checks before the training that files can be written to a folder.

    Args:
      makes:  creates the folder if it is missing

    Raises:
      DataError: the folder cannot be created or written, or is a file, or missing.
    """
    if not makes and not path.exists():
        raise DataError(f"{path}: no checkpoint is there.", NEW)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}.", "--out names another folder") from None


def command_line(words: str, settings: Any, **changes: object) -> str:
    """Returns the shell command for some settings, without defaults.

    Args:
      words:     first words, such as "picograd train mnist"
      settings:  a dataclass instance
      changes:   settings with other values

    >>> command_line("picograd train bert", Settings(seed=3), resume=True)
    'picograd train bert --seed 3 --resume'
    """
    parts = shlex.split(words)
    for field in fields(settings):
        value = changes.get(field.name, getattr(settings, field.name))
        if value != field.default:
            flag = f"--{field.name.replace('_', '-')}"
            parts += [flag] if value is True else [flag, str(value)]
    return shlex.join(parts)


# ---- a program ----
class Program:
    """A model, its data and its loss.

    A subclass defines `name`, `item`, and the methods below. Its constructor loads the data, builds the model from `facts`
    alone, and calls `super().__init__`.

    name:    word of the command line
    about:   description of the training, for its help
    takes:   class of its settings
    samples: class of the settings of `picograd sample`, or None
    item:    examples of a batch, such as "images"
    per:     whether rows or elements of a batch's first tensor are counted; see Progress
    same:    settings that a resumed run must share with its checkpoint
    lowest:  figure of `evaluate` whose best (lowest) state is also saved, as best.safetensors, or None
    files:   patterns of a run's files besides checkpoints
    """

    name: ClassVar[str]
    about: ClassVar[str]
    takes: ClassVar[type]
    samples: ClassVar[type | None] = None
    item: ClassVar[str] = "examples"
    per: ClassVar[str] = "row"
    same: ClassVar[tuple[str, ...]] = ("batch", "seed", "accumulate")
    lowest: ClassVar[str | None] = None
    files: ClassVar[tuple[str, ...]] = ("log.jsonl", "result.json", "*.png", "events.out.tfevents.*")

    model: Module
    optimizer: Optimizer | Sequence[Optimizer]

    def __init__(self, settings: Any, **facts: Any):
        self.settings, self.facts = settings, {**plain(settings), **facts, "program": self.name}
        self.steps: int = settings.steps
        self.changed: list[str] = []  # settings that differed in earlier steps, by the step of the change

    @property
    def title(self) -> str:
        """Text before its bar."""
        return self.name

    @property
    def folder(self) -> Path:
        """Folder of its checkpoints, log and pictures."""
        return Path(self.settings.out)

    @classmethod
    def run(cls, settings: Any) -> int:
        """Runs the training from data to results, and returns the exit status.

        Raises:
          PicogradError: as in `train`.
        """
        return train(cls(settings), settings)

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> Module:
        """Returns the model for settings and data, with initial weights."""
        raise NotImplementedError

    def batch(self, number: int) -> Batch:
        """Returns batch `number` of the training, which depends only on the seed and the number."""
        raise NotImplementedError

    def loss(self, model: Module, *batch: Tensor) -> Tensor | Mapping[str, Tensor]:
        """Returns the loss of a batch, or figures with the key "loss"."""
        raise NotImplementedError

    def schedule(self, step: int) -> float:
        """Returns the factor of the learning rate at a step."""
        return cosine(self.steps, self.settings.warmup)(step)

    def evaluate(self, model: Any) -> Mapping[str, float] | None:
        """Returns figures on held-out data."""
        return None

    def preview(self, model: Any, step: int) -> str | None:
        """Returns a short sample after `step` steps, or writes a picture and returns its name; None without samples."""
        return None

    def describe(self) -> str:
        """Returns the sizes of the data and of the model, printed before the training."""
        return f"{sum(parameter.numel() for parameter in self.model.parameters()):,} parameters"

    def report(self, model: Any) -> str:
        """Returns the results after the training; pictures are written to the run's folder."""
        return ""

    @classmethod
    def sample(cls, settings: Any) -> str:
        """Returns the output of `picograd sample`."""
        raise NotImplementedError


def plain(settings: Any) -> dict[str, Any]:
    """Returns settings by name, with paths as strings."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return {name: str(value) if isinstance(value, Path) else value for name, value in values.items()}


def trainer_of(program: Program, kind: type[Trainer] = Trainer) -> Any:
    """Returns the trainer of a program, by its settings."""
    settings = program.settings
    return kind(
        program.model,
        program.optimizer,
        program.loss,
        schedule=program.schedule,
        clip=settings.clip or None,
        accumulate=settings.accumulate,
        precision=PRECISIONS[settings.precision],
        ema=settings.ema or None,
        seed=settings.seed,
    )


def train(program: Program, settings: Any, callbacks: tuple[Callback, ...] = ()) -> int:
    """Trains a program from data to results, and prints the results.

    Args:
      callbacks:  callbacks besides those of every training

    Returns:      0, or the shell's status for the signal that stopped the training: 130 for Ctrl-C

    Raises:
      DataError: the folder cannot be written, or the checkpoint to resume is of another run.
      AnomalyError: the loss is not finite.
    """
    started = time.perf_counter()
    trainer: Trainer = trainer_of(program)
    how_often = settings.save_every, settings.keep
    checkpoints = Checkpoints(program.folder, *how_often, program.facts, program.lowest, program.files)
    if settings.resume:
        go_on(program, checkpoints, trainer)
    elif (earlier := checkpoints.newest()) is not None:
        check_program(program, *earlier)
    print(f"{program.title}: {program.describe()}", flush=True)
    before, status = trainer.done, HEARD_CTRL_C
    every = [*_previews(program, settings, trainer), *callbacks, checkpoints, *_reports(program, settings)]
    try:
        done = trainer.fit(program.batch, program.steps, every)
    except FileError as error:
        if not trainer.done or not checkpoints.paths():
            raise
        raise FileError(error.fact, f"make space, then go on with: {going_on(program, settings)}", error.errno) from None
    except SystemExit as ended:  # a signal to the process; the state is saved
        done, status = trainer.done, int(ended.code or 0)
    seconds = time.perf_counter() - started
    print(f"trained {done - before} of {program.steps} steps in {seconds:.1f} s; checkpoint: {checkpoints.paths()[-1]}")
    lowest = f"lowest {program.lowest} {checkpoints.least:.4f} after step {checkpoints.least_at:,}"
    if checkpoints.least_at:
        print(f"{lowest}; checkpoint: {checkpoints.folder / BEST}")
    if done < program.steps or status != HEARD_CTRL_C:
        print(f"go on with: {going_on(program, settings)}", flush=True)
        return status
    model = trainer.model_in_use()
    model.eval()
    with no_grad():
        report = program.report(model)
    print(report, flush=True)
    write_result(program, settings, report if checkpoints.least_at in (0, done) else f"{lowest}\n{report}")
    return 0


def _previews(program: Program, settings: Any, trainer: Trainer) -> list[Callback]:
    """Returns the callbacks that show the model during a training: its evaluation and, if requested, a preview."""

    def preview(model: Any) -> str | None:  # the report follows the last step
        return None if trainer.done == program.steps else program.preview(model, trainer.done)

    is_previewed = settings.preview == "always" or (settings.preview == "terminal" and sys.stderr.isatty())
    return [Every(settings.eval_every, shown) for shown in (program.evaluate, *([preview] if is_previewed else []))]


def _reports(program: Program, settings: Any) -> list[Callback]:
    """Returns the callbacks that report the steps of a training, to files and to the terminal."""
    board = [TensorBoard(program.folder)] if settings.tensorboard else []
    return [Log(program.folder / "log.jsonl"), *board, Progress(program.title, program.item, program.per)]


def going_on(program: Program, settings: Any) -> str:
    """Returns the shell command that resumes a training."""
    return command_line(f"{started_as()} train {program.name}", settings, resume=True)


def started_as() -> str:
    """Returns the words that start picograd in this shell, with its path if needed.

    They include the device if the environment sets one, as another device would not continue with the same bits.
    """
    word, device = sys.argv[0], os.environ.get("PICOGRAD_DEVICE")
    words = ["picograd"]
    if Path(word).parts[-2:] == ("picograd", "__main__.py"):
        words = ["python" if shutil.which("python") == sys.executable else sys.executable, "-m", "picograd"]
    elif Path(word).stem == "picograd" and shutil.which("picograd") != shutil.which(word):
        words = [word]
    return shlex.join([*([f"PICOGRAD_DEVICE={device}"] if device else []), *words])


def write_result(program: Program, settings: Any, report: str) -> None:
    """Writes the settings and results of a training to result.json in its folder; bench/trainings.py makes a page from it.

    Raises:
      DataError: the file cannot be written.
    """
    words, whole = f"picograd train {program.name}", type(settings)()
    result = {
        "program": program.name, "about": program.about, "sizes": program.describe(), "steps": program.steps,
        "command": command_line(words, settings, out=whole.out, resume=False),
        "report": report.replace(f"{settings.out}{os.sep}", "").splitlines(),
        **({"changed": program.changed} if program.changed else {}),
        "machine": machine_of(program.model), "date": f"{datetime.now(UTC):%Y-%m-%d}",
    }  # fmt: skip
    text = json.dumps(result, indent=1) + "\n"
    write_whole("train", settings.out / "result.json", lambda file: file.write(text.encode()))


def machine_of(model: Module) -> str:
    """Returns the name of the training's machine."""
    device = str(next(model.parameters()).device).lower()
    if device.startswith("cuda"):
        return f"an {get_device_name(device)}"
    return f"{num_threads()} of {os.cpu_count()} threads of {processor_name()}"


# ---- checkpoints of programs ----
def go_on(program: Program, checkpoints: Checkpoints, trainer: Trainer) -> None:
    """Loads the newest complete state into a trainer, and prints the changed settings.

    Raises:
      DataError: there is none, it has other data or settings, or more steps than requested.
    """
    path, state = newest(checkpoints.folder, NEW)
    check_program(program, path, state)
    facts = state["facts"]
    check_same(program, path, facts)
    if state["done"] > program.steps:
        raise DataError(
            f"{path}: the training has made {state['done']:,} steps, {program.steps:,} are requested.",
            hint="set more --steps, or another folder by --out.",
        )
    try:
        checkpoints.take(trainer, state)
    except PicogradError as error:
        of_the_model = {field.name for field in fields(program.settings)} - {field.name for field in fields(Settings)}
        other = [name for name in facts if name in of_the_model and facts[name] != program.facts[name]]
        hint = " ".join(f"--{name.replace('_', '-')} {facts[name]}" for name in other)
        raise DataError(f"{path}: its weights are not those of this model: {error.fact}", hint or None) from None
    changed = [
        f"{name} {program.facts[name]} ({facts[name]} before)"
        for name in (field.name for field in fields(program.settings) if field.name not in ASIDE)
        if name in facts and facts[name] != program.facts[name]
    ]
    program.changed = facts.get("changed", [])
    if changed and trainer.done < program.steps:
        said = f"from step {trainer.done:,} on: {', '.join(changed)}"
        program.changed = [*program.changed, said]
        print(f"{path}: {said}.", file=sys.stderr, flush=True)
    checkpoints.facts["changed"] = program.changed


def check_program(program: Program | type[Program], path: Path, state: Any, hint: str = "") -> None:
    """Checks that a checkpoint belongs to a program.

    Raises:
      DataError: it belongs to another one, or to none.
    """
    facts = state.get("facts", {}) if isinstance(state, dict) else {}
    if facts.get("program") != program.name:
        found = f"of `train {facts['program']}`" if "program" in facts else "of no training"
        hint = hint or "--out names another folder; or delete what is in this one."
        raise DataError(f"{path}: a checkpoint {found}, not of `train {program.name}`.", hint)


def check_same(program: Program, path: Path, facts: Mapping[str, Any]) -> None:
    """Checks that a checkpoint belongs to this run.

    Raises:
      DataError: it has other data or settings.
    """
    for name in program.same:
        default = getattr(type(program.settings)(), name, None)  # of a setting that the checkpoint does not have yet
        before, now = facts.get(name, default), program.facts[name]
        if before == now:
            continue
        rule = "the next batch would not be the one that an unbroken run sees."
        if hasattr(program.settings, name):
            hint = f"--{name.replace('_', '-')} {before}"
            raise DataError(f"{path}: made with {name} {before}, this run has {name} {now}: {rule}", hint)
        text = facts.get("text", "")
        hint = "resume with the data the checkpoint was made with."
        raise DataError(
            f"{path}: the {name.replace('_', ' ')} that it was made with are not those of this run: {rule}",
            f"--text {shlex.quote(text)}" if text != program.facts.get("text", "") else hint,
        )


def newest(
    place: Path, hint: str = "picograd train NAME --out FOLDER writes checkpoints."
) -> tuple[Path, dict[str, Any]]:
    """Returns a checkpoint and its state: the given file, or the newest complete one of a training's folder.

    Args:
      hint:  hint of the error for a missing one

    Raises:
      DataError: the checkpoint is missing or corrupt.
    """
    if place.is_file():
        return place, load(place)
    checkpoints = Checkpoints(place)
    if (found := checkpoints.newest()) is not None:
        return found
    fact = "none of its checkpoints is whole" if checkpoints.paths() else "no checkpoint is there"
    raise DataError(f"{place}: {fact}.", hint)


def trained(program: type[Program], place: Path) -> tuple[Any, dict[str, Any]]:
    """Returns the model of a checkpoint, ready for use, and the facts of its run.

    Raises:
      DataError: the checkpoint is missing, corrupt, or of another program.
    """
    path, state = newest(place)
    check_program(program, path, state, "--checkpoint names another.")
    facts = state["facts"]
    manual_seed(0)
    model = program.build(facts)
    averaged = {name.removeprefix("module."): value for name, value in state.get("averaged", {}).items() if "." in name}
    model.load_state_dict(averaged or state["model"])
    model.eval()
    return model, facts
