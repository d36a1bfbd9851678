"""Exchange of tensors: arrays, Python numbers and protocols, DLPack, copies, pickles, the array API.

NumPy makes and consumes DLPack's capsules, and frees memory after its last user. A dtype that NumPy lacks travels as
unsigned integers; only its name in the capsule is changed.
Source: DLPack 1.1, dlpack.h.

A deep copy copies the whole storage of a view, as in PyTorch, once for all views of it that are copied together. A pickle
has the whole storage if the view shows all of it; a part, such as a row of a data set, is pickled alone. Graphs are
neither copied nor pickled. As in PyTorch, a deep copy of a result that needs gradients is refused, and a pickled one
comes back as a leaf.
"""

from __future__ import annotations

import copyreg
import ctypes
from collections.abc import Iterator, Sequence
from copy import deepcopy
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.devices import EVALUATOR, default_device, usable_device
from picograd.engine.host_memory import Shared, number_in
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, GradientError, ShapeError, SharingError
from picograd.ir.opcode import OpCode
from picograd.ir.shape import check_array
from picograd.loading import load_late
from picograd.tensor.build import detached
from picograd.tensor.cell import Cell, Step, View, grad_mode, trace
from picograd.tensor.compute import compute
from picograd.tensor.core import T, TensorCore
from picograd.tensor.printing import array_table, is_shortened, text_block, text_of
from picograd.tensor.sharing import share_storage, shared_cell
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


# ---- arrays and tensors on one memory ----
HOST = ("CPU", EVALUATOR)  # devices whose memory is the CPU's
Array = np.ndarray[Any, Any]


# ---- out ----
def shown_array(function: str, tensor: Tensor, copy: bool | None) -> Array:
    """Returns an array on the memory of a tensor, or a copy where `copy` asks for it or the view cannot be said in strides.

    Raises:
      GradientError: gradients would be lost.
      SharingError:  copy=False, and only a copy is possible.
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
    shape, steps = tensor.cell.op.shape, shown_steps(tensor)
    start = known.flat.reshape([int(dim) for dim in shape]) if all(isinstance(dim, int) for dim in shape) else None
    if known.array is not None and steps[: len(known.steps)] == known.steps:
        start, steps = known.array, steps[len(known.steps) :]
    array = None if start is None else stepped(start, steps)
    if array is None:
        if copy is False:
            raise SharingError(
                f"{function}: this view of shape {tensor.shape} has no strides, and copy=False.",
                hint="x.contiguous()",
            )
        return tensor._host(function)
    return array


def address_of(function: str, tensor: Tensor) -> int:
    """Returns the address of the first element of a contiguous tensor; computes it.

    Raises:
      SharingError: the tensor is not contiguous.
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
    # An array that is never read or filled: it gives the address of a view, on a GPU, too.
    line = np.empty([int(dim) for dim in shape], buffer.dtype.numpy)
    shown = stepped(line, shown_steps(tensor))
    if shown is None or not shown.flags.c_contiguous:
        raise SharingError(
            f"{function}: this view of shape {tensor.shape} is not contiguous in memory.", hint="x.contiguous()"
        )
    return int(start + shown.ctypes.data - line.ctypes.data)


def stepped(array: Array, steps: View) -> Array | None:
    """Returns an array's view after steps, without a copy; None if NumPy has no such view."""
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
    """Returns a view of an array's memory; through an integer dtype, since NumPy does not take ml_dtypes here."""
    integers = array.view(f"u{array.itemsize}")
    view = np.lib.stride_tricks.as_strided(integers, shape, strides, writeable=array.flags.writeable)
    return view.view(array.dtype)


# ---- in ----
def adopted(kind: type[T], array: Array, dtype: DType, device: str) -> T | None:
    """Returns a tensor on the memory of an array; None if it would have to be copied.

    A view needs strides that are multiples of each other, as for memory padded to whole rows.
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
    """Returns the number of elements of flat memory, and the steps from it to the array; None if there are no such steps.

    There are some if strides are multiples of each other and elements do not overlap.

    Args:
      room:  number of elements from the first one to the end of the memory; if it suffices, nothing is padded
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


