"""Synthetic conversations for training, made by rules.

A lesson is a question and its answer. Four kinds are drawn with equal probability: the next line of the text, the letters
of a word, their number, and sums. Words and lines are the text's. Whether a question is held out depends only on its
characters, so that no seed ever trains on it.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from picograd.errors import DataError

HELD_OUT_EVERY = 5  # one of this many questions
WORD_LETTERS = (3, 6)
WORDS_MAX = 1000  # most frequent words
LINE_CHARACTERS_MAX = 40
DRAWS_MAX = 1000
TERMS_A_DEPTH = 10  # numbers of sums are below depth times this


class Lesson(NamedTuple):
    """A question and the answer to it."""

    question: str
    answer: str


def is_held_out(question: str) -> bool:
    """Returns whether a question is reserved for evaluations."""
    return zlib.crc32(question.encode()) % HELD_OUT_EVERY == 0


class Lessons:
    """Draws lessons about a text.

    Args:
      text:   source of words and lines
      depth:  depth of the network: numbers of sums are below 10 times the depth

    Raises:
      DataError: the text has no word of three to six letters, or no two lines of up to 40 characters in a row.
    """

    def __init__(self, text: str, depth: int):
        found = Counter(re.findall(r"[a-z]+", text))
        least, most = WORD_LETTERS
        self.words = [word for word, _ in found.most_common() if least <= len(word) <= most][:WORDS_MAX]
        lines = [line.strip() for line in text.splitlines()]
        self.lines = [pair for pair in zip(lines, lines[1:]) if all(0 < len(line) <= LINE_CHARACTERS_MAX for line in pair)]
        if not self.words or not self.lines:
            raise DataError(
                f"--text: it has {len(self.words):,} words of {least} to {most} small letters, and {len(self.lines):,}"
                f" pairs of lines of up to {LINE_CHARACTERS_MAX} characters; conversations need some of both."
            )
        self.terms = TERMS_A_DEPTH * depth
        self.kinds: dict[str, Callable[[np.random.Generator], Lesson]] = {
            "lines": self.next_line, "spelling": self.spelling, "letters": self.letters, "sums": self.sum_of_two
        }  # fmt: skip

    def next_line(self, rng: np.random.Generator) -> Lesson:
        """The line after a line of the text."""
        line, after = self.lines[rng.integers(len(self.lines))]
        return Lesson(f"Go on: {line}", after)

    def spelling(self, rng: np.random.Generator) -> Lesson:
        """The letters of a word."""
        word = self.words[rng.integers(len(self.words))]
        return Lesson(f"Spell {word}.", " ".join(word))

    def letters(self, rng: np.random.Generator) -> Lesson:
        """The number of the letters of a word."""
        word = self.words[rng.integers(len(self.words))]
        return Lesson(f"How many letters has {word}?", str(len(word)))

    def sum_of_two(self, rng: np.random.Generator) -> Lesson:
        """The sum of two numbers."""
        a, b = rng.integers(0, self.terms, 2).tolist()
        return Lesson(f"What is {a} + {b}?", str(a + b))

    def drawn(self, kind: str, rng: np.random.Generator, held_out: bool = False) -> Lesson:
        """Returns a random lesson of a kind, either a held-out one or another.

        Raises:
          DataError: the text is too short for such a lesson.
        """
        for _ in range(DRAWS_MAX):
            lesson = self.kinds[kind](rng)
            if is_held_out(lesson.question) == held_out:
                return lesson
        raise DataError(f"--text: too short: of the questions about {kind} none is {'held out' if held_out else 'left'}.")

    def several(self, num: int, rng: np.random.Generator) -> list[Lesson]:
        """Returns lessons of all kinds for training."""
        kinds = [*self.kinds]
        return [self.drawn(kinds[rng.integers(len(kinds))], rng) for _ in range(num)]

    def held_out(self, kind: str, num: int) -> list[Lesson]:
        """Returns held-out lessons of a kind, the same each time."""
        rng = np.random.default_rng(0)
        return [self.drawn(kind, rng, held_out=True) for _ in range(num)]
