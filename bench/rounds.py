"""Measures the steps: the frameworks take turns, round after round, on the same workload.

In:    workloads, variants, `Settings`
Out:   one `Measured` per workload and variant, with its raw samples
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.driver import Worker, WorkerError
from bench.peers import has, why_left_out
from bench.reference import Verdict, make_judge
from bench.workloads import Workload


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    rounds:       samples per framework and workload
    min_sample_s: each sample repeats the step until it takes at least this long
    budget_s:     a framework that has taken this long sits out the other rounds, after two samples;
                  one whose single step takes this long gets no further sample than the first trial
    patience_s:   one that has not answered in this time, compiling included, is given up for the workload
    num_threads:  for every framework
    """

    rounds: int = 7
    min_sample_s: float = 0.02
    budget_s: float = 1.0
    patience_s: float = 90.0
    num_threads: int = 2


@dataclass
class Measured:
    """One workload in one variant.

    samples_s:  seconds per step, one entry per round
    count:      steps in one sample
    setup_s:    seconds from start weights to the figures that were compared, compiling included
    error:      of the results, in units of the tolerance; fine up to 1
    problem:    why there are no samples, in one line
    """

    workload: str
    variant: str
    samples_s: list[float] = field(default_factory=list)
    count: int = 0
    setup_s: float = 0.0
    error: float | None = None
    tolerance: str = ""
    problem: str = ""

    @property
    def median_s(self) -> float:
        return median(self.samples_s)


# Idle thread pools spin for a few milliseconds after their last work: let them go to sleep before another's turn.
# OpenBLAS's take a hundred: whoever came next had half its processors.
SETTLE_S = 0.01
SETTLE_AFTER_S = {"numpy": 0.3}


class Field:
    """The workers of a run, started once and kept; one that dies is started anew for the next workload."""

    def __init__(self, variants: list[str], settings: Settings, say: Callable[[str], None]) -> None:
        self.settings, self.say = settings, say
        self.workers: dict[str, Worker] = {}
        self.versions: dict[str, str] = {}
        for variant in variants:
            self._start(variant)

    def _start(self, variant: str) -> None:
        self.workers.pop(variant, None)
        try:
            self.workers[variant] = worker = Worker(variant, self.settings.num_threads)
            self.versions[variant] = worker.version
        except WorkerError as error:
            self.say(f"left out: {variant}: {error}")

    def measure(self, workload: Workload) -> list[Measured]:
        """Measures one workload in every variant that has it, taking turns."""
        judge = make_judge(workload)
        entrants = [self._prepare(workload, variant, judge) for variant in list(self.workers) if has(workload, variant)]
        ready = [measured for measured in entrants if not measured.problem]
        spent = dict.fromkeys(self.workers, 0.0)
        for number in range(self.settings.rounds):
            turn = number % max(1, len(ready))
            for measured in ready[turn:] + ready[:turn]:
                if self._wants_more(measured, spent[measured.variant]):
                    spent[measured.variant] += self._sample(measured)
        self._drop_all()
        return entrants

    def _prepare(self, workload: Workload, variant: str, judge: Callable[[list[float]], Verdict]) -> Measured:
        """Has a worker make its workload, asks how many steps a sample has to have, and judges its first losses."""
        measured = Measured(workload.name, variant, problem=why_left_out(workload, variant))
        if measured.problem:
            return measured
        start = time.perf_counter()
        try:
            values = self._ask(variant, "make", workload=workload.name)["values"]
            measured.setup_s = time.perf_counter() - start
            trial = self._ask(variant, "calibrate", min_s=self.settings.min_sample_s)
        except WorkerError as error:
            measured.problem = str(error)
            return measured
        measured.count = trial["count"]
        if trial["step_s"] >= self.settings.budget_s:
            measured.samples_s = [trial["step_s"]]
        verdict = judge(values)
        measured.error, measured.tolerance = verdict.error, verdict.tolerance
        if not verdict.is_right:
            self.say(f"{workload.name}: {variant} is off by {verdict.error:.3g} tolerances ({verdict.tolerance})")
        return measured

    def _wants_more(self, measured: Measured, spent_s: float) -> bool:
        if measured.problem or (measured.samples_s and measured.samples_s[0] >= self.settings.budget_s):
            return False
        return len(measured.samples_s) < 2 or spent_s < self.settings.budget_s

    def _ask(self, variant: str, do: str, **arguments: object) -> dict[str, Any]:
        return self.workers[variant].ask(do, self.settings.patience_s, **arguments)

    def _sample(self, measured: Measured) -> float:
        time.sleep(SETTLE_S)
        start = time.perf_counter()
        try:
            measured.samples_s.append(self._ask(measured.variant, "sample", count=measured.count)["step_s"])
        except WorkerError as error:
            measured.problem = str(error)
        spent_s = time.perf_counter() - start
        time.sleep(SETTLE_AFTER_S.get(measured.variant, 0.0))
        return spent_s

    def _drop_all(self) -> None:
        for variant, worker in list(self.workers.items()):
            try:
                worker.ask("drop")
            except WorkerError:
                worker.close()
                self._start(variant)

    def close(self) -> None:
        """Ends all workers."""
        for worker in self.workers.values():
            worker.close()
