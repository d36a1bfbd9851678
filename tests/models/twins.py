"""The networks of `picograd train` in PyTorch, with parameters of the same names; what tests and bench.networks compare.

A twin is made of sizes: its small ones are those of tests, its whole ones those of `picograd train`.

Letters: B batch, T positions, V vocabulary, C width, H heads, D features of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Sizes
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as TF

import picograd as pg
from picograd import Tensor, nn
from picograd_programs.models.bag import BagOfWords
from picograd_programs.models.bert import BERT
from picograd_programs.models.bigram import LogisticBigram
from picograd_programs.models.diffusion import UNet
from picograd_programs.models.gpt import GPTConfig
from picograd_programs.models.names import LONGEST_NAME, BengioModel
from picograd_programs.models.pictures import PixelCNN, PixelMLP
from picograd_programs.models.recurrent import CharacterRNN
from picograd_programs.models.sentiment import BagClassifier
from picograd_programs.models.transformer import NameTransformer
from picograd_programs.models.vae import PIXELS, VAE
from picograd_programs.models.wavenet import WaveNet
from picograd_programs.nano.network import Nano, dialled
from tests.models.torch_nano import TorchNano

Array = np.ndarray[Any, Any]
Batch = Callable[[np.random.Generator, Any], tuple[Array, Array]]


class Twin(NamedTuple):
    """A network of ours and PyTorch's: what makes them of sizes, the input and the target of a batch, and sizes."""

    ours: Callable[[Any], nn.Module]
    theirs: Callable[[Any], torch.nn.Module]
    batch: Batch
    small: Any
    whole: Any
    forward: Callable[[Any, Any], Any] = lambda model, x: model(x)


