"""`picograd ladder NAME`: climbs a ladder on a device of this machine, or shows one of its rungs.

In:    `LadderConfig`
Out:   a table; optionally JSON and a page of the docs
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table

from picograd.device import Target
from picograd.devices.cuda.device import CudaDevice
from picograd.engine.compiler import Compiler
from picograd.engine.devices import check_exists, compiler_for
from picograd.errors import ArgumentError, DataError
from picograd.record import replace
from picograd.tensor.costs import explain
from picograd.tensor.tensor import Tensor
from picograd_lab.doctor import processor_name
from picograd_lab.ladder import gpu, gpu_table
from picograd_lab.ladder.measure import Figure, climb
from picograd_lab.ladder.own import NAME as OWN
from picograd_lab.ladder.own import climb_own
from picograd_lab.ladder.product import PHASE, Product, product_for, text_of
from picograd_lab.ladder.rungs import LADDER, RUNGS, expression


# ---- pages of the docs, of which commands write what stands between two marks ----
def replace_marked(text: str, name: str, inner: str) -> str | None:
    """Returns a page with the text between `<!-- NAME -->` and `<!-- /NAME -->` replaced; None without these marks.

    >>> replace_marked("a <!-- x -->old<!-- /x --> b", "x", "new")
    'a <!-- x -->\\nnew\\n<!-- /x --> b'
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    return f"{head}{begin}\n{inner}\n{end}{tail}" if found and closed else None


# ---- the table of a climb ----
HEADS = ("", "what it adds", "threads", "GFLOP/s", "gain", "of best BLAS", "of FMA peak")
# For the docs: short vectors, few registers, and lengths that tiles divide, so that there are no edges.
SHOWN_TARGET = Target("CPU", "llvm", "x86-64-v3", vector_bytes=32, num_registers=16)
SHOWN_SIZE = 96


def load_average() -> float:
    """Returns the mean number of running or waiting processes in the last minute; 0 if the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def describe(
    product: Product, figures: Sequence[Figure], versions: dict[str, str], target: Target, load: float
) -> dict[str, Any]:
    """Returns the measurements and their machine as plain values; `load` is the load average before them."""
    return {
        "ladder": "gemm",
        "device": target.device,
        "m": product.m, "k": product.k, "n": product.n,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_name(),
        "arch": target.arch,
        "vector_bytes": target.vector_bytes,
        "python": platform.python_version(),
        "picograd": _version("picograd"),
        "load_average": load,
        "libraries": versions,
        "figures": [{**asdict(figure), "gflops": figure.gflops} for figure in figures],
    }  # fmt: skip


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # a checkout without installation
        return ""


def rows_of(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Returns the cells of the table, rungs first.

    A rung's gain is over the one before; shares are relative to rungs with the same number of threads.
    """
    best = {(f.kind, f.threads): 0.0 for f in figures}
    for figure in figures:
        key = (figure.kind, figure.threads)
        best[key] = max(best[key], figure.gflops)
    order = ("rung", "blas", "peak")
    rows: list[tuple[str, ...]] = []
    before: Figure | None = None
    for figure in sorted(figures, key=lambda f: order.index(f.kind)):
        rates = sorted(figure.flops / sample / 1e9 for sample in figure.samples_s)
        shares = [f"{figure.gflops / best[kind, figure.threads]:.1%}" for kind in ("blas", "peak")]
        rate = f"{figure.gflops:.4g} ({rates[0]:.4g}..{rates[-1]:.4g})"
        gain = f"{figure.gflops / before.gflops:.3g}x" if before and figure.kind == "rung" else ""
        rows.append((figure.name, figure.adds, str(figure.threads), rate, gain, *shares))
        before = figure
    return rows


def title_of(record: dict[str, Any]) -> str:
    """Returns a description of the product, in one line."""
    m, k, n = record["m"], record["k"], record["n"]
    return f"float32 ({m}, {k}) @ ({k}, {n}) on {record['device']}"


