"""What an argument must be beyond its annotation: an integer from some bound on, a number, a tensor or several.

In:    names of functions and arguments, values as users gave them
Out:   `at_least`, `number`, `tensor_of`, `listed`, `saved_state`
Next:  picograd/tensor/movement/views.py
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from picograd.annotations import fits, shown
from picograd.errors import ArgumentError, ArgumentTypeError
from picograd.tensor.build import whole
from picograd.tensor.core import TensorCore

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


Tensors = TypeVar("Tensors", bound=TensorCore)


def at_least(function: str, name: str, value: Any, least: int) -> int:
    """Returns an argument that must be an integer not below `least`.

    Raises:
      ArgumentError: it is none.
    """
    found = whole(function, name, value)
    if found < least:
        raise ArgumentError(f"{function}: {name} must be at least {least}, got {found}.")
    return found


def number(function: str, name: str, value: Any) -> Any:
    """Returns an argument that must be a number.

    Raises:
      ArgumentTypeError: it is none.
    """
    if not fits(value, float):
        raise ArgumentTypeError(f"{function}: {name} must be a number, got {shown(value)}.")
    return value


def tensor_of(function: str, name: str, value: Any) -> Tensor:
    """Returns an argument that must be a tensor.

    Raises:
      ArgumentError: it is none.
    """
    found: Tensor = value
    if not isinstance(value, TensorCore):
        raise ArgumentError(f"{function}: {name} must be a tensor, got {type(value).__name__}.", "Tensor(...) makes one.")
    return found


def listed(tensors: Tensors | Iterable[Tensors]) -> list[Tensors]:
    """Returns several tensors, or a single one, as a list."""
    return [tensors] if isinstance(tensors, TensorCore) else list(tensors)


def saved_state(owner: object, state: Any, *keys: str) -> dict[str, Any]:
    """Returns a copy of what load_state_dict is given: a dict as the state_dict() of such an object returns it.

    Args:
      keys:  that it must have

    Raises:
      ArgumentTypeError: it is no dict.
      ArgumentError:     it lacks a key.
    """
    name = type(owner).__name__
    if not isinstance(state, Mapping):
        hint = "pg.load(path) reads one." if isinstance(state, (str, os.PathLike)) else None
        hint = "its state_dict()" if hasattr(state, "state_dict") else hint
        raise ArgumentTypeError(
            f"load_state_dict: {name} needs a dict as state_dict() returns it, got {shown(state)}.", hint
        )
    lacking = [key for key in keys if key not in state]
    if lacking:
        there = ", ".join(map(repr, islice(state, 4))) + ", ..." * (len(state) > 4)
        fact = f"load_state_dict: the state of {name} must have {lacking[0]!r}; this dict has {there or 'nothing'}."
        raise ArgumentError(fact, "give the part of the file that its state_dict() made.")
    return dict(state)
