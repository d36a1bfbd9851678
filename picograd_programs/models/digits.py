"""`picograd train mnist` and `picograd train cnn`: classifiers of handwritten digits, or of pictures of clothes.

Letters: N images, B batch, P pixels, K classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.errors import ArgumentError
from picograd.nn import functional as F
from picograd.optim.adam import AdamW
from picograd.tensor.generator import manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_programs.data.mnist import load_images, normalise
from picograd_programs.models.pictures import PixelCNN, PixelMLP
from picograd_programs.train.picture import digit_grid, image_grid, write_png
from picograd_programs.train.program import NoOption, Program, SampleSettings, Settings, check_settings, trained
from picograd_programs.train.trainer import linear

PREVIEWED = 20  # new images per evaluation
READ_MAX = 1000  # images per batch of the prediction, to limit memory between layers


@dataclass(frozen=True)
class ImageSettings(Settings):
    """Settings of trainings on 70,000 small images."""

    data: Literal["mnist", "fashion"] = "mnist"  # handwritten digits, or clothes
    epochs: int = 6  # passes over the 60,000 training images; --steps overrides them
    steps: int = 0  # updates of the weights; 0: those of the epochs
    lr: float = 2e-3  # initial learning rate; falls linearly to 0
    save_every: int = 1000


@dataclass(frozen=True)
class ClassifierSettings(ImageSettings):
    """Settings of trainings on classes of images."""

    warmup: NoOption[int] = 0
    shift: int = 0  # largest random shift of training images, in pixels; 0: none


@dataclass(frozen=True)
class MnistSettings(ClassifierSettings):
    """Settings of `picograd train mnist`."""

    hidden: int = 512  # units of the hidden layer
    batch: int = 256
    out: Path = Path("runs/mnist")


@dataclass(frozen=True)
class CnnSettings(ClassifierSettings):
    """Settings of `picograd train cnn`."""

    channels: int = 32  # of the first two convolutions; twice as many of the last two
    epochs: int = 3
    batch: int = 128
    out: Path = Path("runs/cnn")


@dataclass(frozen=True)
class SampleImageSettings(SampleSettings):
    """Settings of `picograd sample` of a model of images."""

    num: int = 100  # number of images
    picture: Path = Path("sample.png")  # file for the images
    temperature: NoOption[float] = 1.0


class ImageProgram(Program):
    """A model of images, which sees them in another order in each epoch.

    training:  arrays of equal length, from which a batch takes the same rows
    """

    item = "images"
    same = (*Program.same, "data")

    def __init__(self, settings: Any, *training: NDArray[Any]):
        super().__init__(settings)
        self.training = training
        self.steps = settings.steps or settings.epochs * max(1, len(training[0]) // settings.batch)
        manual_seed(settings.seed)
        self.model = self.build(self.facts)
        self.optimizer = AdamW(self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)

    def batch(self, number: int) -> tuple[NDArray[Any], ...]:
        """Returns a batch of the epoch's order."""
        rows_B = batch_rows(self.settings.seed, number, len(self.training[0]), self.settings.batch)
        return tuple(array[rows_B] for array in self.training)

    def sheet(self, step: int, images_NP: NDArray[np.float32]) -> str:
        """Writes images drawn after a number of steps as a picture in the run's folder, and returns its name."""
        path = self.folder / f"new-{step:08}.png"
        write_png(path, image_grid(images_NP))
        return f"{len(images_NP)} new images: {path}"

    def describe(self) -> str:
        """Returns the numbers of images and of weights."""
        return f"{len(self.training[0]):,} images, {super().describe()}"


