"""An answer, token by token: a text that a network has read, and the choice of the next token.

The text is read once: the question in pieces of one length, so that one plan serves all of them, perhaps with a shorter
last piece; the answer by another plan, for one token each of several texts. An incomplete piece is padded at its end; the
padding is masked, and overwritten later.

Source: Holtzman et al. 2020, arXiv:1904.09751 (top-p).

Letters: V vocabulary, C width.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from picograd.errors import ArgumentError, DataError
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length, Variable
from picograd.transforms.jit import jit
from picograd_programs.chat.rules import Discouraged, Logits, Rule, discouraged
from picograd_programs.chat.search import Search, searched
from picograd_programs.models.cache import Cache, KVCache, Position, Positions, Several
from picograd_programs.train.program import check_settings, option_name

PIECE = 64  # tokens of a piece
PIECES = (16, 32, PIECE)  # lengths of last pieces, if many texts are read: a plan each
NEGLIGIBLE = -36.0  # logarithm of a share below float64's precision beside 1


# ---- the choice of a token ----
REPETITION_MAX = 1e6


@dataclass(frozen=True)
class Choice:
    """Settings for drawing a token from the logits."""

    temperature: float = 0.2  # below 1 prefers likely tokens; 0 always takes the likeliest
    top_k: int = 0  # draw only from this many of the likeliest tokens; 0: all
    top_p: float = 0.9  # draw only from the likeliest tokens with this total probability
    repetition: float = 1.1  # divisor of the logits of all tokens of the text, factor of negative ones; 1: no effect


def check_choice(choice: Choice, named: Callable[[str], str] = option_name) -> None:
    """Checks that each setting is in its range.

    Args:
      named:  a setting's name -> its name in error messages

    Raises:
      ArgumentError: a setting is out of its range.
    """
    check_settings(choice, named)
    if choice.top_p == 0:
        raise ArgumentError(f"{named('top_p')}: got 0, it must be above 0.")
    if not 1 / REPETITION_MAX <= choice.repetition <= REPETITION_MAX:
        limits = f"from {1 / REPETITION_MAX:g} to {REPETITION_MAX:g}"
        raise ArgumentError(f"{named('repetition')}: got {choice.repetition:g}, it must be {limits}.")


def chosen(logits_V: Logits, text: Sequence[int], choice: Choice, rng: np.random.Generator) -> int:
    """Draws the number of the token that follows a text.

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
    Discouraged(choice.repetition)(logits_V, text)
    if choice.temperature == 0.0:
        return int(logits_V.argmax())
    with np.errstate(over="ignore"):  # -inf becomes a share of 0
        scaled_V = (logits_V - logits_V.max()) / choice.temperature
    likely = np.flatnonzero(scaled_V > NEGLIGIBLE)  # few, so sorting is fast
    order = likely[np.argsort(-scaled_V[likely], kind="stable")][: choice.top_k or None]
    shares = np.exp(scaled_V[order])
    shares /= shares.sum()
    before = np.cumsum(shares) - shares  # total probability of likelier tokens
    kept = np.where(before < choice.top_p, shares, 0.0)
    kept[0] = shares[0]
    return int(rng.choice(order, p=kept / kept.sum()))


# ---- a text that is read and written ----
@dataclass
class Speed:
    """Tokens, and the seconds that they took."""

    tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.tokens} tokens, {self.tokens / max(self.seconds, 1e-9):.1f} a second"


class Network(Protocol):
    """A network that continues texts, such as a Llama or a GPT."""

    def cache(self, batch: int, length: int) -> KVCache:
        """Returns an empty cache."""

    def read_on(self, tokens_BT: Tensor, cache: Cache, position: Positions) -> Tensor:
        """Returns the output (B, T, C) for tokens at a position and after it."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns logits (..., V) for outputs (..., C)."""


