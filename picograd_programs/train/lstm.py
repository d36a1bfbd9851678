"""`picograd train lstm`: an LSTM on first names, from data to new names; `picograd sample lstm`.

In:    names.txt; `LstmConfig`, `SampleLstmConfig`
Out:   a checkpoint, the losses on all three parts of the data, drawn names

Letters: N names, B batch, T positions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from picograd.nn import functional as F
from picograd.nn.utils import clip_grad_norm_
from picograd.optim.adam import AdamW
from picograd.tensor.generator import Generator, manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.names import CHARACTERS, Sequences, decode, load_names, sequences, split
from picograd_programs.models.names import CharacterLSTM
from picograd_programs.train.checkpoint import checkpoint_of, load_checkpoint, load_weights, resume, save_checkpoint
from picograd_programs.train.loop import TrainingLog, check_counts, check_files, cosine_with_warmup, report_end, run_steps

LONGEST_NAME = 20  # characters; a sample that has no end by then is cut
EVALUATED = 1000  # names whose loss is computed at a time
CLIP = 1.0  # most that the norm of all gradients may be


@dataclass(frozen=True)
class LstmConfig:
    """Settings of `picograd train lstm`."""

    steps: int = 4000  # batches
    batch: int = 64  # names in a step
    width: int = 128  # features of a character, and of the state
    layers: int = 1  # LSTMs, each reading the states of the one before
    lr: float = 5e-3  # highest learning rate; falls along a cosine to a tenth of it
    warmup: int = 100  # steps in which the learning rate rises
    weight_decay: float = 0.01  # weight decay of AdamW
    seed: int = 0  # seed of the start weights, the batches and the samples
    samples: int = 10  # names to print
    out: Path = Path("runs/lstm.safetensors")  # the checkpoint
    resume: Path | None = None  # a checkpoint to go on from
    log: Path | None = None  # a file for the figures: a JSON object a line, for curves


@dataclass(frozen=True)
class SampleLstmConfig:
    """Settings of `picograd sample lstm`."""

    checkpoint: Path = Path("runs/lstm.safetensors")  # what `picograd train lstm` wrote
    num: int = 20  # names
    temperature: float = 1.0  # below 1 prefers what is likely; 0 always takes the likeliest
    seed: int = 0  # of draws


def train_lstm(config: LstmConfig) -> int:
    """Trains, saves a checkpoint, and prints losses and new names.

    Returns:   0, or 130 when Ctrl-C stopped the training (as a shell reports SIGINT)

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the data or the checkpoint to resume from is corrupt, or the checkpoint cannot be written.
    """
    check_counts(config)
    check_files(config.out, config.log, config.resume)
    parts = [sequences(names) for names in split(load_names())]
    manual_seed(config.seed)
    model = CharacterLSTM(len(CHARACTERS), config.width, config.layers)
    optimizer = AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    num_parameters = sum(p.numel() for p in model.parameters())
    print(f"lstm: {len(parts[0].tokens):,} names, {num_parameters:,} parameters", flush=True)
    started = time.perf_counter()
    done = train(config, parts[0], model, optimizer)
    if not report_end("lstm", config, done, config.steps, time.perf_counter() - started):
        return 130
    print("loss:", ", ".join(f"{name} {nll(model, part):.4f}" for name, part in zip(("train", "dev", "test"), parts)))
    print("new names:", ", ".join(new_names(model, config.samples, seed=config.seed)))
    return 0


def train(config: LstmConfig, part: Sequences, model: CharacterLSTM, optimizer: AdamW) -> int:
    """Trains a model, from the start or from a checkpoint, and returns the steps done."""
    first = resume("lstm", config, model, optimizer)
    parameters = list(model.parameters())

    @jit
    def step(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(tokens_BT, targets_BT)[1]
        loss.backward()
        clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        return loss

    def make_step(number: int) -> dict[str, Tensor]:
        optimizer.lr = cosine_with_warmup(number, config.lr, config.warmup, config.steps)
        rows_B = np.random.default_rng((config.seed, number)).integers(0, len(part.tokens), config.batch)
        return {"loss": step(Tensor(part.tokens[rows_B]), Tensor(part.targets[rows_B]))}

    def save(steps_done: int) -> None:
        save_checkpoint(config.out, checkpoint_of("lstm", steps_done, config, model, optimizer))

    log = TrainingLog("lstm", "names", first, config.steps, file=config.log)
    return run_steps(log, config.batch, make_step, save, save_every=1000)


def nll(model: CharacterLSTM, part: Sequences) -> float:
    """Returns the average negative log-likelihood of some names, in nats per character."""
    rows = -len(part.tokens) % EVALUATED  # the last batch is filled up with names that do not count
    tokens_NT, targets_NT = (
        np.pad(array, ((0, rows), (0, 0)), constant_values=fill) for array, fill in zip(part, (0, -1))
    )

    @jit
    def total(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        logits_BTV: Tensor = model(tokens_BT)[0]
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=-1, reduction="sum")

    with no_grad():
        sums = [
            total(Tensor(tokens_NT[i : i + EVALUATED]), Tensor(targets_NT[i : i + EVALUATED])).item()
            for i in range(0, len(tokens_NT), EVALUATED)
        ]
    return float(sum(sums)) / int((part.targets >= 0).sum())


# ---- new names ----
def sample_lstm(config: SampleLstmConfig) -> int:
    """Prints new names, one a line. Returns 0.

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the checkpoint is not there, corrupt, or of another training.
    """
    check_counts(config)
    model = load_lstm(config.checkpoint)
    print("\n".join(new_names(model, config.num, config.temperature, config.seed)))
    return 0


def load_lstm(path: Path) -> CharacterLSTM:
    """Returns the model in a checkpoint.

    Raises:
      DataError: the checkpoint is not there, corrupt, or of another training.
    """
    saved = load_checkpoint(path, "lstm", "sample {kind} --checkpoint {path}")
    model = CharacterLSTM(len(CHARACTERS), saved.config["width"], saved.config["layers"])
    load_weights(path, saved, model)
    return model


def new_names(model: CharacterLSTM, num: int, temperature: float = 1.0, seed: int = 0) -> list[str]:
    """Returns new names, each drawn character by character until it ends."""
    with no_grad():
        drawn_NT = model.draw(num, LONGEST_NAME, temperature, Generator(seed)).tolist()
    return [decode(row).split(".")[0] for row in drawn_NT]
