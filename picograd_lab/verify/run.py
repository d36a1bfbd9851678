"""`picograd verify SCRIPT` or MODEL: runs a program as Python would, and compares everything that picograd computes for it.

In:    `VerifyConfig`, and the program's own arguments
Out:   the program's output and exit status; the verdict on standard error, and status 1 if it is wrong
"""

from __future__ import annotations

import os
import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Annotated

import tyro

from picograd.errors import DataError
from picograd.record import Record
from picograd_lab.verify.function import device_of
from picograd_lab.verify.modules import verify_modules_of
from picograd_lab.verify.verdict import Verdict
from picograd_lab.verify.watch import Watcher, watching

STOPPED = 130  # the exit status of a program that Ctrl-C stops
WRONG = 1


class VerifyConfig(Record):
    """Runs a program and compares every kernel with its meaning; words after the program are its own."""

    # The program, or the name of a model of `picograd train`: picograd verify mnist --steps 20
    script: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SCRIPT|MODEL")]
    # Reference: numpy; a device that runs the same kernels; or torch, in addition to numpy: the program must leave a
    # module, a PyTorch module with the same weights, and their `inputs`.
    against: str = "numpy"
    # File for a script that shows only the first mismatch.
    save: Path | None = None


def own_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Splits the words into those up to a program, with `--against` after it, and the program's; after `--` all are its.

    >>> own_words(["verify", "--against", "C", "train.py", "--epochs", "3"])
    (['verify', '--against', 'C', 'train.py'], ['--epochs', '3'])
    >>> own_words(["verify", "mnist", "--steps", "3", "--against", "C"])
    (['verify', '--against', 'C', 'mnist'], ['--steps', '3'])
    """
    own, others, program, left = list(words[:1]), list[str](), list[str](), iter(words[1:])
    for word in left:
        if word == "--" and program:
            others += left
        elif word.partition("=")[0] == "--against" and words[0] == "verify" or not program and word.startswith("-"):
            own += [word, *islice(left, int(word in ("--against", "--save")))]
        else:
            (others if program else program).append(word)
    return own + program, others


def verify_script(
    config: VerifyConfig, arguments: Sequence[str] = (), models: Mapping[str, Callable[[Sequence[str]], int]] = {}
) -> int:
    """Runs `picograd verify`; returns the program's exit status, or 1 if a value deviates.

    Args:
      arguments: of the program
      models:    functions that train a model, by its name: (arguments) -> exit status

    Raises:
      DataError:   the program does not exist, or the script cannot be saved; said before the program runs.
      ArgumentError: with --against torch, the program leaves no modules of the same weights, or no inputs.
      DeviceError: the device is unknown, or this machine cannot use it.
    """
    is_torch = config.against.lower() == "torch"
    watcher = Watcher(None if is_torch else device_of(config.against), of_program=True)
    owner, train = os.getpid(), None if config.script.exists() else models.get(str(config.script))
    if train is None and not config.script.exists():
        fact = f"verify: {config.script}: there is no such program, and no model of that name."
        raise DataError(fact, hint=f"models are {', '.join(models)}." if models else None)
    saved = None if config.save is None else checked(config.save)
    with watching(watcher):
        status = run_program(config.script, arguments) if train is None else train(arguments)
    if os.getpid() != owner:  # a forked child of the program; its parent reports
        return status
    sys.stdout.flush()
    report(watcher.verdict, config, saved)
    verdicts = [watcher.verdict]
    if is_torch and not status:
        verdicts.append(verify_modules_of(vars(sys.modules["__main__"])))
        print(f"\n{verdicts[-1]}", file=sys.stderr)
    return status if all(verdicts) else WRONG


def run_program(script: Path, arguments: Sequence[str]) -> int:
    """Runs a program as `python SCRIPT` does, and returns its exit status; its own errors are printed.

    Raises:
      DataError: the program cannot be read.
    """
    try:
        with tokenize.open(script) as file:
            source = file.read()
    except (OSError, SyntaxError) as error:
        raise DataError(f"verify: {script}: cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    main, path = ModuleType("__main__"), str(script.absolute())  # as Python says it, wherever the program goes
    names = {"__file__": path, "__builtins__": __builtins__, "__annotations__": {}, "__cached__": None}
    main.__dict__.update(names, __loader__=SourceFileLoader("__main__", path))
    sys.modules["__main__"] = main
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        exec(compile(source, path, "exec"), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        own = error.__traceback__  # this file's frames, and the program's after them
        error = error.with_traceback(own.tb_next if own is not None else None)
        sys.excepthook(type(error), error, error.__traceback__)
        return STOPPED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def checked(save: Path) -> Path:
    """Returns where a script is saved, wherever the program goes.

    Raises:
      DataError: no file can be there.
    """
    if save.is_dir():
        raise DataError(f"verify: --save {save} is a folder; name a file.")
    if not save.absolute().parent.is_dir():
        raise DataError(f"verify: --save {save}: there is no folder {save.parent}.")
    return save.absolute()


def report(verdict: Verdict, config: VerifyConfig, saved: Path | None) -> None:
    """Prints a verdict to standard error, and saves the script of its first mismatch to `saved`."""
    if not verdict.runs:
        if config.against.lower() != "torch":  # torch's layers are compared afterwards
            print(f"verify: {config.script} computed nothing with picograd.", file=sys.stderr)
            for note in verdict.notes:
                print(f"note: {note}", file=sys.stderr)
        return
    print(f"\n{verdict}", file=sys.stderr)
    if saved is None or verdict.first is None:
        return
    if not verdict.first.script:
        print("verify: there is no script that shows it alone.", file=sys.stderr)
        return
    try:
        saved.write_text(verdict.first.script)
    except OSError as error:
        raise DataError(f"verify: {config.save}: cannot be written: {error.strerror or error}.") from None
    print(f"saved: python {config.save}", file=sys.stderr)
