"""Strings, which stay on the host, counts of n-grams, and regular expressions.

A Pattern matches in time linear in the text. Python's own engine backtracks: (a+)+$ on 40 letters takes longer than
a user waits. A Pattern follows all paths at once (Thompson 1968): the edges of a graph test a letter, or a position between
two letters; the next set of nodes is cached for each set and letter. Expressions are in Python's notation, without
back-references and look-around, as in RE2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, UnsupportedOp
from picograd_onnx.record import row
from picograd_onnx.values import PYTHON_WORK, Array, affordable, spend

# ---- regular expressions ----
NODES_MAX = 10_000  # nodes of an expression: {1000} repeats its part a thousand times
STEPS_MAX = 1 << 20  # steps from node to node, of one Pattern
FLAGS = re.IGNORECASE | re.DOTALL | re.ASCII | re.MULTILINE
CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
# "$" is the end of the text, as in RE2, never the position before a last line feed.
ANCHORS = {"BEGINNING": "^", "BEGINNING_STRING": r"\A", "END": r"\Z", "END_STRING": r"\Z"}
ANCHORS |= {"BOUNDARY": r"\b", "NON_BOUNDARY": r"\B"}
Tree = Sequence[tuple[Any, Any]]


class Node:
    """A node of an expression's graph.

    letter:  test of the letter that the edge consumes; None: no letter is consumed
    anchor:  test of the letters before and after this position; None: no test
    after:   next nodes
    """

    __slots__ = ("after", "anchor", "letter")

    def __init__(self, after: list[Node], letter: re.Pattern[str] | None, anchor: re.Pattern[str] | None) -> None:
        self.after, self.letter, self.anchor = after, letter, anchor


class Pattern:
    """A regular expression.

    steps:  steps from node to node so far

    >>> Pattern("(a+)+$").matches("a" * 10_000 + "!")
    False
    """

    def __init__(self, text: str) -> None:
        self._text, self._nodes, self.steps = text, 0, 0
        self._sets: dict[frozenset[Node], frozenset[Node]] = {}
        self._moves: dict[tuple[frozenset[Node], str, str], frozenset[Node]] = {}
        try:
            tree = _parser.parse(text)
            self._end = self._node([])
            self._start = self._of(tree, self._end, tree.state.flags)
        except (re.error, RecursionError, OverflowError) as error:
            raise ArgumentError(f"{text!r} is not a regular expression: {error}.") from None

    def matches(self, text: str) -> bool:
        """Returns whether a whole text matches.

        Raises:
          ArgumentError: the match takes more than STEPS_MAX steps.
        """
        places, before = frozenset((self._start,)), ""
        for letter in text:
            key = places, before, letter
            after = self._moves.get(key)
            if after is None:
                reached = self._reached(places, before, letter)
                moved = frozenset(n for node in reached if node.letter and node.letter.match(letter) for n in node.after)
                after = self._moves[key] = self._sets.setdefault(moved, moved)
            if not after:
                return False
            places, before = after, letter
        return self._end in self._reached(places, before, "")

    def _reached(self, places: frozenset[Node], before: str, letter: str) -> set[Node]:
        """Returns the nodes that are reached without a letter, between two letters; "" is an end of the text."""
        reached, waiting = {*places}, [*places]
        while waiting:
            node = waiting.pop()
            self.steps += 1
            if node.letter or (node.anchor and not node.anchor.match(before + letter, len(before))):
                continue
            waiting += (more := {*node.after} - reached)
            reached |= more
        if self.steps > STEPS_MAX:
            raise ArgumentError(f"the regular expression {self._text!r} takes more than {STEPS_MAX} steps.")
        return reached

    # ---- the graph, from its end to its start ----
    def _node(self, after: list[Node], letter: str | None = None, anchor: str | None = None, flags: int = 0) -> Node:
        self._count()
        tests = (None if text is None else re.compile(text, flags) for text in (letter, anchor))
        return Node(after, *tests)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise UnsupportedOp(f"the regular expression {self._text!r} has more than {NODES_MAX} places.")

    def _of(self, tree: Tree, end: Node, flags: int) -> Node:
        """Returns the first node of a part that continues with `end`."""
        self._count()
        if flags & ~(FLAGS | re.UNICODE):
            raise UnsupportedOp(f"the flags of the regular expression {self._text!r} are not supported.")
        for code, about in reversed(tree):
            end = self._item(str(code), about, end, flags)
        return end

    def _item(self, code: str, about: Any, end: Node, flags: int) -> Node:
        letter = _letter(code, about)
        if letter is not None:
            return self._node([end], letter, flags=flags)
        if code in ("MAX_REPEAT", "MIN_REPEAT"):
            return self._repeated(about, end, flags)
        if code == "BRANCH":
            return self._node([self._of(part, end, flags) for part in about[1]])
        if code == "SUBPATTERN":
            _, added, removed, part = about
            return self._of(part, end, (flags | added) & ~removed)
        if code == "AT":
            name = str(about).removeprefix("AT_")
            multiline = flags & re.MULTILINE and name in ("BEGINNING", "END")
            return self._node([end], anchor="$" if multiline and name == "END" else ANCHORS[name], flags=flags)
        raise UnsupportedOp(f"{code} in the regular expression {self._text!r} is not supported.")

    def _repeated(self, about: tuple[int, int, Tree], end: Node, flags: int) -> Node:
        least, most, part = about
        if most == _parser.MAXREPEAT:
            start = self._node([end])
            start.after.append(self._of(part, start, flags))
        else:
            start = end
            for _ in range(most - least):
                start = self._node([end, self._of(part, start, flags)])
        for _ in range(least):
            start = self._of(part, start, flags)
        return start


def _letter(code: str, about: Any) -> str | None:
    """Returns the regular expression of one letter; None for other kinds of parts."""
    if code == "LITERAL":
        return re.escape(chr(about))
    if code == "NOT_LITERAL":
        return f"[^{re.escape(chr(about))}]"
    if code == "ANY":
        return "."
    return f"[{''.join(_member(str(kind), value) for kind, value in about)}]" if code == "IN" else None


def _member(kind: str, value: Any) -> str:
    """Returns a member of a character class."""
    if kind == "NEGATE":
        return "^"
    if kind == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if kind == "CATEGORY":
        return CATEGORIES[str(value).removeprefix("CATEGORY_")]
    return re.escape(chr(value))


# ---- operators ----
def _each(x: Array, function: Any, dtype: Any = object) -> Array:
    """Applies a function to each element."""
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
    """Returns the parts of each string along a new axis, padded with "", and their number."""
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
    """Removes stop words from strings and changes their case as requested; one "" if no string is left.

    Raises:
      UnsupportedOp: the language of `locale` has its own rules for upper and lower case.
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
    """Returns the counts of a pool's n-grams in each row, or their presence, optionally weighted."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ArgumentError(f'TfIdfVectorizer: mode must be "TF", "IDF" or "TFIDF", got {mode!r}.')
    count, length = max(ngram_indexes, default=-1) + 1, x.shape[-1]
    affordable("TfIdfVectorizer", math.prod(x.shape[:-1]), count)
    most_skipped, longest = min(max_skip_count, length), min(max_gram_length, length)
    affordable("TfIdfVectorizer", x.size, most_skipped + 1, longest, longest)
    pool: Sequence[Any] = pool_int64s or pool_strings or []
    known = {gram: number for number, gram in enumerate(_pool_grams(pool, ngram_counts))}
    if len(known) > len(ngram_indexes) or (weights is not None and len(weights) != len(ngram_indexes)):
        raise ArgumentError(f"TfIdfVectorizer: {len(known)} n-grams need the same number of ngram_indexes and weights.")
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
    """Yields the n-grams of a pool; `starts` are the beginnings of those with 1, 2, ... elements."""
    ends = [*starts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(starts, ends), 1):
        for place in range(start, end - length + 1, length):
            yield tuple(pool[place : place + length])


def _grams(line: list[Any], shortest: int, longest: int, most_skipped: int) -> Iterator[tuple[Any, ...]]:
    """Yields the n-grams of a row, with distances from 1 to most_skipped + 1 between elements; single elements once."""
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
