"""Prints the worst error of each function, in ulp, as the table that stands in docs/conformance.md.

    python -m tools.numerics
"""

from __future__ import annotations

import os
import warnings

import numpy as np
import tyro

from tests.numerics.table import FUNCTIONS, measure


def main() -> None:
    """Measures the worst error of every function on the CPU, in ulp of float32."""
    os.environ["PICOGRAD_DEVICE"] = "CPU"
    warnings.simplefilter("ignore")
    print("| function | worst error (ulp of float32) | at | bound |\n|---|---|---|---|")
    for row in FUNCTIONS:
        found = measure(row, np.random.default_rng(0))
        print(f"| {row.name} | {found.ulp:.2f} | {', '.join(f'{x:.9g}' for x in found.worst)} | {row.ulp} |")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.numerics")
