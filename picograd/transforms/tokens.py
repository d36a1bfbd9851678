"""What of a Python value must not change while a capture of it is in use.

In:    a value that a captured function reads
Out:   `token_of`: what is remembered of it;  `fits`, `same`: whether it still means that;  `how`: what to tell the user
Called by: transforms/guards.py, transforms/mentions.py, transforms/watched.py.    Next: picograd/transforms/gradients.py
"""

from __future__ import annotations

import operator
import os
import sysconfig
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np

from picograd.dtype import DType
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Length)
LIBRARIES = (
    os.path.dirname(os.path.dirname(__file__)),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
SEQUENCES = (list, tuple, deque)
MISSING = object()  # what a name means that means nothing
TOO_DEEP = object()  # what is remembered of a container that is not looked into
MOST_ITEMS = 16  # of a container whose items are looked at one by one
MOST_DEPTH = 8
MOST_PLAIN_ITEMS = 256  # of a list of plain values, which are compared in one go
MOST_ARRAY_NBYTES = 1024  # of an array whose contents are looked at


class PlainItems(list[Any]):
    """What a longer list of plain values held."""


class ArrayToken(NamedTuple):
    """An array, and what a small one held."""

    array: weakref.ref[np.ndarray[Any, Any]]
    held: bytes | None


def token_of(value: Any, depth: int = MOST_DEPTH) -> Any:
    """Returns what of a value must not change, or MISSING where nothing is looked at.

    Args:
      depth:  of containers in containers that are looked into; a list may hold itself
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return weakref.ref(value.cell), value.steps
    if isinstance(value, Module | Optimizer):
        return weakref.ref(value)
    if isinstance(value, np.ndarray):
        return ArrayToken(weakref.ref(value), _held(value))
    if isinstance(value, FunctionType) and is_users_code(value.__code__):
        return value.__code__  # another function of the name, but not the same made anew
    if isinstance(value, SEQUENCES):
        return _token_of_items(value, depth)
    if isinstance(value, set | frozenset) and len(value) <= MOST_PLAIN_ITEMS and _are_plain(value):
        return frozenset(value)
    if isinstance(value, dict) and len(value) <= MOST_ITEMS:
        return {key: token_of(item, depth - 1) for key, item in value.items()} if depth else TOO_DEEP
    return MISSING


def _token_of_items(values: Any, depth: int) -> Any:
    if len(values) <= MOST_ITEMS:
        return [token_of(item, depth - 1) for item in values] if depth else TOO_DEEP
    return PlainItems(values) if len(values) <= MOST_PLAIN_ITEMS and _are_plain(values) else MISSING


def _are_plain(values: Iterable[Any]) -> bool:
    return all(isinstance(item, PLAIN) for item in values)


def _held(array: np.ndarray[Any, Any]) -> bytes | None:
    return array.tobytes() if array.nbytes <= MOST_ARRAY_NBYTES and not array.dtype.hasobject else None


def fits(value: Any, token: Any) -> bool:
    """Returns whether a value has this token: `same(token_of(value), token)`, without making the token."""
    if value is token or token is TOO_DEEP:
        return True
    kind = type(token)
    if kind is tuple:
        return isinstance(value, Tensor) and token[0]() is value.cell and bool(token[1] == value.steps)
    if kind is list:
        return isinstance(value, SEQUENCES) and len(value) == len(token) and _fit(value, token)
    if kind is PlainItems:
        return isinstance(value, SEQUENCES) and len(value) == len(token) and _fits_plain(value, token)
    if kind is ArrayToken:
        return token.array() is value and (token.held is None or _held(value) == token.held)
    if kind is dict:
        same_keys = isinstance(value, dict) and value.keys() == token.keys()
        return same_keys and all(fits(value[key], part) for key, part in token.items())
    return same(token_of(value), token)


def _fits_plain(values: Sequence[Any], token: PlainItems) -> bool:
    return all(map(operator.is_, values, token)) or _fit(values, token)


def _fit(values: Sequence[Any], tokens: list[Any]) -> bool:
    for value, token in zip(values, tokens):
        if type(value) is Tensor and type(token) is tuple:  # as in `fits`: parameters in lists are checked at each call
            if token[0]() is not value.cell or (token[1] is not value.steps and token[1] != value.steps):
                return False
        elif not fits(value, token):
            return False
    return True


def same(a: Any, b: Any) -> bool:
    """True when what was remembered and what is there now mean the same."""
    if a is b:
        return True
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a == b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, weakref.ref) and isinstance(b, weakref.ref):
        return a() is b()
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        return bool(a == b)
    return type(a) is type(b) and isinstance(a, PLAIN) and (bool(a == b) or (a != a and b != b))


def how_held(before: Any, now: Any) -> str:
    if isinstance(before, PLAIN):
        return how(before, now)
    if isinstance(before, Module | Tensor):
        return f"is another {'module' if isinstance(before, Module) else 'tensor'}"
    if isinstance(before, dict):
        return "holds something else"
    return f"was {before!r} and is {now!r}" if isinstance(before, list | tuple) else "is another object"


def how(before: Any, now: Any) -> str:
    if isinstance(before, PLAIN):
        return f"was {before!r} and is {now!r}" if isinstance(now, PLAIN) else f"was {before!r}"
    if isinstance(before, ArrayToken):
        return "has changed in place" if isinstance(now, np.ndarray) and before.array() is now else "is another array"
    if isinstance(before, weakref.ref):
        return f"is another {'optimizer' if isinstance(before(), Optimizer) else 'module'}"
    return "is another tensor" if isinstance(before, tuple) else "has changed"


def is_users_code(code: Any) -> bool:
    """True for code that is neither picograd's, nor Python's, nor an installed package's."""
    return isinstance(code, CodeType) and not code.co_filename.startswith(("<frozen", *LIBRARIES))
