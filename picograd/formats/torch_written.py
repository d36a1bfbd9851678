"""Files that torch.load reads, with weights_only=True too: a zip file of a pickle and the storages of its tensors.

In:    a state: tensors, numbers, text and None in dicts, lists, tuples and sets
Out:   `TorchFile`
Called by: nn/state.py

Tensors on one memory, such as a weight that two layers share, have one storage in the file.
"""

from __future__ import annotations

import struct
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from picograd.device import device
from picograd.dtype import DType
from picograd.errors import ArgumentError
from picograd.formats.storages import Place
from picograd.formats.torch_names import DTYPE_NAMES, STORAGE_NAMES
from picograd.formats.zipped import write_entry
from picograd.tensor.core import realize
from picograd.tensor.exchange.arrays import stepped
from picograd.tensor.exchange.copies import shown_steps
from picograd.tensor.tensor import Tensor

DEPTH_MAX = 200  # of containers in containers; Python's own limit is on calls
LONG_NBYTES_MAX = 255  # of an integer that torch.load reads
Array = np.ndarray[Any, Any]


class TorchFile:
    """A state on its way into a file.

    Raises:
      ArgumentError: something in the state is a value that torch.load(weights_only=True) does not read; it is named.
    """

    def __init__(self, state: Any):
        self.parts: list[bytes] = []
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []  # whose id() is in the memo
        self.storages: list[Tensor] = []  # by key
        self.keys: dict[int, int] = {}  # of the storage of each cell of which there is one
        tensors: dict[int, Tensor] = {}
        _collect(state, tensors, 0, set())
        realize(tensors.values())
        views = {(id(tensor.cell), shown_steps(tensor)) for tensor in tensors.values()}
        self.num_views = Counter(cell for cell, _ in views)
        self.write("the state", state)
        self.pickled = b"\x80\x02" + b"".join(self.parts) + b"."

    def write_to(self, file: Any) -> None:
        """Writes the file, one storage after the other."""
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
        """Adds a value; what was added before is referred to."""
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
        """Notes the place of the value that was just made."""
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
        """Adds a dict, or an OrderedDict as one."""
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
        """Adds what a function makes of plain arguments."""
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
        """Adds an integer in as few bytes as fit it."""
        data = int(value).to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        if len(data) > LONG_NBYTES_MAX:
            raise ArgumentError(f"save: {path} is an integer of {len(data)} bytes; {LONG_NBYTES_MAX} fit.")
        if -(2**31) <= value < 2**31:
            self.parts.append(b"J" + struct.pack("<i", value))
        else:
            self.parts.append(b"\x8a" + bytes([len(data)]) + data)

    # ---- tensors ----
    def tensor(self, value: Tensor) -> None:
        """Adds a tensor: its storage, and what it shows of that."""
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
        """Returns the key of a tensor's storage and what it shows of that: of one that is shared, all of it is kept."""
        shape = tuple(int(dim) for dim in value.shape)
        shown = None
        if self.num_views[id(value.cell)] > 1 or value.numel() > value.cell.op.numel:  # else it is kept in order
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
        """Returns the key of a storage with all elements of a tensor, in order."""
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
    """Returns the remedy for a value that has no place in a file of tensors."""
    if hasattr(value, "state_dict"):
        return "save its state_dict()."
    return "Tensor(array)" if isinstance(value, np.ndarray) else None
