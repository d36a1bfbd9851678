"""Files of torch.save, read and written without PyTorch: the zip format, and the stream from before PyTorch 1.6.

The zip format has a pickle, `NAME/data.pkl`, in which tensors are views of storages, and each storage in an entry of its
own, `NAME/data/KEY`. The stream has five pickles (a number, the version, the machine, the state, the keys of the storages)
and then the storages, each after its number of elements.

A tensor with a storage of its own gets row-major memory. Views of one storage are views of one memory again; tensors on the
same memory, such as a weight shared by two layers, have one storage in the file.

Source: PyTorch 2.13, torch/_utils.py and torch/_weights_only_unpickler.py.
"""

from __future__ import annotations

import io
import math
import struct
import sys
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from picograd import dtype as dtypes
from picograd.device import device
from picograd.dtype import DType
from picograd.errors import ArgumentError, DataError, PicogradError
from picograd.ir.opcode import OpCode
from picograd.record import Record
from picograd.tensor.cell import View
from picograd.tensor.core import realize
from picograd.tensor.exchange import shown_steps, stepped, steps_to, strided
from picograd.tensor.tensor import Tensor
from picograd_formats.pickled import NUMPY_NAMES, Builder, Unpickler, key_of
from picograd_formats.zipped import opened_zip, read_into, stored_entry, write_entry

# ---- storages ----
Array = np.ndarray[Any, Any]
AXES_MAX = 64  # of a NumPy array
COPIED_MAX = 2  # bytes of tensors per byte of a file, views not counted


class Place(Record):
    """The part of a storage that a tensor shows, in elements of its dtype.

    offset:   of the first element
    strides:  along each axis
    """

    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Number of elements from the first to the last."""
        return 1 + sum((dim - 1) * stride for dim, stride in zip(self.shape, self.strides))


class Storage:
    """The bytes of which some tensors are views.

    dtype:   dtype of its elements; None for untyped bytes
    nbytes:  number of bytes
    home:    its device in the file: "cuda:0"
    """

    def __init__(self, key: str, dtype: DType | None, nbytes: int, home: str):
        self.key, self.dtype, self.nbytes, self.home = key, dtype, nbytes, home
        self.views: list[tuple[Tensor, Place]] = []


class Storages:
    """The storages of a file, and their tensors, which are empty until `fill` is called.

    Args:
      nbytes:  size of the file: no storage is larger
    """

    def __init__(self, nbytes: int):
        self.nbytes, self.left = nbytes, nbytes
        self.found: dict[str, Storage] = {}
        self.roles: list[tuple[Tensor, str | None, bool]] = []

    def add(self, key: str, dtype: DType | None, nbytes: int, home: str) -> Storage:
        """Returns the storage of a key, which is added if it is new.

        Raises:
          DataError: it was described differently before, or the file is too small for all storages.
        """
        known = self.found.get(key)
        if known is None:
            known = self.found[key] = Storage(key, dtype, nbytes, home)
            self.left -= nbytes
            if self.left < 0:
                raise DataError(f"it has storages of more than its {self.nbytes:,} bytes")
        if (known.dtype, known.nbytes) != (dtype, nbytes):
            raise DataError(f"storage {key} has {known.nbytes:,} bytes of {known.dtype} and {nbytes:,} of {dtype}")
        return known

    def view(self, storage: Storage, place: Place, requires_grad: bool) -> Tensor:
        """Returns a tensor that is filled later.

        Raises:
          DataError: it is not within its storage.
        """
        numbers = (place.offset, *place.shape, *place.strides)
        if len(place.shape) != len(place.strides) or len(place.shape) > AXES_MAX:
            raise DataError(f"a tensor has shape {place.shape} and strides {place.strides}")
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers) or math.prod(place.shape) >= 2**62:
            raise DataError(f"a tensor has offset {place.offset}, shape {place.shape} and strides {place.strides}")
        if 0 not in place.shape and (place.offset + place.extent) * place.dtype.itemsize > storage.nbytes:
            raise DataError(f"a tensor of shape {place.shape} is not within the {storage.nbytes:,} bytes of its storage")
        tensor: Tensor = object.__new__(Tensor)
        storage.views.append((tensor, place))
        self.note(tensor, None, requires_grad)
        return tensor

    def note(self, tensor: Tensor, role: str | None, requires_grad: bool) -> None:
        """Notes a tensor's part of a storage, for `fill`."""
        if requires_grad not in (True, False):
            raise TypeError
        self.roles.append((tensor, role, requires_grad))

    def fill(self, read: Callable[[Storage], bytearray], is_little: bool, device_of: Callable[[str], str | None]) -> None:
        """Gives all tensors their values.

        Args:
          read:       reads the bytes of a storage
          is_little:  byte order of the file
          device_of:  a storage's device in the file -> the device of its tensors
        """
        copied = 0
        for storage in self.found.values():
            data, device = read(storage), device_of(storage.home)
            for dtype in dict.fromkeys(place.dtype for _, place in storage.views):
                views = [(tensor, place) for tensor, place in storage.views if place.dtype is dtype]
                elements = _elements(data, dtype, is_little)
                arrays = {place: _shown(elements, place) for _, place in views}
                is_alone = len(arrays) == 1 and all(array.nbytes <= elements.nbytes for array in arrays.values())
                made = {} if is_alone else _on_one_memory(elements, arrays, dtype, device)
                for place in arrays.keys() - made.keys():
                    copied += arrays[place].nbytes
                    if copied > COPIED_MAX * self.nbytes:
                        raise DataError("it has overlapping tensors that are larger than the file")
                    made[place] = Tensor(arrays[place], dtype, device)
                for tensor, place in views:
                    _become(tensor, made[place])
        for tensor, role, requires_grad in self.roles:
            if role is not None:
                tensor._role = role
            if requires_grad and not tensor.requires_grad:
                tensor.requires_grad_()


