"""Files of torch.save, read without PyTorch: the zip format, and the stream that PyTorch wrote before 1.6.

In:    an open file
Out:   `read_torch_zip`, `read_torch_stream`; `is_torch_stream`
Called by: nn/state.py

The zip format has a pickle, `NAME/data.pkl`, in which tensors are views of storages, and each storage in an entry of its
own, `NAME/data/KEY`. The stream has five pickles (a number, the version, the machine, the state, the keys of the storages)
and then the storages, each after the number of its elements.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from picograd.dtype import DType
from picograd.errors import DataError
from picograd.formats.pickled import Unpickler
from picograd.formats.storages import Storage, Storages
from picograd.formats.torch_names import StorageKind, torch_names
from picograd.formats.zipped import opened_zip, read_into, stored_entry

MAGIC = 0x1950A86A20F9469CFC6C
STREAM = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # how the stream begins: the pickle of that number
DeviceOf = Callable[[str], str | None]


def is_torch_stream(start: bytes) -> bool:
    """True for the first bytes of a stream."""
    return start.startswith(STREAM)


# ---- the zip format ----
def read_torch_zip(file: BinaryIO, nbytes: int, device_of: DeviceOf, others: bool) -> Any:
    """Returns the state in a zip file; its tensors have memory of their own.

    Args:
      nbytes:     of the file
      device_of:  where tensors go, by where they were: "cpu", "cuda:0"
      others:     objects of other classes come as Stored; else they are refused

    Raises:
      DataError: the file is damaged or of another kind, or it has what picograd has not.
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
    """Returns dtype, key, device and number of elements of a storage that a pickle names.

    Raises:
      DataError: it has a dtype that picograd does not have.
      ValueError, TypeError: the name has another form.
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
    """Returns the bytes of so many elements; those without a dtype are bytes."""
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
    """Returns where the bytes of each storage begin, by key; the file is at the number of elements of the first one."""
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
