"""What of a Python value must not change while a capture of it is in use.

In:    a value that a captured function reads
Out:   `token_of`: what is remembered of it;  `fits`, `same`: whether it still means that;  `how`: what to tell the user
Called by: transforms/guards.py
"""

from __future__ import annotations

import os
import sysconfig
import weakref
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from picograd.dtype import DType
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Length)
LIBRARIES = (
    os.path.dirname(os.path.dirname(__file__)),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
MISSING = object()  # what a name means that means nothing
MOST_ITEMS = 16  # of a list or dict whose plain values are looked at


def token_of(value: Any) -> Any:
    """Returns what of a value must not change, or MISSING where nothing is looked at."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return weakref.ref(value.cell), value.steps
    if isinstance(value, np.ndarray):
        return weakref.ref(value)
    if isinstance(value, FunctionType) and is_users_code(value.__code__):
        return value.__code__  # another function of the name, but not the same made anew
    if isinstance(value, list | tuple) and len(value) <= MOST_ITEMS:
        return [token_of(item) for item in value]
    if isinstance(value, dict) and len(value) <= MOST_ITEMS:
        return {key: token_of(item) for key, item in value.items()}
    return MISSING


def fits(value: Any, token: Any) -> bool:
    """Returns whether a value has this token: `same(token_of(value), token)`, without making the token."""
    if value is token:
        return True
    kind = type(token)
    if kind is tuple:
        return isinstance(value, Tensor) and token[0]() is value.cell and bool(token[1] == value.steps)
    if kind is list:
        return isinstance(value, list | tuple) and len(value) == len(token) and _fit(value, token)
    if kind is dict:
        same_keys = isinstance(value, dict) and value.keys() == token.keys()
        return same_keys and all(fits(value[key], part) for key, part in token.items())
    return same(token_of(value), token)


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
    return f"was {before!r} and is {now!r}" if isinstance(before, list | tuple) else "is another object"


def how(before: Any, now: Any) -> str:
    if isinstance(before, PLAIN):
        return f"was {before!r} and is {now!r}" if isinstance(now, PLAIN) else f"was {before!r}"
    return "is another tensor or array" if isinstance(before, tuple | weakref.ref) else "has changed"


def is_users_code(code: Any) -> bool:
    """True for code that is neither picograd's, nor Python's, nor an installed package's."""
    return isinstance(code, CodeType) and not code.co_filename.startswith(("<frozen", *LIBRARIES))
