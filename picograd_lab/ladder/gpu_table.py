"""Tables of a GPU ladder's measurements, for a terminal and for a page of the docs.

In:    `Figure`s and their ladder
Out:   `describe`: plain values for JSON;  `table_of`: a table of them;  `markdown`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from picograd.device import Target
from picograd.record import asdict
from picograd_lab.ladder.counts import SECTOR_BYTES, WARP_THREADS
from picograd_lab.ladder.gpu import Figure, Ladder, Lengths, ceil_div

COUNTED = (
    "", "what it adds", "arithmetic", "loads", "stores", "sectors", "of the least", "FLOP a byte", "shared loads",
    "shared stores", "bank conflicts", "FLOP a shared byte", "shuffles", "barriers", "atomics", "registers",
)  # fmt: skip
TIMED = (
    "", "what it adds", "us", "GFLOP/s", "GB/s", "of a copy", "of the roofline", "of the library", "gain", "registers",
)  # fmt: skip
ARITHMETIC = (("multiply_adds", "fma"), ("mmas", "mma"), ("wgmmas", "wgmma"), ("exponentials", "exp"))
PER_THREAD = ("multiply_adds", "exponentials")  # all others are counted per warp
COLUMNS_EXPLAINED = (
    "Counts are of one run. Arithmetic, loads, stores, shuffles and barriers are instructions of warps (wgmma: of four "
    "warps; tiles: of the copy engine). A sector is 32 bytes of global memory. The next two columns are about these bytes: "
    "their ratio to the least, which is each operand once, and the arithmetic per byte. Bank conflicts are turns of shared "
    "memory beyond the least. Registers are those of a thread, by NVRTC for sm_80, or for sm_90a if needed."
)


def describe(ladder: Ladder, lengths: Lengths, figures: Sequence[Figure], target: Target, machine: str) -> dict[str, Any]:
    """Returns the measurements as plain values."""
    return {
        "ladder": ladder.name,
        "device": target.device,
        "arch": target.arch,
        "machine": machine,
        "lengths": dict(lengths),
        "flops": ladder.flops(lengths),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "figures": [asdict(figure) for figure in figures],
    }


def title_of(ladder: Ladder, lengths: Lengths, device: str) -> str:
    """Returns a description of the problem, in one line."""
    return f"{ladder.does}, {', '.join(f'{name} = {value}' for name, value in lengths.items())}, on {device}"


def table_of(
    ladder: Ladder, lengths: Lengths, figures: Sequence[Figure], device: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Returns the columns and the rows: counts on the simulator, times on a GPU. Empty columns are dropped.

    For a rung that did not run, the reason replaces its idea.
    """
    heads = COUNTED if device == "CUDASIM" else TIMED
    rows: list[tuple[str, ...]] = []
    before: Figure | None = None
    for figure in figures:
        if figure.left_out:
            cells = (f"left out: {figure.left_out}", *[""] * (len(heads) - 2))
        elif device == "CUDASIM":
            cells = (figure.adds, *_counted(figure, ladder.flops(lengths)))
        else:
            gain = f"{before.seconds / figure.seconds:.3g}x" if before else ""
            rate = ladder.flops(lengths) / figure.seconds / 1e9
            moved, others = f"{figure.nbytes / figure.seconds / 1e9:.4g}", (figure.copy_s, figure.least_s, figure.library_s)
            shares = (f"{other / figure.seconds:.1%}" if other else "" for other in others)
            cells = (figure.adds, f"{figure.seconds * 1e6:.4g}", f"{rate:.4g}", moved, *shares, gain, _registers(figure))
            before = figure
        rows.append((figure.name, *cells))
    kept = [i for i in range(len(heads)) if i < 2 or any(row[i] not in ("", "0") for row in rows)]
    names = [head.replace("the library", ladder.library_name) for head in heads]
    return tuple(names[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _counted(figure: Figure, flops: int) -> tuple[str, ...]:
    counts = figure.counts
    warps = {**counts, **{name: ceil_div(counts[name], WARP_THREADS) for name in PER_THREAD}}
    arithmetic = ", ".join(f"{warps[name]:,} {short}" for name, short in ARITHMETIC if warps[name])
    copies = counts["async_copies"]
    loads = _sum(counts["global_loads"] - copies, (copies, "async"), (counts["tile_loads"], "tiles"))
    stores = _sum(counts["global_stores"], (counts["tile_stores"], "tiles"))
    sectors = counts["loaded_sectors"] + counts["stored_sectors"]
    shared = (f"{counts[name]:,}" for name in ("shared_loads", "shared_stores", "bank_conflicts"))
    return (
        arithmetic, loads, stores, f"{sectors:,}", _each(sectors * SECTOR_BYTES, figure.nbytes),
        _each(flops, sectors * SECTOR_BYTES), *shared, _each(flops, counts["shared_bytes"]), f"{counts['shuffles']:,}",
        f"{counts['barriers']:,}", f"{counts['global_atomics'] + counts['shared_atomics']:,}", _registers(figure),
    )  # fmt: skip


def _sum(number: int, *others: tuple[int, str]) -> str:
    parts = [f"{count:,} {what}" for count, what in others if count]
    return " + ".join([f"{number:,}"] * (number > 0 or not parts) + parts)


def _each(flops: int, nbytes: int) -> str:
    return f"{flops / nbytes:.3g}" if nbytes else ""


def _registers(figure: Figure) -> str:
    return "" if figure.registers is None else str(figure.registers)


def markdown(ladder: Ladder, lengths: Lengths, figures: Sequence[Figure], device: str) -> str:
    """Returns the table in Markdown, below the problem."""
    names: Mapping[str, str] = {rung.name: rung.file for rung in ladder.rungs}
    heads, rows = table_of(ladder, lengths, figures, device)
    lines = [f"**{title_of(ladder, lengths, device)}**", "", "| " + " | ".join(heads) + " |"]
    lines.append("|---|---|" + "---:|" * (len(heads) - 2))
    for name, *cells in rows:
        if name in names:  # other names are the compiler's own kernels
            name = f"[{name}](../picograd_lab/ladder/{ladder.name}/{names[name]})"
        lines.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join(lines)
