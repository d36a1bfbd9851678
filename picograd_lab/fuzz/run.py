"""`picograd fuzz`: random graphs, gradients, writes, tiles of products, and programs, seed after seed, for a given time.

In:    `FuzzConfig`
Out:   a summary, and for each failure a script in the given folder
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from picograd.device import named
from picograd.engine.devices import check_usable
from picograd.errors import ArgumentError
from picograd.record import Record
from picograd_lab.fuzz.check import Wrong, check_gradients, check_opts, check_values
from picograd_lab.fuzz.failures import program_script, script, shrink, writes_script
from picograd_lab.fuzz.graphs import any_graph, product_graph, smooth_graph
from picograd_lab.fuzz.programs import any_program, check_program, shrunk
from picograd_lab.fuzz.values import Graph
from picograd_lab.fuzz.writes import check_writes

KINDS = ("values", "gradients", "writes", "opts", "programs")


class FuzzConfig(Record):
    """Compares graphs with the evaluator, gradients with slopes, writes with NumPy's, programs with jit and without."""

    # Minutes to run.
    minutes: float = 1.0
    # The first seed; the others follow it.
    seed: int = 0
    # The device to compare with the evaluator.
    device: str = "CPU"
    # What to compare: values, gradients, writes, opts, programs.
    kinds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="KIND ...")] = KINDS
    # Folder for scripts of failing graphs.
    folder: Path = Path("fuzz-failures")


class Failure(Record):
    """The failure of a seed.

    kind, seed:  kind of the comparison
    error:       message of the check for the reduced graph
    source:      a script that fails alike
    """

    kind: str
    seed: int
    error: str
    source: str


def fuzz(config: FuzzConfig) -> int:
    """Runs `picograd fuzz`; returns 0 without failures, else 1.

    Raises:
      ArgumentError: a kind is unknown, or the time is not above 0.
      DeviceError:   the device is unknown, or this machine cannot use it.
    """
    unknown = [kind for kind in config.kinds if kind not in KINDS]
    if unknown or not config.kinds:
        raise ArgumentError(f"fuzz: kinds are {', '.join(KINDS)}; got {', '.join(unknown) or 'none'}.")
    if not config.minutes > 0:
        raise ArgumentError(f"fuzz: minutes must be above 0, got {config.minutes}.")
    device = str(named(config.device))
    check_usable(device)
    console = Console(highlight=False, soft_wrap=True)
    end = time.monotonic() + 60 * config.minutes
    held: Counter[str] = Counter()
    failures = tried = 0
    for seed in seeds(config.seed, end):
        kind = config.kinds[seed % len(config.kinds)]
        failure, was_held = try_seed(kind, seed // len(config.kinds), device)
        held[kind] += was_held
        tried += 1
        if failure is not None:
            failures += 1
            report(failure, config.folder, console)
    counts = ", ".join(f"{count:,} of {kind}" for kind, count in held.items())
    console.print(f"{tried:,} seeds from {config.seed} on ({counts or 'none'} held): {failures} failures")
    return 1 if failures else 0


def seeds(first: int, end: float) -> Iterator[int]:
    """Yields seeds until the time `end` of the clock; at least one."""
    seed = first
    while True:
        yield seed
        seed += 1
        if time.monotonic() >= end:
            return


def try_seed(kind: str, seed: int, device: str) -> tuple[Failure | None, bool]:
    """Returns the reduced failure of a seed, or None; and whether there was anything to check."""
    if kind == "writes":
        return _try_writes(seed, device), True
    if kind == "programs":
        return _try_program(seed, device)
    make, check, arguments = LOOKS[kind](seed, device)
    graph = make(seed)
    try:
        return None, check(graph, *arguments) is not False
    except Exception as error:
        small = shrink(graph, lambda smaller: check(smaller, *arguments), type(error))
    fact = said(lambda: check(small, *arguments)) or "fails only at times"
    title = f"picograd fuzz: {kind}, seed {seed}"
    return Failure(kind, seed, fact, script(small, check.__name__, repr(arguments)[1:-1].rstrip(","), title, fact)), True


Look = tuple[Callable[[int], Graph], Callable[..., object], tuple[object, ...]]
LOOKS: dict[str, Callable[[int, str], Look]] = {  # (seed, device) -> graph, check and its arguments
    "values": lambda seed, device: (any_graph, check_values, (device,)),
    "gradients": lambda seed, device: (smooth_graph, check_gradients, (device, seed)),
    "opts": lambda seed, device: (product_graph, check_opts, (seed,)),
}


def _try_writes(seed: int, device: str) -> Failure | None:
    is_jitted = seed % 4 == 3
    error = said(lambda: check_writes(seed, device, is_jitted))
    return None if error is None else Failure("writes", seed, error, writes_script(seed, device, is_jitted, error))


def _try_program(seed: int, device: str) -> tuple[Failure | None, bool]:
    program = any_program(seed)
    try:
        return None, check_program(program.source, device)
    except Wrong:
        small = shrunk(program, device).source
    error = said(lambda: check_program(small, device)) or "fails only at times"
    return Failure("programs", seed, error, program_script(small, seed, device, error)), True


def said(check: Callable[[], object]) -> str | None:
    """Returns the message of the error that a check raises, or None."""
    try:
        check()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def report(failure: Failure, folder: Path, console: Console) -> None:
    """Writes the script of a failure and prints its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{failure.kind}_{failure.seed}.py"
    path.write_text(failure.source)
    console.print(f"[red]{failure.kind}, seed {failure.seed}[/]: {escape(failure.error[:500])}")
    console.print(f"  python {escape(str(path))}")
