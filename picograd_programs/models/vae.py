"""`picograd train vae` and `picograd sample vae`: a variational autoencoder, which also draws new digits.

Source: Kingma, Welling 2013, arXiv:1312.6114, sections 2.3 and 3, appendix C.1.

Letters: B batch, P pixels, H hidden units, Z latent variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.nn import functional as F
from picograd.tensor.generator import Generator, manual_seed
from picograd.tensor.tensor import Tensor
from picograd_programs.data.mnist import load_images
from picograd_programs.models.digits import PREVIEWED, ImageProgram, ImageSettings, SampleImageSettings
from picograd_programs.train.picture import image_grid, write_png
from picograd_programs.train.program import check_settings, trained

PIXELS = 28 * 28
SHOWN = 100  # digits on a sheet


class VAE(nn.Module):
    """code ~ N(mean(x), exp(log_variance(x))),  logits = decoder(code)

    hidden:  H, units of each hidden layer
    code:    Z, latent variables
    """

    def __init__(self, hidden: int = 400, code: int = 20):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU(), nn.Linear(hidden, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, PIXELS))

    def encode(self, x_BP: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the mean and log-variance of the codes of pixels (B, P), each (B, Z)."""
        mean_BZ, log_variance_BZ = self.encoder(x_BP).chunk(2, dim=1)
        return mean_BZ, log_variance_BZ

    def forward(self, x_BP: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the logits of pixels (B, P) from sampled codes, and the codes' means and log-variances."""
        mean_BZ, log_variance_BZ = self.encode(x_BP)
        code_BZ = mean_BZ + (0.5 * log_variance_BZ).exp() * Tensor.randn(*mean_BZ.shape)
        return self.decoder(code_BZ), mean_BZ, log_variance_BZ

    def draw(self, num: int, generator: Generator | None = None) -> Tensor:
        """Returns new pixels (num, P), from 0 to 1, from codes of a normal distribution."""
        code_BZ = Tensor.randn(num, self.decoder[0].in_features, generator=generator)
        pixels_BP: Tensor = self.decoder(code_BZ).sigmoid()
        return pixels_BP


@dataclass(frozen=True)
class VaeSettings(ImageSettings):
    """Settings of `picograd train vae`."""

    hidden: int = 400  # units of each hidden layer
    code: int = 20  # latent variables of a digit
    epochs: int = 10
    batch: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.0
    eval_every: int = 1000
    out: Path = Path("runs/vae")


class Autoencoder(ImageProgram):
    """Fits the autoencoder by the evidence lower bound."""

    name, takes, samples = "vae", VaeSettings, SampleImageSettings
    about = "Draws new digits with a variational autoencoder."

    def __init__(self, settings: VaeSettings):
        data = load_images(settings.data)
        self.test_NP = grey(data.test_images)
        super().__init__(settings, grey(data.train_images))

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> VAE:
        """Returns the network."""
        return VAE(facts["hidden"], facts["code"])

    def loss(self, model: nn.Module, *batch: Tensor) -> Mapping[str, Tensor]:
        """Returns an image's negative evidence lower bound in nats, and its two parts.

        loss = -log p(x | code) + KL(N(mean, variance), N(0, 1))
        """
        (x_BP,) = batch
        logits_BP, mean_BZ, log_variance_BZ = model(x_BP)
        error = F.binary_cross_entropy_with_logits(logits_BP, x_BP, reduction="sum") / len(x_BP)
        divergence = 0.5 * (mean_BZ.square() + log_variance_BZ.exp() - 1 - log_variance_BZ).sum() / len(x_BP)
        return {"loss": error + divergence, "error": error, "divergence": divergence}

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the loss on the test images; codes have the same seed each time."""
        manual_seed(self.settings.seed)
        return {"test loss": self.loss(model, Tensor(self.test_NP))["loss"].item()}

    def preview(self, model: VAE, step: int) -> str:
        """Draws new images."""
        return self.sheet(step, model.draw(PREVIEWED, Generator(self.settings.seed)).numpy())

    def report(self, model: VAE) -> str:
        """Returns the loss on the test images; draws new images, and test images above their reconstructions."""
        new, again = self.settings.out / "new.png", self.settings.out / "again.png"
        write_png(new, image_grid(model.draw(SHOWN, Generator(self.settings.seed)).numpy()))
        seen_BP = self.test_NP[:50]
        decoded_BP = model.decoder(model.encode(Tensor(seen_BP))[0]).sigmoid().numpy()
        rows = [part[i : i + 10] for i in range(0, 50, 10) for part in (seen_BP, decoded_BP)]
        write_png(again, image_grid(np.concatenate(rows)))
        return f"test loss: {self.evaluate(model)['test loss']:.2f}; pictures: {new}, {again}"

    @classmethod
    def sample(cls, settings: SampleImageSettings) -> str:
        """Draws new images into a picture.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training; or the picture cannot be written.
        """
        check_settings(settings)
        model, _ = trained(cls, settings.checkpoint)
        write_png(settings.picture, image_grid(model.draw(settings.num, Generator(settings.seed)).numpy()))
        return f"{settings.num} images: {settings.picture}"


def grey(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Returns images as rows of numbers from 0 (paper) to 1 (ink): (N, P) float32."""
    return images.reshape(len(images), PIXELS).astype(np.float32) / np.float32(255)
