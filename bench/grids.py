"""Tables of the figures, as text.

In:    `Measured`, `Startup` and `KernelTimes` records
Out:   a `Grid` for each marker of docs/performance.md
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, log

from bench.kernels import KernelTimes
from bench.language import Language
from bench.peers import VARIANTS
from bench.rounds import Measured
from bench.singles import Generation, Overhead
from bench.startup import Startup
from bench.workloads import WORKLOADS, Forward

# marker in the docs    (title, groups of workloads)
STEP_TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "training": ("Training: time of one step", ("mlp", "mnist", "names")),
    "headline": ("A perceptron by its number of parameters, batch 100: time of one training step", ("headline",)),
    "matmul": ("Matmul, new operands at each call; N and T say how each operand is stored", ("matmul",)),
    "long": ("16 million floats", ("elementwise", "softmax", "layer_norm")),
    "language": ("Character models: time of one training step", ("language",)),
    "generation": ("GPT-2's size: a prompt of 256 tokens; a token written after it", ("generation",)),
    "overhead": ("Tiny kernels: time of one call; of one turn of the loop in picograd_loop and jax_scan", ("overhead",)),
}


@dataclass
class Figures:
    """All that one run measured."""

    steps: list[Measured] = field(default_factory=list)
    startup: list[Startup] = field(default_factory=list)
    kernels: list[KernelTimes] = field(default_factory=list)


@dataclass(frozen=True)
class Grid:
    """A table ready to be shown: a title, the heads of the columns, the rows as text."""

    title: str
    heads: list[str]
    rows: list[list[str]]


# ---- grids ----


def step_grids(steps: list[Measured]) -> dict[str, Grid]:
    """Returns a grid per docs marker with what was measured, empty ones left out."""
    found = {}
    for marker, (title, groups) in STEP_TABLES.items():
        chosen = [measured for measured in steps if WORKLOADS[measured.workload].group in groups]
        if chosen:
            found[marker] = _step_grid(title, chosen)
    if "overhead" in found:
        found["overhead"].rows[-1:] = _slopes([m for m in steps if WORKLOADS[m.workload].group == "overhead"])
    return found


def _slopes(steps: list[Measured]) -> list[list[str]]:
    """What one more kernel and one more argument cost: differences between the longest and the shortest measured."""
    rows = []
    for op, title in (("chain", "one more kernel"), ("sum", "one more argument")):
        cells = []
        for variant in _ran(steps):
            points = [(_extent(m.workload), m.median_s) for m in steps if m.variant == variant and m.samples_s]
            along = sorted((extent, time_s) for (kind, extent), time_s in points if kind == op)
            if len(along) < 2:
                cells.append("-")
                continue
            (few, short_s), (many, long_s) = along[0], along[-1]
            cells.append(seconds(max(0.0, long_s - short_s) / (many - few)))
        rows.append([title, *cells, ""])
    return rows


def _extent(name: str) -> tuple[str, int]:
    workload = WORKLOADS[name]
    assert isinstance(workload, Overhead)
    return workload.op, workload.num_kernels if workload.op == "chain" else workload.num_arguments


def _ran(steps: list[Measured]) -> list[str]:
    return [variant for variant in VARIANTS if any(m.variant == variant and m.samples_s for m in steps)]


def _step_grid(title: str, steps: list[Measured]) -> Grid:
    """A row per workload, a column per variant; the first variant that ran is the one the others are divided by."""
    variants = _ran(steps)
    by_place = {(m.workload, m.variant): m for m in steps}
    names = list(dict.fromkeys(m.workload for m in steps))
    rows = []
    for name in names:
        base = by_place.get((name, variants[0])) if variants else None
        cells = [_step_cell(by_place.get((name, variant)), base) for variant in variants]
        rows.append([name, *cells, _rate(name, base)])
    if len(names) > 1:
        means = [_mean_ratio(names, variant, variants[0], by_place) for variant in variants]
        rows.append(["geometric mean", *means, ""])
    return Grid(title, ["", *variants, f"{variants[0]} does" if variants else ""], rows)


def _step_cell(measured: Measured | None, base: Measured | None) -> str:
    """Median, ratio and spread; "!" when the results are off, "failed" when there are none."""
    if measured is None:
        return "-"
    if not measured.samples_s:
        return "left out" if measured.problem.startswith("left out") else "failed"
    low, high = min(measured.samples_s), max(measured.samples_s)
    ratio = f" {measured.median_s / base.median_s:.2f}x" if base is not None and base.samples_s else ""
    wrong = "" if measured.error is not None and measured.error <= 1 else " !"
    return f"{seconds(measured.median_s)}{ratio}{wrong} ({seconds(low)}..{seconds(high)})"


def _mean_ratio(names: list[str], variant: str, base: str, by_place: dict[tuple[str, str], Measured]) -> str:
    pairs = [(by_place.get((name, variant)), by_place.get((name, base))) for name in names]
    logs = [log(m.median_s / b.median_s) for m, b in pairs if m and b and m.samples_s and b.samples_s]
    return f"{exp(sum(logs) / len(logs)):.2f}x" if logs else "-"


def _rate(name: str, measured: Measured | None) -> str:
    """What the first variant reaches: GFLOP/s, GB/s where memory is the limit, tokens/s of a language model."""
    if measured is None or not measured.samples_s:
        return ""
    workload = WORKLOADS[name]
    if isinstance(workload, Overhead):
        return ""
    if isinstance(workload, (Generation, Language)):
        return f"{workload.num_tokens / measured.median_s:,.0f} tokens/s"
    if isinstance(workload, Forward) and workload.nbytes_moved:
        return f"{workload.nbytes_moved / measured.median_s / 1e9:.1f} GB/s"
    return f"{workload.flops / measured.median_s / 1e9:.1f} GFLOP/s"


def startup_grid(startups: list[Startup]) -> Grid:
    """A row per workload and variant: seconds to the first step, memory."""
    heads = ["workload", "variant", "cold", "warm", "of it import", "resident memory", "bytes of tensors", "and scratch"]
    rows = []
    for found in startups:
        if found.problem:
            rows.append([found.workload, found.variant, _why(found), "", "", "", "", ""])
            continue
        imported = found.warm[0]["import_s"] or 0.0
        held = ["n/a" if n is None else nbytes(n) for n in (found.tensor_nbytes, found.scratch_nbytes)]
        times = [seconds(found.cold_s), seconds(found.warm_s), seconds(imported)]
        rows.append([found.workload, found.variant, *times, nbytes(found.resident_nbytes), *held])
    return Grid("Fresh process to the end of the first step, and peak memory", heads, rows)


def depth_grid(startups: list[Startup]) -> Grid:
    """A row per variant and depth: seconds to the end of the first step, memory, kernels and binaries."""
    heads = ["variant", "layers", "cold", "warm", "resident memory", "kernels a step", "binaries"]
    rows = []
    for variant in [v for v in VARIANTS if any(found.variant == v for found in startups)]:
        for found in [s for s in startups if s.variant == variant]:
            layers = found.workload.removeprefix("gpt_")
            if found.problem:
                rows.append([variant, layers, _why(found), "", "", "", ""])
                continue
            counts = [found.counted("kernels"), found.counted("binaries")]
            times = [seconds(found.cold_s), seconds(found.warm_s), nbytes(found.resident_nbytes)]
            rows.append([variant, layers, *times, *("n/a" if count is None else f"{count:.0f}" for count in counts)])
    return Grid("GPT 128 wide, batch 12 x 64: fresh process to the end of the first training step", heads, rows)


def _why(found: Startup) -> str:
    return found.problem if found.problem.startswith(("left out", "no first step")) else "failed"


def kernels_grid(kernels: list[KernelTimes]) -> Grid:
    """A row per kind of kernel, and the medians."""
    rows = []
    for k in kernels:
        times = [seconds(s) for s in (k.median_s, min(k.samples_s), max(k.samples_s))]
        rows.append([k.name, k.kind, str(k.num_kernels), *times])
    for kind in dict.fromkeys(k.kind for k in kernels):
        samples = sorted(s for k in kernels if k.kind == kind for s in k.samples_s)
        rows.append([f"all {kind}", "", "", *(seconds(s) for s in (samples[len(samples) // 2], samples[0], samples[-1]))])
    heads = ["", "kind", "kernels", "median", "least", "most"]
    return Grid("picograd: from a graph to loaded code, each kernel; without the cache on disk", heads, rows)


def accuracy_grid(steps: list[Measured]) -> Grid:
    """A row per group: the tolerance, and the worst error of each variant as a share of it."""
    variants = [variant for variant in VARIANTS if any(m.variant == variant and m.error is not None for m in steps)]
    rows = []
    for group in dict.fromkeys(WORKLOADS[m.workload].group for m in steps):
        mine = [m for m in steps if WORKLOADS[m.workload].group == group and m.error is not None]
        worst = [max((m.error or 0.0 for m in mine if m.variant == v), default=None) for v in variants]
        rows.append([group, *("-" if w is None else f"{w:.3f}" for w in worst), mine[0].tolerance if mine else ""])
    return Grid("Worst error against float64, as a share of the tolerance", ["", *variants, "tolerance"], rows)


def seconds(value: float) -> str:
    """Returns a time with three figures and its unit.

    >>> seconds(0.000012345), seconds(0.5)
    ('12.3 us', '500 ms')
    """
    return _with_unit(value, (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)))


def nbytes(value: float) -> str:
    """Returns a count of bytes with three figures and its unit.

    >>> nbytes(64 * 2**20)
    '64 MiB'
    """
    return _with_unit(value, (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10)))


def _with_unit(value: float, units: tuple[tuple[str, float], ...]) -> str:
    unit, scale = next((pair for pair in units if value >= pair[1]), units[-1])
    return f"{float(f'{value / scale:.3g}'):g} {unit}"


def all_grids(figures: Figures) -> dict[str, Grid]:
    """Returns every table there are figures for, by its marker in the docs."""
    grids = step_grids(figures.steps)
    if figures.steps:
        grids["accuracy"] = accuracy_grid(figures.steps)
    deep = [found for found in figures.startup if WORKLOADS[found.workload].group == "depth"]
    others = [found for found in figures.startup if found not in deep]
    if others:
        grids["startup"] = startup_grid(others)
    if deep:
        grids["depth"] = depth_grid(deep)
    if figures.kernels:
        grids["kernels"] = kernels_grid(figures.kernels)
    return grids
