"""Storage shared with other libraries: how a cell gets it, and how it is written.

Other libraries read the memory at any time, so writes are computed at once. Graphs built earlier keep the old value: their
Buffer gets a copy of it first.
"""

from __future__ import annotations

import ctypes
import sys
import weakref
from sys import getrefcount
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR
from picograd.engine.host_memory import Shared, private_memory, share, shared
from picograd.engine.realize import to_host
from picograd.errors import GradientError, JitError, SharingError
from picograd.ir.op import Buffer, Op, Shape, memory_op
from picograd.tensor.cell import Cell, trace
from picograd.tensor.compute import compute

COUNTS_TELL = sys.implementation.name == "cpython" and sys.version_info < (3, 14)  # else counts may be too low


def is_shared(cell: Cell) -> bool:
    """Returns whether a cell's storage is memory that another library uses."""
    return bool(shared.data) and type(cell.content) is tuple and cell.content[0] in shared


def check_not_read_only(function: str, cell: Cell) -> None:
    """Raises SharingError if another library made the memory of a cell read-only."""
    held = cell.held() if is_shared(cell) else None
    if held is not None and not shared[held[0]].flat.flags.writeable:
        raise SharingError(
            f"{function}: the memory of this tensor of shape {held[1]} was made read-only by another library.",
            hint="x.clone() is writable.",
        )


def store(function: str, cell: Cell, op: Op) -> None:
    """Computes a value and writes it to the shared memory of a cell.

    Raises:
      JitError:      inside a captured function; its later calls would write elsewhere.
      GradientError: gradients would flow through the value, but memory only holds numbers.
      SharingError:  the other library does not allow writes.
    """
    if trace.get() is not None:
        raise JitError(
            f"{function}: a tensor of shape {op.shape} on memory shared with another library cannot be written to by a"
            " captured function.",
            hint="return the value, and write it outside.",
        )
    if op.needs_grad:
        raise GradientError(
            f"{function}: memory shared with another library cannot hold a value that needs gradients.",
            hint="x.clone() first, or write under pg.no_grad().",
        )
    check_not_read_only(function, cell)
    assert isinstance(cell.content, tuple)
    buffer, shape = cell.content
    known = shared[buffer]
    value = to_host(compute([], [op])[0])
    buffer.memory = private_memory(buffer)
    del shared[buffer]
    np.copyto(known.flat, value.reshape(-1))
    _live_in(cell, known, shape, buffer.dtype, buffer.device)


def share_storage(cell: Cell) -> Shared:
    """Moves the memory of a computed cell on the CPU to shared memory; returns its entry in `shared`.

    Memory that a graph or another cell can still read stays with them: the cell gets a copy.
    """
    cell._named = None
    alone = COUNTS_TELL and _references(cell) == _ALONE
    held = cell.held()
    assert held is not None, "share_storage: not computed"
    buffer, shape = held
    known = shared.get(buffer)
    if known is None:
        known = Shared(_flat(buffer.memory if alone else _copy(buffer), buffer.dtype, buffer.numel))
        _live_in(cell, known, shape, buffer.dtype, buffer.device)
    return known


def shared_cell(known: Shared, shape: Shape, dtype: DType, device: str) -> Cell:
    """Returns a cell whose storage is shared memory."""
    cell = Cell((Buffer(device, dtype, known.flat.size), shape), device)
    _live_in(cell, known, shape, dtype, device)
    return cell


def _live_in(cell: Cell, known: Shared, shape: Shape, dtype: DType, device: str) -> None:
    """Makes shared memory the storage of a cell."""
    known.home = weakref.ref(cell)
    cell.content, cell._named = (share(known, dtype, device), shape), None


def _copy(buffer: Buffer) -> np.ndarray[Any, Any]:
    return to_host(memory_op(buffer, (buffer.numel,)))


def _references(cell: Cell) -> tuple[int, ...]:
    """Returns the reference counts of a cell's content; `_ALONE` has those of memory without other users."""
    content = cell.content
    if not isinstance(content, tuple):
        return ()
    buffer = content[0]
    return getrefcount(content), getrefcount(buffer), getrefcount(buffer.memory)


_ALONE = _references(Cell((Buffer(EVALUATOR, dtypes.int8, 0, object()), (0,)), None))


def _flat(memory: Any, dtype: DType, numel: int) -> np.ndarray[Any, Any]:
    """Returns a flat array over CPU memory, which it keeps alive."""
    if isinstance(memory, np.ndarray):
        return memory.reshape(-1)
    holder = (ctypes.c_char * memory.nbytes).from_address(memory.address)
    holder.memory = memory
    return np.frombuffer(holder, dtype.numpy, numel) if numel else np.empty(0, dtype.numpy)
