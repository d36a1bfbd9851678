"""The command `picograd`: train, sample, doctor, cache, fuzz, ladder.

In:    words of a command line
Out:   text, files, and an exit status: 0 done, 1 an error, 2 a wrong command line, 130 stopped by Ctrl-C
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import tyro
from rich.console import Console
from rich.markup import escape

import picograd
from picograd.config import cache_folder
from picograd.errors import PicogradError
from picograd.ir.origin import format_nbytes
from picograd.loading import hear_again
from picograd_lab.doctor import Finding, examine
from picograd_lab.fuzz.run import FuzzConfig, fuzz
from picograd_lab.ladder.run import LadderConfig, ladder
from picograd_programs.cache import clear_cache, list_cache
from picograd_programs.train.gpt import GptConfig, SampleGptConfig, sample_gpt, train_gpt
from picograd_programs.train.lstm import LstmConfig, SampleLstmConfig, sample_lstm, train_lstm
from picograd_programs.train.mnist import CnnConfig, MnistConfig, train_cnn, train_mnist
from picograd_programs.train.names import NamesConfig, train_names


@dataclass(frozen=True)
class Train:
    """Trains a model from data to results; Ctrl-C saves and says how to go on."""

    model: (
        Annotated[MnistConfig, tyro.conf.subcommand("mnist", description="Reads handwritten digits.")]
        | Annotated[CnnConfig, tyro.conf.subcommand("cnn", description="Reads digits with a convolutional network.")]
        | Annotated[NamesConfig, tyro.conf.subcommand("names", description="Invents first names.")]
        | Annotated[LstmConfig, tyro.conf.subcommand("lstm", description="Invents first names with an LSTM.")]
        | Annotated[GptConfig, tyro.conf.subcommand("gpt", description="Continues text like that it was trained on.")]
    )


@dataclass(frozen=True)
class Sample:
    """Prints what a trained model writes."""

    model: (
        Annotated[SampleGptConfig, tyro.conf.subcommand("gpt", description="Text, from `picograd train gpt`.")]
        | Annotated[SampleLstmConfig, tyro.conf.subcommand("lstm", description="Names, from `picograd train lstm`.")]
    )


@dataclass(frozen=True)
class Doctor:
    """Lists the devices, libraries and folders that this machine can use."""


@dataclass(frozen=True)
class Ls:
    """Lists the parts of the cache."""


@dataclass(frozen=True)
class Clear:
    """Empties the cache, or some of its parts."""

    # Parts that `picograd cache ls` lists; without any, the whole cache is emptied.
    parts: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PART ...")] = ()


@dataclass(frozen=True)
class Cache:
    """Lists or empties the cache of data sets and compiled kernels."""

    action: Annotated[Ls, tyro.conf.subcommand("ls")] | Annotated[Clear, tyro.conf.subcommand("clear")]


ABOUT = """A deep-learning framework one person can read, from Tensor to machine code.

Begin with `picograd train mnist`: it trains a network on handwritten digits in half a minute. `picograd doctor` lists what
this machine can use, `picograd --version` prints the version; docs/train.md shows how to train something of your own."""

Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Sample, tyro.conf.subcommand("sample")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Cache, tyro.conf.subcommand("cache")]
    | Annotated[FuzzConfig, tyro.conf.subcommand("fuzz")]
    | Annotated[LadderConfig, tyro.conf.subcommand("ladder")]
)


def main(args: list[str] | None = None) -> int:
    """Runs one command and returns its exit status; what went wrong is said without a traceback.

    Args:
      args:  words after `picograd`; None takes those of the process
    """
    hear_again()
    flat = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
    words = sys.argv[1:] if args is None else args
    if words in (["--version"], ["-V"]):
        print(f"picograd {picograd.__version__}")
        return 0
    if (wrong := wrong_command(words)) is not None:
        print(wrong, file=sys.stderr)
        return 2
    command: Any = tyro.cli(Command, prog="picograd", description=ABOUT, args=args, config=flat)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            status = run(command)
        sys.stdout.flush()
        return status
    except PicogradError as error:
        print(f"{type(error).__name__}: {error.fact}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, `head` say, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python's last flush fails again
        return 141


def wrong_command(words: Sequence[str]) -> str | None:
    """Returns the error message for a word that is no command; None if all words up to the first option are known."""
    known: Any = Command
    for place, word in enumerate(words):
        kinds = {part.__metadata__[0].name: part.__origin__ for part in get_args(known) if hasattr(part, "__metadata__")}
        if word.startswith("-") or not kinds:
            return None
        if word not in kinds:
            before = " ".join(["picograd", *words[:place]])
            near = get_close_matches(word, kinds, 1)
            hint = f"\n  hint: {before} {near[0]}" if near else ""
            return f"{before}: there is no command {word}; there are {', '.join(kinds)}.{hint}"
        (known, *_) = [*get_type_hints(kinds[word], include_extras=True).values(), None]
    return None


def run(command: Train | Sample | Doctor | Cache | FuzzConfig | LadderConfig) -> int:
    """Runs one command and returns its exit status.

    Raises:
      PicogradError: what the command found wrong.
    """
    match command:
        case Train(settings):
            return train(settings)
        case Sample(settings):
            return sample_gpt(settings) if isinstance(settings, SampleGptConfig) else sample_lstm(settings)
        case Doctor():
            return show_findings(examine())
        case Cache(action):
            return show_cache(cache_folder(), action)
        case FuzzConfig():
            return fuzz(command)
        case LadderConfig():
            return ladder(command)


def train(settings: MnistConfig | CnnConfig | NamesConfig | LstmConfig | GptConfig) -> int:
    """Trains the model that the settings belong to, and returns the exit status."""
    match settings:
        case MnistConfig():
            return train_mnist(settings)
        case CnnConfig():
            return train_cnn(settings)
        case NamesConfig():
            return train_names(settings)
        case LstmConfig():
            return train_lstm(settings)
        case GptConfig():
            return train_gpt(settings)


def show_findings(findings: list[Finding]) -> int:
    """Prints the doctor's report, and returns 0."""
    console = Console(highlight=False, soft_wrap=True)
    width = max(len(finding.topic) for finding in findings)
    for finding in findings:
        mark = "[green]ok[/]" if finding.ok else "[yellow]--[/]"
        console.print(f"{mark}  {escape(finding.topic.ljust(width))}  {escape(finding.text)}")
        if finding.hint:
            console.print(f"    {'':{width}}  [dim]hint: {escape(finding.hint)}[/]")
    return 0


def show_cache(folder: Path | None, action: Ls | Clear) -> int:
    """Lists the cache, or empties it and lists what was removed; returns 0.

    Raises:
      DataError: there is no such part, or it cannot be removed.
    """
    if folder is None:
        print("the cache is turned off (PICOGRAD_CACHE=off)")
        return 0
    parts = list_cache(folder) if isinstance(action, Ls) else clear_cache(folder, action.parts)
    for part in parts:
        print(f"{part.name:10}  {part.num_files:6,} files  {format_nbytes(part.nbytes):>10}  {part.meaning}")
    if not parts:
        print(f"{folder} is empty" if isinstance(action, Ls) else f"nothing to remove in {folder}")
        return 0
    total = format_nbytes(sum(part.nbytes for part in parts))
    print(f"{total} in {folder}" if isinstance(action, Ls) else f"{total} removed from {folder}")
    return 0


def show_warning(message: Warning | str, *place: object, **more: object) -> None:
    """Prints a warning as one line on standard error, without the place in the code it comes from."""
    print(f"warning: {message}", file=sys.stderr)