def _become(tensor: Tensor, value: Tensor) -> None:
    """Makes an empty tensor a view of the same storage as another."""
    tensor.cell, tensor.steps, tensor._grad, tensor._shown = value.cell, value.steps, None, None


def _elements(data: bytearray, dtype: DType, is_little: bool) -> Array:
    """Returns the elements in bytes, in the byte order of this machine."""
    count = len(data) // dtype.itemsize
    elements = np.frombuffer(data, dtype.numpy, count)
    if is_little != (sys.byteorder == "little") and dtype.itemsize > 1:
        elements = elements.view(f"u{dtype.itemsize}").byteswap().view(dtype.numpy)
    return elements


def _shown(elements: Array, place: Place) -> Array:
    """Returns a tensor's elements of a storage."""
    if 0 in place.shape:
        return np.empty(place.shape, elements.dtype)
    part = elements[place.offset : place.offset + place.extent]
    return strided(part, place.shape, [stride * elements.itemsize for stride in place.strides])


def _on_one_memory(elements: Array, arrays: Mapping[Place, Array], dtype: DType, device: str | None) -> dict[Place, Tensor]:
    """Returns tensors that are views of one memory, if steps of a view can express their strides."""
    memory = Tensor(elements, dtype, device)
    views: dict[Place, Tensor] = {}
    for place, array in arrays.items():
        found = steps_to(array, elements.size - place.offset)
        if found is not None:
            extent, steps = found
            start: View = ((OpCode.SHRINK, ((place.offset, place.offset + extent),)),)
            views[place] = memory.viewed_by((*start, *steps))
    return views


# ---- names ----
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

    dtype:  dtype of its elements; None: untyped bytes
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
    """Returns a device; each process has one of each kind, number 0."""
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
    """Raises DataError for tensors that PyTorch negates or conjugates on reading: their numbers in the file differ."""
    if flags is not None and not isinstance(flags, dict):
        raise TypeError
    if flags and any(flags.values()):
        raise DataError("a tensor in it is negated by a flag; torch.save(x.resolve_neg(), path) writes its numbers")


