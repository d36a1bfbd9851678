"""State on disk: a file is complete or absent, written in the format of its name, and read in that of its first bytes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Protocol, runtime_checkable

from picograd.dtype import DType
from picograd.errors import ArgumentError, ArgumentTypeError, DataError, DTypeError
from picograd.files import opened, write_whole
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_formats.numpy_file import NPY, Array, read_npy, read_npz, write_npy, write_npz
from picograd_formats.safetensors_file import read_state, state_bytes
from picograd_formats.torch_file import TorchFile, is_torch_stream, read_torch_stream, read_torch_zip
from picograd_formats.zipped import opened_zip

ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # first bytes of a zip file; the second has no entries
FORMATS = "safetensors, .pt, .pth, .npy and .npz are read."
# Other formats by their first bytes: the name of the format, and the remedy.
OTHERS: dict[bytes, tuple[str, str]] = {
    **{b"\x80" + bytes([version]): ("a pickle", "torch.save(state, path) and pg.save(state, path) write such files.")
       for version in range(2, 6)},
    b"\x89HDF": ("an HDF5 file", FORMATS),
    b"GGUF": ("a GGUF file", FORMATS),
    b"\x1f\x8b": ("packed with gzip", "gunzip it first."),
    b"version https://": ("a pointer of Git LFS, not the file itself", "git lfs pull"),
    b"<": ("a page of HTML or XML: perhaps an error page that was saved instead of the file", FORMATS),
}  # fmt: skip
MapLocation = str | Mapping[str, Any] | Callable[..., Any] | None


@runtime_checkable
class BinaryFile(Protocol):
    """An open binary file, such as io.BytesIO."""

    def read(self, count: int = -1, /) -> bytes:
        """Returns the next bytes."""
        ...

    def write(self, data: bytes, /) -> Any:
        """Adds bytes."""
        ...


def save(state: Any, path: str | os.PathLike[str] | BinaryFile) -> None:
    """Writes `state`, tensors and plain values (numbers, strings, None) in dicts, lists and tuples, to one file.

    Args:
      path:  name of the file, or a file opened for writing bytes; the state begins at its position, in the format of its
             own name's ending, if any

    The name's ending selects the format: .pt and .pth are PyTorch's, which torch.load reads and in which tensors on the
    same memory, such as a weight shared by two layers, stay shared; .npy has one tensor, .npz a dict of tensors. Everything
    else is safetensors with a checksum; a file of tensors alone is readable by all programs that support that format.

    Raises:
      ArgumentError: a value is not supported by the format, or the keys of a dict are not all strings or all integers (.pt
                     takes all kinds of keys).
      ArgumentTypeError: the file is opened for text.
      DataError:     the file cannot be written; an existing one is not changed.

    >>> import tempfile, os
    >>> name = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> save({"w": Tensor([1.5, 2.0])}, name)
    >>> load(name)["w"].tolist()
    [1.5, 2.0]
    """
    try:
        write = _writer(state, _ending(path))
    except RecursionError:
        raise ArgumentError("save: the state is nested too deeply, or contains itself.") from None
    if isinstance(path, (str, os.PathLike)):
        write_whole("save", path, write)
    else:
        try:
            write(path)
        except TypeError:
            if isinstance(path, io.TextIOBase):
                raise ArgumentTypeError("save: the file is open for text.", hint='open(path, "wb")') from None
            raise


def _ending(path: str | os.PathLike[str] | BinaryFile) -> str:
    """Returns the ending of a file's name; "" for an open file without a name, such as io.BytesIO."""
    name = path if isinstance(path, (str, os.PathLike)) else getattr(path, "name", "")
    return os.path.splitext(os.fspath(name))[1].lower() if isinstance(name, (str, os.PathLike)) else ""


def _writer(state: Any, ending: str) -> Callable[[Any], object]:
    """Returns a function that writes a state to an open file, in the format of a name's ending."""
    if ending in (".pt", ".pth"):
        return TorchFile(state).write_to
    if ending == ".npy":
        if not isinstance(state, Tensor):
            raise ArgumentError(f"save: a .npy file holds one tensor, got a {type(state).__name__}.", ".npz holds several.")
        array = _numpy_array("the tensor", state)
        return lambda file: write_npy(file, array)
    if ending == ".npz":
        tensors = dict(state) if isinstance(state, Mapping) else {"": state}
        for name, value in tensors.items():
            if not isinstance(name, str) or not isinstance(value, Tensor) or not isinstance(state, Mapping):
                raise ArgumentError(
                    f"save: a .npz file holds tensors by name, got {name!r}: {type(value).__name__}.",
                    hint=".pt and .safetensors hold other values too.",
                )
        realize(tensors.values())
        arrays = [(name, _numpy_array(name, tensor)) for name, tensor in tensors.items()]
        return lambda file: write_npz(file, arrays)
    data = state_bytes(state)
    return lambda file: file.write(data)


