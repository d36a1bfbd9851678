"""`picograd train cnn`: a convolutional network that reads handwritten digits.

In:    MNIST; `CnnConfig`
Out:   a checkpoint, a picture of test digits with predictions, the test accuracy
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from picograd.models.cnn import PixelCNN
from picograd.train.mnist import train_digits


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
