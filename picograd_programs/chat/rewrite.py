"""A text that a transducer writes about another: T5 translates, sums up or answers, as the first words of a text ask it.

Each text is read by itself, filled up to a power of two, so that few plans serve all; one plan more serves every token that
is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from picograd.errors import ArgumentError
from picograd.record import Record
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length, Variable
from picograd.transforms.jit import jit
from picograd_programs.chat.answer import LATEST, Choice, Logits, Speed, chosen
from picograd_programs.chat.turns import Manner
from picograd_programs.data.bpe import Tokenizer
from picograd_programs.models.transducer import Transducer

SHORTEST = 16  # positions that a text is filled up to
UNLIKELY = -1e30  # logit of a token that is barred


class Barred(Record):
    """Tokens that are not written.

    always:  anywhere
    first:   as the first one
    """

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


class Writer:
    """The plans of a transducer, its memory of what it has read, and its cache of what it writes.

    Args:
      longest:  most positions that are written
      read:     most positions that are read; None: as many
    """

    def __init__(self, network: Transducer, longest: int, read: int | None = None):
        self.network, self.longest = network, longest
        read = longest if read is None else read
        self.memory, self.cache = network.empty(read), network.empty(longest)
        self.length, self.place = Variable("length", 1, read), Variable("place", 0, longest - 1)
        self.read_speed, self.write_speed = Speed(), Speed()

        @jit
        def read_text(tokens_1T: Tensor, is_text_1T: Tensor) -> Tensor:
            return network.read_text(tokens_1T, is_text_1T, self.memory)

        @jit
        def write_token(token_11: Tensor, place: Length, length: Length) -> Tensor:
            return network.write(token_11, self.cache, place, self.memory, length)[0, 0]

        self.read_text, self.write_token = read_text, write_token

    def read(self, tokens: Sequence[int]) -> int:
        """Reads a text into the memory, and returns its length.

        Raises:
          ArgumentError: it has no tokens, or too many.
        """
        if not 1 <= len(tokens) <= self.longest:
            raise ArgumentError(f"the text has {len(tokens):,} tokens; 1 to {self.longest:,} are read (--context).")
        start, length = time.perf_counter(), len(tokens)
        filled = min(max(SHORTEST, 1 << (length - 1).bit_length()), self.longest)
        tokens_1T, is_text_1T = np.zeros((1, filled), np.int32), np.arange(filled)[None] < length
        tokens_1T[0, :length] = tokens
        with no_grad():
            self.read_text(Tensor(tokens_1T), Tensor(is_text_1T)).realize()
        self.read_speed = Speed(length, time.perf_counter() - start)
        return length

    def logits(self, token: int, place: int, length: int) -> Logits:
        """Returns the logits (V,) after a token of the text that is written, which is at a place."""
        with no_grad():
            found: Logits = self.write_token(Tensor([[token]]), self.place.bind(place), self.length.bind(length)).numpy()
        return found

    def write(
        self, length: int, manner: Manner, num: int, choice: Choice, seed: int, barred: Barred | None = None
    ) -> Iterator[int]:
        """Yields the tokens of a text about what was read, without the one that ends it.

        Args:
          length:  of what was read
          manner:  the tokens that begin and that end it
          num:     most tokens of it
          barred:  those that are never written
        """
        rng, written, self.write_speed = np.random.default_rng((seed, length)), [*manner.start], Speed()
        for place, token in enumerate(written[:-1]):
            self.logits(token, place, length)
        past = min(len(written) + num, self.longest)
        while len(written) < past:
            began = time.perf_counter()
            logits = self.logits(written[-1], len(written) - 1, length)
            self.write_speed.tokens += 1
            self.write_speed.seconds += time.perf_counter() - began
            if barred is not None:
                logits[[*barred.always, *(barred.first if len(written) == len(manner.start) else ())]] = UNLIKELY
            token = chosen(logits, written[-LATEST:], choice, rng)
            if token in manner.ends:
                return
            written.append(token)
            yield token


def numbers_of(tokenizer: Tokenizer, text: str, has_marks: bool) -> list[int]:
    """Returns the tokens of a text, with those around it.

    Args:
      has_marks:  names of tokens in the text are these tokens: the gaps of T5, "<extra_id_0>"
    """
    inner = tokenizer.encode_marked(text) if has_marks else tokenizer.encode(text)
    return [*tokenizer.start, *inner, *tokenizer.end]