# ---- DLPack ----
CPU = 1  # kDLCPU
CUDA = 2  # kDLCUDA
VERSION = (1, 0)  # the newest version whose layout is known here
FOREIGN = {(4, 16): dtypes.bfloat16, (10, 8): dtypes.float8_e4m3, (12, 8): dtypes.float8_e5m2}  # by type code and bits
CODES = {dtype: code for (code, _), dtype in FOREIGN.items()}
UNSIGNED = 1  # kDLUInt


class _DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("dtype", _DType), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class _Carrier:
    """A capsule in the form of the object that NumPy expects."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0


def array_of(x: Any, copy: bool | None) -> np.ndarray[Any, Any]:
    """Returns an array on the memory of an object with __dlpack__; it may be read-only.

    Args:
      copy:  True: ask for a copy; False: never copy

    Raises:
      SharingError: its memory is not the CPU's, and it does not copy it there.
      DTypeError:   picograd does not have the dtype of its elements.
    """
    capsule = _asked(x, copy)
    kind = _dtype_in(capsule)
    found = FOREIGN.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if found is not None:
        kind.code = UNSIGNED
        return np.from_dlpack(_Carrier(capsule)).view(found.numpy)
    try:
        array = np.from_dlpack(_Carrier(capsule))
    except (BufferError, RuntimeError):
        array = None
    if array is None or dtypes.from_numpy(array.dtype) is None:
        fact = f"from_dlpack: elements of DLPack type (code {kind.code}, {kind.bits} bits, {kind.lanes} lanes)"
        raise DTypeError(f"{fact} have no dtype in picograd.", hint="convert them first.")
    return array


def capsule_of(array: np.ndarray[Any, Any], dtype: DType, max_version: tuple[int, int] | None) -> Any:
    """Returns a capsule on the memory of an array with elements of `dtype`.

    Raises:
      SharingError: the array is read-only, which this version of the protocol cannot express.
    """
    code = CODES.get(dtype)
    carried: Any = array if code is None else array.view(np.uint8 if dtype.itemsize == 1 else np.uint16)
    versioned = max_version is not None and max_version[0] >= 1
    if not versioned and not array.flags.writeable:
        raise SharingError(
            "__dlpack__: read-only memory needs a consumer of DLPack 1.0 or newer.", hint="__dlpack__(copy=True)"
        )
    capsule = carried.__dlpack__(max_version=VERSION if versioned else None)
    if code is not None:
        _dtype_in(capsule).code = code
    return capsule


def _asked(x: Any, copy: bool | None) -> Any:
    """Returns the capsule of an object, in the newest layout that it supports."""
    kind, _ = x.__dlpack_device__()
    wanted: dict[str, Any] = {"max_version": VERSION}
    if copy is not None:
        wanted["copy"] = copy
    if int(kind) != CPU:
        if copy is False:
            raise SharingError(f"from_dlpack: memory of DLPack device type {int(kind)} is not the CPU's, and copy=False.")
        wanted["dl_device"] = (CPU, 0)
    try:
        return x.__dlpack__(**wanted)
    except TypeError:
        if int(kind) != CPU:  # objects of older versions do not copy
            fact = f"from_dlpack: memory of DLPack device type {int(kind)} is not the CPU's."
            raise SharingError(fact, hint="copy it to the CPU first.") from None
        return x.__dlpack__()


def _dtype_in(capsule: Any) -> _DType:
    """Returns the dtype in a capsule; the capsule must stay alive."""
    if _is_valid(capsule, b"dltensor_versioned"):
        return _Versioned.from_address(_pointer(capsule, b"dltensor_versioned")).tensor.dtype
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer(capsule, b"dltensor")).dtype
    raise SharingError(f"from_dlpack: __dlpack__ must return an unused DLPack capsule, got {type(capsule).__name__}.")


# ---- Python, NumPy, the array API ----
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")  # of the array API standard


def numpy(self: T, *, force: bool = False) -> np.ndarray[Any, Any]:
    """Returns a copy as a NumPy array; bfloat16 and float8 become dtypes of ml_dtypes.

    Args:
      force:  allow the loss of gradients

    Raises:
      GradientError: gradients would be lost.

    >>> Tensor([1, 2]).numpy()
    array([1, 2])
    """
    if self.op.needs_grad and grad_mode.get() and not force:
        raise GradientError(
            f"numpy: a tensor of shape {self.shape} that needs gradients would lose them.",
            hint="x.detach().numpy()",
        )
    return self._host("numpy")


def __array__(self: T, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
    """Returns the value as an array: a copy, or with copy=False an array on the tensor's memory.

    >>> import numpy as np
    >>> np.asarray(Tensor([1, 2]))
    array([1, 2])
    """
    if copy is False:
        array = shown_array("__array__", self, copy)
        if dtype is not None and array.dtype != np.dtype(dtype):
            raise SharingError(f"__array__: {array.dtype} is copied to become {np.dtype(dtype)}, and copy=False.")
        return array
    array = self.numpy()
    return array if dtype is None else array.astype(dtype)


# ---- memory of other libraries ----
def from_dlpack(cls: type[T], x: Any, *, device: str | None = None, copy: bool | None = None) -> T:
    """Returns a tensor on the memory of an array of another library: each sees what the other writes.

    A graph that reads such a tensor reads the memory when it is computed, each time again, so values that are not realized
    before the other library writes are the new ones. A write by picograd is computed at once.

    Args:
      x:     has __dlpack__ and __dlpack_device__: an array of NumPy, PyTorch, JAX, CuPy ...; or a capsule of to_dlpack
      copy:  True: always copy. False: never; None: if the device or the layout requires it

    Raises:
      SharingError: copy=False, and only a copy is possible.
      DTypeError:   picograd lacks the dtype of the elements, or x is not an array.

    >>> import numpy as np
    >>> array = np.zeros(2)
    >>> x = Tensor.from_dlpack(array)
    >>> array[0] = 7.0
    >>> x
    Tensor([7., 0.], dtype=float64)
    """
    if type(x).__name__ == "PyCapsule":
        x = _Carrier(x)
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise DTypeError(f"from_dlpack: needs an array with __dlpack__, got {type(x).__name__}.", hint="Tensor(x)")
    place = usable_device(device) if device is not None else default_device() if default_device() in HOST else "CPU"
    array = array_of(x, copy)
    dtype = dtypes.from_numpy(array.dtype)
    assert dtype is not None
    tensor = adopted(cls, array, dtype, place) if place in HOST and not copy else None
    if tensor is not None:
        return tensor
    if copy is False and array.size:
        raise SharingError(
            f"from_dlpack: shape {array.shape}, strides {array.strides}, on {place} must be copied, and copy=False."
        )
    return cls(array, dtype, place)


def __dlpack__(
    self: T,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[Any, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Returns a DLPack capsule on this tensor's memory; for writes see `from_dlpack`.

    Args:
      stream:       None, on the CPU
      max_version:  the newest version of DLPack that the consumer supports
      dl_device:    requested device: (1, 0), the CPU; None: the tensor's
      copy:         True: always copy. False: never; None: if strides cannot express the view

    Raises:
      GradientError: gradients would be lost.
      SharingError:  copy=False and only a copy is possible, or the memory cannot be on the requested device.

    >>> import numpy as np
    >>> np.from_dlpack(Tensor([1, 2]))
    array([1, 2])
    """
    wanted = CPU if dl_device is None else int(dl_device[0])
    if wanted != CPU or (self.device not in HOST and dl_device is None):
        raise SharingError(
            f"__dlpack__: a tensor on {self.device} can be exported to the CPU only.", hint="x.cpu(), or dl_device=(1, 0)"
        )
    if stream is not None and stream != -1:
        raise SharingError(f"__dlpack__: memory of the CPU has no stream, got {stream!r}.", hint="stream=None")
    return capsule_of(shown_array("__dlpack__", self, copy), self.dtype, max_version)


