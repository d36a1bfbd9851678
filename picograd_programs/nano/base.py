"""First stage of nano: learns a vocabulary from a text, and trains a decoder to predict that text.

The last tenth of the text is held out, also from the vocabulary; the loss on it is reported in bits per byte.

Source: Karpathy 2025, nanochat, `tok_train` and `base_train`.

Letters: N tokens, R rows, T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from picograd.errors import ArgumentError, DataError
from picograd.nn import functional as F
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_programs.data.bpe import ByteLevel
from picograd_programs.data.bpe_learn import learned_bpe
from picograd_programs.data.text import Windows, load_text, random_windows, spaced_windows
from picograd_programs.data.tokenizer_json import save_tokenizer
from picograd_programs.data.tokens import map_tokens, write_tokens
from picograd_programs.nano.lessons import Lessons
from picograd_programs.nano.network import Nano, mean_loss
from picograd_programs.nano.stage import MARKS, VOCABULARY, Answers, NanoSettings, Stage
from picograd_programs.train.measures import bits_per_byte, perplexity

TRAIN_SHARE = 0.9
LESSONS = 2000  # lessons whose words also enter the vocabulary
WINDOWS = 64  # per evaluation
BEGUN, PREVIEWED, PREVIEW_TEMPERATURE = 8, 32, 0.8  # tokens of held-out text, and of its continuation


class Prepared(NamedTuple):
    """A vocabulary, and the tokens of both parts of the text by name."""

    tokenizer: ByteLevel
    parts: Mapping[str, Sequence[int]]

    def write(self, folder: Path) -> None:
        """Writes both to the folder of a run."""
        save_tokenizer(self.tokenizer, folder / VOCABULARY)
        for name, tokens in self.parts.items():
            write_tokens(folder / f"{name}.bin", tokens, len(self.tokenizer.tokens))


def prepare(settings: NanoSettings) -> Prepared:
    """Learns the vocabulary, and encodes the text with it.

    Raises:
      DataError: the text is too short.
      ArgumentError: the vocabulary is too small, or larger than the text allows.
    """
    text = load_text(settings.text)
    cut = int(len(text) * TRAIN_SHARE)
    lessons = Lessons(text, settings.depth).several(LESSONS, np.random.default_rng(settings.seed))
    asked = "\n".join(f"user\n{question}\nassistant\n{answer}" for question, answer in lessons)
    try:
        tokenizer = learned_bpe([text[:cut], asked], settings.vocabulary, control=MARKS)
    except ArgumentError as error:
        raise ArgumentError(f"--vocabulary: {error.fact}") from None
    num = len(tokenizer.tokens)
    if num < settings.vocabulary:
        raise ArgumentError(
            f"--vocabulary: got {settings.vocabulary:,}; the text gives {num:,} tokens at most.",
            f"--vocabulary {num}, or a longer text",
        )
    parts = {"train": tokenizer.encode(text[:cut]), "held-out": tokenizer.encode(text[cut:])}
    for name, tokens in parts.items():
        if len(tokens) <= settings.context:
            raise DataError(
                f"--text: its {name} part has {len(tokens):,} tokens;"
                f" more than the {settings.context:,} of a context are needed.",
                hint="a longer text, or a smaller --context",
            )
    return Prepared(tokenizer, parts)


class Base(Stage):
    """Learns a text: predicts each token from those before it."""

    stage, item, per = "base", "tokens", "element"
    about = "Reads a text."

    def __init__(self, settings: NanoSettings):
        super().__init__(settings)
        num = len(self.tokenizer.tokens)
        self.train_N, self.held_out_N = (map_tokens(settings.out / f"{name}.bin", num) for name in ("train", "held-out"))
        self.nbytes_V = np.array([len(self.tokenizer.bytes_of(number)) for number in range(num)])
        self.steps = self.text_steps

    def batch(self, number: int) -> Windows:
        """Returns windows of the text, and the next token of each position."""
        settings = self.settings
        return random_windows(self.train_N, settings.seed, number, self.rows, settings.context)

    def loss(self, model: Nano, *batch: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the mean cross-entropy of the next token, in nats."""
        return mean_loss(model, *batch)

    def losses(self, model: Nano) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the loss of each token of held-out windows, and its bytes."""

        @jit
        def losses_of(tokens_RT: Tensor, targets_RT: Tensor) -> Tensor:
            return F.cross_entropy(model(tokens_RT).flatten(0, 1), targets_RT.flatten(), reduction="none")

        windows = spaced_windows(self.held_out_N, WINDOWS, self.settings.context)
        return losses_of(*map(Tensor, windows)).numpy(), self.nbytes_V[windows.targets.flatten()]

    def evaluate(self, model: Nano) -> Mapping[str, float]:
        """Returns bits per byte of held-out text."""
        return {"bits per byte": bits_per_byte(*self.losses(model))}

    def preview(self, model: Nano, step: int) -> str:
        """Returns the beginning of the held-out text with a continuation."""
        begun = self.held_out_N[:BEGUN].tolist()
        (drawn,) = Answers(model, self.settings.context, self.end, PREVIEW_TEMPERATURE).to([begun], PREVIEWED)
        return f"{self.tokenizer.decode(begun)} ... {self.tokenizer.decode(drawn)}"

    def describe(self) -> str:
        """Returns the sizes of the vocabulary, of the text and of the network."""
        num, tokens = len(self.tokenizer.tokens), len(self.train_N) + len(self.held_out_N)
        return f"{num:,} tokens learned; the text has {tokens:,} of them; {super().describe()}"

    def report(self, model: Nano) -> str:
        """Returns the loss on held-out text."""
        losses, nbytes = self.losses(model)
        bits = bits_per_byte(losses, nbytes)
        return f"held-out text: {bits:.4f} bits per byte, perplexity {perplexity(losses):.2f} a token"
