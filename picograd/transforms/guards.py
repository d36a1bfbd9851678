"""What a captured function reads of Python: remembered, so that a change is an error and not a stale result.

In:    a Python function and its arguments
Out:   `Guards`: the names the function mentions, with what they meant when it was traced
Called by: transforms/jit.py.    Next: picograd/tensor/tensor.py

Looked at are the closure variables and globals that the function's own code mentions, and attributes it mentions of
objects: numbers, strings and other plain values, which Tensor or array it is (not what it holds), and the tensors a
Module holds. Not seen is what functions it calls read for themselves.
"""

from __future__ import annotations

import dis
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import numpy as np

from picograd.dtype import DType
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

PLAIN = (bool, int, float, complex, str, bytes, type(None), DType)
MISSING = object()  # what a name means that means nothing
MOST_ITEMS = 16  # of a list or dict whose plain values are looked at
Read = Callable[[], Any]


@dataclass(frozen=True)
class Guard:
    """One thing the function may have read.

    name:   as the user would write it, e.g. "scale" or "self.rate"
    read:   gives what it means now
    token:  of what it meant when the function was traced
    """

    name: str
    read: Read
    token: Any

    def holds(self) -> bool:
        return _fits(self.read(), self.token)


@dataclass(frozen=True)
class Guards:
    """What a capture depends on besides its arguments.

    values:  names and attributes
    held:    (attributes of a Module, name, tensor, how the user would write it)
    """

    values: tuple[Guard, ...] = ()
    held: tuple[tuple[dict[str, Any], str, Tensor, str], ...] = ()

    def broken(self) -> str | None:
        """Returns the name of the first thing that has changed, with how, or None."""
        for guard in self.values:
            if not guard.holds():
                return f"{guard.name} {_how(guard.token, guard.read())}"
        for attributes, name, tensor, path in self.held:
            if attributes.get(name) is not tensor:
                return f"{path} is another tensor"
        return None

    def shared_with(self, later: Guards) -> Guards:
        """Returns what two traces agree on: what differed and made no difference to the graph is not read."""
        tokens = {guard.name: guard.token for guard in later.values}
        return Guards(tuple(g for g in self.values if g.name in tokens and _same(g.token, tokens[g.name])), later.held)


def guards_of(function: Callable[..., Any], args: Sequence[Any]) -> Guards:
    """Returns what the names of a function mean now."""
    values: list[Guard] = []
    held: list[tuple[dict[str, Any], str, Tensor, str]] = []
    names = _names(_code_of(function))
    for name, read in _variables(function, names, args):
        value = read()
        if _token(value) is not MISSING:
            values.append(Guard(name, read, _token(value)))
        if _has_attributes(value):
            for attribute in sorted(names.attributes & vars(value).keys()):
                read_attribute = functools.partial(vars(value).get, attribute, MISSING)
                if _token(read_attribute()) is not MISSING:
                    values.append(Guard(f"{name}.{attribute}", read_attribute, _token(read_attribute())))
        for path, module in _modules(name, value, names.attributes):
            for part_path, part in module.named_modules(path):
                own = vars(part)
                held += [(own, key, t, f"{part_path}.{key}") for key, t in own.items() if isinstance(t, Tensor)]
    return Guards(tuple(values), tuple(held))


def modules_of(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Module, ...]:
    """Returns the Modules a function mentions, with all below them: whether they train chooses between captures."""
    found: dict[Module, None] = {}
    names = _names(_code_of(function))
    for name, read in _variables(function, names, args):
        for _, module in _modules(name, read(), names.attributes):
            found |= dict.fromkeys(module.modules())
    return tuple(found)


# ---- which names ----
@dataclass(frozen=True)
class _Names:
    """What code mentions: globals it reads, attributes it reads, names it assigns itself."""

    globals: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    assigned: frozenset[str] = frozenset()


@functools.cache
def _names(code: CodeType | None) -> _Names:
    """Returns the globals and attributes that code reads and does not assign, nested functions included."""
    found = _Names()
    if code is None:
        return found
    for instruction in dis.get_instructions(code):
        kind, name = instruction.opname, instruction.argval
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            found = _Names(found.globals | {name}, found.attributes, found.assigned)
        elif kind in ("LOAD_ATTR", "LOAD_METHOD"):
            found = _Names(found.globals, found.attributes | {name}, found.assigned)
        elif kind in ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"):
            found = _Names(found.globals, found.attributes, found.assigned | {name})
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _names(constant)
            found = _Names(
                found.globals | inner.globals, found.attributes | inner.attributes, found.assigned | inner.assigned
            )
    return _Names(found.globals - found.assigned, found.attributes - found.assigned, found.assigned)