def __dlpack_device__(self: T) -> tuple[int, int]:
    """Returns the DLPack device type, 1 for a CPU or 2 for a GPU, and the device's number.

    >>> Tensor([1, 2]).__dlpack_device__()
    (1, 0)
    """
    return (CPU if self.device in HOST else CUDA), 0


def data_ptr(self: T) -> int:
    """Returns the address of the first element in memory; computes the tensor.

    It stays valid until the tensor is written to or freed.

    Raises:
      SharingError: the view is not contiguous.
      JitError:     inside a captured function.

    >>> x = Tensor([1.0, 2.0]).realize()
    >>> x[1:].data_ptr() - x.data_ptr()
    4
    """
    return address_of("data_ptr", self)


# ---- the array API ----
def __array_namespace__(self: T, *, api_version: str | None = None) -> ModuleType:
    """Returns `picograd.array_api`, whose functions take tensors and return Arrays.

    Raises:
      ArgumentError: a version of the standard that the namespace does not follow.

    >>> Tensor([1, 2]).__array_namespace__().__name__
    'picograd.array_api'
    """
    if api_version not in (None, *VERSIONS):
        raise ArgumentError(f"__array_namespace__: the versions are {', '.join(VERSIONS)}; got {api_version!r}.")
    # Arrays refer to functions that are built on them: the one import against the order of packages.
    return load_late("picograd.array_api")


