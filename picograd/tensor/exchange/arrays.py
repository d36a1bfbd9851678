"""Tensors and NumPy arrays on one memory: how a view of either is said as a view of the other.

In:    tensors; NumPy arrays
Out:   `shown_array`; `address_of`; `adopted`; `stepped`, `steps_to`, `strided`
Next:  picograd/tensor/exchange/dlpack.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR
from picograd.engine.host_memory import Shared
from picograd.errors import GradientError, SharingError
from picograd.ir.opcode import OpCode
from picograd.ir.shape import check_array
from picograd.tensor.blocks import Step
from picograd.tensor.cell import View, trace
from picograd.tensor.compute import compute
from picograd.tensor.core import T
from picograd.tensor.exchange.sharing import share_storage, shared_cell

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


HOST = ("CPU", EVALUATOR)  # devices whose memory is the CPU's
Array = np.ndarray[Any, Any]


# ---- out ----
def shown_array(function: str, tensor: Tensor, copy: bool | None) -> Array:
    """Returns an array on the memory of a tensor, or a copy where `copy` asks for it or the view cannot be said in strides.

    Raises:
      GradientError: gradients would be lost.
      SharingError:  copy=False where a copy is needed.
      JitError:      inside a captured function.
    """
    if tensor.requires_grad:
        raise GradientError(
            f"{function}: a tensor of shape {tensor.shape} that needs gradients would lose them.", hint="x.detach()"
        )
    if (active := trace.get()) is not None:
        active.on_host_read(function)
    if copy or tensor.device not in HOST:
        if copy is False:
            raise SharingError(f"{function}: memory of {tensor.device} cannot be shared with the CPU, and copy=False.")
        return tensor._host(function)
    check_array(function, tensor.op.shape, tensor.op.dtype.itemsize)
    compute([tensor.cell])
    tensor.forget_old()
    known = share_storage(tensor.cell)
    shape = tensor.cell.op.shape
    steps = tuple(step for step in tensor.steps if step[0] not in (OpCode.LEAF, OpCode.DETACH))
    start = known.flat.reshape([int(dim) for dim in shape]) if all(isinstance(dim, int) for dim in shape) else None
    if known.array is not None and steps[: len(known.steps)] == known.steps:
        start, steps = known.array, steps[len(known.steps) :]
    array = None if start is None else stepped(start, steps)
    if array is None:
        if copy is False:
            raise SharingError(
                f"{function}: this view of shape {tensor.shape} cannot be said in strides of its memory, and copy=False.",
                hint="x.contiguous()",
            )
        return tensor._host(function)
    return array


def address_of(function: str, tensor: Tensor) -> int:
    """Returns the address of the first element of a tensor whose elements lie in order; computes it.

    Raises:
      SharingError: they do not lie in order.
      JitError:     inside a captured function.
    """
    if (active := trace.get()) is not None:
        active.on_host_read(function)
    compute([tensor.cell])
    tensor.forget_old()
    held = tensor.cell.held()
    assert held is not None, "address_of: not computed"
    buffer, shape = held
    memory = buffer.memory
    start = memory.ctypes.data if isinstance(memory, np.ndarray) else int(memory.address)
    # An array that nobody reads or fills: it tells where a view begins, on a GPU too.
    line = np.empty([int(dim) for dim in shape], buffer.dtype.numpy)
    steps = tuple(step for step in tensor.steps if step[0] not in (OpCode.LEAF, OpCode.DETACH))
    shown = stepped(line, steps)
    if shown is None or not shown.flags.c_contiguous:
        raise SharingError(
            f"{function}: the elements of this view of shape {tensor.shape} do not lie in order.", hint="x.contiguous()"
        )
    return int(start + shown.ctypes.data - line.ctypes.data)


def stepped(array: Array, steps: View) -> Array | None:
    """Returns what the steps of a view show of an array, without a copy; None where there is no such array."""
    for code, arg in steps:
        if code is OpCode.PERMUTE:
            array = array.transpose(arg)
        elif code is OpCode.FLIP:
            array = np.flip(array, arg)
        elif code is OpCode.SHRINK:
            array = array[tuple(slice(start, stop) for start, stop in arg)]
        elif code is OpCode.EXPAND:
            strides = [0 if have != want else step for have, want, step in zip(array.shape, arg, array.strides)]
            array = strided(array, arg, strides)
        elif code is OpCode.RESHAPE:
            try:
                array = np.reshape(array, arg, copy=False)
            except ValueError:
                return None
        else:
            return None
    return array


def strided(array: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """Returns a view of an array's memory; as integers on the way, since NumPy takes no dtype of ml_dtypes here."""
    integers = array.view(f"u{array.itemsize}")
    view = np.lib.stride_tricks.as_strided(integers, shape, strides, writeable=array.flags.writeable)
    return view.view(array.dtype)


