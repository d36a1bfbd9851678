"""The programs that a PyTorch user writes, eager and jitted, cold and warm, beside the same file under PyTorch.

    python -m bench.cliffs                          all of it
    python -m bench.cliffs --only gpt,vae --quick   two programs, few and small steps
    python -m bench.cliffs --counts                 no times: plannings and compilations, also on a busy machine
    python -m bench.cliffs --counts --device CUDASIM
    python -m bench.cliffs --json bench/results/cliffs.json

In:    the programs of examples/ that bench/programs.py lists
Out:   a table on the screen, the worst cell named; JSON on request
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.cliffs_worker import Run
from bench.driver import ROOT, bind_to_cores, environment, without_paths
from bench.machine import describe_commit, describe_machine, describe_versions
from bench.programs import TINY

LIMIT_S = 1800.0
BUSY_LOAD = 0.5
SETTLED = 3  # epochs after which nothing is compiled any more
GOALS = {"cold": 3.0, "eager": 1.5, "jit": 1.0}  # times PyTorch's: the first epoch of both, a warm step of each


@dataclass(frozen=True)
class Arguments:
    """Runs programs that change lengths, offsets and numbers from step to step."""

    # Comma list of programs; all if empty.
    only: str = ""
    # Epochs of each run; the first is cold, those after the third must compile nothing.
    epochs: int = 5
    # Threads of both libraries.
    threads: int = 2
    # picograd's device: CPU, CUDASIM, NULL or CUDA.
    device: str = "CPU"
    # Counts plans and compilations only: no PyTorch, no warm process, no times.
    counts: bool = False
    # Few and small steps.
    quick: bool = False
    # File that receives all figures.
    json: Path | None = None


@dataclass
class Row:
    """A program in one form: eager or jit.

    cold, warm:  picograd with an empty cache, then a new process with the cache that this one left
    torch:       PyTorch, always eager
    """

    program: str
    form: str
    cold: Run = field(default_factory=Run)
    warm: Run = field(default_factory=Run)
    torch: Run = field(default_factory=Run)

    def ratio(self, cell: str) -> float | None:
        """Returns how often picograd takes PyTorch's time: "cold", the first epoch; "step", one of a warm process."""
        ours = self.cold.epoch_s[:1] if cell == "cold" else _late_steps(self.warm)
        theirs = self.torch.epoch_s[:1] if cell == "cold" else _late_steps(self.torch)
        return median(ours) / median(theirs) if ours and theirs else None

    def goal(self, cell: str) -> float:
        """Returns the most that `ratio(cell)` is to be."""
        return GOALS["cold" if cell == "cold" else self.form]

    def late(self, event: str) -> int:
        """Returns how often something happened after the epochs in which plans may be made."""
        return sum(getattr(self.cold, event)[SETTLED:])


def _late_steps(run: Run) -> list[float]:
    return run.step_s[min(SETTLED, len(run.step_s) - 1) :]


