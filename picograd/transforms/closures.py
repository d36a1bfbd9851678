"""Deep copies of functions that close over state, which Python would share with the original.

In:    a function, and what has been copied so far (the memo of copy.deepcopy)
Out:   `copied`
Called by: transforms/jit.py.    Next: picograd/transforms/profile.py

State is what has been copied already, such as the model whose function this is, and Tensors, Modules, optimizers and
generators, wherever a variable of the closure, a default value or an attribute leads. What has none is shared, as ever.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from types import CellType, FunctionType, MethodType
from typing import Any

from picograd.nn.module import Module
from picograd.optim.optimizer import Optimizer
from picograd.tensor.core import TensorCore
from picograd.tensor.generator import Generator
from picograd.transforms.mentions import has_attributes

STATE = (TensorCore, Module, Optimizer, Generator)
Memo = dict[int, Any]


def copied(value: Any, memo: Memo) -> Any:
    """Returns a deep copy of a function, or of what one holds, on copies of its state; itself where it has none."""
    if id(value) in memo or not _has_state(value, memo, set()):
        return memo.get(id(value), value)
    if isinstance(value, functools.partial):
        keywords = {name: copied(item, memo) for name, item in value.keywords.items()}
        return functools.partial(copied(value.func, memo), *[copied(item, memo) for item in value.args], **keywords)
    if isinstance(value, MethodType):
        return MethodType(copied(value.__func__, memo), copied(value.__self__, memo))
    return _twin(value, memo) if isinstance(value, FunctionType) else copy.deepcopy(value, memo)


def _twin(function: FunctionType, memo: Memo) -> FunctionType:
    """Returns the function with cells of its own; functions that share a variable go on sharing one."""
    cells = [(cell, memo.setdefault(id(cell), CellType())) for cell in function.__closure__ or ()]
    twin = FunctionType(function.__code__, function.__globals__, function.__name__, None, tuple([new for _, new in cells]))
    memo[id(function)] = twin  # now: its own cells may lead to it
    for name in (*functools.WRAPPER_ASSIGNMENTS, "__kwdefaults__"):
        setattr(twin, name, getattr(function, name))
    twin.__defaults__ = tuple([copied(item, memo) for item in function.__defaults__ or ()]) or None
    twin.__kwdefaults__ = {name: copied(item, memo) for name, item in (function.__kwdefaults__ or {}).items()} or None
    twin.__dict__.update({name: copied(item, memo) for name, item in vars(function).items()})
    for cell, new in cells:
        for content in _contents([cell]):
            new.cell_contents = copied(content, memo)
    return twin


def _contents(cells: Sequence[CellType]) -> list[Any]:
    """Returns what variables hold, of those that have a value."""
    found = []
    for cell in cells:
        try:
            found.append(cell.cell_contents)
        except ValueError:  # assigned later, or never
            continue
    return found


def _has_state(value: Any, memo: Memo, seen: set[int]) -> bool:
    if id(value) in memo or isinstance(value, STATE):
        return True
    if id(value) in seen:
        return False
    seen.add(id(value))
    return any(_has_state(part, memo, seen) for part in _parts(value))


def _parts(value: Any) -> tuple[Any, ...]:
    """Returns where a value leads."""
    if isinstance(value, FunctionType):
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return (*_contents(value.__closure__ or ()), *defaults, *vars(value).values())
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, dict):
        return tuple(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return tuple(value)
    if has_attributes(value):
        return tuple(vars(value).values())
    return (vars(value)["__wrapped__"],) if "__wrapped__" in getattr(value, "__dict__", ()) else ()  # of a Jit