class Classifier(ImageProgram):
    """Fits a network to the classes of images. A subclass has its name and builds its network."""

    samples: ClassVar[type | None] = SampleImageSettings
    same = (*ImageProgram.same, "shift")

    def __init__(self, settings: Any):
        self.data = load_images(settings.data)
        super().__init__(settings, normalise(self.data.train_images), self.data.train_labels.astype(np.int32))

    def batch(self, number: int) -> tuple[NDArray[Any], ...]:
        """Returns a batch of the epoch's order, with shifted images if requested."""
        x_BP, y_B = super().batch(number)
        most, rng = self.settings.shift, np.random.default_rng((self.settings.seed, number))
        return (moved(x_BP, most, rng) if most else x_BP), y_B

    def schedule(self, step: int) -> float:
        """Returns a factor that falls linearly from 1 to 0."""
        return linear(self.steps)(step)

    def loss(self, model: nn.Module, *batch: Tensor) -> Mapping[str, Tensor]:
        """Returns the mean cross-entropy, and the accuracy."""
        x_BP, y_B = batch
        logits_BK = model(x_BP)
        return {"loss": F.cross_entropy(logits_BK, y_B), "accuracy": (logits_BK.argmax(1) == y_B).float().mean()}

    def report(self, model: nn.Module) -> str:
        """Returns the accuracy on the test images, and draws some of them with the predicted classes."""
        predicted_N, true_N = predict(model, self.data.test_images), self.data.test_labels
        wrong = np.flatnonzero(predicted_N != true_N)[:10]
        shown = np.concatenate([np.arange(min(50, len(true_N))), wrong])
        picture = self.settings.out / "test.png"
        write_png(picture, digit_grid(self.data.test_images[shown], predicted_N[shown], true_N[shown]))
        return f"test accuracy: {(predicted_N == true_N).mean():.2%}; picture: {picture}"

    @classmethod
    def sample(cls, settings: SampleImageSettings) -> str:
        """Classifies some test images, and draws them with the predicted classes.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training; or the picture cannot be written.
        """
        check_settings(settings)
        model, facts = trained(cls, settings.checkpoint)
        data = load_images(facts["data"])
        shown = np.random.default_rng(settings.seed).permutation(len(data.test_labels))[: settings.num]
        images, true_N = data.test_images[shown], data.test_labels[shown]
        predicted_N = predict(model, images)
        write_png(settings.picture, digit_grid(images, predicted_N, true_N))
        return f"{(predicted_N == true_N).sum()} of {len(shown)} images are read right: {settings.picture}"


class Mnist(Classifier):
    """A perceptron with one hidden layer."""

    name, takes = "mnist", MnistSettings
    about = "Tells digits, or clothes, apart with one hidden layer."

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> PixelMLP:
        """Returns the network."""
        return PixelMLP(hidden=facts["hidden"])


class Cnn(Classifier):
    """Two pairs of convolutions."""

    name, takes = "cnn", CnnSettings
    about = "Tells digits, or clothes, apart with a convolutional network."

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> PixelCNN:
        """Returns the network."""
        return PixelCNN(channels=facts["channels"])


def batch_rows(seed: int, step: int, num_items: int, batch: int) -> NDArray[np.int64]:
    """Returns the items of batch number `step` of a run: each epoch is its own seeded shuffle.

    It depends only on `seed` and `step`, so a resumed run sees the batches of an unbroken one.

    Returns:   (batch,)  int64, 0..num_items - 1

    Raises:
      ArgumentError: there are fewer items than in a batch.

    >>> sorted(int(row) for step in range(4) for row in batch_rows(0, step, 8, 2))
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    if batch > num_items:
        raise ArgumentError(f"--batch: got {batch:,}, it must be 1 to {num_items:,}.")
    epoch, index = divmod(step, num_items // batch)
    return shuffled(seed, epoch, num_items)[index * batch : (index + 1) * batch]


@lru_cache(maxsize=2)
def shuffled(seed: int, epoch: int, num_items: int) -> NDArray[np.int64]:
    """Returns the order of the items in one epoch: (num_items,) int64."""
    return np.random.default_rng((seed, epoch)).permutation(num_items)


def moved(x_BP: NDArray[Any], most: int, rng: np.random.Generator) -> NDArray[Any]:
    """Returns images shifted vertically and horizontally by 0 to `most` pixels each; edges are repeated.

    >>> images = np.eye(9, dtype=np.float32)[4:5]  # one pixel in the middle of 3 x 3
    >>> moved(images, 1, np.random.default_rng(0)).reshape(3, 3).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    side = math.isqrt(x_BP.shape[1])
    x_BYX = np.pad(x_BP.reshape(-1, side, side), ((0, 0), (most, most), (most, most)), "edge")
    windows_BYXyx = np.lib.stride_tricks.sliding_window_view(x_BYX, (side, side), (1, 2))
    down_B, right_B = rng.integers(0, 2 * most + 1, (2, len(x_BP)))
    return windows_BYXyx[np.arange(len(x_BP)), down_B, right_B].reshape(x_BP.shape)


def predict(model: nn.Module, images: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns the predicted class of each image.

    Args:
      images:  (N, 28, 28)  uint8

    Returns:   (N,)         int64
    """
    parts = [images[start : start + READ_MAX] for start in range(0, len(images), READ_MAX)]
    with no_grad():
        predicted = [model(Tensor(normalise(part))).argmax(1).numpy() for part in parts]
    return np.concatenate(predicted)
