"""The trainings of `picograd train` in PyTorch, from the same weights, with the same batches, for tests and benches.

A program of ours gives its settings, its weights, its batches, its optimizer's rates and its draws. The network, its loss
and the optimizer are PyTorch's.

Letters: B batch, T positions, V vocabulary, C width, H heads, D features of a head.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace as Facts
from typing import Any, NamedTuple

import numpy as np
import torch
import tyro
from torch.nn import functional as TF

from picograd import Tensor, nn
from picograd.optim.adam import AdamW
from picograd.optim.descent import SGD
from picograd.optim.optimizer import Optimizer
from picograd.tensor.generator import manual_seed
from picograd_programs import cli
from picograd_programs.data.names import CHARACTERS
from picograd_programs.models.bert import NOT_ASKED
from picograd_programs.models.diffusion import SIDE, signal
from picograd_programs.models.gpt import GPTConfig
from picograd_programs.models.names import LONGEST_NAME
from picograd_programs.models.vae import PIXELS
from picograd_programs.nano.base import Base, prepare
from picograd_programs.nano.network import dialled
from picograd_programs.nano.run import NanoProgram
from picograd_programs.train.program import Program
from picograd_programs.train.trainer import STEP, Batch, Trainer, seed_from
from tests.models.torch_nano import Muon, TorchNano

Array = np.ndarray[Any, Any]
V = len(CHARACTERS)


class Twin(NamedTuple):
    """A network in PyTorch, made of a run's facts; its loss, of the network, the facts and a batch."""

    network: Callable[[Any], torch.nn.Module]
    loss: Callable[..., torch.Tensor]


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

    def __init__(self, function: Callable[..., Any], **layers: torch.nn.Module):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(self, *inputs)


def sequence(*layers: torch.nn.Module) -> torch.nn.Sequential:
    return torch.nn.Sequential(*layers)


def names(f: Any) -> Named:
    return Named(
        lambda m, x: m.out(m.hidden(m.embedding(x).flatten(1)).tanh()),
        embedding=torch.nn.Embedding(V, f.embedding), hidden=torch.nn.Linear(f.context * f.embedding, f.hidden),
        out=torch.nn.Linear(f.hidden, V),
    )  # fmt: skip


def bag(f: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        e = m.embedding(x) + m.position.weight[: x.shape[1]]
        h = e + e.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]
        return m.out(h + m.mlp(h))

    C = f.width
    mlp = sequence(torch.nn.Linear(C, C), torch.nn.Tanh(), torch.nn.Linear(C, C))
    return Named(
        forward, embedding=torch.nn.Embedding(V, C), position=torch.nn.Embedding(LONGEST_NAME, C), mlp=mlp,
        out=torch.nn.Linear(C, V),
    )  # fmt: skip


def recurrent(layer: type[torch.nn.Module]) -> Callable[[Any], Named]:
    return lambda f: Named(
        lambda m, x: m.out(m.layer(m.embedding(x))[0]),
        embedding=torch.nn.Embedding(V, f.width), layer=layer(f.width, f.width, f.layers, batch_first=True),
        out=torch.nn.Linear(f.width, V),
    )  # fmt: skip


