"""Shows the figures: as tables on the screen, as JSON, and in docs/performance.md.

    python -m bench.report bench/results/2cores.json --docs docs/performance.md

In:    `Measured` and `Startup` records, or the JSON made of them
Out:   tables; the text between the markers of the docs page is replaced
Called by: bench/run.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from math import exp, log
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from bench.peers import VARIANTS
from bench.rounds import Measured
from bench.startup import Startup
from bench.workloads import WORKLOADS, Forward, Training

# marker in the docs    (title, groups of workloads)
STEP_TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "training": ("Training: time of one step", ("mlp", "mnist", "names")),
    "matmul": ("Matmul, new operands at each call; N and T say how each operand is stored", ("matmul",)),
    "long": ("16 million floats", ("elementwise", "softmax", "layer_norm")),
}


@dataclass(frozen=True)
class Grid:
    """A table ready to be shown: a title, the heads of the columns, the rows as text."""

    title: str
    heads: list[str]
    rows: list[list[str]]


# ---- grids ----


def step_grids(steps: list[Measured]) -> dict[str, Grid]:
    """Returns a grid per docs marker with what was measured, empty ones left out."""
    found = {}
    for marker, (title, groups) in STEP_TABLES.items():
        chosen = [measured for measured in steps if WORKLOADS[measured.workload].group in groups]
        if chosen:
            found[marker] = _step_grid(title, chosen)
    return found


def _step_grid(title: str, steps: list[Measured]) -> Grid:
    """A row per workload, a column per variant; the first variant that ran is the one the others are divided by."""
    variants = [variant for variant in VARIANTS if any(m.variant == variant and m.samples_s for m in steps)]
    by_place = {(m.workload, m.variant): m for m in steps}
    names = list(dict.fromkeys(m.workload for m in steps))
    rows = []
    for name in names:
        base = by_place.get((name, variants[0])) if variants else None
        cells = [_step_cell(by_place.get((name, variant)), base) for variant in variants]
        rows.append([name, *cells, _rate(name, base)])
    if len(names) > 1:
        means = [_mean_ratio(names, variant, variants[0], by_place) for variant in variants]
        rows.append(["geometric mean", *means, ""])
    return Grid(title, ["", *variants, f"{variants[0]} does" if variants else ""], rows)


def _step_cell(measured: Measured | None, base: Measured | None) -> str:
    """Median, ratio and spread; "!" when the results are off, "failed" when there are none."""
    if measured is None:
        return "-"
    if not measured.samples_s:
        return "failed"
    low, high = min(measured.samples_s), max(measured.samples_s)
    ratio = f" {measured.median_s / base.median_s:.2f}x" if base is not None and base.samples_s else ""
    wrong = "" if measured.error is not None and measured.error <= 1 else " !"
    return f"{seconds(measured.median_s)}{ratio}{wrong} ({seconds(low)}..{seconds(high)})"


def _mean_ratio(names: list[str], variant: str, base: str, by_place: dict[tuple[str, str], Measured]) -> str:
    pairs = [(by_place.get((name, variant)), by_place.get((name, base))) for name in names]
    logs = [log(m.median_s / b.median_s) for m, b in pairs if m and b and m.samples_s and b.samples_s]
    return f"{exp(sum(logs) / len(logs)):.2f}x" if logs else "-"


def _rate(name: str, measured: Measured | None) -> str:
    """What the first variant reaches: GFLOP/s, or GB/s where memory is the limit."""
    if measured is None or not measured.samples_s:
        return ""
    workload = WORKLOADS[name]
    if isinstance(workload, Forward) and workload.nbytes_moved:
        return f"{workload.nbytes_moved / measured.median_s / 1e9:.1f} GB/s"
    assert isinstance(workload, (Forward, Training))
    return f"{workload.flops / measured.median_s / 1e9:.1f} GFLOP/s"


def startup_grid(startups: list[Startup]) -> Grid:
    """A row per workload and variant: seconds to the first step, memory."""
    heads = ["workload", "variant", "cold", "warm", "of it import", "resident memory", "bytes of tensors"]
    rows = []
    for found in startups:
        if found.problem:
            rows.append([found.workload, found.variant, "failed", "", "", "", ""])
            continue
        imported = found.warm[0]["import_s"] or 0.0
        tensors = "n/a" if found.tensor_nbytes is None else nbytes(found.tensor_nbytes)
        times = [seconds(found.cold_s), seconds(found.warm_s), seconds(imported)]
        rows.append([found.workload, found.variant, *times, nbytes(found.resident_nbytes), tensors])
    return Grid("Fresh process to the end of the first step, and peak memory", heads, rows)


def accuracy_grid(steps: list[Measured]) -> Grid:
    """A row per group: the tolerance, and the worst error of each variant as a share of it."""
    variants = [variant for variant in VARIANTS if any(m.variant == variant and m.error is not None for m in steps)]
    rows = []
    for group in dict.fromkeys(WORKLOADS[m.workload].group for m in steps):
        mine = [m for m in steps if WORKLOADS[m.workload].group == group and m.error is not None]
        worst = [max((m.error or 0.0 for m in mine if m.variant == v), default=None) for v in variants]
        rows.append([group, *("-" if w is None else f"{w:.3f}" for w in worst), mine[0].tolerance if mine else ""])
    return Grid("Worst error against float64, as a share of the tolerance", ["", *variants, "tolerance"], rows)


def seconds(value: float) -> str:
    """Returns a time with three figures and its unit.

    >>> seconds(0.000012345), seconds(0.5)
    ('12.3 us', '500 ms')
    """
    return _with_unit(value, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)))


def nbytes(value: float) -> str:
    """Returns a count of bytes with three figures and its unit.

    >>> nbytes(64 * 2**20)
    '64 MiB'
    """
    return _with_unit(value, (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)))


def _with_unit(value: float, units: tuple[tuple[str, float], ...]) -> str:
    unit, scale = next((pair for pair in units if value >= pair[1]), units[-1])
    return f"{float(f'{value / scale:.3g}'):g} {unit}"


def all_grids(steps: list[Measured], startups: list[Startup]) -> dict[str, Grid]:
    """Returns every table there are figures for, by its marker in the docs."""
    grids = step_grids(steps)
    if steps:
        grids["accuracy"] = accuracy_grid(steps)
    if startups:
        grids["startup"] = startup_grid(startups)
    return grids


# ---- screen and JSON ----


def show(steps: list[Measured], startups: list[Startup], console: Console) -> None:
    """Prints the tables, then each problem in one line."""
    for grid in all_grids(steps, startups).values():
        table = Table(title=grid.title, title_justify="left")
        for number, head in enumerate(grid.heads):
            table.add_column(head, justify="left" if number == 0 else "right")
        for row in grid.rows:
            table.add_row(*(cell.replace(" (", "\n(") for cell in row))
        console.print(table)
    everything: list[Measured | Startup] = [*steps, *startups]
    for found in everything:
        if found.problem:
            console.print(f"{found.workload}: {found.variant}: {found.problem}", markup=False, highlight=False)


def write_json(record: dict[str, Any], path: Path) -> None:
    """Writes the record; raw samples keep seven figures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_rounded(record), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return [_rounded(inner) for inner in value] if isinstance(value, list) else value


