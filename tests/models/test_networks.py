"""Each network against the same one in PyTorch: loss, gradients, and ten steps of AdamW from the same weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn import functional as TF

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F
from picograd_programs.models.bag import BagOfWords
from picograd_programs.models.bert import BERT
from picograd_programs.models.diffusion import UNet, time_features
from picograd_programs.models.gpt import GPTConfig
from picograd_programs.models.names import BengioModel
from picograd_programs.models.pictures import PixelCNN, PixelMLP
from picograd_programs.models.recurrent import CharacterRNN
from picograd_programs.models.sentiment import BagClassifier
from picograd_programs.models.transformer import NameTransformer
from picograd_programs.models.vae import PIXELS, VAE
from picograd_programs.models.wavenet import WaveNet
from tests.models.twins import TorchGPT, with_weights_of

V, B, T, STEPS = 11, 4, 8, 10
TIMES = np.linspace(0.1, 0.9, 2).astype(np.float32)  # of the noise in images


class Twin(NamedTuple):
    """A network of ours and PyTorch's: classes, and the input and the target of a batch."""

    ours: Callable[[], nn.Module]
    theirs: Callable[[], torch.nn.Module]
    batch: Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]
    forward: Callable[[Any, Any], Any] = lambda model, x: model(x)


class Named(torch.nn.Module):
    """Layers by name, and a function of them and of the input."""

    def __init__(self, function: Callable[[Any, torch.Tensor], torch.Tensor], **layers: torch.nn.Module):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def sequence(*layers: torch.nn.Module) -> torch.nn.Sequential:
    return torch.nn.Sequential(*layers)


def recurrent(layer: type[torch.nn.Module]) -> Named:
    return Named(
        lambda m, x: m.out(m.layer(m.embedding(x))[0]),
        embedding=torch.nn.Embedding(V, 6), layer=layer(6, 6, 2, batch_first=True), out=torch.nn.Linear(6, V),
    )  # fmt: skip


def bag() -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        e = m.embedding(x) + m.position.weight[: x.shape[1]]
        h = e + e.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return m.out(h + m.mlp(h))

    layers = {"embedding": torch.nn.Embedding(V, 6), "position": torch.nn.Embedding(20, 6)}
    mlp = sequence(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 6))
    return Named(forward, **layers, mlp=mlp, out=torch.nn.Linear(6, V))


def wavenet() -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.embedding(x)
        for pair in m.pairs:
            h = pair.linear(h.reshape(h.shape[0], h.shape[1] // 2, -1))
            h = pair.norm(h.transpose(1, 2)).transpose(1, 2).tanh()
        return m.out(h.flatten(1))

    pairs = sequence(*(
        Named(lambda m, x: x, linear=torch.nn.Linear(2 * width, 8, bias=False), norm=torch.nn.BatchNorm1d(8))
        for width in (6, 8, 8)
    ))  # fmt: skip
    return Named(forward, embedding=torch.nn.Embedding(V, 6), pairs=pairs, out=torch.nn.Linear(8, V))


def bert() -> Named:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, activation="gelu", batch_first=True, norm_first=True)
    return Named(
        lambda m, x: m.head(m.encoder(m.characters(x) + m.positions.weight[: x.shape[1]])),
        characters=torch.nn.Embedding(V + 1, 8), positions=torch.nn.Embedding(T, 8),
        encoder=torch.nn.TransformerEncoder(layer, 2, norm=torch.nn.LayerNorm(8), enable_nested_tensor=False),
        head=sequence(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, V)),
    )  # fmt: skip


