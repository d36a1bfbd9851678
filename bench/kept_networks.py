"""The results of bench.networks that are kept, as sentences of docs/models.md and the table of docs/performance.md.

    python -m bench.kept_networks       writes the table

In:    bench/results/*-networks.json: of a network the newest that has its times, and the newest that has its distances
Out:   text
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import tyro

from bench.driver import ROOT
from picograd_lab.ladder.run import replace_marked

PAGE = ROOT / "docs" / "performance.md"
MARK = "bench:networks"
HEADS = (
    "network of `picograd train`", "weights", "threads", "PyTorch, ms", "torch.compile", "picograd, jitted", "as written",
    "losses apart", "gradients", "weights", "losses in float64", "weights in float64",
)  # fmt: skip
COUNTS = {1: "one thread", 2: "two threads"}
WITHOUT = dict.fromkeys(("transformer", "sentiment"), ", without dropout")


@cache
def kept() -> dict[str, dict[str, Any]]:
    """Returns the figures of each network by name; newer files replace those of older ones."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((ROOT / "bench" / "results").glob("*-networks.json")):
        record = json.loads(path.read_text())
        for name, figures in record["networks"].items():
            timed = {"timed_on": f"{record['machine']['processor']}, {record['date'][:10]}"} if "seconds" in figures else {}
            found[name] = found.get(name, {}) | figures | timed
    return found


def sentence(name: str) -> str:
    """Returns how a network compares with PyTorch's."""
    figures = kept()[name]
    one, two = ([f"{value:.0e}" for value in figures[of].values()] for of in ("apart", "apart_float64"))
    ours, theirs = (f"{1e3 * figures['seconds'][of]:.2f}" for of in ("picograd", "torch"))
    timed = f"{COUNTS[figures['threads']]}; {figures['timed_on']}"
    return (
        f"Beside PyTorch, from the same weights and with the same batches{WITHOUT.get(name, '')}: losses of ten steps"
        f" {one[0]} apart, first gradients {one[1]}, weights {one[2]}; in float64 {two[0]}, {two[1]} and {two[2]}."
        f" A step takes {ours} ms, PyTorch's {theirs} ({timed})."
    )


def table() -> str:
    """Returns the table of all networks."""
    lines = [f"| {' | '.join(HEADS)} |", f"|---{'|---:' * (len(HEADS) - 1)}|"]
    for name, figures in kept().items():
        seconds, one, two = figures["seconds"], figures["apart"], figures["apart_float64"]
        ratios = [f"{seconds[kind] / seconds['torch']:.2f}" for kind in ("torch.compile", "picograd", "eager")]
        apart = [f"{value:.0e}" for value in (*one.values(), two["loss"], two["weights"])]
        cells = [name, f"{figures['weights']:,}", str(figures["threads"]), f"{1e3 * seconds['torch']:.2f}", *ratios, *apart]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def page() -> str:
    """Returns docs/performance.md with the table of today's results.

    Raises:
      ValueError: it has no place for it.
    """
    text = replace_marked(PAGE.read_text(), MARK, table())
    if text is None:
        raise ValueError(f"{PAGE.name} has no <!-- {MARK} -->.")
    return text


def main() -> None:
    """Writes the table of kept networks into docs/performance.md."""
    PAGE.write_text(page())


if __name__ == "__main__":
    tyro.cli(main, prog="python -m bench.kept_networks")