def source_of(record: dict[str, Any]) -> str:
    """Returns the machine and the rounds of a measurement, in one line."""
    rounds = max(len(figure["samples_s"]) for figure in record["figures"])
    libraries = "; ".join(f"{name} {text}" for name, text in record["libraries"].items())
    vectors = 8 * record["vector_bytes"]
    run = f"{rounds} rounds; load when started {record['load_average']:.2f}; {record['date'][:10]}"
    return f"{record['processor']}, {vectors}-bit vectors; {libraries}; {run}"


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], source: str) -> Table:
    """Returns a table for a terminal, with the problem above and the machine below.

    A rung's name and idea share a column, and the many others are narrow, so that counts fit into 120 letters.
    """
    table = Table(title=title, caption=source, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD)
    idea, table.pad_edge = 1, False
    if len(heads) > len(HEADS):
        heads = [head.replace(" ", "\n") for head in ("rung", *heads[2:])]
        rows = [(f"{name}: {adds}", *cells) for name, adds, *cells in rows]
        idea, table.padding = 0, 0
    for place, head in enumerate(heads):
        justify: JustifyMethod = "left" if place <= idea else "right"
        table.add_column(head, justify=justify, no_wrap=place != idea, width=IDEA if place == idea else None)
    for row in rows:
        table.add_row(*row)
    return table


