"""The table of a climb: on the screen, as JSON, and in the docs.

In:    Figures
Out:   `describe`, a record of plain values; `rows_of`; `write_docs`
Next:  picograd/tools/ladder/run.py
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from picograd.device import Target
from picograd.tools.doctor import processor_name
from picograd.tools.ladder.measure import Figure
from picograd.tools.ladder.product import Product, product_for
from picograd.tools.ladder.programs import PHASE, text_of
from picograd.tools.ladder.rungs import LADDER
from picograd.tools.pages import replace_marked

HEADS = ("", "what it adds", "threads", "GFLOP/s", "gain", "of best BLAS", "of FMA peak")
# What the docs show: short vectors and few registers, and lengths that tiles divide, so that no edges are in the way.
SHOWN_TARGET = Target("CPU", "llvm", "x86-64-v3", vector_bytes=32, num_registers=16)
SHOWN_SIZE = 96


def load_average() -> float:
    """Returns how many processes ran or wanted to in the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def describe(
    product: Product, figures: Sequence[Figure], versions: dict[str, str], target: Target, load: float
) -> dict[str, Any]:
    """Returns what was measured, and on what, as plain values; `load` is that before it."""
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
    except PackageNotFoundError:  # run from a checkout
        return ""


def rows_of(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Returns the cells of the table, rungs first.

    A rung's gain is over the one before; shares are of what has the same number of threads.
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
    """Returns what was computed, in one line."""
    m, k, n = record["m"], record["k"], record["n"]
    return f"float32 ({m}, {k}) @ ({k}, {n}) on {record['device']}"


def source_of(record: dict[str, Any]) -> str:
    """Returns what it was measured on, in one line."""
    rounds = max(len(figure["samples_s"]) for figure in record["figures"])
    libraries = "; ".join(f"{name} {text}" for name, text in record["libraries"].items())
    vectors = 8 * record["vector_bytes"]
    run = f"{rounds} rounds; load when started {record['load_average']:.2f}; {record['date'][:10]}"
    return f"{record['processor']}, {vectors}-bit vectors; {libraries}; {run}"


def show(record: dict[str, Any], figures: Sequence[Figure], console: Console) -> None:
    """Prints the table."""
    table = Table(title=title_of(record), caption=source_of(record), title_justify="left", caption_justify="left")
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="left" if place < 2 else "right", no_wrap=place != 1)
    for row in rows_of(figures):
        table.add_row(*row)
    console.print(table)


def markdown(record: dict[str, Any], figures: Sequence[Figure]) -> str:
    """Returns the table in Markdown, with what was computed above and what on below."""
    lines = [f"**{title_of(record)}**", "", "| " + " | ".join(HEADS) + " |", "|---|---|" + "---:|" * (len(HEADS) - 2)]
    lines += ["| " + " | ".join(row).replace(" (", "<br>(") + " |" for row in rows_of(figures)]
    return "\n".join([*lines, "", f"*{source_of(record)}*"])


def shown_programs() -> dict[str, str]:
    """Returns the loops of each rung that has an emitter, as the docs show them."""
    product = product_for(SHOWN_SIZE, SHOWN_SIZE, SHOWN_SIZE, SHOWN_TARGET)
    texts = {rung.name: text_of(rung.emit(product)) for rung in LADDER if rung.emit is not None}
    return {name: text[text.index(PHASE) :] for name, text in texts.items()}


def write_docs(page: Path, record: dict[str, Any], figures: Sequence[Figure]) -> list[str]:
    """Replaces what stands between the page's markers `ladder:gemm` and `ladder:RUNG`; returns the names replaced."""
    texts = {"ladder:gemm": markdown(record, figures)}
    texts |= {f"ladder:{name}": f"```text\n{text}\n```" for name, text in shown_programs().items()}
    text, replaced = page.read_text(), []
    for name, inner in texts.items():
        changed = replace_marked(text, name, inner)
        if changed is not None:
            text = changed
            replaced.append(name)
    page.write_text(text)
    return replaced
