"""The command line: see tools/opinfo/__init__.py."""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from tools.opinfo.calls import check
from tools.opinfo.found import Row
from tools.opinfo.modules import check_modules, check_optimizers

KINDS = ("samples", "gradients", "errors", "modules", "optimizers")
DTYPES = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "uint8", "bool")


def main() -> None:
    """Reads the command line, checks, and prints a table."""
    parser = argparse.ArgumentParser("python -m tools.opinfo", description="Compares picograd with PyTorch's operators.")
    parser.add_argument("--op", action="append", help="a name of the table; repeatable (default: all)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="what to compare; repeatable (default: all)")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="repeatable (default: float32)")
    parser.add_argument("--samples", type=int, help="largest number of samples of each operator")
    parser.add_argument("--json", help="file that receives all rows, one a line")
    options = parser.parse_args()
    rows = []
    with open(options.json or os.devnull, "w", encoding="utf-8") as file:
        for row in run(options.op, options.kind or KINDS, options.dtype or ["float32"], options.samples):
            rows.append(row)
            print(json.dumps(asdict(row)), file=file, flush=True)
            if text := described(row):
                print(text, flush=True)
    print(summary(rows))


def run(names: list[str] | None, kinds: Any, dtypes: list[str], limit: int | None = None) -> Iterator[Row]:
    """Yields what was found, an operator after the other."""
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    if "modules" in kinds:
        yield from check_modules(names, limit)
    if "optimizers" in kinds:
        yield from check_optimizers(names, limit)
    for op in op_db:
        if names is not None and op.name not in names:
            continue
        print(op.name, file=sys.stderr, flush=True)
        for kind in (kind for kind in kinds if kind not in ("modules", "optimizers")):
            for dtype in dtypes if kind != "errors" else ("float32",):
                row = check(op, kind, dtype, limit)
                if row is not None:
                    yield row


def described(row: Row) -> str:
    """Returns what is not right of an operator; "": all is."""
    if row.verdict in ("right", "skipped", "not applicable"):
        return ""
    examples = [f"    {example}" for example in row.examples if not example.startswith("skipped")]
    return "\n".join([f"{row.verdict:8} {row.op} {row.kind} {row.dtype} {row.counts}", *examples])


def summary(rows: list[Row]) -> str:
    """Returns how many operators got which verdict, by the kind of check."""
    lines = []
    for kind in KINDS:
        counts = Counter(row.verdict for row in rows if row.kind == kind)
        if counts:
            lines.append(f"{kind}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