def _numpy_array(name: str, tensor: Tensor) -> Array:
    """Returns the array of a tensor with a dtype that NumPy has itself."""
    array = tensor.detach().numpy()
    if array.dtype.isbuiltin != 1:
        raise DTypeError(f"save: {name} is {tensor.dtype}, which NumPy's files do not have.", hint="x.float()")
    return array


def load(
    path: str | os.PathLike[str] | BinaryFile,
    device: str | None = None,
    *,
    map_location: MapLocation = None,
    weights_only: bool = True,
    mmap: bool | None = None,
) -> Any:
    """Reads a file of `save`, torch.save, numpy.save, numpy.savez, or any writer of safetensors; its code is never run.

    Args:
      path:          name of the file, or a file opened for reading bytes, which is read to its end
      device:        device of the tensors
      map_location:  PyTorch's name of `device`; also a dict, or a function of a storage and its device
      weights_only:  False: objects of unknown classes in PyTorch's files become records of their attributes; True: such a
                     file is refused
      mmap:          accepted, without effect: a file is read as a whole

    Raises:
      DataError: the file cannot be read, or is corrupt, cut short, or of another format.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "w.pt")
    >>> save({"step": 3, "weights": [Tensor([1.5])]}, path)
    >>> load(path)
    {'step': 3, 'weights': [Tensor([1.5])]}
    """
    device_of = _device_of(device, map_location)
    if isinstance(path, (str, os.PathLike)):
        with opened("load", path) as file:
            return _read(file, os.fspath(path), device_of, not weights_only)
    return _read(io.BytesIO(_bytes_of(path)), "what was read", device_of, not weights_only)


def _bytes_of(file: BinaryFile) -> bytes:
    data = file.read()
    if not isinstance(data, bytes):
        raise ArgumentTypeError("load: the file is open for text.", hint='open(path, "rb")')
    return data


def _device_of(device: str | None, map_location: MapLocation) -> Callable[[str], str | None]:
    """Returns a function: a storage's device in the file -> the device of its tensors."""
    if callable(map_location):
        # PyTorch's function gets the storage, and returns it on its new device.
        return lambda home: getattr(map_location(Tensor([]), home), "device", None)
    if isinstance(map_location, Mapping):
        return lambda home: _name_of(map_location.get(home, device))
    chosen = _name_of(device if map_location is None else map_location)
    return lambda home: chosen


def _name_of(place: Any) -> str | None:
    """Returns the name of a device, which may be PyTorch's; None for the default one."""
    return None if place is None else str(place)


def _read(file: BinaryIO, called: str, device_of: Callable[[str], str | None], others: bool) -> Any:
    """Returns the state in an open file, whose first bytes tell its format."""

    def tensor_of(array: Array, dtype: DType | None = None) -> Tensor:
        return Tensor(array, dtype, device_of("cpu"))

    nbytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(16)
    file.seek(0)
    kind = "NumPy"
    try:
        if start.startswith(NPY):
            return tensor_of(read_npy(file, nbytes))
        if start.startswith(ZIP) and _holds_arrays(file):
            return {name: tensor_of(array) for name, array in read_npz(file, nbytes)}
        kind = "PyTorch"
        if is_torch_stream(start):
            return read_torch_stream(file, nbytes, device_of, others)
        if start.startswith(ZIP):
            return read_torch_zip(file, nbytes, device_of, others)
        kind = "safetensors"
        return read_state(file, tensor_of)
    except DataError as error:
        if isinstance(error, OSError):
            raise
        other, remedy = _other_kind(start, called)
        if other and kind == "safetensors":
            raise DataError(f"load: {called} is {other}.", remedy) from None
        raise DataError(f"load: {called} cannot be read as a {kind} file: {error.fact}.", error.hint) from None


def _other_kind(start: bytes, called: str) -> tuple[str, str]:
    """Returns the kind of a file in another format, and a hint; "" for a file that may be damaged safetensors."""
    if not start or start[8:9] == b"{":
        return "" if start else "empty", FORMATS
    unknown = "" if called.endswith(".safetensors") else "of an unknown format"
    return next((what for beginning, what in OTHERS.items() if start.startswith(beginning)), (unknown, FORMATS))


def _holds_arrays(file: BinaryIO) -> bool:
    """True for a zip file of .npy files; PyTorch's reader reports damaged ones."""
    try:
        with opened_zip(file) as archive:
            return all(name.endswith(".npy") for name in archive.namelist())
    except DataError:
        return False
    finally:
        file.seek(0)