def wavenet(f: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.embedding(x)
        for pair in m.pairs:
            h = pair.linear(h.reshape(h.shape[0], h.shape[1] // 2, -1))
            h = pair.norm(h.transpose(1, 2)).transpose(1, 2).tanh()
        return m.out(h.flatten(1))

    depth = f.context.bit_length() - 1
    pairs = sequence(*(
        Named(lambda m, x: x, linear=torch.nn.Linear(2 * C, f.width, bias=False), norm=torch.nn.BatchNorm1d(f.width))
        for C in [f.embedding, *[f.width] * (depth - 1)]
    ))  # fmt: skip
    return Named(forward, embedding=torch.nn.Embedding(V, f.embedding), pairs=pairs, out=torch.nn.Linear(f.width, V))


def transformer(f: Any) -> torch.nn.Module:
    gpt = TorchGPT(GPTConfig(V, LONGEST_NAME, f.layers, f.heads, f.width, bias=False))
    gpt_forward = gpt.forward
    gpt.forward = lambda x: gpt_forward(x, x)[0]  # type: ignore[method-assign,assignment]
    return gpt


def bert(f: Any) -> Named:
    C, num = f.width, len(f.characters)
    layer = torch.nn.TransformerEncoderLayer(C, f.heads, 4 * C, 0.0, activation="gelu", batch_first=True, norm_first=True)
    encoder = torch.nn.TransformerEncoder(layer, f.layers, norm=torch.nn.LayerNorm(C), enable_nested_tensor=False)
    return Named(
        lambda m, x: m.head(m.encoder(m.characters(x) + m.positions.weight[: x.shape[1]])),
        characters=torch.nn.Embedding(num + 1, C), positions=torch.nn.Embedding(f.block, C), encoder=encoder,
        head=sequence(torch.nn.Linear(C, C), torch.nn.GELU(), torch.nn.LayerNorm(C), torch.nn.Linear(C, num)),
    )  # fmt: skip


def mnist(f: Any) -> Named:
    layers = {"hidden": torch.nn.Linear(PIXELS, f.hidden), "out": torch.nn.Linear(f.hidden, 10)}
    return Named(lambda m, x: m.out(m.hidden(x).relu()), **layers)


def cnn(f: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.conv2(m.conv1(x.reshape(-1, 1, SIDE, SIDE)).relu()).relu()
        x = m.conv4(m.conv3(TF.max_pool2d(x, 2)).relu()).relu()
        return m.out(TF.max_pool2d(x, 2).flatten(1))

    C = f.channels
    sizes = ((1, C), (C, C), (C, 2 * C), (2 * C, 2 * C))
    convs = {f"conv{i}": torch.nn.Conv2d(*size, 3, padding=1) for i, size in enumerate(sizes, 1)}
    return Named(forward, **convs, out=torch.nn.Linear(2 * C * (SIDE // 4) ** 2, 10))


def sentiment(f: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        counts = (x != 0).float()[:, :, None]
        mean = (m.embedding(x) * counts).sum(1) / counts.sum(1).clamp(min=1.0)
        return m.out(m.hidden(mean).relu()).squeeze(1)

    return Named(
        forward, embedding=torch.nn.Embedding(1 + len(f.terms.split(" ")), f.embedding),
        hidden=torch.nn.Linear(f.embedding, f.hidden), out=torch.nn.Linear(f.hidden, 1),
    )  # fmt: skip


def vae(f: Any) -> Named:
    def forward(m: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        mean, log_variance = m.encoder(x).chunk(2, 1)
        code = mean + (0.5 * log_variance).exp() * f.drawn("randn", *mean.shape)
        return m.decoder(code), mean, log_variance

    first, last = torch.nn.Linear(PIXELS, f.hidden), torch.nn.Linear(f.hidden, PIXELS)
    return Named(
        forward, encoder=sequence(first, torch.nn.ReLU(), torch.nn.Linear(f.hidden, 2 * f.code)),
        decoder=sequence(torch.nn.Linear(f.code, f.hidden), torch.nn.ReLU(), last),
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


def diffusion(f: Any) -> Named:
    c, time = f.channels, 4 * f.channels

    def forward(m: Any, x: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(-math.log(10_000.0) * torch.arange(c // 2) / (c // 2))
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


# ---- losses ----
def drawn_by_ours(kind: str, *shape: int) -> torch.Tensor:
    """Returns the numbers that our generator draws next: "rand" or "randn"."""
    return torch.from_numpy(getattr(Tensor, kind)(*shape).numpy().copy())


def drawn_by_torch(kind: str, *shape: int) -> torch.Tensor:
    """Returns those that PyTorch's draws."""
    found: torch.Tensor = getattr(torch, kind)(*shape)
    return found


def likelihood(ignored: int = -1) -> Callable[..., torch.Tensor]:
    """Returns the mean cross-entropy of classes, of which one number does not count."""
    return lambda network, f, x, y: TF.cross_entropy(network(x).flatten(0, -2), y.flatten(), ignore_index=ignored)


def squared(network: Any, f: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return TF.mse_loss(network(x).squeeze(1), y)


def logistic(network: Any, f: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    penalty = 0.5 * f.decay * network.weight.square().sum()
    return TF.binary_cross_entropy_with_logits(network(x).squeeze(1), y) + penalty


def evidence(network: Any, f: Any, x: torch.Tensor) -> torch.Tensor:
    logits, mean, log_variance = network(x)
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
    return (TF.binary_cross_entropy_with_logits(logits, x, reduction="sum") + divergence) / len(x)


def denoising(network: Any, f: Any, x: torch.Tensor) -> torch.Tensor:
    times, noise = f.drawn("rand", len(x)).to(x), f.drawn("randn", *x.shape).to(x)
    left = signal(times, torch.cos)[:, None, None, None]
    return TF.mse_loss(network(left.sqrt() * x + (1 - left).sqrt() * noise, times), noise)


# ---- all of them ----
TWINS = {
    "linear": Twin(lambda f: torch.nn.Linear(f.features, 1), squared),
    "logistic": Twin(lambda f: torch.nn.Linear(f.features, 1), logistic),
    "bigram": Twin(lambda f: Named(lambda m, x: m.table(x)[:, 0], table=torch.nn.Embedding(V, V)), likelihood()),
    "sentiment": Twin(sentiment, lambda m, f, x, y: TF.binary_cross_entropy_with_logits(m(x), y)),
    "names": Twin(names, likelihood()),
    "bag": Twin(bag, likelihood()),
    "rnn": Twin(recurrent(torch.nn.RNN), likelihood()),
    "gru": Twin(recurrent(torch.nn.GRU), likelihood()),
    "lstm": Twin(recurrent(torch.nn.LSTM), likelihood()),
    "wavenet": Twin(wavenet, likelihood()),
    "transformer": Twin(transformer, likelihood()),
    "mnist": Twin(mnist, likelihood()),
    "cnn": Twin(cnn, likelihood()),
    "bert": Twin(bert, likelihood(NOT_ASKED)),
    "gpt": Twin(
        lambda f: TorchGPT(GPTConfig(len(f.characters), f.block, f.layers, f.heads, f.width, bias=False)),
        lambda m, f, x, y: m(x, y)[1],
    ),
    "diffusion": Twin(diffusion, denoising),
    "vae": Twin(vae, evidence),
    "nano": Twin(lambda f: TorchNano(dialled(f.depth, f.tokens, f.context)), likelihood()),
}


# ---- a training ----
@contextmanager
def program_of(*words: str) -> Iterator[Program]:
    """The training that `picograd train` makes of some words; of nano its first stage."""
    flat = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
    settings: Any = tyro.cli(cli.Train, args=words, config=flat).model  # type: ignore[attr-defined]
    kind = next(program for program in cli.PROGRAMS if program.takes is type(settings))
    with tempfile.TemporaryDirectory() as folder:
        settings = replace(settings, out=Path(folder))
        if kind is NanoProgram:
            prepare(settings).write(settings.out)
            kind = Base
        yield kind(settings)


class TorchTraining:
    """A program's training in PyTorch, from its weights; its model must draw nothing beside the loss, such as dropout.

    Args:
      drawn:  what the loss draws
      fused:  AdamW updates all weights by one kernel
    """

    def __init__(self, program: Program, drawn: Callable[..., torch.Tensor] = drawn_by_ours, fused: bool = False):
        twin, self.facts = TWINS[program.name], Facts(**program.facts, drawn=drawn)
        self.program, self.network = program, with_weights(twin.network(self.facts), program.model)
        self.loss_of: Callable[..., torch.Tensor] = twin.loss
        ours = program.optimizer if isinstance(program.optimizer, Sequence) else [program.optimizer]
        names = {id(parameter): name for name, parameter in program.model.named_parameters()}
        self.optimizers = [optimizer_like(each, names, self.network, fused) for each in ours]
        self.rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in self.optimizers]

    def batch(self, number: int) -> list[torch.Tensor]:
        """Returns a batch of the program, whole numbers as PyTorch has them."""
        parts = [torch.from_numpy(np.asarray(part)) for part in self.program.batch(number)]
        return [part if part.is_floating_point() else part.long() for part in parts]

    def loss(self, number: int) -> torch.Tensor:
        """Returns the loss of a batch; our generator draws what ours draws at that step."""
        manual_seed(seed_from(self.program.settings.seed, number, STEP))
        return self.loss_of(self.network, self.facts, *self.batch(number))

    def step(self, number: int) -> float:
        """Makes a step with its own rate and seed, as `Trainer.make_step` does, and returns its loss."""
        factor = self.program.schedule(number)
        for optimizer, rates in zip(self.optimizers, self.rates):
            for group, rate in zip(optimizer.param_groups, rates):
                group["lr"] = rate * factor
        manual_seed(seed_from(self.program.settings.seed, number, STEP))
        return self.update(*self.batch(number)).item()

    def update(self, *batch: torch.Tensor) -> torch.Tensor:
        """Makes a step, as `Trainer.step` does, and returns its loss."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss = self.loss_of(self.network, self.facts, *batch)
        loss.backward()
        if self.program.settings.clip:
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), self.program.settings.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def weight(self, name: str) -> Array:
        """Returns a weight."""
        return self.network.get_parameter(name).detach().numpy()


def optimizer_like(
    ours: Optimizer, names: Mapping[int, str], network: torch.nn.Module, fused: bool
) -> torch.optim.Optimizer:
    """Returns PyTorch's optimizer of the same kind, groups and rates.

    Args:
      names:  of our parameters, by their ids
    """
    groups = [
        {**group, "lr": float(group["lr"]), "params": [network.get_parameter(names[id(p)]) for p in group["params"]]}
        for group in ours.param_groups
    ]
    if isinstance(ours, AdamW):
        return torch.optim.AdamW(groups, fused=fused)
    return torch.optim.SGD(groups) if isinstance(ours, SGD) else Muon(groups)


class Noting(Trainer):
    """A trainer that notes the loss of each step, for comparisons.

    losses:  of the steps
    """

    def make_step(self, parts: Sequence[Batch]) -> Any:
        if not self.done:
            self.losses: list[float] = []
        figures = super().make_step(parts)
        self.losses.append(figures["loss"].item())
        return figures

    def gradients(self, batch: Batch) -> dict[str, Array]:
        """Returns the gradients of the first step by the names of weights."""
        manual_seed(seed_from(self.seed, 0, STEP))
        self.figures_of(batch)["loss"].backward()
        found = {of: weight.grad.numpy().copy() for of, weight in self.model.named_parameters() if weight.grad is not None}
        self.model.zero_grad()
        return found


def with_weights(theirs: torch.nn.Module, ours: nn.Module) -> Any:
    """Gives a PyTorch module the weights of ours, and returns it."""
    theirs.load_state_dict({name: torch.tensor(value.detach().numpy()) for name, value in ours.state_dict().items()})
    return theirs


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
