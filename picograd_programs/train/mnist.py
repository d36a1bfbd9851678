"""`picograd train mnist` and `picograd train cnn`: a perceptron and a convolutional network that read handwritten digits.

In:    MNIST; `MnistConfig`, `CnnConfig`
Out:   a checkpoint, a picture of test digits with predictions, the test accuracy

Letters: N images, B batch, P pixels, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from picograd.nn import Module
from picograd.nn import functional as F
from picograd.optim.adam import AdamW
from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.mnist import Mnist, load_mnist, normalise
from picograd_programs.models.pictures import PixelCNN, PixelMLP
from picograd_programs.train.checkpoint import checkpoint_of, resume, save_checkpoint
from picograd_programs.train.loop import TrainingLog, check_counts, check_files, check_writable, report_end, run_steps
from picograd_programs.train.picture import digit_grid, write_png

TESTED = 1000  # images read at a time, so that what is between the layers stays small


class DigitsConfig(Protocol):
    """The settings that training any model of digits needs."""

    @property
    def epochs(self) -> int: ...
    @property
    def log(self) -> Path | None: ...
    @property
    def batch(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def weight_decay(self) -> float: ...
    @property
    def seed(self) -> int: ...
    @property
    def out(self) -> Path: ...
    @property
    def picture(self) -> Path: ...
    @property
    def resume(self) -> Path | None: ...


@dataclass(frozen=True)
class MnistConfig:
    """Settings of `picograd train mnist`."""

    hidden: int = 512  # units of the hidden layer
    epochs: int = 6  # passes over the 60,000 training images
    batch: int = 256  # images in a step; a last part that fills no batch is left out of the epoch
    lr: float = 2e-3  # learning rate of the first step; falls to 0 in a straight line
    weight_decay: float = 0.01  # weight decay of AdamW
    seed: int = 0  # seed of the start weights and of the order of images
    out: Path = Path("runs/mnist.safetensors")  # the checkpoint
    picture: Path = Path("runs/mnist.png")  # test digits with predictions
    resume: Path | None = None  # a checkpoint to go on from
    log: Path | None = None  # a file for the figures: a JSON object a line, for curves


def train_mnist(config: MnistConfig) -> int:
    """Trains, saves a checkpoint, tests, draws a picture, and prints what came of it.

    Returns:   0, or 130 when Ctrl-C stopped the training (as a shell reports SIGINT)

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the data or the checkpoint to resume from is corrupt, or the results cannot be written.
    """
    return train_digits("mnist", config, lambda: PixelMLP(hidden=config.hidden))


def train_digits(kind: str, config: DigitsConfig, make: Callable[[], Module]) -> int:
    """Trains a model that reads digits; see `train_mnist`.

    Args:
      kind:  the command's name
      make:  gives the model, with its start weights drawn
    """
    check_files(config.out, config.log, config.resume)
    check_writable(config.picture)
    check_counts(config)
    data = load_mnist()
    check_counts(config, batch=len(data.train_images))
    manual_seed(config.seed)
    model = make()
    optimizer = AdamW(model.parameters(), lr=config.lr, weight_decay=config.weight_decay)
    print(f"{kind}: {len(data.train_images):,} images, {sum(p.numel() for p in model.parameters()):,} parameters")
    started = time.perf_counter()
    done, last = train(kind, config, data, model, optimizer)
    if not report_end(kind, config, done, last, time.perf_counter() - started):
        return 130
    predicted_N = predict(model, data.test_images)
    write_png(config.picture, sheet(data, predicted_N))
    print(f"test accuracy: {(predicted_N == data.test_labels).mean():.2%}; picture: {config.picture}")
    return 0


def train(kind: str, config: DigitsConfig, data: Mnist, model: Module, optimizer: AdamW) -> tuple[int, int]:
    """Trains a model, from the start or from a checkpoint.

    Returns:   steps done, steps of a complete training
    """
    images_NP, labels_N = normalise(data.train_images), data.train_labels.astype(np.int32)
    per_epoch = len(images_NP) // config.batch
    last = config.epochs * per_epoch
    first = resume(kind, config, model, optimizer)

    @jit
    def step(x_BP: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        optimizer.zero_grad()
        logits_BC = model(x_BP)
        loss = F.cross_entropy(logits_BC, y_B)
        loss.backward()
        optimizer.step()
        return loss, (logits_BC.argmax(1) == y_B).float().mean()

    def make_step(number: int) -> dict[str, Tensor]:
        optimizer.lr = config.lr * (1 - number / last)
        rows_B = batch_rows(config.seed, number, len(images_NP), config.batch)
        loss, accuracy = step(Tensor(images_NP[rows_B]), Tensor(labels_N[rows_B]))
        return {"loss": loss, "accuracy": accuracy}

    def save(steps_done: int) -> None:
        save_checkpoint(config.out, checkpoint_of(kind, steps_done, config, model, optimizer))

    log = TrainingLog(kind, "images", first, last, file=config.log)
    return run_steps(log, config.batch, make_step, save, save_every=per_epoch), last


def batch_rows(seed: int, step: int, num_items: int, batch: int) -> NDArray[np.int64]:
    """Returns the items of batch number `step` of a run: each epoch is its own seeded shuffle.

    It follows from `seed` and `step` alone, so a resumed run sees the batches an unbroken one would have seen.

    Returns:   (batch,)  int64, 0..num_items - 1

    >>> sorted(int(row) for step in range(4) for row in batch_rows(0, step, 8, 2))
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    epoch, index = divmod(step, num_items // batch)
    return shuffled(seed, epoch, num_items)[index * batch : (index + 1) * batch]


@lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, num_items: int) -> NDArray[np.int64]:
    """Returns the order of the items in one epoch: (num_items,) int64."""
    return np.random.default_rng((seed, epoch)).permutation(num_items)


