"""The safetensors format: arrays of every dtype and text metadata, as the bytes of a file.

In:    arrays by name, or the bytes of a file
Out:   `encode`, `decode`; `digest_of`
Called by: formats/state_file.py, train/checkpoint.py

The safetensors library, loaded when first needed, writes and checks the bytes. What is ours is the dtypes, of which it
knows more than NumPy, and a checksum: a flipped bit of a number is no fault of the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import DataError

Array = np.ndarray[Any, Any]
NAMES: dict[str, DType] = {
    "BOOL": dtypes.bool_, "U8": dtypes.uint8, "U16": dtypes.uint16, "U32": dtypes.uint32, "U64": dtypes.uint64,
    "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2,
    "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip


def encode(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Returns the bytes of a file with these arrays."""
    import safetensors

    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}  # alive while their addresses are used
    specs = {
        name: safetensors.TensorSpec(dtype=a.dtype.name, shape=a.shape, data_ptr=a.ctypes.data, data_len=a.nbytes)
        for name, a in held.items()
    }
    return bytes(safetensors.serialize(specs, dict(metadata) or None))


def decode(data: bytes) -> tuple[dict[str, tuple[Array, DType]], dict[str, str]]:
    """Returns the arrays with their dtypes by name, and the metadata.

    Raises:
      DataError: the bytes are not an intact file of this format, or of a dtype or shape that picograd does not have.
    """
    import safetensors

    try:
        entries = safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        header_nbytes = int.from_bytes(data[:8], "little")
        metadata = json_of(data[8 : 8 + header_nbytes].decode()).get("__metadata__") or {}
        del data  # the entries are copies: where the caller keeps none, the bytes are freed now
    except (safetensors.SafetensorError, ValueError) as error:
        raise DataError(error.fact if isinstance(error, DataError) else str(error)) from None
    arrays: dict[str, tuple[Array, DType]] = {}
    for name, entry in entries:
        dtype = NAMES.get(entry["dtype"])
        if dtype is None:
            raise DataError(f"tensor {name} has dtype {entry['dtype']}, which picograd does not have")
        try:
            arrays[name] = (np.frombuffer(entry["data"], dtype.numpy).reshape(entry["shape"]), dtype)
        except (ValueError, OverflowError):  # more axes, or longer ones, than NumPy has
            raise DataError(f"tensor {name} has the shape {str(entry['shape'])[:60]}, which no array has") from None
    return arrays, metadata


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


def digest_of(text: str, arrays: Mapping[str, Array]) -> str:
    """Returns the SHA-256 of some text, and of names, shapes, dtypes and elements in the order of names."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        digest.update(f"\n{name} {array.dtype} {array.shape}\n".encode("utf-8", "surrogatepass"))
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
