"""`picograd train gpt` and `picograd sample gpt`: a small GPT on the characters of a text.

Source: Karpathy, nanoGPT, config/train_shakespeare_char.py and its settings for a CPU: the defaults here.

Letters: N characters, B batch, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.errors import DataError
from picograd.tensor.generator import Generator, manual_seed
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.fetch import sha256_of
from picograd_programs.data.text import Vocabulary, Windows, load_text, random_windows, spaced_windows, split
from picograd_programs.models.gpt import GPT, GPTConfig, generate, optimizer_of
from picograd_programs.train.program import Program, SampleSettings, Settings, check_settings, trained

PREVIEWED = 100  # characters shown at an evaluation


@dataclass(frozen=True)
class TextSettings(Settings):
    """Settings of trainings on the characters of a text."""

    text: str = "python"  # "python" (source of the standard library), "shakespeare" (tiny Shakespeare), or a file
    layers: int = 4  # blocks of the model
    heads: int = 4  # attention heads in each block
    width: int = 128  # features of a character
    block: int = 64  # context length in characters
    dropout: float = 0.0  # probability of dropout in training
    batch: int = 12
    steps: int = 2000
    warmup: int = 100
    weight_decay: float = 0.1
    clip: float = 1.0
    eval_every: int = 250
    save_every: int = 250
    eval_batches: int = 20  # batches per evaluation; ten times as many after the last step


@dataclass(frozen=True)
class GptSettings(TextSettings):
    """Settings of `picograd train gpt`; the defaults are nanoGPT's for a CPU."""

    lr: float = 1e-3
    beta2: float = 0.99  # decay of AdamW's second moment
    sample: int = 500  # characters to print at the end
    out: Path = Path("runs/gpt")


@dataclass(frozen=True)
class SampleGptSettings(SampleSettings):
    """Settings of `picograd sample gpt`."""

    prompt: str = ""  # text to continue; default: a newline
    length: int = 500  # number of characters to draw
    temperature: float = 0.8
    top_k: int = 200  # draw only from this many of the likeliest characters


class TextProgram(Program):
    """A model of the characters of a text, whose last tenth is held out."""

    item, per = "characters", "element"
    same = (*Program.same, "block", "heads", "characters", "text_digest")
    lowest = "validation loss"

    def __init__(self, settings: Any):
        self.text = load_text(settings.text)
        self.vocabulary = Vocabulary.of(self.text)
        self.train_N, self.held_out_N = split(self.vocabulary.encode(self.text), settings.block)
        facts = {"characters": self.vocabulary.characters, "text_digest": sha256_of(self.text.encode())}
        super().__init__(settings, **facts)
        manual_seed(settings.seed)
        self.model = self.build(self.facts)

    def windows_at(self, number: int) -> Windows:
        """Returns windows of the text at random positions."""
        settings = self.settings
        return random_windows(self.train_N, settings.seed, number, settings.batch, settings.block)

    def held_out(self, num_batches: int) -> list[Windows]:
        """Returns windows of the held-out tenth at equal distances, the same each time."""
        batch = self.settings.batch
        windows = spaced_windows(self.held_out_N, num_batches * batch, self.settings.block)
        return [Windows(*(part[i : i + batch] for part in windows)) for i in range(0, num_batches * batch, batch)]

    def describe(self) -> str:
        """Returns the size of the text and the number of weights."""
        characters = f"{len(self.text):,} characters of {self.settings.text}, {len(self.vocabulary)} different"
        return f"{characters}; {super().describe()}"


class CharacterGPT(TextProgram):
    """Fits a GPT to a text."""

    name, takes, samples = "gpt", GptSettings, SampleGptSettings
    about = "Continues text like the text it was trained on."

    def __init__(self, settings: GptSettings):
        super().__init__(settings)
        self.optimizer = optimizer_of(self.model, settings.lr, settings.weight_decay, (0.9, settings.beta2))
        self.windows = self.held_out(settings.eval_batches)

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> GPT:
        """Returns the network."""
        shape = (facts["block"], facts["layers"], facts["heads"], facts["width"])
        return GPT(GPTConfig(len(facts["characters"]), *shape, facts["dropout"], bias=False))

    def batch(self, number: int) -> Windows:
        """Returns windows, and the next character of each position."""
        return self.windows_at(number)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Returns the mean cross-entropy of the next character, in nats."""
        return model(*batch)[1]

    def evaluate(self, model: GPT) -> Mapping[str, float]:
        """Returns the loss on held-out windows."""
        return {"validation loss": mean_loss(model, self.windows)}

    def preview(self, model: GPT, step: int) -> str:
        """Returns a few lines of new text."""
        prompt = default_prompt(self.vocabulary)
        return continued(model, self.vocabulary, prompt, PREVIEWED, seed=self.settings.seed).strip()

    def report(self, model: GPT) -> str:
        """Returns the loss on more of the held-out windows, and new text."""
        loss = mean_loss(model, self.held_out(10 * self.settings.eval_batches))
        prompt = default_prompt(self.vocabulary)
        text = continued(model, self.vocabulary, prompt, self.settings.sample, seed=self.settings.seed)
        return f"validation loss: {loss:.4f}\n{text}"

    @classmethod
    def sample(cls, settings: SampleGptSettings) -> str:
        """Returns new text from a checkpoint; several texts are separated by a line of dashes.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training; or the prompt has a character outside the
          vocabulary.
        """
        check_settings(settings)
        model, facts = trained(cls, settings.checkpoint)
        vocabulary = Vocabulary(facts["characters"])
        prompt = settings.prompt or default_prompt(vocabulary)
        how = (settings.length, settings.temperature, settings.top_k)
        texts = [continued(model, vocabulary, prompt, *how, settings.seed + number) for number in range(settings.num)]
        return f"\n{'-' * 20}\n".join(texts)


def mean_loss(model: GPT, batches: list[Windows]) -> float:
    """Returns the mean loss over batches of equal size."""

    @jit
    def loss_of(tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
        return model(tokens_BT, targets_BT)[1]

    return float(np.mean([loss_of(*map(Tensor, batch)).item() for batch in batches]))


def continued(
    model: GPT,
    vocabulary: Vocabulary,
    prompt: str,
    length: int,
    temperature: float = 0.8,
    top_k: int = 200,
    seed: int = 0,
) -> str:
    """Returns the prompt with `length` drawn characters after it.

    Raises:
      DataError: the prompt has a character outside the vocabulary.
    """
    try:
        tokens_T: NDArray[np.int32] = vocabulary.encode(prompt)
    except DataError as error:
        raise DataError(error.fact.replace("encode", "--prompt", 1)) from None
    text_BT = generate(model, Tensor(tokens_T[None]), length, temperature, top_k, Generator(seed))
    return vocabulary.decode(text_BT.tolist()[0])


def default_prompt(vocabulary: Vocabulary) -> str:
    """Returns a newline, or the first character if the vocabulary has none."""
    return "\n" if "\n" in vocabulary.characters else vocabulary.characters[0]
