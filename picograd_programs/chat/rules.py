"""Rules of a text: tokens that must not follow what is written, and others that are less likely for it.

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
# (V,), all tokens of a text -> changed in place: tokens that must not follow are BARRED
Rule = Callable[[Logits, Sequence[int]], None]
BARRED = -1e30  # logit, or log-probability, of a token that is not written


class Discouraged(Record):
    """Tokens of the text are less likely to follow."""

    factor: float

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Divides their scores by the factor, or multiplies those below 0.

        >>> scores = np.array([1.0, 2.0, -1.0])
        >>> Discouraged(2.0)(scores, [1, 2, 2])
        >>> scores.tolist()
        [1.0, 1.0, -2.0]
        """
        seen = np.unique(np.asarray(text, np.int64))
        with np.errstate(over="ignore"):  # of tokens that are barred
            scores_V[seen] *= np.where(scores_V[seen] > 0, 1 / self.factor, self.factor)


def discouraged(factor: float) -> list[Rule]:
    """Returns the rule of a penalty for repetition; none where it is 1."""
    return [] if factor == 1.0 else [Discouraged(factor)]


class Counted(Record):
    """Tokens of an answer are less likely to come again, or more where a number is below 0.

    frequency:  what a logit loses for each time that its token is in the answer
    presence:   what it loses if it is there
    start:      tokens before the answer
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
    """Numbers are added to the scores of some tokens."""

    tokens: tuple[int, ...]
    values: tuple[float, ...]

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Adds them."""
        scores_V[[*self.tokens]] += self.values


class Barred(Record):
    """Tokens that are not written.

    always:  anywhere
    first:   as the first one of an answer
    start:   tokens before an answer
    """

    always: tuple[int, ...] = ()
    first: tuple[int, ...] = ()
    start: int = 0

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars them."""
        scores_V[[*self.always, *(self.first if len(text) == self.start else ())]] = BARRED


class NoRepeat(Record):
    """A group of `size` tokens comes once in a text."""

    size: int

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars each token that came after the last `size` - 1 tokens before.

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
    """A text does not end before it has `num` tokens."""

    num: int
    ends: frozenset[int]

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars ends of a short text."""
        if len(text) < self.num:
            scores_V[[*self.ends]] = BARRED


class EndsWith(Record):
    """The last token of a text of `num` tokens is `token`."""

    num: int
    token: int

    def __call__(self, scores_V: Logits, text: Sequence[int]) -> None:
        """Bars all others there."""
        if len(text) == self.num - 1:
            scores_V[:] = BARRED
            scores_V[self.token] = 0.0
