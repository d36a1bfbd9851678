"""The training of a run once more in PyTorch, from the same weights and with the same batches.

    picograd train names --steps 200000 --out runs/names
    python -m bench.beside runs/names           both curves are then in the entry that bench.trainings makes of it

In:    result.json, which has the command of the run
Out:   beside.jsonl, lines as those of log.jsonl, in the same folder
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import torch
import tyro

from bench.trainings import BESIDE_FILE
from picograd.config import num_threads
from picograd_programs.train.trainer import SHOW_EVERY
from tests.models.twins import TorchTraining, program_of, with_weights_of


def main(folder: tyro.conf.Positional[Path]) -> None:
    """Repeats a run of `picograd train` in PyTorch.

    Args:
        folder: folder of a run that has ended
    """
    torch.set_num_threads(num_threads())
    with program_of(*shlex.split(json.loads((folder / "result.json").read_text())["command"])[2:]) as program:
        theirs, lines, begun = TorchTraining(program, fused=True), [], time.perf_counter()
        for step in range(1, program.steps + 1):
            loss, figures = theirs.step(step - 1), {}
            if step % SHOW_EVERY == 0 or step == program.steps:
                figures["loss"] = loss
            if step % program.settings.eval_every == 0 or step == program.steps:
                figures |= program.evaluate(with_weights_of(program.model, theirs.network)) or {}
            if figures:
                lines.append({"step": step, "seconds": round(time.perf_counter() - begun, 3), **figures})
    (folder / BESIDE_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    tyro.cli(main, prog="python -m bench.beside")
