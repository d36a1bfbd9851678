"""An answer, token by token: a text that a network has read, and the choice of the next token.

The text is read once: a question in pieces of one length, so that one plan serves them all, each token of the answer by
another. A piece that is not full is filled up behind: what is written there is not seen, and replaced later.

Source: Holtzman et al. 2020, arXiv:1904.09751 (top-p); Keskar et al. 2019, arXiv:1909.05858, section 4.1 (repetition).

Letters: V vocabulary, C width.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from picograd.errors import ArgumentError, DataError
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length, Variable
from picograd.transforms.jit import jit
from picograd_programs.models.gpt import KVCache

Logits = np.ndarray[Any, Any]
PIECE = 64  # tokens read at once
NEGLIGIBLE = -36.0  # logarithm of a share that float64 would lose beside 1
LATEST = 64  # tokens that count as repeated, as in llama.cpp


# ---- the choice of a token ----
@dataclass(frozen=True)
class Choice:
    """Settings of the draw of a token from the logits."""

    temperature: float = 0.2  # below 1 prefers what is likely; 0 always takes the likeliest
    top_k: int = 0  # draw from the likeliest so many tokens only; 0 is all
    top_p: float = 0.9  # draw from the likeliest tokens that together have this probability
    repetition: float = 1.1  # logits of the latest 64 tokens are divided by it, or multiplied where negative; 1: neither


def chosen(logits_V: Logits, latest: Sequence[int], choice: Choice, rng: np.random.Generator) -> int:
    """Returns the number of the next token.

    Raises:
      DataError: a logit is not finite.

    >>> rng = np.random.default_rng(0)
    >>> chosen(np.array([1.0, 3.0, 2.9]), [], Choice(temperature=0.0), rng)
    1
    >>> chosen(np.array([1.0, 3.0, 2.9]), [1], Choice(temperature=0.0), rng)
    2
    """
    logits_V = logits_V.astype(np.float64)
    if not np.isfinite(logits_V).all():
        raise DataError("the model's numbers are not finite: its file is damaged, or of another network.")
    seen = np.unique(np.asarray(latest, np.int64))
    logits_V[seen] *= np.where(logits_V[seen] > 0, 1 / choice.repetition, choice.repetition)
    if choice.temperature == 0.0:
        return int(logits_V.argmax())
    scaled_V = (logits_V - logits_V.max()) / choice.temperature
    likely = np.flatnonzero(scaled_V > NEGLIGIBLE)  # few to sort
    order = likely[np.argsort(-scaled_V[likely], kind="stable")][: choice.top_k or None]
    shares = np.exp(scaled_V[order])
    shares /= shares.sum()
    before = np.cumsum(shares) - shares  # probability of all that are likelier
    kept = np.where(before < choice.top_p, shares, 0.0)
    kept[0] = shares[0]
    return int(rng.choice(order, p=kept / kept.sum()))


# ---- a text that is read and written ----
@dataclass
class Speed:
    """Tokens, and the seconds they took."""

    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.tokens} tokens, {self.tokens / max(self.seconds, 1e-9):.1f} a second"


class Network(Protocol):
    """A network that reads on: a Llama or a GPT."""

    def cache(self, batch: int, length: int) -> KVCache:
        """Returns an empty cache."""

    def read_on(self, tokens_BT: Tensor, cache: KVCache, position: Length | int) -> Tensor:
        """Returns the output (B, T, C) for tokens from a position on."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits (..., V) for outputs (..., C)."""


class Reader:
    """A text that a network has read, to be continued.

    Args:
      model:   reads it
      length:  most tokens that the text may have

    drawn_from:  logits (V,) from which the latest token of an answer was drawn
    """

    drawn_from: Logits

    def __init__(self, model: Network, length: int):
        self.model, self.length, self.tokens = model, length, list[int]()
        self.cache = model.cache(1, length)
        self.piece = min(PIECE, length)
        self.place = Variable("position", 0, length - 1)
        self.first = Variable("first", 0, length - self.piece)
        self.read_speed, self.write_speed = Speed(), Speed()

        @jit
        def read_piece(tokens_1T: Tensor, position: Length, last: Tensor) -> Tensor:
            hidden_1C = model.read_on(tokens_1T, self.cache, position)[0].index_select(0, last)
            return model.logits(hidden_1C)[0]

        @jit
        def read_one(token_11: Tensor, position: Length) -> Tensor:
            return model.logits(model.read_on(token_11, self.cache, position)[0])[0]

        self.read_piece, self.read_one = read_piece, read_one

    def left(self) -> int:
        """Returns how many tokens still fit."""
        return self.length - len(self.tokens)

    def keep(self, tokens: Sequence[int]) -> list[int]:
        """Forgets what another text does not begin with, and returns its tokens that are left to read, at least one."""
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self.tokens, tokens[:-1]))
        num = sum(1 for _ in same)
        self.tokens = self.tokens[:num]
        return [*tokens[num:]]

    def read(self, tokens: Sequence[int]) -> Logits:
        """Reads tokens on, and returns the logits (V,) of the one after them.

        Raises:
          ArgumentError: there are none, or they do not fit.
        """
        if not 1 <= len(tokens) <= self.left():
            raise ArgumentError(f"Reader.read: takes 1 to {self.left():,} tokens more, got {len(tokens):,}.")
        text, at = [*self.tokens, *tokens], len(self.tokens)
        with no_grad():
            while at < len(text):
                if len(text) - at == 1:
                    logits, past = self.read_one(Tensor([text[at:]]), self.place.bind(at)), at + 1
                else:  # at the end of the cache a piece begins earlier, with tokens that were read
                    start = min(at, self.length - self.piece)
                    part = text[start : start + self.piece]
                    past, filled = start + len(part), part + [0] * (self.piece - len(part))
                    logits = self.read_piece(Tensor([filled]), self.first.bind(start), Tensor([len(part) - 1]))
                at = past
            found: Logits = logits.numpy()
        self.tokens = text  # not before: an interrupted reading counts for nothing, and is replaced
        return found

    def answer(self, question: Sequence[int], ends: set[int], num: int, choice: Choice, seed: int) -> Iterator[int]:
        """Reads a question and yields the tokens of the answer, without the one that ends it, which is read.

        Args:
          ends:  tokens that end it
          num:   most tokens of it; it also ends where the text has its length
        """
        rng = np.random.default_rng((seed, len(self.tokens) + len(question)))
        self.read_speed, self.write_speed = Speed(), Speed()
        logits = self._timed(self.read_speed, question)
        for _ in range(min(num, self.left())):
            token, self.drawn_from = chosen(logits, self.tokens[-LATEST:], choice, rng), logits
            logits = self._timed(self.write_speed, [token])
            if token in ends:
                return
            yield token

    def _timed(self, speed: Speed, tokens: Sequence[int]) -> Logits:
        start = time.perf_counter()
        logits = self.read(tokens)
        speed.tokens += len(tokens)
        speed.seconds += time.perf_counter() - start
        return logits
