"""Draws what a run measured of perceptrons: the time of a training step against the number of parameters.

    python -m bench.plots bench/results/headline.json --out docs/headline.svg

In:    the JSON of a run with workloads of the group "headline"
Out:   an SVG, both axes logarithmic, a line for each variant
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import tyro
from matplotlib.figure import Figure

from bench.peers import VARIANTS
from bench.report import describe_source, read_json
from bench.rounds import Measured
from bench.workloads import WORKLOADS

GROUP = "headline"
# Told apart by all: the colours of Okabe and Ito, "Color universal design" (2008), and a marker for each.
COLORS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#000000", "#999999")
MARKERS = "osD^vPXd"
LABELS = {"picograd": "picograd, jit", "torch": "PyTorch", "torch_compile": "PyTorch, compiled", "numpy": "NumPy"}
LABELS |= {"lists": "Python's lists", "picograd_cuda": "picograd, CUDA", "torch_cuda": "PyTorch, CUDA"}


def lines_of(steps: list[Measured]) -> dict[str, list[tuple[int, float]]]:
    """Returns for each variant that ran its points, from few parameters to many: (parameters, seconds of a step)."""
    points: dict[str, list[tuple[int, float]]] = {}
    for measured in steps:
        if WORKLOADS[measured.workload].group == GROUP and measured.samples_s:
            num_parameters = int(measured.workload.removeprefix(f"{GROUP}_"))
            points.setdefault(measured.variant, []).append((num_parameters, measured.median_s))
    return {variant: sorted(points[variant]) for variant in VARIANTS if variant in points}


def draw(steps: list[Measured], source: str) -> Figure:
    """Returns the picture; `source` says under it what was measured where.

    Raises:
      ValueError: there is nothing to draw.
    """
    lines = lines_of(steps)
    if not lines:
        raise ValueError(f"plots: no workload of the group {GROUP!r} was measured in this run.")
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for number, (variant, points) in enumerate(lines.items()):
        width = 2.8 if variant.startswith("picograd") else 1.4
        look = {"color": COLORS[number % len(COLORS)], "marker": MARKERS[number % len(MARKERS)], "linewidth": width}
        axes.loglog(*zip(*points), markersize=5, label=LABELS.get(variant, variant.replace("_", ", ")), **look)
    axes.set_title("One training step of a perceptron, batch 100: lower is faster")
    axes.set_xlabel("parameters")
    axes.set_ylabel("seconds")
    axes.grid(which="major", linewidth=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)  # beside the plot: it hides no line
    figure.supxlabel(source, fontsize=7)
    return figure


def write_svg(figure: Figure, path: Path) -> None:
    """Writes a picture whose text stays text, and that is the same file for the same figures."""
    settings: dict[str, Any] = {"svg.fonttype": "none", "svg.hashsalt": "picograd"}
    with matplotlib.rc_context(settings):
        figure.savefig(path, format="svg", metadata={"Date": None})


def main(result: tyro.conf.Positional[Path], out: Path) -> None:
    """Draws a kept run.

    Args:
        result: file in bench/results
        out: SVG file to write
    """
    record, figures = read_json(result)
    write_svg(draw(figures.steps, describe_source(record).strip("*")), out)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m bench.plots")