# ---- in ----
def adopted(kind: type[T], array: Array, dtype: DType, device: str) -> T | None:
    """Returns a tensor on the memory of an array; None where only a copy will do.

    Elements that lie at distances which are multiples of each other are a view: of memory padded to whole rows, say.
    """
    found = steps_to(array) if array.flags.aligned else None
    if found is None:
        return None
    extent, steps = found
    flips = (slice(None, None, -1) if stride < 0 else slice(None) for stride in array.strides)
    flat = strided(array[(*flips, ...)], (extent,), (array.itemsize,))
    known = Shared(flat)
    if array.flags.c_contiguous:
        return kind.from_cell(shared_cell(known, array.shape, dtype, device))
    tensor = kind.from_cell(shared_cell(known, (extent,), dtype, device))
    tensor = tensor.viewed_by(steps)
    known.array, known.steps = array, tensor.steps
    return tensor


def steps_to(array: Array, room: int = 0) -> tuple[int, View] | None:
    """Returns how many elements of flat memory an array is on, and the steps from these to it; None where there are none.

    There are some where the strides are multiples of each other, and elements do not overlap.

    Args:
      room:  elements that there are from the first one on; where that is enough nothing is padded
    """
    if not array.size or any(stride % array.itemsize for stride in array.strides):
        return None
    moved = [axis for axis, length in enumerate(array.shape) if length > 1 and array.strides[axis]]
    moved.sort(key=lambda axis: -abs(array.strides[axis]))
    counts = [array.shape[axis] for axis in moved]
    distances = [abs(array.strides[axis]) // array.itemsize for axis in moved]
    nested = zip(distances, distances[1:], counts[1:])
    if any(outer % inner or outer < inner * count for outer, inner, count in nested):
        return None
    extent = 1 + sum((count - 1) * distance for count, distance in zip(counts, distances))
    if moved and counts[0] * distances[0] <= room:
        extent = counts[0] * distances[0]
    return extent, _steps(array, moved, counts, distances, extent)


def _steps(array: Array, moved: list[int], counts: list[int], distances: list[int], extent: int) -> View:
    """Returns the steps from flat memory to an array.

    Example: shape (3, 2), distances (8, 1)  ->  PAD 18 to 24, RESHAPE (3, 8, 1), SHRINK (3, 2, 1), RESHAPE (3, 2)
    """
    steps: list[Step] = []
    if moved:
        whole = counts[0] * distances[0]
        grid = (counts[0], *(outer // inner for outer, inner in zip(distances, distances[1:])), distances[-1])
        if whole > extent:
            steps.append((OpCode.PAD, ((0, whole - extent),)))
        steps.append((OpCode.RESHAPE, grid))
        if grid != (*counts, 1):
            steps.append((OpCode.SHRINK, (*((0, count) for count in counts), (0, 1))))
        steps.append((OpCode.RESHAPE, tuple(counts)))
    flipped = tuple(place for place, axis in enumerate(moved) if array.strides[axis] < 0)
    if flipped:
        steps.append((OpCode.FLIP, flipped))
    if moved != sorted(moved):
        steps.append((OpCode.PERMUTE, tuple(moved.index(axis) for axis in sorted(moved))))
    lines = tuple(n if axis in moved else 1 for axis, n in enumerate(array.shape))
    steps.append((OpCode.RESHAPE, lines))
    return (*steps, (OpCode.EXPAND, array.shape)) if lines != array.shape else tuple(steps)