# ---- networks ----
class TorchBlock(torch.nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads = config.heads
        self.ln_1 = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.ln_2 = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.c_attn = torch.nn.Linear(config.width, 3 * config.width, config.bias)
        self.attn.c_proj = torch.nn.Linear(config.width, config.width, config.bias)
        self.mlp.c_fc = torch.nn.Linear(config.width, 4 * config.width, config.bias)
        self.mlp.c_proj = torch.nn.Linear(4 * config.width, config.width, config.bias)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        batch, length, width = x_BTC.shape
        parts = self.attn.c_attn(self.ln_1(x_BTC)).split(width, 2)
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y_BHTD = TF.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTC = x_BTC + self.attn.c_proj(y_BHTD.transpose(1, 2).reshape(batch, length, width))
        return x_BTC + self.mlp.c_proj(TF.gelu(self.mlp.c_fc(self.ln_2(x_BTC))))


class TorchGPT(torch.nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.wte = torch.nn.Embedding(config.vocabulary, config.width)
        self.wpe = torch.nn.Embedding(config.block, config.width)
        self.h = torch.nn.ModuleList(TorchBlock(config) for _ in range(config.layers))
        self.ln_f = torch.nn.LayerNorm(config.width, bias=config.bias)

    def forward(self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x_BTC = self.wte(tokens_BT) + self.wpe(torch.arange(tokens_BT.shape[1]))
        for block in self.h:
            x_BTC = block(x_BTC)
        logits_BTV = self.ln_f(x_BTC) @ self.wte.weight.T
        return logits_BTV, TF.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=-1)


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


def names(s: Any) -> Named:
    return Named(
        lambda m, x: m.out(m.hidden(m.embedding(x).flatten(1)).tanh()),
        embedding=torch.nn.Embedding(s.V, s.embedding), hidden=torch.nn.Linear(s.T * s.embedding, s.hidden),
        out=torch.nn.Linear(s.hidden, s.V),
    )  # fmt: skip


def bag(s: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        e = m.embedding(x) + m.position.weight[: x.shape[1]]
        h = e + e.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return m.out(h + m.mlp(h))

    mlp = sequence(torch.nn.Linear(s.C, s.C), torch.nn.Tanh(), torch.nn.Linear(s.C, s.C))
    return Named(
        forward, embedding=torch.nn.Embedding(s.V, s.C), position=torch.nn.Embedding(LONGEST_NAME, s.C), mlp=mlp,
        out=torch.nn.Linear(s.C, s.V),
    )  # fmt: skip


def recurrent(layer: type[torch.nn.Module]) -> Callable[[Any], Named]:
    return lambda s: Named(
        lambda m, x: m.out(m.layer(m.embedding(x))[0]),
        embedding=torch.nn.Embedding(s.V, s.C), layer=layer(s.C, s.C, s.layers, batch_first=True),
        out=torch.nn.Linear(s.C, s.V),
    )  # fmt: skip


def wavenet(s: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.embedding(x)
        for pair in m.pairs:
            h = pair.linear(h.reshape(h.shape[0], h.shape[1] // 2, -1))
            h = pair.norm(h.transpose(1, 2)).transpose(1, 2).tanh()
        return m.out(h.flatten(1))

    pairs = sequence(*(
        Named(lambda m, x: x, linear=torch.nn.Linear(2 * C, s.C, bias=False), norm=torch.nn.BatchNorm1d(s.C))
        for C in (s.embedding, s.C, s.C)
    ))  # fmt: skip
    return Named(forward, embedding=torch.nn.Embedding(s.V, s.embedding), pairs=pairs, out=torch.nn.Linear(s.C, s.V))


def transformer(s: Any) -> torch.nn.Module:
    gpt = TorchGPT(gpt_config(s))
    gpt_forward = gpt.forward
    gpt.forward = lambda x: gpt_forward(x, x)[0]  # type: ignore[method-assign,assignment]
    return gpt


def gpt_config(s: Any) -> GPTConfig:
    """Returns the shape of a GPT that reads up to T characters, or a name."""
    return GPTConfig(s.V, max(s.T, s.least), s.layers, s.H, s.C, bias=False)


def of_two_classes(model: Any, x: Any) -> Any:
    """Returns logits whose cross-entropy is that of logistic regression: 0, and what the model gives."""
    logit = model(x)
    return (pg if isinstance(x, Tensor) else torch).cat([0.0 * logit, logit], 1)


def bert(s: Any) -> Named:
    layer = torch.nn.TransformerEncoderLayer(
        s.C, s.H, 4 * s.C, 0.0, activation="gelu", batch_first=True, norm_first=True
    )  # fmt: skip
    encoder = torch.nn.TransformerEncoder(layer, s.layers, norm=torch.nn.LayerNorm(s.C), enable_nested_tensor=False)
    return Named(
        lambda m, x: m.head(m.encoder(m.characters(x) + m.positions.weight[: x.shape[1]])),
        characters=torch.nn.Embedding(s.V + 1, s.C), positions=torch.nn.Embedding(s.T, s.C), encoder=encoder,
        head=sequence(torch.nn.Linear(s.C, s.C), torch.nn.GELU(), torch.nn.LayerNorm(s.C), torch.nn.Linear(s.C, s.V)),
    )  # fmt: skip


def mnist(s: Any) -> Named:
    layers = {"hidden": torch.nn.Linear(s.pixels, s.hidden), "out": torch.nn.Linear(s.hidden, s.V)}
    return Named(lambda m, x: m.out(m.hidden(x).relu()), **layers)


def cnn(s: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.conv2(m.conv1(x.reshape(-1, 1, s.side, s.side)).relu()).relu()
        x = m.conv4(m.conv3(TF.max_pool2d(x, 2)).relu()).relu()
        return m.out(TF.max_pool2d(x, 2).flatten(1))

    sizes = ((1, s.C), (s.C, s.C), (s.C, 2 * s.C), (2 * s.C, 2 * s.C))
    convs = {f"conv{i}": torch.nn.Conv2d(*size, 3, padding=1) for i, size in enumerate(sizes, 1)}
    return Named(forward, **convs, out=torch.nn.Linear(2 * s.C * (s.side // 4) ** 2, s.V))


def sentiment(s: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        counts = (x != 0).float()[:, :, None]
        mean = (m.embedding(x) * counts).sum(1) / counts.sum(1).clamp(min=1.0)
        return m.out(m.hidden(mean).relu())

    return Named(
        forward, embedding=torch.nn.Embedding(s.V, s.embedding), hidden=torch.nn.Linear(s.embedding, s.hidden),
        out=torch.nn.Linear(s.hidden, 1),
    )  # fmt: skip


def vae(s: Any) -> Named:
    first, last = torch.nn.Linear(PIXELS, s.hidden), torch.nn.Linear(s.hidden, PIXELS)
    return Named(
        lambda m, x: m.decoder(m.encoder(x)[:, : s.code]),
        encoder=sequence(first, torch.nn.ReLU(), torch.nn.Linear(s.hidden, 2 * s.code)),
        decoder=sequence(torch.nn.Linear(s.code, s.hidden), torch.nn.ReLU(), last),
    )


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


def diffusion(s: Any) -> Named:
    c, time = s.C, 4 * s.C

    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(-np.log(10_000.0) * torch.arange(c // 2) / (c // 2))
        angles = 1000.0 * torch.from_numpy(times(len(x)))[:, None] * frequencies[None]
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


# ---- batches ----
def times(count: int) -> Array:
    """Returns the times of noisy images, from 0 to 1."""
    return np.linspace(0.1, 0.9, count).astype(np.float32)


def characters(rng: np.random.Generator, s: Any) -> tuple[Array, Array]:
    """Returns tokens (B, T), and a target for each."""
    return rng.integers(0, s.V, (s.B, s.T)), rng.integers(0, s.V, (s.B, s.T))


def windows(rng: np.random.Generator, s: Any) -> tuple[Array, Array]:
    """Returns tokens (B, T), and a target for each window."""
    return rng.integers(0, s.V, (s.B, s.T)), rng.integers(0, s.V, s.B)


def rows(rng: np.random.Generator, s: Any) -> tuple[Array, Array]:
    """Returns rows of features (B, F), and a number for each."""
    return numbers(rng, s.B, s.F), numbers(rng, s.B, 1)


def pictures(pixels: Callable[[Any], int]) -> Batch:
    """Returns a batch of pixels, and a class for each picture."""
    return lambda rng, s: (numbers(rng, s.B, pixels(s)), rng.integers(0, s.V, s.B))


def numbers(rng: np.random.Generator, *shape: int) -> Array:
    """Returns standard normal numbers, float32."""
    return rng.standard_normal(shape, dtype=np.float32)


# ---- twins ----
SMALL, NAMES = {"V": 11, "B": 4, "T": 8}, {"V": 27, "B": 32, "T": 16}
RECURRENT = Sizes(**SMALL, C=6, layers=2), Sizes(**{**NAMES, "B": 64}, C=128, layers=1)
TWINS = {
    "linear": Twin(
        lambda s: nn.Linear(s.F, 1), lambda s: torch.nn.Linear(s.F, 1), rows, Sizes(B=4, F=3), Sizes(B=353, F=10)
    ),
    "logistic": Twin(
        lambda s: nn.Linear(s.F, 1), lambda s: torch.nn.Linear(s.F, 1),
        lambda rng, s: (numbers(rng, s.B, s.F), rng.integers(0, 2, s.B)), Sizes(B=4, F=3), Sizes(B=455, F=30),
        of_two_classes,
    ),
    "bigram": Twin(
        lambda s: LogisticBigram(s.V), lambda s: Named(lambda m, x: m.table(x)[:, 0], table=torch.nn.Embedding(s.V, s.V)),
        windows, Sizes(V=11, B=4, T=1), Sizes(V=27, B=228_146, T=1),
    ),
    "names": Twin(
        lambda s: BengioModel(s.V, s.T, s.embedding, s.hidden), names, windows,
        Sizes(V=11, B=4, T=3, embedding=4, hidden=6), Sizes(V=27, B=32, T=3, embedding=10, hidden=200),
    ),
    "bag": Twin(lambda s: BagOfWords(s.V, width=s.C), bag, characters, Sizes(**SMALL, C=6), Sizes(**NAMES, C=64)),
    "rnn": Twin(
        lambda s: CharacterRNN(nn.RNN, s.V, s.C, s.layers), recurrent(torch.nn.RNN), characters, *RECURRENT
    ),
    "gru": Twin(
        lambda s: CharacterRNN(nn.GRU, s.V, s.C, s.layers), recurrent(torch.nn.GRU), characters, *RECURRENT
    ),
    "lstm": Twin(
        lambda s: CharacterRNN(nn.LSTM, s.V, s.C, s.layers), recurrent(torch.nn.LSTM), characters, *RECURRENT
    ),
    "wavenet": Twin(
        lambda s: WaveNet(s.V, s.T, s.embedding, s.C), wavenet, windows,
        Sizes(**SMALL, embedding=6, C=8), Sizes(**{**NAMES, "T": 8}, embedding=24, C=128),
    ),
    "transformer": Twin(
        lambda s: NameTransformer(gpt_config(s)), transformer, characters,
        Sizes(**SMALL, least=LONGEST_NAME, layers=2, H=2, C=8), Sizes(**NAMES, least=LONGEST_NAME, layers=4, H=4, C=64),
    ),
    "gpt": Twin(
        lambda s: NameTransformer(gpt_config(s)), transformer, characters,
        Sizes(**SMALL, least=1, layers=2, H=2, C=8), Sizes(V=65, B=12, T=64, least=1, layers=4, H=4, C=128),
    ),
    "nano": Twin(
        lambda s: Nano(dialled(1, s.V, s.T)), lambda s: TorchNano(dialled(1, s.V, s.T)), characters, Sizes(**SMALL),
        Sizes(V=1024, B=32, T=128),
    ),
    "bert": Twin(
        lambda s: BERT(s.V, s.T, s.layers, s.H, s.C), bert, characters,
        Sizes(**SMALL, layers=2, H=2, C=8), Sizes(V=96, B=32, T=64, layers=4, H=4, C=128),
    ),
    "mnist": Twin(
        lambda s: PixelMLP(s.pixels, s.hidden, s.V), mnist, pictures(lambda s: s.pixels),
        Sizes(V=11, B=4, pixels=9, hidden=6), Sizes(V=10, B=256, pixels=PIXELS, hidden=512),
    ),
    "cnn": Twin(
        lambda s: PixelCNN(s.side, s.C, s.V), cnn, pictures(lambda s: s.side**2),
        Sizes(V=11, B=4, side=12, C=6), Sizes(V=10, B=128, side=28, C=32),
    ),
    "sentiment": Twin(
        lambda s: BagClassifier(s.V, s.embedding, s.hidden, dropout=0.0), sentiment,
        lambda rng, s: (rng.integers(0, s.V, (s.B, s.T)), numbers(rng, s.B, 1)),
        Sizes(**SMALL, embedding=6, hidden=5), Sizes(V=24_737, B=64, T=100, embedding=64, hidden=64),
        lambda model, x: model(x).unsqueeze(1) if isinstance(x, Tensor) else model(x),
    ),
    "vae": Twin(
        lambda s: VAE(s.hidden, s.code), vae, lambda rng, s: (numbers(rng, s.B, PIXELS), numbers(rng, s.B, PIXELS)),
        Sizes(B=4, hidden=6, code=3), Sizes(B=128, hidden=400, code=20),
        lambda model, x: model.decoder(model.encode(x)[0]) if isinstance(x, Tensor) else model(x),
    ),
    "diffusion": Twin(
        lambda s: UNet(s.C), diffusion,
        lambda rng, s: (numbers(rng, s.B, 1, 28, 28), numbers(rng, s.B, 1, 28, 28)),
        Sizes(B=2, C=8), Sizes(B=64, C=32),
        lambda model, x: model(x, Tensor(times(x.shape[0]))) if isinstance(x, Tensor) else model(x),
    ),
}  # fmt: skip


def loss_of(output: Any, target: Any, functional: Any) -> Any:
    """Cross-entropy of classes, the squared error of numbers."""
    is_class = target.ndim == output.ndim - 1
    if is_class:
        return functional.cross_entropy(output.flatten(0, -2), target.flatten())
    return functional.mse_loss(output, target)


def with_weights_of(ours: nn.Module, theirs: torch.nn.Module) -> nn.Module:
    """Gives our module the weights of the PyTorch one, and returns it."""
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours


def torch_optimizer(model: torch.nn.Module, lr: float, weight_decay: float = 0.1) -> torch.optim.AdamW:
    """Returns nanoGPT's AdamW: matrices decay, vectors do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
