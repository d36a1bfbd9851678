"""All candidates of the kernels that matter on a GPU, timed and ranked within some minutes; nothing is done twice.

    python -m bench.gpu_sweep --minutes 6 --json FILE        on a GPU; again with the same FILE it goes on where it stopped
    python -m bench.gpu_sweep --simulate --json FILE         tiny sizes, on the simulator: to try the program

In:    minutes, a file
Out:   FILE: the machine, all samples, and for each problem the fastest candidate beside the model's choice; a table, last

Parts follow each other, and each has its share of the time: products (tiles, stages, parts of K, orders, epilogues),
attention and its gradients (cuts, lags), then steps of training and what memory limits, by bench.gpu. FILE is written after
each part.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import gpu_attention, gpu_products
from bench.machine import describe_commit

# The programs that time candidates, each with its part of the time that is left.
CANDIDATES = {"products": ("bench.gpu_products_work", 0.45), "attention": ("bench.gpu_attention_work", 0.5)}
OTHERS = "step,layer norm,RMS norm,softmax"  # cases of bench.gpu
REST_SECONDS_MIN = 20.0


# ---- ranks ----
def ranks(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns for each problem the fastest right candidate, the model's, and by how much that is slower.

    Candidates are in the model's order: the first is its choice.
    """
    by_problem: dict[str, dict[str, float]] = {}
    for key, told in results.items():
        name, _, candidate = key.partition("|")
        is_right = not told.get("error") and told.get("distance", 0) <= gpu_products.FAR
        if "torch" not in candidate and is_right and told.get("samples"):
            by_problem.setdefault(name, {})[candidate] = median(told["samples"])
    found = {}
    for name, seconds in by_problem.items():
        best, model = min(seconds, key=seconds.__getitem__), next(iter(seconds))
        found[name] = {"best": best, "seconds": seconds[best], "model": model, "slower": seconds[model] / seconds[best]}
    return found


def lines(found: Mapping[str, dict[str, Any]]) -> list[str]:
    """Returns a line for each problem, those first of which the model's choice loses most."""
    rows = []
    for name in sorted(found, key=lambda name: -found[name]["slower"]):
        one = found[name]
        winner = one["best"] if one["best"] == one["model"] else f"{one['best']}, not {one['model']}"
        rows.append(f"{one['slower']:6.3f}  {name:30} {one['seconds'] * 1e6:9.1f} us  {winner}")
    return rows


# ---- all of it ----
def sweep(arguments: argparse.Namespace, kept: dict[str, Any]) -> None:
    """Times what is not in `kept`, and puts it there."""
    until = time.perf_counter() + 60 * arguments.minutes
    for part, (module, share) in CANDIDATES.items():
        known = kept.setdefault(part, {"results": {}, "notes": []})
        arguments.seconds = share * (until - time.perf_counter())
        results, notes = gpu_products.watched(arguments, module, known["results"])
        kept[part] = {"results": results, "notes": [*known["notes"], *notes], "ranks": ranks(results)}
        Path(arguments.json).write_text(json.dumps(kept, indent=1) + "\n")
    left = until - time.perf_counter()
    if left >= REST_SECONDS_MIN and "others" not in kept:
        kept["others"] = others(arguments, left)
        Path(arguments.json).write_text(json.dumps(kept, indent=1) + "\n")


def others(arguments: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Returns what bench.gpu finds of steps and of what memory limits, in a process of its own."""
    file = Path(f"{arguments.json}.others")
    minutes = f"{seconds / 60 - 0.2:.2f}"
    command = [sys.executable, "-m", "bench.gpu", "--minutes", minutes, "--only", OTHERS, "--json", str(file)]
    if arguments.simulate:
        command += ["--device", "CPU", "--small", "--variants", "picograd"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    file.unlink(missing_ok=True)
    return {**found, "status": done.returncode, "said": (done.stdout + done.stderr).splitlines()[-40:]}


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser("python -m bench.gpu_sweep", description="Times the candidates of a GPU's kernels.")
    parser.add_argument("--minutes", type=float, default=6.0, help="minutes in total, including compilations")
    parser.add_argument("--json", required=True, help="file that receives all samples; an existing one is continued")
    parser.add_argument("--only", default="", help="comma list of words with which names begin; all if empty")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads that compile")
    parser.add_argument("--simulate", action="store_true", help="run tiny sizes on the simulator")
    return parser.parse_args(words)


def main(arguments: argparse.Namespace) -> None:
    """Times, keeps all samples, and prints which candidates won."""
    path = Path(arguments.json)
    kept: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    kept |= describe_commit()
    sweep(arguments, kept)
    programs: dict[str, Any] = {"products": gpu_products, "attention": gpu_attention}
    for part, program in programs.items():
        listed = program.problems(arguments.simulate, arguments.only)
        print("\n".join([*kept[part]["notes"][-6:], *program.table(kept[part]["results"], listed), ""]))
        ranked = lines(kept[part]["ranks"])
        print(f"{part}: times of the model's choice over the fastest's", *ranked, "", sep="\n", flush=True)
    print("\n".join(kept.get("others", {}).get("said", [])))


if __name__ == "__main__":
    main(parse())