class Rebuilt(NamedTuple):
    """The functions of PyTorch's that a file calls to make its tensors, as views of `storages`."""

    storages: Storages

    def view(self, storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, dtype: Any) -> Tensor:
        if not isinstance(storage, Storage) or type(shape) is not tuple or type(strides) is not tuple:
            raise TypeError
        if not isinstance(dtype, DType):
            raise DataError("a tensor has a dtype that picograd does not have")
        return self.storages.view(storage, Place(dtype, offset, shape, strides), requires_grad and dtype.is_float)

    def tensor(
        self, storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any = False, hooks: Any = None,
        flags: Any = None,
    ) -> Tensor:  # fmt: skip
        _check_flags(flags)
        return self.view(storage, offset, shape, strides, requires_grad, storage.dtype)

    def tensor_of_bytes(
        self, storage: Any, offset: Any, shape: Any, strides: Any, requires_grad: Any, hooks: Any, dtype: Any,
        flags: Any = None,
    ) -> Tensor:  # fmt: skip
        _check_flags(flags)
        return self.view(storage, offset, shape, strides, requires_grad, dtype)

    def parameter(self, data: Any, requires_grad: Any = True, *more: Any) -> Tensor:
        if not isinstance(data, Tensor):
            raise TypeError
        self.storages.note(data, "parameter", requires_grad)
        return data


def torch_names(storages: Storages) -> Mapping[str, Any]:
    """Returns the values of the names in a file whose tensors are views of `storages`."""
    rebuilt = Rebuilt(storages)
    functions: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor": rebuilt.tensor,
        "torch._utils._rebuild_tensor_v2": rebuilt.tensor,
        "torch._utils._rebuild_tensor_v3": rebuilt.tensor_of_bytes,
        "torch._utils._rebuild_parameter": rebuilt.parameter,
        "torch._utils._rebuild_parameter_with_state": rebuilt.parameter,
    }
    tensors = {name: Builder(name, build) for name, build in functions.items()}

    def other_tensor(function: Any, kind: Any, args: Any, state: Any = None) -> Any:
        """Returns a tensor of a subclass, or with attributes, as a plain one."""
        if function not in tensors.values():
            raise TypeError
        return function.build(*args)

    other = "torch._tensor._rebuild_from_type_v2"
    return {**CONTAINERS, **VALUES, **NUMPY_NAMES, **tensors, other: Builder(other, other_tensor)}


# ---- reading ----
MAGIC = 0x1950A86A20F9469CFC6C
STREAM = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # first bytes of the stream: a pickle of the magic number
DeviceOf = Callable[[str], str | None]


def is_torch_stream(start: bytes) -> bool:
    """True for the first bytes of a stream."""
    return start.startswith(STREAM)


# ---- the zip format ----
def read_torch_zip(file: BinaryIO, nbytes: int, device_of: DeviceOf, others: bool) -> Any:
    """Returns the state in a zip file; its tensors have their own memory.

    Args:
      nbytes:     size of the file
      device_of:  a tensor's device in the file ("cpu", "cuda:0") -> its new device
      others:     make objects of unknown classes Stored, instead of refusing them

    Raises:
      DataError: the file is damaged or of another kind, or has values that picograd lacks.
    """
    with opened_zip(file) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        folder = next((name.partition("/")[0] for name in entries if name.partition("/")[2] == "data.pkl"), None)
        if folder is None or f"{folder}/constants.pkl" in entries:
            kind = "a zip file of something else" if folder is None else "a program of torch.jit"
            raise DataError(f"it is {kind}; torch.save(model.state_dict(), path) writes tensors")

        def content(name: str) -> bytearray:
            return stored_entry(archive, entries[f"{folder}/{name}"], nbytes)

        def persistent(identity: Any) -> Storage:
            kind, key, home, numel = _storage_id(identity)
            entry = entries.get(f"{folder}/data/{key}")
            there = 0 if entry is None else entry.file_size
            if entry is None or _nbytes(numel, kind) > there:
                raise DataError(f"storage {key} has {there:,} bytes for {numel:,} elements of {kind}")
            return storages.add(key, kind, there, home)

        storages, pickled = Storages(nbytes), content("data.pkl")
        names = torch_names(storages)
        state = Unpickler(io.BytesIO(pickled), len(pickled), names, persistent, others=others).load()
        is_little = f"{folder}/byteorder" not in entries or content("byteorder") == b"little"
        storages.fill(lambda storage: content(f"data/{storage.key}"), is_little, device_of)
        return state


