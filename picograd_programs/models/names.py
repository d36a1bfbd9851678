"""`picograd train names`: the neural language model of Bengio et al. on first names; shared parts of all models of names.

A model of names is a network that returns the logits of the next character. It reads either a window of the last
characters, (B, T) -> (B, V), or whole names, (B, T) -> (B, T, V); only the first have a setting `context`.

Source: Bengio, Ducharme, Vincent, Jauvin 2003, "A neural probabilistic language model", JMLR 3, eq. 1 without the direct
       connections (W = 0); Karpathy, makemore (data, split, sizes).

Letters: N names or windows, B batch, T positions, E embedding, D hidden units, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from picograd import nn
from picograd.nn import functional as F
from picograd.optim.descent import SGD
from picograd.optim.optimizer import Optimizer
from picograd.tensor.generator import Generator, manual_seed
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.names import CHARACTERS, Sequences, decode, divided, load_names, sequences, windows
from picograd_programs.models.gpt import drawn_from, optimizer_of
from picograd_programs.train.program import NoOption, Program, SampleSettings, Settings, check_settings, plain, trained

LONGEST_NAME = 20  # characters; longer samples are cut
PREVIEWED = 5  # names per evaluation
EVALUATED = 1024  # names or windows per batch of an evaluation
PARTS = ("train", "dev", "test")


# ---- the network: characters as vectors, one tanh layer, a logit per next character ----
class BengioModel(nn.Module):
    """logits = tanh([C(w1) ... C(wT)] @ W1 + b1) @ W2 + b2

    vocabulary:  V
    context:     T
    embedding:   E
    hidden:      D
    """

    def __init__(self, vocabulary: int = 27, context: int = 3, embedding: int = 10, hidden: int = 200):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.hidden = nn.Linear(context * embedding, hidden)
        self.out = nn.Linear(hidden, vocabulary)

    def forward(self, contexts_BT: Tensor) -> Tensor:
        """Returns the logits (B, V), float32, for contexts (B, T), integers 0..V-1."""
        x_BTE: Tensor = self.embedding(contexts_BT)
        hidden_BD: Tensor = self.hidden(x_BTE.flatten(1)).tanh()
        logits_BV: Tensor = self.out(hidden_BD)
        return logits_BV


# ---- what all models of names share ----
@dataclass(frozen=True)
class NamesSettings(Settings):
    """Settings of every training of a model of names."""

    steps: int = 5000
    batch: int = 32
    lr: float = 2e-3
    eval_every: int = 1000
    save_every: int = 1000
    samples: int = 10  # number of names to print at the end
    # of makemore's lectures (a tenth each for development and test), or of its script (1,000 names for both)
    split: Literal["lectures", "script"] = "lectures"


@dataclass(frozen=True)
class SampleNamesSettings(SampleSettings):
    """Settings of `picograd sample` of a model of names."""

    num: int = 20  # number of names


class NamesProgram(Program):
    """Fits a network to first names. A subclass has its name and builds its network."""

    item, lowest = "names", "dev loss"
    same = (*Program.same, "split")
    samples = SampleNamesSettings

    def __init__(self, settings: Any):
        context = getattr(settings, "context", None)
        self.parts = [examples(names, context) for names in divided(load_names(), settings.split)]
        manual_seed(settings.seed)
        self.model = self.build(plain(settings))
        self.optimizer = self.make_optimizer(settings)
        super().__init__(settings)

    def make_optimizer(self, settings: Any) -> Optimizer:
        """Returns the optimizer of the network's weights."""
        return optimizer_of(self.model, settings.lr, settings.weight_decay)

    def batch(self, number: int) -> Sequences:
        """Returns names or windows, drawn with replacement."""
        tokens_NT, targets_N = self.parts[0]
        rows_B = np.random.default_rng((self.settings.seed, number)).integers(0, len(tokens_NT), self.settings.batch)
        return Sequences(tokens_NT[rows_B], targets_N[rows_B])

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Returns the mean negative log-likelihood of a character, in nats."""
        return cross_entropy(model(batch[0]), batch[1])

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the loss on the development names."""
        return {"dev loss": nll(model, self.parts[1])}

    def preview(self, model: nn.Module, step: int) -> str:
        """Returns a few new names."""
        return ", ".join(new_names(model, PREVIEWED, 1.0, self.settings.seed, self.facts.get("context")))

    def describe(self) -> str:
        """Returns the numbers of examples and of weights."""
        return f"{len(self.parts[0].tokens):,} {self.item}, {super().describe()}"

    def report(self, model: nn.Module) -> str:
        """Returns the losses on all parts of the data, and new names."""
        losses = ", ".join(f"{name} {nll(model, part):.4f}" for name, part in zip(PARTS, self.parts))
        drawn = new_names(model, self.settings.samples, 1.0, self.settings.seed, self.facts.get("context"))
        return f"loss: {losses}\nnew names: {', '.join(drawn)}"

    @classmethod
    def sample(cls, settings: SampleNamesSettings) -> str:
        """Returns new names from a checkpoint, one a line.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training.
        """
        check_settings(settings)
        model, facts = trained(cls, settings.checkpoint)
        return "\n".join(new_names(model, settings.num, settings.temperature, settings.seed, facts.get("context")))


