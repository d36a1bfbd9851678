"""Products of matrices by warpgroups on a Hopper GPU: every tile of the menu, right and timed, beside PyTorch (cuBLAS).

    python -m bench.gpu_products --seconds 220 --json FILE
    python -m bench.gpu_products --simulate            (tiny sizes, on the simulator: to try the program)

In:    nothing
Out:   a table, last; all samples as JSON

Work is done in a process of its own, which is ended and begun again where a variant hangs or spoils the GPU; what it
has done is not done again. Times are of the device, between two events around a graph of launches on some sets of memory;
the first results of a variant are compared with those of a higher precision, on memory that held NaN.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from bench.gpu_products_list import Problem, problems
from bench.gpu_products_work import parse

HANGS = "hangs, or ended its process"
FAR = 1e-2  # of bfloat16, |a - b| / |b|
SILENT_SECONDS, SIMULATED_SECONDS, STARTING_SECONDS, MOST_STARTS = 8, 100, 150, 12


def watched(
    arguments: argparse.Namespace, module: str = "bench.gpu_products_work", known: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Returns what the working process has told of each variant, and notes; it is begun again where it must be.

    Args:
      known:  of an earlier run, which is not done again
    """
    begin, results, notes = time.perf_counter(), dict(known or {}), list[str]()
    command = [sys.executable, "-m", module, "--only", arguments.only]
    command += ["--threads", str(arguments.threads), *["--simulate"] * arguments.simulate]
    current: list[str | None] = [None]  # the variant that runs; None before the first, "" between two
    silent = SIMULATED_SECONDS if arguments.simulate else SILENT_SECONDS

    def patience() -> float:
        return STARTING_SECONDS if current[0] is None else silent

    for start in range(MOST_STARTS):
        failed = Counter(key.split("|")[0] for key, each in results.items() if each.get("error") == HANGS)
        skipped = [key for key in results if "torch" not in key] + [f"{name}|*" for name, n in failed.items() if n > 1]
        environment = {**os.environ, "SKIP": json.dumps(skipped)}
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": environment}
        with subprocess.Popen(command, **pipe) as child:  # type: ignore[call-overload]
            current[0], is_done = None, False
            for line in lines_of(child, lambda: begin + arguments.seconds, patience):
                try:
                    told = dict(json.loads(line))
                except (TypeError, ValueError):
                    notes.append(line.rstrip()[:400])
                    continue
                if "begin" in told:
                    current[0] = told["begin"]
                elif "key" in told:
                    results[told.pop("key")] = told
                    current[0] = ""
                    if told.get("error") or told.get("distance", 0) > FAR:
                        print(f"WRONG {list(results)[-1]}: {told}", flush=True)
                elif "note" in told:
                    notes.append(told["note"])
                is_done = "done" in told
            child.kill()
        if is_done or time.perf_counter() - begin > arguments.seconds:
            break
        if current[0]:
            results.setdefault(current[0], {"error": HANGS})
            print(f"WRONG {current[0]}: {results[current[0]]}", flush=True)
        notes.append(f"begun again ({start + 1}) after {time.perf_counter() - begin:.0f} s at {current[0]}")
    notes.append(f"{time.perf_counter() - begin:.1f} s in all")
    return results, notes


def lines_of(child: Any, until: Callable[[], float], patience: Callable[[], float]) -> Iterator[str]:
    """Gives a process's lines, until it ends, or says nothing for so many seconds, or time is over."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in child.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        left = min(patience(), until() - time.perf_counter())
        try:
            line = lines.get(timeout=max(0.01, left))
        except queue.Empty:
            return
        if line is None:
            return
        yield line


def table(results: dict[str, Any], names: list[Problem]) -> list[str]:
    """Returns a row for each product: PyTorch's rate, the best variants', and what the model would have taken."""
    head = f"{'product':22} {'torch':>6} {'best':>6} {'%':>5} {'model':>6} {'%':>5} {'apart':>11}"
    rows = [f"{head}  TFLOP/s; the best variants"]
    for problem in names:
        own = {key.split("|")[1]: each for key, each in results.items() if key.split("|")[0] == problem.name}
        ours = {name: each for name, each in own.items() if "torch" not in name}
        wrong = [name for name, each in ours.items() if each.get("error") or each.get("distance", 0) > problem.far]
        if not problem.is_timed:
            most = max((each["distance"] for each in ours.values() if "distance" in each), default=float("nan"))
            rows.append(f"{problem.name:22} {len(ours)} variants, {len(wrong)} wrong, {most:.1e} apart")
            continue
        times = {name: median(each["samples"]) for name, each in ours.items() if each.get("samples") and name not in wrong}
        torch = [median(each["samples"]) for name, each in own.items() if "torch" in name and each.get("samples")]
        if not times:
            rows.append(f"{problem.name:22} no times; {len(ours)} variants, {len(wrong)} wrong")
            continue
        rate = {name: problem.flops / seconds / 1e12 for name, seconds in times.items()}
        order = sorted(rate, key=rate.__getitem__, reverse=True)
        of_torch = problem.flops / median(torch) / 1e12 if torch else float("nan")
        model = next(iter(rate))
        apart = f"{ours[model]['distance']:.0e}" + (f"/{own['torch']['distance']:.0e}" if "torch" in own else "")
        best = ", ".join(f"{name} {rate[name]:.0f}" for name in [*order[:3], *[n for n in order[3:] if n == "generated"]])
        rows.append(
            f"{problem.name:22} {of_torch:6.0f} {rate[order[0]]:6.0f} {rate[order[0]] / of_torch:5.0%} {rate[model]:6.0f}"
            f" {rate[model] / of_torch:5.0%} {apart:>11}  {best}{f'; {len(wrong)} WRONG' if wrong else ''}"
        )
    return rows


def main() -> None:
    """Measures, keeps all samples, and prints the table."""
    arguments = parse()
    listed = problems(arguments.simulate, arguments.only)
    results, notes = watched(arguments)
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps({"results": results, "notes": notes}, indent=1) + "\n")
    print("\n".join([*notes[-12:], *table(results, listed)]), flush=True)


if __name__ == "__main__":
    main()
