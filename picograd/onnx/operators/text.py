"""Strings, which live on the host, and counts of what follows what.

In:    arrays
Out:   `OPERATORS`
Next:  picograd/onnx/operators/learning.py
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, UnsupportedOp
from picograd.onnx.patterns import Pattern
from picograd.onnx.record import row
from picograd.onnx.values import PYTHON_WORK, Array, affordable, spend


def _each(x: Array, function: Any, dtype: Any = object) -> Array:
    """Returns what a function makes of each element."""
    made = np.empty(x.size, dtype)
    for number, text in enumerate(x.reshape(-1)):
        made[number] = function(text)
    return made.reshape(x.shape)


def concat(a: Array, b: Array) -> Array:
    """Returns a + b, broadcast."""
    numel = max(math.prod(np.broadcast_shapes(a.shape, b.shape)), 1)
    affordable("StringConcat", sum(sum(map(len, x.reshape(-1))) * numel // max(x.size, 1) for x in (a, b)))
    return np.asarray(np.add(a.astype(object), b.astype(object)), dtype=object)


def split(x: Array, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Array, Array]:
    """Returns the parts of each string along a new axis, filled up with "", and how many there are."""
    parts = [str(text).split(delimiter or None, maxsplit) for text in x.reshape(-1)]
    if delimiter:
        parts = [[] if part == [""] else part for part in parts]
    longest = max(map(len, parts), default=0)
    affordable("StringSplit", len(parts), longest)
    table = np.full((len(parts), longest), "", object)
    for number, part in enumerate(parts):
        table[number, : len(part)] = part
    return table.reshape(*x.shape, longest), np.array([len(part) for part in parts], np.int64).reshape(x.shape)


def normalize(
    x: Array, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "",
    stopwords: Sequence[str] | None = None,
) -> Array:  # fmt: skip
    """Returns the strings that are no stop words, in upper or lower case if asked for; one "" if none is left.

    Raises:
      UnsupportedOp: the language of `locale` has rules of its own for upper and lower case.
    """
    changes: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    if case_change_action not in changes:
        raise ArgumentError(
            f'StringNormalizer: case_change_action must be "NONE", "LOWER" or "UPPER", got {case_change_action!r}.'
        )
    if case_change_action != "NONE" and locale[:2].lower() in ("az", "lt", "tr"):
        raise UnsupportedOp(f"StringNormalizer: upper and lower case of locale {locale!r} are not supported.")
    folded: Callable[[str], str] = str if is_case_sensitive else str.lower
    stops = {folded(word) for word in stopwords or ()}
    kept = [changes[case_change_action](word) for word in x.reshape(-1) if folded(word) not in stops] or [""]
    return np.array(kept, object).reshape(*x.shape[:-1], len(kept))


def matches(x: Array, *, pattern: str = "") -> Array:
    """Returns whether a whole string matches a regular expression."""
    compiled = Pattern(pattern)
    found = _each(x, compiled.matches, bool)
    spend(compiled.steps * PYTHON_WORK)
    return found


# ---- n-grams ----
def tf_idf(
    x: Array, *, mode: str, min_gram_length: int, max_gram_length: int, max_skip_count: int, ngram_counts: Sequence[int],
    ngram_indexes: Sequence[int], pool_int64s: Sequence[int] | None = None, pool_strings: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Array:  # fmt: skip
    """Returns how often each n-gram of a pool stands in each row, or whether, weighted."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ArgumentError(f'TfIdfVectorizer: mode must be "TF", "IDF" or "TFIDF", got {mode!r}.')
    count, length = max(ngram_indexes, default=-1) + 1, x.shape[-1]
    affordable("TfIdfVectorizer", math.prod(x.shape[:-1]), count)
    most_skipped, longest = min(max_skip_count, length), min(max_gram_length, length)
    affordable("TfIdfVectorizer", x.size, most_skipped + 1, longest, longest)
    pool: Sequence[Any] = pool_int64s or pool_strings or []
    known = {gram: number for number, gram in enumerate(_pool_grams(pool, ngram_counts))}
    if len(known) > len(ngram_indexes) or (weights is not None and len(weights) != len(ngram_indexes)):
        raise ArgumentError(f"TfIdfVectorizer: {len(known)} n-grams need as many ngram_indexes and weights.")
    counts = np.zeros((*x.shape[:-1], count), np.float32)
    rows, lines = counts.reshape(-1, count), x.reshape(-1, length)
    for row_, line in zip(rows, lines):
        for gram in _grams(line.tolist(), min_gram_length, longest, most_skipped):
            if gram in known:
                row_[ngram_indexes[known[gram]]] += 1
    scale = np.ones(counts.shape[-1], np.float32)
    if mode != "TF" and weights is not None:
        scale[[*ngram_indexes]] = weights
    return (counts if mode != "IDF" else (counts > 0).astype(np.float32)) * scale


def _pool_grams(pool: Sequence[Any], starts: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Yields the n-grams of a pool, in which those of 1, 2, ... elements begin at `starts`."""
    ends = [*starts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(starts, ends), 1):
        for place in range(start, end - length + 1, length):
            yield tuple(pool[place : place + length])


def _grams(line: list[Any], shortest: int, longest: int, most_skipped: int) -> Iterator[tuple[Any, ...]]:
    """Yields the n-grams of a row whose elements stand 1 to most_skipped + 1 apart; single elements once."""
    for step in range(1, most_skipped + 2):
        for length in range(shortest, longest + 1):
            if length == 1 and step > 1:
                continue
            for start in range(len(line) - step * (length - 1)):
                yield tuple(line[start : start + step * length : step][:length])


OPERATORS = [
    row("StringConcat", 20, concat, "x! x!", hosts=True), row("StringSplit", 20, split, "x!", hosts=True),
    row("StringNormalizer", 10, normalize, "1-2!", hosts=True),
    row("RegexFullMatch", 20, matches, "x!", hosts=True), row("TfIdfVectorizer", 9, tf_idf, "1-2!", hosts=True),
]  # fmt: skip
