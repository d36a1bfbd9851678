"""`picograd train bert` and `picograd sample bert`: a masked language model, which fills gaps in a text.

15 % of the characters are chosen: 80 % of these become a mask, 10 % another character, and 10 % stay. The model, which
sees both sides of each, predicts the originals.

Source: Devlin et al. 2018, arXiv:1810.04805, section 3.1.

Letters: B batch, T positions, C features, V vocabulary.
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
from picograd.nn import functional as F
from picograd.tensor.tensor import Tensor
from picograd_programs.data.text import Vocabulary
from picograd_programs.models.characters import TextProgram, TextSettings
from picograd_programs.models.gpt import optimizer_of
from picograd_programs.train.program import NoOption, SampleSettings, check_settings, trained

CHOSEN, MASKED, CHANGED = 0.15, 0.8, 0.1  # shares of all characters, and of the chosen ones
NOT_ASKED = -100  # target of characters that were not chosen
GAP = "_"  # a gap of a text


class BERT(nn.Module):
    """logits = head(encoder(embedding[characters] + position)), where each position attends to all

    vocabulary:  V; the additional number V is the mask
    block:       largest number of positions
    layers:      layers of the encoder
    heads:       heads of attention
    width:       C
    dropout:     probability, in training

    >>> BERT(5, block=8, layers=1, heads=2, width=8)(Tensor([[1, 5, 3]])).shape
    (1, 3, 5)
    """

    def __init__(self, vocabulary: int, block: int, layers: int, heads: int, width: int, dropout: float = 0.0):
        super().__init__()
        self.characters, self.positions = nn.Embedding(vocabulary + 1, width), nn.Embedding(block, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, vocabulary))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Returns the logits (B, T, V), float32, of the character at each position, for tokens (B, T), integers 0..V."""
        x_BTC: Tensor = self.characters(tokens_BT) + self.positions.weight[: tokens_BT.shape[1]]
        logits_BTV: Tensor = self.head(self.encoder(x_BTC))
        return logits_BTV


def hidden(
    tokens_BT: NDArray[np.int32], vocabulary: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Returns tokens with some hidden, and the hidden ones; -100 for the others. (B, T) int32 each."""
    chosen_BT = rng.random(tokens_BT.shape) < CHOSEN
    how_BT = rng.random(tokens_BT.shape)
    others_BT = rng.integers(0, vocabulary, tokens_BT.shape)
    seen_BT = np.where(how_BT < MASKED, vocabulary, np.where(how_BT < MASKED + CHANGED, others_BT, tokens_BT))
    return (
        np.where(chosen_BT, seen_BT, tokens_BT).astype(np.int32),
        np.where(chosen_BT, tokens_BT, NOT_ASKED).astype(np.int32),
    )


@dataclass(frozen=True)
class BertSettings(TextSettings):
    """Settings of `picograd train bert`."""

    steps: int = 3000
    batch: int = 32
    lr: float = 1e-3
    out: Path = Path("runs/bert")


@dataclass(frozen=True)
class SampleBertSettings(SampleSettings):
    """Settings of `picograd sample bert`."""

    text: str = "def __in_t__(se_f, val_e):"  # "_" marks a gap to fill, wherever it occurs
    num: NoOption[int] = 1
    temperature: NoOption[float] = 1.0
    seed: NoOption[int] = 0


class MaskedModel(TextProgram):
    """Fits a masked language model to a text."""

    name, takes, samples = "bert", BertSettings, SampleBertSettings
    about = "Fills gaps in text like the text it was trained on."

    def __init__(self, settings: BertSettings):
        super().__init__(settings)
        self.optimizer = optimizer_of(self.model, settings.lr, settings.weight_decay)
        rng = np.random.default_rng(0)
        self.windows = [hidden(part.tokens, len(self.vocabulary), rng) for part in self.held_out(settings.eval_batches)]

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> BERT:
        """Returns the network."""
        shape = (facts["block"], facts["layers"], facts["heads"], facts["width"], facts["dropout"])
        return BERT(len(facts["characters"]), *shape)

    def batch(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Returns windows with hidden characters."""
        rng = np.random.default_rng((self.settings.seed, number, 1))
        return hidden(self.windows_at(number).tokens, len(self.vocabulary), rng)

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Returns the mean cross-entropy of the chosen characters, in nats."""
        return self.cross_entropy(model(batch[0]), batch[1])

    @staticmethod
    def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
        """Returns the mean cross-entropy of positions with a target."""
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=NOT_ASKED)

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the loss on held-out windows, and the share of hidden characters that are predicted correctly."""
        losses, right, asked = [], 0, 0
        for seen_BT, targets_BT in self.windows:
            logits_BTV = model(Tensor(seen_BT))
            losses.append(self.cross_entropy(logits_BTV, Tensor(targets_BT)).item())
            right += int((logits_BTV.argmax(-1).numpy() == targets_BT).sum())
            asked += int((targets_BT != NOT_ASKED).sum())
        return {"validation loss": float(np.mean(losses)), "accuracy": right / max(1, asked)}

    def preview(self, model: nn.Module, step: int) -> str:
        """Returns the beginning of the held-out text, with every third character predicted from the others."""
        text = self.vocabulary.decode(self.held_out_N[: self.settings.block])
        known = "".join(GAP if place % 3 == 2 else letter for place, letter in enumerate(text))
        return filled(model, self.vocabulary, known, self.settings.block)

    def report(self, model: nn.Module) -> str:
        """Returns both figures at the end of the training."""
        figures = self.evaluate(model)
        return f"validation loss: {figures['validation loss']:.4f}; hidden characters told right: {figures['accuracy']:.2%}"

    @classmethod
    def sample(cls, settings: SampleBertSettings) -> str:
        """Returns a text with its gaps filled by the likeliest characters.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training; or the text has an unknown character, or is
          longer than the model reads.
        """
        check_settings(settings)
        model, facts = trained(cls, settings.checkpoint)
        return filled(model, Vocabulary(facts["characters"]), settings.text, facts["block"])


def filled(model: nn.Module, vocabulary: Vocabulary, text: str, block: int) -> str:
    """Returns a text with its gaps filled by the likeliest characters, all at once.

    Raises:
      DataError: the text has an unknown character, is empty, or is longer than the block.
    """
    if not 1 <= len(text) <= block:
        raise DataError(f"--text: {len(text):,} characters; the model reads 1 to {block:,}.")
    known = vocabulary.characters[0]
    try:
        tokens_T = vocabulary.encode(text.replace(GAP, known))
    except DataError as error:
        raise DataError(error.fact.replace("encode", "--text", 1)) from None
    is_gap_T = np.array([character == GAP for character in text])
    tokens_T = np.where(is_gap_T, len(vocabulary), tokens_T).astype(np.int32)
    found_T = model(Tensor(tokens_T[None]))[0].argmax(-1).numpy()
    return "".join(vocabulary.characters[found] if gap else old for old, gap, found in zip(text, is_gap_T, found_T))