def to_device(self: T, device: str, /, *, stream: Any = None) -> T:
    """Returns the tensor on a device, as the array API spells `to`.

    Args:
      stream:  None; the order of operations is kept anyway

    Raises:
      ArgumentError: stream is not None.

    >>> Tensor([1]).to_device("CPU").device
    device(type='cpu')
    """
    if stream is not None:
        raise ArgumentError(f"to_device: stream must be None, got {stream!r}.")
    return self.to(device)


def item(self: T) -> bool | int | float:
    """Returns the only element as a Python number.

    Raises:
      ShapeError: there is not exactly one element.

    >>> Tensor([2.5]).item()
    2.5
    """
    held = self.cell.content
    if type(held) is tuple and not self.steps and trace.get() is None and held[1].count(1) == len(held[1]):
        found = number_in(held[0])
        if found is not None:
            return found
    if self.op.shape and self.numel() != 1:
        raise ShapeError(f"item: needs exactly one element, got shape {self.shape}.", hint="x.tolist()")
    return self._number("item")


def tolist(self: T) -> Any:
    """Returns nested lists of Python numbers, or one number for a 0-d tensor.

    >>> Tensor([[1, 2], [3, 4]]).tolist()
    [[1, 2], [3, 4]]
    """
    return self._host("tolist").tolist()


def __bool__(self: T) -> bool:
    return bool(_single(self, "bool"))


def __float__(self: T) -> float:
    return float(_single(self, "float"))


def __int__(self: T) -> int:
    return int(_single(self, "int"))


def __index__(self: T) -> int:
    if not self.dtype.is_int:
        fact = f"index: Python needs an integer here, got a tensor of {self.dtype}."
        raise DTypeError(fact, "x.item() is a Python number; x.long() has integers.")
    return int(_single(self, "index"))


def __complex__(self: T) -> complex:
    return complex(_single(self, "complex"))


