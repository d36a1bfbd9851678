"""Runs a function once, on stand-ins for one example, and finds the axes of examples among its arguments and results.

In:    a Python function with its arguments, and in_dims or out_dims as users write them
Out:   `ExampleTrace`: a context in which nothing is computed;  `dims_of`: an axis for each Tensor;  `check_function`
Called by: transforms/vmap.py, transforms/point.py.    Next: picograd/transforms/gradcheck.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from picograd.control.closure import FunctionTrace
from picograd.control.structure import parts_of
from picograd.errors import ArgumentError, IndexingError
from picograd.ir.op import Op
from picograd.tensor.cell import Cell, Trace, trace
from picograd.tensor.tensor import Tensor


class ExampleTrace(FunctionTrace):
    """A context in which a function builds the graph of one example; cells made before have their values again afterwards.

    `changed` says what it left in those that it wrote.
    """

    def __init__(self, function: str):
        super().__init__("vmap", function)
        self.outer: Trace | None = trace.get()

    def enter(self, cell: Cell) -> None:
        """Lets an outer trace know of a cell that is read."""
        if self.outer is not None:
            self.outer.on_read(cell)
        self.before[cell] = cell.op

    def changed(self) -> dict[Cell, Op]:
        """Returns the cells made before that the function wrote to, and what it left in them."""
        return {cell: op for cell, op in self.written.items() if op is not self.before[cell]}


# ---- axes as users write them ----
def dims_of(name: str, dims: Any, value: Any, path: str) -> Iterator[int | None]:
    """Yields for each Tensor of a container, in order, what `dims` says of it.

    Args:
      name:   "in_dims" or "out_dims", for errors
      dims:   an axis or None for all of them, or a container of the form of value
      value:  Tensors, alone or in lists, tuples, dicts and dataclasses
      path:   what the user calls value

    Raises:
      ArgumentError: dims has another form than value, or names an axis of what is no Tensor.

    >>> list(dims_of("in_dims", (0, {"a": None}), (Tensor([1.0]), {"a": Tensor(2.0)}), "args"))
    [0, None]
    """
    if isinstance(value, Tensor):
        if dims is not None and (not isinstance(dims, int) or isinstance(dims, bool)):
            raise ArgumentError(f"vmap: {name} says {dims!r} of {path}, which is one Tensor.", "an axis, or None.")
        yield dims
        return
    parts = list(parts_of(value, path))
    if not parts:
        if isinstance(dims, int) and not isinstance(value, list | tuple | dict) and value is not None:
            raise ArgumentError(
                f"vmap: {name} says axis {dims} of {path}, which is {value!r} and no Tensor.",
                f"{name}=None there: it is the same for all examples.",
            )
        return
    if dims is None or isinstance(dims, int):
        for _, longer, part in parts:
            yield from dims_of(name, dims, part, longer)
        return
    inner = {key: part for key, _, part in parts_of(dims, name)}
    if not _same_kind(dims, value) or set(inner) != {key for key, _, _ in parts}:
        raise ArgumentError(
            f"vmap: {name} is {dims!r}, which has another form than {path}.",
            f"one axis, or None, for each part of {path}: in a {type(value).__name__} of {len(parts)}.",
        )
    for key, longer, part in parts:
        yield from dims_of(name, inner[key], part, longer)


def _same_kind(dims: Any, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return isinstance(dims, list | tuple)
    return isinstance(dims, dict) == isinstance(value, dict)


def check_function(transform: str, function: Any) -> None:
    """Raises ArgumentError where a transform was given something else than a function."""
    if not callable(function):
        shown = f"a Tensor of shape {function.op.shape}" if isinstance(function, Tensor) else repr(function)
        raise ArgumentError(f"{transform}: needs a function, got {shown}.")


def axis_in(dim: int, rank: int, name: str, path: str, shape: object) -> int:
    """Returns an axis counted from the front.

    Raises:
      IndexingError: there is no such axis.
    """
    if not -rank <= dim < rank:
        raise IndexingError(f"vmap: {name} says axis {dim} of {path}, whose shape is {shape}.")
    return dim % rank
