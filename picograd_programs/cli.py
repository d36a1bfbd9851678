"""The command `picograd`: train, sample, embed, transcribe, chat, perplexity, serve, doctor, cache, fuzz, ladder ...

In:    words of a command line
Out:   text, files, and an exit status: 0 done, 1 an error, 2 a wrong command line, 130 stopped by Ctrl-C
"""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from difflib import get_close_matches
from functools import partial, reduce
from operator import or_
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
from picograd.tensor.modes import no_grad
from picograd_lab.doctor import Finding, examine
from picograd_lab.fuzz.run import FuzzConfig, fuzz
from picograd_lab.ladder.run import LadderConfig, ladder
from picograd_lab.verify.bisect import BisectConfig, bisect_script
from picograd_lab.verify.run import VerifyConfig, own_words, verify_script
from picograd_programs.cache import clear_cache, list_cache
from picograd_programs.chat.perplexity import PerplexitySettings, measure
from picograd_programs.chat.run import Chat, chat
from picograd_programs.chat.serve import Serve, serve
from picograd_programs.models.bag import Bag
from picograd_programs.models.bert import MaskedModel
from picograd_programs.models.bigram import Bigram
from picograd_programs.models.characters import CharacterGPT
from picograd_programs.models.diffusion import Diffusion
from picograd_programs.models.digits import Cnn, Mnist
from picograd_programs.models.embed import EmbedSettings, embed
from picograd_programs.models.gpt2 import GPT2, SampleGpt2Settings
from picograd_programs.models.names import Bengio
from picograd_programs.models.pronounce import PronounceSettings, pronounce
from picograd_programs.models.recurrent import Gru, Lstm, Rnn
from picograd_programs.models.regression import LinearRegression, LogisticRegression
from picograd_programs.models.sentiment import Sentiment
from picograd_programs.models.transcribe import TranscribeSettings, transcribe
from picograd_programs.models.transformer import Transformer
from picograd_programs.models.vae import Autoencoder
from picograd_programs.models.wavenet import WaveNetProgram
from picograd_programs.nano.run import NanoProgram
from picograd_programs.train.program import Program, check_folder, check_settings

PROGRAMS: tuple[type[Program], ...] = (
    LinearRegression, LogisticRegression, Bigram, Sentiment, Bengio, Bag, Rnn, Gru, Lstm, WaveNetProgram, Transformer,
    Mnist, Cnn, MaskedModel, CharacterGPT, Diffusion, Autoencoder, NanoProgram,
)  # fmt: skip


def choice_of(settings: Sequence[tuple[type[Program], Any]]) -> Any:
    """Returns the type of a choice between programs, each with its default settings."""
    return reduce(or_, [
        Annotated[type(default), tyro.conf.subcommand(program.name, default=default, description=program.about)]
        for program, default in settings
    ])  # fmt: skip


Train = make_dataclass(
    "Train", [("model", choice_of([(program, program.takes()) for program in PROGRAMS]))], frozen=True,
    namespace={"__doc__": "Trains a model from data to results; Ctrl-C saves and says how to go on."},
)  # fmt: skip
# Settings of samples -> the program; each has its own class, whose default checkpoint is the training's output.
# GPT-2's weights are published ones.
SAMPLED: dict[type, type[Program]] = {
    make_dataclass(
        f"Sample{program.__name__}", [("checkpoint", Path, program.takes().out)], bases=(program.samples,), frozen=True
    ): program
    for program in PROGRAMS
    if program.samples is not None
} | {SampleGpt2Settings: GPT2}
Sample = make_dataclass(
    "Sample", [("model", choice_of([(program, settings()) for settings, program in SAMPLED.items()]))], frozen=True,
    namespace={"__doc__": "Shows what a trained model writes, draws or says."},
)  # fmt: skip


@dataclass(frozen=True)
class Doctor:
    """Lists the devices, libraries and folders that this machine can use."""


@dataclass(frozen=True)
class Ls:
    """Lists the parts of the cache."""


@dataclass(frozen=True)
class Clear:
    """Empties the cache, or some of its parts."""

    # Parts, as listed by `picograd cache ls`; by default the whole cache.
    parts: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PART ...")] = ()


@dataclass(frozen=True)
class Cache:
    """Lists or empties the cache of data sets and compiled kernels."""

    action: Annotated[Ls, tyro.conf.subcommand("ls")] | Annotated[Clear, tyro.conf.subcommand("clear")]


TAKES_WORD = ("text", "model", "weights", "checkpoint", "out")  # options that a bare word may stand for
ABOUT = """A deep-learning framework one person can read, from Tensor to machine code.

Begin with `picograd train mnist`: it trains a network on handwritten digits in half a minute. `picograd doctor` lists what
this machine can use, `picograd --version` prints the version; docs/train.md shows how to train something of your own."""

