"""Patterns that split text into words, as tokenizers publish them: from Oniguruma's syntax to Python's `re`.

Python has no classes such as \\p{L}, letters of any script, and its \\s matches more than white space: each class becomes
ranges of characters.

Source: K. Kosako, Oniguruma, "Regular Expressions" (RE); Unicode, UAX 44, table 12 (categories), PropList (White_Space);
       UTS 18, appendix C (words).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from picograd.errors import DataError

Ranges = list[tuple[int, int]]  # of characters, first and last
LAST = 0x10FFFF
# The characters after these are private or unassigned, except for a few special ones at the end.
ASSIGNED = (range(0x323B0), range(0xE0000, 0xE01F0))
SPACES = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
OF_WORDS = ("L", "M", "Nd", "Nl", "Pc")  # in Rust's regular expressions; also joiners, and letters in circles and squares:
MORE_OF_WORDS = [(0x200C, 0x200D), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)]
PART = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|([A-Z]))|\\x\{([0-9A-Fa-f]{1,6})\}|\\(.)|(\[:|&&)|(.)", re.DOTALL)
PLAIN = frozenset("rntfv\\.^$*+?()[]{}|/-'\"# &~!@%=:;,<>`")  # after a backslash they mean themselves, in both languages


@cache
def categories() -> dict[str, Ranges]:
    """Returns the characters of each category, such as Lu."""
    found: dict[str, Ranges] = {}
    for numbers in ASSIGNED:
        before, first = "", 0
        for number in [*numbers, numbers.stop]:
            kind = unicodedata.category(chr(number)) if number < numbers.stop else ""
            if kind != before:
                if before:
                    found.setdefault(before, []).append((first, number - 1))
                before, first = kind, number
    return found


@cache
def class_of(name: str, is_negated: bool = False) -> str:
    """Returns a class for use inside []: a category, all categories with a first letter, "space", "word" or "w".

    Raises:
      DataError: the class is unknown.

    >>> class_of("Zl")
    '\\\\U00002028-\\\\U00002028'
    """
    ranges = [(ord(letter), ord(letter)) for letter in SPACES] if name == "space" else []
    kinds = OF_WORDS if name == "word" else ("L", "M", "N", "Pc") if name == "w" else (name,)
    ranges += MORE_OF_WORDS if name == "word" else []
    ranges += [each for kind, found in categories().items() if kind.startswith(kinds) for each in found]
    if not ranges:
        raise DataError(f"cuts words by the class \\p{{{name[:20]}}}; categories of Unicode are known.")
    ends = [(-1, -1), *sorted(ranges), (LAST + 1, LAST + 1)]
    if is_negated:
        ranges = [(a[1] + 1, b[0] - 1) for a, b in zip(ends, ends[1:]) if a[1] + 1 < b[0]]
    return "".join(f"\\U{first:08X}-\\U{last:08X}" for first, last in ranges)


ESCAPED = {
    "s": ("space", False),
    "S": ("space", True),
    "d": ("Nd", False),
    "D": ("Nd", True),
    "w": ("w", False),
    "W": ("w", True),
}


# A class, an escape, an exact number of repetitions, another one or a sign; parentheses, which "(?:" and others begin
SYNTAX = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|\{\d+\}|(\(\??)|(\))|(\|)|([*+]|\{\d*,\d*\})|(\?)|.", re.DOTALL)


def check_repeats(pattern: str) -> None:
    """Checks that no part that matches in several ways is repeated, as matching could take exponential time.

    Raises:
      DataError: such a part is repeated.

    >>> check_repeats(r"(?:ab)+|[a-z]*(?i:x|y)?")
    """
    can_vary, closed = [False], False  # for each open group; and for the group that ends here
    for found in SYNTAX.finditer(pattern):
        opens, closes, either, repeats, optional = found.groups()
        if repeats and closed:
            fact = "which repeats a part that can match in several ways: it may never end"
            raise DataError(f"cuts words by {pattern[:60]!r}, {fact}.")
        closed = False
        if opens:
            can_vary.append(False)
        elif closes and len(can_vary) > 1:
            closed = can_vary.pop()
            can_vary[-1] |= closed
        elif either or repeats or optional:
            can_vary[-1] = True


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern of Oniguruma's for Python.

    Raises:
      DataError: the pattern is invalid, uses an unsupported part, or may be slow.

    >>> compiled(r"\\p{Lu}[\\p{Ll}\\d]+").findall("Größe Ab1 x")
    ['Größe', 'Ab1']
    """
    check_repeats(pattern)
    parts, depth = list[str](), 0
    for found in PART.finditer(pattern):
        sign, caret, name, letter, number, escaped, other, plain = found.groups()
        inside = ""
        if sign:
            inside = class_of(name or letter, (sign == "P") != bool(caret))
        elif number and int(number, 16) <= LAST:
            inside = f"\\U{int(number, 16):08X}"
        elif escaped in ESCAPED:
            inside = class_of(*ESCAPED[escaped])
        elif escaped in PLAIN:
            parts.append(found[0])
        elif plain is not None and not (plain == "[" and depth):
            depth += (plain == "[") - (plain == "]" and depth > 0)
            parts.append(plain)
        else:
            raise DataError(f"cuts words by a pattern with {found[0]!r} in it, which is not supported: {pattern[:60]}")
        if inside:
            parts.append(inside if depth else f"[{inside}]")
    try:
        return re.compile("".join(parts))
    except (re.error, OverflowError, RecursionError) as error:
        raise DataError(f"cuts words by {pattern[:60]!r}, which is not a pattern: {error}.") from None