def examples(names: Sequence[str], context: int | None) -> Sequences:
    """Returns windows of `context` characters, or whole names, with the next character of each position."""
    return sequences(names) if context is None else Sequences(*windows(names, context))


def cross_entropy(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Returns the cross-entropy of logits (..., V) and targets (...); targets of -1 are ignored."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=-1, reduction=reduction)


def nll(model: nn.Module, part: Sequences) -> float:
    """Returns the mean negative log-likelihood of a part of the data, in nats per character."""
    rows = -len(part.tokens) % EVALUATED  # examples that pad the last batch and are ignored
    padded = [
        np.pad(array, ((0, rows), *[(0, 0)] * (array.ndim - 1)), constant_values=fill) for array, fill in zip(part, (0, -1))
    ]

    @jit
    def total(tokens: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model(tokens), targets, reduction="sum")

    with no_grad():
        sums = [
            total(*(Tensor(array[start : start + EVALUATED]) for array in padded)).item()
            for start in range(0, len(padded[0]), EVALUATED)
        ]
    return sum(sums) / int((part.targets >= 0).sum())


def new_names(model: nn.Module, num: int, temperature: float, seed: int, context: int | None) -> list[str]:
    """Returns new names, each drawn character by character until it ends.

    Args:
      temperature:  below 1 prefers likely characters; 0 always takes the likeliest
      context:      number of characters in the model's window, or None
    """
    generator = Generator(seed)

    @jit
    def following(tokens_NT: Tensor, place: Tensor) -> Tensor:
        logits: Tensor = model(tokens_NT)
        logits_NV = logits if logits.ndim == 2 else logits.index_select(1, place).squeeze(1)
        return drawn_from(logits_NV, temperature, generator=generator)

    ahead = context or 1  # number of dots before a name
    drawn_NT = np.zeros((num, ahead + LONGEST_NAME), np.int32)
    with no_grad():
        for place in range(LONGEST_NAME):
            seen = drawn_NT[:, place : place + context] if context else drawn_NT[:, :LONGEST_NAME]
            drawn_NT[:, place + ahead] = following(Tensor(seen), Tensor([place])).numpy()
    return [decode(row).split(".")[0] for row in drawn_NT[:, ahead:].tolist()]


# ---- picograd train names ----
@dataclass(frozen=True)
class BengioSettings(NamesSettings):
    """Settings of `picograd train names`; the whole run of makemore's lecture has --steps 200000."""

    steps: int = 20_000
    context: int = 3  # number of characters that the model sees
    embedding: int = 10  # features of a character
    hidden: int = 200  # units of the hidden layer
    lr: float = 0.01  # constant learning rate
    warmup: NoOption[int] = 0
    weight_decay: NoOption[float] = 0.0
    eval_every: int = 5000
    save_every: int = 5000
    out: Path = Path("runs/names")


class Bengio(NamesProgram):
    """Fits the model of Bengio et al. by plain gradient descent, as makemore does."""

    name, item, takes = "names", "windows", BengioSettings
    about = "Invents first names with the language model of Bengio et al."

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> BengioModel:
        """Returns the network."""
        return BengioModel(len(CHARACTERS), facts["context"], facts["embedding"], facts["hidden"])

    def make_optimizer(self, settings: BengioSettings) -> SGD:
        """Returns gradient descent without momentum and decay."""
        return SGD(self.model.parameters(), lr=settings.lr)

    def schedule(self, step: int) -> float:
        """Returns 1: the learning rate is constant."""
        return 1.0
