"""Values of Jinja: the operations of templates on strings, numbers, lists and dicts, without access to the rest of Python.

Each table maps names to meanings: operators, methods of strings and dicts, global functions, filters, tests.

Source: Pallets, Jinja, "Template Designer Documentation", the lists of filters, of tests and of global functions; Hugging
       Face, transformers, `chat_template_utils` (`raise_exception`, `strftime_now`, `tojson`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from picograd.errors import DataError

Value = Any
LETTERS_MAX = 2**22  # letters of a string, or values of a list, that a template makes
BITS_MAX = 4096  # of a number
RANGE_MAX = 100_000
WIDE = re.compile(r"%[^%\w]*(?:\d{4}|[\d.]*\*|\d*\.\d{4})")  # a wide field of a format


class Undefined:
    """The value of an undefined name: false, empty, and an error in other uses."""

    def __init__(self, name: str = "a value"):
        self.name = name

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return ""

    def __iter__(self) -> Iterator[Value]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Undefined)

    __hash__ = None  # type: ignore[assignment]


class Space(dict[str, Value]):
    """The result of `namespace()`: values by name, which a loop can assign."""


# ---- how large a value may be ----
def check_length(num: int) -> None:
    """Checks the length of a string or list before it is made.

    Raises:
      DataError: it is too long.
    """
    if num > LETTERS_MAX:
        raise DataError(f"the template makes a text of more than {LETTERS_MAX:,} letters.")


def length_of(value: Value) -> int:
    """Returns the number of letters or values of a result.

    Raises:
      DataError: there are too many, or a number has too many digits.
    """
    if isinstance(value, int) and value.bit_length() > BITS_MAX:
        raise DataError(f"the template makes a number of more than {BITS_MAX:,} bits.")
    num = len(value) if isinstance(value, str | list | tuple | dict) else 0
    check_length(num)
    return num


def replaced(text: str, old: str, new: str, count: int = -1) -> str:
    """Returns a text with some parts replaced."""
    check_length(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def joined(sign: str, texts: Iterable[str]) -> str:
    """Returns strings joined by a separator."""
    found, num = list[str](), 0
    for text in texts:
        num += len(text) + len(sign)
        check_length(num)
        found.append(text)
    return sign.join(found)


# ---- operators ----
COMPARISONS: dict[str, Callable[[Value, Value], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, "in": lambda a, b: a in b, "not in": lambda a, b: a not in b,
}  # fmt: skip


def times(a: Value, b: Value) -> Value:
    """Returns a product; a string or list is limited in length.

    Raises:
      DataError: it is too long.
    """
    for x, y in ((a, b), (b, a)):
        if isinstance(x, str | list | tuple) and isinstance(y, int):
            check_length(len(x) * y)
    return a * b


def remainder(a: Value, b: Value) -> Value:
    """Returns a remainder, or a formatted string with fields of moderate width.

    Raises:
      DataError: a field is wider.
    """
    if isinstance(a, str) and WIDE.search(a):
        raise DataError("the template pads values to a thousand letters or more.")
    return a % b


def power(a: Value, b: Value) -> Value:
    """Returns a power of moderate numbers.

    Raises:
      DataError: the numbers are too large.
    """
    if abs(a) > 2**32 or abs(b) > 64:
        raise DataError("the template makes a power of large numbers.")
    return a**b


ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "~": lambda a, b: shown(a) + shown(b), "*": times,
    "/": lambda a, b: a / b, "//": lambda a, b: a // b, "%": remainder, "**": power,
}  # fmt: skip


def shown(value: Value) -> str:
    """Returns a value as text."""
    return str(dict(value)) if isinstance(value, Space) else str(value)


def known(name: str, table: Mapping[str, Callable[..., Value]], what: str) -> Callable[..., Value]:
    """Returns an entry of a table.

    Raises:
      DataError: the entry does not exist.
    """
    if name not in table:
        raise DataError(f"the template has the {what} {name[:40]!r}, which is not supported.")
    return table[name]


def found_in(owner: Value, key: Value, is_attribute: bool) -> Value:
    """Returns an entry or a method of a value.

    Raises:
      DataError: the value is undefined.
    """
    if isinstance(owner, Undefined):
        raise DataError(f"the template reads {str(key)[:40]} of {owner.name[:40]}, which is undefined.")
    methods = next((table for kind, table in METHODS if isinstance(owner, kind)), {})
    method = methods.get(key) if isinstance(key, str) else None
    if method is not None and (is_attribute or not isinstance(owner, dict) or key not in owner):
        return lambda *values, **named: method(owner, *values, **named)
    try:
        return owner[key]
    except (KeyError, IndexError, TypeError):
        return Undefined(str(key))


# ---- what values can do ----
def only(kind: type, *names: str, **others: Callable[..., Value]) -> tuple[type, dict[str, Callable[..., Value]]]:
    """Returns a subclass of a type with only some of its methods, and replacements of others."""
    return kind, {name: getattr(kind, name) for name in names} | others


METHODS = (
    only(str, "strip", "lstrip", "rstrip", "startswith", "endswith", "split", "rsplit", "splitlines", "upper",
         "lower", "title", "capitalize", "find", "rfind", "count", "isdigit", "isspace", "isalpha", "isalnum",
         "isupper", "islower", "removeprefix", "removesuffix", "partition", "rpartition", replace=replaced, join=joined),
    only(dict, "items", "keys", "values", "get"), only(list, "index", "count"), only(tuple, "index", "count"),
)  # fmt: skip


def refused(message: Value) -> None:
    """Raises the error that a template asks for.

    Raises:
      DataError: always.
    """
    raise DataError(f"the template says: {str(message)[:200]}")


def numbers_up_to(*ends: int) -> range:
    """Returns a range of limited length.

    Raises:
      DataError: it is too long.
    """
    found = range(*ends)
    if len(found) > RANGE_MAX:
        raise DataError(f"the template counts to more than {RANGE_MAX:,}.")
    return found


GLOBALS: dict[str, Value] = {
    "raise_exception": refused, "strftime_now": lambda form: time.strftime(form), "range": numbers_up_to, "dict": dict,
    "namespace": lambda *values, **named: Space(*values, **named),
}  # fmt: skip


def by(values: Iterable[Value], name: str, arguments: tuple[Value, ...], attribute: str | None, keeps: bool) -> list[Value]:
    """Returns the values that pass a test, or those that fail it; the test may be on an attribute."""
    test = known(name, TESTS, "test")
    values = list(values)
    of = values if attribute is None else [found_in(value, attribute, False) for value in values]
    return [value for value, each in zip(values, of) if bool(test(each, *arguments)) == keeps]


def mapped(values: Iterable[Value], *names: Value, attribute: Value = None, default: Value = None) -> list[Value]:
    """Returns an attribute of each value, or a filter's result for each."""
    if attribute is not None:
        found = [found_in(value, attribute, False) for value in values]
        return [default if isinstance(each, Undefined) and default is not None else each for each in found]
    return [known(names[0], FILTERS, "filter")(value, *names[1:]) for value in values]


