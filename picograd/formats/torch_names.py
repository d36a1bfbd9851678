"""The names in files of torch.save: dtypes, storages, functions that make tensors, containers.

In:    the storages of a file
Out:   `torch_names`, for an Unpickler; `STORAGE_NAMES`, `DTYPE_NAMES`
Called by: formats/torch_file.py, formats/torch_written.py

Source: PyTorch 2.13, torch/_utils.py and torch/_weights_only_unpickler.py.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from picograd import dtype as dtypes
from picograd.device import device
from picograd.dtype import DType
from picograd.errors import DataError, PicogradError
from picograd.formats.pickled import Builder, key_of
from picograd.formats.pickled_arrays import NUMPY_NAMES
from picograd.formats.storages import Place, Storage, Storages
from picograd.record import Record
from picograd.tensor.tensor import Tensor

STORAGE_NAMES: dict[DType, str] = {
    dtypes.float32: "FloatStorage", dtypes.float64: "DoubleStorage", dtypes.float16: "HalfStorage",
    dtypes.bfloat16: "BFloat16Storage", dtypes.int64: "LongStorage", dtypes.int32: "IntStorage",
    dtypes.int16: "ShortStorage", dtypes.int8: "CharStorage", dtypes.uint8: "ByteStorage", dtypes.bool_: "BoolStorage",
}  # fmt: skip
DTYPE_NAMES: dict[DType, str] = {
    dtype: {"float8_e4m3": "float8_e4m3fn"}.get(dtype.name, dtype.name) for dtype in dtypes.ALL
}


class StorageKind(Record):
    """A class of storages.

    dtype:  of its elements; None: bytes, whose tensors say it
    """

    dtype: DType | None


def _ordered(pairs: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict((key_of(key), value) for key, value in pairs)


def _counter(counts: Any = None) -> Counter[Any]:
    if not (counts is None or isinstance(counts, dict)):
        raise TypeError
    return Counter(counts)


def _set(values: Any = ()) -> set[Any]:
    return {key_of(value) for value in _list(values)}


def _list(values: Any) -> list[Any]:
    if not isinstance(values, (list, tuple, set, frozenset)):
        raise TypeError
    return list(values)


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    """Returns the bytes that protocol 2 writes as text."""
    if type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise TypeError
    return text.encode("latin1")


def _bytearray(data: Any = b"", encoding: Any = "latin1") -> bytearray:
    return bytearray(data if isinstance(data, bytes) else _encoded(data, encoding))


def _complex(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise TypeError
    return complex(real, imaginary)


def _shape(values: Any = ()) -> tuple[Any, ...]:
    return tuple(_list(values))


def _device(name: Any, number: Any = None) -> Any:
    """Returns a device; each process has one of a kind, number 0."""
    if type(name) is not str or not (number is None or type(number) is int):
        raise TypeError
    try:
        return device(name) if number is None else device(name.partition(":")[0], 0)
    except PicogradError as error:
        raise DataError(error.fact) from None


MADE: dict[str, Callable[..., Any] | None] = {
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "collections.defaultdict": lambda *factory: {},
    "builtins.set": _set,
    "builtins.frozenset": lambda values=(): frozenset(_set(values)),
    "builtins.bytes": lambda: b"",
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "_codecs.encode": _encoded,
    "torch.Size": _shape,
    "torch.device": _device,
    **dict.fromkeys(("builtins.list", "builtins.dict", "builtins.int", "builtins.float")),
    **dict.fromkeys(("torch.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")),
}
CONTAINERS = {name: Builder(name, build) for name, build in MADE.items()}
VALUES: dict[str, Any] = {
    **{f"torch.{name}": dtype for dtype, name in DTYPE_NAMES.items()},
    **{
        f"{module}.{name}": StorageKind(dtype)
        for module in ("torch", "torch.cuda", "torch.storage")
        for name, dtype in {
            "UntypedStorage": None, **{name: dtype for dtype, name in STORAGE_NAMES.items()}
        }.items()
    },
}  # fmt: skip


def _check_flags(flags: Any) -> None:
    """Raises DataError for what PyTorch negates, or conjugates, when it is read: the file has other numbers."""
    if flags is not None and not isinstance(flags, dict):
        raise TypeError
    if flags and any(flags.values()):
        raise DataError("a tensor in it is negated by a flag; torch.save(x.resolve_neg(), path) writes its numbers")


def torch_names(storages: Storages) -> Mapping[str, Any]:
    """Returns the values of the names in a file whose tensors are views of `storages`."""

    def tensor(
        storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, hooks: Any = None,
        flags: Any = None,
    ) -> Tensor:  # fmt: skip
        _check_flags(flags)
        return view(storage, offset, shape, strides, requires_grad, storage.dtype)

    def tensor_of_bytes(
        storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, dtype: Any,
        flags: Any = None,
    ) -> Tensor:  # fmt: skip
        _check_flags(flags)
        return view(storage, offset, shape, strides, requires_grad, dtype)

    def view(storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, dtype: Any) -> Tensor:
        if not isinstance(storage, Storage) or type(shape) is not tuple or type(strides) is not tuple:
            raise TypeError
        if not isinstance(dtype, DType):
            raise DataError("a tensor has a dtype that picograd does not have")
        return storages.view(storage, Place(dtype, offset, shape, strides), requires_grad and dtype.is_float)

    def parameter(data: Any, requires_grad: Any = True, *more: Any) -> Tensor:
        if not isinstance(data, Tensor):
            raise TypeError
        storages.note(data, "parameter", requires_grad)
        return data

    def other_tensor(function: Any, kind: Any, args: Any, state: Any = None) -> Any:
        """Returns a tensor of a class of its own, or with attributes, as a plain one."""
        if function not in tensors.values():
            raise TypeError
        return function.build(*args)

    functions: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": tensor,
        "torch._utils._rebuild_tensor_v2": tensor,
        "torch._utils._rebuild_tensor_v3": tensor_of_bytes,
        "torch._utils._rebuild_parameter": parameter,
        "torch._utils._rebuild_parameter_with_state": parameter,
    }
    tensors = {name: Builder(name, build) for name, build in functions.items()}
    other = "torch._tensor._rebuild_from_type_v2"
    return {**CONTAINERS, **VALUES, **NUMPY_NAMES, **tensors, other: Builder(other, other_tensor)}
