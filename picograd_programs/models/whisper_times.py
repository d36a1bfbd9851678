"""Timestamps in Whisper's texts: rules for the next token, parts between timestamps, and the start of the next window.

    <|0.00|> Good morning.<|1.84|><|2.10|> It rains.<|4.00|>    a timestamp before each part, and one after it

Source: Radford et al. 2022, arXiv:2212.04356, sections 2.3 (times), 3.8 and 4.5 (long sounds); OpenAI, whisper (the rules
       of its decoder, and what its transcriber does with times).

Letters: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from picograd.record import Record
from picograd_programs.chat.rules import BARRED, Logits

SECONDS = 0.02  # between two timestamps


class Times(Record):
    """Timestamps as tokens, and the rule of texts with them.

    first:    token of the time 0; all later ones are timestamps
    end:      token that ends a text; earlier ones are words
    at_first: latest first timestamp of a text, in steps; None: any
    start:    number of tokens before an answer
    """

    first: int
    end: int
    at_first: int | None = None
    start: int = 0

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars tokens outside the form of parts, and words if the timestamps together are likelier than each of them."""
        first, written = self.first, text[self.start :]
        scores_V[first - 1] = BARRED  # the token for a text without timestamps
        is_time = [token >= first for token in written[-2:]]
        if not written:
            scores_V[:first] = BARRED
            if self.at_first is not None:
                scores_V[first + self.at_first + 1 :] = BARRED
        elif is_time == [False, True]:
            scores_V[: self.end] = BARRED  # another timestamp starts the next part, or the text ends
        elif is_time[-1]:
            scores_V[first:] = BARRED
        if before := [token for token in written if token >= first]:
            scores_V[first : before[-1] + (is_time != [False, True])] = BARRED  # a part ends after its start
        likeliest = scores_V[first:].max()
        shares = np.exp(scores_V[first:].astype(np.float64) - likeliest)
        if likeliest + np.log(shares.sum()) > scores_V[:first].max():
            scores_V[:first] = BARRED


class Part(Record):
    """Words between two timestamps, in seconds of the sound.

    tokens:  tokens of the words
    whole:   tokens with the timestamps, as written
    """

    begin: float
    end: float
    tokens: tuple[int, ...]
    whole: tuple[int, ...] = ()


def parts_of(tokens: Sequence[int], first: int, window: int) -> tuple[list[Part], int]:
    """Returns the parts of a window's text, with times relative to the window, and the start of the next window.

    The next window starts after the last complete part, or after the window if no other part has started.

    Args:
      tokens:  tokens of the text, with timestamps
      first:   token of the time 0
      window:  length in steps

    >>> parts_of([100, 7, 8, 102, 103, 9], 100, 1500)
    ([Part(begin=0.0, end=0.04, tokens=(7, 8), whole=(100, 7, 8, 102))], 2)
    >>> parts_of([100, 7, 8], 100, 1500)
    ([Part(begin=0.0, end=30.0, tokens=(7, 8), whole=(100, 7, 8))], 1500)
    """
    is_time = [token >= first for token in tokens]
    cuts = [place + 1 for place, both in enumerate(pairwise(is_time)) if all(both)]
    if not cuts:
        last = next((token - first for token in reversed(tokens) if token > first), window)
        words = tuple(token for token in tokens if token < first)
        return [Part(0.0, last * SECONDS, words, tuple(tokens))], window
    is_whole = is_time[-2:] == [False, True]  # the last part is complete, and no other has started
    if is_whole:
        cuts.append(len(tokens))
    pieces = [tokens[past:end] for past, end in pairwise([0, *cuts])]
    parts = [
        Part(
            (piece[0] - first) * SECONDS, (piece[-1] - first) * SECONDS, tuple(t for t in piece if t < first), tuple(piece)
        )
        for piece in pieces
    ]
    return parts, window if is_whole else pieces[-1][-1] - first