def _single(self: T, function: str) -> Any:
    if self.op.shape and self.numel() != 1:
        raise ShapeError(
            f"{function}: a tensor of shape {self.shape} has no single value; it needs exactly one element.",
            hint="x.any() or x.all()" if function == "bool" else "x.tolist()",
        )
    return self._number(function)


def __len__(self: T) -> int:
    if not self.shape:
        raise TypeError("a 0-d tensor has no length")
    return known("len", self.shape, 0)


def __iter__(self: T) -> Iterator[T]:
    if not self.shape:
        raise TypeError("a 0-d tensor cannot be iterated over")
    return iter(self.unbind(0))


def __reversed__(self: T) -> T:
    return self.flip(0) if self.shape else self


def __contains__(self: T, element: Any) -> bool:
    equal = self.__eq__(element)
    return equal is not NotImplemented and bool(equal.any())


def __format__(self: T, spec: str) -> str:
    if self.shape and spec:
        fact = f"format: {spec!r} formats one number, not a tensor of shape {self.shape}."
        raise ArgumentTypeError(fact, f'[f"{{number:{spec}}}" for number in x.flatten().tolist()]')
    return str(self) if self.shape else format(self.item(), spec)


def __repr__(self: T) -> str:
    name = type(self).__name__
    array = self._host("repr")
    notes = [text_of(array, self.dtype, f"{name}(")]
    if is_shortened(array) or (not array.size and array.ndim > 1):  # the text does not show these
        notes.append(f"shape={array.shape}")
    if self.dtype.name not in ("float32", "int64", "bool"):
        notes.append(f"dtype={self.dtype}")
    if self.op.needs_grad:
        notes.append("requires_grad=True")
    return f"{name}({', '.join(notes)})"


def _repr_html_(self: T) -> str:
    """Returns HTML for notebooks: a table for a vector or a matrix, text for other tensors."""
    array = self._host("repr")
    if array.ndim not in (1, 2) or not array.size:
        return text_block(repr(self))
    notes = ", requires_grad=True" if self.op.needs_grad else ""
    return array_table(array, f"{type(self).__name__} of shape {array.shape}, {self.dtype}{notes}")


# ---- copies and pickles ----
def copied(self: T) -> T:
    """Returns the result of copy.copy: a view of the same storage."""
    copy = _with_role(self.from_cell(self.cell, self.steps), self)
    vars(copy).update(vars(self))
    return copy


def deep_copied(self: T, memo: dict[int, Any]) -> T:
    """Returns the result of copy.deepcopy: a view of a copy of the storage; `memo` keeps one copy for all its views."""
    if self.requires_grad and not self.is_leaf:
        raise GradientError(
            f"deepcopy: a tensor of shape {self.shape} is the result of a graph, and a copy would have no graph.",
            hint="x.detach().clone() has its values; x.clone() is part of the graph.",
        )
    whole = memo.get(id(self.cell))
    if whole is None:
        whole = memo[id(self.cell)] = type(self).from_op(detached(self.cell.op), self.cell.device)
    copy = _with_role(self.from_cell(whole.cell, shown_steps(self)), self)
    memo[id(self)] = copy
    if self.requires_grad:
        copy.requires_grad_()
    if getattr(self, "_role", None) != "parameter":  # in PyTorch, copied parameters lack both
        if isinstance(self._grad, TensorCore):
            copy._grad = deep_copied(self._grad, memo)
        vars(copy).update(deepcopy(vars(self), memo))
    return copy


def reduced(self: Tensor) -> tuple[Any, ...]:
    """Returns the arguments from which pickle makes the tensor again."""
    cell, steps = self.cell, shown_steps(self)
    known = all(isinstance(dim, int) for dim in (*self.op.shape, *cell.op.shape))
    if not known or self.op.numel < cell.op.numel:
        cell, steps = self.from_op(detached(self.op), cell.device).cell, ()
    return _rebuilt, (type(self), cell, steps, self.requires_grad, getattr(self, "_role", None)), vars(self) or None


