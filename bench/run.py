"""One command: every workload in every framework installed, side by side, in turns.

    python -m bench.run                                    all of it, some fifteen minutes on two cores
    python -m bench.run --quick                            a check of a minute or two
    python -m bench.run --only mlp,matmul_512 --frameworks picograd,torch --repeats 11
    python -m bench.run --json bench/results/2cores.json   keep the raw samples
    python -m bench.report bench/results/2cores.json --docs docs/performance.md

In:    the table of bench/workloads.py, the variants of bench/peers/
Out:   tables on the screen, JSON on request
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tyro
from rich.console import Console

from bench import kernels, report, startup
from bench.driver import bind_to_cores, without_paths
from bench.grids import Figures
from bench.machine import describe_commit, describe_machine, describe_versions
from bench.peers import VARIANTS, has, is_installed
from bench.rounds import Field, Measured, Settings
from bench.workloads import QUICK, WORKLOADS, Workload, select

QUICK_SETTINGS = Settings(rounds=3, min_sample_s=0.005, budget_s=0.5)
BUSY_LOAD = 0.5
STARTUP_WORKLOADS = ("mnist_b32", "gelu_16m", "nanogpt", "lstm")


@dataclass(frozen=True)
class Arguments:
    """Compares picograd with its peers."""

    # Comma list of workloads, groups, or words with which names begin; all if empty.
    only: str = ""
    # Comma list of variants, such as picograd,picograd_eager,torch; all installed ones if empty.
    frameworks: str = ""
    # Samples per framework and workload; 0 means 7, or 3 with --quick.
    repeats: int = 0
    # Threads of every framework.
    threads: int = 2
    # File that receives the raw samples.
    json: Path | None = None
    # Measures few workloads, by short samples.
    quick: bool = False
    # Also measures fresh processes: start-up time, memory, deep networks, kernels compiled one by one.
    startup: bool = True


def main(arguments: Arguments) -> None:
    """Runs the benchmark and prints its tables."""
    console = Console(width=max(Console().width, 200))
    started = time.perf_counter()
    bind_to_cores(arguments.threads)
    machine = describe_machine()
    head = {"command": _command(), **describe_commit(), "machine": machine}
    if machine["load_average"] > BUSY_LOAD:
        console.print("others use this machine now: OpenMP's threads (torch) wait for each other, its figures mean little")
    workloads, variants, settings = _plan(arguments, console)
    steps, versions = _measure_steps([w for w in workloads if w.group != "depth"], variants, settings, console)
    figures = Figures(steps)
    if arguments.startup:
        figures.startup = _measure_startup(workloads, list(versions), arguments, console)
        if "picograd" in versions and any(w.group == "depth" for w in workloads):
            console.print("kernels, compiled one by one")
            figures.kernels = kernels.measure(arguments.threads)
    record = {
        **head,
        "versions": {**describe_versions(), **_by_framework(versions)},
        "settings": asdict(settings),
        "wall_s": time.perf_counter() - started,
        **asdict(figures),
    }
    report.show(figures, console)
    console.print(f"{record['wall_s']:.0f} s in all; {settings.num_threads} threads; x: time over the first column's.")
    if arguments.json is not None:
        report.write_json(record, arguments.json)
        console.print(f"wrote {arguments.json}")


def _command() -> str:
    return without_paths(shlex.join(["python", "-m", "bench.run", *sys.argv[1:]]))


def _plan(arguments: Arguments, console: Console) -> tuple[list[Workload], list[str], Settings]:
    """Returns what to run; says in one line each which variants are not installed."""
    words = [word for word in arguments.only.split(",") if word]
    workloads = [w for w in select(words) if words or not arguments.quick or w.name in QUICK]
    wanted = [word for word in arguments.frameworks.split(",") if word]
    unknown = [word for word in wanted if word not in VARIANTS]
    if unknown:
        raise SystemExit(f"--frameworks: {', '.join(unknown)} is not one of {', '.join(VARIANTS)}.")
    variants = [variant for variant in VARIANTS if not wanted or variant in wanted]
    for variant in [v for v in variants if not is_installed(v)]:
        console.print(f"left out: {variant}: {VARIANTS[variant][0]} is not installed")
    settings = QUICK_SETTINGS if arguments.quick else Settings()
    settings = replace(settings, num_threads=arguments.threads, rounds=arguments.repeats or settings.rounds)
    return workloads, [v for v in variants if is_installed(v)], settings


def _measure_steps(
    workloads: list[Workload], variants: list[str], settings: Settings, console: Console
) -> tuple[list[Measured], dict[str, str]]:
    """Returns all figures, and the versions of the variants that started."""
    field = Field(variants, settings, lambda line: console.print(line, highlight=False))
    steps: list[Measured] = []
    try:
        for number, workload in enumerate(workloads, 1):
            started = time.perf_counter()
            steps += field.measure(workload)
            took_s = time.perf_counter() - started
            console.print(f"[{number}/{len(workloads)}] {workload.name} {took_s:.1f} s", markup=False)
    finally:
        field.close()
    return steps, field.versions


def _measure_startup(
    workloads: list[Workload], variants: list[str], arguments: Arguments, console: Console
) -> list[startup.Startup]:
    """Measures start-up and memory of the workloads that are for that, then those whose graphs are deep."""
    chosen = [w.name for w in workloads if w.name in STARTUP_WORKLOADS[: 1 if arguments.quick else None]]
    found: list[startup.Startup] = []
    for name in chosen:
        console.print(f"start-up and memory: {name}")
        runnable = [variant for variant in variants if has(WORKLOADS[name], variant)]
        found += startup.measure(name, runnable, 1, arguments.threads)
    deep = [w.name for w in workloads if w.group == "depth"]
    if deep:
        console.print(f"depth: {', '.join(deep)}")
        runnable = [variant for variant in variants if has(WORKLOADS[deep[0]], variant)]
        found += startup.measure_depths(deep, runnable, arguments.threads)
    return found


def _by_framework(versions: dict[str, str]) -> dict[str, str]:
    return {VARIANTS[variant][0]: text for variant, text in versions.items()}


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.run"))
