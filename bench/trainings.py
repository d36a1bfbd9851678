"""The page of trainings, docs/models.md: an entry for each whole run that was kept, made of what the run wrote.

    picograd train bigram --out runs/bigram
    python -m bench.trainings runs/bigram       keeps the run under the name of its folder, and writes the page
    python -m bench.trainings                   writes the page from the runs that are kept

In:    result.json and log.jsonl, which `picograd train` writes at the end and on the way, and its pictures; beside.jsonl of
       bench.beside, where it is there; what bench.networks found
Out:   docs/models/NAME.json, .jsonl.gz, .svg and .png, and docs/models.md
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import tyro
from matplotlib.figure import Figure

from bench import kept_networks
from bench.driver import ROOT
from bench.plots import COLORS, write_svg
from picograd_programs.cli import PROGRAMS
from picograd_programs.train.curve import thinned
from picograd_programs.train.trainer import SHOW_EVERY

PAGE = ROOT / "docs" / "models.md"
POINTS_MAX = 150  # of a line; neighbours are averaged
LOG = ".jsonl.gz"
BESIDE_FILE = "beside.jsonl"  # of bench.beside
LINES_MAX = 16  # of results
PICTURE_NBYTES_MAX = 160 * 2**10
CROWD = "83.5 % by people (README of Fashion-MNIST, results that others sent)"
# The same figure as others give it, or that of a guess that learns nothing of what is around.
BESIDE = {
    "bigram": "2.4543562 by counting, a running sum in float32, and about 2.4726 by gradient descent (Karpathy, makemore)",
    "transformer": "about 1.92 on 1,000 test names, after training with 31,033 (Karpathy, makemore)",
    "transformer-script": "about 1.92 on the same 1,000 test names (Karpathy, makemore)",
    "mnist": "95.3 % (LeCun et al. 1998, two layers, 300 hidden units)",
    "cnn": "99.05 % (LeCun et al. 1998, LeNet-5), 99.25 % after 12 epochs (Chollet, Keras's first example `mnist_cnn`)",
    "fashion": f"90.0 % (three hidden layers of 256, 128 and 64), {CROWD}",
    "cnn-fashion": f"92.5 % and 92.2 % (two convolutional layers, below 100,000 and 113,000 parameters), {CROWD}",
    "bert": "loss 3.0826 by how often each character comes in the training text, and 29.87 % by always a space",
    "diffusion": "loss 1 by guessing that there is no noise, whose variance it is",
    "gpt": "1.88 (Karpathy, nanoGPT, settings for a CPU), on 20 batches, as the curve here, which ends at 1.8823;"
    " the loss above is of 200",
    "gpt-h100": "lowest validation loss 1.4697, in about 3 minutes on an A100 (Karpathy, nanoGPT, settings for a GPU)",
}
CAPTIONS = {  # by the names that trainings give their pictures
    "test": "Test images over the class that the network takes them for: green is right; red is wrong, with the true one in"
    " grey. The last row has the first ten that are wrong.",
    "new": "New images that it draws.",
    "steps": "From noise to an image, a row each.",
    "again": "Test images, and under each row of them what comes out of the autoencoder.",
}
CLOTHES = "T-shirt, trousers, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot"  # classes of Fashion-MNIST
HEAD = """# Models that were trained

One entry for each whole run that was kept: the command, the result, and the curve of its losses. `picograd train --help`
lists all models; [train.md](train.md) says how to train one of your own. `python -m bench.trainings FOLDER` makes an entry
of a run. Times are those of the run as it was made, some on a machine that did other work, too. How far each is from the
same training in PyTorch, and the time of a step of both, `python -m bench.networks` finds: losses are compared with the
loss, gradients with the largest element of their weight's, weights with the largest way that an element of theirs went.
Where all steps were made in PyTorch, too (`python -m bench.beside`), rounding grows from step to step.
[performance.md](performance.md) has its whole table.

| run | result | time |
|---|---|---:|
"""


# ---- a run ----
def keep(folder: Path, kept: Path) -> None:
    """Keeps a run under the name of its folder: figures, its log, its curve, and its small pictures.

    Raises:
      SystemExit: the folder has no training that came to its end.
    """
    try:
        result = json.loads((folder / "result.json").read_text())
        lines = lines_of(folder / "log.jsonl")
    except FileNotFoundError as error:
        raise SystemExit(f"{folder} has no {Path(error.filename).name}: `picograd train` writes it at the end.") from None
    found = (path for path in sorted(folder.glob("*.png")) if path.stem in CAPTIONS)
    pictures = [path for path in found if path.stat().st_size <= PICTURE_NBYTES_MAX]
    names = [f"{folder.name}-{path.name}" for path in pictures]
    entry = {**result, "seconds": lines[-1]["seconds"], "curves": curves_of(lines), "pictures": names}
    if (folder / BESIDE_FILE).exists():
        theirs = lines_of(folder / BESIDE_FILE)
        entry["in_pytorch"] = {"curves": curves_of(theirs), "apart": distances(lines, theirs)}
    kept.mkdir(parents=True, exist_ok=True)
    for path, name in zip(pictures, names):
        shutil.copyfile(path, kept / name)
    (kept / f"{folder.name}.json").write_text(json.dumps(entry, indent=1) + "\n")
    text = "".join(json.dumps({name: shortened(value) for name, value in line.items()}) + "\n" for line in lines)
    (kept / f"{folder.name}{LOG}").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    write_svg(drawn(entry["curves"], entry.get("in_pytorch", {}).get("curves", {})), kept / f"{folder.name}.svg")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a log."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def shortened(value: Any) -> Any:
    """Returns a number to seven figures, which is all that float32 has."""
    return float(f"{value:.7g}") if isinstance(value, float) else value


def distances(lines: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> dict[str, float]:
    """Returns the largest distance of each loss of a whole run from that of PyTorch, over PyTorch's, by name."""
    ours = {(line["step"], name): line[name] for line in lines for name in line if "loss" in name}
    both = [(name, ours[line["step"], name], line[name]) for line in theirs for name in line if "loss" in name]
    return {of: max(abs(a / b - 1) for name, a, b in both if name == of) for of in dict.fromkeys(name for name, *_ in both)}


