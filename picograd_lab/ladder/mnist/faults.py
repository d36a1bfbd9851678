"""Mistakes to plant in hand-written rungs, each an edit of one line; so the programs themselves contain no trace of them.

In:    the name of a fault, a rung
Out:   `planted`: a copy of its program with that line changed
"""

from __future__ import annotations

from pathlib import Path

from picograd.errors import ArgumentError
from picograd.record import Record
from picograd_lab.ladder.mnist.rungs import Rung


class Fault(Record):
    """One mistake in one file.

    before, after:  the replaced part of a line, which occurs once in the file, and its replacement
    """

    before: str
    after: str


# name: file: edit
FAULTS: dict[str, dict[str, Fault]] = {
    "missing-batch-division": {
        "mlp.c": Fault("(v == label[r])) / batch;", "(v == label[r]));"),
        "mlp_naive.cu": Fault("(i % columns == label[i / columns])) / rows;", "(i % columns == label[i / columns]));"),
        "mlp_fused.cu": Fault("- (v == label[r])) / rows;", "- (v == label[r]));"),
        "mlp_cublas.cu": Fault("- (v == label[r])) / rows;", "- (v == label[r]));"),
        "mlp_numpy.py": Fault("dlogits /= np.float32(problem.batch)", "dlogits /= 1"),
    },
    "transposed-layout": {
        "mlp.c": Fault("dout[r * columns + c] * w[k * columns + c]", "dout[r * columns + c] * w[c * depth + k]"),
        "mlp_naive.cu": Fault("dout[r * columns + c] * w[k * columns + c]", "dout[r * columns + c] * w[c * depth + k]"),
        "mlp_fused.cu": Fault("dout[r * columns + c] * w[k * columns + c]", "dout[r * columns + c] * w[c * depth + k]"),
        "mlp_cublas.cu": Fault("PLAIN, w2, TRANSPOSED,", "PLAIN, w2, PLAIN,"),
        "mlp_numpy.py": Fault("dlogits @ w2.T", "dlogits @ w2.reshape(w2.shape[::-1])"),
    },
    "stale-buffer": {
        "mlp.c": Fault("relu(h, z1, batch * hidden);", "if (step == 0) relu(h, z1, batch * hidden);"),
        "mlp_naive.cu": Fault("to_device(x, images + (size_t)number", "if (!step) to_device(x, images + (size_t)number"),
        "mlp_fused.cu": Fault("to_batch(x, pictures + (size_t)n", "if (!step) to_batch(x, pictures + (size_t)n"),
        "mlp_cublas.cu": Fault("to_device(x, images + (size_t)number", "if (!step) to_device(x, images + (size_t)number"),
        "mlp_numpy.py": Fault("h = np.maximum(z1, 0)", "h = np.maximum(z1, 0) if problem.step == 0 else h"),
    },
}


class Planted(Record):
    """A program with a fault.

    source:  the copy
    line:    its number, from 1
    before, after:  the line before and after the edit
    """

    source: Path
    line: int
    before: str
    after: str


def planted(name: str, rung: Rung, folder: Path) -> Planted | None:
    """Writes a copy of a rung's program with a fault into a folder; returns None if the fault does not apply to it.

    Raises:
      ArgumentError: the fault is unknown.
    """
    if name not in FAULTS:
        raise ArgumentError(f"ladder: there is no fault {name!r}; there is {', '.join(FAULTS)}.")
    fault = FAULTS[name].get(rung.file)
    return None if fault is None else edited(rung, fault, folder)


def edited(rung: Rung, fault: Fault, folder: Path) -> Planted:
    """Writes a copy of a rung's program with an edit into a folder."""
    text = rung.source.read_text()
    assert text.count(fault.before) == 1, f"{rung.file} has {fault.before!r} {text.count(fault.before)} times"
    changed = text.replace(fault.before, fault.after)
    place = text[: text.index(fault.before)].count("\n")
    copy = folder / rung.file
    copy.write_text(changed)
    return Planted(copy, place + 1, text.splitlines()[place].strip(), changed.splitlines()[place].strip())
