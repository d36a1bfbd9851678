"""Texts that a sequence-to-sequence network writes about others: T5 translates, sums up or answers, as a text asks it.

Each text is read by itself, padded to a power of two, so that few plans serve all; one plan more serves every token that
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
from picograd_programs.models.seq2seq import Seq2Seq

READ_MIN = 16  # positions that shorter texts are padded to
BARRED_LOGIT = -1e30  # of a token that is not written


class Barred(Record):
    """Tokens that are not written.

    always:  anywhere
    first:   as the first one
    """

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


class Writer:
    """The plans of a network, its memory of the text that it has read, and its cache of the text that it writes.

    Args:
      longest:  most tokens of a text that is written, and of one that is read
      read:     most positions of the memory, if they are not as many
    """

    def __init__(self, network: Seq2Seq, longest: int, read: int | None = None):
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
        """Reads a text into the memory; returns its length in tokens.

        Raises:
          ArgumentError: it has no tokens, or too many.
        """
        if not 1 <= len(tokens) <= self.longest:
            raise ArgumentError(f"the text has {len(tokens):,} tokens; 1 to {self.longest:,} are read (--context).")
        start, length = time.perf_counter(), len(tokens)
        padded = min(max(READ_MIN, 1 << (length - 1).bit_length()), self.longest)
        tokens_1T, is_text_1T = np.zeros((1, padded), np.int32), np.arange(padded)[None] < length
        tokens_1T[0, :length] = tokens
        with no_grad():
            self.read_text(Tensor(tokens_1T), Tensor(is_text_1T)).realize()
        self.read_speed = Speed(length, time.perf_counter() - start)
        return length

    def logits(self, token: int, place: int, length: int) -> Logits:
        """Returns the logits (V,) after a token of the text that is written.

        Args:
          place:   of the token, from 0
          length:  positions of the memory that are filled
        """
        with no_grad():
            found: Logits = self.write_token(Tensor([[token]]), self.place.bind(place), self.length.bind(length)).numpy()
        return found

    def write(
        self, length: int, manner: Manner, num: int, choice: Choice, seed: int, barred: Barred | None = None
    ) -> Iterator[int]:
        """Yields the tokens of an answer, without those that begin and end it.

        Args:
          length:  positions of the memory that are filled
          manner:  the tokens that begin and that end an answer
          num:     most tokens of it
          seed:    of the draws
          barred:  tokens that are not written
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
                logits[[*barred.always, *(barred.first if len(written) == len(manner.start) else ())]] = BARRED_LOGIT
            token = chosen(logits, written[-LATEST:], choice, rng)
            if token in manner.ends:
                return
            written.append(token)
            yield token


def tokens_of(tokenizer: Tokenizer, text: str, has_marks: bool) -> list[int]:
    """Returns the tokens of a text, with those before and behind each text.

    Args:
      has_marks:  a name of a token in the text, such as T5's gap "<extra_id_0>", becomes that token
    """
    inner = tokenizer.encode_marked(text) if has_marks else tokenizer.encode(text)
    return [*tokenizer.start, *inner, *tokenizer.end]
