"""`picograd train names`: the language model of Bengio et al. on first names, from data to new names.

In:    names.txt; `NamesConfig`
Out:   a checkpoint, the losses on all three parts of the data, sampled names

Letters: N windows, B batch, T context, V vocabulary.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from picograd.nn import functional as F
from picograd.optim.descent import SGD
from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.names import CHARACTERS, Windows, decode, load_names, split, windows
from picograd_programs.models.names import BengioModel
from picograd_programs.train.checkpoint import checkpoint_of, resume, save_checkpoint
from picograd_programs.train.loop import TrainingLog, check_counts, check_files, report_end, run_steps

LONGEST_NAME = 20  # characters; a sample that has no end by then is cut


@dataclass(frozen=True)
class NamesConfig:
    """Settings of `picograd train names`; the whole run of makemore's lecture has --steps 200000."""

    steps: int = 20_000  # batches
    batch: int = 32  # windows in a step
    context: int = 3  # characters the model sees
    embedding: int = 10  # features of a character
    hidden: int = 200  # units of the hidden layer
    lr: float = 0.01  # learning rate
    seed: int = 0  # seed of the start weights, the batches and the samples
    samples: int = 10  # names to print
    out: Path = Path("runs/names.safetensors")  # the checkpoint
    resume: Path | None = None  # a checkpoint to go on from
    log: Path | None = None  # a file for the figures: a JSON object a line, for curves


def train_names(config: NamesConfig) -> int:
    """Trains, saves a checkpoint, and prints losses and new names.

    Returns:   0, or 130 when Ctrl-C stopped the training (as a shell reports SIGINT)

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the data or the checkpoint to resume from is corrupt, or the checkpoint cannot be written.
    """
    check_counts(config)
    check_files(config.out, config.log, config.resume)
    parts = [windows(names, config.context) for names in split(load_names())]
    manual_seed(config.seed)
    model = BengioModel(len(CHARACTERS), config.context, config.embedding, config.hidden)
    optimizer = SGD(model.parameters(), lr=config.lr)
    print(f"names: {len(parts[0].targets):,} windows, {sum(p.numel() for p in model.parameters()):,} parameters")
    started = time.perf_counter()
    done = train(config, parts[0], model, optimizer)
    if not report_end("names", config, done, config.steps, time.perf_counter() - started):
        return 130
    print("loss:", ", ".join(f"{name} {nll(model, part):.4f}" for name, part in zip(("train", "dev", "test"), parts)))
    print("new names:", ", ".join(sample(model, config.context, config.samples, config.seed)))
    return 0


def train(config: NamesConfig, part: Windows, model: BengioModel, optimizer: SGD) -> int:
    """Trains a model, from the start or from a checkpoint, and returns the steps done."""
    first = resume("names", config, model, optimizer)

    @jit
    def step(contexts_BT: Tensor, targets_B: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(contexts_BT), targets_B)
        loss.backward()
        optimizer.step()
        return loss

    def make_step(number: int) -> dict[str, Tensor]:
        rows_B = np.random.default_rng((config.seed, number)).integers(0, len(part.targets), config.batch)
        return {"loss": step(Tensor(part.contexts[rows_B]), Tensor(part.targets[rows_B]))}

    def save(steps_done: int) -> None:
        save_checkpoint(config.out, checkpoint_of("names", steps_done, config, model, optimizer))

    log = TrainingLog("names", "windows", first, config.steps, file=config.log)
    return run_steps(log, config.batch, make_step, save, save_every=20_000)


def nll(model: BengioModel, part: Windows) -> float:
    """Returns the average negative log-likelihood of a part of the data, in nats per character."""
    with no_grad():
        return float(F.cross_entropy(model(Tensor(part.contexts)), Tensor(part.targets)).item())


def sample(model: BengioModel, context: int, num: int, seed: int) -> list[str]:
    """Returns new names, each drawn character by character until it ends.

    Args:
      context:  T, characters the model sees
      num:      names to draw, all at once
    """
    rng = np.random.default_rng(seed)
    drawn_NT = np.zeros((num, context), np.int32)  # a name begins after dots
    for _ in range(LONGEST_NAME):
        with no_grad():
            probabilities_NV = model(Tensor(drawn_NT[:, -context:])).softmax(-1).numpy().astype(np.float64)
        reached_NV = probabilities_NV.cumsum(1) / probabilities_NV.sum(1, keepdims=True)
        following_N = (reached_NV <= rng.random((num, 1))).sum(1).clip(max=len(CHARACTERS) - 1)
        drawn_NT = np.concatenate([drawn_NT, following_N[:, None].astype(np.int32)], 1)
    return [decode(row).split(".")[0] for row in drawn_NT[:, context:].tolist()]
