"""`picograd train diffusion` and `picograd sample diffusion`: a U-Net that denoises digits, and draws new ones.

Noise is added to an image step by step until nothing of it is left. The network predicts the noise, for every step.
Sampling goes backwards, from pure noise.

Source: Ho, Jain, Abbeel 2020, arXiv:2006.11239, algorithms 1 and 2; Nichol, Dhariwal 2021, arXiv:2102.09672, eq. 17 (the
       cosine schedule of noise); the U-Net: Ronneberger, Fischer, Brox 2015, arXiv:1505.04597.

Letters: B batch, C channels, Y rows, X columns, E features of a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.errors import ArgumentError
from picograd.nn import functional as F
from picograd.tensor.generator import Generator, manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.mnist import load_images
from picograd_programs.models.digits import PREVIEWED, ImageProgram, ImageSettings, SampleImageSettings
from picograd_programs.train.picture import image_grid, write_png
from picograd_programs.train.program import check_settings, trained

SIDE = 28
GROUPS = 8  # of channels that are normalized together
SHOWN, STAGES = 100, 10  # digits on a sheet; shown stages of noise
SHIFT = 0.008  # of the cosine schedule, so that the first noise is not too small


class Residual(nn.Module):
    """skip(x) + conv(act(norm(conv(act(norm(x))) + linear(time))))"""

    def __init__(self, channels: int, out: int, time: int):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(GROUPS, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(GROUPS, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x_BCYX: Tensor, time_BE: Tensor) -> Tensor:
        """x (B, C, Y, X), time (B, E) -> (B, out, Y, X)."""
        h: Tensor = self.conv1(F.silu(self.norm1(x_BCYX)))
        h = h + self.time(F.silu(time_BE))[:, :, None, None]
        return self.skip(x_BCYX) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    """Predicts the noise in an image: 28 x 28, halved to 14 x 14 and 7 x 7, then doubled, with skip connections.

    channels:  channels of the first level, a multiple of 8; other levels have twice as many

    Raises:
      ArgumentError: channels is not a multiple of 8.
    """

    def __init__(self, channels: int = 32):
        super().__init__()
        if channels % GROUPS:
            near = max(GROUPS, round(channels / GROUPS) * GROUPS)
            raise ArgumentError(f"UNet: channels must be a multiple of {GROUPS}, got {channels}.", f"--channels {near}")
        time, wide = 4 * channels, 2 * channels
        self.channels = channels
        self.time = nn.Sequential(nn.Linear(channels, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(1, channels, 3, padding=1)
        self.down1, self.halve1 = Residual(channels, channels, time), nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.down2, self.halve2 = Residual(channels, wide, time), nn.Conv2d(wide, wide, 3, stride=2, padding=1)
        self.middle = Residual(wide, wide, time)
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.up2, self.up1 = Residual(2 * wide, channels, time), Residual(2 * channels, channels, time)
        self.norm, self.last = nn.GroupNorm(GROUPS, channels), nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x_B1YX: Tensor, times_B: Tensor) -> Tensor:
        """Returns the noise in images (B, 1, 28, 28) at times (B,), from 0 to 1: (B, 1, 28, 28)."""
        time_BE: Tensor = self.time(time_features(times_B, self.channels))
        a: Tensor = self.down1(self.first(x_B1YX), time_BE)  # (B, C, 28, 28)
        b: Tensor = self.down2(self.halve1(a), time_BE)  # (B, 2C, 14, 14)
        h: Tensor = self.middle(self.halve2(b), time_BE)  # (B, 2C, 7, 7)
        h = self.up2(Tensor.cat([self.grow(h), b], 1), time_BE)  # (B, C, 14, 14)
        h = self.up1(Tensor.cat([self.grow(h), a], 1), time_BE)  # (B, C, 28, 28)
        noise_B1YX: Tensor = self.last(F.silu(self.norm(h)))
        return noise_B1YX


def time_features(times_B: Tensor, num: int) -> Tensor:
    """Returns sines and cosines of times at many frequencies: (B, num)."""
    frequencies = (-math.log(10_000.0) * Tensor.arange(num // 2) / (num // 2)).exp()
    angles = 1000.0 * times_B[:, None] * frequencies[None]
    return Tensor.cat([angles.sin(), angles.cos()], 1)


def signal(times: Any, cos: Any = np.cos) -> Any:
    """Returns the share of an image's variance that remains at times from 0 to 1: cos^2((t + s) / (1 + s) pi / 2)."""
    return cos((times * (1 - 1e-3) + SHIFT) / (1 + SHIFT) * (math.pi / 2)) ** 2


@dataclass(frozen=True)
class DiffusionSettings(ImageSettings):
    """Settings of `picograd train diffusion`."""

    channels: int = 32  # of the first level; a multiple of 8
    steps: int = 4000
    batch: int = 64
    lr: float = 1e-3
    warmup: int = 100
    weight_decay: float = 0.0
    clip: float = 1.0
    ema: float = 0.995
    eval_every: int = 500
    times: int = 100  # steps from noise to an image
    out: Path = Path("runs/diffusion")


