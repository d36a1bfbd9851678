"""Rules for a text: tokens that must not follow, and tokens with reduced scores.

    scores = logits of the next token;    for rule in rules: rule(scores, tokens so far)

Source: Paulus et al. 2017, arXiv:1705.04304, section 2.5 (groups of tokens that come once); Keskar et al. 2019,
       arXiv:1909.05858, section 4.1 (repetition); OpenAI, API reference, "Advanced usage" (counts); Hugging Face,
       transformers, `generate` (the settings that name them).

Letters: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from picograd.record import Record

Logits = np.ndarray[Any, Any]
# (scores (V,), all tokens of a text) -> None; changes scores in place: tokens that must not follow become BARRED
Rule = Callable[[Logits, Sequence[int]], None]
BARRED = -1e30  # logit or log-probability of a token that must not follow


class Discouraged(Record):
    """Reduces the scores of tokens that are in the text."""

    factor: float

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Divides their scores by the factor, or multiplies negative ones.

        >>> scores = np.array([1.0, 2.0, -1.0])
        >>> Discouraged(2.0)(scores, [1, 2, 2])
        >>> scores.tolist()
        [1.0, 1.0, -2.0]
        """
        seen = np.unique(np.asarray(text, np.int64))
        with np.errstate(over="ignore"):  # barred tokens overflow
            scores_V[seen] *= np.where(scores_V[seen] > 0, 1 / self.factor, self.factor)


def discouraged(factor: float) -> list[Rule]:
    """Returns the rule of a repetition penalty; none for 1."""
    return [] if factor == 1.0 else [Discouraged(factor)]


class Counted(Record):
    """Reduces the scores of tokens in the answer, or increases them for negative numbers.

    frequency:  decrease of a logit for each occurrence of its token in the answer
    presence:   decrease of a logit for any occurrence
    start:      number of tokens before the answer
    """

    frequency: float
    presence: float
    start: int

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Lowers their scores.

        >>> scores = np.zeros(4)
        >>> Counted(0.5, 1.0, 1)(scores, [0, 2, 3, 2])
        >>> scores.tolist()
        [0.0, 0.0, -2.0, -1.5]
        """
        tokens, counts = np.unique(np.asarray(text[self.start :], np.int64), return_counts=True)
        scores_V[tokens] -= self.frequency * counts + self.presence


class Added(Record):
    """Adds numbers to the scores of some tokens."""

    tokens: tuple[int, ...]
    values: tuple[float, ...]

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Adds them."""
        scores_V[[*self.tokens]] += self.values


class Barred(Record):
    """Excludes tokens.

    always:  tokens excluded everywhere
    first:   tokens excluded as the first of an answer
    start:   number of tokens before an answer
    """

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    start: int = 0

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars the tokens."""
        scores_V[[*self.always, *(self.first if len(text) == self.start else ())]] = BARRED


class NoRepeat(Record):
    """Allows each group of `size` tokens once in a text."""

    size: int

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars each token that earlier followed the last `size` - 1 tokens.

        >>> scores = np.zeros(5)
        >>> NoRepeat(2)(scores, [3, 4, 3])
        >>> scores.tolist()
        [0.0, 0.0, 0.0, 0.0, -1e+30]
        """
        num = self.size - 1
        last = [*text[len(text) - num :]]
        places = range(num, len(text))
        scores_V[[text[place] for place in places if [*text[place - num : place]] == last]] = BARRED


class Least(Record):
    """Keeps a text from ending before it has `num` tokens."""

    num: int
    ends: frozenset[int]

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars the end tokens of a short text."""
        if len(text) < self.num:
            scores_V[[*self.ends]] = BARRED


class EndsWith(Record):
    """Makes `token` the last token of a text of `num` tokens."""

    num: int
    token: int

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars all others at this position."""
        if len(text) == self.num - 1:
            scores_V[:] = BARRED
            scores_V[self.token] = 0.0
