"""`picograd ladder gemm`: climbs the ladder on this machine, or shows the loops of a rung.

In:    `LadderConfig`
Out:   a table; JSON and a page of the docs where asked for
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from picograd.engine.compiler import Compiler
from picograd.engine.devices import check_exists, compiler_for
from picograd.errors import ArgumentError, DataError
from picograd.tensor.costs import explain
from picograd.tensor.tensor import Tensor
from picograd.tools.ladder.fused import expression
from picograd.tools.ladder.measure import climb
from picograd.tools.ladder.product import Product, product_for
from picograd.tools.ladder.programs import text_of
from picograd.tools.ladder.report import describe, load_average, show, write_docs
from picograd.tools.ladder.rungs import RUNGS

WIDEST, NARROWEST = 140, 100  # letters of the table: in a file, and in a terminal that is narrower
LADDERS = {"gemm": "CPU"}  # by name: the device it climbs on


@dataclass(frozen=True)
class LadderConfig:
    """Climbs from three naive loops to a fused product and measures what each idea brings."""

    # Which ladder: gemm, a product of float32 matrices. Example: picograd ladder gemm --size 1024 --json gemm.json
    name: tyro.conf.Positional[str] = "gemm"
    # Device to measure.
    device: str = "CPU"
    # Rows and columns of the matrices.
    size: int = 1024
    # Rounds in which everything is measured once, in turn.
    repeats: int = 7
    # Prints the loops of one rung instead: naive, blocked, vectors, registers, packed, threads, fused.
    show: Annotated[str, tyro.conf.arg(metavar="RUNG")] = ""
    # File for the raw samples.
    json: Path | None = None
    # A page whose marked parts are rewritten, such as docs/ladder.md.
    docs: Path | None = None


def ladder(config: LadderConfig) -> int:
    """Runs `picograd ladder` and returns 0.

    Raises:
      ArgumentError: there is no such ladder or rung, it does not climb on the device, or a number is below 1.
      DeviceError:   there is no such device.
      DataError:     a file cannot be written.
    """
    compiler = _compiler(config)
    product = product_for(config.size, config.size, config.size, compiler.device.target)
    console = Console(highlight=False, soft_wrap=True)
    if config.show:
        console.print(shown(config.show, product, compiler), markup=False)
        return 0
    for path in filter(None, (config.json, config.docs)):
        if not path.parent.is_dir() or (path is config.docs and not path.is_file()):
            raise DataError(f"ladder: {path}: there is no such {'page' if path is config.docs else 'folder'}.")
    load = load_average()
    figures, versions = climb(product, compiler, config.repeats)
    record = describe(product, figures, versions, compiler.device.target, load)
    width = max(console.width, NARROWEST) if console.is_terminal else WIDEST
    show(record, figures, Console(highlight=False, width=width))
    if config.json is not None:
        config.json.write_text(json.dumps(record, indent=1) + "\n")
    if config.docs is not None:
        console.print(f"{config.docs}: replaced {', '.join(write_docs(config.docs, record, figures)) or 'nothing'}")
    return 0


def _compiler(config: LadderConfig) -> Compiler:
    """Returns the Compiler to climb with, once everything asked for is there."""
    if config.name not in LADDERS:
        raise ArgumentError(f"ladder: there is no ladder {config.name!r}; there is {', '.join(LADDERS)}.")
    device = config.device.upper()
    check_exists(device)
    if device != LADDERS[config.name]:
        raise ArgumentError(f"ladder: {config.name} climbs on {LADDERS[config.name]}; {device} has no ladder.")
    for name, value in (("size", config.size), ("repeats", config.repeats)):
        if value < 1:
            raise ArgumentError(f"ladder: {name} must be at least 1, got {value}.")
    if config.show and config.show not in RUNGS:
        raise ArgumentError(f"ladder: there is no rung {config.show!r}; the rungs are {', '.join(RUNGS)}.")
    return compiler_for(device)


def shown(name: str, product: Product, compiler: Compiler) -> str:
    """Returns the loops of a rung: as its emitter writes them, or what the compiler makes of the fused one."""
    emit = RUNGS[name].emit
    if emit is not None:
        return text_of(emit(product))
    shapes = ((product.m, product.k), (product.k, product.n), (product.n,))
    tensors = [Tensor.zeros(*shape, device=compiler.device.target.device).realize() for shape in shapes]
    return explain(expression(*tensors), stages=("kernel", "choice", "program"))