def _storage_id(identity: Any) -> tuple[DType | None, str, str, int]:
    """Returns dtype, key, device and number of elements of a storage, from its persistent id.

    Raises:
      DataError: it has a dtype that picograd lacks.
      ValueError, TypeError: the id has another form.
    """
    word, kind, key, home, numel, *view = identity
    if word != "storage" or type(key) is not str or type(home) is not str or type(numel) is not int or numel < 0:
        raise ValueError
    if not isinstance(kind, StorageKind):
        raise DataError(f"storage {key} is a {getattr(kind, 'name', kind)}, whose dtype picograd does not have")
    if view not in ([], [None]):
        raise DataError(f"storage {key} is a part of another one, as PyTorch before 0.4 wrote them")
    return kind.dtype, key, home, numel


def _nbytes(numel: int, dtype: DType | None) -> int:
    """Returns the bytes of this number of elements; those without a dtype are bytes."""
    return numel * (1 if dtype is None else dtype.itemsize)


# ---- the stream ----
def read_torch_stream(file: BinaryIO, nbytes: int, device_of: DeviceOf, others: bool) -> Any:
    """Returns the state in a stream; arguments and errors as read_torch_zip.

    Raises:
      DataError: as there.
    """
    storages = Storages(nbytes)

    def load(names: Any, persistent: Any = None) -> Any:
        return Unpickler(file, nbytes, names, persistent, others=others).load()

    def persistent(identity: Any) -> Any:
        if identity[0] == "module":  # the class of a module, with its source text
            return identity[1]
        kind, key, home, numel = _storage_id(identity)
        return storages.add(key, kind, _nbytes(numel, kind), home)

    number, version, machine = load({}), load({}), load({})
    if number != MAGIC or version != 1001 or not isinstance(machine, dict):
        raise DataError(f"it is a stream of torch.save in version {version}; picograd knows 1001")
    state, keys = load(torch_names(storages), persistent), load({})
    is_list = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not is_list or sorted(keys) != sorted(storages.found):
        raise DataError("its list of storages is not that of its tensors")
    is_little = machine.get("little_endian") is not False
    starts = _starts(file, nbytes, [storages.found[key] for key in keys], is_little)

    def read(storage: Storage) -> bytearray:
        data = bytearray(storage.nbytes)
        file.seek(starts[storage.key])
        if read_into(file, data) != len(data):
            raise DataError("it is cut short")
        return data

    storages.fill(read, is_little, device_of)
    return state


def _starts(file: BinaryIO, nbytes: int, storages: Sequence[Storage], is_little: bool) -> dict[str, int]:
    """Returns the start of each storage's bytes, by key; the file is at the number of elements of the first."""
    starts = {}
    for storage in storages:
        count = int.from_bytes(file.read(8), "little" if is_little else "big")
        if _nbytes(count, storage.dtype) != storage.nbytes:
            raise DataError(f"storage {storage.key} has {count:,} elements, its tensors say {storage.nbytes:,} bytes")
        start = starts[storage.key] = file.tell()
        if start + storage.nbytes > nbytes:
            raise DataError(f"it is cut short: storage {storage.key} has {nbytes - start:,} of {storage.nbytes:,} bytes")
        file.seek(storage.nbytes, io.SEEK_CUR)
    return starts


# ---- writing ----
DEPTH_MAX = 200  # of containers in containers; Python's own limit is on calls
LONG_NBYTES_MAX = 255  # of an integer that torch.load reads


