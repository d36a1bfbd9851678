"""Attention by warpgroups on a Hopper GPU: every cut, right and timed, beside PyTorch's flash attention and cuDNN's.

    python -m bench.gpu_attention --seconds 100 --json FILE
    python -m bench.gpu_attention --simulate           (tiny sizes, on the simulator: to try the program)

In:    nothing
Out:   a table, last; all samples as JSON

Work is done in a process of its own, as bench/gpu_products.py says.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

from bench.gpu_attention_work import parse
from bench.gpu_heads import REFERENCES, Problem, problems
from bench.gpu_products import FAR, watched


def table(results: dict[str, Any], names: list[Problem]) -> list[str]:
    """Returns a row for each attention: the rates of PyTorch's ways, and of each cut, the first choice first."""
    rows = [
        f"{'attention':30} {'torch':>6} {'flash':>6} {'cudnn':>6}  TFLOP/s of each cut, the first choice first; * the best"
    ]
    for problem in names:
        own = {key.split("|")[1]: each for key, each in results.items() if key.split("|")[0] == problem.name}
        ours = {name: each for name, each in own.items() if not name.startswith("torch")}
        wrong = [name for name, each in ours.items() if each.get("error") or each.get("distance", 0) > FAR]
        if not problem.is_timed:
            most = max((each["distance"] for each in ours.values() if "distance" in each), default=float("nan"))
            rows.append(f"{problem.name:30} {len(ours)} variants, {len(wrong)} wrong, {most:.1e} apart")
            continue
        rate = {name: problem.flops / median(each["samples"]) / 1e12 for name, each in own.items() if each.get("samples")}
        theirs = [rate.pop(f"torch {name}", float("nan")) for name in REFERENCES]
        rate = {name: value for name, value in rate.items() if name not in wrong}
        best = max(rate, key=rate.__getitem__, default="")
        shown = ", ".join(f"{name} {value:.0f}{'*' * (name == best)}" for name, value in rate.items())
        of_wrong = f"; {len(wrong)} WRONG" if wrong else ""
        rows.append(f"{problem.name:30} {' '.join(f'{each:6.0f}' for each in theirs)}  {shown}{of_wrong}")
    return rows


def main() -> None:
    """Measures, keeps all samples, and prints the table."""
    arguments = parse()
    results, notes = watched(arguments, "bench.gpu_attention_work")
    if arguments.json is not None:
        Path(arguments.json).write_text(json.dumps({"results": results, "notes": notes}, indent=1) + "\n")
    print("\n".join([*notes[-12:], *table(results, problems(arguments.simulate, arguments.only))]), flush=True)


if __name__ == "__main__":
    main()
