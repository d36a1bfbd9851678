"""`picograd train sentiment`: whether a sentence about a film is positive, from its words.

The mean of the vectors of a sentence's words and pairs of words passes through one hidden layer.

Source: Iyyer et al. 2015, "Deep unordered composition rivals syntactic methods for text classification"; the sentences:
       Pang, Lee 2005 (snippets of reviews), rated by twenty readers each: Hutto, Gilbert 2014, "VADER".

Letters: B batch, T words and pairs, E embedding, D hidden units, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.nn import functional as F
from picograd.optim.adam import AdamW
from picograd.tensor.generator import manual_seed
from picograd.tensor.tensor import Tensor
from picograd_programs.data.reviews import load_reviews, terms_of
from picograd_programs.models.digits import batch_rows
from picograd_programs.train.program import NoOption, Program, SampleSettings, Settings, check_settings, trained

SEEN_MIN = 2  # occurrences of a term in the training sentences


class BagClassifier(nn.Module):
    """logit = relu(mean of embedding[terms] @ W1 + b1) @ w2 + b2

    vocabulary:  V; term 0 is padding and ignored
    embedding:   E
    hidden:      D
    dropout:     probability of dropping a whole term in training

    >>> BagClassifier(5, 4, 3)(Tensor([[1, 4, 0], [2, 0, 0]])).shape
    (2,)
    """

    def __init__(self, vocabulary: int, embedding: int = 64, hidden: int = 64, dropout: float = 0.5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.hidden, self.out = nn.Linear(embedding, hidden), nn.Linear(hidden, 1)
        self.dropout = dropout

    def forward(self, terms_BT: Tensor) -> Tensor:
        """Returns the logits of a positive sentence (B,), float32, for terms (B, T)."""
        counts_BT1 = (terms_BT != 0).float().unsqueeze(2)
        if self.training:
            counts_BT1 = counts_BT1 * (Tensor.rand(*counts_BT1.shape) >= self.dropout)
        mean_BE = (self.embedding(terms_BT) * counts_BT1).sum(1) / counts_BT1.sum(1).clamp(min=1.0)
        logits_B1: Tensor = self.out(self.hidden(mean_BE).relu())
        return logits_B1.squeeze(1)


@dataclass(frozen=True)
class SentimentSettings(Settings):
    """Settings of `picograd train sentiment`."""

    steps: int = 1500
    batch: int = 64
    embedding: int = 64  # features of a word
    hidden: int = 64  # units of the hidden layer
    dropout: float = 0.5  # probability of dropping a word in training
    lr: float = 3e-3
    weight_decay: float = 0.05
    eval_every: int = 300
    out: Path = Path("runs/sentiment")


@dataclass(frozen=True)
class SampleSentimentSettings(SampleSettings):
    """Settings of `picograd sample sentiment`."""

    text: str = "A warm, funny and moving film."  # the sentence to judge
    num: NoOption[int] = 1
    temperature: NoOption[float] = 1.0
    seed: NoOption[int] = 0


class Sentiment(Program):
    """Fits the classifier to four fifths of the sentences; a tenth each is for development and test."""

    name, item, takes, samples = "sentiment", "sentences", SentimentSettings, SampleSentimentSettings
    about = "Tells whether a sentence about a film praises it."
    same = (*Program.same, "terms")

    def __init__(self, settings: SentimentSettings):
        reviews = load_reviews()
        order = np.random.default_rng(42).permutation(len(reviews))
        first, second = int(0.8 * len(order)), int(0.9 * len(order))
        parts = [[reviews[place] for place in rows] for rows in (order[:first], order[first:second], order[second:])]
        counts: dict[str, int] = {}
        for text, _ in parts[0]:
            for term in set(terms_of(text)):
                counts[term] = counts.get(term, 0) + 1
        terms = sorted(term for term, count in counts.items() if count >= SEEN_MIN)
        super().__init__(settings, terms=" ".join(terms))
        numbers = numbers_of(self.facts)
        longest = max(len(terms_of(text)) for text, _ in reviews)
        self.parts = [
            (padded([text for text, _ in part], numbers, longest), np.array([rating > 0 for _, rating in part], np.float32))
            for part in parts
        ]
        manual_seed(settings.seed)
        self.model = self.build(self.facts)
        self.optimizer = AdamW(self.model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay)

    @classmethod
    def build(cls, facts: Mapping[str, Any]) -> BagClassifier:
        """Returns the network."""
        return BagClassifier(1 + len(facts["terms"].split(" ")), facts["embedding"], facts["hidden"], facts["dropout"])

    def batch(self, number: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Returns a batch of the epoch's order."""
        terms_NT, praised_N = self.parts[0]
        rows_B = batch_rows(self.settings.seed, number, len(terms_NT), self.settings.batch)
        return terms_NT[rows_B], praised_N[rows_B]

    def loss(self, model: nn.Module, *batch: Tensor) -> Tensor:
        """Returns the mean negative log-likelihood."""
        return F.binary_cross_entropy_with_logits(model(batch[0]), batch[1])

    def evaluate(self, model: nn.Module) -> Mapping[str, float]:
        """Returns the accuracy on the development sentences."""
        return {"dev accuracy": accuracy(model, *self.parts[1])}

    def describe(self) -> str:
        """Returns the numbers of sentences, terms and weights."""
        terms = self.facts["terms"].count(" ") + 1
        return f"{len(self.parts[0][0]):,} sentences, {terms:,} words and pairs of words; {super().describe()}"

    def report(self, model: nn.Module) -> str:
        """Returns the accuracy on the test sentences, beside that of a constant answer."""
        praised_N = self.parts[2][1]
        same = max(praised_N.mean(), 1 - praised_N.mean())
        return f"held-out accuracy: {accuracy(model, *self.parts[2]):.2%} ({same:.2%} by always saying the same)"

    @classmethod
    def sample(cls, settings: SampleSentimentSettings) -> str:
        """Returns a trained model's probability that a sentence is positive.

        Raises:
          ArgumentError: a setting is out of its range.
          DataError: the checkpoint is missing, corrupt, or of another training.
        """
        check_settings(settings)
        model, facts = trained(cls, settings.checkpoint)
        numbers = numbers_of(facts)
        terms = terms_of(settings.text)
        known = sum(term in numbers for term in terms)
        probability = model(Tensor(padded([settings.text], numbers, max(1, len(terms))))).sigmoid().item()
        return f"{probability:.1%} praise ({known} of {len(terms)} words and pairs of words are known)"


def numbers_of(facts: Mapping[str, Any]) -> dict[str, int]:
    """Returns the number of each term, from 1 on."""
    return {term: 1 + place for place, term in enumerate(facts["terms"].split(" "))}


def padded(texts: Sequence[str], numbers: Mapping[str, int], length: int) -> NDArray[np.int32]:
    """Returns the known terms of texts, (N, length) int32, padded with 0."""
    found = np.zeros((len(texts), length), np.int32)
    for row, text in zip(found, texts):
        known = [numbers[term] for term in terms_of(text) if term in numbers]
        row[: len(known)] = known
    return found


def accuracy(model: nn.Module, terms_NT: NDArray[np.int32], praised_N: NDArray[np.float32]) -> float:
    """Returns the share of correctly classified sentences."""
    return float(((model(Tensor(terms_NT)) > 0).numpy() == (praised_N > 0.5)).mean())