def shown_steps(tensor: Tensor) -> View:
    """Returns the steps of a view that move elements; steps about gradients are left out."""
    return tuple(step for step in tensor.steps if step[0] not in (OpCode.LEAF, OpCode.DETACH))


def _reduce_cell(cell: Cell) -> tuple[Any, ...]:
    """Returns the arguments from which pickle makes a cell again, once for all of its views."""
    return _cell_of, (TensorCore.from_cell(cell)._host("pickle"), cell.op.dtype)


def _cell_of(array: np.ndarray[Any, Any], dtype: DType) -> Cell:
    return TensorCore(array, dtype).cell


copyreg.pickle(Cell, _reduce_cell)


def _rebuilt(cls: type[T], cell: Cell, steps: View, requires_grad: bool, role: str | None) -> T:
    tensor = cls.from_cell(cell, steps)
    if role is not None:
        tensor._role = role
    return tensor.requires_grad_() if requires_grad else tensor


def _with_role(tensor: T, original: T) -> T:
    """Returns a copy with the same role in a module."""
    if hasattr(original, "_role"):
        tensor._role = original._role
    return tensor


# ---- functions of NumPy called with tensors ----
# By ufunc: the operator with the tensor on its left, and with the tensor on its right.
OPERATORS = {
    "add": ("__add__", "__radd__"), "subtract": ("__sub__", "__rsub__"), "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"), "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"), "power": ("__pow__", "__rpow__"), "matmul": ("__matmul__", "__rmatmul__"),
    "bitwise_and": ("__and__", "__rand__"), "bitwise_or": ("__or__", "__ror__"), "bitwise_xor": ("__xor__", "__rxor__"),
    "left_shift": ("__lshift__", "__rlshift__"), "right_shift": ("__rshift__", "__rrshift__"),
    "equal": ("__eq__", "__eq__"), "not_equal": ("__ne__", "__ne__"), "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"), "greater": ("__gt__", "__lt__"), "greater_equal": ("__ge__", "__le__"),
}  # fmt: skip
# By ufunc: the method, if its name differs.
METHODS = {"invert": "bitwise_not", "rint": "round", "fabs": "abs", "conjugate": "conj"}


def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """Returns the result of picograd's function for a NumPy ufunc: a tensor, with gradients if they are recorded.

    NumPy itself computes values that are stored in an array, as by `array += tensor`.

    Raises:
      ArgumentTypeError: picograd lacks the function, or the call is a reduction or has an argument such as where=.

    >>> import numpy as np
    >>> np.exp(Tensor([0.0, 1.0])) + np.array([1.0, 2.0], np.float32)
    Tensor([2.       , 4.7182817])
    """
    name, stored = ufunc.__name__, kwargs.get("out", ())
    if stored and all(isinstance(one, np.ndarray) for one in stored):
        arrays = [np.asarray(one) if isinstance(one, TensorCore) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)
    found = None if method != "__call__" or kwargs else _called(self, name, inputs)
    if found is None or found is NotImplemented:
        call = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
        arguments = f" with {', '.join(f'{name}=' for name in kwargs)}" if kwargs else ""
        raise ArgumentTypeError(
            f"{call}: a tensor of shape {self.shape} has no such function{arguments}.",
            hint=f"{call}(x.numpy())" if not kwargs else "x.numpy() in place of the tensor.",
        )
    return found


def _called(self: TensorCore, name: str, inputs: tuple[Any, ...]) -> Any:
    if name in OPERATORS:
        lhs, rhs = inputs
        forward, reflected = OPERATORS[name]
        return getattr(lhs, forward)(rhs) if isinstance(lhs, TensorCore) else getattr(self, reflected)(lhs)
    method = getattr(type(self), METHODS.get(name, name), None)
    first, *others = [one if isinstance(one, TensorCore) else type(self)(one, device=self.device) for one in inputs]
    return None if method is None else method(first, *others)
