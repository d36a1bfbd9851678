"""Out of a tensor and in: NumPy arrays, Python numbers, text, memory of other libraries, the array API namespace.

In:    tensors, which are computed
Out:   `Interop`
Next:  picograd/tensor/exchange/printing.py
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, GradientError, ShapeError, SharingError
from picograd.loading import load_late
from picograd.notebook import array_table, text_block
from picograd.tensor.cell import grad_mode
from picograd.tensor.core import T
from picograd.tensor.exchange.arrays import HOST, address_of, adopted, shown_array
from picograd.tensor.exchange.dlpack import CPU, CUDA, array_of, capsule_of
from picograd.tensor.exchange.host import default_device, usable_device
from picograd.tensor.exchange.printing import is_shortened, text_of
from picograd.tensor.variable import known

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")  # of the array API standard


def numpy(self: T, *, force: bool = False) -> np.ndarray[Any, Any]:
    """Returns a copy as a NumPy array; bfloat16 and float8 come as ml_dtypes.

    Args:
      force:  also where gradients are lost by it

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
    """Returns the value as an array: a copy, or with copy=False one on the tensor's memory.

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

    A graph that reads such a tensor is computed from what the memory holds at that moment, each time anew, so what was
    not realized before the other library wrote has the new value. A write by picograd is computed at once.

    Args:
      x:     has __dlpack__ and __dlpack_device__: an array of NumPy, PyTorch, JAX, CuPy ...
      copy:  True: in memory of its own. False: never copied; None: where the device or the layout need it

    Raises:
      SharingError: copy=False where a copy is needed.
      DTypeError:   elements that picograd has no dtype for, or x is no such array.

    >>> import numpy as np
    >>> array = np.zeros(2)
    >>> x = Tensor.from_dlpack(array)
    >>> array[0] = 7.0
    >>> x
    Tensor([7., 0.], dtype=float64)
    """
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
            f"from_dlpack: shape {array.shape}, strides {array.strides}, on {place} has to be copied, and copy=False."
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
    """Returns a DLPack capsule on this tensor's memory; what `from_dlpack` says of writes holds here, too.

    Args:
      stream:       None, on the CPU
      max_version:  the newest version of DLPack the consumer knows
      dl_device:    where the memory is wanted: (1, 0), the CPU; None: where it is
      copy:         True: a copy. False: never; None: where the view cannot be said in strides

    Raises:
      GradientError: gradients would be lost.
      SharingError:  copy=False where a copy is needed, or the memory is wanted where it cannot be.

    >>> import numpy as np
    >>> np.from_dlpack(Tensor([1, 2]))
    array([1, 2])
    """
    wanted = CPU if dl_device is None else int(dl_device[0])
    if wanted != CPU or (self.device not in HOST and dl_device is None):
        raise SharingError(
            f"__dlpack__: a tensor on {self.device} goes to the CPU alone.", hint="x.cpu(), or dl_device=(1, 0)"
        )
    if stream is not None and stream != -1:
        raise SharingError(f"__dlpack__: memory of the CPU has no stream, got {stream!r}.", hint="stream=None")
    return capsule_of(shown_array("__dlpack__", self, copy), self.dtype, max_version)


def __dlpack_device__(self: T) -> tuple[int, int]:
    """Returns the DLPack device type, 1 of a CPU or 2 of a GPU, and the number of the device.

    >>> Tensor([1, 2]).__dlpack_device__()
    (1, 0)
    """
    return (CPU if self.device in HOST else CUDA), 0


def data_ptr(self: T) -> int:
    """Returns the address of the first element in memory; computes the tensor.

    It stays where it is until the tensor is written to or forgotten.

    Raises:
      SharingError: a view whose elements do not lie in order.
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
      ArgumentError: another version of the standard than those that the namespace follows.

    >>> Tensor([1, 2]).__array_namespace__().__name__
    'picograd.array_api'
    """
    if api_version not in (None, *VERSIONS):
        raise ArgumentError(f"__array_namespace__: there are the versions {', '.join(VERSIONS)}, not {api_version!r}.")
    # An array has to know the functions on it, which are built on it: the one import against the order.
    namespace: ModuleType = load_late("picograd.array_api")
    return namespace


def to_device(self: T, device: str, /, *, stream: Any = None) -> T:
    """Returns the tensor on a device, as the array API spells `to`.

    Args:
      stream:  None; the order of operations is kept without

    Raises:
      ArgumentError: a stream is given.

    >>> Tensor([1]).to_device("CPU").device
    device(type='cpu')
    """
    if stream is not None:
        raise ArgumentError(f"to_device: stream must be None, got {stream!r}.")
    return self.to(device)


def item(self: T) -> bool | int | float:
    """Returns the one element as a Python number.

    Raises:
      ShapeError: there is not exactly one.

    >>> Tensor([2.5]).item()
    2.5
    """
    if self.op.shape and self.numel() != 1:
        raise ShapeError(f"item: needs exactly one element, got shape {self.shape}.", hint="x.tolist()")
    return self._number("item")  # type: ignore[no-any-return]


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
        fact = f"index: Python asks for an integer, and a tensor of {self.dtype} is none."
        raise DTypeError(fact, "x.item() is a number of Python's; x.long() has integers.")
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
    if is_shortened(array) or (not array.size and array.ndim > 1):  # which the text does not show
        notes.append(f"shape={array.shape}")
    if self.dtype.name not in ("float32", "int64", "bool"):
        notes.append(f"dtype={self.dtype}")
    if self.op.needs_grad:
        notes.append("requires_grad=True")
    return f"{name}({', '.join(notes)})"


def _repr_html_(self: T) -> str:
    """Returns the HTML for notebooks: a table of a vector or a matrix, the text of any other tensor."""
    array = self._host("repr")
    if array.ndim not in (1, 2) or not array.size:
        return text_block(repr(self))
    notes = ", requires_grad=True" if self.op.needs_grad else ""
    return array_table(array, f"{type(self).__name__} of shape {array.shape}, {self.dtype}{notes}")
