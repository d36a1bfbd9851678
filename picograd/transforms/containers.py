"""Tensors in containers: lists, tuples, dicts and dataclasses, at any depth.

In:    arguments or results of a function
Out:   `flatten`: their Tensors in order, and what else they say
Called by: transforms/jit.py, transforms/traced.py.    Next: picograd/transforms/traced.py
"""

from __future__ import annotations

import struct
from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from picograd.engine.plan import unbound
from picograd.errors import JitError
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length


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