def as_json(
    value: Value, ensure_ascii: bool = False, indent: Value = None, separators: Value = None, sort_keys: bool = False
) -> str:
    """Returns a value as JSON."""
    check_length(len(indent) if isinstance(indent, str) else RANGE_MAX * (indent or 0) // 8)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def indented(text: str, width: Value = 4, first: bool = False, blank: bool = False) -> str:
    """Returns a text with indented lines."""
    before = width if isinstance(width, str) else times(" ", width)
    lines = text.split("\n")
    check_length(len(text) + len(lines) * len(before))
    rest = [before + line if line or blank else line for line in lines[1:]]
    return "\n".join([before + lines[0] if first else lines[0], *rest])


def default_of(value: Value, default_value: Value = "", boolean: bool = False) -> Value:
    """Returns a value, or a default for an undefined one."""
    return default_value if isinstance(value, Undefined) or boolean and not value else value


def ordered(
    values: Iterable[Value], reverse: bool = False, case_sensitive: bool = False, attribute: Value = None
) -> list[Value]:
    """Returns sorted values, or values sorted by an attribute."""

    def key(value: Value) -> Value:
        found = value if attribute is None else found_in(value, attribute, False)
        return found.lower() if isinstance(found, str) and not case_sensitive else found

    return sorted(values, key=key, reverse=reverse)


def number_of(kind: type, value: Value, default: Value) -> Value:
    """Returns a value as a number, or a default if it is not one."""
    try:
        return kind(value)
    except (TypeError, ValueError):
        return default


FILTERS: dict[str, Callable[..., Value]] = {
    "trim": lambda value, chars=None: shown(value).strip(chars), "upper": lambda value: shown(value).upper(),
    "lower": lambda value: shown(value).lower(), "title": lambda value: shown(value).title(),
    "capitalize": lambda value: shown(value).capitalize(), "length": len, "count": len, "tojson": as_json,
    "join": lambda values, sign="", attribute=None: joined(
        shown(sign), (shown(found_in(each, attribute, False) if attribute else each) for each in values)),
    "default": default_of, "d": default_of, "first": lambda values: next(iter(values), Undefined("the first of none")),
    "last": lambda values: values[-1] if values else Undefined("the last of none"), "list": list, "string": shown,
    "int": lambda value, default=0: number_of(int, value, default),
    "float": lambda value, default=0.0: number_of(float, value, default),
    "replace": lambda value, old, new, count=-1: replaced(shown(value), old, new, count),
    "reverse": lambda value: value[::-1] if isinstance(value, str) else list(value)[::-1],
    "items": lambda value: [] if isinstance(value, Undefined) else list(value.items()),
    "dictsort": lambda value: sorted(value.items()), "sort": ordered,
    "unique": lambda values: list(dict.fromkeys(values)), "indent": indented, "safe": shown, "abs": abs, "sum": sum,
    "min": min, "max": max, "round": round, "map": mapped,
    "select": lambda values, name="true", *more: by(values, name, more, None, True),
    "reject": lambda values, name="true", *more: by(values, name, more, None, False),
    "selectattr": lambda values, key, name="true", *more: by(values, name, more, key, True),
    "rejectattr": lambda values, key, name="true", *more: by(values, name, more, key, False),
}  # fmt: skip


def is_number(value: Value) -> bool:
    """Returns whether a value is a number; Jinja counts true and false."""
    return isinstance(value, int | float)


TESTS: dict[str, Callable[..., Value]] = {
    "defined": lambda value: not isinstance(value, Undefined), "undefined": lambda value: isinstance(value, Undefined),
    "none": lambda value: value is None, "string": lambda value: isinstance(value, str),
    "mapping": lambda value: isinstance(value, dict), "number": is_number, "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, float), "true": bool,
    "false": lambda value: value is False, "callable": callable,
    "iterable": lambda value: isinstance(value, str | list | tuple | dict | range | Undefined),
    "sequence": lambda value: isinstance(value, str | list | tuple | dict | range | Undefined),
    "odd": lambda value: value % 2 == 1, "even": lambda value: value % 2 == 0,
    "divisibleby": lambda value, number: value % number == 0, "in": lambda value, values: value in values,
    "lower": lambda value: shown(value).islower(), "upper": lambda value: shown(value).isupper(),
    **{name: COMPARISONS[sign] for name, sign in {
        "equalto": "==", "eq": "==", "ne": "!=", "lt": "<", "lessthan": "<", "gt": ">", "greaterthan": ">", "le": "<=",
        "ge": ">=",
    }.items()},
}  # fmt: skip
