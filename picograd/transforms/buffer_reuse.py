"""Memory that a replay may overwrite: that of small results that are no longer read, and of donated arguments.

In:    lists that hold memory; the results of each call of a replay; the arguments of a call, and which of them its caller
       donates
Out:   `unread`, `has_readers`, by reference counts;  `BufferPool`: versions to overwrite;  `give_donated`: memory
       for outputs; `DonatedCell`: the cell of a donated tensor, an error for its readers

A reader of memory holds the tuple of a cell, the Buffer in it, or its memory. Objects that only a list refers to
have certain reference counts, which are measured once, in the same way as later.

A training step returns a loss. Allocating its memory takes more Python than a small network takes to
compute, so a replay writes each small result (and small state that it cannot overwrite, see tensor/cell.py) over its
previous version, if that is no longer read. Otherwise there are two versions, written in turn.

Which outputs fit in donated memory is decided once for a plan (schedule/memory.py). At each call reference counts tell
whether somebody else still reads the memory, such as a graph built from the tensor before: then it is not overwritten.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from sys import getrefcount
from typing import Any, NoReturn, cast

from picograd.dtype import float32
from picograd.errors import ArgumentError, JitError
from picograd.ir.op import Buffer, Op
from picograd.tensor.cell import Cell, Held
from picograd.tensor.tensor import Tensor
from picograd.transforms.containers import Arguments


# ---- readers of memory ----
def unread(held: Sequence[Held], number: int, others: int = 0) -> Held | None:
    """Returns a version if only this list refers to it, else None.

    Args:
      others:  number of other references to the buffer that do not count
    """
    # NOTE: references are taken before they are counted, so two threads that ask at once both see each other.
    version = held[number]
    buffer = version[0]
    if (
        getrefcount(version) != _VERSION
        or getrefcount(buffer) != _BUFFER + others
        or getrefcount(buffer.memory) != _MEMORY
    ):
        return None
    return version


def has_readers(buffers: Sequence[Buffer | None], place: int) -> bool:
    """Returns whether anything except this list may refer to a buffer or its memory."""
    buffer = buffers[place]
    assert buffer is not None
    return getrefcount(buffer) != _BUFFER or getrefcount(buffer.memory) != _MEMORY


def _references(held: Sequence[Held]) -> tuple[int, int, int]:
    """Returns the reference counts of a version, measured as above."""
    version = held[0]
    buffer = version[0]
    return getrefcount(version), getrefcount(buffer), getrefcount(buffer.memory)


def _counts_tell() -> bool:
    # NOTE: from Python 3.14 on, and without the interpreter's lock, an object may have fewer counts than users.
    if sys.implementation.name != "cpython" or sys.version_info >= (3, 14):
        return False
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


COUNTS_TELL = _counts_tell()  # else everything has readers
_VERSION, _BUFFER, _MEMORY = _references([(Buffer("", float32, 0, object()), ())]) if COUNTS_TELL else (0, 0, 0)


# ---- small results ----
RESULT_NBYTES_MAX = 4096  # a larger result takes longer to compute than to allocate
_NOTHING: Held = (Buffer("", float32, 0, object()), ())  # never unread, since this module refers to it


class BufferPool:
    """The last version of small results and state, and the one before if it was still read when the last was written.

    places:  (number among these, place among all outputs of a call that need memory)
    results: their numbers among the results of a call
    older:   the version before
    newer:   the version that the last call wrote
    """

    def __init__(self, count: int, written: Sequence[tuple[int, int, int]]):
        """written: (place among `count`, number among the results, bytes) of each result or state that a call makes."""
        small = [(place, result) for place, result, nbytes in written if nbytes <= RESULT_NBYTES_MAX and COUNTS_TELL]
        self.places = tuple((n, place) for n, (place, _) in enumerate(small))
        self.results = tuple(result for _, result in small)
        self.nothing: list[Held | None] = [None] * count
        self.older: list[Held] = [_NOTHING] * len(small)
        self.newer: list[Held] = self.older.copy()

    def given(self) -> list[Held | None]:
        """Returns for each place a version that is not read, if there is one; of two, the newer.

        It counts as the newer from now on, and the other is kept if it is read.
        """
        found, newer, older = self.nothing.copy(), self.newer, self.older
        for n, place in self.places:
            version = unread(newer, n)
            if version is not None:
                older[n] = _NOTHING
            elif (version := unread(older, n)) is not None:
                newer[n], older[n] = version, newer[n]
            found[place] = version
        return found

    def keep(self, results: Sequence[Held]) -> None:
        """Notes the versions that a call wrote, over a given one or as new ones."""
        newer, older = self.newer, self.older
        for n, number in enumerate(self.results):
            version, last = results[number], newer[n]
            if version[0] is not last[0]:
                older[n] = last
            newer[n] = version


# ---- donated arguments ----
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
            f"jit: this tensor was donated to {self.content}, whose results may be stored over it.",
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
    outputs: list[Held | None],
) -> None:
    """Takes donated arguments from their caller, and puts their memory, if nothing else reads it, among the outputs.

    Args:
      places:  (place in `outputs`, argument) that may share memory
      state:   other cells that the function named `name` reads
    """
    values = surrender(given.tensors, given.donated, state, name)
    for output, argument in places:
        if outputs[output] is None and argument in values and _is_alone(values[argument]):
            old = given.buffers[argument]
            outputs[output] = Buffer(old.device, old.dtype, old.numel, old.memory), ()
            del values[argument]


def surrender(tensors: Sequence[Tensor], donated: Iterable[int], state: Set[Cell], name: str) -> dict[int, list[Any]]:
    """Takes the values of donated arguments from their caller; returns them, by argument, each in a list of its own.

    Raises:
      JitError: one is a view of a part, or reaches the function in two ways. Then nothing has been taken.
    """
    cells = [tensor.cell for tensor in tensors]
    for i in donated:
        if cells.count(cells[i]) > 1 or cells[i] in state:
            raise JitError(
                f"jit: a donated argument of {name}, of shape {tensors[i].shape}, is passed in two ways.",
                "donate only tensors that are passed once and are not a global or a closure.",
            )
        if tensors[i].op is not cells[i].op:
            raise JitError(f"jit: a donated argument of {name} is a view of another tensor.", "pass x.clone().")
    return {i: [cells[i].give_away(DonatedCell, name)] for i in donated}


def _is_alone(value: list[Op | Held]) -> bool:
    """Returns whether only this list and the call's arguments refer to the memory of a value."""
    return type(value[0]) is tuple and unread(cast(list[Held], value), 0, others=1) is not None
