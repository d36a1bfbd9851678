"""A whole training in picograd and in PyTorch, in turns: nanoGPT's settings for a CPU, on tiny Shakespeare.

    python -m bench.trained                     two thousand steps, three times each
    python -m bench.trained --variants picograd,torch,torch_compile --rounds 1

In:    nothing
Out:   for each variant the seconds of a fresh process until the held-out loss rounds to 1.88, and until it ends, the loss
       at the end, and the peak of resident memory; --json keeps every evaluation

All variants draw the same batches, evaluate on the same windows, and use as many threads. PyTorch's network is the one
that tests hold beside ours; it starts from the same weights, and its AdamW is fused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.driver import ROOT, environment
from bench.machine import describe_commit, describe_machine, describe_versions
from picograd_programs.models.characters import CharacterGPT, GptSettings
from picograd_programs.train.program import train
from picograd_programs.train.trainer import Callback, Trainer

SETTINGS = GptSettings(text="shakespeare", sample=1)
REACHED = 1.885  # held-out loss: what rounds to the 1.88 that nanoGPT's README gives for these settings
VARIANTS = ("picograd", "torch", "torch_compile")


# ---- the work of a process ----
class Tell(Callback):
    """Prints evaluations as JSON lines."""

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Prints a line, if these figures are an evaluation's."""
        if "validation loss" in figures:
            tell(trainer.done, figures["validation loss"])


def tell(step: int, loss: float) -> None:
    print(json.dumps({"step": step, "loss": loss}), flush=True)


def run_picograd(steps: int) -> None:
    """Runs `picograd train gpt`, which tells of its evaluations."""
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(SETTINGS, steps=steps, out=Path(folder))
        train(CharacterGPT(settings), settings, (Tell(),))


def run_torch(steps: int, is_compiled: bool) -> None:
    """Runs the same training in PyTorch."""
    import torch

    from tests.models.twins import TorchTraining

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    program = CharacterGPT(replace(SETTINGS, steps=steps))
    training = TorchTraining(program, fused=True)
    if is_compiled:
        training.network = torch.compile(training.network)
    windows = [[torch.from_numpy(part).long() for part in batch] for batch in program.windows]
    for step in range(1, steps + 1):
        training.step(step - 1)
        if step % SETTINGS.eval_every == 0 or step == steps:
            with torch.no_grad():
                tell(step, sum(training.network(*batch)[1].item() for batch in windows) / len(windows))


# ---- processes in turns ----
def measured(variant: str, steps: int, threads: int) -> dict[str, Any]:
    """Runs a variant in a fresh process; returns its evaluations, its seconds and its peak of memory."""
    command = [sys.executable, "-m", "bench.trained", "--work", variant, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as cache:
        variables = {**environment(threads), "PICOGRAD_CACHE": cache, "TORCHINDUCTOR_CACHE_DIR": cache}
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        found = list(evaluations(process, began))
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{variant} ended with status {process.returncode}")
    return {"evaluations": found, "seconds": time.perf_counter() - began, "peak_nbytes": usage.ru_maxrss << 10}


def evaluations(process: subprocess.Popen[bytes], began: float) -> Iterator[dict[str, float]]:
    """Yields the lines that a process tells, with the seconds since it began."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b'{"step"'):
            yield {**json.loads(line), "seconds": time.perf_counter() - began}


def seconds_to(loss: float, run: Mapping[str, Any]) -> float:
    """Returns the seconds until the first evaluation that is no higher than a loss; infinite where none is."""
    return min((each["seconds"] for each in run["evaluations"] if each["loss"] <= loss), default=float("inf"))


def row(variant: str, runs: list[dict[str, Any]]) -> str:
    """Returns the medians of a variant's runs as a row of a table."""
    reached, seconds = (median(values) for values in zip(*((seconds_to(REACHED, run), run["seconds"]) for run in runs)))
    memory = max(run["peak_nbytes"] for run in runs) / 2**20
    last = median(run["evaluations"][-1]["loss"] for run in runs)
    return f"| {variant} | {reached:.1f} | {seconds:.1f} | {last:.4f} | {memory:.0f} MiB |"


def compare(arguments: argparse.Namespace) -> None:
    """Runs the variants in turns and prints a table."""
    found: dict[str, list[dict[str, Any]]] = {variant: [] for variant in arguments.variants.split(",")}
    for _ in range(arguments.rounds):
        for variant, runs in found.items():
            runs.append(measured(variant, arguments.steps, arguments.threads))
            print(row(variant, runs[-1:]), file=sys.stderr, flush=True)
    print(f"| | seconds to a loss of {REACHED} | to the end | loss at the end | peak memory |\n|---|---:|---:|---:|---:|")
    print("\n".join(row(variant, runs) for variant, runs in found.items()))
    if arguments.json is not None:
        head = {**describe_commit(), "machine": describe_machine(), "versions": describe_versions()}
        arguments.json.write_text(json.dumps({**head, "steps": arguments.steps, "runs": found}, indent=1) + "\n")


def main() -> None:
    """Reads the command line; does the work of one variant, or compares all."""
    parser = argparse.ArgumentParser("python -m bench.trained", description="Compares a whole training with PyTorch's.")
    parser.add_argument("--variants", default="picograd,torch", help=f"comma list of {', '.join(VARIANTS)}")
    parser.add_argument("--steps", type=int, default=SETTINGS.steps, help="steps of the training")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, in turns")
    parser.add_argument("--threads", type=int, default=2, help="threads of every variant")
    parser.add_argument("--json", type=Path, help="file that receives every evaluation")
    parser.add_argument("--work", choices=VARIANTS, help="train as this variant, in this process")
    arguments = parser.parse_args()
    if arguments.work is None:
        compare(arguments)
    elif arguments.work == "picograd":
        run_picograd(arguments.steps)
    else:
        run_torch(arguments.steps, is_compiled=arguments.work == "torch_compile")


if __name__ == "__main__":
    main()
