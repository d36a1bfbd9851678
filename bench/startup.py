"""Measures start-up and memory: fresh processes, first with empty caches, then with the caches those left.

In:    variants and the name of a workload
Out:   one `Startup` per variant
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.driver import ROOT, environment, without_paths
from bench.peers import why_left_out
from bench.workloads import WORKLOADS

Figures = dict[str, float | None]

LIMIT_S = 120.0
# A variant whose first step took longer than this is not tried on deeper networks.
PATIENCE_S = 20.0


@dataclass
class Startup:
    """Fresh processes of one variant on one workload; the figures are those of `bench.first_step.first_step`.

    cold:     with empty caches on disk (files of the frameworks themselves may be in the system's page cache)
    warm:     with the caches the cold process left, one entry per process
    problem:  why there are no figures, in one line
    """

    workload: str
    variant: str
    cold: Figures = field(default_factory=dict)
    warm: list[Figures] = field(default_factory=list)
    problem: str = ""

    @property
    def cold_s(self) -> float:
        return _total_s(self.cold)

    @property
    def warm_s(self) -> float:
        return median(_total_s(figures) for figures in self.warm)

    @property
    def resident_nbytes(self) -> float:
        """Peak resident memory of a warm process, less what it had before it imported the framework."""
        return median((f["resident_nbytes"] or 0) - (f["start_nbytes"] or 0) for f in self.warm)

    @property
    def tensor_nbytes(self) -> float | None:
        return self.warm[0]["tensor_nbytes"]

    @property
    def scratch_nbytes(self) -> float | None:
        return self.warm[0].get("scratch_nbytes")  # which older results do not have

    def counted(self, what: str) -> float | None:
        """The "kernels" of a step or the "binaries" of a process, where the framework counts them."""
        return self.cold.get(what)


def _total_s(figures: Figures) -> float:
    return (figures["import_s"] or 0.0) + (figures["first_s"] or 0.0)


def measure(workload: str, variants: list[str], num_warm: int, num_threads: int) -> list[Startup]:
    """Measures one workload in every variant; the warm processes of the variants take turns."""
    with tempfile.TemporaryDirectory(prefix="bench_cache_") as folder:
        found = {variant: Startup(workload, variant) for variant in variants}
        for startup in found.values():
            startup.problem = why_left_out(WORKLOADS[workload], startup.variant)
        for turn in range(1 + num_warm):
            for variant, startup in found.items():
                if not startup.problem:
                    _run_once(startup, Path(folder) / variant, turn == 0, num_threads)
    return list(found.values())


def measure_depths(workloads: list[str], variants: list[str], num_threads: int) -> list[Startup]:
    """Measures ever deeper networks, in the order given; a variant that is too slow on one is left out from there on."""
    found: list[Startup] = []
    slow: dict[str, str] = {}
    for workload in workloads:
        ready = [variant for variant in variants if variant not in slow]
        now = measure(workload, ready, 1, num_threads)
        found += now
        found += [Startup(workload, variant, problem=f"left out: {why}") for variant, why in slow.items()]
        for startup in now:
            if startup.problem:
                slow[startup.variant] = f"{workload}: {startup.problem}"
            elif startup.cold_s > PATIENCE_S:
                slow[startup.variant] = f"{workload} took {startup.cold_s:.0f} s"
    return found


def _run_once(startup: Startup, cache: Path, is_cold: bool, num_threads: int) -> None:
    """Has a fresh process take one step and notes its figures, or the problem that it had."""
    cache.mkdir(exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "bench.first_step", startup.variant, startup.workload]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**environment(num_threads), **cache_variables(cache)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        startup.problem = f"no first step in {LIMIT_S:.0f} s"
        return
    if done.returncode != 0 or not done.stdout.strip():
        lines = done.stderr.strip().splitlines() or ["no message"]
        startup.problem = without_paths(lines[-1])[:200]
        return
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    if is_cold:
        startup.cold = figures
    else:
        startup.warm.append(figures)


def cache_variables(folder: Path) -> dict[str, str]:
    """Returns what makes each framework keep its compiled code in `folder`."""
    return {
        "PICOGRAD_CACHE": str(folder / "picograd"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "CACHEDB": str(folder / "tinygrad" / "cache.db"),
    }