def curves_of(lines: list[dict[str, float]]) -> dict[str, list[list[float]]]:
    """Returns the losses of a log by name: [steps, values] each."""
    names = dict.fromkeys(name for line in lines for name in line if "loss" in name)
    found = {name: [(line["step"], line[name]) for line in lines if name in line] for name in names}
    return {
        name: [[round(value, 5) for value in thinned(part, POINTS_MAX)] for part in zip(*points)]
        for name, points in found.items()
    }


def drawn(curves: dict[str, list[list[float]]], in_pytorch: dict[str, list[list[float]]]) -> Figure:
    """Returns the picture of some losses against steps, those of PyTorch as dots over ours."""
    figure = Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    for number, (name, (steps, values)) in enumerate(curves.items()):
        look = {"color": COLORS[2 * number % len(COLORS)], "linewidth": 1.4, "markersize": 3}
        axes.plot(steps, values, marker="o" if number else None, label=name, **look)
    for number, (steps, values) in enumerate(in_pytorch.values()):
        axes.plot(steps, values, ":", color="black", linewidth=1.2, label=None if number else "in PyTorch", zorder=3)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.grid(which="major", linewidth=0.3)
    axes.legend(frameon=False)
    return figure


# ---- the page ----
def page(kept: Path) -> str:
    """Returns the text of the page for the runs that are kept."""
    entries = {path.stem: json.loads(path.read_text()) for path in sorted(kept.glob("*.json"))}
    order = [program.name for program in PROGRAMS]
    def place(item: tuple[str, dict[str, Any]]) -> tuple[int, bool, str]:
        name, program = item[0], item[1]["program"]
        return order.index(program), name != program, name  # a run under the name of its program first

    named = sorted(entries.items(), key=place)
    results = {name: entry["report"][0].partition("; picture")[0] for name, entry in named}
    rows = [f"| [{name}](#{name}) | {results[name]} | {duration(entry['seconds'])} |" for name, entry in named]
    return HEAD + "\n".join([*rows, "", *(text_of(name, entry, kept) for name, entry in named)])


def text_of(name: str, entry: dict[str, Any], kept: Path) -> str:
    """Returns the text of an entry."""
    beside = BESIDE.get(name)
    report = [*entry["report"][:LINES_MAX], *(["..."] if len(entry["report"]) > LINES_MAX else [])]
    made = f"{entry['steps']:,} steps in {duration(entry['seconds'])} on {entry['machine']}, {entry['date']}."
    lines = [
        f"## {name}", "", f"{entry['about']} {entry['sizes'][:1].upper()}{entry['sizes'][1:]}.", "",
        *(f"    {line}".rstrip() for line in (entry["command"], *report)), "",
        *(f"On the way, {change}.\n" for change in entry.get("changed", [])),
        *([f"Beside it: {beside}.", ""] if beside else []),
        f"{made} {log_of(name, entry, kept)}".rstrip(), "",
        *beside_pytorch(entry),
        f"![Losses of {name} against steps](models/{name}.svg)", "",
        *(line for name in entry["pictures"] for line in (caption(name, entry), "", f"![{name}](models/{name})", "")),
    ]  # fmt: skip
    return "\n".join(lines)


def log_of(name: str, entry: dict[str, Any], kept: Path) -> str:
    """Returns where the log of a run is, or what is kept of it."""
    if (kept / f"{name}{LOG}").exists():
        return f"[Its log](models/{name}{LOG})."
    if entry["steps"] // SHOW_EVERY > POINTS_MAX:
        return f"Of its log {POINTS_MAX} points a curve are kept; the command writes all to log.jsonl in the run's folder."
    return ""


def beside_pytorch(entry: dict[str, Any]) -> list[str]:
    """Returns how far a training is from PyTorch's after ten steps, and after all where these were made; none on a GPU."""
    if " threads of " not in entry["machine"]:
        return []
    apart = entry.get("in_pytorch", {}).get("apart", {})
    parts = ", ".join(f"{name} {value:.0e}" for name, value in apart.items())
    whole = f" All {entry['steps']:,} steps (dots in the picture): {parts}." if apart else ""
    return [kept_networks.sentence(entry["program"]) + whole, ""]


def caption(picture: str, entry: dict[str, Any]) -> str:
    """Returns the sentences over a picture.

    >>> caption("vae-new.png", {"command": "picograd train vae"})
    'New images that it draws.'
    """
    kind = Path(picture).stem.rpartition("-")[2]
    classes = f" Classes 0 to 9: {CLOTHES}." if kind == "test" and "fashion" in entry["command"] else ""
    return CAPTIONS[kind] + classes


def duration(seconds: float) -> str:
    """Returns a time for a person to read.

    >>> duration(8.25), duration(754)
    ('8.2 s', '12.6 min')
    """
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def main(folders: tyro.conf.Positional[tuple[Path, ...]] = ()) -> None:
    """Keeps runs of `picograd train` and writes docs/models.md.

    Args:
        folders: folders of runs to keep, each under its own name
    """
    kept = PAGE.with_suffix("")
    for folder in folders:
        keep(folder, kept)
    PAGE.write_text(page(kept))


if __name__ == "__main__":
    tyro.cli(main, prog="python -m bench.trainings")
