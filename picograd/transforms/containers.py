"""Tensors in containers: lists, tuples, dicts and dataclasses, at any depth.

In:    arguments or results of a function
Out:   `flatten`: their Tensors in order, and what else they say;  `mapped`: the same containers with other Tensors
Called by: transforms/jit.py, transforms/traced.py, transforms/capture.py
"""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from picograd.engine.plan import unbound
from picograd.errors import JitError
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

PLACE = object()  # stands in a skeleton where a Tensor goes


def flatten(value: Any, tensors: list[Tensor], name: str, variables: dict[str, int]) -> Hashable:
    """Collects the Tensors of a container in order, and values of symbolic integers.

    Returns what else a capture depends on.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if isinstance(value, list | tuple):
        return (type(value), *[flatten(v, tensors, name, variables) for v in value])
    if isinstance(value, dict):
        return (type(value), *[(type(k), k, flatten(v, tensors, name, variables)) for k, v in value.items()])
    if isinstance(value, Length):
        return (Length, unbound(value.op, variables))
    if isinstance(value, np.ndarray):
        raise JitError(f"jit: {name} got a NumPy array, which would be frozen into the plan.", "pass Tensor(array).")
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value), *[flatten(getattr(value, f.name), tensors, name, variables) for f in fields(value)])
    if isinstance(value, float):
        return (float, struct.pack("d", value))  # -0.0 is not 0.0, and NaN is NaN
    if isinstance(value, set | frozenset):
        return (type(value), frozenset(_plain(v, name) for v in value))
    return _plain(value, name)


def _plain(value: Any, name: str) -> Hashable:
    """Returns a value that is compared as it is: 1, 1.0 and True are three."""
    if isinstance(value, Tensor):
        raise JitError(f"jit: {name} got a set with Tensors in it, which have no order.", "pass a list.")
    try:
        hash(value)
    except TypeError:
        raise JitError(
            f"jit: {name} got a {type(value).__name__}, of which it cannot be told whether it has changed.",
            "pass its Tensors and numbers in a list, a tuple, a dict or a dataclass.",
        ) from None
    return (type(value), value)


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a container with each Tensor (or each place of one) changed."""
    if isinstance(value, Tensor) or value is PLACE:
        changed = change(value)
        return PLACE if changed is None else changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[mapped(v, change) for v in value])
    if isinstance(value, list | tuple):
        return type(value)(mapped(v, change) for v in value)
    if isinstance(value, dict):
        items = {k: mapped(v, change) for k, v in value.items()}
        if type(value) is dict:
            return items
        kept = copy.copy(value)  # a defaultdict keeps its default
        kept.update(items)
        return kept
    if is_dataclass(value) and not isinstance(value, type):
        record = copy.copy(value)  # NOTE: its __init__ and __post_init__ could compute, or refuse a mark
        for field in fields(value):
            object.__setattr__(record, field.name, mapped(getattr(value, field.name), change))
        return record
    return value