Command = (
    Annotated[Train, tyro.conf.subcommand("train")]  # type: ignore[valid-type]
    | Annotated[Sample, tyro.conf.subcommand("sample")]  # type: ignore[valid-type]
    | Annotated[EmbedSettings, tyro.conf.subcommand("embed")]
    | Annotated[PronounceSettings, tyro.conf.subcommand("pronounce")]
    | Annotated[TranscribeSettings, tyro.conf.subcommand("transcribe")]
    | Annotated[Chat, tyro.conf.subcommand("chat")]
    | Annotated[PerplexitySettings, tyro.conf.subcommand("perplexity")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Cache, tyro.conf.subcommand("cache")]
    | Annotated[FuzzConfig, tyro.conf.subcommand("fuzz")]
    | Annotated[LadderConfig, tyro.conf.subcommand("ladder")]
    | Annotated[VerifyConfig, tyro.conf.subcommand("verify")]
    | Annotated[BisectConfig, tyro.conf.subcommand("bisect")]
)


def main(args: list[str] | None = None) -> int:
    """Runs one command and returns its exit status; errors are printed without a traceback.

    Args:
      args:  words after `picograd`; None: the words of the process
    """
    hear_again()
    try:
        status = answer(sys.argv[1:] if args is None else args)
        sys.stdout.flush()
        return status
    except PicogradError as error:
        print(f"{type(error).__name__}: {error.fact}", file=sys.stderr)
        if error.is_exact:  # the model's line of the computation; otherwise it is this command's
            print(f"  at {error.line}", file=sys.stderr)
        if error.hint:
            print(f"  hint: {error.hint}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"MemoryError: this machine does not have the requested memory. {error}".rstrip(), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise Python's last flush fails again
        return 141


def answer(words: list[str]) -> int:
    """Runs the command of some words; returns its exit status."""
    flat = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
    if words in (["--version"], ["-V"]):
        print(f"picograd {picograd.__version__}")
        return 0
    if (wrong := wrong_command(words)) is not None:
        print(wrong, file=sys.stderr)
        return 2
    words, of_program = own_words(words) if words[:1] in (["verify"], ["bisect"]) else (words, [])
    settings: dict[str, Any] = {"prog": "picograd", "description": ABOUT, "args": words, "config": flat}
    command, left = tyro.cli(Command, return_unknown_args=True, **settings)
    if left and (wrong := wrong_words(command, words, left)) is not None:
        print(wrong, file=sys.stderr)
        return 2
    if left:
        tyro.cli(Command, **settings)  # prints the options, and exits
    if isinstance(command, VerifyConfig):  # its warnings are the program's own
        models = {each.name: partial(train_named, each.name) for each in PROGRAMS}
        return verify_script(command, of_program, models)
    if isinstance(command, BisectConfig):
        return bisect_script(command, of_program)
    with warnings.catch_warnings():
        warnings.showwarning = show_warning
        return run(command)


def wrong_command(words: Sequence[str]) -> str | None:
    """Returns the error message for a word that is not a command; None if all words up to the first option are known."""
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


def wrong_words(command: Any, words: Sequence[str], left: Sequence[str]) -> str | None:
    """Returns the error message for words without an option, such as a folder alone; None for unknown options.

    Args:
      command:  the parsed command
      left:     the words that remain
    """
    if any(word.startswith("-") for word in left):
        return None
    leaf = getattr(command, "model", command) if isinstance(command, (Train, Sample)) else command
    (named, *_) = [*(name for name in TAKES_WORD if hasattr(leaf, name) and f"--{name}" not in words), ""]
    kept = [*words]
    for word in left:
        kept.remove(word)
    before = shlex.join(["picograd", *kept])
    hint = f"\n  hint: {before} --{named} {shlex.quote(left[0])}" if named else ""
    return f"picograd {words[0]}: {shlex.join(left)} does not belong to an option.{hint}"


def run(command: Any) -> int:
    """Runs one command and returns its exit status.

    Raises:
      PicogradError: the command's error.
    """
    if isinstance(command, Train):
        return train_program(command.model)  # type: ignore[attr-defined]
    if isinstance(command, Sample):
        return show_sample(command.model)  # type: ignore[attr-defined]
    if isinstance(command, EmbedSettings):
        return embed(command)
    if isinstance(command, PronounceSettings):
        return pronounce(command)
    if isinstance(command, TranscribeSettings):
        return transcribe(command)
    if isinstance(command, Chat):
        return chat(command)
    if isinstance(command, PerplexitySettings):
        return measure(command)
    if isinstance(command, Serve):
        return serve(command)
    if isinstance(command, Cache):
        return show_cache(cache_folder(), command.action)
    if isinstance(command, FuzzConfig):
        return fuzz(command)
    if isinstance(command, LadderConfig):
        return ladder(command)
    return show_findings(examine())


def train_named(name: str, arguments: Sequence[str]) -> int:
    """Runs `picograd train NAME` with some arguments, and returns its exit status."""
    return main(["train", name, *arguments])


def train_program(settings: Any) -> int:
    """Trains the model of some settings, and returns the exit status."""
    program = next(program for program in PROGRAMS if program.takes is type(settings))
    check_settings(settings)
    check_folder(settings.out, makes=not settings.resume)
    return program.run(settings)


def show_sample(settings: Any) -> int:
    """Prints a sample of a trained model, and returns 0."""
    with no_grad():
        print(SAMPLED[type(settings)].sample(settings), flush=True)
    return 0


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
    """Lists the cache, or empties it and lists the removed parts; returns 0.

    Raises:
      DataError: the part is unknown, or cannot be removed.
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
    """Prints a warning as one line on standard error, without its place in the code."""
    print(f"warning: {message}", file=sys.stderr)