def predict(model: Module, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns the digit the model reads in each image.

    Args:
      images:  (N, 28, 28)  uint8

    Returns:   (N,)         int64
    """
    parts = [images[start : start + TESTED] for start in range(0, len(images), TESTED)]
    with no_grad():
        predicted = [model(Tensor(normalise(part))).argmax(1).numpy() for part in parts]
    return np.concatenate(predicted)


def sheet(data: Mnist, predicted_N: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns a picture of the first 50 test digits, and a row of the first ten that were read wrong."""
    wrong = np.flatnonzero(predicted_N != data.test_labels)[:10]
    shown = np.concatenate([np.arange(50), wrong])
    return digit_grid(data.test_images[shown], predicted_N[shown], data.test_labels[shown])


# ---- a convolutional network ----
@dataclass(frozen=True)
class CnnConfig:
    """Settings of `picograd train cnn`."""

    channels: int = 32  # of the first two convolutions; the last two have twice as many
    epochs: int = 3  # passes over the 60,000 training images
    batch: int = 128  # images in a step; a last part that fills no batch is left out of the epoch
    lr: float = 2e-3  # learning rate of the first step; falls to 0 in a straight line
    weight_decay: float = 0.01  # weight decay of AdamW
    seed: int = 0  # seed of the start weights and of the order of images
    out: Path = Path("runs/cnn.safetensors")  # the checkpoint
    picture: Path = Path("runs/cnn.png")  # test digits with predictions
    resume: Path | None = None  # a checkpoint to go on from
    log: Path | None = None  # a file for the figures: a JSON object a line, for curves


def train_cnn(config: CnnConfig) -> int:
    """Trains, saves a checkpoint, tests, draws a picture, and prints what came of it.

    Returns:   0, or 130 when Ctrl-C stopped the training (as a shell reports SIGINT)

    Raises:
      ArgumentError: a setting is out of its range.
      DataError: the data or the checkpoint to resume from is corrupt, or the results cannot be written.
    """
    return train_digits("cnn", config, lambda: PixelCNN(channels=config.channels))