class TorchResidual(torch.nn.Module):
    def __init__(self, channels: int, out: int, time: int):
        super().__init__()
        self.norm1, self.conv1 = torch.nn.GroupNorm(8, channels), torch.nn.Conv2d(channels, out, 3, padding=1)
        self.time = torch.nn.Linear(time, out)
        self.norm2, self.conv2 = torch.nn.GroupNorm(8, out), torch.nn.Conv2d(out, out, 3, padding=1)
        self.skip = torch.nn.Conv2d(channels, out, 1) if channels != out else torch.nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(TF.silu(self.norm1(x))) + self.time(TF.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(TF.silu(self.norm2(h)))


def unet() -> Named:
    c, time = 8, 32

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        times = torch.linspace(0.1, 0.9, len(x))
        frequencies = torch.exp(-np.log(10_000.0) * torch.arange(c // 2) / (c // 2))
        angles = 1000.0 * times[:, None] * frequencies[None]
        e = m.time(torch.cat([angles.sin(), angles.cos()], 1))
        a = m.down1(m.first(x), e)
        b = m.down2(m.halve1(a), e)
        h = m.middle(m.halve2(b), e)
        h = m.up2(torch.cat([TF.interpolate(h, scale_factor=2.0), b], 1), e)
        h = m.up1(torch.cat([TF.interpolate(h, scale_factor=2.0), a], 1), e)
        return m.last(TF.silu(m.norm(h)))

    return Named(
        forward, time=sequence(torch.nn.Linear(c, time), torch.nn.SiLU(), torch.nn.Linear(time, time)),
        first=torch.nn.Conv2d(1, c, 3, padding=1), down1=TorchResidual(c, c, time),
        halve1=torch.nn.Conv2d(c, c, 3, stride=2, padding=1), down2=TorchResidual(c, 2 * c, time),
        halve2=torch.nn.Conv2d(2 * c, 2 * c, 3, stride=2, padding=1), middle=TorchResidual(2 * c, 2 * c, time),
        up2=TorchResidual(4 * c, c, time), up1=TorchResidual(2 * c, c, time), norm=torch.nn.GroupNorm(8, c),
        last=torch.nn.Conv2d(c, 1, 3, padding=1),
    )  # fmt: skip


def cnn() -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.conv2(m.conv1(x.reshape(-1, 1, 12, 12)).relu()).relu()
        x = m.conv4(m.conv3(TF.max_pool2d(x, 2)).relu()).relu()
        return m.out(TF.max_pool2d(x, 2).flatten(1))

    sizes = ((1, 6), (6, 6), (6, 12), (12, 12))
    convs = {f"conv{i}": torch.nn.Conv2d(*size, 3, padding=1) for i, size in enumerate(sizes, 1)}
    return Named(forward, **convs, out=torch.nn.Linear(108, V))


def sentiment() -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        counts = (x != 0).float()[:, :, None]
        mean = (m.embedding(x) * counts).sum(1) / counts.sum(1).clamp(min=1.0)
        return m.out(m.hidden(mean).relu())

    return Named(
        forward, embedding=torch.nn.Embedding(V, 6), hidden=torch.nn.Linear(6, 5), out=torch.nn.Linear(5, 1)
    )


def transformer() -> torch.nn.Module:
    gpt = TorchGPT(GPTConfig(V, 20, 2, 2, 8, bias=False))
    gpt_forward = gpt.forward
    gpt.forward = lambda x: gpt_forward(x, x)[0]  # type: ignore[method-assign,assignment]
    return gpt


def tokens(*shape: int, targets: Sequence[int] = ()) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.integers(0, V, shape).astype(np.int64), rng.integers(0, V, targets or shape).astype(np.int64)

    return draw


def numbers(*shape: int, out: Sequence[int]) -> Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]:
    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return rng.standard_normal(shape).astype(np.float32), rng.standard_normal(out).astype(np.float32)

    return draw


TWINS = {
    "names": Twin(
        lambda: BengioModel(V, 3, 4, 6),
        lambda: Named(
            lambda m, x: m.out(m.hidden(m.embedding(x).flatten(1)).tanh()),
            embedding=torch.nn.Embedding(V, 4), hidden=torch.nn.Linear(12, 6), out=torch.nn.Linear(6, V),
        ),
        tokens(B, 3, targets=(B,)),
    ),
    "bag": Twin(lambda: BagOfWords(V, width=6), bag, tokens(B, T)),
    "rnn": Twin(lambda: CharacterRNN(nn.RNN, V, 6, 2), lambda: recurrent(torch.nn.RNN), tokens(B, T)),
    "gru": Twin(lambda: CharacterRNN(nn.GRU, V, 6, 2), lambda: recurrent(torch.nn.GRU), tokens(B, T)),
    "lstm": Twin(lambda: CharacterRNN(nn.LSTM, V, 6, 2), lambda: recurrent(torch.nn.LSTM), tokens(B, T)),
    "wavenet": Twin(lambda: WaveNet(V, 8, 6, 8), wavenet, tokens(B, 8, targets=(B,))),
    "transformer": Twin(lambda: NameTransformer(GPTConfig(V, 20, 2, 2, 8, bias=False)), transformer, tokens(B, T)),
    "bert": Twin(lambda: BERT(V, T, 2, 2, 8), bert, tokens(B, T)),
    "mnist": Twin(
        lambda: PixelMLP(9, 6, V),
        lambda: Named(lambda m, x: m.out(m.hidden(x).relu()), hidden=torch.nn.Linear(9, 6), out=torch.nn.Linear(6, V)),
        lambda rng: (rng.standard_normal((B, 9)).astype(np.float32), rng.integers(0, V, B)),
    ),
    "cnn": Twin(
        lambda: PixelCNN(12, 6, V), cnn,
        lambda rng: (rng.standard_normal((B, 144)).astype(np.float32), rng.integers(0, V, B)),
    ),
    "sentiment": Twin(
        lambda: BagClassifier(V, 6, 5, dropout=0.0), sentiment,
        lambda rng: (rng.integers(0, V, (B, T)), numbers(1, out=(B, 1))(rng)[1]),
        lambda model, x: model(x).unsqueeze(1) if isinstance(x, Tensor) else model(x),
    ),
    "vae": Twin(
        lambda: VAE(6, 3),
        lambda: Named(
            lambda m, x: m.decoder(m.encoder(x)[:, :3]),
            encoder=sequence(torch.nn.Linear(PIXELS, 6), torch.nn.ReLU(), torch.nn.Linear(6, 6)),
            decoder=sequence(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, PIXELS)),
        ),
        numbers(B, PIXELS, out=(B, PIXELS)),
        lambda model, x: model.decoder(model.encode(x)[0]) if isinstance(x, Tensor) else model(x),
    ),
    "diffusion": Twin(
        lambda: UNet(8), unet, numbers(2, 1, 28, 28, out=(2, 1, 28, 28)),
        lambda model, x: model(x, Tensor(TIMES)) if isinstance(x, Tensor) else model(x),
    ),
}  # fmt: skip


def loss_of(output: Any, target: Any, functional: Any) -> Any:
    """Cross-entropy of classes, the squared error of numbers."""
    is_class = target.ndim == output.ndim - 1
    if is_class:
        return functional.cross_entropy(output.flatten(0, -2), target.flatten())
    return functional.mse_loss(output, target)


@pytest.mark.variants(every=2)
@pytest.mark.req("D5", "D6")
@pytest.mark.parametrize("name", TWINS)
def test_training_follows_pytorch(name: str, device: str, rng: np.random.Generator) -> None:
    twin = TWINS[name]
    torch.manual_seed(0)
    theirs = twin.theirs()
    ours = with_weights_of(twin.ours(), theirs)
    mine, other = pg.optim.AdamW(ours.parameters(), lr=1e-3), torch.optim.AdamW(theirs.parameters(), lr=1e-3)

    @pg.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        mine.zero_grad()
        loss = loss_of(twin.forward(ours, x), y, F)
        loss.backward()
        mine.step()
        return loss

    for number in range(STEPS):
        x, y = twin.batch(rng)
        if number == 0:
            loss_of(twin.forward(ours, Tensor(x)), Tensor(y), F).backward()
            gradients = {name: p.grad.numpy() for name, p in ours.named_parameters() if p.grad is not None}
        other.zero_grad()
        expected = loss_of(twin.forward(theirs, torch.tensor(x)), torch.tensor(y), TF)
        expected.backward()
        if number == 0:
            for name, parameter in theirs.named_parameters():
                if parameter.grad is not None:
                    np.testing.assert_allclose(gradients[name], parameter.grad, rtol=1e-3, atol=2e-6, err_msg=name)
        other.step()
        # Adam divides by the root of tiny squares, so rounding of some 1e-7 grows with the steps.
        assert step(Tensor(x), Tensor(y)).item() == pytest.approx(expected.item(), rel=2e-4), number


def test_times_have_features_of_their_own() -> None:
    features = time_features(Tensor([0.0, 0.5, 1.0]), 8).numpy()
    assert features.shape == (3, 8) and len({tuple(row) for row in features.round(4)}) == 3


def test_pixels_of_another_picture_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"PixelCNN: pixels must be \(B, 784\), got \(2, 100\)."):
        PixelCNN()(Tensor.zeros(2, 100))


def test_a_tree_needs_a_power_of_two() -> None:
    with pytest.raises(ArgumentError, match="context must be a power of two, got 6") as caught:
        WaveNet(context=6)
    assert caught.value.hint == "--context 4"