class Plans:
    """The two plans of a network's reading, with one cache: a piece of a text, or one token each of several texts.

    The second exists for 1, 2, 4, ... texts; a batch that is not full repeats its last token. A text has the same bits
    with each of them.

    Args:
      length:  largest number of tokens of a text
      num:     number of texts
      pieces:  lengths of pieces, the longest last; the end of a text is read in the shortest that holds it
    """

    def __init__(self, model: Network, length: int, num: int = 1, pieces: Sequence[int] = (PIECE,)):
        self.model, self.length, self.num = model, length, num
        self.cache = model.cache(num, length)
        self.piece = min(pieces[-1], length)
        self.firsts = {each: Variable(f"first{each}", 0, length - each) for each in pieces if each < self.piece}
        self.firsts[self.piece] = Variable("first", 0, length - self.piece)
        self.numbers = [Variable(f"text{row}", 0, num - 1) for row in range(num)]
        self.places = [Variable(f"position{row}", 0, length - 1) for row in range(num)]
        self.past = Variable("past", 1, length)

        @jit
        def read_piece(tokens_1T: Tensor, text: Position, position: Length, last: Tensor) -> Tensor:
            hidden_1C = model.read_on(tokens_1T, self.cache.text(text), position)[0].index_select(0, last)
            return model.logits(hidden_1C)[0]

        @jit
        def read_rows(tokens_B1: Tensor, texts: list[Position], positions: list[Length]) -> Tensor:
            rows = Several(tuple(self.cache.text(text) for text in texts))
            return model.logits(model.read_on(tokens_B1, rows, tuple(positions)))[:, 0]

        @jit
        def copy_text(source: Position, target: Position, length: Position) -> None:
            self.cache.copy_text(source, target, length)

        self.read_piece, self.read_rows, self.copy_text = read_piece, read_rows, copy_text

    def whole(self, num: int) -> int:
        """Returns the number of a text's first tokens that fill whole pieces."""
        return num // self.piece * self.piece

    def next_piece(self, text: int, tokens: Sequence[int], start: int) -> tuple[Tensor, int, int]:
        """Reads the next piece of a text.

        Args:
          text:    number of the text
          tokens:  all tokens of the text
          start:   number of tokens already read

        Returns:   logits (V,) after the piece; the positions of its start and of its end
        """
        if len(tokens) - start == 1:
            return self.next_tokens([text], [tokens[start]], [start])[0], start, start + 1
        piece = next((each for each in self.firsts if each >= len(tokens) - start), self.piece)
        start = min(start, self.length - piece)  # at the end of the cache some tokens are read twice
        part = tokens[start : start + piece]
        filled = [*part, *[0] * (piece - len(part))]
        number = self.numbers[0].bind(text) if self.num > 1 else 0
        logits = self.read_piece(Tensor([filled]), number, self.firsts[piece].bind(start), Tensor([len(part) - 1]))
        return logits, start, start + len(part)

    def next_tokens(self, texts: Sequence[int], tokens: Sequence[int], positions: Sequence[int]) -> Tensor:
        """Reads one token of each of several texts, at a position each, and returns their logits (B, V)."""
        most = min(1 << (len(texts) - 1).bit_length(), self.num)
        rows = [min(row, len(texts) - 1) for row in range(most)]
        numbers = [variable.bind(texts[row]) if self.num > 1 else 0 for variable, row in zip(self.numbers, rows)]
        places = [variable.bind(positions[row]) for variable, row in zip(self.places, rows)]
        return self.read_rows(Tensor([[tokens[row]] for row in rows]), numbers, places)[: len(texts)]


class Beams:
    """Texts of equal length in a network's cache, written by a search.

    Args:
      position:  position after text 0, where the answer starts
    """

    def __init__(self, plans: Plans, position: int):
        self.plans, self.position, self.num = plans, position, plans.num

    def copy(self, source: int, target: int) -> None:
        """Copies one text over another."""
        first, second, *_ = self.plans.numbers
        with no_grad():
            self.plans.copy_text(first.bind(source), second.bind(target), self.plans.past.bind(self.position))

    def next(self, tokens_B: Sequence[int]) -> Logits:
        """Appends a token to each text, and returns the logits (B, V) after them."""
        with no_grad():
            logits = self.plans.next_tokens([*range(self.num)], tokens_B, [self.position] * self.num)
        self.position += 1
        return logits.numpy()


