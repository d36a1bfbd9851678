"""The safetensors format: arrays of every dtype by name, and text metadata.

In:    arrays by name; or an open file
Out:   `write_arrays`; `read_header`, `read_array`; `Digest`
Called by: formats/state_file.py, train/checkpoint.py

Eight bytes say how long the header is, JSON that has dtype, shape and place of each array; the arrays follow without gaps.
What a checksum adds: a flipped bit of a number is no fault of the format.

Source: Hugging Face, safetensors, README.md and safetensors/src/tensor.rs, whose checks these are.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DataError
from picograd.formats.zipped import read_into
from picograd.record import Record

Array = np.ndarray[Any, Any]
NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip
NAME_OF = {dtype.numpy: name for name, dtype in NAMES.items()}
HEADER_NBYTES_MAX = 100_000_000
AXES_MAX = 64  # of a NumPy array
METADATA = "__metadata__"
ALIGNMENT_NBYTES = 8  # of the first array; wider elements come first, so that all are aligned


class Entry(Record):
    """Where an array is in a file.

    start:  of its first byte
    """

    dtype: DType
    shape: tuple[int, ...]
    start: int
    nbytes: int


class Digest:
    """A SHA-256 of some text, then of names, shapes, dtypes and elements of arrays, in the order of their names."""

    def __init__(self, text: str, arrays: Mapping[str, Array] | None = None):
        self._digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
        for name in sorted(arrays or {}):
            self.add(name, (arrays or {})[name])

    def add(self, name: str, array: Array) -> None:
        """Takes in one more array."""
        array = np.asarray(array, order="C")
        self._digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode("utf-8", "surrogatepass"))
        self._digest.update(array.reshape(-1).view(np.uint8).data)

    def text(self) -> str:
        """Returns 64 hexadecimal digits."""
        return self._digest.hexdigest()


# ---- writing ----
def write_arrays(file: Any, arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> None:
    """Writes a file with these arrays to an open one."""
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    order = sorted(held, key=lambda name: (-held[name].itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        start, end = end, end + held[name].nbytes
        header[name] = {"dtype": NAME_OF[held[name].dtype], "shape": held[name].shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT_NBYTES)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(held[name].reshape(-1).view(np.uint8).data)


# ---- reading ----
def read_header(file: BinaryIO, nbytes: int) -> tuple[dict[str, Entry], dict[str, str]]:
    """Returns where the arrays of a file are, in their order there, and the metadata.

    Raises:
      DataError: the header is damaged, is not of all of the file, or has a dtype or shape that picograd does not have.
    """
    length = int.from_bytes(file.read(8), "little")
    if nbytes < 8 or length > min(nbytes - 8, HEADER_NBYTES_MAX):
        raise DataError(f"its header has {length:,} bytes, the file {nbytes:,}" if nbytes >= 8 else "header too small")
    try:
        header = json_of(file.read(length).decode())
    except UnicodeDecodeError:
        raise DataError("its header is no text") from None
    metadata = header.pop(METADATA, None) if isinstance(header, dict) else ""
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise DataError("its header is no dict with text as metadata")
    entries = {name: _entry_of(name, value, 8 + length) for name, value in header.items()}
    end = 8 + length
    for name in sorted(entries, key=lambda name: (entries[name].start, entries[name].nbytes)):
        if entries[name].start != end:
            raise DataError(f"tensor {name} begins at byte {entries[name].start:,}, what is before it ends at {end:,}")
        end += entries[name].nbytes
    if end != nbytes:
        raise DataError(f"its header tells of {end:,} bytes, it has {nbytes:,}")
    return entries, metadata


def _entry_of(name: str, value: Any, first: int) -> Entry:
    """Returns dtype, shape and place of one array, of which the header counts from byte `first` on.

    Raises:
      DataError: one of them is not what the format has, or is not here.
    """
    kind, shape, place = [value.get(key) if isinstance(value, dict) else None for key in ("dtype", "shape", "data_offsets")]
    if not isinstance(shape, list) or not isinstance(place, list) or len(place) != 2 or not isinstance(kind, str):
        raise DataError(f"tensor {name} has dtype, shape and place {str((kind, shape, place))[:100]}")
    if not all(type(number) is int and 0 <= number < 2**63 for number in (*shape, *place)) or len(shape) > AXES_MAX:
        raise DataError(f"tensor {name} has the shape {str(shape)[:60]} and bytes {place}, which no array has")
    if kind not in NAMES:
        raise DataError(f"tensor {name} has dtype {kind}, which picograd does not have")
    nbytes = math.prod(shape) * NAMES[kind].itemsize
    if place[1] - place[0] != nbytes or math.prod(dim for dim in shape if dim) >= 2**63:
        raise DataError(f"tensor {name} of shape {shape} and dtype {kind} has bytes {place[0]:,} to {place[1]:,}")
    return Entry(NAMES[kind], tuple(shape), first + place[0], nbytes)


def read_array(file: BinaryIO, entry: Entry) -> Array:
    """Returns an array of a file.

    Raises:
      DataError: the file has become shorter meanwhile.
    """
    data = bytearray(entry.nbytes)
    file.seek(entry.start)
    if read_into(file, data) != entry.nbytes:
        raise DataError("it is cut short")
    return np.frombuffer(data, entry.dtype.numpy).reshape(entry.shape)


def json_of(text: str) -> Any:
    """Returns the value of some JSON.

    Raises:
      DataError: it is damaged or nested too deeply, or a dict in it has a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_dict_of)
    except RecursionError:
        raise DataError("its JSON is nested too deeply") from None
    except ValueError as error:
        raise DataError(error.fact if isinstance(error, DataError) else f"its JSON is damaged: {error}") from None


def _dict_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise DataError("a dict in its JSON has a key twice")
    return made
