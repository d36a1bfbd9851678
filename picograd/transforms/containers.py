"""Tensors in containers: lists, tuples, dicts and dataclasses, at any depth.

In:    arguments or results of a function
Out:   `Arguments`: those of a call;  `flatten`: their Tensors in order, and a key of everything else
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, cast

import numpy as np

from picograd.dtype import DType
from picograd.engine.lengths import Lengths
from picograd.engine.plan import unbound
from picograd.engine.realize import realize
from picograd.errors import JitError
from picograd.ir.op import Buffer, Shape
from picograd.ir.opcode import OpCode
from picograd.tensor.cell import Held
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

LISTS, SETS = (list, tuple), (set, frozenset)
Kind = tuple[Shape, DType, str]  # shape, dtype and device of memory


class Arguments:
    """The arguments of one call.

    tensors:    in order
    buffers:    their values, contiguous
    variables:  values of symbolic integers by name
    donated:    the donated tensors
    key:        all else that a capture depends on: shapes, dtypes, devices, containers and plain values; () if buffers
                were given, whose form is known
    lengths:    knowledge of changing lengths, if `variables` has some (transforms/any_length.py); else None
    shapes:     shapes of the tensors, with symbolic integers for such lengths
    """

    __slots__ = ("tensors", "buffers", "variables", "donated", "key", "lengths", "shapes")

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        donate: frozenset[int | str] = frozenset(),
        buffers: list[Buffer] | None = None,
    ):
        self.variables: dict[str, int] = {}
        self.tensors: Sequence[Tensor] = args
        self.donated: Sequence[int] = ()
        self.buffers: list[Buffer] = [] if buffers is None else buffers
        self.key: tuple[Hashable, ...] = ()
        self.lengths: Lengths | None = None
        self.shapes: list[Shape] = []
        if buffers is None and (kwargs or not self._gather(len(args), name)):
            found: list[Tensor] = []
            form = flatten(args, found, name, self.variables), flatten(kwargs, found, name, self.variables)
            self.tensors = found
            self._gather(form, name)
        if donate:
            self.donated = self._donated(args, kwargs, name, donate)

    def _gather(self, form: Hashable, name: str) -> bool:
        """Finds the memory of the tensors, and makes the key; returns False if an argument is not a Tensor."""
        # NOTE: for few tensors a loop is faster than comprehensions.
        key, buffers = [form], self.buffers
        for tensor in self.tensors:
            if type(tensor) is not Tensor:
                buffers.clear()
                return False
            value = tensor.cell.content
            if tensor.steps or type(value) is not tuple:
                value = _memory(tensor, name)
            buffer, shape = value
            buffers.append(buffer)
            key += shape, buffer.dtype, buffer.device
        self.key = tuple(key)
        return True

    def kinds(self, args: tuple[Any, ...]) -> list[Kind] | None:
        """Returns the kinds of the arguments if they are all Tensors of known lengths; else None."""
        if self.variables or self.tensors is not args:
            return None
        _, *parts = cast(Any, self.key)
        return list(zip(parts[::3], parts[1::3], parts[2::3]))

    def free(self) -> None:
        """Moves values of symbolic integers from the key to `variables`."""
        form, *parts = cast(Any, self.key)
        parts[::3] = [unbound(shape, self.variables) for shape in parts[::3]]
        self.key = (form, *parts)

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


def buffers_like(args: tuple[Any, ...], kinds: Sequence[Kind]) -> list[Buffer] | None:
    """Returns the memory of arguments of these kinds; None if one is of another kind, or has no memory of its own yet."""
    # NOTE: most calls have arguments of the same kinds as the last one, and a single pass is the quickest way to see it.
    try:
        found = [  # type: ignore[misc]
            buffer
            for tensor, (shape, dtype, device) in zip(args, kinds) if type(tensor) is Tensor and not tensor.steps
            for buffer, held in (tensor.cell.content,)
            if held == shape and buffer.dtype is dtype and buffer.device == device
        ]  # fmt: skip
    except (TypeError, ValueError):  # a content that is not a pair: a graph, TakenBuffers, or words of a donated cell
        return None
    return found if len(found) == len(args) == len(kinds) else None


def _memory(tensor: Tensor, name: str) -> Held:
    """Returns the memory of an argument's value, and its shape; computes it if need be, or raises if it cannot."""
    held = None if tensor.steps else tensor.cell.held()
    if held is not None:
        return held
    op = tensor.op
    if op.code is not OpCode.BUFFER:
        if tensor.requires_grad:
            raise JitError(
                f"jit: an argument of {name} requires grad; its gradient would be lost.",
                "use it as a global or a closure, or pass x.detach().",
            )
        op = realize([tensor.realize().op])[0]
    return cast(Held, op.arg)


def flatten(value: Any, tensors: list[Tensor], name: str, variables: dict[str, int]) -> Hashable:
    """Collects the Tensors of a container in order, and values of symbolic integers.

    Returns all else that a capture depends on.
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
    """Returns a value in a form for comparison: 1, 1.0 and True are three different ones."""
    if isinstance(value, Tensor):
        raise JitError(f"jit: {name} got a set with Tensors, whose order is undefined.", "pass a list.")
    try:
        hash(value)
    except TypeError:
        raise JitError(
            f"jit: {name} got a {type(value).__name__}, whose changes picograd cannot see.",
            "pass its Tensors and numbers in a list, a tuple, a dict or a dataclass.",
        ) from None
    return (type(value), value)


def two_ways(name: str, shape: Shape) -> JitError:
    """Returns the error for a tensor that a function writes and also reads by another name."""
    return JitError(
        f"jit: {name} writes to a tensor of shape {shape} that is passed in two ways.",
        "pass it once, or only use it as a closure.",
    )