def main(arguments: Arguments) -> None:
    """Runs the programs and prints the table."""
    console = Console(width=max(Console().width, 160))
    bind_to_cores(arguments.threads)
    machine = describe_machine()
    if machine["load_average"] > BUSY_LOAD and not arguments.counts:
        console.print("others use this machine now: times mean little; --counts leaves them out")
    names = [name for name in arguments.only.split(",") if name] or list(TINY)
    unknown = [name for name in names if name not in TINY]
    if unknown:
        raise SystemExit(f"--only: {', '.join(unknown)} is not one of {', '.join(TINY)}.")
    rows: list[Row] = []
    for name in names:
        rows += measure(name, arguments)
        console.print(f"[{len(rows) // 2}/{len(names)}] {name}", markup=False, highlight=False)
    console.print(table(rows, arguments.counts))
    console.print(worst(rows, arguments.counts), highlight=False)
    if arguments.json is not None:
        head = {"command": without_paths(" ".join(["python -m bench.cliffs", *sys.argv[1:]])), **describe_commit()}
        settings = {**asdict(arguments), "json": ""}
        record = {**head, "machine": machine, "versions": describe_versions(), "settings": settings}
        arguments.json.write_text(json.dumps({**record, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def measure(name: str, arguments: Arguments) -> list[Row]:
    """Runs a program in both forms, each process alone on the machine."""
    torch = Run() if arguments.counts else start(name, "torch", "eager", arguments, "off")
    rows = []
    for form in ("eager", "jit"):
        with tempfile.TemporaryDirectory(prefix="cliffs_") as cache:
            row = Row(name, form, start(name, "picograd", form, arguments, cache), torch=torch)
            if not arguments.counts:
                row.warm = start(name, "picograd", form, arguments, cache)
        rows.append(row)
    return rows


def start(name: str, library: str, form: str, arguments: Arguments, cache: str) -> Run:
    """Returns what a new process says that runs a program in one library and form."""
    command = [sys.executable, "-W", "ignore", "-m", "bench.cliffs_worker", name, library, str(arguments.epochs)]
    command += [flag for flag, is_on in (("--jit", form == "jit"), ("--quick", arguments.quick)) if is_on]
    settings = {"PICOGRAD_CACHE": cache, "PICOGRAD_DEVICE": arguments.device}
    try:
        process = subprocess.run(
            command,
            cwd=ROOT,
            env={**environment(arguments.threads), **settings},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(problem=f"not done after {LIMIT_S:.0f} s")
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["no message"]
        return Run(problem=without_paths(f"process ended with {process.returncode}: {lines[-1]}"))
    found = Run(**json.loads(process.stdout))
    found.problem = without_paths(found.problem)
    return found


# ---- the table ----


def table(rows: list[Row], counts: bool) -> Table:
    """Returns a row for each program and form."""
    found = Table(title="plannings and compilations: all, and those after the third epoch; x: times PyTorch's")
    for head in ("program", "form", *(() if counts else ("first epoch, cold", "warm step")), "planned", "late"):
        found.add_column(head, justify="left" if head in ("program", "form") else "right")
    for head in ("compiled", "late", "memory, MB", *(() if counts else ("PyTorch's",)), "problem"):
        found.add_column(head, justify="left" if head == "problem" else "right")
    for row in rows:
        cells = [row.program, row.form]
        if not counts:
            cells += [_time(row, "cold"), _time(row, "step")]
        cells += [str(sum(row.cold.scheduled)), _marked(row.late("scheduled"), 0)]
        cells += [str(sum(row.cold.compiled)), _marked(row.late("compiled"), 0), f"{row.cold.nbytes / 1e6:.0f}"]
        if not counts:
            cells.append(f"{row.torch.nbytes / 1e6:.0f}")
        problems = [f"{run}: {getattr(row, run).problem}" for run in ("cold", "warm", "torch") if getattr(row, run).problem]
        found.add_row(*cells, escape("; ".join(problems)))
    return found


def _time(row: Row, cell: str) -> str:
    ratio = row.ratio(cell)
    if ratio is None:
        return "-"
    seconds = row.cold.epoch_s[0] if cell == "cold" else median(_late_steps(row.warm))
    text = f"{seconds:.2f} s" if cell == "cold" else f"{1e3 * seconds:.2f} ms"
    return f"{text} {_marked(ratio, row.goal(cell))}"


def _marked(value: float, goal: float) -> str:
    text = str(value) if isinstance(value, int) else f"{value:.2f}x"
    return f"[red]{text}[/red]" if value > goal else text


def worst(rows: list[Row], counts: bool) -> str:
    """Returns a sentence on the cell that misses its goal by most; without times, on what is compiled late."""
    if counts:
        row = max(rows, key=lambda row: (row.late("compiled"), row.late("scheduled"), sum(row.cold.scheduled)))
        late, planned = row.late("compiled"), row.late("scheduled")
        return f"worst: {row.program}, {row.form}: {late} compilations and {planned} plannings after epoch {SETTLED}"
    cells = [(ratio / row.goal(c), ratio, row, c) for row in rows for c in ("cold", "step") if (ratio := row.ratio(c))]
    if not cells:
        return "no cell has a time"
    _, ratio, row, cell = max(cells, key=lambda found: found[0])
    what = "the first epoch, cold," if cell == "cold" else "a warm step"
    return f"worst: {row.program}, {row.form}: {what} takes {ratio:.2f} of PyTorch's time, goal {row.goal(cell):.1f}"


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.cliffs"))
