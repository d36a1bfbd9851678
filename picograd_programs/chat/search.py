"""Beam search: keeps the likeliest texts of each length; the best that has ended is the answer.

    score = sum of the log-probabilities of an answer's tokens / length ** length_penalty

Each beam is a text of a network's cache. A beam with two continuations is copied over the text of a dropped beam.

Source: Graves 2012, arXiv:1211.3711, algorithm 1; Wu et al. 2016, arXiv:1609.08144, section 7 (scores by length);
       Hugging Face, transformers, `generate` (settings, and the end of the search).

Letters: B beams, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from picograd.errors import DataError
from picograd.record import Record
from picograd_programs.chat.rules import BARRED, Logits, NoRepeat, Rule

BEAMS_MAX, PENALTY_MAX = 32, 100
NEVER = "never"


class Search(Record):
    """Settings of a search.

    beams:           number of texts that are kept at each length; 1: no search
    length_penalty:  positive numbers prefer long answers, negative ones short answers
    early_stopping:  True: ends when `beams` texts have ended; False: when the best unfinished text scores worse, at its
    length, than all of them; "never": when it scores worse at any length
    no_repeat:       allow each group of this many tokens once in a text; 0: no limit
    """

    beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    no_repeat: int = 0


# Field of Search -> its name in generation_config.json, and a test of its value.
SAID: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "beams": ("num_beams", lambda value: type(value) is int and 1 <= value <= BEAMS_MAX),
    "length_penalty": ("length_penalty", lambda value: type(value) in (int, float) and abs(value) <= PENALTY_MAX),
    "early_stopping": ("early_stopping", lambda value: type(value) is bool or value == NEVER),
    "no_repeat": ("no_repeat_ngram_size", lambda value: type(value) is int and value >= 0),
}


def search_of(said: Mapping[str, Any]) -> Search:
    """Returns the search settings of a generation_config.json.

    Raises:
      DataError: a setting is out of its range.

    >>> search_of({"num_beams": 4, "no_repeat_ngram_size": 3})
    Search(beams=4, length_penalty=1.0, early_stopping=False, no_repeat=3)
    """
    found = {key: said[name] for key, (name, _) in SAID.items() if said.get(name) is not None}
    for key, value in found.items():
        name, is_right = SAID[key]
        if not is_right(value):
            raise DataError(f"generation_config.json says {name} is {str(value)[:40]}; that is out of its range.")
    return Search(**found)


def rules_of(search: Search) -> list[Rule]:
    """Returns the rules of a search's settings, which also apply to draws."""
    return [NoRepeat(search.no_repeat)] if search.no_repeat else []


# ---- the search ----
class Texts(Protocol):
    """Unfinished texts of a network, which advance by one token each.

    num:  number of texts, B
    """

    num: int

    def copy(self, source: int, target: int) -> None:
        """Copies one text over another."""

    def next(self, tokens_B: Sequence[int]) -> Logits:
        """Appends a token to each text, and returns the logits (B, V) after them."""


class Beam(Record):
    """A text and its score.

    tokens:  tokens of the answer
    score:   sum of log-probabilities; for an ended text, divided as in the formula above
    row:     number of the text that it continues
    """

    tokens: tuple[int, ...]
    score: float
    row: int = 0


def searched(
    texts: Texts, logits_V: Logits, begun: Sequence[int], counted: int, num: int, search: Search,
    rules: Sequence[Rule], ends: Collection[int],
) -> Beam:  # fmt: skip
    """Returns the best answer of the search, with the token that ends it, if there is one.

    Args:
      texts:    texts of the network; text 0 has been read up to the answer
      logits_V: logits of its next token
      begun:    tokens of that text, for the rules
      counted:  how many of them count towards the answer's length
      num:      largest number of tokens of an answer
    """
    live, done = [Beam((), 0.0)], list[Beam]()
    logits_BV = logits_V[None]
    for length in range(1, num + 1):
        scores_BV = np.stack([
            scored(row_V, [*begun, *beam.tokens], rules) + beam.score for beam, row_V in zip(live, logits_BV)
        ])  # fmt: skip
        found = best(scores_BV, live, max(2, 1 + len(ends)) * search.beams)
        if not found:  # the rules bar all tokens
            break
        has_ended = [length == num or beam.tokens[-1] in ends for beam in found]
        factor = float(length + counted) ** -search.length_penalty
        done += [Beam(b.tokens, b.score * factor) for b, is_end in zip(found[: search.beams], has_ended) if is_end]
        done = sorted(done, key=lambda beam: -beam.score)[: search.beams]
        live = [beam for beam, is_end in zip(found, has_ended) if not is_end][: search.beams]
        most = num if search.early_stopping == NEVER and search.length_penalty > 0 else length
        if not live or is_over(live[0].score * float(most + counted) ** -search.length_penalty, done, search):
            break
        rows = moved(texts, [beam.row for beam in live])
        tokens_B = [0] * texts.num
        for beam, row in zip(live, rows):
            tokens_B[row] = beam.tokens[-1]
        logits_BV = texts.next(tokens_B)[rows]
        live = [Beam(beam.tokens, beam.score, row) for beam, row in zip(live, rows)]
    return (done or live)[0]


def scored(logits_V: Logits, text: Sequence[int] = (), rules: Sequence[Rule] = ()) -> Logits:
    """Returns log-probabilities (V,) of the next token; tokens that must not follow are BARRED.

    Raises:
      DataError: a logit is not finite.
    """
    logits_V = logits_V.astype(np.float64)
    if not np.isfinite(logits_V).all():
        raise DataError("the model's numbers are not finite: its file is damaged, or of another network.")
    scores_V: Logits = logits_V - logits_V.max()
    scores_V -= np.log(np.exp(scores_V).sum())
    for rule in rules:
        rule(scores_V, text)
    return scores_V


def best(scores_BV: Logits, live: Sequence[Beam], num: int) -> list[Beam]:
    """Returns the best continuations of texts by one token, the likeliest first, without barred ones."""
    flat = scores_BV.ravel()
    likely = np.argpartition(-flat, min(num, len(flat)) - 1)[:num]
    order = likely[np.lexsort((likely, -flat[likely]))]
    pairs = [(divmod(int(each), scores_BV.shape[1]), float(flat[each])) for each in order if flat[each] > BARRED / 2]
    return [Beam((*live[row].tokens, token), score, live[row].row) for (row, token), score in pairs]


def is_over(possible: float, done: Sequence[Beam], search: Search) -> bool:
    """True if no unfinished text can beat the ended ones, or if these are enough."""
    return len(done) == search.beams and (search.early_stopping is True or possible <= done[-1].score)


def moved(texts: Texts, parents: Sequence[int]) -> list[int]:
    """Copies texts with several continuations, and returns the row of each beam; the first keeps its parent's.

    Args:
      parents:  row that each beam continues
    """
    free = iter([row for row in range(texts.num) if row not in parents])
    rows = list[int]()
    for parent in parents:
        rows.append(next(free) if parent in rows else parent)
        if rows[-1] != parent:
            texts.copy(parent, rows[-1])
    return rows