class Reader:
    """A text that a network has read, for continuation.

    Args:
      plans:  plans that read it
      text:   its number in the cache

    tokens:      tokens that were read
    whole:       number of leading tokens that were read in whole consecutive pieces
    """

    def __init__(self, plans: Plans, text: int = 0):
        self.plans, self.text, self.length, self.tokens, self.whole = plans, text, plans.length, list[int](), 0
        self.read_speed, self.write_speed = Speed(), Speed()

    def left(self) -> int:
        """Returns the number of tokens that still fit."""
        return self.length - len(self.tokens)

    def same(self, tokens: Sequence[int]) -> int:
        """Returns the length of the common prefix with another text, of which at least one token stays unread."""
        pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(self.tokens, tokens[:-1]))
        return sum(1 for _ in pairs)

    def keep(self, tokens: Sequence[int], num: int | None = None) -> list[int]:
        """Forgets the tokens after the common prefix with another text, and returns its unread tokens, at least one.

        Args:
          num:  limit of kept tokens, at most the common prefix; None: all of it
        """
        num = self.same(tokens) if num is None else num
        self.tokens, self.whole = self.tokens[:num], self.plans.whole(min(self.whole, num))
        return [*tokens[num:]]

    def read_some(self, tokens: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Reads one more piece of tokens; returns the logits (V,) after it, and the unread tokens."""
        text, at = [*self.tokens, *tokens], len(self.tokens)
        with no_grad():
            logits, start, past = self.plans.next_piece(self.text, text, at)
        self.tokens = text[:past]  # set last, so an interrupted piece is discarded and read again
        if start == self.whole and past - start == self.plans.piece:
            self.whole = past
        else:
            self.whole = min(self.whole, self.plans.whole(start))
        return logits, text[past:]

    def read(self, tokens: Sequence[int]) -> Logits:
        """Reads all tokens, and returns the logits (V,) after them.

        Raises:
          ArgumentError: there are no tokens, or they do not fit.
        """
        if not 1 <= len(tokens) <= self.left():
            raise ArgumentError(f"Reader.read: takes 1 to {self.left():,} more tokens, got {len(tokens):,}.")
        num, left = len(self.tokens), [*tokens]
        try:
            while left:
                logits, left = self.read_some(left)
            found: Logits = logits.numpy()
        except BaseException:
            self.tokens = self.tokens[:num]
            raise
        return found

    def answer(
        self, question: Sequence[int], ends: Collection[int], num: int, choice: Choice, seed: int,
        rules: Sequence[Rule] = (), search: Search = Search(),  # noqa: B008  # is immutable
    ) -> Iterator[int]:  # fmt: skip
        """Reads a question and yields the tokens of the answer, except the token that ends it, which is also read.

        Args:
          ends:    tokens that end the answer
          num:     largest number of tokens; the answer also ends at the text's largest length
          rules:   rules for the text, question and answer
          search:  replaces drawing if it has beams; it needs all texts of the plans, of which this is the first
        """
        rng = np.random.default_rng((seed, len(self.tokens) + len(question)))
        self.read_speed, self.write_speed = Speed(), Speed()
        logits = self._timed(self.read_speed, question)
        num = min(num, self.left())
        if search.beams > 1:
            yield from self._searched(logits, ends, num, [*discouraged(choice.repetition), *rules], search)
            return
        for _ in range(num):
            for rule in rules:
                rule(logits, self.tokens)
            token = chosen(logits, self.tokens, choice, rng)
            logits = self._timed(self.write_speed, [token])
            if token in ends:
                return
            yield token

    def _searched(
        self, logits: Logits, ends: Collection[int], num: int, rules: Sequence[Rule], search: Search
    ) -> list[int]:
        """Returns the tokens of an answer found by a search; they are read, with the token that ends it."""
        start = time.perf_counter()
        beams = Beams(self.plans, len(self.tokens))
        found = searched(beams, logits, self.tokens, 0, num, search, rules, ends).tokens if num else ()
        self.write_speed = Speed(beams.position - len(self.tokens), time.perf_counter() - start)
        if found:
            self.read(found)
        return [token for token in found if token not in ends]

    def _timed(self, speed: Speed, tokens: Sequence[int]) -> Logits:
        start = time.perf_counter()
        logits = self.read(tokens)
        speed.tokens += len(tokens)
        speed.seconds += time.perf_counter() - start
        return logits