class TorchFile:
    """A state that is being written to a file.

    Raises:
      ArgumentError: a value in the state cannot be read by torch.load(weights_only=True); the error names it.
    """

    def __init__(self, state: Any):
        self.parts: list[bytes] = []
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []  # kept alive, since their id() is in the memo
        self.storages: list[Tensor] = []  # by key
        self.keys: dict[int, int] = {}  # key of each cell's storage
        tensors: dict[int, Tensor] = {}
        _collect(state, tensors, 0, set())
        realize(tensors.values())
        views = {(id(tensor.cell), shown_steps(tensor)) for tensor in tensors.values()}
        self.num_views = Counter(cell for cell, _ in views)
        self.write("the state", state)
        self.pickled = b"\x80\x02" + b"".join(self.parts) + b"."

    def write_to(self, file: Any) -> None:
        """Writes the file, and then one storage after the other."""
        with zipfile.ZipFile(file, "w") as archive:
            write_entry(archive, "archive/data.pkl", self.pickled)
            write_entry(archive, "archive/byteorder", b"little")
            for key, tensor in enumerate(self.storages):
                array = np.ascontiguousarray(tensor.detach().numpy())
                little = array.view(f"u{array.itemsize}").astype(f"<u{array.itemsize}", copy=False)
                write_entry(archive, f"archive/data/{key}", little.reshape(-1).view(np.uint8))
            write_entry(archive, "archive/version", b"3\n")

    # ---- values ----
    def write(self, path: str, value: Any) -> None:
        """Adds a value; a repeated one becomes a reference."""
        place = self.memo.get(id(value))
        if place is not None:
            self.parts.append(b"h" + bytes([place]) if place < 256 else b"j" + struct.pack("<I", place))
        elif isinstance(value, Tensor):
            self.tensor(value)
            self.remember(value)
        elif isinstance(value, Mapping):
            self.mapping(path, value)
        elif isinstance(value, list):
            self.parts.append(b"]")
            self.remember(value)
            self.items(path, enumerate(value), b"e")
        elif isinstance(value, tuple):
            self.items(path, enumerate(value), b"t")
            self.remember(value)
        elif isinstance(value, (set, frozenset)):
            self.call("builtins set", [list(value)])
        else:
            self.scalar(path, value)

    def remember(self, value: Any) -> None:
        """Stores the last value's place in the memo."""
        place = self.memo[id(value)] = len(self.memo)
        self.kept.append(value)
        self.parts.append(b"q" + bytes([place]) if place < 256 else b"r" + struct.pack("<I", place))

    def items(self, path: str, items: Any, end: bytes) -> None:
        """Adds values between a mark and the opcode that takes them."""
        self.parts.append(b"(")
        for name, value in items:
            self.write(f"{path}.{name}", value)
        self.parts.append(end)

    def mapping(self, path: str, value: Mapping[Any, Any]) -> None:
        """Adds a dict, or an OrderedDict."""
        if isinstance(value, OrderedDict):
            self.call("collections OrderedDict", [])
        else:
            self.parts.append(b"}")
        self.remember(value)
        self.parts.append(b"(")
        for key, item in value.items():
            self.write(f"{path} (a key)", key)
            self.write(f"{path}.{key}", item)
        self.parts.append(b"u")

    def call(self, name: str, args: list[Any]) -> None:
        """Adds a call of a function with plain arguments."""
        self.name(name)
        self.items(name, enumerate(args), b"tR")

    def name(self, name: str) -> None:
        """Adds a module and a name in it."""
        self.parts.append(f"c{name.replace(' ', chr(10), 1)}\n".encode())

    def scalar(self, path: str, value: Any) -> None:
        """Adds a number, text, bytes, a dtype or a device.

        Raises:
          ArgumentError: it is another value.
        """
        value = value.item() if isinstance(value, np.generic) else value
        if value is None or isinstance(value, bool):
            self.parts.append({None: b"N", True: b"\x88", False: b"\x89"}[value])
        elif isinstance(value, DType):
            self.name(f"torch {DTYPE_NAMES[value]}")
        elif isinstance(value, device):
            self.call("torch device", [value.type, *([] if value.index is None else [value.index])])
        elif isinstance(value, str):
            data = value.encode("utf-8", "surrogatepass")
            self.parts.append(b"X" + struct.pack("<I", len(data)) + data)
        elif isinstance(value, (bytes, bytearray)):
            self.call("_codecs encode", [value.decode("latin1"), "latin1"])
        elif isinstance(value, int):
            self.integer(path, value)
        elif isinstance(value, float):
            self.parts.append(b"G" + struct.pack(">d", value))
        elif isinstance(value, complex):
            self.call("builtins complex", [value.real, value.imag])
        else:
            raise ArgumentError(
                f"save: {path} is a {type(value).__name__}; tensors, numbers, strings, dicts, lists, tuples and sets fit.",
                hint=hint_for(value),
            )

    def integer(self, path: str, value: int) -> None:
        """Adds an integer in as few bytes as possible."""
        data = int(value).to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(data) > LONG_NBYTES_MAX:
            raise ArgumentError(f"save: {path} is an integer of {len(data)} bytes; {LONG_NBYTES_MAX} fit.")
        if -(2**31) <= value < 2**31:
            self.parts.append(b"J" + struct.pack("<i", value))
        else:
            self.parts.append(b"\x8a" + bytes([len(data)]) + data)

    # ---- tensors ----
    def tensor(self, value: Tensor) -> None:
        """Adds a tensor: its storage, and its part of that."""
        key, place = self.place_of(value)
        is_parameter = getattr(value, "_role", None) == "parameter"
        storage_name = STORAGE_NAMES.get(value.dtype)
        if is_parameter:
            self.name("torch._utils _rebuild_parameter")
            self.parts.append(b"(")
        self.name(f"torch._utils _rebuild_tensor_v{2 if storage_name else 3}")
        self.parts.append(b"((")
        self.scalar("", "storage")
        self.name(f"torch {storage_name}" if storage_name else "torch.storage UntypedStorage")
        numel = int(self.storages[key].numel())
        for fact in (str(key), "cpu", numel if storage_name else numel * value.dtype.itemsize):
            self.scalar("", fact)
        self.parts.append(b"tQ")
        for part in (place.offset, place.shape, place.strides, value.requires_grad and not is_parameter):
            self.write("", part)
        self.call("collections OrderedDict", [])
        if not storage_name:
            self.scalar("", value.dtype)
        self.parts.append(b"tR")
        if is_parameter:
            self.scalar("", value.requires_grad)
            self.call("collections OrderedDict", [])
            self.parts.append(b"tR")

    def place_of(self, value: Tensor) -> tuple[int, Place]:
        """Returns the key of a tensor's storage and the tensor's part of it; a shared storage is written whole."""
        shape = tuple(int(dim) for dim in value.shape)
        shown = None
        if self.num_views[id(value.cell)] > 1 or value.numel() > value.cell.op.numel:  # else row-major
            line = np.empty([int(dim) for dim in value.cell.op.shape], value.dtype.numpy)
            shown = stepped(line, shown_steps(value)) if line.size and value.cell.op.dtype is value.dtype else None
        if shown is None:
            is_alone = self.num_views[id(value.cell)] == 1
            key = self.keys.get(id(value.cell)) if is_alone else None
            if key is None:
                key = self.new_storage(value)
                if is_alone:
                    self.keys[id(value.cell)] = key
            strides = [int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape))]
            return key, Place(value.dtype, 0, shape, tuple(strides))
        if id(value.cell) not in self.keys:
            self.keys[id(value.cell)] = self.new_storage(Tensor.from_cell(value.cell))
        offset, *strides = (n // line.itemsize for n in (shown.ctypes.data - line.ctypes.data, *shown.strides))
        return self.keys[id(value.cell)], Place(value.dtype, offset, shape, tuple(strides))

    def new_storage(self, value: Tensor) -> int:
        """Returns the key of a storage with all elements of a tensor, in row-major order."""
        self.storages.append(value)
        return len(self.storages) - 1


def _collect(value: Any, tensors: dict[int, Tensor], depth: int, seen: set[int]) -> None:
    """Adds the tensors of a state, by id().

    Raises:
      ArgumentError: it is nested too deeply.
    """
    if isinstance(value, Tensor):
        tensors[id(value)] = value
        return
    if not isinstance(value, (Mapping, list, tuple)) or id(value) in seen:
        return
    if depth > DEPTH_MAX:
        raise ArgumentError(f"save: the state is nested more than {DEPTH_MAX} deep.")
    seen.add(id(value))
    for part in value.values() if isinstance(value, Mapping) else value:
        _collect(part, tensors, depth + 1, seen)


def hint_for(value: Any) -> str | None:
    """Returns a hint for a value that files of tensors cannot hold."""
    if hasattr(value, "state_dict"):
        return "save its state_dict()."
    return "Tensor(array)" if isinstance(value, np.ndarray) else None
