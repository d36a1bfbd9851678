"""Matches regular expressions in time linear in the text: a set of places in the expression moves through it.

In:    a regular expression in Python's notation, without back-references and looking around, as RE2 has it; a text
Out:   `Pattern`
Next:  picograd/onnx/operators/text.py

Python's own engine tries one way after the other: (a+)+$ on 40 letters takes longer than anybody waits. Here all ways are
followed at once (Thompson 1968). The graph's edges test a letter, or a place between two letters; each set of nodes
remembers the set that a letter leads to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from re import _parser  # type: ignore[attr-defined]
from typing import Any

from picograd.errors import ArgumentError, UnsupportedOp

NODES_MAX = 10_000  # of an expression: {1000} repeats its part a thousand times
STEPS_MAX = 1 << 20  # from node to node, of one Pattern
FLAGS = re.IGNORECASE | re.DOTALL | re.ASCII | re.MULTILINE
CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
# "$" is the end of the text, as in RE2: not the place before a last line feed.
ANCHORS = {"BEGINNING": "^", "BEGINNING_STRING": r"\A", "END": r"\Z", "END_STRING": r"\Z"}
ANCHORS |= {"BOUNDARY": r"\b", "NON_BOUNDARY": r"\B"}
Tree = Sequence[tuple[Any, Any]]


class Node:
    """A place in an expression.

    letter:  tests the letter that leads from here; None: it leads on without one
    anchor:  what must hold of the letters before and after this place; None: nothing
    after:   where it leads
    """

    __slots__ = ("after", "anchor", "letter")

    def __init__(self, after: list[Node], letter: re.Pattern[str] | None, anchor: re.Pattern[str] | None) -> None:
        self.after, self.letter, self.anchor = after, letter, anchor


class Pattern:
    """A regular expression.

    steps:  from node to node, so far

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
        """Returns whether the whole of a text is matched.

        Raises:
          ArgumentError: that takes more than STEPS_MAX steps.
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
        """Returns the nodes that places lead to without a letter, between these two; "" is an end of the text."""
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
        """Returns the node where a part begins that leads to `end`."""
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
    """Returns the expression of one letter, or None for what is none."""
    if code == "LITERAL":
        return re.escape(chr(about))
    if code == "NOT_LITERAL":
        return f"[^{re.escape(chr(about))}]"
    if code == "ANY":
        return "."
    return f"[{''.join(_member(str(kind), value) for kind, value in about)}]" if code == "IN" else None


def _member(kind: str, value: Any) -> str:
    """Returns a member of a class of letters."""
    if kind == "NEGATE":
        return "^"
    if kind == "RANGE":
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    if kind == "CATEGORY":
        return CATEGORIES[str(value).removeprefix("CATEGORY_")]
    return re.escape(chr(value))
