"""Tensors in containers: lists, tuples, dicts and dataclasses, at any depth.

In:    arguments or results of a function
Out:   `Arguments`: those of a call;  `flatten`: their Tensors in order, and what else they say
Called by: transforms/jit.py, transforms/traced.py, transforms/capture.py.    Next: picograd/transforms/traced.py
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from picograd.engine.plan import unbound
from picograd.engine.realize import realize
from picograd.errors import JitError
from picograd.ir.op import Buffer, Op
from picograd.ir.opcode import OpCode
from picograd.tensor.core import memory_of
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

LISTS, SETS = (list, tuple), (set, frozenset)


class Arguments:
    """The arguments of one call.

    tensors:    in order
    buffers:    with their values, contiguous
    variables:  values of symbolic integers by name
    donated:    which of the tensors the caller gives away
    key:        what else a capture depends on: shapes, dtypes, devices, containers and plain values
    """

    __slots__ = ("tensors", "buffers", "variables", "donated", "key")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, donate: frozenset[int | str] = frozenset()
    ):
        self.variables: dict[str, int] = {}
        self.tensors: Sequence[Tensor] = args
        found: list[Tensor] = []
        form: Hashable = len(args)
        named: Hashable = None
        if kwargs or [*map(type, args)] != [Tensor] * len(args):  # which is rare
            self.tensors = found
            form = flatten(args, found, name, self.variables)
            named = flatten(kwargs, found, name, self.variables)
        self.donated = self._donated(args, kwargs, name, donate) if donate else ()
        held = memory_of(self.tensors)
        if not all(held):
            held = [_computed(tensor, name).arg for tensor in self.tensors]
        self.buffers: Sequence[Buffer]
        self.buffers, shapes = zip(*held) if held else ((), ())
        dtypes, devices = [buffer.dtype for buffer in self.buffers], [buffer.device for buffer in self.buffers]
        self.key: Hashable = form, named, shapes, tuple(dtypes), tuple(devices)

    def free(self) -> None:
        """Frees the key of values of symbolic integers, which go to `variables`."""
        form, named, shapes, *kinds = cast(Any, self.key)
        self.key = (form, named, tuple([unbound(shape, self.variables) for shape in shapes]), *kinds)

    def _donated(self, args: tuple[Any, ...], kwargs: dict[str, Any], name: str, donate: Any) -> tuple[int, ...]:
        """Returns the numbers of the tensors in arguments that are donated."""
        found: list[int] = []
        seen: list[Tensor] = []
        for parameter, value in [*enumerate(args), *kwargs.items()]:
            first = len(seen)
            flatten(value, seen, name, {})
            if parameter in donate:
                found += range(first, len(seen))
        return tuple(found)


def _computed(tensor: Tensor, name: str) -> Op:
    """Computes an argument of a call, or raises for one that cannot be an argument; returns its BUFFER Op."""
    if tensor.op.code is OpCode.BUFFER:
        return tensor.op
    if tensor.requires_grad:
        raise JitError(
            f"jit: an argument of {name} requires grad, but a plan returns its gradient to nobody.",
            "use it as a global or a closure, or pass x.detach().",
        )
    return realize([tensor.realize().op])[0]


def flatten(value: Any, tensors: list[Tensor], name: str, variables: dict[str, int]) -> Hashable:
    """Collects the Tensors of a container in order, and values of symbolic integers.

    Returns what else a capture depends on.
    """
    if isinstance(value, Tensor):
        tensors.append(value)
        return Tensor
    if isinstance(value, LISTS):
        if [*map(type, value)] == [Tensor] * len(value):
            tensors.extend(value)
            return (type(value), len(value))
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
    if isinstance(value, SETS):
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