def _plain_function(function: Any) -> Any:
    while True:
        inner = next((getattr(function, a) for a in ("func", "__wrapped__", "__func__") if hasattr(function, a)), None)
        if inner is None:
            return function
        function = inner


def _code_of(function: Callable[..., Any]) -> CodeType | None:
    code: CodeType | None = getattr(_plain_function(function), "__code__", None)
    return code


def _variables(function: Any, names: _Names, args: Sequence[Any]) -> Iterator[tuple[str, Read]]:
    """Yields each variable the function mentions, with a way to read it; of its arguments, objects with attributes."""
    plain, code = _plain_function(function), _code_of(function)
    if code is None:
        return
    if hasattr(function, "__self__"):
        args = (function.__self__, *args)
    for name, value in zip(code.co_varnames, args):
        if _has_attributes(value):
            yield name, functools.partial(_itself, value)
    for name, cell in zip(code.co_freevars, plain.__closure__ or ()):
        if name not in names.assigned:
            yield name, functools.partial(_cell_contents, cell)
    for name in sorted(names.globals & plain.__globals__.keys()):
        yield name, functools.partial(plain.__globals__.get, name, MISSING)


def _itself(value: Any) -> Any:
    return value


def _cell_contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has no value any more
        return MISSING


def _modules(name: str, value: Any, attributes: frozenset[str]) -> list[tuple[str, Module]]:
    """Returns the Modules a variable gives access to: itself, or attributes that are mentioned."""
    if isinstance(value, Module):
        return [(name, value)]
    if not _has_attributes(value):
        return []
    held = [(f"{name}.{a}", vars(value)[a]) for a in sorted(attributes & vars(value).keys())]
    return [(path, item) for path, item in held if isinstance(item, Module)]


def _has_attributes(value: Any) -> bool:
    """True for objects of users' classes and Modules; not for tensors, functions, classes and Python's own."""
    if isinstance(value, Module):
        return True
    return hasattr(value, "__dict__") and not callable(value) and type(value).__module__ != "builtins"


# ---- what of them ----
def _token(value: Any) -> Any:
    """Returns what of a value must not change, or MISSING where nothing is looked at."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Tensor):
        return weakref.ref(value.cell), value.steps
    if isinstance(value, np.ndarray):
        return weakref.ref(value)
    if isinstance(value, list | tuple) and len(value) <= MOST_ITEMS:
        return [_token(item) for item in value]
    if isinstance(value, dict) and len(value) <= MOST_ITEMS:
        return {key: _token(item) for key, item in value.items()}
    return MISSING


def _fits(value: Any, token: Any) -> bool:
    """Returns whether a value has this token: `_same(_token(value), token)`, without making the token."""
    if value is token:
        return True
    kind = type(token)
    if kind is tuple:
        return isinstance(value, Tensor) and token[0]() is value.cell and bool(token[1] == value.steps)
    if kind is list:
        return isinstance(value, list | tuple) and len(value) == len(token) and _fit(value, token)
    if kind is dict:
        same_keys = isinstance(value, dict) and value.keys() == token.keys()
        return same_keys and all(_fits(value[key], part) for key, part in token.items())
    return _same(_token(value), token)


def _fit(values: Sequence[Any], tokens: list[Any]) -> bool:
    for value, token in zip(values, tokens):
        if type(value) is Tensor and type(token) is tuple:  # as in `_fits`: parameters in lists are checked at each call
            if token[0]() is not value.cell or (token[1] is not value.steps and token[1] != value.steps):
                return False
        elif not _fits(value, token):
            return False
    return True


def _same(a: Any, b: Any) -> bool:
    """True when what was remembered and what is there now mean the same."""
    if a is b:
        return True
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, weakref.ref) and isinstance(b, weakref.ref):
        return a() is b()
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return type(a) is type(b) and isinstance(a, PLAIN) and (bool(a == b) or (a != a and b != b))


def _how(before: Any, now: Any) -> str:
    if isinstance(before, PLAIN):
        return f"was {before!r} and is {now!r}" if isinstance(now, PLAIN) else f"was {before!r}"
    return "is another tensor or array" if isinstance(before, tuple | weakref.ref) else "has changed"
