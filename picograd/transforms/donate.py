"""Donated arguments: a call may store its results where they are, and nobody may read them afterwards.

In:    the arguments of a call, and which of them its caller gives away
Out:   `give_donated`: memory for outputs;  `DonatedCell`: what is left of a donated tensor, an error for whoever reads it
Called by: transforms/capture.py, transforms/jit.py.    Next: picograd/transforms/readers.py

Which outputs fit where is decided once for a plan (schedule/memory.py). At each call reference counts tell whether
somebody else still reads the memory, say a graph that was built from the tensor before: then it is left alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, NoReturn, cast

from picograd.errors import ArgumentError, JitError
from picograd.ir.op import Buffer, Op
from picograd.tensor.cell import Cell, Held
from picograd.tensor.tensor import Tensor
from picograd.transforms.containers import Arguments
from picograd.transforms.readers import unread


class DonatedCell(Cell):
    """Storage whose tensor was donated."""

    __slots__ = ()

    @property
    def op(self) -> Op:
        """Raises JitError."""
        self._refuse()

    @op.setter
    def op(self, op: Op) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise JitError(
            f"jit: this tensor was donated to {self.content}, which may have stored its results over it.",
            "use what the function returned, or do not donate this argument.",
        )


def donated_parameters(function: Callable[..., Any], donate: int | str | Iterable[int | str]) -> frozenset[int | str]:
    """Returns positions and names of the parameters that are donated.

    Raises:
      ArgumentError: the function has no such parameter.
    """
    if not isinstance(donate, int | str | Iterable):
        raise ArgumentError(f"jit: donate must be positions or names of parameters, got {donate!r}.", 'donate=(0, "state")')
    asked = [donate] if isinstance(donate, int | str) else list(donate)
    names = list(inspect.signature(function).parameters) if asked else []
    found: set[int | str] = set()
    for one in asked:
        known = isinstance(one, str) and one in names or type(one) is int and 0 <= one < len(names)
        if not known:
            raise ArgumentError(
                f"jit: donate={one!r}: {getattr(function, '__name__', 'the function')} has the parameters"
                f" {', '.join(f'{i} {name}' for i, name in enumerate(names)) or 'none'}."
            )
        found |= {one, names.index(one)} if isinstance(one, str) else {one, names[one]}
    return frozenset(found)


def give_donated(
    given: Arguments,
    places: Sequence[tuple[int, int]],
    state: Set[Cell],
    name: str,
    outputs: list[Buffer | None],
) -> None:
    """Takes donated arguments away, and puts memory of theirs that nobody else reads in the place of outputs.

    Args:
      places:  (place in `outputs`, argument) that may share memory
      state:   what else the function named `name` reads
    """
    values = surrender(given.tensors, given.donated, state, name)
    for output, argument in places:
        if outputs[output] is None and argument in values and _is_alone(values[argument]):
            old = given.buffers[argument]
            outputs[output] = Buffer(old.device, old.dtype, old.numel, old.memory)
            del values[argument]


def surrender(tensors: Sequence[Tensor], donated: Iterable[int], state: Set[Cell], name: str) -> dict[int, list[Any]]:
    """Takes the values of donated arguments away; returns them, by argument, each in a list of its own.

    Raises:
      JitError: one is a view of a part, or reaches the function in two ways. Nothing has been taken then.
    """
    cells = [tensor.cell for tensor in tensors]
    for i in donated:
        if cells.count(cells[i]) > 1 or cells[i] in state:
            raise JitError(
                f"jit: a donated argument of {name}, of shape {tensors[i].shape}, reaches it in two ways.",
                "donate tensors that the function gets once, and does not use as a global or a closure.",
            )
        if tensors[i].op is not cells[i].op:
            raise JitError(f"jit: a donated argument of {name} is a view of another tensor.", "pass x.clone().")
    return {i: [cells[i].give_away(DonatedCell, name)] for i in donated}


def _is_alone(value: list[Op | Held]) -> bool:
    """Returns whether only this list and the arguments of the call know the memory of a value."""
    return type(value[0]) is tuple and unread(cast(list[Held], value), 0, others=1) is not None