def read_json(path: Path) -> tuple[dict[str, Any], list[Measured], list[Startup]]:
    """Returns the record of a run, and its figures as records again."""
    record: dict[str, Any] = json.loads(path.read_text())
    steps = [Measured(**{f.name: row[f.name] for f in fields(Measured)}) for row in record["steps"]]
    startups = [Startup(**{f.name: row[f.name] for f in fields(Startup)}) for row in record["startup"]]
    return record, steps, startups


# ---- docs ----


def update_docs(result: Path, page: Path) -> list[str]:
    """Replaces what stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; returns the names replaced.

    NAME is "run" (machine, versions, commit, command) or the marker of a table.
    """
    record, steps, startups = read_json(result)
    texts = {"run": describe_run(record)}
    texts |= {marker: markdown(grid) for marker, grid in all_grids(steps, startups).items()}
    text, replaced = page.read_text(), []
    for name, inner in texts.items():
        begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
        if begin in text and end in text:
            head, _, rest = text.partition(begin)
            text = f"{head}{begin}\n{inner}\n{end}{rest.partition(end)[2]}"
            replaced.append(name)
    page.write_text(text)
    return replaced


def markdown(grid: Grid) -> str:
    """Returns a grid as a Markdown table under its title."""
    lines = [f"**{grid.title}**", "", "| " + " | ".join(grid.heads) + " |"]
    lines.append("|---|" + "---:|" * (len(grid.heads) - 1))
    lines += ["| " + " | ".join(cell.replace(" (", "<br>(") for cell in row) + " |" for row in grid.rows]
    return "\n".join(lines)


def describe_run(record: dict[str, Any]) -> str:
    """Returns machine, versions, commit and command as a Markdown list."""
    machine, versions = record["machine"], record["versions"]
    used = ", ".join(f"{name} {text}" for name, text in versions.items())
    return "\n".join(
        [
            f"- machine: {machine['processor']}, {machine['cores']} cores, {nbytes(machine['memory_nbytes'])}, "
            f"{machine['system']}, Python {machine['python']}; load when started {machine['load_average']:.2f}",
            f"- versions: {used}",
            f"- commit: {record['commit'][:12]}{', modified' if record['is_modified'] else ''}, {record['date']}",
            f"- command: `{record['command']}` ({record['wall_s']:.0f} s)",
            f"- {record['settings']['num_threads']} threads for every framework, {record['settings']['rounds']} rounds",
        ]
    )


def main(result: tyro.conf.Positional[Path], docs: Path | None = None) -> None:
    """Shows the tables of a run that was kept; with --docs, writes them into that page.

    Args:
        result: a file of bench/results
        docs:   a page with markers, as docs/performance.md
    """
    _, steps, startups = read_json(result)
    console = Console(width=max(Console().width, 200))
    show(steps, startups, console)
    if docs is not None:
        console.print(f"{docs}: replaced {', '.join(update_docs(result, docs))}")


if __name__ == "__main__":
    tyro.cli(main)