@dataclass(frozen=True)
class SampleDiffusionSettings(SampleImageSettings):
    """Settings of `picograd sample diffusion`."""

    times: int = 100  # steps from noise to an image


class Diffusion(ImageProgram):
    """Fits the U-Net by the mean squared error of the noise."""

    name, takes, samples = "diffusion", DiffusionSettings, SampleDiffusionSettings
    about = "Draws new digits out of noise."

    def __init__(self, settings: DiffusionSettings):
        data = load_images(settings.data)
        self.test_N1YX = scaled(data.test_images)
        super().__init__(settings, scaled(data.train_images))

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> UNet:
        """Returns the network."""
        return UNet(facts["channels"])

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Returns the mean squared error of the noise, at random times."""
        (x_B1YX,) = batch
        times_B = Tensor.rand(len(x_B1YX))
        noise_B1YX = Tensor.randn(*x_B1YX.shape)
        left_B111 = signal(times_B, Tensor.cos)[:, None, None, None]
        noisy_B1YX = left_B111.sqrt() * x_B1YX + (1 - left_B111).sqrt() * noise_B1YX
        return F.mse_loss(model(noisy_B1YX, times_B), noise_B1YX)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the loss on test images; noise and times have the same seed each time."""
        manual_seed(self.settings.seed)
        return {"test loss": self.loss(model, Tensor(self.test_N1YX[:500])).item()}

    def preview(self, model: UNet, step: int) -> str:
        """Draws new images."""
        return self.sheet(step, drawn(model, PREVIEWED, self.settings.times, self.settings.seed)[-1])

    def report(self, model: UNet) -> str:
        """Returns the loss on test images; draws new images, and ten stages of the way from noise."""
        new, steps = self.settings.out / "new.png", self.settings.out / "steps.png"
        stages = drawn(model, SHOWN, self.settings.times, self.settings.seed)
        write_png(new, image_grid(stages[-1]))
        write_png(steps, image_grid(np.stack([stage[row] for row in range(10) for stage in stages]), columns=len(stages)))
        return f"test loss: {self.evaluate(model)['test loss']:.4f}; pictures: {new}, {steps}"

    @classmethod
    def sample(cls, settings: SampleDiffusionSettings) -> str:
        """Draws new images into a picture.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training; or the picture cannot be written.
        """
        check_settings(settings)
        model, _ = trained(cls, settings.checkpoint)
        write_png(settings.picture, image_grid(drawn(model, settings.num, settings.times, settings.seed)[-1]))
        return f"{settings.num} images: {settings.picture}"


def drawn(model: UNet, num: int, times: int, seed: int) -> list[NDArray[np.float32]]:
    """Returns images on their way from noise to digits, each (num, 784), from 0 to 1; the digits last.

    x_(t-1) = (mean of x_(t-1) given x_t and the predicted x_0) + sigma_t noise

    Args:
      times:  steps from noise to an image
    """
    generator = Generator(seed)
    left = signal(np.arange(times + 1) / times)  # remaining share of the variance, by time: 1 at first
    left[0] = 1.0

    @jit
    def denoised(x: Tensor, time: Tensor, here: Tensor, before: Tensor) -> Tensor:
        noise = model(x, time.expand(num))
        x0 = ((x - (1 - here).sqrt() * noise) / here.sqrt()).clamp(-1.0, 1.0)
        kept = here / before  # share of x_(t-1)'s variance in x_t
        mean = (before.sqrt() * (1 - kept) * x0 + kept.sqrt() * (1 - before) * x) / (1 - here)
        variance = (1 - kept) * (1 - before) / (1 - here)
        return mean + variance.sqrt() * Tensor.randn(*x.shape, generator=generator)

    shown = {round(times * stage / (STAGES - 1)) for stage in range(STAGES)}  # times of shown stages, by steps left
    stages: list[NDArray[np.float32]] = []
    with no_grad():
        x = Tensor.randn(num, 1, SIDE, SIDE, generator=generator)
        for time in range(times, 0, -1):
            if time in shown:
                stages.append(pixels(x))
            numbers = (time / times, left[time], left[time - 1])
            x = denoised(x, *(Tensor([number], dtype=x.dtype) for number in numbers))
    return [*stages, pixels(x)]


def scaled(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns images as numbers from -1 (paper) to 1 (ink): (N, 1, 28, 28) float32."""
    return images.reshape(-1, 1, SIDE, SIDE).astype(np.float32) / np.float32(127.5) - np.float32(1)


def pixels(x_B1YX: Tensor) -> NDArray[np.float32]:
    """Returns images (B, 784) with numbers from 0 to 1."""
    return ((x_B1YX + 1) / 2).clamp(0.0, 1.0).flatten(1).numpy()
