"""What of a Python value must not change while a capture of it is in use.

In:    a value that a captured function reads
Out:   `token_of`: what is remembered of it;  `fits`, `same`: whether it still means that;  `how`: what to tell the user
Called by: transforms/guards.py, transforms/mentions.py, transforms/watched.py.    Next: picograd/transforms/gradients.py
"""

from __future__ import annotations

import sysconfig
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from picograd.dtype import DType
from picograd.errors import PACKAGE_FOLDERS
from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType, Length)
LIBRARIES = (
    *PACKAGE_FOLDERS,
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
SEQUENCES = (list, tuple, deque)
MISSING = object()  # what a name means that means nothing
TOO_DEEP = object()  # what is remembered of a container that is not looked into
MOST_ITEMS = 10_000  # of a container whose items are looked at
MOST_DEPTH = 8
MOST_ARRAY_NBYTES = 1024  # of an array whose contents are looked at


class Function(NamedTuple):
    """A function of the user's, whose closure is looked at by itself: another one with the same code and parts is equal."""

    function: weakref.ref[FunctionType]
    code: CodeType
    parts: list[Any]


class Same:
    """Any other object, which means the same for as long as it is the same one. It is kept alive only where need be."""

    __slots__ = ("object",)

    def __init__(self, value: Any):
        self.object: Callable[[], Any]
        try:
            self.object = weakref.ref(value)
        except TypeError:
            self.object = lambda: value


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
        parts = [token_of(part, depth - 1) for part in parts_of(value)] if depth else []
        return Function(weakref.ref(value), value.__code__, parts)
    if isinstance(value, (*SEQUENCES, set, frozenset, dict)) and len(value) > MOST_ITEMS:
        return MISSING
    if isinstance(value, SEQUENCES):
        return [token_of(item, depth - 1) for item in value] if depth else TOO_DEEP
    if isinstance(value, set | frozenset):
        return frozenset(value)
    if isinstance(value, dict):
        return {key: token_of(item, depth - 1) for key, item in value.items()} if depth else TOO_DEEP
    if isinstance(value, MethodType):
        return (token_of(value.__func__), token_of(value.__self__))
    return MISSING if isinstance(value, ModuleType) or value is MISSING else Same(value)


def parts_of(function: FunctionType) -> Iterator[Any]:
    """Yields what a function holds besides its code: variables of its closure, and default values."""
    for cell in function.__closure__ or ():
        yield contents_of(cell)
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def contents_of(cell: CellType) -> Any:
    """Returns what a variable of a closure means, or MISSING where it has no value any more."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


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
    if kind is Same:
        return value is token.object()
    if kind is ArrayToken:
        return token.array() is value and (token.held is None or _held(value) == token.held)
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
    if isinstance(a, Function) and isinstance(b, Function):
        return a.function() is b.function() or (same(a.code, b.code) and same(a.parts, b.parts))
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
    if isinstance(a, Same) and isinstance(b, Same):
        return a.object() is b.object()
    return type(a) is type(b) and isinstance(a, PLAIN) and (bool(a == b) or (a != a and b != b))


def how_held(before: Any, now: Any) -> str:
    if before is MISSING:
        return "is set"
    if isinstance(before, PLAIN):
        return how(before, now)
    if isinstance(before, Module | Tensor):
        return f"is another {'module' if isinstance(before, Module) else 'tensor'}"
    if isinstance(before, dict):
        return "holds something else"
    return f"was {before!r} and is {now!r}" if isinstance(before, list | tuple) else "is another object"


def how(before: Any, now: Any) -> str:
    if isinstance(before, Function | Same):
        return f"is another {'function' if isinstance(before, Function) else 'object'}"
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
