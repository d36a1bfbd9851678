"""The trainings of `picograd train` in picograd and in PyTorch: how far apart they are, and the time of a step, in turns.

    python -m bench.networks                      all of them, with their own settings
    python -m bench.networks --only cnn,bert --threads 1 --rounds 15
    python -m bench.networks --rounds 0 --json bench/results/DATE-two-cores-networks.json

In:    the data that the trainings read
Out:   a line for each network; with --json a file of results, of which docs/models.md and docs/performance.md are made
       (kept_networks.py). --rounds 0 leaves times out, for a machine that does other work

Both start from the same weights, read the same batches and have the same optimizer (PyTorch's AdamW is fused). Networks
and losses of PyTorch are those that tests hold beside ours (tests/models/twins.py). Dropout is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro

import picograd as pg
from bench import turns
from bench.driver import bind_to_cores
from bench.machine import describe_commit, describe_machine, describe_versions
from bench.report import write_json
from bench.turns import Case, Compile, measure
from picograd_programs.train.program import Program, trainer_of
from tests.models.twins import TWINS, Noting, TorchTraining, drawn_by_torch, program_of, with_weights

STEPS = 10
WITHOUT_DROPOUT = {"transformer": ("--dropout", "0"), "sentiment": ("--dropout", "0")}
VARIANTS: dict[str, dict[str, str]] = {"torch": {}, "torch.compile": {}, "picograd": {}, "eager": {}}
opened = ExitStack()  # data of the trainings whose steps are timed


def start(name: str) -> Program:
    """Returns a training with its own settings, and its data."""
    return opened.enter_context(program_of(name, *WITHOUT_DROPOUT.get(name, ())))


# ---- times ----
def make_step(name: str, framework: Any, compiled: Compile) -> Callable[[], float]:
    """Returns a step of a training on its first batch, whose loss it returns."""
    program = start(name)
    if framework is torch:
        training = TorchTraining(program, drawn_by_torch, fused=True)
        update, batch = compiled(training.update), training.batch(0)
        return lambda: float(update(*batch).item())
    trainer = trainer_of(program, Noting)
    step, tensors = compiled(trainer.step), [pg.Tensor(np.asarray(part)) for part in program.batch(0)]
    return lambda: float(step(tensors)["loss"].item())


CASES = {name: Case(0.0, make=partial(make_step, name)) for name in TWINS}


# ---- distances ----
def distances(name: str, double: bool) -> dict[str, float]:
    """Returns the largest distances of ten steps from the same weights.

    Args:
      double:   in float64

    Returns:    loss: over the loss; gradients: of the first step, over the largest element of their weight's; weights:
                after all steps, over the largest way that an element of theirs went
    """
    program = start(name)
    if double:
        program.model.double()
        plain = program.batch
        program.batch = lambda number: tuple(map(widened, plain(number)))  # type: ignore[method-assign]
    theirs, ours = TorchTraining(program), trainer_of(program, Noting)
    if double:
        with_weights(theirs.network.double(), program.model)
    begun = {of: weight.detach().numpy().copy() for of, weight in program.model.named_parameters()}
    theirs.loss(0).backward()
    expected = {of: weight.grad.numpy().copy() for of, weight in theirs.network.named_parameters()}
    gradients = ours.gradients([pg.Tensor(np.asarray(part)) for part in program.batch(0)])
    ours.fit(program.batch, STEPS)
    losses = [theirs.step(number) for number in range(STEPS)]
    ways = {of: (weight.detach().numpy(), theirs.weight(of)) for of, weight in program.model.named_parameters()}
    return {
        "loss": max(abs(found / wanted - 1.0) for found, wanted in zip(ours.losses, losses)),
        "gradients": max(farthest(gradients[of] - wanted, wanted) for of, wanted in expected.items() if wanted.any()),
        "weights": max(farthest(found - wanted, wanted - begun[of]) for of, (found, wanted) in ways.items()),
    }


def widened(part: Any) -> Any:
    """Returns floats in float64, and other arrays as they are."""
    array = np.asarray(part)
    return array.astype(np.float64) if array.dtype == np.float32 else array


def farthest(distance: Any, scale: Any) -> float:
    """Returns the largest element of a distance, over that of what it is compared with."""
    return float(np.abs(distance).max() / np.abs(scale).max())


# ---- all of them ----
@dataclass(frozen=True)
class Arguments(turns.Arguments):
    """Compares the trainings of `picograd train` with PyTorch's."""

    # File that keeps the results.
    json: Path | None = None


def main(arguments: Arguments) -> None:
    """Compares, prints a line for each network, and keeps the results where that is asked for."""
    bind_to_cores(arguments.threads)
    networks: dict[str, Any] = {}

    def show(name: str, seconds: dict[str, float]) -> str:
        program = start(name)
        num = sum(weight.numel() for weight in program.model.parameters())
        found = {"weights": num, "apart": distances(name, False), "apart_float64": distances(name, True)}
        networks[name] = {**found, **({"seconds": seconds, "threads": arguments.threads} if seconds else {})}
        opened.close()
        apart = "; ".join(f"{key} {value:.0e}" for key, value in found["apart"].items())
        return f"{name}: {apart}; {', '.join(f'{kind} {1e3 * value:.2f} ms' for kind, value in seconds.items())}"

    names = arguments.names(CASES)
    if arguments.rounds:
        measure("bench.networks", names, arguments.threads, arguments.rounds, show, variants=VARIANTS)
    else:
        for name in names:
            print(show(name, {}), flush=True)
    if arguments.json is not None:
        about = {**describe_commit(), "machine": describe_machine(), "versions": describe_versions()}
        write_json({**about, "networks": networks}, arguments.json)


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.networks"))