def markdown(record: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Returns the table in Markdown, with the problem above and the machine below."""
    lines = [f"**{title_of(record)}**", "", "| " + " | ".join(HEADS) + " |", "|---|---|" + "---:|" * (len(HEADS) - 2)]
    lines += ["| " + " | ".join(row).replace(" (", "<br>(") + " |" for row in rows_of(figures)]
    return "\n".join([*lines, "", f"*{source_of(record)}*"])


def shown_programs() -> dict[str, str]:
    """Returns the loops of each rung with an emitter, as in the docs."""
    product = product_for(SHOWN_SIZE, SHOWN_SIZE, SHOWN_SIZE, SHOWN_TARGET)
    texts = {rung.name: text_of(rung.emit(product)) for rung in LADDER if rung.emit is not None}
    return {name: text[text.index(PHASE) :] for name, text in texts.items()}


def write_docs(page: Path, record: dict[str, Any], figures: Sequence[Figure]) -> list[str]:
    """Writes the table and the loops of each rung to a page; returns the names of the replaced parts."""
    loops = {f"ladder:{name}": f"```text\n{text}\n```" for name, text in shown_programs().items()}
    return replace_parts(page, {"ladder:gemm": markdown(record, figures), **loops})


def replace_parts(page: Path, parts: Mapping[str, str]) -> list[str]:
    """Replaces the text between markers of a page, by name; returns the names that the page has."""
    text, replaced = page.read_text(), []
    for name, inner in parts.items():
        changed = replace_marked(text, name, inner)
        if changed is not None:
            text = changed
            replaced.append(name)
    write(page, text)
    return replaced


def write(path: Path, text: str) -> None:
    """Writes a file whole.

    Raises:
      DataError: it cannot be written.
    """
    try:
        path.write_text(text)
    except OSError as error:
        raise DataError(f"ladder: {path}: cannot be written: {error.strerror or error}.") from None


# ---- the command ----
WIDEST, NARROWEST = 140, 100  # letters of the table: in a file, and in a narrow terminal
IDEA = 30  # letters of a rung's idea
LENGTHS_PRODUCT_MAX = 2**59  # of more, some operand may have more bytes than NumPy can number
SIZE = 1024  # of matrices on the CPU, by default
ON_CPU, GPUS = ("gemm",), ("CUDA", "CUDASIM")
ON_GPU = sorted(file.parent.name for file in Path(__file__).parent.glob("*/01_*.cu"))  # ladders, each a folder


@dataclass(frozen=True)
class LadderConfig:
    """Climbs from three naive loops to a fused product, and measures the gain of each idea."""

    # The ladder: gemm, a product of matrices; on GPUs also softmax, layernorm, attention and others; mnist, a training.
    # Example: picograd ladder gemm --size 1024 --json gemm.json
    name: tyro.conf.Positional[str] = "gemm"
    # Device: CPU; CUDA, a GPU; CUDASIM, a simulated GPU, with counts instead of times.
    device: str = "CPU"
    # Every length of the problem, rows and columns: by default 1024 on the CPU, the ladder's lengths on GPUs.
    # mnist: small (784-256-10) or large (784-1024-10).
    size: int | Literal["small", "large"] | None = None
    # Single lengths, on GPUs. Example: --lengths M=100,K=60
    lengths: str = ""
    # Number of rounds on the CPU; each measures everything once, in turn.
    repeats: int = 7
    # A rung to print instead, by name: its loops on the CPU, its file on GPUs.
    show: Annotated[str, tyro.conf.arg(metavar="RUNG")] = ""
    # mnist: epochs of training; 0 compares the first steps alone.
    epochs: int = 10
    # The rungs to climb on GPUs and of mnist, separated by commas; by default all. Example: --rungs naive,picograd
    rungs: str = ""
    # mnist: a mistake to plant in hand-written programs and find: missing-batch-division, transposed-layout, stale-buffer.
    inject: str = ""
    # File for the raw samples or counts.
    json: Path | None = None
    # A page whose marked parts are rewritten, such as docs/ladder.md or docs/ladder_gpu.md.
    docs: Path | None = None


def ladder(config: LadderConfig) -> int:
    """Runs `picograd ladder` and returns 0.

    Raises:
      ArgumentError: a ladder, rung or length is unknown, the device has no such ladder, an option is another ladder's,
                     or a number is below 1.
      DeviceError:   the device is unknown.
      DataError:     a file cannot be written.
    """
    climbs = _climbs(config)
    _check_options(config, climbs)
    return climbs(config)


def _climb_mnist(config: LadderConfig) -> int:
    return int(import_module("picograd_lab.ladder.mnist.run").climb_mnist(config))


def _climb_cpu(config: LadderConfig) -> int:
    compiler = compiler_for("CPU")
    size = _length(config) or SIZE
    _check_product({"M": size, "N": size, "K": size})
    product = product_for(size, size, size, compiler.device.target)
    console = Console(highlight=False, soft_wrap=True)
    if config.show:
        _check_rung(config.show, list(RUNGS))
        console.print(shown(config.show, product, compiler), markup=False)
        return 0
    load = load_average()
    figures, versions = climb(product, compiler, config.repeats)
    record = describe(product, figures, versions, compiler.device.target, load)
    _print(_table(title_of(record), HEADS, rows_of(figures), source_of(record)))
    if config.json is not None:
        write(config.json, json.dumps(record, indent=1) + "\n")
    if config.docs is not None:
        console.print(f"{config.docs}: replaced {', '.join(write_docs(config.docs, record, figures)) or 'nothing'}")
    return 0


def _climb_gpu(config: LadderConfig) -> int:
    chosen: gpu.Ladder = import_module(f"picograd_lab.ladder.{config.name}").LADDER
    console, device = Console(highlight=False, soft_wrap=True), config.device.upper()
    lengths = _lengths(config, chosen)
    names = {rung.name: rung for rung in chosen.rungs}
    if config.show:
        _check_rung(config.show, list(names))
        console.print(chosen.text(names[config.show]), markup=False, end="")
        return 0
    wanted = [name.strip() for name in config.rungs.split(",") if name.strip()] or [*names, OWN]
    for name in wanted:
        _check_rung(name, [*names, OWN])
    compiler = compiler_for(device)
    climbed = replace(chosen, rungs=tuple(rung for rung in chosen.rungs if rung.name in wanted))
    figures = [*gpu.climb(climbed, lengths, compiler), *(climb_own(chosen, lengths, compiler) if OWN in wanted else ())]
    machine = compiler.device.gpu_name() if isinstance(compiler.device, CudaDevice) else processor_name()
    record = gpu_table.describe(chosen, lengths, figures, compiler.device.target, machine)
    heads, rows = gpu_table.table_of(chosen, lengths, figures, device)
    source = gpu_table.COLUMNS_EXPLAINED if device == "CUDASIM" else f"{machine}; {record['date'][:10]}"
    _print(_table(gpu_table.title_of(chosen, lengths, device), heads, rows, source))
    if config.json is not None:
        write(config.json, json.dumps(record, indent=1) + "\n")
    if config.docs is not None:
        table = gpu_table.markdown(chosen, lengths, figures, device)
        parts = {f"ladder:{config.name} on {device}": table if device == "CUDASIM" else f"{table}\n\n*{source}*"}
        if device == "CUDASIM":  # a page explains the columns once
            parts["ladder:columns"] = source
        console.print(f"{config.docs}: replaced {', '.join(replace_parts(config.docs, parts)) or 'nothing'}")
    return 0


def _print(table: Table) -> None:
    console = Console()
    wanted = Console(width=1000).measure(table).maximum
    width = max(console.width if console.is_terminal else WIDEST, NARROWEST, wanted)
    Console(highlight=False, width=width).print(table)


# Options of each climb, besides the name.
TAKEN: dict[Callable[[LadderConfig], int], tuple[str, ...]] = {
    _climb_cpu: ("device", "size", "repeats", "show", "json", "docs"),
    _climb_gpu: ("device", "size", "lengths", "rungs", "show", "json", "docs"),
    _climb_mnist: ("size", "epochs", "rungs", "inject", "json", "docs"),
}


def _climbs(config: LadderConfig) -> Callable[[LadderConfig], int]:
    """Returns the function that climbs the requested ladder."""
    device, known = config.device.upper(), sorted({"mnist", *ON_CPU, *ON_GPU})
    if config.name not in known:
        raise ArgumentError(f"ladder: there is no ladder {config.name!r}; there is {', '.join(known)}.")
    if config.name == "mnist":
        return _climb_mnist
    check_exists(device)
    climbed = [*["CPU"] * (config.name in ON_CPU), *(GPUS if config.name in ON_GPU else ())]
    if device not in climbed:
        fact = f"ladder: {config.name} climbs on {', '.join(climbed)}; {device} has no ladder."
        raise ArgumentError(fact, hint=f"--device {climbed[-1]}")
    return _climb_gpu if device in GPUS else _climb_cpu


def _check_options(config: LadderConfig, climbs: Callable[[LadderConfig], int]) -> None:
    """Raises an error for an option that is another ladder's, a number below 1, and a file that cannot be written."""
    where = "" if climbs is _climb_mnist else f" on {config.device.upper()}"
    for one in fields(config)[1:]:
        if one.name not in TAKEN[climbs] and getattr(config, one.name) != one.default:
            taken = ", ".join(f"--{name}" for name in TAKEN[climbs])
            raise ArgumentError(f"ladder: {config.name}{where} takes no --{one.name}; it takes {taken}.")
    for name, value in (("size", config.size), ("repeats", config.repeats)):
        if isinstance(value, int) and value < 1:
            raise ArgumentError(f"ladder: {name} must be at least 1, got {value}.")
    for path in filter(None, (config.json, config.docs)):
        if not path.parent.is_dir() or (path is config.docs and not path.is_file()):
            raise DataError(f"ladder: {path}: there is no such {'page' if path is config.docs else 'folder'}.")
        if path.is_dir():
            raise DataError(f"ladder: {path} is a folder; name a file.")


def _length(config: LadderConfig) -> int | None:
    if isinstance(config.size, str):
        raise ArgumentError(f"ladder: {config.name} takes a length: --size 1024, not {config.size}.")
    return config.size


def _check_rung(name: str, names: Sequence[str]) -> None:
    if name not in names:
        raise ArgumentError(f"ladder: there is no rung {name!r}; the rungs are {', '.join(names)}.")


def _lengths(config: LadderConfig, chosen: gpu.Ladder) -> dict[str, int]:
    """Returns the ladder's lengths with the requested ones replaced."""
    asked = _length(config)
    lengths = {name: length if name in chosen.switches else asked or length for name, length in chosen.lengths.items()}
    for part in filter(None, config.lengths.split(",")):
        name, _, value = part.strip().partition("=")
        if name not in lengths or not value.isdecimal():
            raise ArgumentError(
                f"ladder: lengths are {', '.join(f'{name}={value}' for name, value in lengths.items())}, say; "
                f"{part.strip()!r} is not one."
            )
        lengths[name] = int(value)
    _check_product(lengths)
    return lengths


def _check_product(lengths: Mapping[str, int]) -> None:
    if prod(max(1, length) for length in lengths.values()) >= LENGTHS_PRODUCT_MAX:
        values = ", ".join(f"{name} = {length}" for name, length in lengths.items())
        raise ArgumentError(f"ladder: no memory holds the operands of {values}: their product must be below 2**59.")


def shown(name: str, product: Product, compiler: Compiler) -> str:
    """Returns the loops of a rung: its emitter's, or those of the compiler's kernel for the fused one."""
    emit = RUNGS[name].emit
    if emit is not None:
        return text_of(emit(product))
    shapes = ((product.m, product.k), (product.k, product.n), (product.n,))
    tensors = [Tensor.zeros(*shape, device=compiler.device.target.device).realize() for shape in shapes]
    return explain(expression(*tensors), stages=("kernel", "choice", "program"))
