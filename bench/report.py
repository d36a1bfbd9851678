"""Shows the figures: as tables on the screen and in docs/performance.md; keeps them as JSON.

    python -m bench.report bench/results/2cores.json --docs docs/performance.md

In:    `bench.grids.Figures`, or the JSON made of them
Out:   tables; the text between the markers of the docs page is replaced
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.grids import Figures, Grid, all_grids, nbytes
from bench.kernels import KernelTimes
from bench.rounds import Measured
from bench.startup import Startup
from picograd_lab.ladder.run import replace_marked

# ---- screen and JSON ----


def show(figures: Figures, console: Console) -> None:
    """Prints the tables, then each problem in one line."""
    for grid in all_grids(figures).values():
        table = Table(title=grid.title, title_justify="left")
        for number, head in enumerate(grid.heads):
            table.add_column(head, justify="left" if number == 0 else "right")
        for row in grid.rows:
            table.add_row(*(Text(cell.replace(" (", "\n(")) for cell in row))
        console.print(table)
    everything: list[Measured | Startup] = [*figures.steps, *figures.startup]
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


def read_json(path: Path) -> tuple[dict[str, Any], Figures]:
    """Returns the record of a run, and its figures as records again; older runs lack some."""
    record: dict[str, Any] = json.loads(path.read_text())
    found = {
        name: [kind(**{f.name: row[f.name] for f in fields(kind) if f.name in row}) for row in record.get(name, [])]
        for name, kind in (("steps", Measured), ("startup", Startup), ("kernels", KernelTimes))
    }
    return record, Figures(**found)


# ---- docs ----


def update_docs(result: Path, page: Path, only: list[str] | None = None) -> list[str]:
    """Replaces what stands between `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`; returns the names replaced.

    NAME is "run" (machine, versions, commit, command), or the marker of a table.

    Args:
      only: names that are replaced; all by default
    """
    record, figures = read_json(result)
    texts = {"run": describe_run(record)}
    source = describe_source(record)
    texts |= {marker: f"{markdown(grid)}\n\n{source}" for marker, grid in all_grids(figures).items()}
    text, replaced = page.read_text(), []
    for name, inner in texts.items():
        if only and name not in only:
            continue
        changed = replace_marked(text, f"bench:{name}", inner)
        if changed is not None:
            text = changed
            replaced.append(name)
    page.write_text(text)
    return replaced


def describe_source(record: dict[str, Any]) -> str:
    """Returns in one line what a table was measured on."""
    machine, versions = record["machine"], record["versions"]
    used = ", ".join(f"{name} {text}" for name, text in versions.items() if name != "picograd")
    commit = f"{record['commit'][:12]}{', modified' if record['is_modified'] else ''}"
    return f"*{machine['processor']}, {machine['cores']} cores; commit {commit}, {record['date'][:10]}; {used}*"


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


def main(result: tyro.conf.Positional[Path], docs: Path | None = None, only: str = "") -> None:
    """Shows the tables of a kept run; with --docs, writes them into that page.

    Args:
        result: file in bench/results
        docs: page with markers, such as docs/performance.md
        only: comma list of the tables to write, for a run that measured only some; all if empty
    """
    _, figures = read_json(result)
    console = Console(width=max(Console().width, 200))
    show(figures, console)
    if docs is not None:
        names = [name for name in only.split(",") if name]
        console.print(f"{docs}: replaced {', '.join(update_docs(result, docs, names))}")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m bench.report")
