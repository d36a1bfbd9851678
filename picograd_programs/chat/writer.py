"""Texts that a sequence-to-sequence network writes from others, such as T5's translations, summaries and answers.

Each text is read alone, padded to a power of two, so that few plans suffice; one more plan serves every written token.
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
from picograd_programs.chat.answer import Choice, Speed, chosen
from picograd_programs.chat.rules import Logits, Rule, discouraged
from picograd_programs.chat.search import Search, scored, searched
from picograd_programs.chat.turns import Manner
from picograd_programs.data.bpe import Tokenizer
from picograd_programs.models.seq2seq import Seq2Seq

READ_MIN = 16  # shorter texts are padded to this many positions
BEGIN_PIECE = 32  # start tokens of an answer that are read at once, if there are as many


class Way(Record):
    """Settings of an answer.

    num:      largest number of tokens
    choice:   settings of the draws
    rules:    rules for the text
    search:   replaces draws if it has beams, as many as the writer has texts
    counted:  how many of the start tokens count towards the answer's length
    seed:     seed of the draws
    """

    num: int
    choice: Choice
    rules: Sequence[Rule] = ()
    search: Search = Search()
    counted: int = 0
    seed: int = 0


class Writer:
    """The plans of a network, its memory of the encoded text, and its cache of the written texts.

    num_drawn:        number of tokens of the latest answer, including its end
    log_probability:  sum of their log-probabilities

    Args:
      longest:  largest number of tokens of a written text, and of a read one
      read:     largest number of positions of the memory, if it differs
      num:      number of simultaneously written texts about the same memory
    """

    def __init__(self, network: Seq2Seq, longest: int, read: int | None = None, num: int = 1):
        self.network, self.longest, self.num = network, longest, num
        read = longest if read is None else read
        self.memory, self.cache = network.empty(read), network.empty(longest, num)
        self.length, self.place = Variable("length", 1, read), Variable("place", 0, longest - 1)
        self.source, self.target = (Variable(name, 0, num - 1) for name in ("source", "target"))
        self.first = Variable("first", 0, max(longest - BEGIN_PIECE, 0))
        self.read_speed, self.write_speed, self.num_drawn = Speed(), Speed(), 0
        self.log_probability = 0.0

        @jit
        def read_text(tokens_1T: Tensor, is_text_1T: Tensor) -> Tensor:
            return network.read_text(tokens_1T, is_text_1T, self.memory)

        @jit
        def write_tokens(tokens_B1: Tensor, place: Length, length: Length) -> Tensor:
            return network.write(tokens_B1, self.cache, place, self.memory, length)[:, 0]

        @jit
        def write_piece(tokens_BT: Tensor, first: Length, length: Length, last: Tensor) -> Tensor:
            return network.write(tokens_BT, self.cache, first, self.memory, length).index_select(1, last)[:1, 0]

        @jit
        def copy_text(source: Length, target: Length, place: Length) -> None:
            self.cache.copy_text(source, target, place + 1)

        self.read_text, self.write_tokens, self.copy_text = read_text, write_tokens, copy_text
        self.write_piece = write_piece

    def read(self, tokens: Sequence[int]) -> int:
        """Encodes a text into the memory; returns its number of tokens.

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

    def rows(self, tokens_B: Sequence[int], place: int, length: int) -> Logits:
        """Returns the logits (B, V) after a token of each written text.

        Args:
          place:   position of the tokens, from 0
          length:  number of filled positions of the memory
        """
        start = time.perf_counter()
        with no_grad():
            tokens_B1 = Tensor([[token] for token in tokens_B])
            found: Logits = self.write_tokens(tokens_B1, self.place.bind(place), self.length.bind(length)).numpy()
        self.write_speed.tokens += 1
        self.write_speed.seconds += time.perf_counter() - start
        return found

    def logits(self, token: int, place: int, length: int) -> Logits:
        """Returns the logits (V,) after a token of the only written text; as `rows`."""
        return self.rows([token] * self.num, place, length)[0]

    def begin(self, tokens: Sequence[int], length: int) -> Logits:
        """Writes the start tokens of an answer in each text, and returns the logits (V,) after them.

        Args:
          length:  number of filled positions of the memory
        """
        if not BEGIN_PIECE <= len(tokens) <= self.longest:
            return [self.logits(token, place, length) for place, token in enumerate(tokens)][-1]
        for at in range(0, len(tokens), BEGIN_PIECE):
            first = min(at, self.longest - BEGIN_PIECE)  # at the end of the cache some tokens are written twice
            part = tokens[first : first + BEGIN_PIECE]
            row, last = [*part, *[0] * (BEGIN_PIECE - len(part))], Tensor([len(part) - 1])
            with no_grad():
                where = self.first.bind(first), self.length.bind(length)
                logits = self.write_piece(Tensor([row] * self.num), *where, last)
        return logits.numpy()[0]

    def write(self, length: int, manner: Manner, way: Way) -> Iterator[int]:
        """Yields the tokens of an answer, without its start and end tokens.

        Args:
          length:  number of filled positions of the memory
          manner:  start and end tokens of an answer
        """
        self.write_speed, self.log_probability, self.num_drawn, written = Speed(), 0.0, 0, [*manner.start]
        past = min(len(written) + way.num, self.longest)
        if len(written) >= past:
            return
        logits = self.begin(written, length)
        if way.search.beams > 1:
            yield from self._searched(logits, length, manner, way, past - len(written))
            return
        rng = np.random.default_rng((way.seed, length))
        while True:
            for rule in way.rules:
                rule(logits, written)
            token = chosen(logits, written, way.choice, rng)
            self.log_probability += float(scored(logits)[token])
            self.num_drawn += 1
            if token in manner.ends:
                return
            written.append(token)
            yield token
            if len(written) == past:
                return
            logits = self.logits(token, len(written) - 1, length)

    def _searched(self, logits: Logits, length: int, manner: Manner, way: Way, num: int) -> list[int]:
        """Returns the tokens of an answer found by a search.

        Args:
          logits:  logits after the start tokens
        """
        rules = [*discouraged(way.choice.repetition), *way.rules]
        beams = Beams(self, len(manner.start), length)
        found = searched(beams, logits, manner.start, way.counted, num, way.search, rules, manner.ends)
        self.num_drawn = len(found.tokens)
        self.log_probability = found.score * float(self.num_drawn + way.counted) ** way.search.length_penalty
        return [token for token in found.tokens if token not in manner.ends]


class Beams:
    """Texts of a writer, of equal length, written by a search.

    Args:
      place:   position after the written tokens
      length:  number of filled positions of the memory
    """

    def __init__(self, writer: Writer, place: int, length: int):
        self.writer, self.place, self.length, self.num = writer, place, length, writer.num

    def copy(self, source: int, target: int) -> None:
        """Copies one text over another."""
        writer = self.writer
        with no_grad():
            writer.copy_text(writer.source.bind(source), writer.target.bind(target), writer.place.bind(self.place - 1))

    def next(self, tokens_B: Sequence[int]) -> Logits:
        """Appends a token to each text, and returns the logits (B, V) after them."""
        found = self.writer.rows(tokens_B, self.place, self.length)
        self.place += 1
        return found


def tokens_of(tokenizer: Tokenizer, text: str, has_marks: bool) -> list[int]:
    """Returns the tokens of a text, with the tokenizer's start and end tokens.

    Args:
      has_marks:  names of tokens in the text, such as T5's gap "<extra_id_0>", become these tokens
    """
    inner = tokenizer.encode_marked(text) if has_marks else tokenizer.encode(text)
    return [*tokenizer.start, *inner, *tokenizer.end]
